//! `primus up`: a farm of real processes on this host, or several that are neighbours, until it is interrupted.
//!
//! Servers and workers are children of this process and end with it, however it ends: each asks the kernel to be killed when its
//! parent dies. That promise is kept for the thread that started them, so everything here happens on the main thread.

mod fleet;
mod home;
mod ports;
mod preset;
mod several;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fleet::Fleet;
use primus_client::farms::{self, Farm, Started, StartedWorker};
use primus_node::umask;
use primus_terminal::amounts::length;
use primus_terminal::failure::Failure;
use primus_terminal::screen::{self, FAINT, STRONG, styled};
use primus_terminal::{Format, Verdict};
use rustix::process::Signal;
use serde::Serialize;
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::server::end_with;
use crate::args::UpArgs;

/// How long a farm may take to have a leader.
const LEADER_TIME: Duration = Duration::from_secs(30);
/// How long all servers may take to agree, and all workers to join, once one knows a leader.
const AGREEMENT_TIME: Duration = Duration::from_secs(2);
/// How often to look at the children and for requests.
const PAUSE: Duration = Duration::from_millis(50);
/// Somebody else may take a free port before our server does.
const STARTS_MAX: usize = 5;

/// What scripts see when every farm has a leader: the first farm, and all of them if there are several.
#[derive(Serialize)]
struct Ready<'a> {
    ready: bool,
    #[serde(flatten)]
    first: ReadyFarm<'a>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    farms: &'a [ReadyFarm<'a>],
}

#[derive(Clone, Serialize)]
struct ReadyFarm<'a> {
    farm: &'a str,
    leader: u64,
    dir: String,
    /// The file that holds what the servers ask for.
    token_file: Option<&'a Path>,
    api: &'a [String],
    servers: &'a [Started],
    workers: &'a [StartedWorker],
}

/// How a start went.
enum Start {
    Leaders(Vec<u64>),
    Died(Failure),
    Interrupted,
}

/// Has somebody asked us to end?
struct Stop(Arc<AtomicBool>);

/// Starts the farms, and ends with them.
pub(super) fn run(args: &UpArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let for_time = args.for_time.as_deref().map(|text| length("--for", text)).transpose()?;
    umask::restrict();
    let stop = Stop::listen()?;
    if let Some(parent) = args.parent {
        // A signal that we hear, so that the servers and their data go too.
        end_with(parent, Signal::TERM)?;
    }
    farms::tidy()?;
    let homes = several::homes(args)?;
    let mut fleets = homes.iter().map(|home| Fleet::new(home, args)).collect::<Result<Vec<_>, _>>()?;
    if homes.iter().any(|home| home.servers == 2) {
        screen::complain("warning: two servers tolerate no loss; if one dies, nobody leads");
    }
    let Some(leaders) = start(&mut fleets, &stop)? else { return Ok(Verdict::Held) };
    announce(&fleets, &leaders, format)?;
    stay(&mut fleets, &stop, for_time)?;
    // All at once, so that nobody waits for the others' ends.
    fleets.iter().for_each(Fleet::ask_to_end);
    Ok(Verdict::Held)
}

