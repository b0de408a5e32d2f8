//! Disks: what is durable, what is being synced, and what a crash leaves of it.
//!
//! On a server's disk one sync runs at a time; what is handed in meanwhile shares the next one, as in the disk thread of a real
//! server. A crash lets any part of what was not synced reach the disk. What can be read afterwards is what lies before the first
//! record that is missing or torn. So a crash here keeps any *prefix* of the unsynced records; to have lost a record and
//! kept a later one is impossible by contract: a driver must not reorder tokens, and the real store commits its
//! transactions in order. (No Raft survives the other: an entry that overwrote its predecessor would be lost, and its
//! successor would stand behind the wrong one.) The real store keeps or loses whole writes; nothing in the contract
//! promises that, so in half of all crashes a write is cut in the middle: that is the torn last record.
//!
//! What is read after a restart has the form in which the real store gives it. Its tests compare it with the same
//! [`Log`] that stands here for the durable part.

use primus_core::machine::Token;
use primus_replica::log::Log;
use primus_replica::message::{HardState, Record};

use crate::chance::Chance;

/// A server's disk.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    durable: Log,
    /// Will be durable when the sync that runs has ended.
    syncing: Vec<Write>,
    /// Waits for the next sync.
    queued: Vec<Write>,
}

#[derive(Debug)]
struct Write {
    token: Token,
    records: Vec<Record>,
}

impl Disk {
    /// Hands records over.
    pub(crate) fn write(&mut self, token: Token, records: Vec<Record>) {
        self.queued.push(Write { token, records });
    }

    /// Starts the next sync, if none runs and something waits for one.
    pub(crate) fn begin_sync(&mut self) -> bool {
        let begins = self.syncing.is_empty() && !self.queued.is_empty();
        if begins {
            self.syncing = std::mem::take(&mut self.queued);
        }
        begins
    }

    /// The sync has ended: everything up to this token is durable.
    pub(crate) fn end_sync(&mut self) -> Option<Token> {
        let token = self.syncing.iter().map(|write| write.token).max();
        let written = std::mem::take(&mut self.syncing);
        written.into_iter().flat_map(|write| write.records).for_each(|record| self.durable.apply(record));
        token
    }

    /// Keeps what a crash leaves.
    pub(crate) fn crash(&mut self, chance: &mut Chance) {
        let writes = std::mem::take(&mut self.syncing).into_iter().chain(std::mem::take(&mut self.queued));
        let whole: Vec<Vec<Record>> = writes.map(|write| write.records).collect();
        let units = if chance.happens(500_000) {
            whole
        } else {
            whole.into_iter().flatten().map(|record| vec![record]).collect()
        };
        let kept = usize::try_from(chance.between(0, units.len() as u64)).expect("a length fits");
        units.into_iter().take(kept).flatten().for_each(|record| self.durable.apply(record));
    }

    /// What a process finds when it starts.
    pub(crate) fn read(&self) -> Vec<Record> {
        let state = Some(self.durable.hard_state()).filter(|state| *state != HardState::default());
        let base = self.durable.snapshot().map_or(0, |snapshot| snapshot.index);
        let entries = self.durable.entries().filter(|entry| entry.index > base);
        let mut records: Vec<Record> = state.map(Record::HardState).into_iter().collect();
        records.extend(self.durable.snapshot().cloned().map(Record::Snapshot));
        records.extend(entries.map(Record::Append));
        records
    }
}

/// A file of a worker, to which one write after the other is added.
#[derive(Debug)]
pub(crate) struct File<T> {
    pub(crate) durable: Vec<T>,
    /// What a crash may destroy.
    unsynced: Vec<(Token, Vec<T>)>,
}

impl<T> Default for File<T> {
    fn default() -> Self {
        Self { durable: Vec::new(), unsynced: Vec::new() }
    }
}

impl<T> File<T> {
    pub(crate) fn write(&mut self, token: Token, records: Vec<T>) {
        self.unsynced.push((token, records));
    }

    /// Everything up to this token is durable.
    pub(crate) fn sync(&mut self, token: Token) {
        let count = self.unsynced.iter().take_while(|(written, _)| *written <= token).count();
        self.durable.extend(self.unsynced.drain(..count).flat_map(|(_, records)| records));
    }

    /// Of what was not synced, the beginning may be there.
    pub(crate) fn crash(&mut self, chance: &mut Chance) {
        let kept = chance.between(0, self.unsynced.len() as u64);
        let kept = usize::try_from(kept).expect("a length fits");
        self.durable.extend(self.unsynced.drain(..).take(kept).flat_map(|(_, records)| records));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use primus_replica::message::Entry;

    use super::*;

    fn entry(index: u64) -> Record {
        Record::Append(Entry { index, term: 1, data: Bytes::new() })
    }

    /// Two writes of two entries each, the first of which is synced, and a third one.
    fn crashed(seed: u64) -> usize {
        let mut disk = Disk::default();
        disk.write(Token(1), vec![entry(1), entry(2)]);
        assert!(disk.begin_sync());
        assert_eq!(disk.end_sync(), Some(Token(1)));
        disk.write(Token(2), vec![entry(3), entry(4)]);
        assert!(disk.begin_sync());
        disk.write(Token(3), vec![entry(5), entry(6)]);
        assert!(!disk.begin_sync(), "one sync at a time");
        disk.crash(&mut Chance::new(seed));
        disk.read().len()
    }

    #[test]
    fn a_crash_keeps_what_was_synced_and_any_beginning_of_the_rest() {
        let kept: std::collections::BTreeSet<usize> = (0..100).map(crashed).collect();
        assert_eq!(kept, (2..=6).collect());
    }

    #[test]
    fn what_is_handed_in_during_a_sync_waits_for_the_next() {
        let mut disk = Disk::default();
        disk.write(Token(1), vec![entry(1)]);
        assert!(disk.begin_sync());
        disk.write(Token(2), vec![entry(2)]);
        assert_eq!(disk.end_sync(), Some(Token(1)));
        assert_eq!(disk.read().len(), 1);
        assert!(disk.begin_sync());
        assert_eq!(disk.end_sync(), Some(Token(2)));
    }
}
