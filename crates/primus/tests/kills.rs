//! End to end: servers are killed, frozen and started again while clients read and write; then the clients' history is
//! judged, and what the servers say about who led when.
//!
//! The faults are drawn from a seed, which is printed; what the operating system makes of them is not. `PRIMUS_SEED` sets
//! the seed, `PRIMUS_KILLS` the number of faults.
#![allow(clippy::unwrap_used, reason = "helpers of tests may give up as tests do")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use primus_lab::chance::Chance;
use primus_lab::history::{self, Action, Operation, Outcome};
use primus_lab::tally;
use serde_json::Value;

/// How long a condition may take. Far more than it should, because the host may be busy.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a client waits for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(2);
const SERVERS: u64 = 5;
/// A majority of five stays.
const DOWN_MAX: usize = 2;
const CLIENTS: u64 = 8;
const KEYS: u64 = 4;
const FAULTS: usize = 30;
/// How often a whole farm is killed.
const ROUNDS: usize = 3;

/// A farm that `primus up` runs in a folder of its own; nothing of either is left when the test ends, however it ends.
struct Farm {
    dir: PathBuf,
    up: Child,
    api: Vec<SocketAddr>,
}

/// What a server is made to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Runs,
    Dead,
    Frozen,
}

/// What all clients did.
struct Clients<'a> {
    api: &'a [SocketAddr],
    began: Instant,
    operations: Mutex<Vec<Operation>>,
    /// When the newest acknowledged write began.
    acknowledged_us: AtomicU64,
    unanswered: AtomicUsize,
    stop: AtomicBool,
}

/// Breaks servers and mends them.
struct Saboteur<'a> {
    farm: &'a Farm,
    clients: &'a Clients<'a>,
    chance: Chance,
    states: BTreeMap<u64, State>,
    leaders: Leaders,
}

/// Who led in which term, as any server ever said.
#[derive(Default)]
struct Leaders(BTreeMap<u64, BTreeSet<u64>>);

#[test]
fn kills_freezes_and_restarts_cost_no_acknowledged_write() {
    let seed = number_from("PRIMUS_SEED").unwrap_or_else(fresh_seed);
    let faults = number_from("PRIMUS_KILLS").map_or(FAULTS, |count| usize::try_from(count).unwrap());
    println!("seed {seed}, {faults} faults");
    let farm = Farm::up();
    let clients = &Clients::new(&farm.api);
    let leaders = thread::scope(|scope| {
        // Whatever happens to the saboteur, the clients must end, or the test never would.
        let _stop = StopAtEnd(&clients.stop);
        (0..CLIENTS)
            .for_each(|number| _ = scope.spawn(move || clients.work(Chance::new(seed ^ (number << 32)), number)));
        let mut saboteur = Saboteur::new(&farm, clients, seed);
        (0..faults).for_each(|_| saboteur.harm());
        saboteur.mend_all();
        saboteur.leaders
    });
    judge(seed, &farm, clients, leaders);
    tally::add("kills", faults);
    farm.end();
}

#[test]
fn a_farm_that_is_killed_as_a_whole_keeps_every_acknowledged_write() {
    let seed = number_from("PRIMUS_SEED").unwrap_or_else(fresh_seed);
    println!("seed {seed}, everybody at once");
    let farm = Farm::up();
    let clients = &Clients::new(&farm.api);
    let leaders = thread::scope(|scope| {
        let _stop = StopAtEnd(&clients.stop);
        (0..CLIENTS)
            .for_each(|number| _ = scope.spawn(move || clients.work(Chance::new(seed ^ (number << 32)), number)));
        let mut saboteur = Saboteur::new(&farm, clients, seed);
        for round in 1..=ROUNDS {
            eventually("many writes", || (clients.count(Outcome::Ok) > 200 * round).then_some(()));
            saboteur.kill_everybody();
            saboteur.mend_all();
        }
        saboteur.leaders
    });
    judge(seed, &farm, clients, leaders);
    tally::add("kills", ROUNDS);
    farm.end();
}

