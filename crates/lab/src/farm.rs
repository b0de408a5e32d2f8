//! Runs of one whole farm: servers, workers, and clients that submit, cancel and retry, with leaders and workers that crash, freeze,
//! are cut off and come back, and links that break. When the faults have ended, every task must come to its end.

use primus_core::ledger::{Entry, Expansion, JobId, Spec, Target, TaskId};
use primus_core::machine::Delay;
use primus_core::planted::Planted;

use crate::chance::Chance;
use crate::driver::Event;
use crate::driver::clock::Clock;
use crate::driver::fault::Fault;
use crate::driver::plan::{End, Plan, Tasks};
use crate::faults::Kinds;
use crate::setup::Setup;
use crate::tasks::{job, sleep};

/// When the last fault has ended.
const FAULTS_END_US: u64 = 4_000_000;
/// How long after the faults every task may take to come to its end.
const HEALING_US_MAX: u64 = 30_000_000;
const JOBS_MAX: u64 = 12;
const ARRAY_MAX: u64 = 12;
const WISHES_MAX: u64 = 4;

const OF_SERVERS: [(usize, Fault); 8] = [
    (2, Fault::LeaderCrashes),
    (1, Fault::ServerCrashes),
    (1, Fault::FarmCrashes),
    (1, Fault::LeaderFreezes),
    (2, Fault::LeaderIsolated),
    (1, Fault::LeaderUnheard),
    (1, Fault::DiskStalls),
    (1, Fault::LeaderTransfers),
];
const OF_WORKERS: [(usize, Fault); 5] = [
    (2, Fault::WorkerCrashes),
    (1, Fault::AllCrash),
    (1, Fault::WorkerFreezes),
    (5, Fault::WorkerCutOff),
    (1, Fault::LinkBreaks),
];

/// A farm to be tried, with any number of seeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Farm {
    /// How many servers.
    pub servers: u64,
    /// How many workers.
    pub workers: u64,
    /// What goes wrong.
    pub faults: Kinds,
    /// Do only servers fail, and all workers and their links live?
    pub only_servers: bool,
    /// Does the last worker claim what others have?
    pub has_impostor: bool,
    /// A known bug, to see whether it is found.
    pub planted: Planted,
}

impl Farm {
    /// A farm with these faults.
    #[must_use]
    pub const fn new(servers: u64, workers: u64, faults: Kinds) -> Self {
        Self { servers, workers, faults, only_servers: false, has_impostor: false, planted: Planted::NONE }
    }
}

impl Setup for Farm {
    fn plan(&self, chance: &mut Chance) -> Plan {
        let mut plan = Plan::new(self.servers, &["farm"]);
        plan.server.planted = self.planted;
        plan.work.planted = self.planted;
        plan.has_impostor = self.has_impostor;
        plan.server.snapshot_every = chance.pick(&[8, 40, 1_000]);
        // The first has room for everything that is ever submitted.
        plan.farms[0].workers = (0..self.workers)
            .map(|place| (1 + u16::try_from(place % 2).unwrap_or(0) + u16::from(place == 0), Clock::default()))
            .collect();
        plan.faults_end_us = FAULTS_END_US;
        plan.end = End::AtRest { within_us: HEALING_US_MAX, flood: false };
        plan.may_rerun = !self.only_servers && self.faults != Kinds::NONE;
        plan.is_calm = self.faults == Kinds::NONE;
        plan.tasks = Tasks {
            short: Delay { min_us: 200, max_us: 50_000 },
            long: Delay { min_us: 50_000, max_us: 1_500_000 },
            long_ppm: 200_000,
            failure_ppm: 150_000,
            abandoned_ppm: if plan.may_rerun { 30_000 } else { 0 },
            ..plan.tasks
        };
        let all = [OF_SERVERS.as_slice(), OF_WORKERS.as_slice()].concat();
        let faults = if self.only_servers { &OF_SERVERS } else { all.as_slice() };
        plan.disturb(&self.faults, faults, 4, 2_500_000, chance);
        plan.events.extend(wishes(self.workers, chance));
        plan
    }
}

/// Jobs, and that some of them are cancelled or wanted again; workers that get nothing new for a while.
fn wishes(workers: u64, chance: &mut Chance) -> Vec<(u64, Event)> {
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
    wishes.into_iter().map(|(at_us, wish)| (at_us, Event::Wish(0, Box::new(wish)))).collect()
}

fn spec(chance: &mut Chance) -> Spec {
    let expansion = if chance.happens(300_000) {
        Expansion::One
    } else {
        Expansion::Array { first: 1, last: chance.between(1, ARRAY_MAX) }
    };
    Spec {
        retries: chance.pick(&[0, 0, 1, 3]),
        is_once: chance.happens(300_000),
        priority: chance.pick(&[0, 0, 5]),
        cpus: chance.pick(&[1, 1, 1, 2]),
        ..job(sleep(Vec::new()), expansion)
    }
}
