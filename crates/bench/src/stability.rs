//! `primus bench stability`: does the leader stay where nothing happens, on an idle host and on a busy one?

use std::thread;
use std::time::{Duration, Instant};

use primus_client::farms::Started;
use primus_terminal::amounts::quoted;
use primus_terminal::failure::Failure;
use primus_terminal::json::rounded;
use primus_terminal::{Format, Verdict};
use serde::Serialize;
use serde_json::Value;

use crate::args::StabilityArgs;
use crate::processes::Burners;
use crate::report::{Found, Spread, flag, measured, silent};
use primus_local::TemporaryFarm;
use primus_local::answers::{LeaderTerm, believes, history, metric};
use primus_local::home::SERVERS_MAX;

const SERVERS: u64 = 3;
const MINUTES_MAX: f64 = 100_000.0;
/// A bench ends within 45 s, unless somebody says otherwise.
const WATCHING: Duration = Duration::from_secs(30);

/// What was found.
#[derive(Serialize)]
struct Stability {
    servers: u64,
    busy: bool,
    seconds: f64,
    leader_changes: u64,
    /// Why, each time that a server learned of another leader.
    reasons: Vec<String>,
    suspicions: u64,
    longest_turn_ms: f64,
    /// The longest turn of each server's control loop.
    #[serde(flatten)]
    turns: Spread,
}

/// Watches and prints.
pub(crate) fn stability(args: &StabilityArgs, format: Format) -> Result<Verdict, Failure> {
    let servers = flag("--servers", &args.servers, SERVERS, 1, SERVERS_MAX)?;
    let watching = args.minutes.as_deref().map_or(Ok(WATCHING), watching)?;
    measured(format, || measure(servers, watching, args.busy))
}

fn watching(text: &str) -> Result<Duration, Failure> {
    let minutes = text.parse().ok().filter(|minutes: &f64| *minutes > 0.0 && *minutes <= MINUTES_MAX);
    let wrong = || Failure::usage(format!("--minutes is {}", quoted(text)), "write a number such as 10 or 0.5");
    Ok(Duration::from_secs_f64(60.0 * minutes.ok_or_else(wrong)?))
}

fn measure(servers: u64, watching: Duration, busy: bool) -> Result<Stability, Failure> {
    let farm = TemporaryFarm::start("bench", servers)?;
    let first = farm.settled()?;
    let before = Seen::now(&farm)?;
    let burners = if busy { Some(Burners::for_all()?) } else { None };
    let started = Instant::now();
    thread::sleep(watching);
    let seconds = rounded(started.elapsed().as_secs_f64());
    drop(burners);
    let after = Seen::now(&farm)?;
    let reasons = after.changes.get(before.changes.len()..).unwrap_or_default().to_vec();
    let last = farm.servers().iter().find_map(|server| believes(&server.api));
    let turns = Spread::of(after.turns_ms);
    Ok(Stability {
        servers,
        busy,
        seconds,
        leader_changes: changes(first, last, reasons.len() as u64),
        reasons,
        suspicions: after.suspicions - before.suspicions,
        longest_turn_ms: turns.max_ms,
        turns,
    })
}

/// Every leader has a term of its own; a leader that came and went within one look is in the histories.
fn changes(first: LeaderTerm, last: Option<LeaderTerm>, heard: u64) -> u64 {
    heard.max(u64::from(last != Some(first)))
}

/// What all servers have seen so far.
struct Seen {
    /// The reasons of the changes that one server knows of that knows the most.
    changes: Vec<String>,
    suspicions: u64,
    turns_ms: Vec<f64>,
}

impl Seen {
    fn now(farm: &TemporaryFarm) -> Result<Self, Failure> {
        let total = |name: &str| {
            let values = farm.servers().iter().map(|server| metric(&server.api, name));
            values.collect::<Option<Vec<f64>>>().ok_or_else(|| silent("a server"))
        };
        let turns = total("primus_loop_turn_longest_seconds")?;
        Ok(Self {
            changes: farm.servers().iter().map(changes_of).max_by_key(Vec::len).unwrap_or_default(),
            suspicions: total("primus_suspicions_total")?.iter().sum::<f64>() as u64,
            turns_ms: turns.iter().map(|seconds| rounded(seconds * 1000.0)).collect(),
        })
    }
}

fn changes_of(server: &Started) -> Vec<String> {
    let events = history(&server.api).unwrap_or_default();
    let is_change = |event: &&Value| event["kind"] == "leader_changed";
    events.iter().filter(is_change).map(|event| event["reason"].as_str().unwrap_or_default().to_string()).collect()
}

impl Found for Stability {
    const BENCH: &'static str = "stability";

    fn text(&self) -> String {
        let Self { servers, busy, seconds, leader_changes, reasons, suspicions, longest_turn_ms, .. } = self;
        let busy = if *busy { "all processors busy" } else { "nothing else started" };
        let why = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
        format!(
            "stability     {servers} servers, {seconds:.0} s, {busy}
changes       {leader_changes}{why}
suspicions    {suspicions}
longest turn  {longest_turn_ms:.1} ms of a control loop
",
        )
    }

    fn is_good(&self) -> bool {
        self.leader_changes == 0
    }
}