/// Starts all servers and waits for a leader of each farm; none if it was interrupted.
fn start(fleets: &mut [Fleet<'_>], stop: &Stop) -> Result<Option<Vec<u64>>, Failure> {
    for _ in 1..STARTS_MAX {
        launch(fleets)?;
        match wait_for_leaders(fleets, stop)? {
            Start::Leaders(leaders) => return Ok(Some(leaders)),
            Start::Interrupted => return Ok(None),
            Start::Died(failure) => {
                fleets.iter_mut().for_each(Fleet::stop);
                if fleets.iter().all(Fleet::ports_are_free) {
                    return Err(failure);
                }
            }
        }
    }
    Err(Failure::failed("ports", "other programs keep taking the ports that were free", "try again"))
}

/// Starts all nodes. Whoever is told of a neighbour must be told where that listens, so all ports are chosen first.
fn launch(fleets: &mut [Fleet<'_>]) -> Result<(), Failure> {
    let mut free = ports::free(fleets.iter().map(Fleet::ports).sum())?;
    for fleet in fleets.iter_mut() {
        let rest = free.split_off(fleet.ports());
        fleet.take_ports(&std::mem::replace(&mut free, rest));
    }
    let all: Vec<String> = fleets.iter().map(Fleet::as_neighbour).collect();
    for (place, fleet) in fleets.iter_mut().enumerate() {
        let others = all.iter().enumerate().filter(|(other, _)| *other != place).map(|(_, text)| text.as_str());
        fleet.start(others.collect())?;
    }
    Ok(())
}

/// All have started at once, so they can be waited for one after the other.
fn wait_for_leaders(fleets: &mut [Fleet<'_>], stop: &Stop) -> Result<Start, Failure> {
    let mut leaders = Vec::new();
    for fleet in fleets {
        match wait_for_leader(fleet, stop)? {
            Start::Leaders(leader) => leaders.extend(leader),
            other => return Ok(other),
        }
    }
    Ok(Start::Leaders(leaders))
}

fn wait_for_leader(fleet: &mut Fleet<'_>, stop: &Stop) -> Result<Start, Failure> {
    let until = Instant::now() + LEADER_TIME;
    let mut first_seen = None;
    while Instant::now() < until {
        if stop.is_asked() {
            return Ok(Start::Interrupted);
        }
        if let Some(death) = fleet.reap().into_iter().next() {
            return Ok(Start::Died(death.failure()));
        }
        let views: Vec<Value> = fleet.client().views("/v1/leader").into_iter().map(|(_, view)| view).collect();
        if let Some(leader) = views.first().and_then(|view| view["leader"].as_u64()) {
            let since = *first_seen.get_or_insert_with(Instant::now);
            let agree =
                views.len() == fleet.farm.servers.len() && views.iter().all(|view| view["leader"] == leader);
            if (agree && workers_are_here(fleet)) || since.elapsed() > AGREEMENT_TIME {
                return Ok(Start::Leaders(vec![leader]));
            }
        }
        thread::sleep(PAUSE / 5);
    }
    let message = format!("no server leads after {} s", LEADER_TIME.as_secs());
    Err(Failure::no_leader(message, format!("look at the logs in {}, kept by --dir", fleet.farm.dir.display())))
}

/// Has every worker joined? Whoever reads that the farm is ready may name one at once.
fn workers_are_here(fleet: &Fleet<'_>) -> bool {
    if fleet.farm.workers.is_empty() {
        return true;
    }
    let Ok(status) = fleet.client().latest("/v1/status") else { return false };
    let joined = status["workers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_here = |name: &str| joined.iter().any(|worker| worker["name"] == name && worker["registered"] == true);
    fleet.farm.workers.iter().all(|worker| is_here(&worker.name))
}

/// Looks after the servers until somebody asks for the end or the time is over.
fn stay(fleets: &mut [Fleet<'_>], stop: &Stop, for_time: Option<Duration>) -> Result<(), Failure> {
    let started = Instant::now();
    let is_only = fleets.len() == 1;
    while !stop.is_asked() && for_time.is_none_or(|length| started.elapsed() < length) {
        for fleet in fleets.iter_mut() {
            for death in fleet.reap() {
                screen::complain(&death.sentence(&choice(&fleet.farm, is_only)));
            }
            fleet.serve_requests()?;
            fleet.turn_logs_over();
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

fn announce(fleets: &[Fleet<'_>], leaders: &[u64], format: Format) -> Result<(), Failure> {
    let farms: Vec<(&Farm, u64)> = fleets.iter().map(|fleet| &fleet.farm).zip(leaders.iter().copied()).collect();
    let all: Vec<ReadyFarm<'_>> = farms.iter().map(|(farm, leader)| ReadyFarm::new(farm, *leader)).collect();
    let first = all.first().cloned().expect("there is a farm");
    let ready = Ready { ready: true, first, farms: if all.len() > 1 { &all } else { &[] } };
    format.show(|| text(&farms), &ready)?;
    Ok(())
}

impl<'a> ReadyFarm<'a> {
    fn new(farm: &'a Farm, leader: u64) -> Self {
        Self {
            farm: &farm.name,
            leader,
            dir: farm.dir.to_string_lossy().into_owned(),
            token_file: farm.token_file.as_deref(),
            api: &farm.api,
            servers: &farm.servers,
            workers: &farm.workers,
        }
    }
}

/// What chooses this farm, if there are others.
fn choice(farm: &Farm, is_only: bool) -> String {
    if is_only { String::new() } else { format!(" --farm {}", farm.name) }
}

fn text(farms: &[(&Farm, u64)]) -> String {
    let listed: String = farms.iter().map(|(farm, leader)| farm_text(farm, *leader)).collect();
    let is_only = Farm::all().is_ok_and(|farms| farms.len() <= 1);
    let hints = match farms {
        [(farm, leader)] => only_hints(&choice(farm, is_only), *leader),
        several => neighbour_hints(several),
    };
    format!("{listed}In another terminal:\n{hints}\nCtrl-C ends it all.\n")
}

fn only_hints(choice: &str, leader: u64) -> String {
    format!(
        "  primus run{choice} -- echo hello
  primus status --watch{choice}
  primus kv put colour blue{choice}
  primus chaos kill leader{choice}
  primus chaos restart {leader}{choice}
"
    )
}

/// How to see workers go to another farm and come back.
fn neighbour_hints(farms: &[(&Farm, u64)]) -> String {
    let [first, second] = [0, 1].map(|place| farms.get(place).map_or("", |(farm, _)| farm.name.as_str()));
    format!(
        "  primus submit --farm {first} --array 1-200 -- sleep 0.2
  primus loans --farm {first}
  primus farms --farm {second}
  primus status --watch --farm {first}
  primus chaos kill leader --farm {first}
"
    )
}

fn farm_text(farm: &Farm, leader: u64) -> String {
    let fate = if farm.temporary { "removed at the end" } else { "kept" };
    let servers: String = farm.servers.iter().map(|server| server_line(server, leader)).collect();
    let workers: String = farm.workers.iter().map(worker_line).collect();
    let servers = format!("{servers}{workers}");
    let count = count(farm.servers.len(), "server") + &and_count(farm.workers.len(), "worker");
    let name = styled(STRONG, &farm.name);
    let dir = farm.dir.display();
    let fate = styled(FAINT, &format!("({fate})"));
    let curl = curl(farm);
    format!(
        "farm {name}: {count}, server {leader} leads

{servers}
data: {dir} {fate}
{curl}
"
    )
}

/// How other programs show the secret, which itself is printed nowhere.
fn curl(farm: &Farm) -> String {
    let (Some(file), Some(api)) = (&farm.token_file, farm.api.first()) else { return String::new() };
    format!("api: curl -H @{} {api}/v1/status {}\n", file.display(), styled(FAINT, "(only you can read that file)"))
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("one {noun}") } else { format!("{number} {noun}s") }
}

fn and_count(number: usize, noun: &str) -> String {
    if number == 0 { String::new() } else { format!(" and {}", count(number, noun)) }
}

fn worker_line(worker: &StartedWorker) -> String {
    let pid = worker.pid.map_or_else(|| "dead".to_string(), |pid| format!("pid {pid}"));
    format!("  worker {}  {pid}\n", worker.name)
}

fn server_line(server: &Started, leader: u64) -> String {
    let Started { id, pid, address, api } = server;
    let pid = pid.map_or_else(|| "dead".to_string(), |pid| format!("pid {pid}"));
    let role = if *id == leader { "  leads" } else { "" };
    format!("  server {id}  {pid:<11}  links {address}  api {api}{role}\n")
}

impl Stop {
    fn listen() -> Result<Self, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&asked)).map_err(|error| {
                Failure::failed("system", format!("signals cannot be heard: {error}"), "please report this")
            })?;
        }
        Ok(Self(asked))
    }

    fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
