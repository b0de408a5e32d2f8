//! All farms that one process runs: started together, looked after, until somebody asks for the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use primus_client::farms::Farm;
use primus_terminal::failure::Failure;
use primus_terminal::screen;
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::fleet::Fleet;
use crate::ports;

/// How long a farm may take to have a leader.
const LEADER_TIME: Duration = Duration::from_secs(30);
/// How long all servers may take to agree, and all workers to join, once one knows a leader.
const AGREEMENT_TIME: Duration = Duration::from_secs(2);
/// How often to look at the children and for requests.
const PAUSE: Duration = Duration::from_millis(50);
/// Somebody else may take a free port before our server does.
const STARTS_MAX: usize = 5;

/// How a start went.
enum Start {
    Leaders(Vec<u64>),
    Died(Failure),
    Interrupted,
}

/// Whether somebody has asked this process to end.
#[derive(Debug)]
pub struct Stop(Arc<AtomicBool>);

/// Starts all servers and waits for a leader of each farm; none if it was interrupted.
///
/// # Errors
/// If a node cannot be started or ends at once, or no leader is found in time.
pub fn start(fleets: &mut [Fleet<'_>], stop: &Stop) -> Result<Option<Vec<u64>>, Failure> {
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
///
/// # Errors
/// If a node that was asked for cannot be started again.
pub fn stay(fleets: &mut [Fleet<'_>], stop: &Stop, for_time: Option<Duration>) -> Result<(), Failure> {
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

/// The words of a command line that choose this farm, if there are others.
pub fn choice(farm: &Farm, is_only: bool) -> String {
    if is_only { String::new() } else { format!(" --farm {}", farm.name) }
}

impl Stop {
    /// Listens for the signals that ask for the end.
    ///
    /// # Errors
    /// If the system refuses that.
    pub fn listen() -> Result<Self, Failure> {
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
