//! The load score of a server: 0 (idle) to 100 (full), lower is better.
//!
//! `score = 0.5·cpu + 0.3·min(tasks / 10, 1)·100 + 0.2·memory_used`, from the load-aware document. Scores are
//! integers (hundredths), because they are compared and agreed on: two servers must never differ in the last
//! bit of a float.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::rank::BUCKET_HUNDREDTHS;

/// A load score in hundredths: 4300 is 43.00.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Score(u32);

/// What was measured on a host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Use of all processors, in percent.
    pub cpu: f64,
    /// Tasks that run now.
    pub tasks: u32,
    /// Use of memory, in percent: 100 minus what is available.
    pub memory_used: f64,
}

/// What a host's meter says: everything that a score is made of, except the tasks, which are counted elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Usage {
    /// Nothing has been measured yet: only tasks count.
    #[default]
    Unknown,
    /// Use of processors and of memory, each from 0 to 100.
    Parts {
        /// Processors.
        cpu: Score,
        /// Memory.
        memory: Score,
    },
    /// A whole score that somebody chose. Tasks are counted and shown, and do not change it.
    Chosen(Score),
}

/// What a server tells others about its load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Load {
    /// What elections compare.
    pub score: Score,
    /// Use of processors from 0 to 100, if it was measured.
    pub cpu: Option<Score>,
    /// Use of memory from 0 to 100, if it was measured.
    pub memory: Option<Score>,
    /// Tasks that run now.
    pub tasks: u32,
    /// Is there no room on its disk for anything new?
    pub is_disk_full: bool,
}

/// How much each part of a reading counts. Only their proportions matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Weights {
    cpu: u32,
    tasks: u32,
    memory: u32,
    tasks_full: u32,
}

/// Why weights were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadWeights {
    /// Nothing would count.
    AllZero,
    /// No number of tasks would be full load.
    NoFullLoad,
}

impl Score {
    /// The worst score.
    pub const MAX: Self = Self(10_000);

    /// A score from hundredths; more than 100.00 is 100.00.
    #[must_use]
    pub const fn from_hundredths(hundredths: u32) -> Self {
        if hundredths > Self::MAX.0 { Self::MAX } else { Self(hundredths) }
    }

    /// A score from a percentage. It is total: a negative value is 0, and one over 100 or not a number is 100,
    /// because a host whose load nobody knows should not lead.
    #[must_use]
    pub const fn from_percent(percent: f64) -> Self {
        if percent.is_nan() || percent >= 100.0 {
            return Self::MAX;
        }
        if percent <= 0.0 {
            return Self(0);
        }
        Self((percent * 100.0 + 0.5) as u32)
    }

    /// The score in hundredths.
    #[must_use]
    pub const fn hundredths(self) -> u32 {
        self.0
    }

    /// The bucket that ranks compare.
    #[must_use]
    pub const fn bucket(self) -> u32 {
        self.0 / BUCKET_HUNDREDTHS
    }
}

impl Load {
    /// Nothing is known, and nothing runs.
    pub const IDLE: Self = Self { score: Score(0), cpu: None, memory: None, tasks: 0, is_disk_full: false };
}

impl From<Score> for Load {
    /// A score whose parts nobody knows.
    fn from(score: Score) -> Self {
        Self { score, ..Self::default() }
    }
}

impl Weights {
    /// The weights of the load-aware document; ten tasks are full load.
    pub const DEFAULT: Self = Self { cpu: 50, tasks: 30, memory: 20, tasks_full: 10 };

    /// Weights in any unit; `tasks_full` is how many tasks count as full load.
    ///
    /// # Errors
    /// If nothing would count, or no number of tasks would be full load.
    pub const fn new(cpu: u32, tasks: u32, memory: u32, tasks_full: u32) -> Result<Self, BadWeights> {
        if cpu == 0 && tasks == 0 && memory == 0 {
            return Err(BadWeights::AllZero);
        }
        if tasks_full == 0 {
            return Err(BadWeights::NoFullLoad);
        }
        Ok(Self { cpu, tasks, memory, tasks_full })
    }

    /// The load of a host that is used like this and runs so many tasks.
    #[must_use]
    pub fn load(self, usage: Usage, tasks: u32) -> Load {
        let (cpu, memory) = match usage {
            Usage::Chosen(score) => return Load { score, tasks, ..Load::default() },
            Usage::Unknown => (None, None),
            Usage::Parts { cpu, memory } => (Some(cpu), Some(memory)),
        };
        let score = self.of_parts(cpu.unwrap_or_default(), tasks, memory.unwrap_or_default());
        Load { score, cpu, memory, tasks, is_disk_full: false }
    }

    /// The score of a reading.
    #[must_use]
    pub fn score(self, reading: Reading) -> Score {
        self.of_parts(Score::from_percent(reading.cpu), reading.tasks, Score::from_percent(reading.memory_used))
    }

    /// The score of a load if so many tasks run by now: what came after it was measured counts in it. Fewer change nothing,
    /// because the next reading says so.
    #[must_use]
    pub fn score_with(self, load: Load, tasks: u32) -> Score {
        if tasks <= load.tasks {
            return load.score;
        }
        let part = |tasks: u32| u64::from(self.tasks) * self.fullness(tasks) / self.sum();
        let added = part(tasks) - part(load.tasks);
        Score::from_hundredths(load.score.0.saturating_add(u32::try_from(added).unwrap_or(u32::MAX)))
    }

