//! The policy of lending, tried on a day of uneven load: how long queues are and how much of all slots is in use, with lending
//! and without.
//!
//! Farms and workers are whole, with one server each, lest a day take an hour. Nothing goes wrong: faults are in
//! [`crate::loans`]. Farms without lending are farms without neighbours, and they get the same tasks.

mod books;
mod gauge;
mod load;

use primus_core::loan::lending::Rules;
use primus_core::machine::Delay;

pub(crate) use self::books::Books;
pub use self::load::Load;
use crate::chance::Chance;
use crate::driver::Run;
use crate::driver::clock::Clock;
use crate::driver::plan::{End, Plan};

/// How long a message takes.
const TRAVEL: Delay = Delay { min_us: 1_000, max_us: 1_000 };
/// How long it takes until something is in the log.
const COMMIT: Delay = Delay { min_us: 3_000, max_us: 3_000 };

/// What to try the policy on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Day {
    /// How many farms; each is everybody's neighbour.
    pub farms: usize,
    /// How many workers each has.
    pub workers: u64,
    /// How much each worker can run at once.
    pub slots: u16,
    /// How the load is spread over farms and time.
    pub load: Load,
    /// Which share of all slots the tasks keep busy over the day, in hundredths.
    pub busy_percent: u64,
    /// How long a task takes on average; most take less.
    pub task_us: u64,
    /// How long the day is.
    pub day_us: u64,
    /// By which rules farms lend.
    pub rules: Rules,
}

/// What a day came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// For each farm.
    pub farms: Vec<Figures>,
    /// For all of them together.
    pub all: Figures,
    /// How often a worker was lent.
    pub loans: u64,
    /// How many tasks were stopped because their worker had to go home, and ran again.
    pub stopped: u64,
    /// How often one worker changed farms within the time that it should stay, at most.
    pub thrash_max: usize,
}

/// How a farm did.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Figures {
    /// How many tasks were submitted to it.
    pub tasks: u64,
    /// How many of them began on borrowed workers.
    pub borrowed: u64,
    /// How many still waited when the day was over.
    pub left: u64,
    /// How many waited, on average,
    pub queue_mean: f64,
    /// in all but the twentieth part of the day with the longest queues,
    pub queue_p95: u64,
    /// and at most.
    pub queue_max: u64,
    /// How long a task waited on average, up to the end of the day.
    pub wait_us: u64,
    /// How much of its own workers' slots was in use, for whomever they worked, from 0 to 1.
    pub utilisation: f64,
}

impl Default for Day {
    fn default() -> Self {
        Self {
            farms: 3,
            workers: 4,
            slots: 1,
            load: Load::Curve,
            busy_percent: 50,
            task_us: 5_000_000,
            day_us: 24 * 3_600_000_000,
            rules: Rules::default(),
        }
    }
}

impl Day {
    /// How the farms do on the day of this seed, each for itself or together; the tasks are the same.
    #[must_use]
    pub fn run(&self, is_lending: bool, seed: u64) -> Outcome {
        let mut chance = Chance::new(seed);
        let books = Books::new(self, &mut chance);
        Run::new(self.plan(is_lending), chance, seed, &mut ()).live(books)
    }

    fn plan(&self, is_lending: bool) -> Plan {
        let names: Vec<String> = (1..=self.farms).map(|farm| format!("farm{farm}")).collect();
        let mut plan = Plan::new(1, &names.iter().map(String::as_str).collect::<Vec<_>>());
        plan.server.lending.rules = self.rules;
        plan.are_neighbours = is_lending;
        plan.is_judged = false;
        plan.network.delay = TRAVEL;
        for farm in &mut plan.farms {
            farm.servers.iter_mut().for_each(|server| server.sync = COMMIT);
            farm.workers = (0..self.workers).map(|_| (self.slots, Clock::default())).collect();
        }
        plan.end = End::At(self.day_us);
        plan
    }

    /// How many slots a farm has of its own.
    const fn slots_each(&self) -> u64 {
        self.workers * self.slots as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hour(farms: usize, load: Load) -> Day {
        Day { farms, load, day_us: 3_600_000_000, ..Day::default() }
    }

    #[test]
    fn a_farm_that_gets_all_the_work_is_helped_by_the_others() {
        let day = hour(3, Load::One);
        let (alone, helped) = (day.run(false, 1), day.run(true, 1));
        assert_eq!(alone.farms[0].tasks, helped.farms[0].tasks, "both get the same tasks");
        assert!(alone.farms[0].left > 100 && helped.farms[0].left < 50, "{alone:#?} {helped:#?}");
        assert!(helped.farms[1].utilisation > alone.farms[1].utilisation + 0.2, "{alone:#?} {helped:#?}");
        assert!(helped.farms[0].borrowed > 500 && alone.farms[0].borrowed == 0);
    }

    #[test]
    fn peaks_at_different_hours_are_carried_by_all() {
        let day = hour(3, Load::Curve);
        let (alone, helped) = (day.run(false, 1), day.run(true, 1));
        for (alone, helped) in alone.farms.iter().zip(&helped.farms) {
            assert!(2.0 * helped.queue_mean < alone.queue_mean, "{alone:#?} {helped:#?}");
            assert!(helped.queue_p95 < alone.queue_p95 && helped.queue_max < alone.queue_max);
        }
    }

    /// The ring of five. Bursts of two seconds are over before help can come, but they must not do harm.
    #[test]
    fn bursts_that_move_round_make_nobody_run_to_and_fro() {
        for (turn_us, gain) in [(2_000_000, 0.95), (10_000_000, 1.5), (60_000_000, 4.0)] {
            let day = Day { task_us: 500_000, ..hour(5, Load::Bursts { turn_us }) };
            let (alone, helped) = (day.run(false, 1), day.run(true, 1));
            assert_eq!(helped.thrash_max, 1, "{helped:#?}");
            assert!(helped.loans > 50, "{helped:#?}");
            assert!(gain * helped.all.queue_mean < alone.all.queue_mean, "{:#?} {:#?}", alone.all, helped.all);
        }
    }

    #[test]
    fn evenly_loaded_farms_seldom_lend() {
        let (even, bursts) = (hour(3, Load::Even), hour(3, Load::Bursts { turn_us: 60_000_000 }));
        assert!(even.run(true, 1).loans < bursts.run(true, 1).loans / 10);
    }

    #[test]
    fn one_slot_does_as_the_theory_of_queues_says() {
        // M/M/1: with half of the time busy, half a task waits on average, each for as long as a task takes.
        let day = Day { workers: 1, task_us: 1_000_000, ..Day { load: Load::Even, ..Day::default() } };
        let outcome = day.run(false, 1);
        assert!((0.45..0.55).contains(&outcome.farms[0].queue_mean), "{outcome:#?}");
        assert!(
            (0.48..0.52).contains(&outcome.all.utilisation) && (900_000..1_100_000).contains(&outcome.all.wait_us)
        );
    }

    #[test]
    fn the_same_seed_gives_the_same_day() {
        let day = hour(2, Load::Curve);
        assert_eq!(day.run(true, 7), day.run(true, 7));
        assert_ne!(day.run(true, 7), day.run(true, 8));
    }
}
