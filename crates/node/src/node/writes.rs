//! Writes of clients: those that are proposed, and those that wait until somebody leads.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use primus_core::machine::Input;
use primus_replica::replica::Refusal;
use primus_server::control::Command;
use primus_server::farm;
use primus_server::record::Content;
use primus_server::register::Proposal;
use tokio::time::Instant;

use super::Running;
use crate::budget::Weight;
use crate::handle::{Proposals, Reply, Unable};
use crate::pending_writes::{PARKING_TIME, PARKING_TRIPS, PendingWrites, Write};

/// All of them.
pub(super) struct Writes {
    /// This process, as the log names it.
    origin: u64,
    /// Those that are proposed, by the number of the last proposal.
    under_way: BTreeMap<u64, Proposed>,
    pub(super) pending_writes: PendingWrites,
}

/// A write under way.
struct Proposed {
    since: Instant,
    may_wait: bool,
    /// Does it bring new content?
    grows: bool,
    reply: Reply<u64>,
    weight: Weight,
}

impl Writes {
    pub(super) fn new(origin: u64) -> Self {
        Self { origin, under_way: BTreeMap::new(), pending_writes: PendingWrites::default() }
    }

    /// The write that these entries are.
    fn take(&mut self, entries: &[Bytes]) -> Option<(u64, Proposed)> {
        let Some(Content::Register(proposal)) = entries.last().map(|data| Content::of(data)) else { return None };
        let (_, number) = Proposal::head(proposal)?;
        self.under_way.remove_entry(&number)
    }

    /// Leadership is lost: whether they are in the log, nobody here knows.
    pub(super) fn give_up(&mut self) {
        let writes = std::mem::take(&mut self.under_way);
        writes.into_values().for_each(|write| _ = write.reply.send(Err(Unable::Unknown)));
    }
}

impl Running {
    pub(super) fn on_proposals(&mut self, proposals: Proposals, reply: Reply<u64>) {
        let Proposals { number, entries, may_wait, grows, weight } = proposals;
        let write = Write { number, entries, grows, since: Instant::now(), reply, weight };
        if write.entries.is_empty() {
            _ = write.reply.send(Ok(self.shown.state.applied));
        } else if self.shown.state.leader.is_none() && may_wait {
            // Whoever has been without a leader for longer is cut off, and says so at once.
            let until = self.changes.leaderless.map_or(write.since, |since| since + self.parking_time());
            self.park(write, until);
        } else {
            self.propose(write, may_wait);
        }
    }

    pub(super) fn propose(&mut self, write: Write, may_wait: bool) {
        let Write { number, entries, grows, since, reply, weight } = write;
        self.tell_room();
        self.writes.under_way.insert(number, Proposed { since, may_wait, grows, reply, weight });
        self.step(Input::Command(Command::Write(entries, grows)));
    }

    pub(super) fn park(&mut self, write: Write, until: Instant) {
        if let Err(write) = self.writes.pending_writes.keep(write, until, Instant::now()) {
            _ = write.reply.send(Err(self.unable()));
        }
    }

    /// On slow links another leader takes longer to be there.
    pub(super) fn parking_time(&self) -> Duration {
        PARKING_TIME + Duration::from_micros(self.server.slower_us()) * PARKING_TRIPS
    }

    /// Whoever takes writes from now on, they need not wait any longer.
    pub(super) fn release_parked(&mut self) {
        let is_mine = self.leads();
        let unable = self.unable();
        for write in self.writes.pending_writes.take() {
            match is_mine {
                true => self.propose(write, true),
                false => _ = write.reply.send(Err(unable)),
            }
        }
    }

    /// All of them are refused, so whoever waits for the last is told; unless it only has to wait until it is known who leads.
    pub(super) fn on_refused(&mut self, refusal: Refusal, entries: Vec<Bytes>) {
        let is_busy = refusal == Refusal::Busy;
        if is_busy && matches!(entries.last().map(|data| Content::of(data)), Some(Content::Ledger { .. })) {
            return self.proposals.put_back(entries, Instant::now());
        }
        let Some((number, write)) = self.writes.take(&entries) else { return };
        let Proposed { since, may_wait, grows, reply, weight } = write;
        if is_busy && may_wait && self.server.is_handing_over() {
            let write = Write { number, entries, grows, since, reply, weight };
            return self.park(write, Instant::now() + self.parking_time());
        }
        _ = reply.send(Err(if is_busy { Unable::Busy } else { self.unable() }));
    }

    pub(super) fn on_no_room(&mut self, refusal: farm::Refusal, entries: &[Bytes]) {
        if let Some((_, write)) = self.writes.take(entries) {
            _ = write.reply.send(Err(refusal.into()));
        }
    }

    /// What is agreed on is acknowledged: whoever reads after that waits until the farm has applied it.
    pub(super) fn answer_write(&mut self, index: u64, proposal: &[u8]) {
        if let Some((origin, number)) = Proposal::head(proposal)
            && origin == self.writes.origin
            && let Some(write) = self.writes.under_way.remove(&number)
        {
            self.shown.meters.commits.add(write.since.elapsed());
            _ = write.reply.send(Ok(index));
        }
    }
}