/// Reads every key once more at every server, then looks for what must not be.
fn judge(seed: u64, farm: &Farm, clients: &Clients<'_>, mut leaders: Leaders) {
    for place in 0..farm.api.len() {
        for key in 0..KEYS {
            eventually("a last read", || clients.get(place, key).then_some(()));
        }
        eventually("the last events", || leaders.ask(farm.api[place]));
    }
    let operations = clients.operations.lock().unwrap();
    let [ok, unknown, failed] =
        [Outcome::Ok, Outcome::Unknown, Outcome::Failed].map(|kind| count(&operations, kind));
    let reads = operations.len() - ok - unknown - failed;
    println!(
        "seed {seed}: {} operations: {reads} reads answered, {} not; writes: {ok} acknowledged, {unknown} unknown, \
         {failed} failed; {} terms with a leader; {:.1} s",
        operations.len() + clients.unanswered.load(Ordering::Relaxed),
        clients.unanswered.load(Ordering::Relaxed),
        leaders.0.len(),
        clients.began.elapsed().as_secs_f64()
    );
    assert!(ok > 0 && reads > 0, "nothing was tested");
    if let Err(violation) = history::check(&operations) {
        let file = std::env::temp_dir().join(format!("primus-history-{seed}.txt"));
        let lines: String = operations.iter().map(|operation| format!("{operation:?}\n")).collect();
        fs::write(&file, lines).unwrap();
        panic!("seed {seed}: {violation}; all operations: {}", file.display());
    }
    for (term, leaders) in &leaders.0 {
        assert_eq!(leaders.len(), 1, "seed {seed}: servers {leaders:?} led in term {term}");
    }
}

impl Farm {
    fn up() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("primus-kills-{}-{number}", std::process::id()));
        fs::create_dir_all(dir.join("run")).unwrap();
        let mut command = primus(&dir, &["up", "-o", "json", "--servers", &SERVERS.to_string()]);
        let complaints = File::create(dir.join("complaints")).unwrap();
        let mut up = command.stdout(Stdio::piped()).stderr(complaints).spawn().expect("primus starts");
        let mut line = String::new();
        BufReader::new(up.stdout.take().unwrap()).read_line(&mut line).unwrap();
        // From here on whatever is left is tidied up, even if there is nothing to talk to.
        let mut farm = Self { dir, up, api: Vec::new() };
        let ready: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}: {}", farm.complaints()));
        let address = |api: &Value| api.as_str().unwrap().trim_start_matches("http://").parse().unwrap();
        farm.api = ready["api"].as_array().unwrap().iter().map(address).collect();
        farm
    }

    fn complaints(&self) -> String {
        fs::read_to_string(self.dir.join("complaints")).unwrap_or_default()
    }

    fn api_of(&self, server: u64) -> SocketAddr {
        self.api[usize::try_from(server).unwrap() - 1]
    }

    fn chaos(&self, what: &str, server: u64) {
        let ran = primus(&self.dir, &["chaos", what, &server.to_string()]).output().expect("primus starts");
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "chaos {what} {server}: {stderr}; {}", self.complaints());
    }

    /// The processes of the servers that run.
    fn pids(&self) -> Vec<u64> {
        let file = fs::read(self.dir.join("run/primus/local.json")).unwrap();
        let farm: Value = serde_json::from_slice(&file).unwrap();
        farm["servers"].as_array().unwrap().iter().filter_map(|server| server["pid"].as_u64()).collect()
    }

    /// Ends it as Ctrl-C does, and looks whether anything is left.
    fn end(mut self) {
        let pids = self.pids();
        assert_eq!(pids.len(), self.api.len());
        send("INT", &[u64::from(self.up.id())]);
        let status = self.up.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.complaints());
        assert!(!pids.iter().any(|pid| is_running(*pid)), "{pids:?}");
    }
}

impl Drop for Farm {
    fn drop(&mut self) {
        _ = self.up.kill();
        _ = self.up.wait();
        _ = fs::remove_dir_all(&self.dir);
    }
}

impl<'a> Saboteur<'a> {
    fn new(farm: &'a Farm, clients: &'a Clients<'a>, seed: u64) -> Self {
        let states = (1..=SERVERS).map(|server| (server, State::Runs)).collect();
        Self { farm, clients, chance: Chance::new(seed), states, leaders: Leaders::default() }
    }

    /// One more fault; before it, as much is mended as must be, and at times more.
    fn harm(&mut self) {
        while !self.down().is_empty() && (self.down().len() == DOWN_MAX || self.chance.happens(300_000)) {
            let server = self.chance.pick(&self.down());
            self.mend(server);
        }
        self.ask_for_leaders();
        let (server, leads) = self.victim();
        let (what, state) = match self.chance.below(5) {
            0..3 => ("kill", State::Dead),
            _ => ("freeze", State::Frozen),
        };
        let (began, failed) = (Instant::now(), self.clients.count(Outcome::Failed));
        self.farm.chaos(what, server);
        self.states.insert(server, state);
        self.wait_for_a_write();
        let role = if leads { "leader" } else { "follower" };
        let failed = self.clients.count(Outcome::Failed) - failed;
        let down = self.down();
        let took_ms = began.elapsed().as_millis();
        println!("{what} {server} ({role}): a write after {took_ms} ms, {failed} failed before; down: {down:?}");
    }