    fn of_parts(self, cpu: Score, tasks: u32, memory: Score) -> Score {
        let parts =
            [(self.cpu, u64::from(cpu.0)), (self.tasks, self.fullness(tasks)), (self.memory, u64::from(memory.0))];
        // Weights are 32 bits and parts at most 10,000, so the sums stay far below 64 bits.
        let sum: u64 = parts.iter().map(|&(weight, part)| u64::from(weight) * part).sum();
        Score::from_hundredths(u32::try_from(sum / self.sum()).unwrap_or(u32::MAX))
    }

    /// How much of full load so many tasks are, in hundredths of a percent.
    fn fullness(self, tasks: u32) -> u64 {
        (u64::from(tasks) * 10_000 / u64::from(self.tasks_full)).min(10_000)
    }

    fn sum(self) -> u64 {
        u64::from(self.cpu) + u64::from(self.tasks) + u64::from(self.memory)
    }
}

impl Default for Weights {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for BadWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AllZero => "all weights are zero: at least one part must count",
            Self::NoFullLoad => "tasks_full is zero: say how many tasks are full load, for example 10",
        })
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::string::ToString;

    use super::*;

    fn score(cpu: f64, tasks: u32, memory_used: f64) -> u32 {
        Weights::DEFAULT.score(Reading { cpu, tasks, memory_used }).hundredths()
    }

    #[test]
    fn the_worked_examples_of_the_load_aware_document() {
        for (cpu, tasks, memory_available, expected) in [
            // Idle, moderately loaded, heavily loaded.
            (0.0, 0, 100.0, 0),
            (40.0, 5, 60.0, 4300),
            (80.0, 12, 20.0, 8600),
            // The three servers of scenario 1.
            (20.0, 2, 80.0, 2000),
            (10.0, 0, 90.0, 700),
        ] {
            assert_eq!(score(cpu, tasks, 100.0 - memory_available), expected);
        }
    }

    #[test]
    fn tasks_count_in_what_was_measured_and_not_in_what_was_chosen() {
        let points = Score::from_percent;
        for (usage, tasks, expected) in [
            (Usage::Parts { cpu: points(40.0), memory: points(40.0) }, 5, 43.0),
            (Usage::Parts { cpu: points(80.0), memory: points(80.0) }, 12, 86.0),
            (Usage::Chosen(points(18.7)), 5, 18.7),
            (Usage::Unknown, 5, 15.0),
        ] {
            let load = Weights::DEFAULT.load(usage, tasks);
            assert_eq!((load.score, load.tasks), (points(expected), tasks), "{usage:?}");
        }
    }

    #[test]
    fn tasks_that_came_since_count_in_a_score() {
        let load = |usage| Weights::DEFAULT.load(usage, 2);
        let idle = load(Usage::Parts { cpu: Score::default(), memory: Score::default() });
        for (load, tasks, expected) in
            [(idle, 0, 600), (idle, 2, 600), (idle, 3, 900), (idle, 10, 3000), (idle, 99, 3000)]
        {
            assert_eq!(Weights::DEFAULT.score_with(load, tasks).hundredths(), expected, "{tasks}");
        }
        let chosen = load(Usage::Chosen(Score::from_percent(18.7)));
        assert_eq!(Weights::DEFAULT.score_with(chosen, 3), Score::from_percent(21.7));
        assert_eq!(Weights::DEFAULT.score_with(load(Usage::Chosen(Score::MAX)), 9), Score::MAX);
    }

    #[test]
    fn bad_readings_still_give_a_score() {
        for (cpu, memory_used, expected) in [
            (f64::NAN, 0.0, 5000),
            (f64::INFINITY, f64::NEG_INFINITY, 5000),
            (-3.0, -0.0, 0),
            (250.0, f64::NAN, 7000),
        ] {
            assert_eq!(score(cpu, 0, memory_used), expected);
        }
        assert_eq!(score(100.0, u32::MAX, 100.0), 10_000);
    }

    #[test]
    fn only_the_proportion_of_weights_matters() {
        let reading = Reading { cpu: 37.5, tasks: 3, memory_used: 61.25 };
        let doubled = Weights::new(100, 60, 40, 10).unwrap();
        assert_eq!(doubled.score(reading), Weights::DEFAULT.score(reading));
        let huge = Weights::new(u32::MAX, u32::MAX, u32::MAX, 1).unwrap();
        assert_eq!(huge.score(Reading { cpu: 100.0, tasks: 9, memory_used: 100.0 }), Score::MAX);
    }

    #[test]
    fn weights_that_count_nothing_are_refused() {
        assert_eq!(Weights::new(0, 0, 0, 10), Err(BadWeights::AllZero));
        assert_eq!(Weights::new(1, 0, 0, 0), Err(BadWeights::NoFullLoad));
    }

    #[test]
    fn scores_are_written_with_two_decimals() {
        assert_eq!(Score::from_percent(25.3).to_string(), "25.30");
        assert_eq!(Score::from_percent(7.05).to_string(), "7.05");
        assert_eq!(Score::from_percent(150.0).to_string(), "100.00");
    }

    proptest! {
        // The slow twin: the formula as the document writes it, in floats.
        #[test]
        fn agrees_with_the_formula_in_floats(cpu in 0.0..100.0f64, tasks in 0u32..30, memory in 0.0..100.0f64) {
            let expected = 0.5 * cpu + 0.3 * (f64::from(tasks) / 10.0).min(1.0) * 100.0 + 0.2 * memory;
            let got = f64::from(score(cpu, tasks, memory)) / 100.0;
            prop_assert!((got - expected).abs() <= 0.02, "{got} is not {expected}");
        }
    }
}
