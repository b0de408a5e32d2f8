//! What must hold between values, and values that follow from others.

use std::net::SocketAddr;
use std::time::Duration;

use primus_core::election::Algorithm;
use primus_core::lease::LEASE_MIN_US;
use primus_core::ledger::Limits;
use primus_core::load::{BadWeights, Score, Weights};
use primus_core::loan::lending;
use primus_core::machine::Delay;
use primus_core::rank::RankBy;
use primus_core::{detector, handover};
use primus_server::Plan;
use primus_server::plan::{ElectionPlan, FarmPlan, LendingPlan};
use primus_terminal::failure::Failure;

use super::keys::{Election, Farm, Lending, LoadWeights, Values};
use super::kind::{Address, Reached, Time, time_text};
use super::layers::Layers;
use super::mistakes::Mistakes;
use super::neighbours::NeighbourEntry;
use super::slot::{AnySlot, Gathered, Settled, Slot};

/// No farm holds more: what is sent to a server that is behind has a limit, and results come on top.
const STATE_MAX: u64 = 1536 << 20;

/// A leader is not thought dead sooner, because a host is sometimes busy with other things.
const SILENCE_MIN: Duration = Duration::from_millis(80);
const SILENCE_MAX: Duration = Duration::from_secs(1);
/// What an election waits for answers on a local network.
const ANSWERS: Duration = Duration::from_millis(20);

/// The defaults that depend on other values, other than where servers listen.
pub(super) fn derive(values: &mut Values<Gathered>) {
    let Values { server, election, .. } = values;
    if let (Some(farm), Some(id)) = (server.farm.get(), server.id.get()) {
        server.dir.fall_back(format!("primus-data/{farm}-{id}").into());
    }
    if let Some(algorithm) = election.algorithm.get() {
        election.rank.fall_back(if algorithm == Algorithm::Ring { RankBy::Id } else { RankBy::Load });
    }
    if let Some(rank) = election.rank.get() {
        election.preempt.fall_back(rank != RankBy::Load);
    }
    if let Some(heartbeat) = election.heartbeat.get() {
        election.silence_min.fall_back(SILENCE_MIN.max(heartbeat * 3));
    }
    if let Some(least) = election.silence_min.get() {
        election.silence_max.fall_back(SILENCE_MAX.max(least));
    }
    election.answers.fall_back(ANSWERS);
}

/// How long a winner may take depends on how many servers it may have to ask.
pub(super) fn derive_victory(values: &mut Values<Gathered>, servers: usize) {
    let election = &mut values.election;
    if let (Some(answers), Some(asking)) = (election.answers.get(), election.asking.get()) {
        let victory = Plan::usual_victory(exactly(answers), asking, servers);
        election.victory.fall_back(Duration::from_micros(victory.max_us));
    }
}

/// The plan by which servers elect, with everything that is configured.
pub(super) fn plan(gathered: &Values<Gathered>, plan: Plan) -> Result<Plan, Failure> {
    let Values { election, guard, elections, farm, neighbourhood, lending, .. } = gathered.settled()?;
    let groups = elections.groups.into_iter().map(|group| group.plan(&plan.servers));
    let lending = LendingPlan {
        neighbours: neighbourhood.neighbours.into_iter().map(NeighbourEntry::plan).collect(),
        rules: lending_rules(&lending),
    };
    let (groups, lease_us, farm) = (groups.collect(), us(guard.lease), farm_plan(farm, weights(gathered)?));
    Ok(Plan { election: election_plan(election, &gathered.election), groups, lease_us, farm, lending, ..plan })
}

