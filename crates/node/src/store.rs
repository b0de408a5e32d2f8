//! A replica's log on disk: what was acknowledged, voted and promised survives any crash.
//!
//! [`Store::write`] returns when its records are durable, and not before. A store that is damaged, that is a copy from
//! yesterday or that belongs to somebody else is refused with a sentence that says so; nothing is repaired behind anybody's
//! back, because a replica that forgets can vote twice. What a crash tears off is only what was never promised.
//!
//! The records are in a redb database (`tables.rs`); its file (`backend.rs`) holds writes back until the database is known to
//! be sound, and a mark beside it (`directory.rs`) tells a torn last write from a lost one.

mod backend;
mod directory;
mod origin;
mod tables;

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use primus_core::ServerId;
use primus_replica::bounds;
use primus_replica::message::Record;
use redb::{Database, ReadableDatabase, WriteTransaction};
use serde::{Deserialize, Serialize};

use self::backend::Backend;
use self::directory::{Directory, Mark, Refused};
pub use self::origin::Origin;
use self::tables::{Owner, Progress};
use crate::private::Exposed;
use crate::watched::{self, Broken};

/// The format of what this version writes. In the first one every record was a change of the register.
pub const FORMAT: u32 = 4;
/// The format before, which this version reads and makes its own: there a store knew its peers' disks, and no founding.
const FORMAT_BEFORE: u32 = 3;

/// How much of the database stays in memory. The log is in memory anyway; what is read here is the way to its end.
const CACHE_BYTES: usize = 2 << 20;

/// The log of one replica on disk.
#[derive(Debug)]
pub struct Store {
    directory: Directory,
    /// Nothing after a write failed; the next one opens it again.
    database: Option<(Database, Backend)>,
    progress: Progress,
    mark: Mark,
    /// Once a write could not be made durable, nobody knows what the disk has.
    is_broken: bool,
}

/// What [`Store::open`] found.
#[derive(Debug)]
pub struct Opened {
    /// The store, ready to be written.
    pub store: Store,
    /// Records that make the log that was written: its hard state, its snapshot and the entries that follow it.
    pub records: Vec<Record>,
    /// Which store this is; another one has another id, even in the same directory.
    pub store_id: StoreId,
    /// Has it just been made?
    pub is_new: bool,
    /// How far the founding of its cluster has come.
    pub origin: Origin,
}

/// Whose store it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The name of the cluster.
    pub cluster: String,
    /// The server in it.
    pub server: ServerId,
}

/// Names a store, at random: a server that comes back with another one has lost its disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StoreId(pub [u8; 16]);

/// Why a store cannot be opened. Nothing has been changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Somebody else has it open.
    #[error("{} is used by another process: stop that one, or give this server a directory of its own", dir.display())]
    InUse {
        /// The directory of the store.
        dir: PathBuf,
    },
    /// Other users could change what is in it.
    #[error(transparent)]
    Exposed(Exposed),
    /// The directory or something in it cannot be made or written.
    #[error("{} cannot be written ({source}): give it to the user that runs this server", dir.display())]
    NotWritable {
        /// The directory of the store.
        dir: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The disk does not do what it is told.
    #[error("{} cannot be used ({source}): look after the disk, then start this server again", dir.display())]
    Io {
        /// The directory of the store.
        dir: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is not what was written.
    #[error(
        "the store in {} is damaged ({what}): keep a copy of it, and replace this server by a new one", dir.display()
    )]
    Damaged {
        /// The directory of the store.
        dir: PathBuf,
        /// What was found.
        what: String,
    },
    /// It is whole, but older than what this server has promised.
    #[error(
        "the store in {} is out of date (it has {found} writes of {promised}): bring back the newest copy, or replace \
         this server by a new one", dir.display()
    )]
    OutOfDate {
        /// The directory of the store.
        dir: PathBuf,
        /// How many writes it has.
        found: u64,
        /// How many it must have.
        promised: u64,
    },
    /// It names a number that no cluster can have reached: a message that somebody forged has come this far.
    #[error(
        "the store in {} cannot be used ({what}): bring back a copy from before, or replace this server by a new one",
        dir.display()
    )]
    Absurd {
        /// The directory of the store.
        dir: PathBuf,
        /// What was found.
        what: String,
    },
    /// Another version of primus wrote it.
    #[error(
        "the store in {} has format {found}, and this version of primus reads format {FORMAT}: start the version that \
         wrote it", dir.display()
    )]
    OtherFormat {
        /// The directory of the store.
        dir: PathBuf,
        /// The format it has.
        found: u32,
    },
    /// It is of the format before, and this one cannot be written.
    #[error("the store of an older release cannot be taken over: {source}")]
    NotTakenOver {
        /// What the disk says.
        source: Box<WriteError>,
    },
    /// It belongs to another cluster.
    #[error(
        "the store in {} belongs to cluster {found:?} and not to {expected:?}: give this server another directory, or \
         correct the name of the cluster", dir.display()
    )]
    OtherCluster {
        /// The directory of the store.
        dir: PathBuf,
        /// Whose it is.
        found: String,
        /// Whose it should be.
        expected: String,
    },
    /// It belongs to another server of the cluster.
    #[error(
        "the store in {} belongs to server {found} and not to {expected}: give this server another directory, or \
         correct its id", dir.display()
    )]
    OtherServer {
        /// The directory of the store.
        dir: PathBuf,
        /// Whose it is.
        found: ServerId,
        /// Whose it should be.
        expected: ServerId,
    },
}

