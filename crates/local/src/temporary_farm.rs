//! A farm that a command starts for itself and ends with itself: real servers, run by our own `primus up`.
//!
//! `up` ends when the last of its farms goes, and also when this process is killed: it asks the kernel for that.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use primus_client::farms::{self, Farm, Started};
use primus_client::http::Request;
use primus_client::tasks::TaskClient;
use primus_client::{Client, Patience};
use primus_terminal::failure::Failure;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use uuid::Uuid;

use crate::answers::{ANSWER_TIME, LeaderTerm, Pace, believes, history, json, links_up, path, place};
use crate::{Algorithm, chaos};

/// How long a farm may take until everybody is alive, caught up and of one mind.
const SETTLING_TIME: Duration = Duration::from_secs(15);
/// How long it may take until all workers are there.
const WORKERS_TIME: Duration = Duration::from_secs(60);
/// How long it may take until a write is accepted again.
const WRITE_TIME: Duration = Duration::from_secs(10);
/// How long `up` may take to end by itself; it gives its servers two seconds.
const END_TIME: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);
/// How a loaded leader is made to hand over at once, and again soon.
const SOON: [(&str, &str); 3] = [
    ("PRIMUS_ELECTION_HANDOVER_DWELL", "100ms"),
    ("PRIMUS_ELECTION_HANDOVER_COOLDOWN", "500ms"),
    ("PRIMUS_ELECTION_LEAST_TENURE", "100ms"),
];
/// Of what `up` says on stderr, only this much is kept.
const WORDS_LEN_MAX: usize = 4096;

/// What a farm is for, as its name tells, and how its links are.
#[derive(Debug, Clone, Copy)]
pub struct Purpose {
    name: &'static str,
    is_plain: bool,
}

impl From<&'static str> for Purpose {
    fn from(name: &'static str) -> Self {
        Self { name, is_plain: false }
    }
}

impl Purpose {
    /// A farm with links that are not encrypted: for workers that have no certificate, and to compare.
    #[must_use]
    pub const fn plain(name: &'static str) -> Self {
        Self { name, is_plain: true }
    }
}

/// The farm, as long as this lives.
#[derive(Debug)]
pub struct TemporaryFarm {
    /// Neighbours share theirs.
    _up: Arc<Up>,
    farm: Farm,
}

/// A `primus up` of ours, which ends when this value goes.
#[derive(Debug)]
struct Up(Child);

impl TemporaryFarm {
    /// Starts it and waits until it has a leader.
    ///
    /// # Errors
    /// If no farm can be started.
    pub fn start(purpose: impl Into<Purpose>, servers: u64) -> Result<Self, Failure> {
        Self::start_ranked(purpose, servers, "id")
    }

    /// The same; by load, no server takes leadership back by itself.
    ///
    /// # Errors
    /// If no farm can be started.
    pub fn start_ranked(purpose: impl Into<Purpose>, servers: u64, rank: &str) -> Result<Self, Failure> {
        // Nobody submits anything here, and figures should not depend on who looks on.
        Self::begin(purpose, servers, &["--rank", rank, "--workers", "0"])
    }

    /// The same, by load, with leaders that hand over as soon as they may.
    ///
    /// # Errors
    /// If no farm can be started.
    pub fn start_handing_over(purpose: impl Into<Purpose>, servers: u64) -> Result<Self, Failure> {
        Self::begin_told(purpose, servers, &["--rank", "load", "--workers", "0"], &SOON)
    }

    /// The same, by id, with this algorithm.
    ///
    /// # Errors
    /// If no farm can be started.
    pub fn start_electing(
        purpose: impl Into<Purpose>,
        servers: u64,
        algorithm: Algorithm,
    ) -> Result<Self, Failure> {
        Self::begin(purpose, servers, &["--algorithm", algorithm.name(), "--rank", "id", "--workers", "0"])
    }

    /// The same, with workers that can run anything.
    ///
    /// # Errors
    /// If no farm can be started.
    pub fn start_with_workers(
        purpose: impl Into<Purpose>,
        servers: u64,
        workers: u64,
        slots: u64,
    ) -> Result<Self, Failure> {
        let [workers, slots] = [workers, slots].map(|number| number.to_string());
        Self::begin(purpose, servers, &["--rank", "id", "--workers", &workers, "--slots", &slots])
    }

