//! Arguments as meant: parsed once, checked, and turned into an [`Experiment`] that cannot be wrong any more.

mod assignment;
mod bully;
pub mod cast;
mod day;
mod events;
mod ring;
mod servers;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;

use cast::Cast;
use primus_core::ServerId;
use primus_core::machine::Delay;
use primus_lab::experiment::{self, Contest, Experiment, Partition, Starts};
use primus_terminal::amounts::{self, length, number};
use primus_terminal::failure::Failure;

use crate::args::{Algorithm, Conditions, SeedArgs, SimulateArgs, Simulated, WhichFaults};

pub(crate) use assignment::AssignmentSimulation;
pub(crate) use day::DaySimulation;

/// More nodes in one ring than any command line can hold.
const RING_MAX: usize = 100_000;
/// A Bully election may need as many messages as the square of its nodes.
const BULLY_MAX: usize = 1_000;
const SEEDS_MAX: u64 = 1_000_000_000;
const DELAY_MAX_US: u64 = 60_000_000;

/// An election to simulate, with one seed or many.
#[derive(Debug)]
pub struct Simulation {
    /// What is tried.
    pub experiment: Experiment,
    /// Who takes part.
    pub cast: Cast,
    /// With which seeds.
    pub seeds: Seeds,
}

/// Which seeds to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seeds {
    /// One run, told from its beginning to its end.
    One(u64),
    /// Many runs, counted.
    Many(Range<u64>),
}

impl Simulation {
    /// The election that these arguments ask for, if it is one.
    ///
    /// # Errors
    /// If they make no sense.
    pub fn of(args: &SimulateArgs) -> Result<Option<Self>, Failure> {
        match &args.what {
            Simulated::Election(algorithm) => Self::new(algorithm).map(Some),
            _ => Ok(None),
        }
    }

    /// What these arguments ask for.
    pub(crate) fn new(algorithm: &Algorithm) -> Result<Self, Failure> {
        match algorithm {
            Algorithm::Ring(args) => ring::simulation(args),
            Algorithm::Bully(args) => bully::simulation(args),
        }
    }
}

impl SeedArgs {
    /// What `--seed` and `--seeds` mean together.
    pub(crate) fn read(&self) -> Result<Seeds, Failure> {
        let seed = amount("--seed", self.seed.as_deref(), 0, u64::MAX)?;
        let Some(count) = amount("--seeds", self.seeds.as_deref(), 1, SEEDS_MAX)? else {
            return Ok(Seeds::One(seed.unwrap_or_else(fresh_seed)));
        };
        let first = seed.unwrap_or(0);
        let end = first.checked_add(count).ok_or_else(|| {
            Failure::usage(format!("fewer than {count} seeds follow {first}"), "choose a smaller --seed")
        })?;
        Ok(Seeds::Many(first..end))
    }
}

/// A whole number, if one was typed.
fn amount(flag: &str, typed: Option<&str>, min: u64, max: u64) -> Result<Option<u64>, Failure> {
    typed.map(|text| number(flag, text, min, max)).transpose()
}

/// The seed that was typed, or a fresh one.
fn seed(typed: Option<&str>) -> Result<u64, Failure> {
    Ok(amount("--seed", typed, 0, u64::MAX)?.unwrap_or_else(fresh_seed))
}

/// A length of time in microseconds, if one was typed.
fn time_us(flag: &str, typed: Option<&str>) -> Result<Option<u64>, Failure> {
    let time = typed.map(|text| length(flag, text)).transpose()?;
    Ok(time.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)))
}

/// The words that say what happens to whom, and how to read a node in them.
struct Events<'a> {
    start: &'a [String],
    crash: &'a [String],
    partition: &'a [String],
}

struct Happenings {
    starts: Starts,
    crashes: Vec<(ServerId, u64)>,
    partitions: Vec<Partition>,
}

impl Events<'_> {
    fn read(&self, cast: &Cast) -> Result<Happenings, Failure> {
        let partitions = self.partition.iter().map(|text| events::partition(text, cast));
        Ok(Happenings {
            starts: events::starts(self.start, cast)?,
            crashes: events::crashes(self.crash, cast)?,
            partitions: partitions.collect::<Result<_, _>>()?,
        })
    }
}

impl Conditions {
    fn delay(&self) -> Result<Delay, Failure> {
        self.delay.as_deref().map_or(Ok(experiment::DELAY), |text| amounts::delay(text, DELAY_MAX_US))
    }

    fn experiment(&self, contest: Contest, happenings: Happenings, delay: Delay) -> Result<Experiment, Failure> {
        let loss_ppm = self.loss.as_deref().map_or(Ok(0), |text| amounts::share_ppm("--loss", text))?;
        let all_faults = self.faults == WhichFaults::All;
        if all_faults && self.loss.is_some() {
            let message = "--faults all draws the loss of messages from the seed, so --loss would not count";
            return Err(Failure::usage(message, "leave one of the two out"));
        }
        let Happenings { starts, crashes, partitions } = happenings;
        let unnoticed = false;
        Ok(Experiment { contest, starts, crashes, unnoticed, partitions, delay, loss_ppm, all_faults })
    }
}

/// A seed that nobody chose. It is short, so that people can type it again.
#[must_use]
pub fn fresh_seed() -> u64 {
    // The standard library seeds its hash maps from the system; that is all the chance one number needs.
    RandomState::new().build_hasher().finish() % 1_000_000_000
}

#[cfg(test)]
mod tests;
