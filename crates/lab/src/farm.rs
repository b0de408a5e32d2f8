//! Runs of whole farms: the foreman of every server and all workers, with leaders and workers that crash, freeze, are cut
//! off and come back, links that break, and clients that submit, cancel and retry.
//!
//! The log is a model, but an honest one (`log.rs`): what a leader proposes is committed in order after a while, a leader that
//! is deposed may lose what was under way, and goes on for a while without knowing. That real logs keep these promises is
//! shown in [`crate::cluster`]. While a run goes on, every property in [`checks`] is checked with every step; when the faults
//! have ended, every task must come to its end.

pub mod checks;
mod faults;
mod hands;
mod host;
mod run;
mod strokes;

use primus_core::farm::foreman::Foreman;
use primus_core::farm::worker::Worker;
use primus_core::planted::Planted;

use crate::observer::Observer;
use checks::Violation;
use run::Run;

/// A farm to be tried, with any number of seeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Farm {
    /// How many servers.
    pub servers: u64,
    /// How many workers.
    pub workers: u64,
    /// What goes wrong.
    pub faults: Faults,
    /// A known bug, to see whether it is found.
    pub planted: Planted,
}

/// What goes wrong in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Faults {
    /// Nothing.
    None,
    /// Servers crash, freeze, are cut off and deposed; the workers and their links live.
    Leaders,
    /// Everything, the death of all at once included.
    All,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The seed that gives this run again.
    pub seed: u64,
    /// What went wrong first, if anything did; the run ended there.
    pub violation: Option<Violation>,
    /// How many tasks were acknowledged.
    pub tasks: u64,
    /// How many attempts were started.
    pub starts: u64,
    /// How many of them were started while another attempt at the same task ran, or its result was kept somewhere.
    pub double_starts: u64,
    /// Tasks that must not start twice, and of which nobody knows how they ended.
    pub lost: u64,
    /// How often a server began to lead.
    pub leaders: u64,
    /// When it ended.
    pub virtual_us: u64,
    /// Steps taken.
    pub steps: u64,
}

impl Farm {
    /// A farm with these faults.
    #[must_use]
    pub const fn new(servers: u64, workers: u64, faults: Faults) -> Self {
        Self { servers, workers, faults, planted: Planted::NONE }
    }

    /// Makes the run of this seed.
    pub fn run<O: Observer<Foreman> + Observer<Worker>>(&self, seed: u64, observer: &mut O) -> Report {
        Run::new(self, seed, observer).finish()
    }
}
