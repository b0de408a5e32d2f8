//! Runs of several farms that lend each other workers: whole servers and whole workers, with everything that can go wrong in one farm
//! and between two, operators who lend and recall, and bursts of work that move from farm to farm.
//!
//! When the faults have ended, every task and every loan must come to its end, and a farm that is flooded then must be helped.

use primus_core::loan::lending::{self, Order};
use primus_core::planted::Planted;

use crate::chance::Chance;
use crate::cluster::skewed;
use crate::driver::Event;
use crate::driver::clients::{self, submit};
use crate::driver::clock::Clock;
use crate::driver::fault::Fault;
use crate::driver::plan::{End, Plan};
use crate::faults::{Kind, Kinds};
use crate::setup::Setup;

/// When the last fault has ended.
const FAULTS_END_US: u64 = 9_000_000;
/// How long after the faults every task and every loan may take to come to its end; loans may be long themselves.
const HEALING_US_MAX: u64 = 100_000_000;
const SERVERS: u64 = 3;
const WORKERS_MAX: u64 = 4;
const NAMES: [&str; FARMS_MAX] = ["north", "south", "east", "west", "centre"];
/// The most farms that there are names for.
pub const FARMS_MAX: usize = 5;
const BURSTS_MAX: u64 = 7;
const BURST_EVERY_US: u64 = 1_100_000;
const BURST_TASKS_MAX: u64 = 60;
const JOBS_MAX: u64 = 6;
const ORDERS_MAX: u64 = 4;
/// Clocks run wrong by this much at most, even if nothing else goes wrong.
const SKEW_PPM_MAX: u64 = 5_000;
const AHEAD_MS_MAX: u64 = 100;

const FAULTS: [(usize, Fault); 17] = [
    (2, Fault::LeaderCrashes),
    (1, Fault::ServerCrashes),
    (1, Fault::FarmCrashes),
    (1, Fault::WorkerCrashes),
    (1, Fault::TravellerCrashes),
    (2, Fault::LentCrashes),
    (1, Fault::BothLeadersCrash),
    (1, Fault::LeaderFreezes),
    (1, Fault::WorkerFreezes),
    (1, Fault::LeaderIsolated),
    (1, Fault::LeaderUnheard),
    (3, Fault::TravellerCutOff),
    (2, Fault::WorkerCutOffFromHome),
    (1, Fault::WorkerCutOff),
    (2, Fault::FarmsApart),
    (1, Fault::LinkBreaks),
    (1, Fault::LeaderTransfers),
];

/// Farms to be tried, with any number of seeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loans {
    /// How many farms, up to [`FARMS_MAX`].
    pub farms: usize,
    /// How many servers each has.
    pub servers: u64,
    /// How many workers each has; otherwise the seed says, for each farm.
    pub workers: Option<u64>,
    /// What goes wrong.
    pub faults: Kinds,
    /// A known bug, to see whether it is found.
    pub planted: Planted,
}

impl Loans {
    /// So many farms of three servers each, with these faults.
    #[must_use]
    pub const fn new(farms: usize, faults: Kinds) -> Self {
        Self { farms, servers: SERVERS, workers: None, faults, planted: Planted::NONE }
    }
}

impl Setup for Loans {
    fn plan(&self, chance: &mut Chance) -> Plan {
        let mut plan = Plan::new(self.servers, &NAMES[..self.farms]);
        plan.server.planted = self.planted;
        plan.server.lending.rules = rules(self.planted, chance);
        plan.server.snapshot_every = chance.pick(&[40, 1_000]);
        plan.faults_end_us = FAULTS_END_US;
        plan.end = End::AtRest { within_us: HEALING_US_MAX, flood: true };
        plan.is_calm = self.faults == Kinds::NONE;
        plan.may_rerun = true;
        plan.disturb(&self.faults, &FAULTS, 4, 3_000_000, chance);
        if self.faults.is_on(Kind::Disks, chance) {
            plan.slow_epochs_ppm = chance.pick(&[20_000, 500_000, 900_000]);
        }
        for farm in &mut plan.farms {
            let count = self.workers.unwrap_or_else(|| chance.between(2, WORKERS_MAX));
            farm.workers = (0..count).map(|_| (chance.pick(&[1, 1, 2]), clock(chance))).collect();
            farm.servers.iter_mut().for_each(|server| server.clock = clock(chance));
        }
        self.add_wishes(&mut plan, chance);
        plan
    }
}

impl Loans {
    /// Bursts of tasks on one farm after the other, some jobs anywhere, and what operators want.
    fn add_wishes(&self, plan: &mut Plan, chance: &mut Chance) {
        let farms = self.farms as u64;
        let place = |number: u64| usize::try_from(number % farms).expect("there are few farms");
        let first = chance.below(farms);
        let mut wish = |at_us, farm, entry| plan.events.push((at_us, Event::Wish(farm, Box::new(entry))));
        for number in 0..chance.between(2, BURSTS_MAX) {
            let at_us = 400_000 + number * BURST_EVERY_US + chance.below(300_000);
            let tasks = chance.between(15, BURST_TASKS_MAX);
            wish(at_us, place(first + number), submit(tasks, false, Some(&format!("burst {number}")), ""));
        }
        for number in 0..chance.between(0, JOBS_MAX) {
            let at_us = chance.between(100_000, FAULTS_END_US);
            let is_once = self.faults != Kinds::NONE && chance.happens(500_000);
            let (farm, tasks) = (place(chance.below(farms)), chance.between(1, 8));
            wish(at_us, farm, submit(tasks, is_once, Some(&format!("job {number}")), ""));
        }
        for _ in 0..chance.between(0, ORDERS_MAX) {
            let at_us = chance.between(500_000, FAULTS_END_US);
            let order = chance.pick(&[clients::Order::Lend, clients::Order::Recall]);
            plan.events.push((at_us, Event::Order(place(chance.below(farms)), order)));
        }
    }
}

fn clock(chance: &mut Chance) -> Clock {
    let ahead_ms = i64::try_from(chance.between(0, AHEAD_MS_MAX)).expect("it is small");
    Clock { slower_ppm: skewed(SKEW_PPM_MAX, chance), ahead_ms, ..Clock::default() }
}

fn rules(planted: Planted, chance: &mut Chance) -> lending::Rules {
    lending::Rules {
        loan_ms: chance.pick(&[1_000, 2_500, 60_000]),
        recall_ms: chance.pick(&[100, 1_000, 10_000]),
        // No longer than a loan: otherwise the end of its time would be too soon.
        stay_ms: chance.pick(&[200, 1_000]),
        calm_ms: chance.pick(&[200, 1_000]),
        reserve: chance.pick(&[0, 0, 0, 1]),
        lent_max: chance.pick(&[1, 1024, 1024]),
        order: chance.pick(&[Order::Listed, Order::Idle]),
        planted,
        ..lending::Rules::default()
    }
}