/// What nobody wrote follows the measured round trips.
fn election_plan(election: Election<Settled>, written: &Election<Gathered>) -> ElectionPlan {
    ElectionPlan {
        algorithm: election.algorithm,
        rank: election.rank,
        preempt: Some(election.preempt),
        asking: election.asking,
        startup: Delay { min_us: us(election.startup.0), max_us: us(election.startup.1) },
        answers: written.answers.written().map(exactly),
        victory: written.victory.written().map(exactly),
        silence: detector::Rules {
            heartbeat_us: us(election.heartbeat),
            floor_us: us(election.silence_min),
            ceiling_us: us(election.silence_max),
            is_floor_fixed: written.silence_min.is_written(),
            is_ceiling_fixed: written.silence_max.is_written(),
        },
        handover: handover::Rules {
            margin: Score::from_hundredths(election.handover_margin * 100),
            dwell_us: us(election.handover_dwell),
            cool_down_us: us(election.handover_cooldown),
            tenure_us: us(election.least_tenure),
        },
        own: None,
    }
}

fn farm_plan(farm: Farm<Settled>, weights: Weights) -> FarmPlan {
    let limits = Limits {
        results: farm.results_max,
        results_len: farm.results_bytes,
        age_ms: ms(farm.results_age),
        waiting: farm.queue_max,
    };
    FarmPlan { assignment: farm.assignment, weights, limits, state_max: farm.state_max }
}

/// When a farm asks for workers, and when it lends them.
pub(super) fn lending_rules(rules: &Lending<Settled>) -> lending::Rules {
    lending::Rules {
        saturated_at: rules.saturated_at,
        saturated_ms: ms(rules.saturated_for),
        calm_below: rules.calm_below,
        calm_ms: ms(rules.calm_for),
        tasks_per_worker: rules.tasks_per_worker,
        loan_ms: ms(rules.loan),
        recall_ms: ms(rules.recall),
        stay_ms: ms(rules.stay),
        reserve: rules.reserve,
        lent_max: rules.lent_max,
        order: rules.order,
        ..lending::Rules::default()
    }
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("no configured time is longer than a day")
}

fn ms(time: Duration) -> u64 {
    us(time) / 1000
}

fn exactly(time: Duration) -> Delay {
    Delay { min_us: us(time), max_us: us(time) }
}

/// How much the parts of a load count.
pub(super) fn weights(values: &Values<Gathered>) -> Result<Weights, Failure> {
    let weights = parts(values.weights.settled()?);
    weights.map_err(|bad| Failure::usage(format!("load.weights: {bad}"), "let one of them count"))
}

fn parts(LoadWeights { cpu, tasks, memory, tasks_full }: LoadWeights<Settled>) -> Result<Weights, BadWeights> {
    Weights::new(cpu, tasks, memory, tasks_full)
}

/// Checks values against each other.
pub(super) fn check(layers: &mut Layers, insecure: bool) {
    let (values, mistakes) = (&layers.values, &mut layers.mistakes);
    let Values { election, guard, farm, .. } = values;
    check_order(&election.heartbeat, &election.silence_min, true, mistakes);
    check_order(&election.silence_min, &election.silence_max, false, mistakes);
    check_order(&election.answers, &election.victory, true, mistakes);
    if election.algorithm.get() == Some(Algorithm::Ring)
        && election.rank.get().is_some_and(|rank| rank != RankBy::Id)
    {
        let message = "a ring compares ids and nothing else".to_owned();
        mistakes.about(&election.rank, message, "leave election.rank out, or choose bully");
    }
    check_weights(values, mistakes);
    check_marks(&values.lending, mistakes);
    check_secret(values, mistakes);
    let least = Duration::from_micros(LEASE_MIN_US);
    if let Some(lease) = guard.lease.get().filter(|lease| *lease < least) {
        let message =
            format!("guard.lease is {}, which an ordinary pause of a host could exceed", time_text(&lease));
        mistakes.about(&guard.lease, message, "make it 300ms at least");
    }
    if let Some(size) = farm.state_max.get().filter(|size| *size > STATE_MAX) {
        let message = format!("farm.state_max is {size} bytes, and a server that is behind could not be sent that");
        mistakes.about(&farm.state_max, message, "make it 1536MiB at most");
    }
    check_reach(values, mistakes, insecure);
}