    /// Every other time it is the leader, if there is one. Does it lead?
    fn victim(&mut self) -> (u64, bool) {
        let running = self.servers(|state| state == State::Runs);
        let views = running.iter().filter_map(|server| {
            let (_, view) = ask(self.farm.api_of(*server), "GET", "/v1/leader", "").ok()?;
            Some((view["term"].as_u64()?, view["leader"].as_u64()?))
        });
        let leader = views.max().map(|(_, leader)| leader).filter(|leader| running.contains(leader));
        let other = self.chance.pick(&running);
        let server = leader.filter(|_| self.chance.happens(500_000)).unwrap_or(other);
        (server, leader == Some(server))
    }

    /// One that is frozen goes on, or is killed in its sleep.
    fn mend(&mut self, server: u64) {
        let is_frozen = self.states[&server] == State::Frozen;
        let thaws = is_frozen && !self.chance.happens(300_000);
        self.farm.chaos(if thaws { "thaw" } else { "restart" }, server);
        self.states.insert(server, State::Runs);
    }

    fn mend_all(&mut self) {
        for server in self.down() {
            self.mend(server);
        }
        self.wait_for_a_write();
        eventually("all servers to know one leader", || {
            let ask_one = |api: &SocketAddr| ask(*api, "GET", "/v1/leader", "").ok()?.1["leader"].as_u64();
            let leaders: Option<BTreeSet<u64>> = self.farm.api.iter().map(ask_one).collect();
            leaders.filter(|leaders| leaders.len() == 1)
        });
    }

    /// In one call, so that nobody has time to notice.
    fn kill_everybody(&mut self) {
        self.ask_for_leaders();
        send("KILL", &self.farm.pids());
        self.states.values_mut().for_each(|state| *state = State::Dead);
    }

    /// A write must be acknowledged that began after now.
    fn wait_for_a_write(&self) {
        let now_us = self.clients.now_us();
        let is_later = || self.clients.acknowledged_us.load(Ordering::Relaxed) > now_us;
        eventually("a write to be acknowledged", || is_later().then_some(()));
    }

    /// A server forgets its history when it dies, so everybody is asked before.
    fn ask_for_leaders(&mut self) {
        for server in self.servers(|state| state == State::Runs) {
            _ = self.leaders.ask(self.farm.api_of(server));
        }
    }

    fn down(&self) -> Vec<u64> {
        self.servers(|state| state != State::Runs)
    }

    fn servers(&self, wanted: impl Fn(State) -> bool) -> Vec<u64> {
        self.states.iter().filter(|(_, state)| wanted(**state)).map(|(server, _)| *server).collect()
    }
}

impl Leaders {
    /// Adds what this server says; none if it does not answer.
    fn ask(&mut self, api: SocketAddr) -> Option<()> {
        let text = exchange(api, "GET /v1/events?follow=false HTTP/1.0\r\n\r\n").ok()?;
        for data in text.lines().filter_map(|line| line.strip_prefix("data:")) {
            let event: Value = serde_json::from_str(data).ok()?;
            if let (Some(leader), Some(term)) = (event["leader"].as_u64(), event["term"].as_u64()) {
                self.0.entry(term).or_default().insert(leader);
            }
        }
        Some(())
    }
}

impl<'a> Clients<'a> {
    fn new(api: &'a [SocketAddr]) -> Self {
        Self {
            api,
            began: Instant::now(),
            operations: Mutex::default(),
            acknowledged_us: AtomicU64::new(0),
            unanswered: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        }
    }

