//! `primus bench simulate`: how fast the simulator is, and how much memory it takes.
//!
//! Two elections are measured: a large ring with random ids, and a Bully election of a thousand nodes whose best has
//! died. Every run is the same one, so that the figures differ only by what the host does meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use primus_core::ServerId;
use primus_core::election::ring::{Ring, Rules, Winner};
use primus_core::election::{Command, bully};
use primus_lab::chance::Chance;
use primus_lab::experiment::{Contest, DELAY, Experiment, Starts, tuned_bully};
use primus_lab::network::Network;
use primus_lab::simulate::{self, Happening, Outcome, Setup};
use primus_terminal::amounts::number;
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict};
use serde::Serialize;

use crate::args::SimulateArgs;
use crate::report::{Found, Spread, flag, milliseconds, quantile, refuse_to_draw, show};

const NODES: u64 = 1_000_000;
const NODES_MAX: u64 = 20_000_000;
const RUNS: u64 = 3;
const RUNS_MAX: u64 = 1000;
const SEED: u64 = 1;
const BULLY_NODES: u64 = 1000;
/// Unless somebody says how many, no run starts that would not end within this; a bench ends within 45 s.
const BUDGET_MS: f64 = 35_000.0;

/// What was found.
#[derive(Serialize)]
struct Simulate {
    nodes: u64,
    initiators: u64,
    #[serde(flatten)]
    spread: Spread,
    messages: u64,
    events: u64,
    events_per_s: f64,
    /// Per second of processor time, which a busy host does not change; known on Linux only.
    events_per_cpu_s: Option<f64>,
    peak_mb: Option<f64>,
    bully_1000_ms: f64,
    bully_1000_messages: u64,
}

/// Measures and prints.
pub(crate) fn simulate(args: &SimulateArgs, format: Format) -> Result<Verdict, Failure> {
    let nodes = flag("--nodes", &args.nodes, NODES, 1, NODES_MAX)?;
    let runs = args.runs.as_deref().map(|text| number("--runs", text, 1, RUNS_MAX)).transpose()?;
    refuse_to_draw(format)?;
    show(&measure(nodes, args.all_initiators, runs)?, format)
}

fn measure(nodes: u64, all_initiators: bool, runs: Option<u64>) -> Result<Simulate, Failure> {
    let started = Instant::now();
    let members = shuffled(nodes);
    let (first, outcome) = timed(|| ring(&members, all_initiators));
    check(&outcome, ServerId(1), "the ring")?;
    let mut times = vec![first];
    let fits = || milliseconds(started) + first.ms < BUDGET_MS;
    while (times.len() as u64) < runs.unwrap_or(RUNS) && (runs.is_some() || fits()) {
        times.push(timed(|| ring(&members, all_initiators)).0);
    }
    // The memory of the ring can be told apart only before the other election runs.
    let peak_mb = peak_mb();
    let (bully, bully_outcome) = timed(bully);
    check(&bully_outcome, ServerId(BULLY_NODES - 1), "the Bully election")?;
    let (runs, cpu): (Vec<f64>, Vec<Option<f64>>) = times.iter().map(|time| (time.ms, time.cpu_ms)).unzip();
    let cpu: Option<Vec<f64>> = cpu.into_iter().collect();
    let spread = Spread::of(runs);
    let per_s = |ms: f64| (outcome.events as f64 / ms * 1000.0).round();
    Ok(Simulate {
        nodes,
        initiators: if all_initiators { nodes } else { 1 },
        messages: outcome.messages.total(),
        events: outcome.events,
        events_per_s: per_s(spread.median_ms),
        events_per_cpu_s: cpu.map(|cpu| per_s(quantile(&cpu, 0.5))),
        peak_mb,
        bully_1000_ms: bully.ms,
        bully_1000_messages: bully_outcome.messages.total(),
        spread,
    })
}

/// How long something took.
#[derive(Debug, Clone, Copy)]
struct Time {
    ms: f64,
    cpu_ms: Option<f64>,
}

fn timed(run: impl FnOnce() -> Outcome) -> (Time, Outcome) {
    let (started, cpu_before) = (Instant::now(), cpu_ms());
    let outcome = run();
    let cpu_ms = cpu_ms().zip(cpu_before).map(|(after, before)| after - before).filter(|ms| *ms > 0.0);
    (Time { ms: milliseconds(started), cpu_ms }, outcome)
}

