//! What can go wrong, on demand, in a farm that `primus up` runs for this user.
//!
//! Signals go straight to the processes. Only `primus up` can start one, so a restart is a file that it finds.

mod targets;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use std::{fs, thread};

use primus_client::farms::{self, Farm, Started};
use primus_node::link_faults::DELAY_MAX;
use primus_terminal::amounts::{length, quoted};
use primus_terminal::failure::Failure;
use primus_terminal::values::listed;
use rustix::process::{Signal, kill_process};
use serde::Serialize;
use serde_json::{Value, json};

use self::targets::{Group, Node, all, find, find_server, groups, pair};

const ANSWER_TIME: Duration = Duration::from_secs(2);
const DEATH_TIME: Duration = Duration::from_secs(5);
const RESTART_TIME: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

/// What was done, as scripts see it.
#[derive(Debug, Serialize)]
pub struct Done {
    chaos: &'static str,
    farm: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    servers: BTreeSet<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip)]
    text: String,
}

impl Done {
    /// Something that is done to the farm as a whole.
    fn of(farm: &Farm, chaos: &'static str, text: String) -> Self {
        let (farm, servers) = (farm.name.clone(), BTreeSet::new());
        Self { chaos, farm, server: None, worker: None, pid: None, servers, delay_ms: None, text }
    }

    /// What was done, for people.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Kills a server or a worker as `kill -9` does, and waits until `primus up` has noticed: a restart then finds it dead.
///
/// # Errors
/// If the target is unknown or dead, or `primus up` does not notice.
pub fn kill(farm: &Farm, target: &str) -> Result<Done, Failure> {
    let node = find(farm, target)?;
    let done = kill_at_once(farm, target)?;
    wait(DEATH_TIME, "it to die", || Ok((node.current_pid(farm)? != done.pid).then_some(())))?;
    Ok(done)
}

/// Kills a server or a worker, and waits for nothing.
///
/// # Errors
/// If the target is unknown or dead.
pub fn kill_at_once(farm: &Farm, target: &str) -> Result<Done, Failure> {
    signal(farm, target, "kill", "is dead", Signal::KILL)
}

/// Stops a server or a worker: it keeps its connections and says nothing.
///
/// # Errors
/// If the target is unknown or dead.
pub fn freeze(farm: &Farm, target: &str) -> Result<Done, Failure> {
    signal(farm, target, "freeze", "is frozen", Signal::STOP)
}

/// Lets a frozen server or worker go on.
///
/// # Errors
/// If the target is unknown or dead.
pub fn thaw(farm: &Farm, target: &str) -> Result<Done, Failure> {
    signal(farm, target, "thaw", "goes on", Signal::CONT)
}

fn signal(farm: &Farm, target: &str, chaos: &'static str, outcome: &str, signal: Signal) -> Result<Done, Failure> {
    let node = find(farm, target)?;
    let who = node.who();
    let dead = || {
        let name = who.rsplit(' ').next().unwrap_or_default();
        Failure::failed("dead", format!("{who} is dead"), format!("primus chaos restart {name} starts it"))
    };
    let pid = node.pid().ok_or_else(dead)?;
    let process = farms::process(pid).ok_or_else(dead)?;
    kill_process(process, signal).map_err(|_| dead())?;
    Ok(node.done(farm, chaos, pid, format!("{who} (pid {pid}) {outcome}")))
}

/// Starts a dead server or worker again, or kills a live one first.
///
/// # Errors
/// If the target is unknown, must not be started again, or does not start.
pub fn restart(farm: &Farm, target: &str) -> Result<Done, Failure> {
    let node = find(farm, target)?;
    let (who, old) = (node.who(), node.pid());
    if let Ok(words) = fs::read_to_string(farms::end_note(&farm.dir, &node.files())) {
        let hint = "mend that, then start primus up again with this folder";
        return Err(Failure::final_end(format!("{who} must not be started again: {words}"), hint));
    }
    let request = farms::restart_request(&farm.dir, &node.files());
    fs::write(&request, "").map_err(|error| {
        Failure::failed("storage", format!("{} cannot be written: {error}", request.display()), "check the folder")
    })?;
    let mut seen = None;
    let listens = || match &node {
        Node::Server(server) => primus_client::listens(&server.api),
        Node::Worker(_) => true,
    };
    let pid = wait(RESTART_TIME, "it to start", || {
        let now = node.current_pid(farm)?;
        seen = seen.or(now.filter(|pid| Some(*pid) != old));
        if seen.is_some() && now.is_none() {
            let log = farms::log_file(&farm.dir, &node.files());
            let message = format!("{who} did not start");
            return Err(Failure::failed("dead", message, format!("see {}", log.display())));
        }
        Ok(seen.filter(|_| listens()))
    })?;
    Ok(node.done(farm, "restart", pid, format!("{who} runs again (pid {pid})")))
}

/// Whose links every server cuts.
#[derive(Debug, Default)]
struct Cuts<'a> {
    /// Each server's own.
    groups: BTreeMap<u64, Group>,
    /// Are workers' links closed? Otherwise nothing passes on them.
    is_closed: bool,
    /// Those of other farms.
    farms: &'a [String],
}

