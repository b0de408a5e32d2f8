//! Directories that vanish after a test, and small things to write.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use primus_core::ServerId;
use primus_core::founding::{self, ClusterId, Phase};
use primus_node::store::{Identity, OpenError, Opened, Origin, Store};
use primus_replica::log::Log;
use primus_replica::message::{Entry, HardState, Record, Snapshot};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A directory of its own.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("primus-store-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// What a crash at this moment would leave.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::new();
        for file in fs::read_dir(&self.0).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), copy.0.join(file.file_name())).unwrap();
        }
        copy
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn identity() -> Identity {
    Identity { cluster: "farm".to_owned(), server: ServerId(1) }
}

/// A cluster of this store and another one.
pub(crate) fn record() -> founding::Record {
    let members = [1, 2].map(|id| (ServerId(id), founding::StoreId([id as u8; 16])));
    founding::Record { cluster: ClusterId([7; 16]), members: members.into() }
}

/// The disk of a server of that cluster.
pub(crate) fn origin() -> Origin {
    let addresses = [(ServerId(2), "10.0.0.2:7460".to_owned())].into();
    Origin { phase: Phase::Founded(record()), addresses, authority: Some([9; 32]), ..Origin::default() }
}

pub(crate) fn open(dir: &Path) -> Opened {
    try_open(dir).unwrap()
}

pub(crate) fn try_open(dir: &Path) -> Result<Opened, OpenError> {
    Store::open(dir, &identity())
}

pub(crate) fn entry(index: u64, term: u64) -> Record {
    Record::Append(Entry { index, term, data: Bytes::from(format!("entry {index} of term {term}")) })
}

pub(crate) fn hard_state(term: u64, commit: u64) -> Record {
    Record::HardState(HardState { term, vote: 1, commit })
}

pub(crate) fn snapshot(index: u64, term: u64) -> Record {
    Record::Snapshot(Snapshot { index, term, data: Bytes::from(vec![7; 10_000]) })
}

/// What can be seen of a log.
pub(crate) type View = (Vec<Entry>, u64, HardState, Option<Snapshot>);

/// The log that records make, save that its commit index is never behind its snapshot.
pub(crate) fn view(log: &Log) -> View {
    let mut state = log.hard_state();
    state.commit = state.commit.max(log.snapshot().map_or(0, |snapshot| snapshot.index));
    (log.entries().collect(), log.last(), state, log.snapshot().cloned())
}

pub(crate) fn view_of(records: Vec<Record>) -> View {
    view(&Log::new(vec![1], records))
}