/// Beyond loopback links are encrypted; the API cannot be yet.
fn check_reach(values: &Values<Gathered>, mistakes: &mut Mistakes, insecure: bool) {
    let Values { server, cluster, .. } = values;
    let is_founded = cluster.founding.get().flatten().is_some();
    let (links, api) = ("links are not encrypted", "the API is not encrypted yet");
    let init = "make a founding file with primus init and name it in cluster.founding, listen on 127.0.0.1, or add \
                --insecure if you trust the network";
    let trust = "listen on 127.0.0.1, or add --insecure if you trust the network";
    let links = ((&server.listen, &server.address), links, init, is_founded);
    let api = ((&values.api.listen, &server.api), api, trust, false);
    for (slots, what, hint, is_safe) in [links, api] {
        let (slot, address) = listening(slots);
        if let Some(address) = address.filter(|address| is_open(*address) && !insecure && !is_safe) {
            let message = format!("{} is {address}, which other hosts can reach, and {what}", slot.key().name);
            mistakes.about(slot, message, hint);
        }
    }
}

/// Encryption can wait, where people trust a network. That other hosts run commands without any secret cannot.
fn check_secret(values: &Values<Gathered>, mistakes: &mut Mistakes) {
    let Values { server, api, .. } = values;
    let has_secret = api.token_file.get().flatten().is_some();
    let (slot, address) = listening((&api.listen, &server.api));
    if let Some(address) = address.filter(|address| is_open(*address) && !has_secret) {
        let file = api.token_file.key.name;
        let message = format!(
            "{} is {address}, which other hosts can reach, and without {file} everybody there can run commands",
            slot.key().name
        );
        let hint = format!("name a file with a secret in {file}, or let the API listen on 127.0.0.1");
        mistakes.about(slot, message, hint);
    }
}

/// A farm that were saturated and calm at once would ask for workers and send them home without end.
fn check_marks(lending: &Lending<Gathered>, mistakes: &mut Mistakes) {
    let [calm, saturated] = [&lending.calm_below, &lending.saturated_at];
    let (Some(low), Some(high)) = (calm.get(), saturated.get()) else { return };
    if low > high {
        let slot = if calm.is_written() { calm } else { saturated };
        let (calm, saturated) = (calm.key.name, saturated.key.name);
        let message =
            format!("{calm} is {low}, but {saturated} is {high}: a farm could be saturated and calm at once");
        mistakes.about(slot, message, format!("make {calm} at most {saturated}"));
    }
}

/// Weights of which none counts make no score.
pub(super) fn check_weights(values: &Values<Gathered>, mistakes: &mut Mistakes) {
    let known = values.weights.settled().ok();
    if let Some(Err(bad)) = known.map(parts) {
        mistakes.about(&values.weights.cpu, format!("load.weights: {bad}"), "let one of them count");
    }
}

fn check_order(less: &Slot<Time>, more: &Slot<Time>, is_strict: bool, mistakes: &mut Mistakes) {
    let (Some(first), Some(second)) = (less.get(), more.get()) else { return };
    if first < second || !is_strict && first == second {
        return;
    }
    // Whichever of the two somebody wrote is the one to mend.
    let slot = if more.is_written() { more } else { less };
    let (first, second) = (time_text(&first), time_text(&second));
    let (less, more) = (less.key.name, more.key.name);
    let message = format!("{more} is {second}, but {less} is {first}");
    let hint = format!("make {more} {} {less}", if is_strict { "longer than" } else { "at least as long as" });
    mistakes.about(slot, message, hint);
}

/// Where it listens, as far as that is known, and the key that says it.
fn listening<'a>(
    (listen, reached): (&'a Slot<Address>, &'a Slot<Reached>),
) -> (&'a dyn AnySlot, Option<SocketAddr>) {
    let address = listen.get().or_else(|| reached.get()?.number());
    (if listen.is_written() { listen } else { reached }, address)
}

/// Nothing listens beyond loopback unless somebody says so.
fn is_open(address: SocketAddr) -> bool {
    !address.ip().is_loopback()
}
