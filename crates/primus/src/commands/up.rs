//! `primus up`: a farm of real processes on this host, until it is interrupted.
//!
//! Servers and workers are children of this process and end with it, however it ends: each asks the kernel to be killed when its
//! parent dies. That promise is kept for the thread that started them, so everything here happens on the main thread.

mod fleet;
mod home;
mod ports;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::Serialize;
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::server::end_with;
use super::{Verdict, refuse_to_draw, show};
use crate::args::{Format, UpArgs};
use crate::client::farms::{self, Farm, Started, StartedWorker};
use crate::output::failure::Failure;
use crate::output::screen::{self, FAINT, STRONG, styled};
use crate::settings::length;
use fleet::Fleet;
use home::Home;

/// How long a farm may take to have a leader.
const LEADER_TIME: Duration = Duration::from_secs(30);
/// How long all servers may take to agree, and all workers to join, once one knows a leader.
const AGREEMENT_TIME: Duration = Duration::from_secs(2);
/// How often to look at the children and for requests.
const PAUSE: Duration = Duration::from_millis(50);
/// Somebody else may take a free port before our server does.
const STARTS_MAX: usize = 5;

/// What scripts see when a leader is there.
#[derive(Serialize)]
struct Ready<'a> {
    ready: bool,
    farm: &'a str,
    leader: u64,
    dir: String,
    api: &'a [String],
    servers: &'a [Started],
    workers: &'a [StartedWorker],
}

/// How a start went.
enum Start {
    Leader(u64),
    Died(Failure),
    Interrupted,
}

/// Has somebody asked us to end?
struct Stop(Arc<AtomicBool>);

/// Starts the farm, and ends with it.
pub(super) fn run(args: &UpArgs, format: Format) -> Result<Verdict, Failure> {
    refuse_to_draw(format)?;
    let for_time = args.for_time.as_deref().map(|text| length("--for", text)).transpose()?;
    let stop = Stop::listen()?;
    if let Some(parent) = args.parent {
        // A signal that we hear, so that the servers and their data go too.
        end_with(parent, Signal::TERM)?;
    }
    farms::tidy()?;
    let home = Home::open(args)?;
    let mut fleet = Fleet::new(&home, args)?;
    if home.servers == 2 {
        screen::complain("warning: two servers tolerate no loss; if one dies, nobody leads");
    }
    let Some(leader) = start(&mut fleet, &stop)? else { return Ok(Verdict::Held) };
    announce(&fleet.farm, leader, format)?;
    stay(&mut fleet, &stop, for_time)?;
    Ok(Verdict::Held)
}

/// Starts all servers and waits for a leader; none if it was interrupted.
fn start(fleet: &mut Fleet<'_>, stop: &Stop) -> Result<Option<u64>, Failure> {
    for _ in 1..STARTS_MAX {
        fleet.start()?;
        match wait_for_leader(fleet, stop)? {
            Start::Leader(leader) => return Ok(Some(leader)),
            Start::Interrupted => return Ok(None),
            Start::Died(failure) => {
                fleet.stop();
                if fleet.ports_are_free() {
                    return Err(failure);
                }
            }
        }
    }
    Err(Failure::failed("ports", "other programs keep taking the ports that were free", "try again"))
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
                return Ok(Start::Leader(leader));
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
fn stay(fleet: &mut Fleet<'_>, stop: &Stop, for_time: Option<Duration>) -> Result<(), Failure> {
    let started = Instant::now();
    while !stop.is_asked() && for_time.is_none_or(|length| started.elapsed() < length) {
        for death in fleet.reap() {
            screen::complain(&death.sentence());
        }
        fleet.serve_requests()?;
        thread::sleep(PAUSE);
    }
    Ok(())
}

fn announce(farm: &Farm, leader: u64, format: Format) -> Result<(), Failure> {
    let ready = Ready {
        ready: true,
        farm: &farm.name,
        leader,
        dir: farm.dir.to_string_lossy().into_owned(),
        api: &farm.api,
        servers: &farm.servers,
        workers: &farm.workers,
    };
    show(format, || text(farm, leader), &ready)?;
    Ok(())
}

fn text(farm: &Farm, leader: u64) -> String {
    let is_only = Farm::all().is_ok_and(|farms| farms.len() <= 1);
    let choice = if is_only { String::new() } else { format!(" --farm {}", farm.name) };
    let fate = if farm.temporary { "removed at the end" } else { "kept" };
    let servers: String = farm.servers.iter().map(|server| server_line(server, leader)).collect();
    let workers: String = farm.workers.iter().map(worker_line).collect();
    let servers = format!("{servers}{workers}");
    let count = count(farm.servers.len(), "server") + &and_count(farm.workers.len(), "worker");
    let name = styled(STRONG, &farm.name);
    let dir = farm.dir.display();
    let fate = styled(FAINT, &format!("({fate})"));
    format!(
        "farm {name}: {count}, server {leader} leads

{servers}
data: {dir} {fate}

In another terminal:
  primus run{choice} -- echo hello
  primus status --watch{choice}
  primus kv put colour blue{choice}
  primus chaos kill leader{choice}
  primus chaos restart {leader}{choice}

Ctrl-C ends it all.
"
    )
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
