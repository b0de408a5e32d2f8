//! What must hold between values, and values that follow from others.

use std::net::SocketAddr;
use std::time::Duration;

use primus_core::election::Algorithm;
use primus_core::election::bully::Asking;
use primus_core::farm::assign::Rule;
use primus_core::lease::LEASE_MIN_US;
use primus_core::ledger::Limits;
use primus_core::load::{BadWeights, Score, Weights};
use primus_core::loan::lending;
use primus_core::machine::Delay;
use primus_core::rank::RankBy;
use primus_core::{detector, handover};
use primus_server::Plan;

use super::TOKEN_FILE;
use super::layers::Layers;
use super::value::{Value, time_text};

/// No farm holds more: what is sent to a server that is behind has a limit, and results come on top.
const STATE_MAX: u64 = 1536 << 20;

/// A leader is not thought dead sooner, because a host is sometimes busy with other things.
const SILENCE_MIN: Duration = Duration::from_millis(80);
const SILENCE_MAX: Duration = Duration::from_secs(1);
/// What an election waits for answers on a local network.
const ANSWERS: Duration = Duration::from_millis(20);

/// The defaults that depend on other values, other than where servers listen.
pub(super) fn derive(layers: &mut Layers) {
    if let (Some(farm), Some(id)) = (layers.text("server.farm"), layers.number("server.id")) {
        layers.fall_back("server.dir", Value::Text(format!("primus-data/{farm}-{id}")));
    }
    if let Some(algorithm) = algorithm(layers) {
        let rank = if algorithm == Algorithm::Ring { "id" } else { "load" };
        layers.fall_back("election.rank", Value::Text(rank.to_owned()));
    }
    if let Some(rank) = rank(layers) {
        layers.fall_back("election.preempt", Value::Truth(rank != RankBy::Load));
    }
    if let Some(heartbeat) = layers.time("election.heartbeat") {
        layers.fall_back("election.silence_min", Value::Time(SILENCE_MIN.max(heartbeat * 3)));
    }
    if let Some(least) = layers.time("election.silence_min") {
        layers.fall_back("election.silence_max", Value::Time(SILENCE_MAX.max(least)));
    }
    layers.fall_back("election.answers", Value::Time(ANSWERS));
}

/// How long a winner may take depends on how many servers it may have to ask.
pub(super) fn derive_victory(layers: &mut Layers, servers: usize) {
    if let (Some(answers), Some(asking)) = (layers.time("election.answers"), asking(layers)) {
        let victory = Plan::usual_victory(exactly(answers), asking, servers);
        layers.fall_back("election.victory", Value::Time(Duration::from_micros(victory.max_us)));
    }
}

/// The plan by which servers elect, with everything that is configured.
pub(super) fn plan(layers: &Layers, plan: Plan) -> Option<Plan> {
    let us = |name| layers.time(name).map(us);
    let (least, most) = layers.time_range("election.startup")?;
    // What nobody configured follows the measured round trips.
    let written = |name| layers.time(name).filter(|_| layers.is_written(name)).map(exactly);
    Some(Plan {
        algorithm: algorithm(layers)?,
        rank: rank(layers)?,
        preempt: Some(layers.truth("election.preempt")?),
        asking: asking(layers)?,
        startup: Delay { min_us: exactly(least).min_us, max_us: exactly(most).max_us },
        answers: written("election.answers"),
        victory: written("election.victory"),
        silence: detector::Rules {
            heartbeat_us: us("election.heartbeat")?,
            floor_us: us("election.silence_min")?,
            ceiling_us: us("election.silence_max")?,
            is_floor_fixed: layers.is_written("election.silence_min"),
            is_ceiling_fixed: layers.is_written("election.silence_max"),
        },
        handover: handover::Rules {
            margin: Score::from_hundredths(u32::try_from(layers.number("election.handover_margin")?).ok()? * 100),
            dwell_us: us("election.handover_dwell")?,
            cool_down_us: us("election.handover_cooldown")?,
            tenure_us: us("election.least_tenure")?,
        },
        lease_us: us("guard.lease")?,
        assignment: assignment(layers)?,
        weights: weights(layers)?.ok()?,
        limits: Limits {
            results: usize::try_from(layers.number("farm.results_max")?).ok()?,
            results_len: layers.size("farm.results_bytes")?,
            age_ms: us("farm.results_age")? / 1000,
            waiting: layers.number("farm.queue_max")?,
        },
        state_max: layers.size("farm.state_max")?,
        lending: lending(layers)?,
        ..plan
    })
}

/// When a farm asks for workers, and when it lends them.
pub(super) fn lending(layers: &Layers) -> Option<lending::Rules> {
    let ms = |name| layers.time(name).map(|time| us(time) / 1000);
    let count = |name| layers.number(name).and_then(|number| u32::try_from(number).ok());
    Some(lending::Rules {
        saturated_at: layers.number("lending.saturated_at")?,
        saturated_ms: ms("lending.saturated_for")?,
        calm_below: layers.number("lending.calm_below")?,
        calm_ms: ms("lending.calm_for")?,
        tasks_per_worker: layers.number("lending.tasks_per_worker")?,
        loan_ms: ms("lending.loan")?,
        recall_ms: ms("lending.recall")?,
        stay_ms: ms("lending.stay")?,
        reserve: count("lending.reserve")?,
        lent_max: count("lending.lent_max")?,
        order: if layers.text("lending.order")? == "idle" { lending::Order::Idle } else { lending::Order::Listed },
        ..lending::Rules::default()
    })
}

