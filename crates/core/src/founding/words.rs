//! What servers say to each other during their founding, and what of it stays on their disks.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};

use crate::ServerId;
use crate::planted::Planted;

/// No list, record or memory of a peer is longer.
pub const SERVERS_MAX: usize = 64;

/// A disk: drawn at random when its store was made. A wiped disk gets another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct StoreId(pub [u8; 16]);

/// A cluster: it follows from the farm, its authority and the disks, so that no server chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct ClusterId(pub [u8; 16]);

/// A cluster as it is founded.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Record {
    /// Its name for ever.
    pub cluster: ClusterId,
    /// Its first members, with their disks.
    pub members: BTreeMap<ServerId, StoreId>,
}

/// How far a disk has come.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize)]
pub enum Phase {
    /// It belongs to no cluster.
    #[default]
    Empty,
    /// It would found this one; others may have done so already.
    Agreed(Record),
    /// It belongs to this one, for ever.
    Founded(Record),
}

/// What a server says of itself in every hello, and again whenever its phase changes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Claim {
    /// What is on its disk.
    pub phase: Phase,
    /// The servers that its configuration names, with itself.
    pub list: BTreeSet<ServerId>,
    /// Its disk.
    pub store: StoreId,
    /// For a disk with data of a release before foundings: the disks of the peers that it has met.
    pub remembers: Option<Disks>,
}

/// Servers and their disks.
pub type Disks = BTreeMap<ServerId, StoreId>;

/// The hash function behind cluster ids: SHA-256 in every process that ships. An exploration may use any function that keeps
/// different clusters apart.
#[derive(Debug, Clone, Copy)]
pub struct Digest(pub fn(&[u8]) -> [u8; 32]);

// All servers of a farm have the same one, so that it makes no difference between two machines.
impl PartialEq for Digest {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Digest {}

impl Hash for Digest {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// What all servers of a farm have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rules {
    /// The name of the farm.
    pub farm: String,
    /// What its authority is recognised by; nothing if its links are not encrypted.
    pub authority: Vec<u8>,
    /// How its clusters get their ids.
    pub digest: Digest,
    /// A known bug, to see whether the laboratory finds it.
    pub planted: Planted,
}

impl Rules {
    /// The founding record of these members.
    #[must_use]
    pub fn record(&self, members: Disks) -> Record {
        let mut bytes = Vec::new();
        // Lengths first, so that no two clusters are written alike.
        for part in [self.farm.as_bytes(), &self.authority] {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend(part);
        }
        for (id, store) in &members {
            bytes.extend(id.0.to_le_bytes());
            bytes.extend(store.0);
        }
        let digest = (self.digest.0)(&bytes);
        let cluster = ClusterId(core::array::from_fn(|place| digest[place]));
        Record { cluster, members }
    }
}

impl Record {
    /// Does this disk stand in it, under this number?
    #[must_use]
    pub fn names(&self, id: ServerId, store: StoreId) -> bool {
        self.members.get(&id) == Some(&store)
    }
}

impl Phase {
    /// The record of a founded disk.
    #[must_use]
    pub const fn founded(&self) -> Option<&Record> {
        match self {
            Self::Founded(record) => Some(record),
            Self::Empty | Self::Agreed(_) => None,
        }
    }

    /// The record of a disk that has agreed and is not founded.
    #[must_use]
    pub const fn agreed(&self) -> Option<&Record> {
        match self {
            Self::Agreed(record) => Some(record),
            Self::Empty | Self::Founded(_) => None,
        }
    }
}

impl Claim {
    /// True if no part of it is longer than a peer can need.
    pub(super) fn is_short(&self) -> bool {
        let record = self.phase.founded().or(self.phase.agreed());
        let parts = [record.map_or(0, |record| record.members.len()), self.list.len()];
        let remembered = self.remembers.as_ref().map_or(0, BTreeMap::len);
        parts.into_iter().chain([remembered]).all(|len| len <= SERVERS_MAX)
    }

    /// The disks of these servers as an old disk remembers them, its own among them; `None` if it does not know them all.
    pub(super) fn view(&self, own: ServerId, list: &BTreeSet<ServerId>) -> Option<Disks> {
        let remembered = self.remembers.as_ref()?;
        let disk = |id| if id == own { Some(self.store) } else { remembered.get(&id).copied() };
        list.iter().map(|id| Some((*id, disk(*id)?))).collect()
    }
}

/// The first eight digits, as people compare them: `3f9c-27b1`.
fn write_short(f: &mut fmt::Formatter<'_>, [a, b, c, d, ..]: &[u8; 16]) -> fmt::Result {
    write!(f, "{a:02x}{b:02x}-{c:02x}{d:02x}")
}

fn write_list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: impl Iterator<Item = T>) -> fmt::Result {
    for (place, item) in items.enumerate() {
        let gap = if place > 0 { "," } else { "" };
        write!(f, "{gap}{item}")?;
    }
    Ok(())
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_short(f, &self.0)
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_short(f, &self.0)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("empty"),
            Self::Agreed(record) => write!(f, "agreed {}", record.cluster),
            Self::Founded(record) => write!(f, "founded {}", record.cluster),
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {} of ", self.phase, self.store)?;
        write_list(f, self.list.iter())?;
        let Some(remembered) = &self.remembers else { return Ok(()) };
        f.write_str(" remembers ")?;
        write_list(f, remembered.iter().map(|(id, store)| format!("{id}={store}")))
    }
}
