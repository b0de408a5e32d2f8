//! What is agreed on, as far as control has to do with it: it passes everything on to the farm, and says when the log is cut.
//!
//! To wake the farm's thread costs as much as a write does, on every server. So records of keys are passed on together, at the latest
//! after a moment: what has to see them comes after them. Tasks wait for nothing.

use std::time::Duration;

use bytes::Bytes;
use primus_core::Term;
use primus_replica::message::{Entry, Record, Snapshot};
use primus_server::record::{Content, State};
use tokio::time::Instant;

use super::{EndError, Running};
use crate::budget::Budget;
use crate::farm::{Told, UNAPPLIED_LEN_MAX};

/// When the log has grown by this many bytes, it is cut, however few entries that are.
const GROWN_MAX: usize = 64 << 20;
/// So many records go to the farm in one word, and so many bytes: memory that comes back from another thread in larger pieces is dear.
const TOLD_MAX: usize = 1000;
const TOLD_LEN_MAX: usize = 1 << 20;
/// How long records of keys wait for more of them.
const UNSAID_TIME: Duration = Duration::from_millis(20);

/// What is known of the log here.
pub(super) struct Log {
    /// The term in which this server leads, until it has applied its own first entry of that term.
    pub(super) accession: Option<Term>,
    /// The term of the last entry that was applied, and whether that was in the middle of a batch.
    pub(super) term: Term,
    pub(super) is_within_batch: bool,
    /// The place in the log of what the farm was last told, or is told next.
    told: u64,
    unsaid: Unsaid,
    /// How much of that it may still have to apply.
    pub(super) unapplied: Budget,
    pub(super) snapshot_at: u64,
    /// How many bytes the log has grown since.
    pub(super) grown: usize,
}

/// What the farm is told next.
#[derive(Default)]
struct Unsaid {
    records: Vec<(u64, Bytes)>,
    len: usize,
    /// Among them is what must not wait.
    is_urgent: bool,
    until: Option<Instant>,
}

impl Unsaid {
    fn add(&mut self, index: u64, record: Bytes, is_urgent: bool) {
        self.len += record.len();
        self.records.push((index, record));
        self.is_urgent |= is_urgent;
    }

    fn is_full(&self) -> bool {
        self.records.len() >= TOLD_MAX || self.len > TOLD_LEN_MAX
    }
}

impl Log {
    /// So much of it is in the state that was found on the disk.
    pub(super) fn new(applied: u64, snapshot_every: u64) -> Self {
        Self {
            accession: None,
            term: Term(0),
            is_within_batch: false,
            told: applied,
            unsaid: Unsaid::default(),
            unapplied: Budget::new(UNAPPLIED_LEN_MAX),
            snapshot_at: applied + snapshot_every,
            grown: 0,
        }
    }

    /// When the farm is to be told of what waits.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.unsaid.until
    }
}

impl Running {
    /// A new leader has applied everything that was agreed on before once it has applied an entry of its own term.
    pub(super) fn accede(&mut self) {
        if let Some(term) = self.log.accession.take_if(|term| *term == self.log.term) {
            self.tell_farm(Told::Lead(term));
            self.reads.take_early().into_iter().for_each(|read| self.on_read(read));
        }
    }

    /// Those who read learn how far the farm must be; so it is told by then.
    pub(super) fn answer_reads(&mut self) {
        let Some(ready) = self.reads.take_ready(self.shown.state.applied) else { return };
        self.pass_on();
        ready.into_iter().for_each(|read| read.answer(Ok(self.log.told)));
    }

    /// These are agreed on.
    pub(super) fn apply_all(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            self.apply(entry);
            if self.log.unsaid.is_full() {
                self.pass_on();
            }
        }
        if self.log.unsaid.is_urgent {
            self.pass_on();
        } else if !self.log.unsaid.records.is_empty() {
            self.log.unsaid.until.get_or_insert_with(|| Instant::now() + UNSAID_TIME);
        }
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
                self.pass_on_later(index, entry.data, false);
            }
            Content::Ledger { goes_on } => {
                self.log.is_within_batch = goes_on;
                self.pass_on_later(index, entry.data, true);
            }
            Content::Fact | Content::Nothing => {}
        }
        self.accede();
        self.answer_reads();
        let is_due = index >= self.log.snapshot_at || self.log.snapshot_at < u64::MAX && self.log.grown > GROWN_MAX;
        if is_due && !self.log.is_within_batch {
            // The next one not before this one is done.
            (self.log.snapshot_at, self.log.grown) = (u64::MAX, 0);
            self.tell_farm(Told::Snapshot(index, self.server.gave_way().clone()));
        }
    }

    fn pass_on_later(&mut self, index: u64, record: Bytes, is_urgent: bool) {
        self.log.unsaid.add(index, record, is_urgent);
        self.log.told = index;
    }

    /// What records mean is for the farm to say.
    fn pass_on(&mut self) {
        let Unsaid { records, len, .. } = std::mem::take(&mut self.log.unsaid);
        if !records.is_empty() {
            let weight = self.log.unapplied.add(len);
            // If the farm's thread has failed, this server is about to end.
            _ = self.threads.farm.send(Told::Committed(records, weight));
        }
    }

    pub(super) fn pass_on_if_due(&mut self, now: Instant) {
        if self.log.due().is_some_and(|due| due <= now) {
            self.pass_on();
        }
    }

    /// In the order of the log.
    pub(super) fn tell_farm(&mut self, told: Told) {
        self.pass_on();
        _ = self.threads.farm.send(told);
    }

    pub(super) fn restore(&mut self, snapshot: &Snapshot) {
        let weight = self.log.unapplied.add(snapshot.data.len());
        self.tell_farm(Told::Restored(snapshot.index, snapshot.data.clone(), weight));
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
