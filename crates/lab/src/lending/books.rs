//! The books of a day: which tasks come when, how long queues are, and whose slots are in use.

use std::collections::{BTreeMap, VecDeque};

use super::gauge::Gauge;
use super::load::Source;
use super::{Day, Figures, Outcome};
use crate::chance::Chance;
use crate::driver::host::FarmPlace;
use crate::node::NodeId;

/// What is written down while a day goes on.
#[derive(Debug)]
pub(crate) struct Books {
    day: Day,
    sources: Vec<Source>,
    farms: Vec<Account>,
    /// How much waits everywhere.
    waiting: Gauge,
    /// When each worker changed farms, within the last stay time.
    changes: BTreeMap<NodeId, VecDeque<u64>>,
    stopped: u64,
    thrash_max: usize,
}

/// What is written down about a farm.
#[derive(Debug, Default)]
struct Account {
    queue: Gauge,
    tasks: u64,
    borrowed: u64,
    /// How long slots of its own workers were in use.
    used_us: u64,
}

impl Books {
    pub(super) fn new(day: &Day, chance: &mut Chance) -> Self {
        let sources = (0..day.farms).map(|farm| Source::new(farm, Chance::new(chance.below(u64::MAX))));
        Self {
            day: *day,
            sources: sources.collect(),
            farms: (0..day.farms).map(|_| Account::default()).collect(),
            waiting: Gauge::default(),
            changes: BTreeMap::new(),
            stopped: 0,
            thrash_max: 0,
        }
    }

    /// When the next task comes to this farm, and how long it takes.
    pub(crate) fn next_task(&mut self, farm: FarmPlace) -> Option<(u64, u64)> {
        let next = self.sources[farm].next(&self.day);
        self.farms[farm].tasks += u64::from(next.is_some());
        next
    }

    /// So much waits in this farm now.
    pub(crate) fn on_queue(&mut self, farm: FarmPlace, waiting: u64, now_us: u64) {
        let queue = &mut self.farms[farm].queue;
        let before = queue.value();
        if before != waiting {
            queue.set(waiting, now_us);
            self.waiting.set(self.waiting.value() + waiting - before, now_us);
        }
    }

    /// A task begins for this farm on a worker of that one.
    pub(crate) fn on_start(&mut self, farm: FarmPlace, home: FarmPlace) {
        self.farms[farm].borrowed += u64::from(farm != home);
    }

    /// A task of a worker of this farm has ended, or was stopped, after so long.
    pub(crate) fn on_end(&mut self, home: FarmPlace, ran_us: u64, is_stopped: bool) {
        self.farms[home].used_us += ran_us;
        self.stopped += u64::from(is_stopped);
    }

    /// A worker changes farms: how often has it done so within the time that it should stay?
    pub(crate) fn on_change(&mut self, worker: NodeId, now_us: u64) {
        let stay_us = self.day.rules.stay_ms.saturating_mul(1000);
        let changes = self.changes.entry(worker).or_default();
        while changes.front().is_some_and(|change_us| change_us.saturating_add(stay_us) <= now_us) {
            changes.pop_front();
        }
        changes.push_back(now_us);
        self.thrash_max = self.thrash_max.max(changes.len());
    }

    /// The day is over.
    pub(crate) fn close(mut self, loans: u64) -> Outcome {
        let end_us = self.day.day_us;
        self.farms.iter_mut().for_each(|farm| farm.queue.set(farm.queue.value(), end_us));
        self.waiting.set(self.waiting.value(), end_us);
        let all: Vec<&Account> = self.farms.iter().collect();
        Outcome {
            farms: all.iter().map(|farm| self.figures(&[farm], &farm.queue)).collect(),
            all: self.figures(&all, &self.waiting),
            loans,
            stopped: self.stopped,
            thrash_max: self.thrash_max,
        }
    }

    fn figures(&self, farms: &[&Account], queue: &Gauge) -> Figures {
        let sum = |count: fn(&Account) -> u64| farms.iter().map(|farm| count(farm)).sum::<u64>();
        let tasks = sum(|farm| farm.tasks);
        let slots_us = (farms.len() as u64 * self.day.slots_each()) as f64 * self.day.day_us as f64;
        Figures {
            tasks,
            borrowed: sum(|farm| farm.borrowed),
            left: sum(|farm| farm.queue.value()),
            queue_mean: queue.mean(),
            queue_p95: queue.percentile(95),
            queue_max: queue.max(),
            wait_us: u64::try_from(queue.sum_us() / u128::from(tasks.max(1))).unwrap_or(u64::MAX),
            utilisation: sum(|farm| farm.used_us) as f64 / slots_us,
        }
    }
}
