//! What is in the database: four tables, every value with a checksum of its own.
//!
//! The database has checksums too, but it looks at them only when it is opened, and they say nothing about what *we* wrote.
//! A value's checksum covers its key, so that an entry in the wrong place is noticed as well.
//!
//! Entries lie in chunks: those of one write, up to a limit. One value for each would cost the database seven times the
//! work in large writes.

use std::collections::BTreeMap;

use bytes::Bytes;
use primus_replica::message::{Entry, HardState, Record, Snapshot};
use redb::{ReadTransaction, ReadableTable, Table, TableDefinition, WriteTransaction};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Damage, Origin, StoreId};

type SealedTable<'a> = Table<'a, u64, &'static [u8]>;
type Definition = TableDefinition<'static, u64, &'static [u8]>;

/// The entries, in chunks, by the index of the first.
const CHUNKS: Definition = TableDefinition::new("chunks");
/// The last snapshot. It has a table of its own, so that a large one is not copied with every small write.
const SNAPSHOT: Definition = TableDefinition::new("snapshot");
/// What every write changes.
const PROGRESS: Definition = TableDefinition::new("progress");
/// Who this is, and how its cluster began.
const ABOUT: Definition = TableDefinition::new("about");

/// The key in a table of one value.
const ONLY: u64 = 0;
const ABOUT_FORMAT: u64 = 0;
const ABOUT_OWNER: u64 = 1;
/// The peers' stores, until format 3: the record of the founding has them.
const ABOUT_PEERS: u64 = 2;
const ABOUT_ORIGIN: u64 = 3;

const CHECKSUM_BYTES: usize = 4;

/// A chunk that has this many bytes is full. A cut log writes at most one chunk again.
const CHUNK_BYTES: usize = 60 << 10;

/// Whose store this is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    pub(super) cluster: String,
    pub(super) server: u64,
    pub(super) store: StoreId,
}

/// How far the log is. Every write counts, so that an old state can be told from the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Progress {
    /// How many writes there have been.
    pub(super) writes: u64,
    /// Index and term of what the entries follow: the snapshot, or nothing.
    base: (u64, u64),
    /// The index of the last entry.
    last: u64,
    hard_state: HardState,
}

/// The peers' stores, by server id, as format 3 has them.
pub(super) type Peers = BTreeMap<u64, StoreId>;

/// Fills a new database.
pub(super) fn create(transaction: &WriteTransaction, format: u32, owner: &Owner) -> Result<(), redb::Error> {
    transaction.open_table(CHUNKS)?;
    transaction.open_table(SNAPSHOT)?;
    put(&mut transaction.open_table(PROGRESS)?, ONLY, &encode(&Progress::default()))?;
    let mut about = transaction.open_table(ABOUT)?;
    put(&mut about, ABOUT_FORMAT, &format.to_le_bytes())?;
    put(&mut about, ABOUT_OWNER, &encode(owner))?;
    put(&mut about, ABOUT_ORIGIN, &encode(&Origin::default()))
}

/// Applies records in order, and counts one write.
pub(super) fn write(
    transaction: &WriteTransaction,
    progress: Progress,
    records: &[Record],
) -> Result<Progress, redb::Error> {
    let mut writer = Writer { progress, chunks: transaction.open_table(CHUNKS)?, chunk: Chunk::default() };
    for record in records {
        match record {
            Record::Append(entry) => writer.append(entry)?,
            Record::HardState(state) => writer.progress.hard_state = *state,
            Record::Snapshot(snapshot) => writer.restore(snapshot, &mut transaction.open_table(SNAPSHOT)?)?,
        }
    }
    writer.flush()?;
    writer.progress.count(transaction)
}

/// Keeps how far the founding has come, and counts one write. The store has this format from then on.
pub(super) fn write_origin(
    transaction: &WriteTransaction,
    progress: Progress,
    (origin, format): (&Origin, u32),
) -> Result<Progress, redb::Error> {
    let mut about = transaction.open_table(ABOUT)?;
    put(&mut about, ABOUT_FORMAT, &format.to_le_bytes())?;
    put(&mut about, ABOUT_ORIGIN, &encode(origin))?;
    about.remove(ABOUT_PEERS)?;
    drop(about);
    progress.count(transaction)
}

impl Progress {
    /// True if nothing was ever promised with this store.
    pub(super) fn is_blank(&self) -> bool {
        self.last == 0 && self.hard_state == HardState::default()
    }

    fn count(mut self, transaction: &WriteTransaction) -> Result<Self, redb::Error> {
        self.writes += 1;
        put(&mut transaction.open_table(PROGRESS)?, ONLY, &encode(&self))?;
        Ok(self)
    }
}

/// One write under way.
struct Writer<'a> {
    progress: Progress,
    chunks: SealedTable<'a>,
    /// The end of the log, not yet in the table.
    chunk: Chunk,
}