/// Why records are not known to be durable. They may be all the same: a failed write is unknown, never absent.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// There is no room. The same records can be written again when there is.
    #[error("the disk of {} is full: make room, and this server goes on", dir.display())]
    Full {
        /// The directory of the store.
        dir: PathBuf,
    },
    /// The system refused. The same records can be written again.
    #[error("{} cannot be written ({source}): look after the disk", dir.display())]
    Io {
        /// The directory of the store.
        dir: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// What was handed to the disk may or may not be on it, and asking again would not tell: stop.
    #[error("{} has lost writes: stop this server and look after the disk", dir.display())]
    Broken {
        /// The directory of the store.
        dir: PathBuf,
    },
    /// The database is not what was written.
    #[error("the store in {} is damaged ({what}): keep a copy of it, and replace this server by a new one", dir.display())]
    Damaged {
        /// The directory of the store.
        dir: PathBuf,
        /// What was found.
        what: String,
    },
    /// What writes has failed itself.
    #[error(transparent)]
    Failed(#[from] Broken),
}

impl OpenError {
    /// True if starting again as it is can only end the same way, or worse.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::OutOfDate { .. } | Self::Absurd { .. })
    }
}

impl Store {
    /// Opens the store in this directory, or makes one there if there is none.
    ///
    /// # Errors
    /// See [`OpenError`]; each says what to do.
    pub fn open(dir: &Path, identity: &Identity) -> Result<Opened, OpenError> {
        let directory = Directory::lock(dir).map_err(|refused| match refused {
            Refused::InUse => OpenError::InUse { dir: dir.to_owned() },
            Refused::Exposed(exposed) => OpenError::Exposed(exposed),
            Refused::Io(error) => Damage::Io(error).into_open_error(dir),
        })?;
        let mut found = guard(|| open(directory, identity)).map_err(|refusal| refusal.into_open_error(dir))?;
        if found.is_of_format_before {
            let kept = found.opened.store.keep_origin(&found.opened.origin);
            kept.map_err(|error| OpenError::NotTakenOver { source: Box::new(error) })?;
        }
        Ok(found.opened)
    }

    /// Where it lies.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Makes these records durable, all or none, and returns when they are.
    ///
    /// # Errors
    /// See [`WriteError`]. It is then unknown whether the records are on disk; writing them again is safe.
    ///
    /// # Panics
    /// If an entry leaves a gap in the log.
    pub fn write(&mut self, records: &[Record]) -> Result<(), WriteError> {
        if records.is_empty() {
            return Ok(());
        }
        self.commit(|transaction, progress| tables::write(transaction, progress, records))
    }

