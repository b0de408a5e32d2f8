//! The log as the engine reads it: in memory, from the last snapshot on. The disk holds the same, a little later.

use raft::eraftpb as engine;
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};

use crate::message::{Entry, HardState, Record, Snapshot};

/// A log, its hard state and its last snapshot.
#[derive(Debug, Clone, Default)]
pub struct Log {
    voters: Vec<u64>,
    hard_state: HardState,
    /// What the entries follow.
    base: (u64, u64),
    entries: Vec<engine::Entry>,
    /// The newest state that can be sent to a follower that needs one.
    snapshot: Option<Snapshot>,
}

/// What stays behind a snapshot has no more bytes than this, however few entries that are.
const KEPT_LEN_MAX: usize = 16 << 20;

impl Log {
    /// The log that these records make, read from disk in the order in which they were written.
    #[must_use]
    pub fn new(voters: Vec<u64>, records: impl IntoIterator<Item = Record>) -> Self {
        let mut log = Self { voters, ..Self::default() };
        records.into_iter().for_each(|record| log.apply(record));
        log
    }

    /// Makes the log what it is after this record.
    pub fn apply(&mut self, record: Record) {
        match record {
            Record::Append(entry) => self.append(entry.into_engine()),
            Record::HardState(state) => {
                let commit = state.commit.max(self.base.0);
                self.hard_state = HardState { commit, ..state };
            }
            Record::Snapshot(snapshot) => self.restore(snapshot),
        }
    }

    /// What a snapshot covers already needs no place any more.
    pub(crate) fn append(&mut self, entry: engine::Entry) {
        if entry.index <= self.base.0 {
            return;
        }
        let keep = usize::try_from(entry.index.saturating_sub(self.base.0 + 1)).unwrap_or(usize::MAX);
        assert!(keep <= self.entries.len(), "a log has no gaps: {} after {}", entry.index, self.last());
        self.entries.truncate(keep);
        self.entries.push(entry);
    }

    pub(crate) fn set_hard_state(&mut self, state: HardState) {
        self.hard_state = state;
    }

    /// A state that came from elsewhere replaces everything that does not continue it.
    pub(crate) fn restore(&mut self, snapshot: Snapshot) {
        // What a snapshot covers is committed, although the commit index may have reached the disk later.
        self.hard_state.commit = self.hard_state.commit.max(snapshot.index);
        if self.snapshot.as_ref().is_some_and(|newer| newer.index > snapshot.index) {
            return;
        }
        if self.term(snapshot.index) == Ok(snapshot.term) {
            return self.compact(snapshot, 0);
        }
        self.entries.clear();
        self.base = (snapshot.index, snapshot.term);
        self.snapshot = Some(snapshot);
    }

    /// Forgets what a snapshot covers, save the last few entries, so that a follower that is a little behind needs none.
    pub(crate) fn compact(&mut self, snapshot: Snapshot, keep: u64) {
        let keep = keep.min(self.short_before(snapshot.index));
        let upto = snapshot.index.saturating_sub(keep).clamp(self.base.0, self.last());
        if let Ok(term) = self.term(upto) {
            let gone = usize::try_from(upto - self.base.0).unwrap_or(usize::MAX);
            self.entries.drain(..gone.min(self.entries.len()));
            self.base = (upto, term);
        }
        self.snapshot = Some(snapshot);
    }

    /// How many entries up to this index are short enough to be kept.
    fn short_before(&self, index: u64) -> u64 {
        let end = usize::try_from(index.saturating_sub(self.base.0)).unwrap_or(usize::MAX);
        let mut len = 0;
        let entries = self.entries[..end.min(self.entries.len())].iter().rev();
        let kept = entries.take_while(|entry| {
            len += entry.data.len();
            len <= KEPT_LEN_MAX
        });
        kept.count() as u64
    }

    /// The index of the last entry.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.base.0 + self.entries.len() as u64
    }

    /// The term of the entry at this index, as far as it is known here.
    #[must_use]
    pub fn term_of(&self, index: u64) -> Option<u64> {
        self.term(index).ok()
    }

    /// Term, vote and commit.
    #[must_use]
    pub const fn hard_state(&self) -> HardState {
        self.hard_state
    }

    /// The last snapshot.
    #[must_use]
    pub const fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_ref()
    }

    /// The entries that are kept, for tests and for looking at a store.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.entries.iter().cloned().map(Entry::from_engine)
    }
}

impl Storage for Log {
    fn initial_state(&self) -> Result<RaftState> {
        let mut voters = engine::ConfState::default();
        voters.set_voters(self.voters.clone());
        Ok(RaftState { hard_state: self.hard_state.into_engine(), conf_state: voters })
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> Result<Vec<engine::Entry>> {
        if low <= self.base.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        let from = usize::try_from(low - self.base.0 - 1).unwrap_or(usize::MAX);
        let to = usize::try_from(high - self.base.0 - 1).unwrap_or(usize::MAX);
        let mut found = self.entries.get(from..to).ok_or(Error::Store(StorageError::Unavailable))?.to_vec();
        raft::util::limit_size(&mut found, max_size.into());
        Ok(found)
    }

    fn term(&self, index: u64) -> Result<u64> {
        if index == self.base.0 {
            return Ok(self.base.1);
        }
        let place = index.checked_sub(self.base.0 + 1).ok_or(Error::Store(StorageError::Compacted))?;
        let entry = self.entries.get(usize::try_from(place).unwrap_or(usize::MAX));
        entry.map(|entry| entry.term).ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.base.0 + 1)
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, wanted: u64, _: u64) -> Result<engine::Snapshot> {
        let newest = self.snapshot.as_ref().filter(|snapshot| snapshot.index >= wanted);
        let newest = newest.ok_or(Error::Store(StorageError::SnapshotTemporarilyUnavailable))?;
        Ok(newest.clone().into_engine(&self.voters))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_entries_stay_behind_a_snapshot_if_they_are_long() {
        for (len, kept) in [(1, 5), (KEPT_LEN_MAX / 2, 2), (KEPT_LEN_MAX + 1, 0)] {
            let data = bytes::Bytes::from(vec![7; len]);
            let entry = |index| Record::Append(Entry { index, term: 1, data: data.clone() });
            let mut log = Log::new(vec![1], (1..=9).map(entry));
            log.compact(Snapshot { index: 8, term: 1, data: bytes::Bytes::new() }, 5);
            assert_eq!(log.entries().count(), kept + 1, "{len} bytes each, and one after the snapshot");
        }
    }
}
