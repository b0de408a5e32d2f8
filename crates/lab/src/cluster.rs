//! Runs of whole clusters: the control machine of every server, election and Raft engine included, with disks that are
//! slow and lose what they have not synced, links that are cut, and processes that crash, restart and stand still.
//!
//! While a run goes on, its safety is checked with every step ([`checks`], one property per file). When the faults have
//! ended, the servers must agree on a leader, and what clients ask for then must reach everybody.
//!
//! `run` drives the servers, `host` is a server's process and `disk` its disk, `faults` says what goes wrong. Not
//! here: elections without a quorum ([`crate::simulate`]), and real processes.

pub mod checks;
mod disk;
mod farm;
mod faults;
mod host;
mod run;

use std::collections::BTreeMap;

use primus_core::ServerId;
use primus_core::election::Algorithm;
use primus_core::planted::Planted;
use primus_server::Server;
use primus_server::any_election;
use primus_server::control::Message;

use crate::faults::Kinds;
use crate::observer::Observer;
use crate::outcome::Leaders;
use checks::{Property, Violation};
use run::Run;

type Words = Message<any_election::Message>;

/// A cluster to be tried, with any number of seeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// How many servers.
    pub servers: u64,
    /// What goes wrong, drawn from the seed.
    pub faults: Kinds,
    /// Loads that change all the time, instead of clients.
    pub noise: Option<Noise>,
    /// Links that are slow, instead of those of a local network.
    pub slow: Option<Slow>,
    /// Whether the leader is killed once, and nothing else goes wrong but for the faults above.
    pub kill: bool,
    /// Whether each server has its farm beside control, and clients submit jobs.
    pub whole: bool,
    /// A known bug, to see whether it is found.
    pub planted: Planted,
}

/// How slow links are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slow {
    /// How long a message takes, one way.
    pub one_way_us: u64,
    /// By how much longer some take.
    pub jitter_us: u64,
}

/// What the death of a leader came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failover {
    /// How the others elected.
    pub algorithm: Algorithm,
    /// When it died.
    pub at_us: u64,
    /// In which term it led.
    pub term: u64,
    /// How many terms began until another one led.
    pub terms: Option<u64>,
    /// How long that took.
    pub led_us: Option<u64>,
    /// How long it took until a client's write was acknowledged.
    pub wrote_us: Option<u64>,
}

/// Loads that change, for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noise {
    /// How they change.
    pub pattern: Pattern,
    /// How far a load may lie above or below the middle, in points.
    pub points: u32,
    /// For how many minutes.
    pub minutes: u64,
}

/// How loads change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Every few seconds, anyhow.
    Random,
    /// The first two servers take turns at being as loaded as can be and not at all, for longer than a handover takes to come
    /// about. All others are as loaded as can be.
    Turns,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The seed that gives this run again.
    pub seed: u64,
    /// What went wrong first, if anything did; the run ended there.
    pub violation: Option<Violation>,
    /// The properties that apply, and whether they hold.
    pub properties: BTreeMap<Property, bool>,
    /// What every live server takes for the leader.
    pub table: BTreeMap<ServerId, Option<ServerId>>,
    /// Leaders during the run. Two at once are two terms: one of them does not know yet that it is deposed.
    pub leaders: Leaders,
    /// Messages sent.
    pub messages: Messages,
    /// When a server began to lead because its predecessor was too loaded.
    pub handovers_us: Vec<u64>,
    /// How many writes were acknowledged.
    pub acknowledged: u64,
    /// How many reads were answered.
    pub reads: u64,
    /// How often a server got the whole state from the leader.
    pub restored: u64,
    /// How many jobs were acknowledged by farms.
    pub submitted: u64,
    /// How many clients looked at farms.
    pub looks: u64,
    /// What the leader's death came to, if it was killed on purpose.
    pub failover: Option<Failover>,
    /// When a server last began to lead.
    pub last_change_us: u64,
    /// How long after the last fault everybody agreed and had everything, if that was so.
    pub healed_us: Option<u64>,
    /// When it ended.
    pub virtual_us: u64,
    /// Steps taken.
    pub steps: u64,
}

/// Messages by what they are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Messages {
    /// Who should lead.
    pub election: u64,
    /// The log: votes, entries, heartbeats, snapshots.
    pub replica: u64,
    /// Loads, and announcements of a change.
    pub other: u64,
}

impl Cluster {
    /// The same with whole servers: a farm beside each control.
    #[must_use]
    pub fn whole(servers: u64, faults: Kinds) -> Self {
        Self { whole: true, ..Self::new(servers, faults) }
    }

    /// A cluster with clients and these faults.
    #[must_use]
    pub const fn new(servers: u64, faults: Kinds) -> Self {
        Self { servers, faults, noise: None, slow: None, kill: false, whole: false, planted: Planted::NONE }
    }

    /// Makes the run of this seed.
    pub fn run<O: Observer<Server>>(&self, seed: u64, observer: &mut O) -> Report {
        Run::new(self, seed, observer).finish()
    }
}

impl Report {
    /// The one server that all take for the leader, itself included.
    #[must_use]
    pub fn agreed_leader(&self) -> Option<ServerId> {
        let leader = (*self.table.values().next()?)?;
        let agree = self.table.contains_key(&leader) && self.table.values().all(|view| *view == Some(leader));
        agree.then_some(leader)
    }
}

impl Messages {
    fn add(&mut self, message: &Words) {
        match message {
            Message::Election(_) => self.election += 1,
            Message::Replica(_) => self.replica += 1,
            _ => self.other += 1,
        }
    }

    /// How many were sent in all.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.election + self.replica + self.other
    }
}