    /// Makes it durable how far the founding has come, and returns when it is.
    ///
    /// # Errors
    /// See [`WriteError`]. It may be kept or not; keeping it again is safe.
    pub fn keep_origin(&mut self, origin: &Origin) -> Result<(), WriteError> {
        self.commit(|transaction, progress| tables::write_origin(transaction, progress, (origin, FORMAT)))
    }

    fn commit(
        &mut self,
        change: impl FnOnce(&WriteTransaction, Progress) -> Result<Progress, redb::Error>,
    ) -> Result<(), WriteError> {
        self.try_commit(change).map_err(|damage| {
            self.is_broken |= self.database.take().is_some_and(|(_, backend)| backend.sync_failed());
            let dir = self.directory.path().to_owned();
            if self.is_broken { WriteError::Broken { dir } } else { damage.into_write_error(dir) }
        })
    }

    fn try_commit(
        &mut self,
        change: impl FnOnce(&WriteTransaction, Progress) -> Result<Progress, redb::Error>,
    ) -> Result<(), Damage> {
        if self.is_broken {
            return Err(Damage::of("a write was lost"));
        }
        if self.database.is_none() {
            self.reopen()?;
        }
        let (database, _) = self.database.as_ref().ok_or_else(|| Damage::of("it is closed"))?;
        let transaction = database.begin_write()?;
        let progress = change(&transaction, self.progress)?;
        transaction.commit()?;
        self.progress = progress;
        Ok(self.mark.set(progress.writes)?)
    }

    /// After a failed write the database is what it was before that write, or after it.
    fn reopen(&mut self) -> Result<(), Damage> {
        let promised = self.progress.writes;
        let (database, backend, progress) = guard(|| {
            let (database, backend) = open_database(&self.directory)?;
            let progress = tables::read_progress(&database.begin_read()?)?;
            Ok::<_, Damage>((database, backend, progress))
        })?;
        if progress.writes < promised || progress.writes > promised + 1 {
            return Err(Damage::of("a write is missing"));
        }
        backend.release()?;
        self.progress = progress;
        self.database = Some((database, backend));
        Ok(())
    }
}

/// What is found while opening, before it becomes an error that names the directory.
#[derive(Debug)]
enum Refusal {
    Damage(Damage),
    OutOfDate { found: u64, promised: u64 },
    Absurd(String),
    OtherFormat(u32),
    OtherCluster(String, String),
    OtherServer(ServerId, ServerId),
}

/// What can be wrong with a file.
#[derive(Debug)]
enum Damage {
    Io(io::Error),
    Content(String),
}

/// What is in a directory.
struct Found {
    opened: Opened,
    is_of_format_before: bool,
}

fn open(directory: Directory, identity: &Identity) -> Result<Found, Refusal> {
    let mark = directory.open_mark()?;
    if !directory.has_database()? {
        if mark.is_some() {
            return Err(Damage::of("the log is missing").into());
        }
        make_database(&directory, identity)?;
    }
    let (database, backend) = open_database(&directory)?;
    let found = read(&database, identity)?;
    let (mark, is_new) = match mark {
        Some(mark) => (check_mark(mark, &found)?, false),
        // A crash came between the database and its mark: nobody has used this store yet.
        None if found.progress.writes == 0 => (directory.make_mark(found.owner.store, 0)?, true),
        None => return Err(Damage::of("the mark is missing").into()),
    };
    backend.release()?;
    let Content { owner, progress, origin, records, is_of_format_before } = found;
    let store = Store { directory, database: Some((database, backend)), progress, mark, is_broken: false };
    let opened = Opened { store, records, store_id: owner.store, is_new, origin };
    Ok(Found { opened, is_of_format_before })
}

fn make_database(directory: &Directory, identity: &Identity) -> Result<(), Damage> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| Damage::Io(io::Error::other(error)))?;
    let owner = Owner { cluster: identity.cluster.clone(), server: identity.server.0, store: StoreId(id) };
    directory.make_database(|file| {
        let database = builder().create_with_backend(Backend::direct(file))?;
        let transaction = database.begin_write()?;
        tables::create(&transaction, FORMAT, &owner)?;
        Ok(transaction.commit()?)
    })
}

