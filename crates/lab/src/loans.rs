//! Runs of several farms that lend each other workers: the foreman and the office of every server and the whole machine of every
//! worker, as it ships, with servers and workers that crash, freeze and are cut off, farms that
//! do not reach each other, operators who lend and recall, and bursts of work that move from farm to farm.
//!
//! The log of each farm is the same model as in runs of farms (`log.rs`). What is on its way on a link that is lost is lost; on
//! a link nothing overtakes anything. What the leaders of two farms say is lost, late and doubled, too. While a run goes on, every
//! property in [`checks`] is checked with every step; when the faults have ended, every task and every loan must come to its end,
//! and a farm that is flooded then must be helped.

pub mod checks;
mod crews;
mod faults;
mod host;
mod links;
mod run;
mod servers;
mod strokes;

use primus_core::farm::foreman::Foreman;
use primus_core::loan::Office;
use primus_core::planted::Planted;
use primus_server::Worker;

use crate::observer::Observer;
use checks::{Sightings, Violation};
use run::Run;

/// Farms to be tried, with any number of seeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loans {
    /// How many farms, of three servers each.
    pub farms: usize,
    /// What goes wrong.
    pub faults: Faults,
    /// A known bug, to see whether it is found.
    pub planted: Planted,
}

/// What goes wrong in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Faults {
    /// Nothing, but clocks run a little wrong all the same.
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
    /// How many tasks were acknowledged.
    pub tasks: u64,
    /// How many attempts were started.
    pub starts: u64,
    /// Tasks that must not start twice, and of which nobody knows how they ended.
    pub lost: u64,
    /// How often a server began to lead.
    pub leaders: u64,
    /// What was seen.
    pub sightings: Sightings,
    /// When it ended.
    pub virtual_us: u64,
    /// Steps taken.
    pub steps: u64,
}

/// Whoever sees all that happens in such a run.
pub trait Audience: Observer<Foreman> + Observer<Office> + Observer<Worker> {}

impl<O: Observer<Foreman> + Observer<Office> + Observer<Worker>> Audience for O {}

impl Loans {
    /// So many farms with these faults.
    #[must_use]
    pub const fn new(farms: usize, faults: Faults) -> Self {
        Self { farms, faults, planted: Planted::NONE }
    }

    /// Makes the run of this seed.
    pub fn run<O: Audience>(&self, seed: u64, observer: &mut O) -> Report {
        Run::new(self, seed, observer).finish()
    }
}
