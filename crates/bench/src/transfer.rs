//! `primus bench transfer`: how long nobody acknowledges a write while leadership is handed over on request.
//!
//! Clients write without pause to the old leader and to whoever shall lead next, and note when each acknowledged. Then
//! leadership is offered to servers that cannot take it: that must fail, and the leader must stay.

use std::time::{Duration, Instant};

use primus_client::http::{self, Request};
use primus_terminal::failure::Failure;
use primus_terminal::json::rounded;
use primus_terminal::{Format, Verdict};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::TransferArgs;
use crate::report::{Found, Runs, Spread, flag, measured, milliseconds};
use crate::writers::{Writer, Writers, nothing_written};
use primus_local::TemporaryFarm;
use primus_local::answers::believes;
use primus_local::chaos;
use primus_local::home::SERVERS_MAX;

const SERVERS: u64 = 3;
const RUNS: u64 = 20;
const RUNS_MAX: u64 = 10_000;
/// How often a run is repeated that came to nothing.
const TRIES_MAX: usize = 10;
/// Unless somebody says how many, no run starts after this; a bench ends within 45 s.
const BUDGET_MS: f64 = 25_000.0;
/// By how many writes a server lags that must not lead.
const LAG: u64 = 5000;
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// What was found.
#[derive(Serialize)]
struct Transfer {
    servers: u64,
    #[serde(flatten)]
    spread: Spread,
    /// How many transfers came to nothing, because the disks were too slow for their time.
    given_up: u64,
    refused: Vec<Refused>,
}

/// What came of an offer to a server that could not take over.
#[derive(Serialize)]
struct Refused {
    target: &'static str,
    code: String,
    message: String,
    took_ms: f64,
    /// The longest time without an acknowledged write meanwhile.
    gap_ms: f64,
    leader_stays: bool,
}

/// Measures and prints.
pub(crate) fn transfer(args: &TransferArgs, format: Format) -> Result<Verdict, Failure> {
    let servers = flag("--servers", &args.servers, SERVERS, 3, SERVERS_MAX)?;
    let runs = Runs::typed(&args.runs, RUNS, RUNS_MAX, BUDGET_MS)?;
    measured(format, || measure(servers, runs))
}

fn measure(servers: u64, runs: Runs) -> Result<Transfer, Failure> {
    let started = Instant::now();
    let farm = TemporaryFarm::start_ranked("bench", servers, "load")?;
    farm.settled()?;
    let writers = Writers::of(&farm);
    writers.during(|| {
        let mut given_up = 0;
        let gaps = runs.repeat(started, |_| run_that_counts(&writers, &mut given_up))?;
        let refused = vec![
            offer_to_dead(&farm, &writers)?,
            offer_to_frozen(&farm, &writers, 0)?,
            offer_to_frozen(&farm, &writers, LAG)?,
        ];
        Ok(Transfer { servers, spread: Spread::of(gaps), given_up, refused })
    })
}

fn run_that_counts(writers: &Writers, given_up: &mut u64) -> Result<f64, Failure> {
    for _ in 0..TRIES_MAX {
        match run(writers)? {
            Some(gap) => return Ok(gap),
            None => *given_up += 1,
        }
    }
    let message = format!("{TRIES_MAX} transfers in a row came to nothing");
    Err(Failure::failed("not_transferred", message, "see whether the host is overloaded"))
}

/// One handover, to the server with the next id; nothing if it did not come about.
fn run(writers: &Writers) -> Result<Option<f64>, Failure> {
    let old = writers.leader()?;
    let new = writers.next(old);
    writers.only([old, new]);
    old.wait()?;
    let answer = offer(old, new.id)?;
    if answer["leader"] != new.id {
        return Ok(None);
    }
    new.wait()?;
    old.gap_ms(new).map(Some)
}