    /// One client, until the test is over: it reads and writes at random, and moves on to another server at times. It
    /// stays where somebody says no, because whoever moves with every no soon waits at a frozen server.
    fn work(&self, mut chance: Chance, client: u64) {
        let (mut place, mut is_silent) = (0, false);
        for number in 0u64.. {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            if number == 0 || is_silent || chance.happens(50_000) {
                place = usize::try_from(chance.below(SERVERS)).unwrap();
            }
            let key = chance.below(KEYS);
            let asked = Instant::now();
            let is_served = match chance.happens(500_000) {
                true => self.put(place, key, format!("{client}.{number}")),
                false => self.get(place, key),
            };
            is_silent = asked.elapsed() >= ANSWER_TIME;
            if !is_served {
                // Whoever cannot serve says so at once; asking without end would only keep others from their work.
                thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// Was it acknowledged?
    fn put(&self, place: usize, key: u64, value: String) -> bool {
        let start_us = self.now_us();
        let answer = ask(self.api[place], "PUT", &format!("/v1/kv/{key}"), &value);
        let outcome = match &answer {
            Ok((200, _)) => Outcome::Ok,
            Ok((503, body)) => match body["error"]["code"].as_str() {
                Some("no_leader" | "busy") => Outcome::Failed,
                _ => Outcome::Unknown,
            },
            Ok((status, body)) => panic!("put: {status} {body}"),
            // Nobody was there to hear it.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Outcome::Failed,
            Err(_) => Outcome::Unknown,
        };
        self.note(key, start_us, Action::Put(value, outcome));
        if outcome == Outcome::Ok {
            self.acknowledged_us.fetch_max(start_us, Ordering::Relaxed);
        }
        outcome == Outcome::Ok
    }

    /// Was it answered?
    fn get(&self, place: usize, key: u64) -> bool {
        let start_us = self.now_us();
        let value = match ask(self.api[place], "GET", &format!("/v1/kv/{key}"), "") {
            Ok((200, body)) => Some(body["value"].as_str().expect("a value is text").to_string()),
            Ok((404, _)) => None,
            Ok((503, _)) | Err(_) => {
                self.unanswered.fetch_add(1, Ordering::Relaxed);
                return false;
            }
            Ok((status, body)) => panic!("get: {status} {body}"),
        };
        self.note(key, start_us, Action::Get(value));
        true
    }

    fn note(&self, key: u64, start_us: u64, action: Action) {
        let operation = Operation { key: key.to_string(), start_us, end_us: self.now_us(), action };
        self.operations.lock().unwrap().push(operation);
    }

    fn count(&self, outcome: Outcome) -> usize {
        count(&self.operations.lock().unwrap(), outcome)
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap()
    }
}

/// Stops the clients when it goes.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn count(operations: &[Operation], wanted: Outcome) -> usize {
    let is_wanted =
        |operation: &&Operation| matches!(operation.action, Action::Put(_, outcome) if outcome == wanted);
    operations.iter().filter(is_wanted).count()
}

/// A request on a connection of its own, and the status and JSON that came back.
fn ask(api: SocketAddr, method: &str, path: &str, body: &str) -> io::Result<(u16, Value)> {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {api}\r\nconnection: close\r\ncontent-length: {length}");
    let text = exchange(api, &format!("{head}\r\n\r\n{body}"))?;
    let broken = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(broken)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(broken)?;
    Ok((status, serde_json::from_str(body).map_err(|_| broken())?))
}

/// Sends this and reads until the other side closes or time is up.
fn exchange(api: SocketAddr, request: &str) -> io::Result<String> {
    let until = Instant::now() + ANSWER_TIME;
    let mut stream = TcpStream::connect_timeout(&api, ANSWER_TIME)?;
    stream.set_write_timeout(Some(ANSWER_TIME))?;
    // From here on the request may have been heard, whatever happens next.
    let heard = |error: io::Error| io::Error::new(io::ErrorKind::BrokenPipe, error);
    stream.write_all(request.as_bytes()).map_err(heard)?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer).map_err(heard)? {
            0 => return String::from_utf8(answer).map_err(|error| heard(io::Error::other(error))),
            count => answer.extend_from_slice(&buffer[..count]),
        }
    }
}

fn primus(dir: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_primus"));
    command.args(words).env_remove("PRIMUS_API").current_dir(dir);
    command.env("XDG_RUNTIME_DIR", dir.join("run")).env("TMPDIR", dir);
    command
}

fn send(signal: &str, pids: &[u64]) {
    let pids = pids.iter().map(u64::to_string);
    let sent = Command::new("kill").arg(format!("-{signal}")).args(pids).status();
    assert!(sent.expect("there is a kill").success());
}

fn is_running(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a whole number, not {text:?}")))
}

fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    now.as_secs() * 1000 + u64::from(now.subsec_millis())
}

fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(Instant::now() < until, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