impl Writer<'_> {
    fn append(&mut self, entry: &Entry) -> Result<(), redb::Error> {
        let Progress { base, last, .. } = self.progress;
        // What a snapshot covers is committed and never changes. It comes again when a write whose outcome was unknown
        // is repeated.
        if entry.index <= base.0 {
            return Ok(());
        }
        assert!(entry.index <= last + 1, "a log has no gaps: {} after {last}", entry.index);
        if entry.index <= last {
            self.flush()?;
            self.cut(entry.index)?;
        }
        if self.chunk.bytes.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        self.chunk.push(entry);
        self.progress.last = entry.index;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), redb::Error> {
        if !self.chunk.bytes.is_empty() {
            put(&mut self.chunks, self.chunk.first, &self.chunk.bytes)?;
            self.chunk.bytes.clear();
        }
        Ok(())
    }

    /// Forgets the log from this index on. The chunk around it begins anew, with what stays of it.
    fn cut(&mut self, from: u64) -> Result<(), redb::Error> {
        let around = self.entries_around(from)?;
        self.chunks.retain_in(around.first().map_or(from, |entry| entry.index).., |_, _| false)?;
        around.iter().filter(|entry| entry.index < from).for_each(|entry| self.chunk.push(entry));
        Ok(())
    }

    /// A snapshot replaces what it covers; what follows stays only if it continues the snapshot.
    fn restore(&mut self, snapshot: &Snapshot, table: &mut SealedTable<'_>) -> Result<(), redb::Error> {
        let base = self.progress.base;
        if snapshot.index < base.0 {
            return Ok(());
        }
        self.flush()?;
        let around = self.entries_around(snapshot.index)?;
        let same = around.iter().find(|entry| entry.index == snapshot.index).map(|entry| entry.term);
        if (snapshot.index, snapshot.term) == base || same == Some(snapshot.term) {
            // The chunk that the snapshot ends in stays whole.
            self.chunks.retain_in(..around.first().map_or(0, |entry| entry.index), |_, _| false)?;
        } else {
            self.chunks.retain(|_, _| false)?;
            self.progress.last = snapshot.index;
        }
        self.progress.base = (snapshot.index, snapshot.term);
        // The commit index reaches the disk late, but the engine refuses one that is older than the snapshot.
        self.progress.hard_state.commit = self.progress.hard_state.commit.max(snapshot.index);
        let (index, term) = (snapshot.index.to_le_bytes(), snapshot.term.to_le_bytes());
        put_parts(table, ONLY, &[&index, &term, &snapshot.data])
    }

    /// The entries of the chunk that has this index, if there is one.
    fn entries_around(&self, index: u64) -> Result<Vec<Entry>, redb::Error> {
        let Some(found) = self.chunks.range(..=index)?.next_back() else { return Ok(Vec::new()) };
        let (first, value) = found?;
        read_chunk(first.value(), value.value()).map_err(|damage| match damage {
            Damage::Io(error) => redb::Error::Io(error),
            Damage::Content(what) => redb::Error::Corrupted(what),
        })
    }
}

/// Entries that follow each other: term, length and data of each.
#[derive(Default)]
struct Chunk {
    first: u64,
    bytes: Vec<u8>,
}

