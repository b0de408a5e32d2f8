//! The directory of a store: its lock, its files, and the mark beside the database.
//!
//! The mark says how many writes are known to be durable. It is written after each, without waiting for the disk, so it may
//! be late, but it is never early. A database that has fewer writes than its mark has lost some: it is a copy from
//! yesterday, or damage made it fall back.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::StoreId;
use crate::private::{self, Exposed};

const DATABASE: &str = "log.redb";
const MARK: &str = "log.mark";
const LOCK: &str = "lock";

const STORE_ID_BYTES: usize = 16;
const MARK_BYTES: usize = STORE_ID_BYTES + 8 + 4;

/// A directory that no other process uses.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// The lock ends when this file is closed, however the process ends.
    _lock: File,
}

/// Why a directory cannot be used.
#[derive(Debug)]
pub(super) enum Refused {
    InUse,
    Exposed(Exposed),
    Io(io::Error),
}

impl Directory {
    /// Makes the directory if it is missing, and locks it.
    pub(super) fn lock(path: &Path) -> Result<Self, Refused> {
        if !path.is_dir() {
            private::folder(path)?;
            sync_directory(path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new(".")))?;
        }
        // Whose it is matters less than that this process cannot write there at all.
        access(path, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from)?;
        private::check(path).map_err(Refused::Exposed)?;
        let lock = private::open_or_make(&path.join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(Refused::InUse),
            Err(TryLockError::Error(error)) => Err(Refused::Io(error)),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn has_database(&self) -> io::Result<bool> {
        self.path.join(DATABASE).try_exists()
    }

    pub(super) fn open_database(&self) -> io::Result<File> {
        private::open(&self.path.join(DATABASE))
    }

    /// Makes the database under another name, so that a crash leaves either none or a whole one.
    pub(super) fn make_database<E: From<io::Error>>(
        &self,
        fill: impl FnOnce(File) -> Result<(), E>,
    ) -> Result<(), E> {
        self.make(DATABASE, fill)
    }

    pub(super) fn make_mark(&self, store: StoreId, writes: u64) -> io::Result<Mark> {
        self.make(MARK, |mut file| file.write_all(&mark_bytes(store, writes)))?;
        let file = private::open(&self.path.join(MARK))?;
        Ok(Mark { file, store, writes })
    }

    /// The mark, if there is one; inside, nothing if it cannot be read.
    pub(super) fn open_mark(&self) -> io::Result<Option<Option<Mark>>> {
        match private::open(&self.path.join(MARK)) {
            Ok(file) => Mark::read(file).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn make<E: From<io::Error>>(&self, name: &str, fill: impl FnOnce(File) -> Result<(), E>) -> Result<(), E> {
        let (unfinished, finished) = (self.path.join(format!("{name}.new")), self.path.join(name));
        let file = private::make(&unfinished)?;
        fill(file.try_clone()?)?;
        file.sync_all()?;
        fs::rename(unfinished, finished)?;
        Ok(sync_directory(&self.path)?)
    }
}

/// How many writes of which store are known to be durable.
#[derive(Debug)]
pub(super) struct Mark {
    file: File,
    pub(super) store: StoreId,
    pub(super) writes: u64,
}

impl Mark {
    fn read(mut file: File) -> io::Result<Option<Self>> {
        let mut bytes = Vec::new();
        (&mut file).take(MARK_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        let Some((store, rest)) = bytes.split_first_chunk::<STORE_ID_BYTES>() else { return Ok(None) };
        let Some(writes) = rest.first_chunk() else { return Ok(None) };
        let (store, writes) = (StoreId(*store), u64::from_le_bytes(*writes));
        let is_whole = bytes == mark_bytes(store, writes);
        Ok(is_whole.then_some(Self { file, store, writes }))
    }

    /// It is one small write in place: a disk does it wholly or not at all.
    pub(super) fn set(&mut self, writes: u64) -> io::Result<()> {
        self.writes = writes;
        self.file.write_all_at(&mark_bytes(self.store, writes), 0)
    }
}

fn mark_bytes(store: StoreId, writes: u64) -> [u8; MARK_BYTES] {
    let mut bytes = [0; MARK_BYTES];
    bytes[..STORE_ID_BYTES].copy_from_slice(&store.0);
    bytes[STORE_ID_BYTES..MARK_BYTES - 4].copy_from_slice(&writes.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..MARK_BYTES - 4]);
    bytes[MARK_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// A new name is durable only when its directory is.
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