    /// The same, by load, without workers; leases last this long.
    ///
    /// # Errors
    /// If no farm can be started.
    pub fn start_leasing(purpose: impl Into<Purpose>, servers: u64, lease: &str) -> Result<Self, Failure> {
        let variables = [("PRIMUS_GUARD_LEASE", lease)];
        Self::begin_told(purpose, servers, &["--rank", "load", "--workers", "0"], &variables)
    }

    fn begin(purpose: impl Into<Purpose>, servers: u64, options: &[&str]) -> Result<Self, Failure> {
        Self::begin_told(purpose, servers, options, &[])
    }

    fn begin_told(
        purpose: impl Into<Purpose>,
        servers: u64,
        options: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Self, Failure> {
        let purpose = purpose.into();
        let name = format!("{}-{}", purpose.name, std::process::id());
        Self::of(Arc::new(Up::start(purpose, &name, servers, options, variables)?), &name)
    }

    /// Two farms that are neighbours, with workers of one slot that can run anything. No other farms are called like them.
    ///
    /// # Errors
    /// If no farm can be started.
    pub fn start_neighbours(
        purpose: impl Into<Purpose>,
        servers: u64,
        workers: u64,
        variables: &[(&str, &str)],
    ) -> Result<[Self; 2], Failure> {
        let purpose = purpose.into();
        let names = ["north", "south"].map(|wind| format!("{wind}-{}-{}", purpose.name, std::process::id()));
        let workers = workers.to_string();
        let options = ["--farms", "2", "--rank", "id", "--workers", &workers, "--slots", "1"];
        let up = Arc::new(Up::start(purpose, &names[0], servers, &options, variables)?);
        let [north, south] = names.map(|name| Self::of(Arc::clone(&up), &name));
        Ok([north?, south?])
    }

    /// The farm of this name, which `up` has said is ready.
    fn of(up: Arc<Up>, name: &str) -> Result<Self, Failure> {
        let farm = Farm::find(Some(name))?.ok_or_else(|| refused(String::new()))?;
        Ok(Self { _up: up, farm })
    }

    /// How it is now: processes change when servers die and start again.
    ///
    /// # Errors
    /// If the farm is gone.
    pub fn now(&self) -> Result<Farm, Failure> {
        Ok(self.farm.again()?)
    }

    /// Its servers, dead or alive.
    pub fn servers(&self) -> &[Started] {
        &self.farm.servers
    }

    /// Waits until all servers are alive, linked, caught up, and agree on a leader.
    ///
    /// # Errors
    /// If that takes too long, or the farm is gone.
    pub fn settled(&self) -> Result<LeaderTerm, Failure> {
        chaos::wait(SETTLING_TIME, "all servers to be alive and of one mind", || {
            let now = self.now()?;
            let is_whole = now.servers.iter().all(|server| server.pid.is_some());
            Ok(if is_whole { self.agreement(&Client::of(&now)) } else { None })
        })
    }

    /// Waits until so many workers are there and nothing runs.
    ///
    /// # Errors
    /// If that takes too long, or the farm is gone.
    pub fn wait_for_workers(&self, count: u64) -> Result<(), Failure> {
        chaos::wait(WORKERS_TIME, "all workers to be there", || {
            let status = Client::of(&self.now()?).latest("/v1/status")?;
            let workers = status["workers"].as_array().map_or(0, Vec::len) as u64;
            Ok((workers == count && status["running"] == 0).then_some(()))
        })
    }

    fn agreement(&self, client: &Client) -> Option<LeaderTerm> {
        let count = self.farm.servers.len();
        let reigns: Vec<LeaderTerm> =
            client.views("/v1/leader").iter().filter_map(|(_, view)| LeaderTerm::of(view)).collect();
        let first = *reigns.first()?;
        let agree = reigns.len() == count && reigns.iter().all(|reign| *reign == first);
        let is_linked = |server: &Started| links_up(&server.api) == Some(count - 1);
        let status = client.latest("/v1/status").ok().filter(|status| LeaderTerm::of(status) == Some(first))?;
        let is_well = |server: &Value| server["alive"] == true && server["lag"] == 0;
        let servers = status["servers"].as_array()?;
        let all_well = servers.len() == count && servers.iter().all(is_well);
        (agree && all_well && self.farm.servers.iter().all(is_linked)).then_some(first)
    }

    /// Writes while all is well.
    ///
    /// # Errors
    /// If no server accepts the write.
    pub fn write(&self, key: &str, value: &str) -> Result<(), Failure> {
        let path = path(key);
        let request = Request { method: "PUT", path: &path, body: value.as_bytes() };
        Client::of(&self.now()?).write(request, Patience::WhileNoLeader(WRITE_TIME))?;
        Ok(())
    }

    /// What was written, as a server says that knows the latest.
    ///
    /// # Errors
    /// If no server answers.
    pub fn read(&self, key: &str) -> Result<String, Failure> {
        let answer = Client::of(&self.now()?).read(&path(key), Patience::WhileNoLeader(WRITE_TIME))?;
        Ok(answer["value"].as_str().unwrap_or_default().to_string())
    }

    /// Writes to the others in turn, without pause, until one acknowledges. Who leads then?
    ///
    /// A server that still believes in the fallen leader would pass the write on to it and wait. It is therefore first
    /// asked whom it follows, and not troubled while it names that one.
    ///
    /// # Errors
    /// If no server accepts the write in time.
    pub fn write_without(&self, fallen: u64, key: &str, value: &str) -> Result<LeaderTerm, Failure> {
        let path = path(key);
        let request = Request { method: "PUT", path: &path, body: value.as_bytes() };
        let until = Instant::now() + WRITE_TIME;
        let others = || self.farm.servers.iter().filter(|server| server.id != fallen);
        while Instant::now() < until {
            for server in others() {
                let Some(reign) = believes(&server.api).filter(|reign| reign.leader != fallen) else { continue };
                let answer = request.send(place(&server.api), ANSWER_TIME);
                if answer.is_ok_and(|answer| answer.status == 200) {
                    return Ok(reign);
                }
            }
        }
        let message = format!("no write was accepted within {} s", WRITE_TIME.as_secs());
        Err(Failure::no_leader(message, "see whether the host is overloaded"))
    }

    /// Makes all links between its servers this slow, one way, and waits until all servers have measured it.
    ///
    /// # Errors
    /// If the servers do not measure it in time.
    pub fn slow_down(&self, delay: Duration) -> Result<(), Failure> {
        let ids = self.farm.servers.iter().map(|server| server.id).collect();
        chaos::slow_down(&self.now()?, &ids, delay)?;
        let least_ms = 2.0 * delay.as_secs_f64() * 1000.0;
        chaos::wait(SETTLING_TIME, "all servers to measure how slow their links are", || {
            let paces = self.paces();
            let all = paces.len() == ids.len() && paces.iter().all(|pace| pace.fastest_ms >= least_ms);
            Ok(all.then_some(()))
        })
    }

    /// What its servers measure, those that are alive.
    pub fn paces(&self) -> Vec<Pace> {
        self.farm.servers.iter().filter_map(|server| Pace::of(&json(&server.api, "/v1/status")?)).collect()
    }

    /// Has its leader say something.
    ///
    /// # Errors
    /// If no server answers.
    pub fn ask(&self, path: &str) -> Result<Value, Failure> {
        Ok(Client::of(&self.now()?).read(path, Patience::WhileNoLeader(WRITE_TIME))?)
    }

    /// Submits a job, whoever leads meanwhile. What is it called?
    ///
    /// # Errors
    /// If the farm takes no tasks.
    pub fn submit(&self, job: &Value) -> Result<String, Failure> {
        let answer =
            TaskClient::of(&self.now()?).submit(job.to_string().as_bytes(), &Uuid::now_v7().to_string())?;
        let job = answer["job"].as_str().map(str::to_owned);
        job.ok_or_else(|| Failure::failed("refused", "the farm takes no tasks", "please report this"))
    }

    /// What has happened, as all servers tell that are alive, in the order of time.
    pub fn happened(&self) -> Vec<Value> {
        let mut events: Vec<Value> =
            self.farm.servers.iter().filter_map(|server| history(&server.api)).flatten().collect();
        // Times as they are written sort like times.
        events.sort_by_key(|event| event["time"].as_str().map(str::to_owned));
        events
    }

    /// Does another server's history tell that this reign began because the fallen leader was missed?
    pub fn is_failover(&self, fallen: u64, new: LeaderTerm) -> bool {
        let is_it = |event: &Value| {
            let is_missed = ["link_lost", "silence"].iter().any(|reason| event["reason"] == *reason);
            LeaderTerm::of(event) == Some(new) && event["previous"] == fallen && is_missed
        };
        let others = self.farm.servers.iter().filter(|server| server.id != fallen);
        others.filter_map(|server| history(&server.api)).flatten().any(|event| is_it(&event))
    }

    /// Waits until this server itself says that another one leads, or none.
    ///
    /// # Errors
    /// If that takes too long.
    pub fn wait_until_noticed(&self, id: u64) -> Result<(), Failure> {
        let until = Instant::now() + WRITE_TIME;
        let api = self.farm.servers.iter().find(|server| server.id == id).map(|server| server.api.as_str());
        while Instant::now() < until {
            let view = api.and_then(|api| json(api, "/v1/leader"));
            if view.is_some_and(|view| view["leader"].as_u64() != Some(id)) {
                return Ok(());
            }
        }
        let message = format!("server {id} still believes that it leads, after {} s", WRITE_TIME.as_secs());
        Err(Failure::failed("stale", message, "please report this"))
    }
}

impl Up {
    /// Starts it and waits until it says that all is ready. Servers get what variables say about elections, guards,
    /// lending and loads.
    fn start(
        purpose: Purpose,
        name: &str,
        servers: u64,
        options: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Self, Failure> {
        let spawned = command(name, servers, options).and_then(|mut command| {
            command.args(purpose.is_plain.then_some("--insecure")).envs(variables.iter().copied()).spawn()
        });
        let mut up = spawned.map(Self).map_err(|error| {
            Failure::failed("system", format!("primus up cannot be started: {error}"), "make room, then try again")
        })?;
        let words = up.0.stderr.take().map(listen);
        let mut ready = String::new();
        let read = up.0.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut ready));
        if matches!(read, Some(Ok(_))) && ready.starts_with("{\"ready\":true") {
            return Ok(up);
        }
        // It has said all that it says when it has ended.
        drop(up);
        Err(refused(words.and_then(|words| words.join().ok()).unwrap_or_default()))
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        end(&mut self.0);
        // Had it to be killed, its folder is left.
        _ = farms::tidy();
    }
}

