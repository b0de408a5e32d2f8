//! How a server is put together, from what people configure: the same in reality and in the laboratory.

use std::collections::BTreeMap;
use std::sync::Arc;

use primus_core::ServerId;
use primus_core::detector;
use primus_core::election::bully::{self, Asking, Bully};
use primus_core::election::ring::{self, Ring, Winner};
use primus_core::election::{Algorithm, Reminders};
use primus_core::farm::assign::Rule;
use primus_core::handover;
use primus_core::ledger::Limits;
use primus_core::ledger::roll::Fingerprint;
use primus_core::load::Weights;
use primus_core::loan::lending;
use primus_core::machine::Delay;
use primus_core::place::Place;
use primus_core::planted::Planted;
use primus_core::rank::{Address, RankBy};
use primus_replica::message::Record;
use primus_replica::replica::{Replica, Settings};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::any_election::AnyElection;
use crate::control::{Control, Times};
use crate::gave_way::Fact;
use crate::groups::{GroupPlan, Groups};
use crate::own_election::{Maker, OwnMachine};
use crate::record;

/// A server's control part, as it runs.
pub type Server = Control<AnyElection>;

/// What a server is told when it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// This server.
    pub id: ServerId,
    /// All servers, this one included, and where they reach each other.
    pub servers: BTreeMap<ServerId, Place>,
    /// How they elect.
    pub election: ElectionPlan,
    /// Further elections, by name.
    pub groups: Vec<GroupPlan>,
    /// How long a lease lasts that this server grants.
    pub lease_us: u64,
    /// How the farm is led, once this server leads.
    pub farm: FarmPlan,
    /// How workers are lent.
    pub lending: LendingPlan,
    /// After how many entries the log is cut short. Half as many stay in memory for servers that are a little late.
    pub snapshot_every: u64,
    /// A known bug, to see whether tests find it.
    pub planted: Planted,
}

/// How servers elect a leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectionPlan {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// What Bully compares. A ring compares ids.
    pub rank: RankBy,
    /// May a better-ranked server take over from a live leader? By default unless loads are compared.
    pub preempt: Option<bool>,
    /// In which order Bully asks better-ranked servers.
    pub asking: Asking,
    /// How long a server that has just started waits for a leader before it holds an election.
    pub startup: Delay,
    /// How long Bully waits for answers of better-ranked servers: T. By default 20 ms, and the measured round trip.
    pub answers: Option<Delay>,
    /// How long whoever answered may take to lead. By default [`Plan::usual_victory`].
    pub victory: Option<Delay>,
    /// How often a leader shows itself, and how long it may be silent.
    pub silence: detector::Rules,
    /// When a loaded leader hands over; never, if ranks are not loads.
    pub handover: handover::Rules,
    /// An election of one's own, instead of the algorithm above. See [`Plan::elect_with`].
    pub own: Option<Maker>,
}

/// Who gets a task, and how much the ledger keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FarmPlan {
    /// Who gets a task.
    pub assignment: Rule,
    /// How much each part of a load counts in a score.
    pub weights: Weights,
    /// How much the ledger keeps.
    pub limits: Limits,
    /// How many bytes of keys, jobs and results there may be.
    pub state_max: u64,
}

/// With which farms workers are shared, and by which rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LendingPlan {
    /// Other farms that this one lends workers to and borrows from, in the order in which they are asked.
    pub neighbours: Vec<Neighbour>,
    /// When workers are lent, and for how long.
    pub rules: lending::Rules,
}

/// A farm that this one lends workers to and borrows from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// What it is called.
    pub name: String,
    /// Its servers, and where they are reached.
    pub servers: BTreeMap<ServerId, Place>,
    /// SHA-256 of the certificate of its authority, if only that is known: the certificate is fetched.
    pub authority: Option<Fingerprint>,
}

/// In a group nobody ratifies a leader, so it repeats its announcement for those who missed it.
const REMINDERS: Reminders = Reminders { every: Delay::exactly_ms(1000), silence: Delay::exactly_ms(5000) };
/// How long answers may take on a local network.
const ANSWERS: Delay = Delay::exactly_ms(20);
/// How long a server waits at its start, unless it is told otherwise: the times of control fit that.
const STARTUP: Delay = Delay::between_ms(50, 100);
/// The engine campaigns by itself after this long at the soonest, and this long after an election should be over.
const BACKSTOP_US: u64 = 1_000_000;
const BACKSTOP_REST_US: u64 = 500_000;

impl Default for ElectionPlan {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::Bully,
            rank: RankBy::Load,
            preempt: None,
            asking: Asking::AllAtOnce,
            startup: STARTUP,
            answers: None,
            victory: None,
            silence: detector::Rules::DEFAULT,
            handover: handover::Rules::DEFAULT,
            own: None,
        }
    }
}

impl Default for FarmPlan {
    fn default() -> Self {
        let limits = Limits::default();
        Self { assignment: Rule::Balanced, weights: Weights::DEFAULT, limits, state_max: 1 << 30 }
    }
}

impl Plan {
    /// A plan with the usual times.
    #[must_use]
    pub fn new(id: ServerId, servers: impl IntoIterator<Item = (ServerId, impl Into<Place>)>) -> Self {
        Self {
            id,
            servers: servers.into_iter().map(|(id, at)| (id, at.into())).collect(),
            election: ElectionPlan::default(),
            groups: Vec::new(),
            lease_us: primus_core::lease::LEASE_US,
            farm: FarmPlan::default(),
            lending: LendingPlan::default(),
            snapshot_every: 10_000,
            planted: Planted::NONE,
        }
    }

