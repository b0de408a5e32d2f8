//! What a farm wants to write: in which order it goes into the log, and how much of it at once.
//!
//! Batches of clients go at once, each as it is. What the farm itself wants grows while a batch of its own is under way, so that
//! a busy log gets few large batches and an idle one gets each entry at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use primus_core::ledger::Entry;
use primus_core::planted::{Bug, Planted};

use super::words::Ticket;
use crate::record::Draft;

/// How many batches of its own may be under way. While one is, the next one grows: that costs a result a moment, and saves all
/// servers' disks from most of the writes.
const UNDER_WAY_MAX: usize = 1;
/// How many entries a batch of its own has at most; a report has up to some eight thousand bytes.
const ENTRIES_MAX: usize = 4096;
/// How many bytes of clients' batches may be under way; one batch may have more.
const ENTERING_LEN_MAX: usize = 64 << 20;

/// What is to be written, and what is on its way.
#[derive(Debug)]
pub(super) struct Proposals {
    /// The process that proposes, and the number of its last batch.
    origin: u64,
    last_number: u64,
    /// What foreman and lessor want, in order.
    wanted: VecDeque<Entry>,
    /// What the lending side wants, in order. It may say the same again while the log is busy, and is written down once.
    loans: Vec<Entry>,
    known_loans: BTreeSet<Entry>,
    /// Batches of its own that are not applied yet.
    under_way: BTreeSet<u64>,
    /// Batches of clients that came in this turn.
    drafts: Vec<(Ticket, Draft)>,
    /// Those that are not applied yet, with their lengths.
    entering: BTreeMap<u64, (usize, Ticket)>,
    entering_len: usize,
    has_room: bool,
    planted: Planted,
}

impl Proposals {
    pub(super) const fn new(origin: u64, planted: Planted) -> Self {
        Self {
            origin,
            planted,
            last_number: 0,
            wanted: VecDeque::new(),
            loans: Vec::new(),
            known_loans: BTreeSet::new(),
            under_way: BTreeSet::new(),
            drafts: Vec::new(),
            entering: BTreeMap::new(),
            entering_len: 0,
            has_room: true,
        }
    }

    pub(super) fn want(&mut self, entries: impl IntoIterator<Item = Entry>) {
        self.wanted.extend(entries);
    }

    pub(super) fn want_loans(&mut self, entries: Vec<Entry>) {
        self.loans.extend(entries.into_iter().filter(|entry| self.known_loans.insert(entry.clone())));
    }

    /// Without room on the disks nothing of its own is proposed.
    pub(super) const fn set_room(&mut self, has_room: bool) {
        self.has_room = has_room;
    }

    /// A client's batch. False if too much is under way.
    pub(super) fn enter(&mut self, ticket: Ticket, draft: Draft) -> bool {
        let is_taken = self.entering_len <= ENTERING_LEN_MAX;
        if is_taken {
            self.entering_len += draft.len();
            self.drafts.push((ticket, draft));
        }
        is_taken
    }

    /// Is there anything that could be written now?
    pub(super) fn is_due(&self) -> bool {
        let may_write = self.has_room && self.under_way.len() < UNDER_WAY_MAX;
        !self.drafts.is_empty() || may_write && !(self.wanted.is_empty() && self.loans.is_empty())
    }

    /// What is written now, at this time: clients' batches as they came, then one of its own.
    pub(super) fn take(&mut self, time_ms: u64) -> Vec<Bytes> {
        let mut records = Vec::new();
        if self.planted.is(Bug::ProposalsReordered) {
            self.drafts.reverse();
        }
        for (ticket, draft) in std::mem::take(&mut self.drafts) {
            self.last_number += 1;
            self.entering.insert(self.last_number, (draft.len(), ticket));
            records.extend(draft.seal(self.origin, self.last_number, time_ms));
        }
        if self.has_room && self.under_way.len() < UNDER_WAY_MAX {
            self.wanted.extend(self.loans.drain(..));
            self.known_loans.clear();
        }
        while self.has_room && !self.wanted.is_empty() && self.under_way.len() < UNDER_WAY_MAX {
            let entries: Vec<Entry> = self.wanted.drain(..self.wanted.len().min(ENTRIES_MAX)).collect();
            self.last_number += 1;
            self.under_way.insert(self.last_number);
            records.extend(Draft::new(&entries).seal(self.origin, self.last_number, time_ms));
        }
        records
    }

