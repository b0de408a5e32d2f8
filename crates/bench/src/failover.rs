//! `primus bench failover`: how long nobody accepts a write after the leader was killed or frozen.
//!
//! The servers are real processes that write to the disk as always. A run is measured from the signal to the first
//! acknowledged write; it begins only when all servers are alive, linked and caught up.

use std::time::{Duration, Instant};

use primus_terminal::failure::Failure;
use primus_terminal::json::rounded;
use primus_terminal::{Format, Verdict};
use serde::Serialize;

use crate::args::{FailoverArgs, Fault};
use crate::pulse::Pulse;
use crate::report::{Found, Runs, Spread, flag, measured, milliseconds, quantile};
use primus_local::Algorithm;
use primus_local::TemporaryFarm;
use primus_local::answers::{LeaderTerm, Pace, metric};
use primus_local::chaos;
use primus_local::home::SERVERS_MAX;

const SERVERS: u64 = 3;
const RUNS: u64 = 20;
const RUNS_MAX: u64 = 10_000;
/// Unless somebody says how many, no run starts after this; a bench ends within 45 s.
const BUDGET_MS: f64 = 38_000.0;
/// How often a run is repeated that measured nothing.
const TRIES_MAX: usize = 10;
const KEY: &str = "bench/failover";
/// After a kill, a run that took longer is listed with what is known of its causes.
const SLOW_MS: f64 = 30.0;

/// What was found.
#[derive(Serialize)]
struct Failover {
    servers: u64,
    algorithm: &'static str,
    fault: &'static str,
    /// By how much everything on the servers' links is delayed, one way.
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(flatten)]
    spread: Spread,
    /// How many terms each failover took.
    terms: Vec<u64>,
    /// T and the slowest round trip, as the servers measured them.
    silence_ms: Option<f64>,
    round_trip_ms: Option<f64>,
    /// How long the old leader, once it went on, still believed that it led.
    #[serde(skip_serializing_if = "Option::is_none")]
    noticed_max_ms: Option<f64>,
    /// Those that took longer than they should.
    slow: Vec<Slow>,
}

/// A run that was slow after a kill, and what is known of its causes.
#[derive(Serialize)]
struct Slow {
    /// Which one, from 1.
    run: usize,
    ms: f64,
    terms: u64,
    #[serde(flatten)]
    causes: Causes,
}

/// What may make a failover slow without a fault of the servers.
#[derive(Serialize, Clone, Copy)]
struct Causes {
    /// How late this host let a thread go on that slept for a millisecond.
    host_pause_ms: f64,
    /// How long the survivors' disks took to sync, together.
    syncs_ms: f64,
}

/// What one run showed.
struct Run {
    ms: f64,
    terms: u64,
    causes: Causes,
    noticed_ms: Option<f64>,
    /// What servers measured just before.
    paces: Vec<Pace>,
}

/// What is measured.
#[derive(Clone, Copy)]
struct Task {
    servers: u64,
    algorithm: Algorithm,
    fault: Fault,
    delay: Option<Duration>,
}

/// Measures and prints.
pub(crate) fn failover(args: &FailoverArgs, format: Format) -> Result<Verdict, Failure> {
    let servers = flag("--servers", &args.servers, SERVERS, 3, SERVERS_MAX)?;
    let runs = Runs::typed(&args.runs, RUNS, RUNS_MAX, BUDGET_MS)?;
    let delay = args.delay.as_deref().map(chaos::delay_time).transpose()?.filter(|delay| !delay.is_zero());
    let task = Task { servers, algorithm: args.algorithm, fault: args.fault, delay };
    measured(format, || measure(task, runs))
}

fn measure(task: Task, runs: Runs) -> Result<Failover, Failure> {
    let Task { servers, algorithm, fault, delay } = task;
    let started = Instant::now();
    let farm = TemporaryFarm::start_electing("bench", servers, algorithm)?;
    farm.settled()?;
    let done = runs.repeat(started, |number| run_that_counts(&farm, task, number))?;
    let longest = |of: fn(&Pace) -> f64| done.iter().flat_map(|run| &run.paces).map(of).reduce(f64::max);
    let noticed: Vec<f64> = done.iter().filter_map(|run| run.noticed_ms).collect();
    Ok(Failover {
        servers,
        algorithm: algorithm.name(),
        fault: name(fault),
        delay_ms: delay.and_then(|delay| u64::try_from(delay.as_millis()).ok()),
        terms: done.iter().map(|run| run.terms).collect(),
        silence_ms: longest(|pace| pace.silence_ms),
        round_trip_ms: longest(|pace| pace.round_trip_ms),
        spread: Spread::of(done.iter().map(|run| run.ms).collect()),
        noticed_max_ms: (!noticed.is_empty()).then(|| quantile(&noticed, 1.0)),
        slow: if fault == Fault::Kill && delay.is_none() { slow(&done) } else { Vec::new() },
    })
}