    /// From now on servers elect with an algorithm of one's own. All servers of a cluster must use the same; a quorum still
    /// ratifies whom it names, so whatever it does wrong, there are never two leaders in one term.
    pub fn elect_with<E>(&mut self, make: impl Fn(&Self) -> E + Send + Sync + 'static)
    where
        E: OwnMachine,
        E::Message: Serialize + DeserializeOwned,
    {
        self.election.own = Some(Maker::new(make));
    }

    /// Puts the server together, with what it had on disk.
    #[must_use]
    pub fn server(&self, records: impl IntoIterator<Item = Record>) -> Server {
        let replica = Replica::new(self.settings(), records);
        let gave_way = replica.log().snapshot().map(|snapshot| record::gave_way(&snapshot.data));
        let facts: Vec<Fact> = replica.log().entries().filter_map(|entry| record::fact(&entry.data)).collect();
        Control::new(self.election(), replica, self.times()).after(gave_way.unwrap_or_default(), facts)
    }

    /// The election of this server.
    #[must_use]
    pub fn election(&self) -> AnyElection {
        self.election_with(None)
    }

    /// The further elections of this server.
    #[must_use]
    pub fn elections(&self) -> Groups {
        let peers = self.servers.keys().copied().filter(|peer| *peer != self.id);
        let groups = self.groups.iter().map(|group| (group.clone(), self.election_of(group)));
        Groups::new(self.id, peers, self.election.silence, groups)
    }

    /// The election of a group, if this server is a member. It has the cluster's times, and ranks of its own.
    fn election_of(&self, group: &GroupPlan) -> Option<AnyElection> {
        let servers = self.servers.iter().filter(|(id, _)| group.members.contains(*id));
        let election = ElectionPlan {
            algorithm: group.algorithm,
            rank: group.rank,
            preempt: None,
            asking: group.asking.unwrap_or(self.election.asking),
            own: None,
            ..self.election.clone()
        };
        let members =
            Self { servers: servers.map(|(id, at)| (*id, at.clone())).collect(), election, ..self.clone() };
        group.members.contains(&self.id).then(|| members.election_with(Some(REMINDERS)))
    }

    fn election_with(&self, reminders: Option<Reminders>) -> AnyElection {
        if let Some(own) = &self.election.own {
            return AnyElection::Own(own.make(self));
        }
        match self.election.algorithm {
            Algorithm::Bully => {
                let rules = self.bully_rules(reminders);
                AnyElection::Bully(Bully::new(self.id, Arc::new(rules)))
            }
            Algorithm::Ring => {
                let members: Arc<[ServerId]> = self.servers.keys().copied().collect();
                let rules = self.ring_rules(reminders);
                AnyElection::Ring(Ring::new(self.place(), members, Arc::new(rules)))
            }
        }
    }

    /// How long things may take.
    #[must_use]
    pub fn times(&self) -> Times {
        let election = &self.election;
        let is_bully = election.algorithm == Algorithm::Bully && election.own.is_none();
        let by_load = is_bully && election.rank == RankBy::Load;
        Times {
            silence: election.silence,
            handover: by_load.then_some(election.handover),
            retry: Delay::exactly_ms(3),
            leaderless: Delay::between_ms(150, 300),
            startup_us: election.startup.max_us.saturating_sub(STARTUP.max_us),
            are_links_measured: true,
            tenure_ticks: 20,
        }
    }

    /// How long whoever answered may take to lead, if nobody says it: it may have to wait for answers itself, one after the
    /// other if it asks one by one.
    #[must_use]
    pub fn usual_victory(answers: Delay, asking: Asking, servers: usize) -> Delay {
        let one_by_one = if asking == Asking::OneByOne { servers as u64 } else { 0 };
        answers.times(one_by_one.max(3))
    }

    fn bully_rules(&self, reminders: Option<Reminders>) -> bully::Rules {
        let election = &self.election;
        let ids = self.servers.keys().copied();
        let mut rules = match election.rank {
            RankBy::Id => bully::Rules::by_id(ids),
            RankBy::Load => bully::Rules::by_load(ids),
            RankBy::Address => {
                bully::Rules::by_address(self.servers.iter().map(|(id, at)| (*id, Address::from(at))))
            }
        };
        rules.preempt = election.preempt.unwrap_or(rules.preempt);
        rules.asking = election.asking;
        rules.startup = election.startup;
        rules.answers = election.answers.unwrap_or(ANSWERS);
        let usual = || Self::usual_victory(rules.answers, election.asking, self.servers.len());
        rules.victory = election.victory.unwrap_or_else(usual);
        rules.is_answers_fixed = election.answers.is_some();
        rules.is_victory_fixed = election.victory.or(election.answers).is_some();
        rules.reminders = reminders;
        rules
    }

    fn ring_rules(&self, reminders: Option<Reminders>) -> ring::Rules {
        let mut rules = ring::Rules::new(Winner::Highest, self.servers.len());
        rules.preempt = self.election.preempt.unwrap_or(rules.preempt);
        rules.startup = self.election.startup;
        rules.reminders = reminders;
        rules
    }

    /// The engine's own timers are only the backstop: about a second, different for every server. Where elections are
    /// configured to take longer, it must not come before their end.
    fn settings(&self) -> Settings {
        let election = &self.election;
        let tick_us = election.silence.heartbeat_us;
        let others = (self.servers.len() as u64).saturating_sub(1);
        let asked = if election.asking == Asking::OneByOne { others } else { 1 };
        let answers_us = election.answers.unwrap_or(ANSWERS).times(asked).max_us;
        let backstop_us = BACKSTOP_US.max(election.startup.max_us.max(answers_us) + BACKSTOP_REST_US);
        let backstop = usize::try_from(backstop_us / tick_us.max(1)).unwrap_or(40).max(8);
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
