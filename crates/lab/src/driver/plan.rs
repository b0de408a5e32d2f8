//! What a run is made of: what stands where, what is done to it, and when it is over. A setup draws it from the seed.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use primus_core::ServerId;
use primus_core::farm::foreman;
use primus_core::lease::Candidacy;
use primus_core::ledger::GroupRules;
use primus_core::machine::Delay;
use primus_server as server;

use super::clock::Clock;
use super::host::{FarmHost, FarmPlace, GuardHost, ServerHost, WorkerHost};
use super::{Audience, Event, Run};
use crate::chance::Chance;
use crate::network::Network;
use crate::node::NodeId;

/// How long a sync takes on a good disk.
pub(crate) const SYNC: Delay = Delay { min_us: 50, max_us: 2_000 };
/// Hosts are numbered through, so that no host is taken for one of another farm: from the first number of its farm on
/// come servers, then workers, then guards. There is room for the largest farm
/// that anybody simulates.
const FARM_NUMBERS: u64 = 10_000;
const WORKERS_FROM: u64 = 1_000;
const GUARDS_FROM: u64 = 9_000;

/// Everything about a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How servers are put together; each gets its own id, and the servers of its farm.
    pub(crate) server: server::Plan,
    pub(crate) work: foreman::Rules,
    pub(crate) farms: Vec<FarmPlan>,
    /// Processes start within this time.
    pub(crate) start_us: u64,
    /// What becomes of messages, and how slow links are beyond that.
    pub(crate) network: Network,
    pub(crate) one_way_us: u64,
    pub(crate) tasks: Tasks,
    /// How often the disk of a worker is slow when it is about to go.
    pub(crate) slow_epochs_ppm: u32,
    /// Workers may be out of reach, so that what they have is run again.
    pub(crate) may_rerun: bool,
    /// The last worker claims in each hello what others have, with results.
    pub(crate) has_impostor: bool,
    /// Farms know each other.
    pub(crate) are_neighbours: bool,
    /// Ledgers are compared with the truth again and again, which takes long if they are long.
    pub(crate) is_judged: bool,
    /// Clients that write keys, read and look, and submit jobs in pairs.
    pub(crate) clients: Option<ClientsPlan>,
    /// What happens when.
    pub(crate) events: Vec<(u64, Event)>,
    pub(crate) faults_end_us: u64,
    pub(crate) end: End,
    /// Nothing goes wrong at all.
    pub(crate) is_calm: bool,
    /// The first leader's death is watched.
    pub(crate) is_failover: bool,
    pub(crate) groups: BTreeMap<String, GroupRules>,
}

/// When a run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// At this time.
    At(u64),
    /// When everybody agrees on a leader and has what was written after the faults, or so long after them.
    Healed { within_us: u64 },
    /// When everything has come to its end and everybody is at home, or so long after the faults. If there is a flood, one farm gets
    /// much more to do then than it can, and it has to come to its end once more.
    AtRest { within_us: u64, flood: bool },
}

/// How often clients are there, and how many of a million times they submit two jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientsPlan {
    pub(crate) every_us: u64,
    pub(crate) pairs_ppm: u32,
}

/// Who belongs to a farm.
#[derive(Debug, Clone, Default)]
pub(crate) struct FarmPlan {
    pub(crate) name: String,
    pub(crate) servers: Vec<ServerPlan>,
    /// Slots and clock of each worker.
    pub(crate) workers: Vec<(u16, Clock)>,
    pub(crate) guards: Vec<GuardPlan>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerPlan {
    pub(crate) clock: Clock,
    pub(crate) sync: Delay,
    pub(crate) lease_us: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct GuardPlan {
    pub(crate) clock: Clock,
    /// Which server it speaks through, by its place, and whether it is beside that.
    pub(crate) at: usize,
    pub(crate) is_beside: bool,
    pub(crate) wants: Vec<Candidacy>,
}

/// How long tasks take, and how they end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tasks {
    pub(crate) short: Delay,
    pub(crate) long: Delay,
    pub(crate) long_ppm: u32,
    pub(crate) failure_ppm: u32,
    /// How often a companion kills what runs, while things go wrong.
    pub(crate) abandoned_ppm: u32,
    /// How long each takes when a farm is flooded.
    pub(crate) flood_us: u64,
}

impl Tasks {
    pub(super) fn lasts(&self, is_flood: bool, chance: &mut Chance) -> Delay {
        match is_flood {
            true => Delay { min_us: self.flood_us, max_us: self.flood_us },
            false if chance.happens(self.long_ppm) => self.long,
            false => self.short,
        }
    }
}

impl Plan {
    /// So many farms of so many servers, in which nothing goes wrong.
    pub(crate) fn new(servers: u64, names: &[&str]) -> Self {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 7460));
        let ids = (1..=servers).map(|id| (ServerId(id), nowhere));
        let server = server::Plan::new(ServerId(1), ids);
        let one = ServerPlan { clock: Clock::default(), sync: SYNC, lease_us: server.lease_us };
        let farm = |name: &&str| FarmPlan {
            name: (*name).to_owned(),
            servers: (0..servers).map(|_| one).collect(),
            ..FarmPlan::default()
        };
        Self {
            work: foreman::Rules {
                assignment: server.farm.assignment,
                weights: server.farm.weights,
                ..foreman::Rules::default()
            },
            server,
            farms: names.iter().map(farm).collect(),
            start_us: 10_000,
            network: Network::reliable(Delay { min_us: 100, max_us: 2_000 }),
            one_way_us: 0,
            tasks: Tasks {
                short: Delay { min_us: 1_000, max_us: 80_000 },
                long: Delay { min_us: 80_000, max_us: 1_500_000 },
                long_ppm: 150_000,
                failure_ppm: 0,
                abandoned_ppm: 0,
                flood_us: 200_000,
            },
            slow_epochs_ppm: 0,
            may_rerun: false,
            has_impostor: false,
            are_neighbours: true,
            is_judged: true,
            clients: None,
            events: Vec::new(),
            faults_end_us: 0,
            end: End::Healed { within_us: 10_000_000 },
            is_calm: false,
            is_failover: false,
            groups: BTreeMap::new(),
        }
    }

    /// All servers of a farm.
    pub(crate) fn servers(&self, farm: FarmPlace) -> Vec<NodeId> {
        (1..=self.farms[farm].servers.len() as u64)
            .map(|number| Host { farm, kind: HostKind::Server, number }.id())
            .collect()
    }
}

