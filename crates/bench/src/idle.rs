//! `primus bench idle`: what servers cost that have nothing to do.

use std::thread;
use std::time::{Duration, Instant};

use primus_terminal::failure::Failure;
use primus_terminal::json::rounded;
use primus_terminal::{Format, Verdict};
use serde::Serialize;

use crate::args::IdleArgs;
use crate::processes::{cpu_ms_of_servers, resident_mb};
use crate::report::{Found, Spread, flag, measured};
use primus_local::answers::metric;
use primus_local::home::SERVERS_MAX;
use primus_local::{Purpose, TemporaryFarm};

pub(crate) const SERVERS: u64 = 5;
const WORKERS_MAX: u64 = 1000;
const RUNS: u64 = 10;
const RUNS_MAX: u64 = 100_000;
/// How many servers each farm has whose messages are counted.
const SIZES: [u64; 4] = [3, 5, 9, 25];
const COUNTING: Duration = Duration::from_secs(3);
/// What a start leaves behind must be over: loads are measured for the first time, memory is given back.
const CALM: Duration = Duration::from_millis(1500);

/// What was found.
#[derive(Serialize)]
struct Idle {
    servers: u64,
    workers: u64,
    /// Milliseconds of processor time of all servers in each second.
    #[serde(flatten)]
    cpu: Spread,
    /// Of one processor, all servers together.
    cpu_percent: f64,
    /// Of the server that has the most.
    resident_mb: f64,
    messages: Vec<Messages>,
}

/// How much is said in a farm of one size.
#[derive(Serialize)]
struct Messages {
    servers: u64,
    per_s: f64,
    /// By each server but the leader, and to it: the same in every farm if messages grow like servers.
    per_s_and_follower: f64,
}

/// Measures and prints.
pub(crate) fn idle(args: &IdleArgs, format: Format) -> Result<Verdict, Failure> {
    let servers = flag("--servers", &args.servers, SERVERS, 1, SERVERS_MAX)?;
    let workers = flag("--workers", &args.workers, 0, 0, WORKERS_MAX)?;
    let runs = flag("--runs", &args.runs, RUNS, 1, RUNS_MAX)?;
    measured(format, || measure(servers, workers, runs))
}

fn measure(servers: u64, workers: u64, runs: u64) -> Result<Idle, Failure> {
    let farm = settled("bench", servers, workers)?;
    let started = Instant::now();
    let first = cpu_of(&farm)?;
    let mut before = first;
    let mut milliseconds = Vec::new();
    for second in 1..=runs {
        thread::sleep(Duration::from_secs(second).saturating_sub(started.elapsed()));
        let now = cpu_of(&farm)?;
        milliseconds.push(rounded(now - before));
        before = now;
    }
    let cpu_percent = rounded((before - first) / started.elapsed().as_secs_f64() / 10.0);
    let resident_mb = pids(&farm)?.into_iter().filter_map(resident_mb).fold(0.0, f64::max);
    drop(farm);
    let messages = SIZES.into_iter().map(messages).collect::<Result<_, _>>()?;
    let cpu = Spread::of(milliseconds);
    let resident_mb = rounded(resident_mb);
    Ok(Idle { servers, workers, cpu, cpu_percent, resident_mb, messages })
}

pub(crate) fn settled(purpose: impl Into<Purpose>, servers: u64, workers: u64) -> Result<TemporaryFarm, Failure> {
    let farm = TemporaryFarm::start_with_workers(purpose, servers, workers, 1)?;
    farm.settled()?;
    farm.wait_for_workers(workers)?;
    thread::sleep(CALM);
    Ok(farm)
}

fn messages(servers: u64) -> Result<Messages, Failure> {
    let farm = settled("bench", servers, 0)?;
    let sent = || -> Result<f64, Failure> {
        let counts = farm.servers().iter().map(|server| metric(&server.api, "primus_messages_sent_total"));
        counts.sum::<Option<f64>>().ok_or_else(unknown)
    };
    let (before, started) = (sent()?, Instant::now());
    thread::sleep(COUNTING);
    let per_s = (sent()? - before) / started.elapsed().as_secs_f64();
    let per_s_and_follower = rounded(per_s / servers.saturating_sub(1).max(1) as f64);
    Ok(Messages { servers, per_s: rounded(per_s), per_s_and_follower })
}

fn pids(farm: &TemporaryFarm) -> Result<Vec<u32>, Failure> {
    farm.now()?.servers.iter().map(|server| server.pid).collect::<Option<_>>().ok_or_else(unknown)
}

pub(crate) fn cpu_of(farm: &TemporaryFarm) -> Result<f64, Failure> {
    cpu_ms_of_servers(farm).ok_or_else(unknown)
}

fn unknown() -> Failure {
    Failure::failed("system", "a server's figures cannot be read", "this needs Linux, and servers that live")
}

impl Found for Idle {
    const BENCH: &'static str = "idle";

    fn text(&self) -> String {
        let Self { servers, workers, cpu_percent, resident_mb, cpu, messages, .. } = self;
        let line = |messages: &Messages| {
            let Messages { servers, per_s, per_s_and_follower } = messages;
            format!("messages     {servers} servers: {per_s:.0} per second, {per_s_and_follower:.1} per follower\n")
        };
        format!(
            "idle         {servers} servers, {workers} workers, {} s
processor    {cpu_percent:.2} % of one, all servers together
memory       {resident_mb:.1} MB at most, each
{}",
            cpu.runs.len(),
            messages.iter().map(line).collect::<String>(),
        )
    }
}