fn command(name: &str, servers: u64, options: &[&str]) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["up", "-o", "json", "--farm", name, "--servers", &servers.to_string()]);
    command.args(options);
    command.arg("--parent").arg(std::process::id().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// Reads all that is said, so that `up` never has to wait for a reader, and keeps the beginning.
fn listen(stderr: ChildStderr) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut stderr = BufReader::new(stderr);
        let mut words = String::new();
        _ = stderr.by_ref().take(WORDS_LEN_MAX as u64).read_to_string(&mut words);
        _ = std::io::copy(&mut stderr, &mut std::io::sink());
        words
    })
}

/// Why there is no farm, in the words of `up`.
fn refused(words: String) -> Failure {
    let body: Option<Value> = words.lines().rev().find_map(|line| serde_json::from_str(line).ok());
    let text = |key: &str| body.as_ref().and_then(|body| Some(body["error"][key].as_str()?.to_string()));
    let message = text("message").unwrap_or_else(|| "it ended without a word".to_string());
    let hint = text("hint").unwrap_or_else(|| "see what primus up says".to_string());
    Failure::failed("system", format!("no farm could be started: {message}"), hint)
}

/// Politely, then not.
fn end(up: &mut Child) {
    if let Some(pid) = farms::process(up.id()) {
        _ = kill_process(pid, Signal::TERM);
    }
    let until = Instant::now() + END_TIME;
    while matches!(up.try_wait(), Ok(None)) && Instant::now() < until {
        thread::sleep(PAUSE);
    }
    _ = up.kill();
    _ = up.wait();
}