impl Chunk {
    fn push(&mut self, entry: &Entry) {
        if self.bytes.is_empty() {
            self.first = entry.index;
        }
        self.bytes.extend_from_slice(&entry.term.to_le_bytes());
        self.bytes.extend_from_slice(&(entry.data.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(&entry.data);
    }
}

fn read_chunk(first: u64, value: &[u8]) -> Result<Vec<Entry>, Damage> {
    let mut rest = unseal(first, value)?;
    let mut entries = Vec::new();
    for index in first.. {
        if rest.is_empty() {
            break;
        }
        let (term, behind) = split_number(rest)?;
        let (len, behind) = split_number(behind)?;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let (data, behind) = behind.split_at_checked(len).ok_or_else(|| Damage::of("an entry is too short"))?;
        entries.push(Entry { index, term, data: Bytes::copy_from_slice(data) });
        rest = behind;
    }
    Ok(entries)
}

/// The format of what is in the database; nothing else may be read before it is known.
pub(super) fn read_format(transaction: &ReadTransaction) -> Result<u32, Damage> {
    let format = get(transaction, ABOUT, ABOUT_FORMAT, "format")?;
    let format = format.as_slice().try_into().map_err(|_| Damage::of("the format has the wrong length"))?;
    Ok(u32::from_le_bytes(format))
}

pub(super) fn read_owner(transaction: &ReadTransaction) -> Result<Owner, Damage> {
    decode(&get(transaction, ABOUT, ABOUT_OWNER, "owner")?)
}

pub(super) fn read_peers(transaction: &ReadTransaction) -> Result<Peers, Damage> {
    decode(&get(transaction, ABOUT, ABOUT_PEERS, "peers")?)
}

pub(super) fn read_origin(transaction: &ReadTransaction) -> Result<Origin, Damage> {
    decode(&get(transaction, ABOUT, ABOUT_ORIGIN, "founding")?)
}

pub(super) fn read_progress(transaction: &ReadTransaction) -> Result<Progress, Damage> {
    decode(&get(transaction, PROGRESS, ONLY, "progress")?)
}

/// Records that make the log that was written. The hard state comes first and the snapshot before its entries: a log that
/// takes over a snapshot raises a commit index that is older.
pub(super) fn read_records(transaction: &ReadTransaction, progress: &Progress) -> Result<Vec<Record>, Damage> {
    let mut records = Vec::new();
    if progress.hard_state != HardState::default() {
        records.push(Record::HardState(progress.hard_state));
    }
    records.extend(read_snapshot(transaction, progress)?.map(Record::Snapshot));
    let mut last = None;
    for found in transaction.open_table(CHUNKS)?.iter()? {
        let (first, value) = found?;
        if last.is_some_and(|last: u64| last.checked_add(1) != Some(first.value())) {
            return Err(Damage::of("the log has a gap"));
        }
        let entries = read_chunk(first.value(), value.value())?;
        last = entries.last().map(|entry| entry.index);
        let behind_snapshot = entries.into_iter().filter(|entry| entry.index > progress.base.0);
        records.extend(behind_snapshot.map(Record::Append));
    }
    let last = last.unwrap_or(progress.base.0);
    let first = records.iter().find_map(|record| match record {
        Record::Append(entry) => Some(entry.index),
        _ => None,
    });
    let is_whole = last == progress.last && first.is_none_or(|first| first == progress.base.0 + 1);
    if is_whole { Ok(records) } else { Err(Damage::of("the log does not begin or end where it should")) }
}

fn read_snapshot(transaction: &ReadTransaction, progress: &Progress) -> Result<Option<Snapshot>, Damage> {
    let table = transaction.open_table(SNAPSHOT)?;
    let snapshot = match table.get(ONLY)? {
        Some(value) => Some(split_snapshot(unseal(ONLY, value.value())?)?),
        None => None,
    };
    let base = snapshot.as_ref().map_or((0, 0), |snapshot| (snapshot.index, snapshot.term));
    if base == progress.base {
        Ok(snapshot)
    } else {
        Err(Damage::of("the snapshot is not the one that it should be"))
    }
}

fn split_snapshot(value: &[u8]) -> Result<Snapshot, Damage> {
    let (index, value) = split_number(value)?;
    let (term, data) = split_number(value)?;
    Ok(Snapshot { index, term, data: Bytes::copy_from_slice(data) })
}

fn split_number(value: &[u8]) -> Result<(u64, &[u8]), Damage> {
    let (number, rest) = value.split_first_chunk().ok_or_else(|| Damage::of("a value is too short"))?;
    Ok((u64::from_le_bytes(*number), rest))
}

fn get(transaction: &ReadTransaction, table: Definition, key: u64, name: &str) -> Result<Vec<u8>, Damage> {
    let table = transaction.open_table(table)?;
    let value = table.get(key)?.ok_or_else(|| Damage::of(format!("the {name} is missing")))?;
    unseal(key, value.value()).map(<[u8]>::to_vec)
}

fn put(table: &mut SealedTable<'_>, key: u64, value: &[u8]) -> Result<(), redb::Error> {
    put_parts(table, key, &[value])
}

/// Writes a value in one piece with its checksum, straight into the database's page.
fn put_parts(table: &mut SealedTable<'_>, key: u64, parts: &[&[u8]]) -> Result<(), redb::Error> {
    let len = CHECKSUM_BYTES + parts.iter().map(|part| part.len()).sum::<usize>();
    let mut place = table.insert_reserve(key, len)?;
    let (checksum_place, mut rest) = place.as_mut().split_at_mut(CHECKSUM_BYTES);
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&key.to_le_bytes());
    for part in parts {
        checksum.update(part);
        let (here, behind) = rest.split_at_mut(part.len());
        here.copy_from_slice(part);
        rest = behind;
    }
    checksum_place.copy_from_slice(&checksum.finalize().to_le_bytes());
    Ok(())
}

fn unseal(key: u64, value: &[u8]) -> Result<&[u8], Damage> {
    let (expected, value) =
        value.split_first_chunk::<CHECKSUM_BYTES>().ok_or_else(|| Damage::of("a value is too short"))?;
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&key.to_le_bytes());
    checksum.update(value);
    if checksum.finalize().to_le_bytes() == *expected { Ok(value) } else { Err(Damage::of("a checksum is wrong")) }
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(value).expect("plain values in memory can always be encoded")
}

fn decode<T: DeserializeOwned>(value: &[u8]) -> Result<T, Damage> {
    postcard::from_bytes(value).map_err(|_| Damage::of("a value cannot be read"))
}
