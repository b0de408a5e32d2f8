//! Who takes part in a run of leases, what goes wrong, and how their clocks run, drawn from the seed.

use primus_core::lease::{Candidacy, LEASE_MIN_US, LEASE_US};
use primus_core::ledger::{GroupRank, GroupRules};
use primus_core::machine::Delay;

use super::Faults;
use super::host::{Clock, GuardHost, ServerHost};
use crate::chance::Chance;
use crate::node::NodeId;

/// How many leases after the beginning the last fault has ended.
pub(super) const FAULTY_LEASES: u64 = 12;
const STROKES_MAX: u64 = 12;
const SPAN_LEASES_MAX: u64 = 3;
const GUARDS_MAX: u64 = 4;
const GROUPS_MAX: u64 = 3;
/// Clocks run wrong by this much at most.
const SKEW_PPM_MAX: u64 = 10_000;
const AHEAD_US_MAX: u64 = 1_000_000_000;
/// Guards are numbered from here on.
const FIRST_GUARD: u64 = 101;

/// Something that goes wrong, for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Stroke {
    LeaderCrashes,
    LeaderFreezes,
    /// It reaches no other server, but its guards.
    LeaderIsolated,
    /// It freezes, and when it goes on, it reaches no other server; but it finds what they said before.
    LeaderWakesAlone,
    /// Another one leads without any need; nobody tells the old one for a while.
    LeaderDeposed,
    /// Another one is to lead: what is held beside the leader ends first, unless that takes too long.
    LeaderTransfers,
    /// Nothing is committed, though it leads on: a disk is full, or leadership was to be handed over.
    LogStalls,
    ServerCrashes,
    ServerFreezes,
    GuardCrashes,
    GuardFreezes,
    /// It reaches no server.
    GuardCutOff,
    /// It wants a group no more, for a while.
    GuardLeaves,
    /// What runs under a lease ends by itself.
    CommandEnds,
}

const STROKES: [Stroke; 17] = [
    Stroke::LeaderCrashes,
    Stroke::LeaderFreezes,
    Stroke::LeaderFreezes,
    Stroke::LeaderIsolated,
    Stroke::LeaderWakesAlone,
    Stroke::LeaderDeposed,
    Stroke::LeaderTransfers,
    Stroke::LogStalls,
    Stroke::ServerCrashes,
    Stroke::ServerFreezes,
    Stroke::GuardCrashes,
    Stroke::GuardFreezes,
    Stroke::GuardFreezes,
    Stroke::GuardCutOff,
    Stroke::GuardCutOff,
    Stroke::GuardLeaves,
    Stroke::CommandEnds,
];

/// How long words are on their way, and what becomes of them while things go wrong.
#[derive(Debug, Clone, Copy)]
pub(super) struct Network {
    pub(super) travel: Delay,
    pub(super) loss_ppm: u32,
    pub(super) duplication_ppm: u32,
    pub(super) lateness_ppm: u32,
}

/// Everything that is drawn beforehand.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) lease_us: u64,
    pub(super) groups: Vec<(String, GroupRules)>,
    pub(super) servers: Vec<(NodeId, ServerHost)>,
    pub(super) guards: Vec<(NodeId, GuardHost)>,
    pub(super) strokes: Vec<(u64, Stroke, u64)>,
    pub(super) network: Network,
}

pub(super) fn plan(faults: Faults, servers: u64, chance: &mut Chance) -> Plan {
    let lease_us = chance.pick(&[LEASE_MIN_US, LEASE_US, 3 * LEASE_US]);
    // In some clusters not all servers were told the same.
    let other_us = if chance.happens(200_000) { lease_us * 2 } else { lease_us };
    let servers = (1..=servers).map(|id| {
        let lease_us = chance.pick(&[lease_us, other_us]);
        (NodeId(id), ServerHost::new(clock(chance), lease_us))
    });
    let servers: Vec<_> = servers.collect();
    let groups = groups(chance);
    let guards = guards(servers.len() as u64, &groups, chance);
    let network = network(lease_us, chance);
    let (strokes, network) = match faults {
        Faults::None => (Vec::new(), Network { loss_ppm: 0, duplication_ppm: 0, lateness_ppm: 0, ..network }),
        Faults::All => (strokes(lease_us, chance), network),
    };
    Plan { lease_us, groups, servers, guards, strokes, network }
}

fn clock(chance: &mut Chance) -> Clock {
    let skew_ppm = i64::try_from(chance.between(0, 2 * SKEW_PPM_MAX)).expect("it is small");
    // Half of all clocks are as wrong as may be: the ends of the range matter most.
    let slower_ppm = match chance.below(4) {
        0 => -10_000,
        1 => 10_000,
        _ => skew_ppm - 10_000,
    };
    Clock { ahead_us: chance.between(0, AHEAD_US_MAX), slower_ppm }
}

fn groups(chance: &mut Chance) -> Vec<(String, GroupRules)> {
    let count = chance.between(1, GROUPS_MAX);
    let group = |number| {
        let rank = chance.pick(&[GroupRank::Leader, GroupRank::Load, GroupRank::Id, GroupRank::Name]);
        let holders = chance.pick(&[1, 1, 1, 2]);
        (format!("g{number}"), GroupRules { rank, holders })
    };
    (1..=count).map(group).collect()
}

/// Everybody wants the first group, and some of the others.
fn guards(servers: u64, groups: &[(String, GroupRules)], chance: &mut Chance) -> Vec<(NodeId, GuardHost)> {
    let count = chance.between(1, GUARDS_MAX);
    let mut hosts = Vec::new();
    for id in FIRST_GUARD..FIRST_GUARD + count {
        let mut wants = Vec::new();
        for (place, (group, rules)) in groups.iter().enumerate() {
            if place == 0 || chance.happens(600_000) {
                wants.push(Candidacy { group: group.clone(), rules: *rules, name: format!("c{id}"), id });
            }
        }
        let at = NodeId(chance.between(1, servers));
        hosts.push((NodeId(id), GuardHost::new(clock(chance), at, chance.happens(500_000), wants)));
    }
    hosts
}

fn strokes(lease_us: u64, chance: &mut Chance) -> Vec<(u64, Stroke, u64)> {
    let end_us = FAULTY_LEASES * lease_us;
    let count = chance.between(1, STROKES_MAX);
    let mut strokes = Vec::new();
    for _ in 0..count {
        let from_us = chance.between(lease_us / 2, end_us - lease_us / 10);
        let until_us = from_us + chance.between(1_000, (SPAN_LEASES_MAX * lease_us).min(end_us - from_us));
        strokes.push((from_us, chance.pick(&STROKES), until_us));
    }
    strokes
}

fn network(lease_us: u64, chance: &mut Chance) -> Network {
    // Where they are slow, a question to the other servers is nearly always on its way.
    let max_us = chance.pick(&[2_000, 2_000, lease_us / 20]);
    Network {
        travel: Delay { min_us: 50, max_us },
        loss_ppm: chance.pick(&[0, 0, 20_000, 200_000]),
        duplication_ppm: chance.pick(&[0, 0, 20_000, 200_000]),
        lateness_ppm: chance.pick(&[0, 0, 20_000, 200_000]),
    }
}
