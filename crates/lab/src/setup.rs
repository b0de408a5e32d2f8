//! What every setup of whole servers has in common: it draws a plan from the seed, and the one driver makes the run.
//!
//! The setups are [`crate::cluster`], [`crate::farm`], [`crate::loans`] and [`crate::leases`]. Another one is a struct with what
//! can be chosen, and its [`Setup::plan`].

use crate::chance::Chance;
use crate::checks::Report;
pub use crate::driver::Audience;
use crate::driver::Run;
pub use crate::driver::plan::{Host, HostKind, Plan};

/// What can be tried with any number of seeds.
pub trait Setup: Sync {
    /// What stands where, what is done to it, and when the run is over.
    fn plan(&self, chance: &mut Chance) -> Plan;

    /// Makes the run of this seed.
    fn run<O: Audience>(&self, seed: u64, observer: &mut O) -> Report {
        let mut chance = Chance::new(seed);
        let plan = self.plan(&mut chance);
        Run::new(plan, chance, seed, observer).finish()
    }

    /// The names of the farms in the run of this seed, in their order.
    fn farms(&self, seed: u64) -> Vec<String> {
        self.plan(&mut Chance::new(seed)).farms.into_iter().map(|farm| farm.name).collect()
    }
}
