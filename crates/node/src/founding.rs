//! How a server comes to belong to a cluster, before it does anything else there: the shell around the machine of
//! [`primus_core::founding`].
//!
//! A server that is not founded yet calls all servers of its list (`calls.rs`) and hears how far they are; each says so to every
//! server of its farm that calls (`founders.rs`), a founded one as well. What the machine decides is on the disk before it is said
//! (`driver.rs`). Once the disk belongs to a cluster, the members of that cluster count, and not the list (`members.rs`).
//!
//! What is not here: the links over which founded servers talk, and what they talk about. They wait until then.

mod alone;
mod calls;
mod driver;
mod founders;
mod members;
mod security;

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use primus_core::ServerId;
use primus_core::founding::{Claim, ClusterId, Record};
use tokio::sync::watch;

pub(crate) use alone::begin_alone;
pub(crate) use driver::{Beginning, Begun, founded, start};
pub(crate) use founders::Founders;
pub(crate) use members::{adopt, with_addresses};
pub use security::OtherSecurity;
pub(crate) use security::{check_security, keep_security};

use crate::private;
use crate::store::{Origin, StoreId};

/// What a person can tell a server about its founding: as a file in its directory, whether it runs or not. The server removes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// To found its farm without the others of its list.
    Alone,
    /// To encrypt the links of a farm that was founded without.
    Secure,
}

impl Order {
    /// Gives it to the server of this directory.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn give(self, dir: &Path) -> io::Result<()> {
        private::own_folder(dir)?;
        private::write(&dir.join(self.file()), "made by primus init\n")
    }

    pub(crate) fn is_given(self, dir: &Path) -> bool {
        dir.join(self.file()).exists()
    }

    /// It has been carried out, or cannot be.
    pub(crate) fn is_over(self, dir: &Path) {
        _ = fs::remove_file(dir.join(self.file()));
    }

    const fn file(self) -> &'static str {
        match self {
            Self::Alone => "begin-alone",
            Self::Secure => "begin-secured",
        }
    }
}

/// How a server stands to its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It is a member of this one.
    Member(ClusterId),
    /// It belongs to none yet, and this is why.
    Waiting(Arc<str>),
}

/// What a server shows of its founding: to other servers and to people.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) claim: watch::Sender<Claim>,
    pub(crate) standing: watch::Sender<Standing>,
}

impl Shown {
    /// What is shown of this disk to begin with.
    pub(crate) fn new(origin: &Origin, store: StoreId, list: impl Iterator<Item = ServerId>) -> Self {
        let standing = match origin.founded() {
            Some(record) => Standing::Member(record.cluster),
            None => Standing::Waiting("it has just started, and belongs to no cluster yet".into()),
        };
        let (phase, remembers) = (origin.phase.clone(), origin.remembers.clone());
        let claim = Claim { phase, list: list.collect(), store: store.into(), remembers };
        Self { claim: watch::Sender::new(claim), standing: watch::Sender::new(standing) }
    }

    /// The server belongs to this cluster, and its control part has begun.
    pub(crate) fn become_member(&self, claim: Claim, record: &Record) {
        self.standing.send_replace(Standing::Member(record.cluster));
        self.claim.send_replace(claim);
    }
}

/// A server of a cluster that has these disks.
#[cfg(test)]
pub(crate) fn founded_with(
    id: ServerId,
    disks: impl Iterator<Item = (ServerId, [u8; 16])>,
) -> watch::Receiver<Claim> {
    use primus_core::founding::{Digest, Disks, Phase, Rules, StoreId};
    use primus_core::planted::Planted;
    use primus_identity::hash::sha256;

    let digest = Digest(sha256);
    let rules = Rules { farm: "test".to_owned(), authority: Vec::new(), digest, planted: Planted::default() };
    let disks: Disks = disks.map(|(id, disk)| (id, StoreId(disk))).collect();
    let phase = if disks.is_empty() { Phase::Empty } else { Phase::Founded(rules.record(disks.clone())) };
    let store = disks.get(&id).copied().unwrap_or(StoreId([0; 16]));
    watch::channel(Claim { phase, list: disks.keys().copied().collect(), store, remembers: None }).1
}
