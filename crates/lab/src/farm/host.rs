//! The processes of a farm, and what belongs to them: timers, links, a worker's disk and what it runs.

use std::collections::{BTreeMap, BTreeSet};

use primus_core::farm::foreman::{self, Foreman};
use primus_core::farm::worker::{self, Record, Worker};
use primus_core::ledger::Held;
use primus_core::machine::Token;

use crate::chance::Chance;
use crate::node::NodeId;

/// A server's host.
#[derive(Debug, Default)]
pub(super) struct ServerHost {
    /// None while it is dead.
    pub(super) process: Option<Foreman>,
    /// The term in which it leads, as far as it knows.
    pub(super) leads: Option<u64>,
    /// How much of the log it has applied.
    pub(super) applied: usize,
    /// The number under which each timer was set last.
    pub(super) timers: BTreeMap<foreman::Timer, u64>,
    /// The link to each worker, as far as it knows.
    pub(super) links: BTreeMap<NodeId, u64>,
}

/// A worker's host.
#[derive(Debug, Default)]
pub(super) struct WorkerHost {
    /// None while it is dead.
    pub(super) process: Option<Worker>,
    /// Grows with every start.
    pub(super) incarnation: u32,
    /// The number under which each timer was set last.
    pub(super) timers: BTreeMap<worker::Timer, u64>,
    pub(super) link: Option<Link>,
    /// What runs now.
    pub(super) running: BTreeSet<Held>,
    pub(super) disk: Vec<Record>,
    /// What a crash may destroy.
    pub(super) unsynced: Vec<(Token, Vec<Record>)>,
}

/// A worker's link to a server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    pub(super) number: u64,
    pub(super) server: NodeId,
    /// Nothing passes any more, though nobody may have noticed yet.
    pub(super) is_broken: bool,
    /// When the last message in each direction arrives: none overtakes another.
    pub(super) to_worker_us: u64,
    pub(super) to_server_us: u64,
}

impl ServerHost {
    /// What died with the process.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

impl WorkerHost {
    /// What died with the process; its companion ends what ran. Of what was not synced, the beginning may be there.
    pub(super) fn forget(&mut self, chance: &mut Chance) {
        let kept = usize::try_from(chance.between(0, self.unsynced.len() as u64)).expect("a length fits");
        self.disk.extend(self.unsynced.drain(..).take(kept).flat_map(|(_, records)| records));
        self.process = None;
        self.link = None;
        self.timers.clear();
        self.running.clear();
    }

    /// Everything up to this token is on disk.
    pub(super) fn sync(&mut self, token: Token) {
        let count = self.unsynced.iter().take_while(|(written, _)| *written <= token).count();
        self.disk.extend(self.unsynced.drain(..count).flat_map(|(_, records)| records));
    }
}