/// The processor time of this thread, where the system tells (Linux).
fn cpu_ms() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: f64 = text.split(' ').next()?.parse().ok()?;
    Some(nanoseconds / 1_000_000.0)
}

/// So many ids in a random order that is always the same.
pub(crate) fn shuffled(nodes: u64) -> Arc<[ServerId]> {
    let mut members: Vec<ServerId> = (1..=nodes).map(ServerId).collect();
    Chance::new(SEED).shuffle(&mut members);
    members.into()
}

/// A ring in which nothing goes wrong, and so nothing needs to be repeated.
pub(crate) fn ring(members: &Arc<[ServerId]>, all_initiators: bool) -> Outcome {
    let rules = Arc::new(Rules::new(Winner::Lowest, members.len()));
    let member = |position| Ring::new(position, Arc::clone(members), Arc::clone(&rules));
    let initiators = if all_initiators { &members[..] } else { &members[..1] };
    let start = |node: &ServerId| (0, Happening::Command((*node).into(), Command::Start));
    simulate::run(
        Setup {
            nodes: (0..members.len()).map(member).collect(),
            leader: None,
            network: Network::reliable(DELAY),
            schedule: initiators.iter().map(start).collect(),
            clock_skew_ppm: Vec::new(),
            detection: Some(DELAY),
            repair_us: 0,
            // A token needs hours of virtual time to travel round a ring of a million.
            patience_us: u64::MAX,
            seed: SEED,
        },
        &mut (),
    )
}

/// The best of a thousand leads, dies, and everybody misses it.
fn bully() -> Outcome {
    let rules = Arc::new(tuned_bully(bully::Rules::by_id((1..=BULLY_NODES).map(ServerId)), DELAY));
    let contest = Contest::Bully { rules, scores: BTreeMap::new() };
    let crashes = vec![(ServerId(BULLY_NODES), 0)];
    Experiment { crashes, ..Experiment::new(contest, Starts::Cold) }.run(SEED, &mut ()).outcome
}

/// A run that elected the wrong node measures nothing.
fn check(outcome: &Outcome, expected: ServerId, what: &str) -> Result<(), Failure> {
    if outcome.agreed_leader() == Some(expected) {
        return Ok(());
    }
    Err(Failure::bench(
        format!("{what} did not elect {expected}, so its figures mean nothing"),
        "please report this",
    ))
}

/// The most memory that this process has had, where the system tells (Linux).
fn peak_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some((kib * 1024.0 / 1_000_000.0).round())
}

impl Found for Simulate {
    const BENCH: &'static str = "simulate";

    fn text(&self) -> String {
        let all: Vec<String> = self.spread.runs.iter().map(|ms| format!("{:.2}", ms / 1000.0)).collect();
        let memory = self.peak_mb.map_or_else(|| "unknown here".to_string(), |mb| format!("{mb} MB"));
        let initiators = if self.initiators == 1 { "one initiator" } else { "all are initiators" };
        let per_cpu = self.events_per_cpu_s.map_or_else(String::new, |per_s| {
            format!(", {:.2} million per second of processor time", per_s / 1_000_000.0)
        });
        format!(
            "ring         {} nodes, {initiators}
messages     {}
events       {}
time         {:.2} s, the median of {}: {}
events/s     {:.2} million{per_cpu}
peak memory  {memory}
bully        {BULLY_NODES} nodes, the best one dies: {:.2} s, {} messages
",
            self.nodes,
            self.messages,
            self.events,
            self.spread.median_ms / 1000.0,
            self.spread.runs.len(),
            all.join(", "),
            self.events_per_s / 1_000_000.0,
            self.bully_1000_ms / 1000.0,
            self.bully_1000_messages,
        )
    }
}

#[cfg(test)]
mod tests {
    use primus_core::election::MessageKind;

    use super::*;

    #[test]
    fn a_small_ring_needs_as_many_messages_as_it_should() {
        let figures = measure(100, false, Some(1)).unwrap();
        assert_eq!(figures.spread.runs.len(), 1);
        assert!((200..300).contains(&figures.messages), "{}", figures.messages);
        let outcome = ring(&shuffled(100), true);
        assert!(outcome.messages.of(MessageKind::Election) > 200);
        assert_eq!(outcome.messages.of(MessageKind::Elected), 100);
    }
}