fn offer_to_dead(farm: &TemporaryFarm, writers: &Writers) -> Result<Refused, Failure> {
    let old = writers.leader()?;
    let target = writers.next(old);
    let now = farm.now()?;
    chaos::kill(&now, &target.id.to_string())?;
    let refused = refusal(writers, "dead", old, target)?;
    chaos::restart(&now, &target.id.to_string())?;
    Ok(refused)
}

/// It has everything, or it misses some writes.
fn offer_to_frozen(farm: &TemporaryFarm, writers: &Writers, lag: u64) -> Result<Refused, Failure> {
    writers.only([]);
    farm.settled()?;
    let old = writers.leader()?;
    let target = writers.next(old);
    let now = farm.now()?;
    chaos::freeze(&now, &target.id.to_string())?;
    let what = if lag == 0 { "frozen" } else { "lagging" };
    let refused = write_many(&old.api, lag).and_then(|()| refusal(writers, what, old, target));
    chaos::thaw(&now, &target.id.to_string())?;
    refused
}

fn refusal(writers: &Writers, what: &'static str, old: &Writer, target: &Writer) -> Result<Refused, Failure> {
    let before = believes(&old.api);
    writers.only([old]);
    old.wait()?;
    let started = Instant::now();
    let answer = offer(old, target.id)?;
    let took_ms = milliseconds(started);
    old.forget_until(started);
    old.wait()?;
    let text = |key: &str| answer["error"][key].as_str().unwrap_or_default().to_string();
    Ok(Refused {
        target: what,
        code: text("code"),
        message: text("message"),
        took_ms,
        gap_ms: longest_gap_ms(started, &old.acknowledged()),
        leader_stays: believes(&old.api) == before,
    })
}

/// Asks the leader to let this server lead; its answer, whatever it is.
fn offer(leader: &Writer, to: u64) -> Result<Value, Failure> {
    let body = json!({ "to": to }).to_string();
    let silent = || Failure::failed("silent", "the leader does not answer", "see whether the host is overloaded");
    let response = Request::post("/v1/leader/transfer", body.as_bytes()).send(&leader.api, ANSWER_TIME);
    let bytes = response.map_err(|_| silent())?.bytes().map_err(|_| silent())?;
    serde_json::from_slice(&bytes).map_err(|_| silent())
}

fn write_many(api: &str, count: u64) -> Result<(), Failure> {
    let lines = "{\"key\":\"bench/transfer\",\"value\":\"lag\"}\n".repeat(count as usize);
    let sent = http::upload(api, "/v1/kv", http::LINES, &mut lines.as_bytes(), ANSWER_TIME);
    let is_done = sent.is_ok_and(|response| response.status == 200);
    if is_done { Ok(()) } else { Err(nothing_written()) }
}

fn longest_gap_ms(since: Instant, times: &[Instant]) -> f64 {
    let begins = std::iter::once(&since).chain(times);
    let gaps = begins.zip(times).map(|(begin, end)| end.saturating_duration_since(*begin));
    rounded(gaps.max().unwrap_or_default().as_secs_f64() * 1000.0)
}

impl Found for Transfer {
    const BENCH: &'static str = "transfer";

    fn text(&self) -> String {
        let Self { servers, spread, given_up, refused, .. } = self;
        let line = |refused: &Refused| {
            let Refused { target, code, message, took_ms, gap_ms, leader_stays } = refused;
            let stays = if *leader_stays { "" } else { ", BUT IT LEADS NO MORE" };
            format!(
                "to a {target} one  {code} after {took_ms:.1} ms, no write for {gap_ms:.1} ms: {message}{stays}\n"
            )
        };
        format!(
            "transfer     {servers} servers, {} runs, between two leaders' acknowledged writes; {given_up} more given up
{}{}",
            spread.runs.len(),
            spread.text(),
        refused.iter().map(line).collect::<String>(),
        )
    }

    fn is_good(&self) -> bool {
        self.refused.iter().all(|refused| refused.leader_stays && !refused.code.is_empty())
    }
}
