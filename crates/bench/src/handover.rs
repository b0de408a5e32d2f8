//! `primus bench handover`: how long nobody acknowledges a write while a leader hands over because it is too loaded.
//!
//! All servers pretend to have a load. In every run the leader's is raised, and it must hand over by itself, once, to the
//! least loaded. How long it waits until it does is configured, and not measured.

use std::time::{Duration, Instant};

use primus_client::farms::Started;
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict};
use serde::Serialize;
use serde_json::json;

use crate::args::HandoverArgs;
use crate::report::{Found, Runs, Spread, flag, measured};
use crate::writers::{Writer, Writers};
use primus_local::TemporaryFarm;
use primus_local::answers::{history, metric};
use primus_local::home::SERVERS_MAX;

const SERVERS: u64 = 3;
const RUNS: u64 = 20;
const RUNS_MAX: u64 = 10_000;
/// Unless somebody says how many, no run starts after this; a bench ends within 45 s.
const BUDGET_MS: f64 = 30_000.0;
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// What servers count handovers under.
const HANDOVERS: &str = "primus_leader_changes_total{reason=\"load\"}";
/// The load of a leader that must hand over, of everybody else, and of whoever shall lead next. The last two are less
/// than a margin apart.
const BUSY: u32 = 90;
const CALM: u32 = 20;
const CALMEST: u32 = 10;

/// What was found.
#[derive(Serialize)]
struct Handover {
    servers: u64,
    #[serde(flatten)]
    spread: Spread,
    /// How often the leader changed because of its load: once per run, if all is well.
    handovers: u64,
}

/// Measures and prints.
pub(crate) fn handover(args: &HandoverArgs, format: Format) -> Result<Verdict, Failure> {
    let servers = flag("--servers", &args.servers, SERVERS, 2, SERVERS_MAX)?;
    let runs = Runs::typed(&args.runs, RUNS, RUNS_MAX, BUDGET_MS)?;
    measured(format, || measure(servers, runs))
}

fn measure(servers: u64, runs: Runs) -> Result<Handover, Failure> {
    let started = Instant::now();
    let farm = TemporaryFarm::start_handing_over("bench", servers)?;
    let writers = Writers::of(&farm);
    writers.during(|| {
        calm_down(&farm)?;
        farm.settled()?;
        let before = handovers(&farm);
        let gaps = runs.repeat(started, |_| run(&farm, &writers))?;
        let handovers = handovers(&farm) - before;
        Ok(Handover { servers, spread: Spread::of(gaps), handovers })
    })
}

/// One handover, to the server with the next id.
fn run(farm: &TemporaryFarm, writers: &Writers) -> Result<f64, Failure> {
    calm_down(farm)?;
    let old = writers.leader()?;
    let new = writers.next(old);
    pretend(&new.api, CALMEST)?;
    writers.only([old, new]);
    old.wait()?;
    pretend(&old.api, BUSY)?;
    new.wait()?;
    check(new)?;
    old.gap_ms(new)
}

fn calm_down(farm: &TemporaryFarm) -> Result<(), Failure> {
    farm.servers().iter().try_for_each(|server| pretend(&server.api, CALM))
}

/// A change for any other reason measures something else.
fn check(new: &Writer) -> Result<(), Failure> {
    let events = history(&new.api).unwrap_or_default();
    let last = events.into_iter().rfind(|event| event["kind"] == "leader_changed").unwrap_or_default();
    if last["leader"] == new.id && last["reason"] == "load" {
        return Ok(());
    }
    let message = format!("server {} leads because of {}, not of its load", new.id, last["reason"]);
    Err(Failure::failed("other_reason", message, "see whether the host is overloaded"))
}

/// How many handovers a server knows of that knows the most. None of them is counted before the first.
fn handovers(farm: &TemporaryFarm) -> u64 {
    let of = |server: &Started| metric(&server.api, HANDOVERS).unwrap_or(0.0) as u64;
    farm.servers().iter().map(of).max().unwrap_or(0)
}

fn pretend(api: &str, score: u32) -> Result<(), Failure> {
    Ok(primus_client::tell(api, "/v1/chaos/load", &json!({ "score": score }), ANSWER_TIME)?)
}

impl Found for Handover {
    const BENCH: &'static str = "handover";

    fn text(&self) -> String {
        let Self { servers, spread, handovers, .. } = self;
        format!(
            "handover     {servers} servers, {} runs, between two leaders' acknowledged writes; {handovers} handovers by load
{}",
            spread.runs.len(),
            spread.text(),
        )
    }

    fn is_good(&self) -> bool {
        self.handovers == self.spread.runs.len() as u64
    }
}
