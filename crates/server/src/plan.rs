//! How a server is put together, from what people configure: the same in reality and in the laboratory.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use primus_core::NodeId;
use primus_core::detector;
use primus_core::election::Algorithm;
use primus_core::election::bully::{self, Bully};
use primus_core::election::ring::{self, Ring, Winner};
use primus_core::farm::assign::Rule;
use primus_core::handover;
use primus_core::ledger::Limits;
use primus_core::machine::Delay;
use primus_core::rank::{Address, RankBy};
use primus_replica::message::Record;
use primus_replica::replica::{Replica, Settings};

use crate::any_election::AnyElection;
use crate::control::{Control, Times};

/// A server's control part, as it runs.
pub type Server = Control<AnyElection>;

/// What a server is told when it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// This server.
    pub id: NodeId,
    /// All servers, this one included, and where they listen for each other.
    pub servers: BTreeMap<NodeId, SocketAddr>,
    /// How they elect.
    pub algorithm: Algorithm,
    /// What Bully compares. A ring compares ids.
    pub rank: RankBy,
    /// May a better-ranked server take over from a live leader? By default unless loads are compared.
    pub preempt: Option<bool>,
    /// How long Bully waits for answers of better-ranked servers: T.
    pub answers: Delay,
    /// How long whoever answered may take to lead.
    pub victory: Delay,
    /// How often a leader shows itself, and how long it may be silent.
    pub silence: detector::Rules,
    /// When a loaded leader hands over; never, if ranks are not loads.
    pub handover: handover::Rules,
    /// Who gets a task.
    pub assignment: Rule,
    /// How long a lease lasts that this server grants.
    pub lease_us: u64,
    /// How much the ledger keeps, once this server leads.
    pub limits: Limits,
    /// After how many entries the log is cut short. Half as many stay in memory for servers that are a little late.
    pub snapshot_every: u64,
}

impl Plan {
    /// A plan with the usual times.
    #[must_use]
    pub fn new(id: NodeId, servers: BTreeMap<NodeId, SocketAddr>) -> Self {
        Self {
            id,
            servers,
            algorithm: Algorithm::Bully,
            rank: RankBy::Load,
            preempt: None,
            answers: Delay::exactly_ms(20),
            victory: Delay::exactly_ms(60),
            silence: detector::Rules::DEFAULT,
            handover: handover::Rules::DEFAULT,
            assignment: Rule::Balanced,
            lease_us: primus_core::lease::LEASE_US,
            limits: Limits::default(),
            snapshot_every: 10_000,
        }
    }

    /// Puts the server together, with what it had on disk.
    #[must_use]
    pub fn server(&self, records: impl IntoIterator<Item = Record>) -> Server {
        Control::new(self.election(), Replica::new(self.settings(), records), self.times())
    }

    /// The election of this server.
    #[must_use]
    pub fn election(&self) -> AnyElection {
        match self.algorithm {
            Algorithm::Bully => AnyElection::Bully(Bully::new(self.id, Arc::new(self.bully_rules()))),
            Algorithm::Ring => {
                let members: Arc<[NodeId]> = self.servers.keys().copied().collect();
                AnyElection::Ring(Ring::new(self.place(), members, Arc::new(self.ring_rules())))
            }
        }
    }

    /// How long things may take.
    #[must_use]
    pub fn times(&self) -> Times {
        let by_load = self.algorithm == Algorithm::Bully && self.rank == RankBy::Load;
        Times {
            silence: self.silence,
            handover: by_load.then_some(self.handover),
            retry: Delay::exactly_ms(3),
            leaderless: Delay::between_ms(150, 300),
            tenure_ticks: 20,
        }
    }

    fn bully_rules(&self) -> bully::Rules {
        let ids = self.servers.keys().copied();
        let mut rules = match self.rank {
            RankBy::Id => bully::Rules::by_id(ids),
            RankBy::Load => bully::Rules::by_load(ids),
            RankBy::Address => {
                bully::Rules::by_address(self.servers.iter().map(|(id, at)| (*id, Address::from(*at))))
            }
        };
        rules.preempt = self.preempt.unwrap_or(rules.preempt);
        rules.startup = Delay::between_ms(50, 100);
        rules.answers = self.answers;
        rules.victory = self.victory;
        rules
    }

    fn ring_rules(&self) -> ring::Rules {
        let mut rules = ring::Rules::new(Winner::Highest, self.servers.len());
        rules.preempt = self.preempt.unwrap_or(rules.preempt);
        rules.startup = Delay::between_ms(50, 100);
        rules
    }

    /// The engine's own timers are only the backstop: about a second, different for every server.
    fn settings(&self) -> Settings {
        let tick_us = self.silence.heartbeat_us;
        let backstop = usize::try_from(1_000_000 / tick_us.max(1)).unwrap_or(40).max(8);
        Settings {
            id: self.id,
            voters: self.servers.keys().copied().collect(),
            tick: Delay { min_us: tick_us, max_us: tick_us },
            backstop_ticks: backstop + 4 * self.place(),
            keep_entries: self.snapshot_every / 2,
        }
    }

    fn place(&self) -> usize {
        self.servers.keys().position(|id| *id == self.id).unwrap_or(0)
    }
}
