//! Writes of clients: those that are proposed, and those that wait until somebody leads.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use primus_core::machine::Input;
use primus_replica::replica::Refusal;
use primus_server::control::Command;
use primus_server::record::Content;
use primus_server::register::Proposal;
use tokio::time::Instant;

use super::Running;
use crate::budget::Weight;
use crate::handle::{Proposals, Reply, Unable};
use crate::parked::{PARKING_TIME, PARKING_TRIPS, Parked, Write};

/// All of them.
pub(super) struct Writes {
    /// This process, as the log names it.
    origin: u64,
    /// Those that are proposed, by the number of the last proposal.
    under_way: BTreeMap<u64, Proposed>,
    pub(super) parked: Parked,
}

/// A write under way.
struct Proposed {
    since: Instant,
    may_wait: bool,
    reply: Reply<u64>,
    weight: Weight,
}

impl Writes {
    pub(super) fn new(origin: u64) -> Self {
        Self { origin, under_way: BTreeMap::new(), parked: Parked::default() }
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
        let write = Write { number, entries, since: Instant::now(), reply, weight };
        if write.entries.is_empty() {
            _ = write.reply.send(Ok(self.shown.state.applied));
        } else if let Some(lack) = self.lack_of_room().or_else(|| self.is_too_much(grows)) {
            _ = write.reply.send(Err(lack));
        } else if self.log.unapplied.is_spent() {
            _ = write.reply.send(Err(Unable::Busy));
        } else if self.shown.state.leader.is_none() && may_wait {
            // Whoever has been without a leader for longer is cut off, and says so at once.
            let until = self.changes.leaderless.map_or(write.since, |since| since + self.parking_time());
            self.park(write, until);
        } else {
            self.propose(write, may_wait);
        }
    }

    /// What gives room back is always taken.
    fn is_too_much(&self, grows: bool) -> Option<Unable> {
        let max = self.config.plan.state_max;
        let is_full = grows && self.leads() && self.shown.meters.state_len.get() >= max;
        is_full.then_some(Unable::StateFull(max))
    }

    pub(super) fn lack_of_room(&self) -> Option<Unable> {
        self.shown.meters.lack_of_room().filter(|_| self.leads())
    }

    pub(super) fn propose(&mut self, write: Write, may_wait: bool) {
        let Write { number, entries, since, reply, weight } = write;
        self.writes.under_way.insert(number, Proposed { since, may_wait, reply, weight });
        self.step(Input::Command(Command::Propose(entries)));
    }

    pub(super) fn park(&mut self, write: Write, until: Instant) {
        if let Err(write) = self.writes.parked.keep(write, until, Instant::now()) {
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
        for write in self.writes.parked.take() {
            match is_mine {
                true => self.propose(write, true),
                false => _ = write.reply.send(Err(unable)),
            }
        }
    }

    /// All of them are refused, so whoever waits for the last is told; unless it only has to wait until it is known who leads.
    pub(super) fn on_refused(&mut self, refusal: Refusal, entries: Vec<Bytes>) {
        let number = match entries.last().map(|data| Content::of(data)) {
            Some(Content::Register(proposal)) => Proposal::from_bytes(proposal).map(|proposal| proposal.number),
            Some(Content::Ledger { .. }) if refusal == Refusal::Busy => {
                return self.entering.put_back(entries, Instant::now());
            }
            _ => None,
        };
        let Some(number) = number else { return };
        let Some(Proposed { since, may_wait, reply, weight }) = self.writes.under_way.remove(&number) else {
            return;
        };
        let is_busy = refusal == Refusal::Busy;
        if is_busy && may_wait && self.server.is_handing_over() {
            return self
                .park(Write { number, entries, since, reply, weight }, Instant::now() + self.parking_time());
        }
        _ = reply.send(Err(if is_busy { Unable::Busy } else { self.unable() }));
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