/// Cuts groups, such as `1,w1|2,3`, off from each other, and all servers from those of other farms.
///
/// # Errors
/// If the groups make no sense, or a live server does not answer.
pub fn partition(farm: &Farm, text: Option<&str>, is_closed: bool, farms: &[String]) -> Result<Done, Failure> {
    let groups = text.map_or_else(|| Ok(Vec::new()), |text| groups(farm, text))?;
    let mut cuts = Cuts { is_closed, farms, ..Cuts::default() };
    for group in &groups {
        let mut others = Group::default();
        for other in groups.iter().filter(|other| *other != group).cloned() {
            others.servers.extend(other.servers);
            others.workers.extend(other.workers);
        }
        cuts.groups.extend(group.servers.iter().map(|server| (*server, others.clone())));
    }
    let farms = farms.iter().map(|name| format!("from {name}"));
    let said: Vec<String> = text.map(str::to_owned).into_iter().chain(farms).collect();
    cut(farm, &cuts, "partition", format!("links are cut: {}", said.join(", ")))
}

/// Mends all links.
///
/// # Errors
/// If a live server does not answer.
pub fn heal(farm: &Farm) -> Result<Done, Failure> {
    slow_down(farm, &all(farm), Duration::ZERO)?;
    cut(farm, &Cuts::default(), "heal", "all links are mended".to_string())
}

/// Delays what servers say to each other: these, or all of them.
///
/// # Errors
/// If servers or time make no sense, or a live server does not answer.
pub fn delay(farm: &Farm, servers: &str, time: &str) -> Result<Done, Failure> {
    let length = delay_time(time)?;
    let ids = if servers == "all" { all(farm) } else { pair(farm, servers)? };
    let said = listed(ids.iter());
    slow_down(farm, &ids, length)?;
    let text = match length.as_millis() {
        0 => format!("the links between servers {said} are not delayed any more"),
        ms => format!("the links between servers {said} are delayed by {ms} ms each way"),
    };
    Ok(Done { servers: ids, delay_ms: u64::try_from(length.as_millis()).ok(), ..Done::of(farm, "delay", text) })
}

/// By how much a link can be delayed: whole milliseconds.
///
/// # Errors
/// If the text is not such a time.
pub fn delay_time(text: &str) -> Result<Duration, Failure> {
    let is_good = |length: &Duration| *length <= DELAY_MAX && length.as_micros().is_multiple_of(1000);
    length("TIME", text).ok().filter(is_good).ok_or_else(|| {
        let hint = "write it like 75ms, whole milliseconds up to 5s; 0ms is not a delay";
        Failure::usage(format!("the delay is {}", quoted(text)), hint)
    })
}

/// Tells each of these servers, if it lives, how slow its links to the others are.
///
/// # Errors
/// If a live server does not answer.
pub fn slow_down(farm: &Farm, servers: &BTreeSet<u64>, delay: Duration) -> Result<(), Failure> {
    let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
    tell_live(farm, "/v1/chaos/delay", |server| {
        let peers: Vec<&u64> = servers.iter().filter(|id| **id != server.id).collect();
        servers.contains(&server.id).then(|| json!({ "peers": peers, "delay_ms": delay_ms }))
    })
}

/// Tells every live server whom it must not talk to; who is not named may talk to everybody.
fn cut(farm: &Farm, cuts: &Cuts<'_>, chaos: &'static str, text: String) -> Result<Done, Failure> {
    tell_live(farm, "/v1/chaos/cut", |server| {
        let Group { servers, workers } = cuts.groups.get(&server.id).cloned().unwrap_or_default();
        let manner = if cuts.is_closed { "closed" } else { "held" };
        Some(json!({ "peers": servers, manner: workers, "farms": cuts.farms }))
    })?;
    Ok(Done::of(farm, chaos, text))
}

/// Sends every live server what is meant for it, if anything is.
fn tell_live(farm: &Farm, path: &str, words: impl Fn(&Started) -> Option<Value>) -> Result<(), Failure> {
    let live = farm.servers.iter().filter(|server| server.pid.is_some());
    let told = live.filter_map(|server| Some(primus_client::tell(&server.api, path, &words(server)?, ANSWER_TIME)));
    // One that is frozen must not keep the others from being told.
    let told: Vec<Result<(), primus_client::Error>> = told.collect();
    Ok(told.into_iter().collect::<Result<(), _>>()?)
}

/// Has a server pretend that it has this load, or measure again.
///
/// # Errors
/// If the server is unknown or does not answer, or the load makes no sense.
pub fn load(farm: &Farm, target: &str, score: &str) -> Result<Done, Failure> {
    let server = find_server(farm, target)?;
    let id = server.id;
    let (body, text) = match score {
        "none" => (json!({ "score": null }), format!("server {id} measures its load again")),
        _ => {
            let number = score.parse::<f64>().ok().filter(|score| (0.0..=100.0).contains(score));
            let hint = "give a load from 0 to 100, or none";
            let number = number.ok_or_else(|| Failure::usage(format!("SCORE is {}", quoted(score)), hint))?;
            (json!({ "score": number }), format!("server {id} pretends that its load is {number}"))
        }
    };
    primus_client::tell(&server.api, "/v1/chaos/load", &body, ANSWER_TIME)?;
    Ok(Done { server: Some(id), pid: server.pid, ..Done::of(farm, "load", text) })
}

/// Tries again and again until something is found.
///
/// # Errors
/// If an attempt fails, or nothing is found for so long.
pub fn wait<T>(
    length: Duration,
    what: &str,
    mut attempt: impl FnMut() -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let until = Instant::now() + length;
    loop {
        if let Some(found) = attempt()? {
            return Ok(found);
        }
        if Instant::now() > until {
            let message = format!("waited {} s for {what}", length.as_secs());
            return Err(Failure::too_long(message, "see primus status"));
        }
        thread::sleep(PAUSE);
    }
}
