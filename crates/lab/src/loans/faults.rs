//! What goes wrong in a run of several farms, what their clients and operators want meanwhile, and by which rules they lend,
//! drawn from the seed.

use primus_core::ledger::{Entry, Fan, Spec, Work};
use primus_core::loan::office::{Order, Rules};
use primus_core::planted::Planted;

use super::Faults;
use super::host::{Clock, FarmId};
use crate::chance::Chance;

/// When the last fault has ended.
pub(super) const FAULTS_END_US: u64 = 9_000_000;
const STROKES_MAX: u64 = 12;
const SPAN_US_MAX: u64 = 3_000_000;
const BURSTS_MAX: u64 = 7;
const BURST_EVERY_US: u64 = 1_100_000;
const BURST_TASKS_MAX: u64 = 60;
const JOBS_MAX: u64 = 6;
const ACTS_MAX: u64 = 4;
/// Clocks run wrong by this much at most.
const SKEW_PPM_MAX: u64 = 5_000;
const AHEAD_MS_MAX: u64 = 100;

/// Something that goes wrong, for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Stroke {
    LeaderCrashes,
    LeaderFreezes,
    /// It reaches no other server, but its workers.
    LeaderIsolated,
    /// Another one leads without any need; nobody tells the old one for a while.
    LeaderDeposed,
    ServerCrashes,
    WorkerCrashes,
    WorkerFreezes,
    /// Somebody on its way to another farm crashes.
    TravellerCrashes,
    /// Somebody on its way to another farm does not reach its own.
    TravellerCutOff,
    /// Somebody who is lent crashes.
    LentCrashes,
    /// It does not reach its own farm.
    WorkerCutOffFromHome,
    /// Nor the one that it works for.
    WorkerCutOff,
    LinkBreaks,
    /// The leaders of a lender and of its borrower crash.
    BothLeadersCrash,
    /// Two farms do not reach each other.
    FarmsApart,
    /// A farm dies as a whole, its workers aside.
    FarmCrashes,
}

const STROKES: [Stroke; 19] = [
    Stroke::LeaderCrashes,
    Stroke::LeaderCrashes,
    Stroke::LeaderFreezes,
    Stroke::LeaderIsolated,
    Stroke::LeaderDeposed,
    Stroke::ServerCrashes,
    Stroke::WorkerCrashes,
    Stroke::WorkerFreezes,
    Stroke::TravellerCrashes,
    Stroke::TravellerCutOff,
    Stroke::LentCrashes,
    Stroke::LentCrashes,
    Stroke::WorkerCutOffFromHome,
    Stroke::WorkerCutOff,
    Stroke::LinkBreaks,
    Stroke::BothLeadersCrash,
    Stroke::FarmsApart,
    Stroke::FarmsApart,
    Stroke::FarmCrashes,
];

/// What an operator wants of a farm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Act {
    Lend,
    Recall,
}

/// What becomes of what the leaders of two farms say, while things go wrong, and how slow disks are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Network {
    pub(super) loss_ppm: u32,
    pub(super) duplication_ppm: u32,
    pub(super) lateness_ppm: u32,
    /// How often the disk of a worker is slow when it is about to go.
    pub(super) slow_disk_ppm: u32,
}

const CALM: Network = Network { loss_ppm: 0, duplication_ppm: 0, lateness_ppm: 0, slow_disk_ppm: 0 };

/// Everything that is drawn beforehand.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) strokes: Vec<(u64, Stroke, u64)>,
    pub(super) wishes: Vec<(u64, FarmId, Entry)>,
    pub(super) acts: Vec<(u64, FarmId, Act)>,
    pub(super) network: Network,
    pub(super) rules: Rules,
}

pub(super) fn plan(faults: Faults, farms: usize, planted: Planted, chance: &mut Chance) -> Plan {
    let (strokes, network) = match faults {
        Faults::None => (Vec::new(), CALM),
        Faults::All => (strokes(chance), network(chance)),
    };
    let wishes = wishes(faults, farms, chance);
    Plan { strokes, wishes, acts: acts(farms, chance), network, rules: rules(planted, chance) }
}

