//! `primus bench failover`: how long nobody accepts a write after the leader was killed or frozen.
//!
//! The servers are real processes that write to the disk as always. A run is measured from the signal to the first
//! acknowledged write; it begins only when all servers are alive, linked and caught up.

use std::time::Instant;

use rustix::process::Signal;
use serde::Serialize;

use super::{Spread, debug_remark, milliseconds, quantile};
use crate::args::{BenchFailoverArgs, Fault, Format, WhichAlgorithm};
use crate::commands::own_farm::OwnFarm;
use crate::commands::{Verdict, chaos, nothing_to_draw, show};
use crate::output::failure::Failure;
use crate::settings::number;

const SERVERS: u64 = 3;
const SERVERS_MAX: u64 = 25;
const RUNS: u64 = 20;
const RUNS_MAX: u64 = 10_000;
/// Unless somebody says how many, no run starts after this; a bench ends within 45 s.
const BUDGET_MS: f64 = 38_000.0;
/// How often a run is repeated that measured nothing.
const TRIES_MAX: usize = 10;
const KEY: &str = "bench/failover";

/// The figures, as scripts see them.
#[derive(Serialize)]
struct Figures {
    bench: &'static str,
    servers: u64,
    algorithm: &'static str,
    fault: &'static str,
    #[serde(flatten)]
    spread: Spread,
    /// How long the old leader, once it went on, still believed that it led.
    #[serde(skip_serializing_if = "Option::is_none")]
    noticed_max_ms: Option<f64>,
}

/// What one run showed.
struct Run {
    ms: f64,
    noticed_ms: Option<f64>,
}

/// Measures and prints.
pub(in crate::commands) fn failover(args: &BenchFailoverArgs, format: Format) -> Result<Verdict, Failure> {
    let servers = args.servers.as_deref().map_or(Ok(SERVERS), |text| number("--servers", text, 3, SERVERS_MAX))?;
    let runs = args.runs.as_deref().map(|text| number("--runs", text, 1, RUNS_MAX)).transpose()?;
    if format == Format::Mermaid {
        return Err(nothing_to_draw("a bench"));
    }
    let figures = measure(servers, args.algorithm, args.fault, runs).map_err(Failure::into_bench)?;
    show(format, || text(&figures), &figures)?;
    Ok(Verdict::Held)
}

fn measure(servers: u64, algorithm: WhichAlgorithm, fault: Fault, runs: Option<u64>) -> Result<Figures, Failure> {
    let started = Instant::now();
    let farm = OwnFarm::start_electing("bench", servers, algorithm)?;
    let mut done: Vec<Run> = Vec::new();
    let fits = || milliseconds(started) < BUDGET_MS;
    while (done.len() as u64) < runs.unwrap_or(RUNS) && (runs.is_some() || done.is_empty() || fits()) {
        done.push(run_that_counts(&farm, fault, done.len())?);
    }
    let noticed: Vec<f64> = done.iter().filter_map(|run| run.noticed_ms).collect();
    Ok(Figures {
        bench: "failover",
        servers,
        algorithm: algorithm.name(),
        fault: name(fault),
        spread: Spread::of(done.iter().map(|run| run.ms).collect()),
        noticed_max_ms: (!noticed.is_empty()).then(|| quantile(&noticed, 1.0)),
    })
}

/// Somebody may have taken over by itself just before the signal; then nothing was measured.
fn run_that_counts(farm: &OwnFarm, fault: Fault, number: usize) -> Result<Run, Failure> {
    for _ in 0..TRIES_MAX {
        if let Some(run) = run(farm, fault, number)? {
            return Ok(run);
        }
    }
    let message = format!("{TRIES_MAX} times in a row the leader changed without a fault");
    Err(Failure::failed("unstable", message, "see whether the host is overloaded"))
}

fn run(farm: &OwnFarm, fault: Fault, number: usize) -> Result<Option<Run>, Failure> {
    let old = farm.settled()?.leader;
    let (target, now) = (old.to_string(), farm.now()?);
    farm.write(KEY, &format!("before {number}"))?;
    let value = format!("after {number}");
    let started = Instant::now();
    chaos::signal(&now, &target, name(fault), "", signal(fault))?;
    let new = farm.write_without(old, KEY, &value)?;
    let ms = milliseconds(started);
    let counts = farm.is_failover(old, new);
    let noticed_ms = match fault {
        Fault::Kill => {
            chaos::restart(&now, &target)?;
            None
        }
        Fault::Freeze => {
            let thawed = Instant::now();
            chaos::signal(&now, &target, "thaw", "", Signal::CONT)?;
            farm.wait_until_noticed(old)?;
            Some(milliseconds(thawed))
        }
    };
    farm.settled()?;
    if farm.read(KEY)? != value {
        return Err(Failure::failed("lost", "an acknowledged write was lost", "please report this"));
    }
    Ok(counts.then_some(Run { ms, noticed_ms }))
}

fn name(fault: Fault) -> &'static str {
    match fault {
        Fault::Kill => "kill",
        Fault::Freeze => "freeze",
    }
}

fn signal(fault: Fault) -> Signal {
    match fault {
        Fault::Kill => Signal::KILL,
        Fault::Freeze => Signal::STOP,
    }
}

fn text(figures: &Figures) -> String {
    let Figures { servers, algorithm, fault, spread, noticed_max_ms, .. } = figures;
    let noticed = noticed_max_ms.map_or_else(String::new, |ms| {
        format!("noticed      {ms:.1} ms at most, until the old leader knew that it leads no more\n")
    });
    format!(
        "failover     {servers} servers, {algorithm}, fault: {fault}, {} runs, from the signal to the first write
{}{noticed}{}",
        spread.runs.len(),
        spread.text(),
        debug_remark(),
    )
}
