//! What control passes on of the log to the farm of its server: which records, when a new leader is ready, and where the log can be
//! cut. The rules only; the threads and queues between the two are their driver's.

use primus_core::Term;
use primus_replica::message::{Entry, Snapshot};

use crate::record::Content;

/// When the log has grown by this many bytes, it is cut, however few entries that are.
const GROWN_MAX: usize = 64 << 20;

/// How far the log is agreed on here, and what the farm was told of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Relay {
    /// The term in which this server leads, until it has applied its own first entry of that term.
    pending_lead: Option<Term>,
    /// The term of the last entry, and whether that was in the middle of a batch.
    term: Term,
    is_within_batch: bool,
    applied: u64,
    /// The place in the log of what the farm was last told.
    told: u64,
    snapshot_every: u64,
    /// Where the log is cut next, unless it grows faster; nowhere while a state is being written down.
    snapshot_at: Option<u64>,
    /// How many bytes the log has grown since.
    grown: usize,
}

impl Relay {
    /// Everything up to here is in the state that was found on the disk.
    #[must_use]
    pub const fn new(applied: u64, snapshot_every: u64) -> Self {
        let snapshot_at = Some(applied + snapshot_every);
        let (term, told) = (Term(0), applied);
        Self {
            pending_lead: None,
            term,
            is_within_batch: false,
            applied,
            told,
            snapshot_every,
            snapshot_at,
            grown: 0,
        }
    }

    /// The leader changed. If this server leads from now on, it leads in this term.
    pub const fn on_leader(&mut self, leads_in: Option<Term>) {
        self.pending_lead = leads_in;
    }

    /// This server is ready to lead: it has applied an entry of its own term, and so everything that was agreed on before.
    pub fn start_leading(&mut self) -> Option<Term> {
        self.pending_lead.take_if(|term| *term == self.term)
    }

    /// An entry is agreed on. The farm is told of keys and of the ledger; the rest is control's own.
    pub fn on_committed<'a>(&mut self, entry: &'a Entry) -> Content<'a> {
        self.applied = entry.index;
        // What a leader that was deposed did not bring to an end never gets one.
        self.is_within_batch &= self.term == Term(entry.term);
        self.term = Term(entry.term);
        self.grown += entry.data.len();
        let content = Content::of(&entry.data);
        if let Content::Ledger { goes_on } = content {
            self.is_within_batch = goes_on;
        }
        if matches!(content, Content::Register(_) | Content::Ledger { .. }) {
            self.told = entry.index;
        }
        content
    }

    /// A whole state came in the place of what was here.
    pub const fn on_restored(&mut self, snapshot: &Snapshot) {
        (self.applied, self.told) = (snapshot.index, snapshot.index);
        (self.term, self.is_within_batch) = (Term(snapshot.term), false);
    }

    /// Is it time to write the state down, and can the log be cut here? The next time is not before this one is done.
    pub fn take_cut(&mut self) -> bool {
        let is_due = |at: &mut u64| self.applied >= *at || self.grown > GROWN_MAX;
        let is_cut = !self.is_within_batch && self.snapshot_at.take_if(is_due).is_some();
        if is_cut {
            self.grown = 0;
        }
        is_cut
    }

    /// The state up to here is written down.
    pub const fn on_cut(&mut self, index: u64) {
        self.snapshot_at = Some(index + self.snapshot_every);
    }

    /// How far the log is agreed on here.
    #[must_use]
    pub const fn applied(&self) -> u64 {
        self.applied
    }

    /// How far the farm must be to have seen all of that.
    #[must_use]
    pub const fn told(&self) -> u64 {
        self.told
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn entry(index: u64, term: u64, data: &[u8]) -> Entry {
        Entry { index, term, data: Bytes::copy_from_slice(data) }
    }

    #[test]
    fn a_leader_is_ready_with_the_first_entry_of_its_own_term() {
        let mut relay = Relay::new(4, 100);
        relay.on_leader(Some(Term(3)));
        relay.on_committed(&entry(5, 2, b"\x01"));
        assert_eq!(relay.start_leading(), None);
        relay.on_committed(&entry(6, 3, b""));
        assert_eq!((relay.start_leading(), relay.start_leading()), (Some(Term(3)), None));
        assert_eq!((relay.applied(), relay.told()), (6, 5), "the farm hears nothing of an empty entry");
    }

    #[test]
    fn the_log_is_cut_between_batches_and_once_at_a_time() {
        let mut relay = Relay::new(0, 2);
        relay.on_committed(&entry(1, 1, b"\x01"));
        assert!(!relay.take_cut());
        relay.on_committed(&entry(2, 1, b"\x02"));
        assert!(!relay.take_cut(), "a piece of a batch is not all of it");
        // Its leader was deposed, so its end never comes.
        relay.on_committed(&entry(3, 2, b""));
        assert!(relay.take_cut() && !relay.take_cut());
        relay.on_committed(&entry(9, 2, b"\x01"));
        assert!(!relay.take_cut(), "the state is still being written down");
        relay.on_cut(3);
        assert!(relay.take_cut());
    }
}
