//! A worker's results on disk: what nobody may lose until a leader has it.
//!
//! One file that only grows: a head, then blocks. A block is everything that was made durable by one sync, with its length
//! and checksums before it. What a crash tears off is the last block, which nobody was told of; it is dropped. Damage
//! anywhere else is refused, because a result that vanishes is a task that runs twice. When most of the file has been
//! forgotten, what is left moves into a new one.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use primus_core::farm::worker::Record;
use primus_core::ledger::Held;

use crate::disk::Durable;
use crate::private::{self, Exposed};
use crate::watched::Broken;

/// The format of what this version writes and reads.
pub const FORMAT: u32 = 1;

const NAME: &str = "results";
const UNFINISHED: &str = "results.new";
const LOCK: &str = "results.lock";
const MAGIC: &[u8; 12] = b"primus works";
/// Length, checksum of the length, checksum of the rest.
const PREFIX_LEN: usize = 12;
/// A file is not worth moving before.
const COMPACT_LEN_MIN: u64 = 1 << 20;

/// The results of one worker.
#[derive(Debug)]
pub struct Results {
    directory: PathBuf,
    file: File,
    length: u64,
    /// How long the records are that have not been forgotten.
    alive: BTreeMap<Held, u64>,
    alive_len: u64,
    /// A file of this length is looked at: it may be worth moving.
    compact_at: u64,
    /// After a failed sync nobody knows what the disk has.
    is_broken: bool,
    /// The lock ends when this file is closed, however the process ends.
    _lock: File,
}

/// Why results cannot be opened. Nothing has been changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Somebody else has them open.
    #[error("{} is used by another process: stop that one, or give this worker a directory of its own", dir.display())]
    InUse {
        /// The worker's directory.
        dir: PathBuf,
    },
    /// Other users could change what is in its directory.
    #[error(transparent)]
    Exposed(Exposed),
    /// The disk does not do what it is told.
    #[error("{} cannot be used ({source}): look after the disk, then start this worker again", dir.display())]
    Io {
        /// The worker's directory.
        dir: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// They are not what was written.
    #[error(
        "the results in {} are damaged at byte {place}: keep a copy, and give this worker a new directory; tasks whose \
         results were only here run again", dir.display()
    )]
    Damaged {
        /// The worker's directory.
        dir: PathBuf,
        /// Where the damage begins.
        place: u64,
    },
    /// Another version of primus wrote them.
    #[error(
        "the results in {} have format {found}, and this version of primus reads format {FORMAT}: start the version \
         that wrote them", dir.display()
    )]
    OtherFormat {
        /// The worker's directory.
        dir: PathBuf,
        /// The format that they have.
        found: u32,
    },
}

