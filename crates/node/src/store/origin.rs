//! What a disk keeps of the founding of its cluster.

use std::collections::BTreeMap;

use primus_core::ServerId;
use primus_core::founding::{self, Disks, Phase, Record};
use serde::{Deserialize, Serialize};

use super::StoreId;
use super::tables::Peers;

/// How the cluster of a disk began, or how far it has come with that.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Origin {
    /// How far this disk has come.
    pub phase: Phase,
    /// Where the servers were when it agreed on them.
    pub addresses: BTreeMap<ServerId, String>,
    /// For a disk with data of a release before foundings: the disks of the peers that it has met.
    pub remembers: Option<Disks>,
    /// What the farm's authority was recognised by then; nothing if links are not encrypted.
    pub authority: Option<[u8; 32]>,
}

impl Origin {
    /// That of a store of the format before. One with which nothing was ever promised is as good as a new one.
    pub(super) fn of_format_before(peers: &Peers, is_blank: bool) -> Self {
        let disks = peers.iter().map(|(id, store)| (ServerId(*id), founding::StoreId::from(*store)));
        let remembers = (!is_blank || !peers.is_empty()).then(|| disks.collect());
        Self { remembers, ..Self::default() }
    }

    /// What its servers have founded.
    #[must_use]
    pub const fn founded(&self) -> Option<&Record> {
        self.phase.founded()
    }
}

impl From<StoreId> for founding::StoreId {
    fn from(StoreId(bytes): StoreId) -> Self {
        Self(bytes)
    }
}