fn open_database(directory: &Directory) -> Result<(Database, Backend), Damage> {
    let backend = Backend::held(directory.open_database()?)?;
    if redb::StorageBackend::len(&backend)? == 0 {
        return Err(Damage::of("the log is empty"));
    }
    Ok((builder().create_with_backend(backend.clone())?, backend))
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// What is in a database.
struct Content {
    owner: Owner,
    progress: Progress,
    origin: Origin,
    records: Vec<Record>,
    is_of_format_before: bool,
}

fn read(database: &Database, identity: &Identity) -> Result<Content, Refusal> {
    let transaction = database.begin_read().map_err(Damage::from)?;
    let format = tables::read_format(&transaction)?;
    let is_of_format_before = format == FORMAT_BEFORE;
    if format != FORMAT && !is_of_format_before {
        return Err(Refusal::OtherFormat(format));
    }
    let owner = tables::read_owner(&transaction)?;
    if owner.cluster != identity.cluster {
        return Err(Refusal::OtherCluster(owner.cluster, identity.cluster.clone()));
    }
    if owner.server != identity.server.0 {
        return Err(Refusal::OtherServer(ServerId(owner.server), identity.server));
    }
    let progress = tables::read_progress(&transaction)?;
    let origin = match is_of_format_before {
        true => Origin::of_format_before(&tables::read_peers(&transaction)?, progress.is_blank()),
        false => tables::read_origin(&transaction)?,
    };
    let records = tables::read_records(&transaction, &progress)?;
    if let Some(what) = bounds::objection_to_records(&records) {
        return Err(Refusal::Absurd(what));
    }
    Ok(Content { owner, progress, origin, records, is_of_format_before })
}

fn check_mark(mark: Option<Mark>, found: &Content) -> Result<Mark, Refusal> {
    let mark = mark.ok_or_else(|| Damage::of("the mark cannot be read"))?;
    if mark.store != found.owner.store {
        return Err(Damage::of("the mark belongs to another store").into());
    }
    if mark.writes > found.progress.writes {
        return Err(Refusal::OutOfDate { found: found.progress.writes, promised: mark.writes });
    }
    Ok(mark)
}

/// The database answers most damage with an error, but not all of it.
fn guard<T, E: From<Damage>>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    watched::call("store", work).unwrap_or_else(|_| Err(Damage::of("the database cannot read it").into()))
}

impl Damage {
    fn of(what: impl Into<String>) -> Self {
        Self::Content(what.into())
    }

    fn into_open_error(self, dir: &Path) -> OpenError {
        let dir = dir.to_owned();
        match self {
            Self::Content(what) => OpenError::Damaged { dir, what },
            Self::Io(source) => match source.kind() {
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                    OpenError::NotWritable { dir, source }
                }
                _ => OpenError::Io { dir, source },
            },
        }
    }

    fn into_write_error(self, dir: PathBuf) -> WriteError {
        match self {
            Self::Content(what) => WriteError::Damaged { dir, what },
            Self::Io(source) => match source.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => WriteError::Full { dir },
                _ => WriteError::Io { dir, source },
            },
        }
    }
}

impl Refusal {
    fn into_open_error(self, dir: &Path) -> OpenError {
        let (dir, path) = (dir.to_owned(), dir);
        match self {
            Self::Damage(damage) => damage.into_open_error(path),
            Self::OutOfDate { found, promised } => OpenError::OutOfDate { dir, found, promised },
            Self::Absurd(what) => OpenError::Absurd { dir, what },
            Self::OtherFormat(found) => OpenError::OtherFormat { dir, found },
            Self::OtherCluster(found, expected) => OpenError::OtherCluster { dir, found, expected },
            Self::OtherServer(found, expected) => OpenError::OtherServer { dir, found, expected },
        }
    }
}

impl<E: Into<redb::Error>> From<E> for Damage {
    fn from(error: E) -> Self {
        match error.into() {
            // This is how the database says that a file is too short or is none of its own.
            redb::Error::Io(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidData) => {
                Self::Content(error.to_string())
            }
            redb::Error::Io(error) => Self::Io(error),
            error => Self::Content(error.to_string()),
        }
    }
}

impl<E: Into<Damage>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self::Damage(error.into())
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