/// Why results are not known to be durable.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// There is no room. The same records can be written again when there is.
    #[error("the disk of {} is full: make room, and this worker goes on", dir.display())]
    Full {
        /// The worker's directory.
        dir: PathBuf,
    },
    /// Nobody knows what the disk has: stop.
    #[error("{} has lost writes ({source}): stop this worker and look after the disk", dir.display())]
    Broken {
        /// The worker's directory.
        dir: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// What writes has failed itself.
    #[error(transparent)]
    Failed(#[from] Broken),
}

impl Results {
    /// Opens the results in this directory, or makes a place for them; gives back what has not been forgotten.
    ///
    /// # Errors
    /// See [`OpenError`]; each says what to do.
    pub fn open(directory: &Path) -> Result<(Self, Vec<Record>), OpenError> {
        let dir = directory.to_owned();
        open(directory).map_err(|fault| match fault {
            Fault::InUse => OpenError::InUse { dir },
            Fault::Exposed(exposed) => OpenError::Exposed(exposed),
            Fault::Io(source) => OpenError::Io { dir, source },
            Fault::Damaged(place) => OpenError::Damaged { dir, place },
            Fault::OtherFormat(found) => OpenError::OtherFormat { dir, found },
        })
    }

    fn count(&mut self, record: &Record) {
        match record {
            Record::Ended(report) => {
                let held = Held { task: report.task, attempt: report.outcome.attempt };
                let length = encoded(std::slice::from_ref(record)).len() as u64;
                let before = self.alive.insert(held, length);
                self.alive_len = self.alive_len + length - before.unwrap_or(0);
            }
            Record::Forgotten(held) => self.alive_len -= self.alive.remove(held).unwrap_or(0),
        }
    }

    fn append(&mut self, records: &[Record]) -> Result<(), WriteError> {
        let block = block(records);
        if let Err(error) = self.file.write_all_at(&block, self.length) {
            // A part of it may be there. It must go, or what is written next would lie behind a damaged block.
            self.file.set_len(self.length).map_err(|error| self.broken(error))?;
            return Err(if error.kind() == ErrorKind::StorageFull {
                WriteError::Full { dir: self.directory.clone() }
            } else {
                self.broken(error)
            });
        }
        self.file.sync_data().map_err(|error| self.broken(error))?;
        self.length += block.len() as u64;
        records.iter().for_each(|record| self.count(record));
        Ok(())
    }

    /// Moves what is alive into a new file. If there is no room for it, the old one does for a while longer.
    fn compact(&mut self) -> Result<(), WriteError> {
        self.compact_at = self.length + COMPACT_LEN_MIN;
        let mut bytes = Vec::new();
        let whole = File::open(self.directory.join(NAME)).and_then(|mut file| file.read_to_end(&mut bytes));
        let records = whole.map_err(Fault::Io).and_then(|_| read(&bytes));
        let Ok(found) = records else { return Ok(()) };
        let Ok(new) = prepare(&self.directory, &alive(found.records)) else { return Ok(()) };
        self.file = install(&self.directory, new).map_err(|error| self.broken(error))?;
        self.length = self.file.metadata().map_err(|error| self.broken(error))?.len();
        self.compact_at = 2 * self.length.max(COMPACT_LEN_MIN);
        Ok(())
    }

    fn broken(&mut self, source: io::Error) -> WriteError {
        self.is_broken = true;
        WriteError::Broken { dir: self.directory.clone(), source }
    }
}

impl Durable for Results {
    type Record = Record;
    type Error = WriteError;

    fn write(&mut self, records: &[Record]) -> Result<(), WriteError> {
        if self.is_broken {
            return Err(self.broken(io::Error::other("a write failed before")));
        }
        self.append(records)?;
        if self.length >= self.compact_at && self.length > 2 * self.alive_len {
            self.compact()?;
        }
        Ok(())
    }

    fn is_full(error: &WriteError) -> bool {
        matches!(error, WriteError::Full { .. })
    }
}

/// What can be wrong with a file.
#[derive(Debug)]
enum Fault {
    InUse,
    Exposed(Exposed),
    Io(io::Error),
    Damaged(u64),
    OtherFormat(u32),
}

fn open(directory: &Path) -> Result<(Results, Vec<Record>), Fault> {
    private::folder(directory)?;
    private::check(directory).map_err(Fault::Exposed)?;
    let lock = lock(directory)?;
    let path = directory.join(NAME);
    if !path.try_exists()? {
        install(directory, prepare(directory, &[])?)?;
    }
    let mut file = private::open(&path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let Found { records, length } = read(&bytes)?;
    if length < bytes.len() as u64 {
        file.set_len(length)?;
        file.sync_all()?;
    }
    let mut results = Results {
        directory: directory.to_owned(),
        file,
        length,
        alive: BTreeMap::new(),
        alive_len: 0,
        compact_at: COMPACT_LEN_MIN,
        is_broken: false,
        _lock: lock,
    };
    records.iter().for_each(|record| results.count(record));
    Ok((results, alive(records)))
}

fn lock(directory: &Path) -> Result<File, Fault> {
    let lock = private::open_or_make(&directory.join(LOCK))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(Fault::InUse),
        Err(TryLockError::Error(error)) => Err(Fault::Io(error)),
    }
}

/// Writes a file under another name, so that a crash leaves either the old one or a whole new one.
fn prepare(directory: &Path, records: &[Record]) -> io::Result<File> {
    let mut file = private::make(&directory.join(UNFINISHED))?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend(FORMAT.to_be_bytes());
    if !records.is_empty() {
        bytes.extend(block(records));
    }
    file.write_all(&bytes)?;
    file.sync_all()?;
    Ok(file)
}

fn install(directory: &Path, file: File) -> io::Result<File> {
    fs::rename(directory.join(UNFINISHED), directory.join(NAME))?;
    File::open(directory)?.sync_all()?;
    Ok(file)
}

fn encoded(records: &[Record]) -> Vec<u8> {
    postcard::to_stdvec(records).expect("plain values can be written")
}

fn block(records: &[Record]) -> Vec<u8> {
    let body = encoded(records);
    let length = u32::try_from(body.len()).expect("what waits for one sync is no longer than 4 GiB").to_be_bytes();
    let checksums = [crc32fast::hash(&length), crc32fast::hash(&body)].map(u32::to_be_bytes);
    [&length, checksums.as_flattened(), &body].concat()
}

/// What a file says, and how much of it.
struct Found {
    records: Vec<Record>,
    length: u64,
}

fn read(bytes: &[u8]) -> Result<Found, Fault> {
    let (magic, rest) = bytes.split_first_chunk::<{ MAGIC.len() }>().ok_or(Fault::Damaged(0))?;
    let (format, mut rest) = rest.split_first_chunk::<4>().ok_or(Fault::Damaged(0))?;
    if magic != MAGIC {
        return Err(Fault::Damaged(0));
    }
    let format = u32::from_be_bytes(*format);
    if format != FORMAT {
        return Err(Fault::OtherFormat(format));
    }
    let mut records = Vec::new();
    loop {
        let place = (bytes.len() - rest.len()) as u64;
        match next(rest) {
            Next::Block(more, behind) => {
                records.extend(more);
                rest = behind;
            }
            Next::Torn => return Ok(Found { records, length: place }),
            Next::Damaged => return Err(Fault::Damaged(place)),
        }
    }
}

enum Next<'a> {
    Block(Vec<Record>, &'a [u8]),
    /// Nothing follows, or what no sync has finished.
    Torn,
    Damaged,
}

fn next(bytes: &[u8]) -> Next<'_> {
    let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX_LEN>() else { return Next::Torn };
    let number = |place: usize| u32::from_be_bytes([0, 1, 2, 3].map(|offset| prefix[place + offset]));
    if crc32fast::hash(&prefix[..4]) != number(4) {
        // A crash may leave the length of what was never written. Zeros are no block: their checksum is not zero.
        return if bytes.iter().all(|byte| *byte == 0) { Next::Torn } else { Next::Damaged };
    }
    let Some((body, behind)) = rest.split_at_checked(number(0) as usize) else { return Next::Torn };
    let is_whole = crc32fast::hash(body) == number(8);
    match postcard::from_bytes(body) {
        Ok(records) if is_whole => Next::Block(records, behind),
        _ if behind.is_empty() && !is_whole => Next::Torn,
        _ => Next::Damaged,
    }
}

/// What has not been forgotten, in the order of tasks.
fn alive(records: Vec<Record>) -> Vec<Record> {
    let mut alive = BTreeMap::new();
    for record in records {
        match record {
            Record::Ended(report) => {
                alive.insert(Held { task: report.task, attempt: report.outcome.attempt }, report);
            }
            Record::Forgotten(held) => _ = alive.remove(&held),
        }
    }
    alive.into_values().map(Record::Ended).collect()
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