/// A host, as people speak of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host {
    /// The farm that it belongs to, by its place among all.
    pub farm: usize,
    /// What stands on it.
    pub kind: HostKind,
    /// Its number among those of its farm, from 1.
    pub number: u64,
}

/// What stands on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostKind {
    /// A server.
    Server,
    /// A worker.
    Worker,
    /// A guard: what runs something under a lease.
    Guard,
}

impl Host {
    /// The host of this number in the run of a setup.
    #[must_use]
    pub fn of(NodeId(id): NodeId) -> Self {
        let (farm, place) = (id / FARM_NUMBERS, id % FARM_NUMBERS);
        let (kind, before) = match place {
            ..WORKERS_FROM => (HostKind::Server, 0),
            WORKERS_FROM..GUARDS_FROM => (HostKind::Worker, WORKERS_FROM),
            GUARDS_FROM.. => (HostKind::Guard, GUARDS_FROM),
        };
        Self { farm: usize::try_from(farm).unwrap_or(usize::MAX), kind, number: place - before }
    }

    /// Its number among all hosts of the run.
    #[must_use]
    pub const fn id(self) -> NodeId {
        let before = match self.kind {
            HostKind::Server => 0,
            HostKind::Worker => WORKERS_FROM,
            HostKind::Guard => GUARDS_FROM,
        };
        NodeId(FARM_NUMBERS * self.farm as u64 + before + self.number)
    }
}

impl<O: Audience> Run<'_, O> {
    /// Puts everything where it stands.
    pub(super) fn build(&mut self) {
        for (farm, plan) in std::mem::take(&mut self.plan.farms).into_iter().enumerate() {
            let FarmPlan { name, servers, workers, guards } = plan;
            let mut host = FarmHost { name, ..FarmHost::default() };
            let node = |kind, number| Host { farm, kind, number }.id();
            for (place, ServerPlan { clock, sync, lease_us }) in (1..).zip(servers) {
                let server = ServerHost::new(farm, clock, sync, lease_us);
                self.servers.insert(node(HostKind::Server, place), server);
                host.server_ids.push(node(HostKind::Server, place));
            }
            for (place, (slots, clock)) in (1..).zip(workers) {
                let id = node(HostKind::Worker, place);
                self.workers.insert(id, WorkerHost::new(farm, format!("w{place}"), slots, clock));
                host.worker_ids.push(id);
            }
            for (place, GuardPlan { clock, at, is_beside, wants }) in (1..).zip(guards) {
                let id = node(HostKind::Guard, place);
                let at = host.server_ids[at];
                self.guards.insert(id, GuardHost::new(farm, clock, (at, is_beside), wants));
                host.guard_ids.push(id);
            }
            self.farms.push(host);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_apart_by_their_numbers() {
        for kind in [HostKind::Server, HostKind::Worker, HostKind::Guard] {
            for (farm, number) in [(0, 1), (1, 25), (4, 100)] {
                let host = Host { farm, kind, number };
                assert_eq!(Host::of(host.id()), host);
            }
        }
        assert_eq!(Host::of(NodeId(3)), Host { farm: 0, kind: HostKind::Server, number: 3 });
        let last_of_many = Host { farm: 1, kind: HostKind::Worker, number: 1_000 };
        assert_eq!(Host::of(last_of_many.id()), last_of_many);
    }
}
