//! What is agreed on, as far as control has to do with it: it passes everything on to the farm, and says when the log is cut.

use bytes::Bytes;
use primus_core::Term;
use primus_replica::message::{Entry, Record, Snapshot};
use primus_server::record::{Content, State};

use super::{EndError, Running};
use crate::farm::Told;

/// When the log has grown by this many bytes, it is cut, however few entries that are.
const GROWN_MAX: usize = 64 << 20;

/// What is known of the log here.
pub(super) struct Log {
    /// The term in which this server leads, until it has applied its own first entry of that term.
    pub(super) accession: Option<Term>,
    /// The term of the last entry that was applied, and whether that was in the middle of a batch.
    pub(super) term: Term,
    pub(super) is_within_batch: bool,
    /// The place in the log of what the farm was last told, or is told next.
    told: u64,
    pub(super) snapshot_at: u64,
    /// How many bytes the log has grown since.
    pub(super) grown: usize,
}

impl Log {
    /// So much of it is in the state that was found on the disk.
    pub(super) fn new(applied: u64, snapshot_every: u64) -> Self {
        Self {
            accession: None,
            term: Term(0),
            is_within_batch: false,
            told: applied,
            snapshot_at: applied + snapshot_every,
            grown: 0,
        }
    }
}

impl Running {
    /// A new leader has applied everything that was agreed on before once it has applied an entry of its own term.
    pub(super) fn accede(&mut self) {
        if let Some(term) = self.log.accession.take_if(|term| *term == self.log.term) {
            self.others.tell_farm(Told::Lead(term));
            self.reads.take_early().into_iter().for_each(|read| self.on_read(read));
        }
    }

    /// Those who read learn how far the farm must be; so it is told by then.
    pub(super) fn answer_reads(&mut self) {
        let Some(ready) = self.reads.take_ready(self.shown.state.applied) else { return };
        self.others.hurry();
        ready.into_iter().for_each(|read| read.answer(Ok(self.log.told)));
    }

    /// These are agreed on.
    pub(super) fn apply_all(&mut self, entries: Vec<Entry>) {
        entries.into_iter().for_each(|entry| self.apply(entry));
    }

    fn apply(&mut self, entry: Entry) {
        let index = entry.index;
        self.shown.state.applied = index;
        // What a leader that was deposed did not bring to an end never gets one.
        self.log.is_within_batch &= self.log.term == Term(entry.term);
        self.log.term = Term(entry.term);
        self.log.grown += entry.data.len();
        match Content::of(&entry.data) {
            Content::Register(proposal) => {
                self.answer_write(index, proposal);
                self.pass_on(index, entry.data, false);
            }
            Content::Ledger { goes_on } => {
                self.log.is_within_batch = goes_on;
                self.pass_on(index, entry.data, true);
            }
            Content::Fact | Content::Nothing => {}
        }
        self.accede();
        self.answer_reads();
        let is_due = index >= self.log.snapshot_at || self.log.snapshot_at < u64::MAX && self.log.grown > GROWN_MAX;
        if is_due && !self.log.is_within_batch {
            // The next one not before this one is done.
            (self.log.snapshot_at, self.log.grown) = (u64::MAX, 0);
            self.others.tell_farm(Told::Snapshot(index, self.server.gave_way().clone()));
        }
    }

    fn pass_on(&mut self, index: u64, record: Bytes, is_urgent: bool) {
        self.others.pass_on(index, record, is_urgent);
        self.log.told = index;
    }

    pub(super) fn restore(&mut self, snapshot: &Snapshot) {
        let weight = self.others.weigh(snapshot.data.len());
        self.others.tell_farm(Told::Restored(snapshot.index, snapshot.data.clone(), weight));
        (self.shown.state.applied, self.log.told) = (snapshot.index, snapshot.index);
        self.log.term = Term(snapshot.term);
        self.log.is_within_batch = false;
        self.answer_reads();
    }
}

/// The state that the last snapshot on disk holds, and its place in the log.
pub(super) fn restored(records: &[Record]) -> Result<(u64, State), EndError> {
    let snapshot = records.iter().rev().find_map(|record| match record {
        Record::Snapshot(snapshot) => Some(snapshot),
        _ => None,
    });
    let Some(snapshot) = snapshot else { return Ok((0, State::default())) };
    let state = State::from_bytes(&snapshot.data).ok_or(EndError::Unreadable(snapshot.index))?;
    Ok((snapshot.index, state))
}
