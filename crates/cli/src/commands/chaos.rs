//! `primus chaos`: what can go wrong, on demand, in a farm that `primus up` runs for this user.
//!
//! Signals go straight to the processes. Only `primus up` can start one, so a restart is a file that it finds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use std::{fs, thread};

use primus_client::farms::{self, Farm, Started, StartedWorker};
use primus_client::{self, Client};
use primus_core::ledger::loans::home_of;
use primus_node::cuts::DELAY_MAX;
use primus_terminal::amounts::{length, number, quoted};
use primus_terminal::failure::Failure;
use primus_terminal::values::listed;
use primus_terminal::{Format, Verdict};
use rustix::process::{Signal, kill_process};
use serde::Serialize;
use serde_json::json;

use crate::args::{Chaos, ChaosArgs};

const ANSWER_TIME: Duration = Duration::from_secs(2);
const DEATH_TIME: Duration = Duration::from_secs(5);
const RESTART_TIME: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

/// What was done, as scripts see it.
#[derive(Serialize)]
pub(super) struct Done {
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
}

/// Whom it is done to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Server(Started),
    Worker(StartedWorker),
}

impl Node {
    /// As people say it.
    fn who(&self) -> String {
        match self {
            Self::Server(server) => format!("server {}", server.id),
            Self::Worker(worker) => format!("worker {}", worker.name),
        }
    }

    /// What its files are called.
    fn files(&self) -> String {
        match self {
            Self::Server(server) => server.node(),
            Self::Worker(worker) => worker.name.clone(),
        }
    }

    const fn pid(&self) -> Option<u32> {
        match self {
            Self::Server(server) => server.pid,
            Self::Worker(worker) => worker.pid,
        }
    }

    /// Its process by now.
    fn current_pid(&self, farm: &Farm) -> Result<Option<u32>, Failure> {
        let now = farm.again()?;
        Ok(match self {
            Self::Server(server) => now.servers.iter().find(|other| other.id == server.id).and_then(|now| now.pid),
            Self::Worker(worker) => {
                now.workers.iter().find(|other| other.name == worker.name).and_then(|now| now.pid)
            }
        })
    }

    fn done(&self, farm: &Farm, chaos: &'static str, pid: u32, text: String) -> Done {
        let (server, worker) = match self {
            Self::Server(server) => (Some(server.id), None),
            Self::Worker(worker) => (None, Some(worker.name.clone())),
        };
        Done { server, worker, pid: Some(pid), ..Done::of(farm, chaos, text) }
    }
}

/// Does it.
pub(super) fn run(args: &ChaosArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let none = || Failure::unreachable("no farm runs here that primus up has started", "start one: primus up");
    let farm = Farm::find(args.farm.as_deref())?.ok_or_else(none)?;
    let done = match &args.what {
        Chaos::Kill { target } => kill(&farm, target),
        Chaos::Freeze { target } => signal(&farm, target, "freeze", "is frozen", Signal::STOP),
        Chaos::Thaw { target } => signal(&farm, target, "thaw", "goes on", Signal::CONT),
        Chaos::Restart { target } => restart(&farm, target),
        Chaos::Partition { groups, close, from_farm } => cut_off(&farm, groups.as_deref(), *close, from_farm),
        Chaos::Delay { servers, time } => delay(&farm, servers, time),
        Chaos::Heal => heal(&farm),
        Chaos::Load { target, score } => load(&farm, target, score),
    }?;
    format.show(|| format!("{}\n", done.text), &done)?;
    Ok(Verdict::Held)
}

/// Ends when `primus up` has noticed, so that whoever restarts it next finds it dead.
pub(super) fn kill(farm: &Farm, target: &str) -> Result<Done, Failure> {
    let node = find(farm, target)?;
    let done = signal(farm, target, "kill", "is dead", Signal::KILL)?;
    wait(DEATH_TIME, "it to die", || Ok((node.current_pid(farm)? != done.pid).then_some(())))?;
    Ok(done)
}

