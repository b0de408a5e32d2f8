//! What goes wrong in a run of a farm, and what its clients want meanwhile, drawn from the seed.

use primus_core::ledger::{Entry, Fan, JobId, Spec, Target, TaskId, Work};

use super::Faults;
use crate::chance::Chance;

/// When the last fault has ended.
pub(super) const FAULTS_END_US: u64 = 4_000_000;
const STROKES_MAX: u64 = 8;
const SPAN_US_MAX: u64 = 2_500_000;
const JOBS_MAX: u64 = 12;
const ARRAY_MAX: u64 = 12;
const WISHES_MAX: u64 = 4;

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
    /// It does not reach the leader.
    WorkerCutOff,
    LinkBreaks,
    /// Everybody dies at once.
    AllCrash,
}

/// Everything that is drawn beforehand.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) strokes: Vec<(u64, Stroke, u64)>,
    pub(super) wishes: Vec<(u64, Entry)>,
}

const OF_LEADERS: [Stroke; 5] = [
    Stroke::LeaderCrashes,
    Stroke::LeaderFreezes,
    Stroke::LeaderIsolated,
    Stroke::LeaderDeposed,
    Stroke::ServerCrashes,
];
const OF_ALL: [Stroke; 12] = [
    Stroke::LeaderCrashes,
    Stroke::LeaderFreezes,
    Stroke::LeaderIsolated,
    Stroke::LeaderDeposed,
    Stroke::ServerCrashes,
    Stroke::WorkerCrashes,
    Stroke::WorkerCrashes,
    Stroke::WorkerFreezes,
    Stroke::WorkerCutOff,
    Stroke::WorkerCutOff,
    Stroke::LinkBreaks,
    Stroke::AllCrash,
];

pub(super) fn plan(faults: Faults, workers: u64, chance: &mut Chance) -> Plan {
    let strokes: &[Stroke] = match faults {
        Faults::None => &[],
        Faults::Leaders => &OF_LEADERS,
        Faults::All => &OF_ALL,
    };
    let count = if strokes.is_empty() { 0 } else { chance.between(1, STROKES_MAX) };
    let strokes = (0..count).map(|_| {
        let from_us = chance.between(100_000, FAULTS_END_US - 100_000);
        let until_us = from_us + chance.between(1_000, SPAN_US_MAX.min(FAULTS_END_US - from_us));
        (from_us, chance.pick(strokes), until_us)
    });
    Plan { strokes: strokes.collect(), wishes: wishes(workers, chance) }
}

/// Jobs, and that some of them are cancelled or wanted again; workers that get nothing new for a while.
fn wishes(workers: u64, chance: &mut Chance) -> Vec<(u64, Entry)> {
    let jobs = chance.between(2, JOBS_MAX);
    let mut wishes: Vec<(u64, Entry)> = (1..=jobs)
        .map(|job| {
            let submit = Entry::Submit { spec: spec(chance), key: Some(format!("job {job}")) };
            (chance.between(20_000, FAULTS_END_US - 200_000), submit)
        })
        .collect();
    for _ in 0..chance.between(0, WISHES_MAX) {
        let job = JobId(chance.between(1, jobs));
        let task = TaskId { job, index: chance.between(1, ARRAY_MAX) };
        let target = if chance.happens(500_000) { Target::Job(job) } else { Target::Task(task) };
        let wish = if chance.happens(600_000) { Entry::Cancel(target) } else { Entry::Retry(target) };
        wishes.push((chance.between(500_000, FAULTS_END_US), wish));
    }
    if workers > 1 && chance.happens(300_000) {
        let worker = format!("w{}", chance.between(2, workers));
        let from_us = chance.between(500_000, FAULTS_END_US);
        wishes.push((from_us, Entry::Drain { worker: worker.clone(), is_draining: true }));
        wishes.push((FAULTS_END_US + 100_000, Entry::Drain { worker, is_draining: false }));
    }
    wishes
}

fn spec(chance: &mut Chance) -> Spec {
    let fan = if chance.happens(300_000) {
        Fan::One
    } else {
        Fan::Array { first: 1, last: chance.between(1, ARRAY_MAX) }
    };
    Spec {
        name: String::new(),
        work: Work::Kind { name: "sleep".to_owned(), input: Vec::new() },
        fan,
        retries: chance.pick(&[0, 0, 1, 3]),
        timeout_ms: None,
        is_once: chance.happens(300_000),
        priority: chance.pick(&[0, 0, 5]),
        cpus: chance.pick(&[1, 1, 1, 2]),
    }
}
