//! A server's process, and what belongs to it: its disk, its timers, and its owner, who applies what is agreed on.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use primus_core::ServerId;
use primus_core::Term;
use primus_core::machine::Token;
use primus_replica::message::Snapshot;
use primus_replica::{Consensus, Role};
use primus_server::Server;
use primus_server::control::Timer;
use primus_server::gave_way::GaveWay;
use primus_server::record;

use super::Words;
use super::disk::Disk;
use super::farm::FarmHost;
use super::run::Event;

/// One host.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// None while it is dead.
    pub(super) process: Option<Server>,
    /// Grows with every start, so that what belongs to a dead process is known.
    pub(super) incarnation: u32,
    /// When the process started.
    pub(super) started_us: u64,
    pub(super) disk: Disk,
    /// Messages that wait for the disk.
    pub(super) waiting: Vec<(Token, ServerId, Words)>,
    /// The number under which each timer was set last.
    pub(super) timers: BTreeMap<Timer, u64>,
    /// What waits while the process stands still.
    pub(super) backlog: Option<Vec<Event>>,
    pub(super) owner: Owner,
    /// The farm beside it, in runs of whole servers.
    pub(super) farm: Option<FarmHost>,
}

/// Whoever uses the log: it applies entries to a state, and takes snapshots of it.
#[derive(Debug, Default)]
pub(super) struct Owner {
    /// The last entry that it applied.
    pub(super) applied: u64,
    /// Its state: everything that it applied, in one number.
    pub(super) digest: u64,
    /// What clients asked it to write, and have no answer to yet.
    pub(super) writes: BTreeSet<Bytes>,
    /// What clients asked it to read, and up to where a write had been acknowledged by then.
    pub(super) reads: BTreeMap<u64, u64>,
    snapshot_every: u64,
    snapshot_at: u64,
}

impl Host {
    /// The term in which it leads, if it does.
    pub(super) fn leads(&self) -> Option<Term> {
        let (role, _, term) = self.process.as_ref()?.replica().view();
        (role == Role::Leader).then_some(term)
    }

    /// Can it do anything now?
    pub(super) const fn is_running(&self) -> bool {
        self.process.is_some() && self.backlog.is_none()
    }

    /// The process stands still; one that does so already goes on doing so.
    pub(super) fn pause(&mut self) {
        self.backlog.get_or_insert_default();
    }

    /// What died with the process.
    pub(super) fn forget(&mut self) {
        self.process = None;
        self.backlog = None;
        self.timers.clear();
        self.waiting.clear();
        self.owner = Owner::default();
        self.farm = None;
    }
}

impl Owner {
    /// An owner with the state of this snapshot.
    pub(super) fn new(
        snapshot: Option<&Snapshot>,
        digest_at: impl FnOnce(u64) -> u64,
        snapshot_every: u64,
    ) -> Self {
        let mut owner = Self { snapshot_every, snapshot_at: snapshot_every, ..Self::default() };
        if let Some(snapshot) = snapshot {
            owner.restore(snapshot, digest_at(snapshot.index));
        }
        owner
    }

    /// A state came as a whole; this is the digest of what was applied up to there.
    pub(super) fn restore(&mut self, snapshot: &Snapshot, digest: u64) {
        self.applied = snapshot.index;
        self.digest = digest;
        self.snapshot_at = snapshot.index + self.snapshot_every;
    }

    pub(super) fn apply(&mut self, index: u64, data: &[u8]) {
        self.applied = index;
        self.digest = digest(self.digest, data);
    }

    /// A snapshot, if it is time for one: in the form of real ones, with the digest for a register.
    pub(super) fn snapshot(&mut self, gave_way: &GaveWay) -> Option<Bytes> {
        let is_due = self.applied >= self.snapshot_at;
        is_due.then(|| {
            self.snapshot_at = self.applied + self.snapshot_every;
            record::front(&self.digest.to_be_bytes(), gave_way)
        })
    }
}

/// The state that a snapshot holds.
pub(super) fn digest_of(snapshot: &Snapshot) -> u64 {
    let register = record::split_state(&snapshot.data).map(|(register, _)| register);
    register.and_then(|register| register.first_chunk().copied()).map_or(0, u64::from_be_bytes)
}

/// The state after these data (FNV-1a, with the length, so that an empty entry counts, too).
pub(super) fn digest(before: u64, data: &[u8]) -> u64 {
    const PRIME: u64 = 0x0100_0000_01b3;
    data.iter().fold(before.wrapping_mul(PRIME) ^ (data.len() as u64 + 1), |digest, byte| {
        (digest ^ u64::from(*byte)).wrapping_mul(PRIME)
    })
}