pub(super) fn signal(
    farm: &Farm,
    target: &str,
    chaos: &'static str,
    outcome: &str,
    signal: Signal,
) -> Result<Done, Failure> {
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

pub(super) fn restart(farm: &Farm, target: &str) -> Result<Done, Failure> {
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

/// Who stays together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Group {
    servers: BTreeSet<u64>,
    workers: BTreeSet<String>,
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

pub(super) fn partition(farm: &Farm, text: &str, is_closed: bool) -> Result<Done, Failure> {
    cut_off(farm, Some(text), is_closed, &[])
}

/// Cuts groups off from each other, and all servers from those of other farms.
fn cut_off(farm: &Farm, text: Option<&str>, is_closed: bool, farms: &[String]) -> Result<Done, Failure> {
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

pub(super) fn heal(farm: &Farm) -> Result<Done, Failure> {
    slow_down(farm, &all(farm), Duration::ZERO)?;
    cut(farm, &Cuts::default(), "heal", "all links are mended".to_string())
}

/// Delays what servers say to each other: these, or all of them.
fn delay(farm: &Farm, servers: &str, time: &str) -> Result<Done, Failure> {
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
pub(super) fn delay_time(text: &str) -> Result<Duration, Failure> {
    let is_good = |length: &Duration| *length <= DELAY_MAX && length.as_micros().is_multiple_of(1000);
    length("TIME", text).ok().filter(is_good).ok_or_else(|| {
        let hint = "write it like 75ms, whole milliseconds up to 5s; 0ms is no delay";
        Failure::usage(format!("the delay is {}", quoted(text)), hint)
    })
}

fn all(farm: &Farm) -> BTreeSet<u64> {
    farm.servers.iter().map(|server| server.id).collect()
}

fn pair(farm: &Farm, text: &str) -> Result<BTreeSet<u64>, Failure> {
    let ids = text.split(',').map(|word| Ok(find_server(farm, word.trim())?.id));
    let ids: BTreeSet<u64> = ids.collect::<Result<_, Failure>>()?;
    if ids.len() < 2 {
        let hint = "name two servers or more, such as 1,2, or all";
        return Err(Failure::usage(format!("{} has no link to delay", quoted(text)), hint));
    }
    Ok(ids)
}

/// Tells each of these servers, if it lives, how slow its links to the others are.
pub(super) fn slow_down(farm: &Farm, servers: &BTreeSet<u64>, delay: Duration) -> Result<(), Failure> {
    let live = farm.servers.iter().filter(|server| server.pid.is_some() && servers.contains(&server.id));
    let told = live.map(|server| {
        let peers: Vec<&u64> = servers.iter().filter(|id| **id != server.id).collect();
        let body = json!({ "peers": peers, "delay_ms": u64::try_from(delay.as_millis()).unwrap_or(u64::MAX) });
        primus_client::tell(&server.api, "/v1/chaos/delay", &body, ANSWER_TIME)
    });
    // One that is frozen must not keep the others from being told.
    let told: Vec<Result<(), primus_client::Error>> = told.collect();
    Ok(told.into_iter().collect::<Result<(), _>>()?)
}

/// Groups of servers and workers: `1,w1|2,3`.
fn groups(farm: &Farm, text: &str) -> Result<Vec<Group>, Failure> {
    let hint = "write it like '1,2|3' or 'w1|1,2,3', in quotes, each of them once at most";
    let mut seen = BTreeSet::new();
    let mut groups = Vec::new();
    for words in text.split('|') {
        let mut group = Group::default();
        for word in words.split(',') {
            let node = member(farm, word.trim())?;
            if !seen.insert(node.who()) {
                return Err(Failure::usage(format!("{} names {} twice", quoted(text), node.who()), hint));
            }
            match node {
                Node::Server(server) => _ = group.servers.insert(server.id),
                Node::Worker(worker) => _ = group.workers.insert(worker.name),
            }
        }
        groups.push(group);
    }
    if groups.len() < 2 {
        return Err(Failure::usage(format!("{} is only one group", quoted(text)), hint));
    }
    Ok(groups)
}

/// Who can be in a group. Workers of other farms that work here can, too.
fn member(farm: &Farm, word: &str) -> Result<Node, Failure> {
    match home_of(word) {
        Some((worker, home)) if !worker.is_empty() && home != farm.name => {
            Ok(Node::Worker(StartedWorker { name: word.to_owned(), pid: None }))
        }
        _ => find(farm, word),
    }
}

/// Tells every live server whom it must not talk to; who is not named may talk to everybody.
fn cut(farm: &Farm, cuts: &Cuts<'_>, chaos: &'static str, text: String) -> Result<Done, Failure> {
    let live = farm.servers.iter().filter(|server| server.pid.is_some());
    let told = live.map(|server| {
        let Group { servers, workers } = cuts.groups.get(&server.id).cloned().unwrap_or_default();
        let manner = if cuts.is_closed { "closed" } else { "held" };
        let body = json!({ "peers": servers, manner: workers, "farms": cuts.farms });
        primus_client::tell(&server.api, "/v1/chaos/cut", &body, ANSWER_TIME)
    });
    // One that is frozen must not keep the others from being told.
    let told: Vec<Result<(), primus_client::Error>> = told.collect();
    told.into_iter().collect::<Result<(), _>>()?;
    Ok(Done::of(farm, chaos, text))
}

fn load(farm: &Farm, target: &str, score: &str) -> Result<Done, Failure> {
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

/// The server or worker that is meant.
fn find(farm: &Farm, target: &str) -> Result<Node, Failure> {
    if let Some(worker) = farm.workers.iter().find(|worker| worker.name == target) {
        return Ok(Node::Worker(worker.clone()));
    }
    let workers: String = farm.workers.iter().map(|worker| format!(", {}", worker.name)).collect();
    server_of(farm, target, &workers).cloned().map(Node::Server)
}

fn find_server<'a>(farm: &'a Farm, target: &str) -> Result<&'a Started, Failure> {
    server_of(farm, target, "")
}

/// The server that is meant by an id or by `leader`; others that could have been meant are named, too.
fn server_of<'a>(farm: &'a Farm, target: &str, others: &str) -> Result<&'a Started, Failure> {
    let unknown = || {
        let ids: Vec<String> = farm.servers.iter().map(|server| server.id.to_string()).collect();
        let hint = format!("choose one of {}{others}, or leader", ids.join(", "));
        let noun = if others.is_empty() { "server" } else { "server or worker" };
        Failure::usage(format!("there is no {noun} {} in {}", quoted(target), farm.name), hint)
    };
    let id = match target {
        "leader" => leader(farm)?,
        _ => number("TARGET", target, 1, u64::MAX).map_err(|_| unknown())?,
    };
    farm.servers.iter().find(|server| server.id == id).ok_or_else(unknown)
}

fn leader(farm: &Farm) -> Result<u64, Failure> {
    let (leader, _) = Client::of(farm).leader()?;
    leader.leader.ok_or_else(|| Failure::no_leader("no server leads at the moment", "try again, or name an id"))
}

pub(super) fn wait<T>(
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

#[cfg(test)]
mod tests {
    use super::*;

    fn farm() -> Farm {
        let server = |id| Started { id, pid: Some(1), address: String::new(), api: String::new() };
        Farm {
            name: "north".to_string(),
            pid: 1,
            began: 0,
            dir: "/nowhere".into(),
            temporary: true,
            api: Vec::new(),
            token: None,
            token_file: None,
            servers: (1..=3).map(server).collect(),
            workers: vec![StartedWorker { name: "w1".to_string(), pid: None }],
        }
    }

    #[test]
    fn groups_as_people_write_them() {
        let group = |servers: &[u64], workers: &[&str]| Group {
            servers: servers.iter().copied().collect(),
            workers: workers.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(groups(&farm(), "1, 2|3").unwrap(), [group(&[1, 2], &[]), group(&[3], &[])]);
        assert_eq!(groups(&farm(), "w1,1|2,3").unwrap(), [group(&[1], &["w1"]), group(&[2, 3], &[])]);
        let guest = [group(&[], &["n1@south"]), group(&[1], &[])];
        assert_eq!(groups(&farm(), "n1@south|1").unwrap(), guest);
        for text in ["", "1,2", "1|", "1,1|2", "1|1", "1|4", "a|b", "|", "w1|w1", "w2|1", "w1@north|1", "@south|1"]
        {
            assert!(groups(&farm(), text).is_err(), "{text}");
        }
    }

    #[test]
    fn servers_whose_links_are_delayed_as_people_write_them() {
        assert_eq!(pair(&farm(), "1, 3").unwrap(), BTreeSet::from([1, 3]));
        assert_eq!(all(&farm()), BTreeSet::from([1, 2, 3]));
        for text in ["", "1", "1,1", "1,4", "w1,1", "1|2"] {
            assert!(pair(&farm(), text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_unknown_target_names_the_known_ones() {
        for target in ["7", "0", "-1", "boss", ""] {
            assert!(find(&farm(), target).unwrap_err().words().ends_with("choose one of 1, 2, 3, w1, or leader"));
            let words = find_server(&farm(), target).unwrap_err().words();
            assert!(words.ends_with("choose one of 1, 2, 3, or leader"), "{words}");
        }
        assert_eq!(find(&farm(), "w1").unwrap().who(), "worker w1");
    }
}