fn slow(done: &[Run]) -> Vec<Slow> {
    let slow = (1..).zip(done).filter(|(_, run)| run.ms > SLOW_MS);
    slow.map(|(number, run)| Slow { run: number, ms: rounded(run.ms), terms: run.terms, causes: run.causes })
        .collect()
}

/// How long the disks of all servers but this one have taken to sync since they started.
fn syncs_ms(farm: &TemporaryFarm, without: u64) -> f64 {
    let others = farm.servers().iter().filter(|server| server.id != without);
    1000.0 * others.filter_map(|server| metric(&server.api, "primus_fsync_seconds_sum")).sum::<f64>()
}

/// How long one failover takes, of a farm that settles first and afterwards.
pub(crate) fn once(farm: &TemporaryFarm, fault: Fault, number: usize) -> Result<f64, Failure> {
    let servers = farm.servers().len() as u64;
    let task = Task { servers, algorithm: Algorithm::default(), fault, delay: None };
    Ok(run_that_counts(farm, task, number)?.ms)
}

/// Somebody may have taken over by itself just before the signal; then nothing was measured.
fn run_that_counts(farm: &TemporaryFarm, task: Task, number: usize) -> Result<Run, Failure> {
    for _ in 0..TRIES_MAX {
        if let Some(run) = run(farm, task, number)? {
            return Ok(run);
        }
    }
    let message = format!("{TRIES_MAX} times in a row the leader changed without a fault");
    Err(Failure::failed("unstable", message, "see whether the host is overloaded"))
}

fn run(farm: &TemporaryFarm, task: Task, number: usize) -> Result<Option<Run>, Failure> {
    let fault = task.fault;
    if let Some(delay) = task.delay {
        // The one that died last was started again, and is told nothing yet.
        farm.slow_down(delay)?;
    }
    let LeaderTerm { leader: old, term } = farm.settled()?;
    let (target, now, paces) = (old.to_string(), farm.now()?, farm.paces());
    farm.write(KEY, &format!("before {number}"))?;
    let value = format!("after {number}");
    let (synced_ms, pulse) = (syncs_ms(farm, old), Pulse::start());
    let started = Instant::now();
    match fault {
        Fault::Kill => chaos::kill_at_once(&now, &target),
        Fault::Freeze => chaos::freeze(&now, &target),
    }?;
    let new = farm.write_without(old, KEY, &value)?;
    let ms = milliseconds(started);
    let host_pause_ms = rounded(pulse.stop());
    let causes = Causes { host_pause_ms, syncs_ms: rounded(syncs_ms(farm, old) - synced_ms) };
    let counts = farm.is_failover(old, new);
    let noticed_ms = match fault {
        Fault::Kill => {
            chaos::restart(&now, &target)?;
            None
        }
        Fault::Freeze => {
            let thawed = Instant::now();
            chaos::thaw(&now, &target)?;
            farm.wait_until_noticed(old)?;
            Some(milliseconds(thawed))
        }
    };
    farm.settled()?;
    if farm.read(KEY)? != value {
        return Err(Failure::failed("lost", "an acknowledged write was lost", "please report this"));
    }
    Ok(counts.then_some(Run { ms, terms: new.term.saturating_sub(term), causes, noticed_ms, paces }))
}

/// What the times depend on, for orientation.
fn pace_text(figures: &Failover) -> String {
    let terms: Vec<String> = figures.terms.iter().map(u64::to_string).collect();
    let measured = figures.silence_ms.zip(figures.round_trip_ms).map_or_else(String::new, |(silence, trip)| {
        let aim = silence + 4.0 * trip;
        format!("T            {silence:.1} ms; round trip {trip:.1} ms; T and 4 round trips {aim:.1} ms\n")
    });
    format!("terms        {}\n{measured}", terms.join(", "))
}

fn slow_text(slow: &Slow) -> String {
    let Slow { run, ms, terms, causes: Causes { host_pause_ms, syncs_ms } } = slow;
    format!(
        "slow         run {run}: {ms:.1} ms, terms: {terms}; the host's longest pause {host_pause_ms:.1} ms, syncs {syncs_ms:.1} ms\n"
    )
}

fn name(fault: Fault) -> &'static str {
    match fault {
        Fault::Kill => "kill",
        Fault::Freeze => "freeze",
    }
}

impl Found for Failover {
    const BENCH: &'static str = "failover";

    fn text(&self) -> String {
        let Self { servers, algorithm, fault, delay_ms, spread, noticed_max_ms, .. } = self;
        let delay = delay_ms.map_or_else(String::new, |ms| format!(", links delayed by {ms} ms each way"));
        let noticed = noticed_max_ms.map_or_else(String::new, |ms| {
            format!("noticed      {ms:.1} ms at most, until the old leader knew that it leads no more\n")
        });
        format!(
            "failover     {servers} servers, {algorithm}, fault: {fault}, {} runs{delay}, from the signal to the first write
{}{}{noticed}{}",
            spread.runs.len(),
            spread.text(),
        pace_text(self),
            self.slow.iter().map(slow_text).collect::<String>(),
        )
    }
}