    /// This batch is applied. Who waits for it?
    pub(super) fn on_applied(&mut self, origin: u64, number: u64) -> Option<Ticket> {
        if origin != self.origin {
            return None;
        }
        self.under_way.remove(&number);
        let (len, ticket) = self.entering.remove(&number)?;
        self.entering_len -= len;
        Some(ticket)
    }

    /// Another server leads: whatever was wanted is void. Whose batches may be in the log, or not?
    pub(super) fn clear(&mut self) -> Vec<Ticket> {
        self.wanted.clear();
        self.loans.clear();
        self.known_loans.clear();
        self.under_way.clear();
        self.entering_len = 0;
        let unsent = std::mem::take(&mut self.drafts).into_iter().map(|(ticket, _)| ticket);
        let sent = std::mem::take(&mut self.entering).into_values().map(|(_, ticket)| ticket);
        sent.chain(unsent).collect()
    }
}

#[cfg(test)]
mod tests {
    use primus_core::ledger::{JobId, Target};

    use super::*;
    use crate::record::Assembly;

    fn cancel(job: u64) -> Entry {
        Entry::Cancel(Target::Job(JobId(job)))
    }

    /// The entries of each batch.
    fn batches(records: &[Bytes]) -> Vec<(u64, Vec<Entry>)> {
        let mut assembly = Assembly::default();
        let filed = records.iter().filter_map(|record| assembly.take(record));
        filed.map(|filed| (filed.number, filed.batch.entries)).collect()
    }

    #[test]
    fn what_the_farm_wants_grows_while_a_batch_is_under_way_and_keeps_its_order() {
        let mut proposals = Proposals::new(7, Planted::NONE);
        proposals.want([cancel(3), cancel(1)]);
        assert_eq!(batches(&proposals.take(0)), [(1, vec![cancel(3), cancel(1)])]);
        proposals.want([cancel(9)]);
        proposals.want_loans(vec![cancel(5)]);
        proposals.want_loans(vec![cancel(5), cancel(4)]);
        assert!(!proposals.is_due());
        assert!(proposals.enter(Ticket(1), Draft::new(&[cancel(2)])));
        assert_eq!(batches(&proposals.take(0)), [(2, vec![cancel(2)])], "a client's does not wait");
        assert_eq!(proposals.on_applied(8, 1), None, "another process's");
        assert_eq!(proposals.on_applied(7, 1), None);
        assert_eq!(batches(&proposals.take(0)), [(3, vec![cancel(9), cancel(5), cancel(4)])]);
        assert_eq!(proposals.on_applied(7, 2), Some(Ticket(1)));
    }

    #[test]
    fn without_room_only_clients_write() {
        let mut proposals = Proposals::new(7, Planted::NONE);
        proposals.set_room(false);
        proposals.want([cancel(1)]);
        assert!(!proposals.is_due());
        assert!(proposals.enter(Ticket(1), Draft::new(&[cancel(2)])));
        assert_eq!(batches(&proposals.take(0)), [(1, vec![cancel(2)])]);
        proposals.set_room(true);
        assert_eq!(batches(&proposals.take(0)), [(2, vec![cancel(1)])]);
    }

    #[test]
    fn those_who_wait_hear_that_leadership_is_lost() {
        let mut proposals = Proposals::new(7, Planted::NONE);
        proposals.enter(Ticket(1), Draft::new(&[cancel(1)]));
        proposals.take(0);
        proposals.enter(Ticket(2), Draft::new(&[cancel(2)]));
        proposals.want([cancel(3)]);
        assert_eq!(proposals.clear(), [Ticket(1), Ticket(2)]);
        assert_eq!(proposals.take(0), Vec::<Bytes>::new());
    }
}
