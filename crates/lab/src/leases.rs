//! Runs of leases: the lessor of every server and all guards, each on a clock of its own that runs wrong by up to 1 %, with
//! servers and guards that crash, freeze, are cut off and come back, and words that are lost, late, doubled and overtaken.
//!
//! The log is the same model as in runs of farms (`log.rs`). Whether a leader still leads is asked and answered message by
//! message, because that is what everything rests on: a frozen leader may hear the answer when somebody else leads already.
//! What runs under a lease is only an interval of real time, from the moment at which its guard was told that it holds a group to
//! the end of the last promise by the guard's own clock: whatever becomes of the guard, its companion knows no more than that.
//! While a run goes on, every property in [`checks`] is checked with every step; when the faults have ended, every group must
//! soon be held by as many as want it and may.

mod candidates;
pub mod checks;
mod faults;
mod host;
mod run;
mod strokes;

use primus_core::lease::{Guard, Lessor};
use primus_core::planted::Planted;

use crate::observer::Observer;
use checks::{Sightings, Violation};
use run::Run;

/// Servers and guards to be tried, with any number of seeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leases {
    /// How many servers.
    pub servers: u64,
    /// What goes wrong.
    pub faults: Faults,
    /// A known bug, to see whether it is found.
    pub planted: Planted,
}

/// What goes wrong in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Faults {
    /// Nothing, but clocks run wrong all the same.
    None,
    /// Everything.
    All,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The seed that gives this run again.
    pub seed: u64,
    /// What went wrong first, if anything did; the run ended there.
    pub violation: Option<Violation>,
    /// How often a server began to lead.
    pub leaders: u64,
    /// What was seen.
    pub sightings: Sightings,
    /// When it ended.
    pub virtual_us: u64,
    /// Steps taken.
    pub steps: u64,
}

impl Leases {
    /// So many servers with these faults.
    #[must_use]
    pub const fn new(servers: u64, faults: Faults) -> Self {
        Self { servers, faults, planted: Planted::NONE }
    }

    /// Makes the run of this seed.
    pub fn run<O: Observer<Lessor> + Observer<Guard>>(&self, seed: u64, observer: &mut O) -> Report {
        Run::new(self, seed, observer).finish()
    }
}