fn assignment(layers: &Layers) -> Option<Rule> {
    Some(match layers.text("farm.assignment")? {
        "score" => Rule::Score,
        "round-robin" => Rule::RoundRobin,
        "random" => Rule::Random,
        _ => Rule::Balanced,
    })
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("no configured time is longer than a day")
}

fn exactly(time: Duration) -> Delay {
    Delay { min_us: us(time), max_us: us(time) }
}

fn asking(layers: &Layers) -> Option<Asking> {
    let is_one_by_one = layers.text("election.asking")? == "one-by-one";
    Some(if is_one_by_one { Asking::OneByOne } else { Asking::AllAtOnce })
}

fn algorithm(layers: &Layers) -> Option<Algorithm> {
    Some(if layers.text("election.algorithm")? == "ring" { Algorithm::Ring } else { Algorithm::Bully })
}

/// What elections compare.
pub(super) fn rank(layers: &Layers) -> Option<RankBy> {
    match layers.text("election.rank")? {
        "id" => Some(RankBy::Id),
        "address" => Some(RankBy::Address),
        _ => Some(RankBy::Load),
    }
}

/// How much the parts of a load count.
pub(super) fn weights(layers: &Layers) -> Option<Result<Weights, BadWeights>> {
    let weight = |name| layers.number(name).and_then(|number| u32::try_from(number).ok());
    let (cpu, tasks) = (weight("load.weights.cpu")?, weight("load.weights.tasks")?);
    Some(Weights::new(cpu, tasks, weight("load.weights.memory")?, weight("load.weights.tasks_full")?))
}

/// Checks values against each other.
pub(super) fn check(layers: &mut Layers, insecure: bool) {
    for (less, more, is_strict) in [
        ("election.heartbeat", "election.silence_min", true),
        ("election.silence_min", "election.silence_max", false),
        ("election.answers", "election.victory", true),
    ] {
        check_order(layers, less, more, is_strict);
    }
    if algorithm(layers) == Some(Algorithm::Ring) && rank(layers).is_some_and(|rank| rank != RankBy::Id) {
        let message = "a ring compares ids and nothing else".to_owned();
        layers.complain_about("election.rank", message, "leave election.rank out, or choose bully");
    }
    check_weights(layers);
    check_marks(layers);
    check_secret(layers);
    let least = Duration::from_micros(LEASE_MIN_US);
    if let Some(lease) = layers.time("guard.lease").filter(|lease| *lease < least) {
        let message =
            format!("guard.lease is {}, which an ordinary pause of a host could exceed", time_text(lease));
        layers.complain_about("guard.lease", message, "make it 300ms at least");
    }
    if let Some(size) = layers.size("farm.state_max").filter(|size| *size > STATE_MAX) {
        let message = format!("farm.state_max is {size} bytes, and a server that is behind could not be sent that");
        layers.complain_about("farm.state_max", message, "make it 1536MiB at most");
    }
    for name in ["server.address", "server.api"] {
        if let Some(address) = layers.address(name).filter(|address| is_open(*address) && !insecure) {
            let message =
                format!("{name} is {address}, which other hosts can reach, and links are not encrypted yet");
            let hint = "listen on 127.0.0.1, or add --insecure if you trust the network";
            layers.complain_about(name, message, hint);
        }
    }
}

/// Encryption can wait, where people trust a network. That other hosts run commands without any secret cannot.
fn check_secret(layers: &mut Layers) {
    let has_secret = layers.text(TOKEN_FILE).is_some_and(|file| !file.is_empty());
    if let Some(address) = layers.address("server.api").filter(|address| is_open(*address) && !has_secret) {
        let message = format!(
            "server.api is {address}, which other hosts can reach, and without {TOKEN_FILE} everybody there can run commands"
        );
        let hint = format!("name a file with a secret in {TOKEN_FILE}, or let the API listen on 127.0.0.1");
        layers.complain_about("server.api", message, hint);
    }
}

/// A farm that were saturated and calm at once would ask for workers and send them home without end.
fn check_marks(layers: &mut Layers) {
    let [calm, saturated] = ["lending.calm_below", "lending.saturated_at"];
    let (Some(low), Some(high)) = (layers.number(calm), layers.number(saturated)) else { return };
    if low > high {
        let name = if layers.is_written(calm) { calm } else { saturated };
        let message =
            format!("{calm} is {low}, but {saturated} is {high}: a farm could be saturated and calm at once");
        layers.complain_about(name, message, format!("make {calm} at most {saturated}"));
    }
}

/// Weights of which none counts make no score.
pub(super) fn check_weights(layers: &mut Layers) {
    if let Some(Err(bad)) = weights(layers) {
        layers.complain_about("load.weights.cpu", format!("load.weights: {bad}"), "let one of them count");
    }
}

fn check_order(layers: &mut Layers, less: &'static str, more: &'static str, is_strict: bool) {
    let (Some(first), Some(second)) = (layers.time(less), layers.time(more)) else { return };
    if first < second || !is_strict && first == second {
        return;
    }
    let (first, second) = (time_text(first), time_text(second));
    let message = format!("{more} is {second}, but {less} is {first}");
    let hint = format!("make {more} {} {less}", if is_strict { "longer than" } else { "at least as long as" });
    // Whichever of the two somebody wrote is the one to mend.
    let name = if layers.is_written(more) { more } else { less };
    layers.complain_about(name, message, hint);
}

/// Nothing listens beyond loopback unless somebody says so.
fn is_open(address: SocketAddr) -> bool {
    !address.ip().is_loopback()
}
