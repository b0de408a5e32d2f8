//! The load score of a server: 0 (idle) to 100 (full), lower is better.
//!
//! `score = 0.5·cpu + 0.3·min(tasks / 10, 1)·100 + 0.2·memory_used`, from the load-aware document. Scores are
//! integers (hundredths), because they are compared and agreed on: two servers must never differ in the last
//! bit of a float.

use core::fmt;

use crate::rank::BUCKET_HUNDREDTHS;

/// A load score in hundredths: 4300 is 43.00.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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

/// What a server tells others about its load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

    /// A reading with its score.
    #[must_use]
    pub fn load(self, reading: Reading) -> Load {
        let Reading { cpu, tasks, memory_used } = reading;
        let percent = |part| Some(Score::from_percent(part));
        let (score, cpu, memory) = (self.score(reading), percent(cpu), percent(memory_used));
        Load { score, cpu, memory, tasks, is_disk_full: false }
    }

    /// The score of a reading.
    #[must_use]
    pub fn score(self, reading: Reading) -> Score {
        let tasks = (u64::from(reading.tasks) * 10_000 / u64::from(self.tasks_full)).min(10_000);
        let parts = [
            (self.cpu, u64::from(Score::from_percent(reading.cpu).0)),
            (self.tasks, tasks),
            (self.memory, u64::from(Score::from_percent(reading.memory_used).0)),
        ];
        // Weights are 32 bits and parts at most 10,000, so the sums stay far below 64 bits.
        let sum: u64 = parts.iter().map(|&(weight, part)| u64::from(weight) * part).sum();
        let weights: u64 = parts.iter().map(|&(weight, _)| u64::from(weight)).sum();
        Score::from_hundredths(u32::try_from(sum / weights).unwrap_or(u32::MAX))
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