pub(super) fn clock(chance: &mut Chance) -> Clock {
    let skew_ppm = i64::try_from(chance.between(0, 2 * SKEW_PPM_MAX)).expect("it is small");
    Clock { ahead_ms: chance.between(0, AHEAD_MS_MAX), slower_ppm: skew_ppm - 5_000 }
}

fn rules(planted: Planted, chance: &mut Chance) -> Rules {
    Rules {
        loan_ms: chance.pick(&[1_000, 2_500, 60_000]),
        recall_ms: chance.pick(&[100, 1_000, 10_000]),
        // No longer than a loan: otherwise the end of its time would be too soon.
        stay_ms: chance.pick(&[200, 1_000]),
        calm_ms: chance.pick(&[200, 1_000]),
        reserve: chance.pick(&[0, 0, 0, 1]),
        lent_max: chance.pick(&[1, 1024, 1024]),
        order: chance.pick(&[Order::Listed, Order::Idle]),
        planted,
        ..Rules::default()
    }
}

fn strokes(chance: &mut Chance) -> Vec<(u64, Stroke, u64)> {
    let count = chance.between(1, STROKES_MAX);
    let mut strokes = Vec::new();
    for _ in 0..count {
        let from_us = chance.between(500_000, FAULTS_END_US - 100_000);
        let until_us = from_us + chance.between(1_000, SPAN_US_MAX.min(FAULTS_END_US - from_us));
        strokes.push((from_us, chance.pick(&STROKES), until_us));
    }
    strokes
}

fn network(chance: &mut Chance) -> Network {
    Network {
        loss_ppm: chance.pick(&[0, 0, 20_000, 200_000]),
        duplication_ppm: chance.pick(&[0, 0, 20_000, 200_000]),
        lateness_ppm: chance.pick(&[0, 0, 20_000, 200_000]),
        slow_disk_ppm: chance.pick(&[0, 0, 20_000, 500_000]),
    }
}

/// Bursts of tasks on one farm after the other, and some jobs anywhere.
fn wishes(faults: Faults, farms: usize, chance: &mut Chance) -> Vec<(u64, FarmId, Entry)> {
    let mut wishes = Vec::new();
    let first = chance.below(farms as u64);
    for number in 0..chance.between(2, BURSTS_MAX) {
        let at_us = 400_000 + number * BURST_EVERY_US + chance.below(300_000);
        let tasks = chance.between(15, BURST_TASKS_MAX);
        wishes.push((at_us, place(first + number, farms), submit(tasks, false, &format!("burst {number}"))));
    }
    for number in 0..chance.between(0, JOBS_MAX) {
        let at_us = chance.between(100_000, FAULTS_END_US);
        let is_once = faults == Faults::All && chance.happens(500_000);
        let (farm, tasks) = (place(chance.below(farms as u64), farms), chance.between(1, 8));
        wishes.push((at_us, farm, submit(tasks, is_once, &format!("job {number}"))));
    }
    wishes
}

fn place(number: u64, farms: usize) -> FarmId {
    usize::try_from(number).expect("it is small") % farms
}

fn acts(farms: usize, chance: &mut Chance) -> Vec<(u64, FarmId, Act)> {
    let count = chance.between(0, ACTS_MAX);
    let act = |_| {
        let at_us = chance.between(500_000, FAULTS_END_US);
        (at_us, place(chance.below(farms as u64), farms), chance.pick(&[Act::Lend, Act::Recall]))
    };
    (0..count).map(act).collect()
}

pub(super) fn submit(tasks: u64, is_once: bool, key: &str) -> Entry {
    let spec = Spec {
        name: String::new(),
        work: Work::Kind { name: "sleep".to_owned(), input: Vec::new() },
        fan: Fan::Array { first: 1, last: tasks },
        retries: 0,
        timeout_ms: None,
        is_once,
        priority: 0,
        cpus: 1,
    };
    Entry::Submit { spec, key: Some(key.to_owned()) }
}
