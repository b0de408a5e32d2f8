//! Runs of leases: whole servers and guards, each on a clock of its own that runs wrong by up to 1 %, with servers and guards that
//! crash, freeze, are cut off and come back, and words that are lost, late, doubled and overtaken.
//!
//! What runs under a lease is only an interval of real time, from the moment at which its guard was told that it holds a group to
//! the end of the last promise by the guard's own clock: whatever becomes of the guard, its companion knows no more than that.
//! When the faults have ended, every group must soon be held by as many as want it and may.

use std::collections::BTreeMap;

use primus_core::lease::{Candidacy, LEASE_MIN_US, LEASE_US};
use primus_core::ledger::{GroupRank, GroupRules};
use primus_core::planted::Planted;

use crate::chance::Chance;
use crate::cluster::skewed;
use crate::driver::clock::Clock;
use crate::driver::fault::Fault;
use crate::driver::plan::{End, GuardPlan, Plan};
use crate::faults::Kinds;
use crate::setup::Setup;

/// How many leases after the beginning the last fault has ended.
const FAULTY_LEASES: u64 = 12;
/// So many leases after the last fault everything must be held that can be.
const HEALING_LEASES: u64 = 8;
const SPAN_LEASES_MAX: u64 = 3;
const GUARDS_MAX: u64 = 4;
const GROUPS_MAX: u64 = 3;
/// Clocks run wrong by this much at most.
const SKEW_PPM_MAX: u64 = 10_000;

const FAULTS: [(usize, Fault); 14] = [
    (1, Fault::LeaderCrashes),
    (1, Fault::ServerCrashes),
    (1, Fault::GuardCrashes),
    (2, Fault::LeaderFreezes),
    (1, Fault::ServerFreezes),
    (2, Fault::GuardFreezes),
    (2, Fault::LeaderIsolated),
    (1, Fault::LeaderUnheard),
    (2, Fault::LeaderWakesAlone),
    (2, Fault::GuardCutOff),
    (1, Fault::DiskStalls),
    (2, Fault::LeaderTransfers),
    (1, Fault::GuardLeaves),
    (1, Fault::CommandEnds),
];

/// Servers and guards to be tried, with any number of seeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leases {
    /// How many servers.
    pub servers: u64,
    /// How many guards; otherwise the seed says.
    pub guards: Option<u64>,
    /// How many groups; otherwise the seed says.
    pub groups: Option<u64>,
    /// What goes wrong.
    pub faults: Kinds,
    /// A known bug, to see whether it is found.
    pub planted: Planted,
}

impl Leases {
    /// So many servers with these faults.
    #[must_use]
    pub const fn new(servers: u64, faults: Kinds) -> Self {
        Self { servers, guards: None, groups: None, faults, planted: Planted::NONE }
    }
}

impl Setup for Leases {
    fn plan(&self, chance: &mut Chance) -> Plan {
        let mut plan = Plan::new(self.servers, &["farm"]);
        let lease_us = chance.pick(&[LEASE_MIN_US, LEASE_US, 3 * LEASE_US]);
        plan.server.planted = self.planted;
        plan.server.lease_us = lease_us;
        plan.is_calm = self.faults == Kinds::NONE;
        plan.faults_end_us = FAULTY_LEASES * lease_us;
        plan.end = End::At((FAULTY_LEASES + HEALING_LEASES) * lease_us);
        plan.groups = groups(self.groups, chance);
        plan.disturb(&self.faults, &FAULTS, 4, SPAN_LEASES_MAX * lease_us, chance);
        // In some clusters not all servers were told the same.
        let other_us = if chance.happens(200_000) { lease_us * 2 } else { lease_us };
        for server in &mut plan.farms[0].servers {
            server.lease_us = chance.pick(&[lease_us, other_us]);
            server.clock = Clock { slower_ppm: skewed(SKEW_PPM_MAX, chance), ..Clock::default() };
        }
        plan.farms[0].guards = guards(self, &plan.groups, chance);
        plan
    }
}

fn groups(count: Option<u64>, chance: &mut Chance) -> BTreeMap<String, GroupRules> {
    let count = count.unwrap_or_else(|| chance.between(1, GROUPS_MAX));
    let group = |number| {
        let rank = chance.pick(&[GroupRank::Leader, GroupRank::Load, GroupRank::Id, GroupRank::Name]);
        let holders = chance.pick(&[1, 1, 1, 2]);
        (format!("g{number}"), GroupRules { rank, holders })
    };
    (1..=count).map(group).collect()
}

/// Everybody wants the first group, and some of the others.
fn guards(setup: &Leases, groups: &BTreeMap<String, GroupRules>, chance: &mut Chance) -> Vec<GuardPlan> {
    let count = setup.guards.unwrap_or_else(|| chance.between(1, GUARDS_MAX));
    let guard = |id| {
        let mut wants = Vec::new();
        for (place, (group, rules)) in groups.iter().enumerate() {
            if place == 0 || chance.happens(600_000) {
                wants.push(Candidacy { group: group.clone(), rules: *rules, name: format!("c{id}"), id });
            }
        }
        let clock = Clock { slower_ppm: skewed(SKEW_PPM_MAX, chance), ..Clock::default() };
        let at = usize::try_from(chance.below(setup.servers)).expect("there are few servers");
        GuardPlan { clock, at, is_beside: chance.happens(500_000), wants }
    };
    (1..=count).map(guard).collect()
}
