//! Why a server is not founded yet, in one sentence: on stderr, in `/readyz` and in the status alike.

use alloc::collections::BTreeSet;
use alloc::string::String;
use core::fmt;

use super::words::ClusterId;
use crate::ServerId;

/// What a server that is not founded waits for, or why it will not be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A peer has to be heard.
    Missing {
        /// The farm.
        farm: String,
        /// The first of those that have to be heard.
        server: ServerId,
        /// Where it is looked for.
        address: String,
        /// What became of that.
        absence: Absence,
        /// Who has to run.
        need: Need,
    },
    /// A peer that is heard has not agreed on the same yet.
    Undecided {
        /// The farm.
        farm: String,
        /// The peer.
        server: ServerId,
    },
    /// A list of one has to be told that it is alone.
    Alone {
        /// The farm.
        farm: String,
    },
    /// Two servers are configured with different lists.
    ListsDiffer {
        /// The peer.
        server: ServerId,
        /// Its list.
        theirs: BTreeSet<ServerId>,
        /// The list here.
        ours: BTreeSet<ServerId>,
    },
    /// The list was edited after the disk had agreed.
    ListEdited {
        /// With whom the disk has agreed.
        agreed: BTreeSet<ServerId>,
        /// The list here.
        ours: BTreeSet<ServerId>,
    },
    /// A peer is founded, and without this disk.
    Belongs {
        /// The peer.
        server: ServerId,
        /// Its cluster.
        cluster: ClusterId,
        /// What to do there.
        remedy: Remedy,
    },
    /// A peer has old data, and this disk has none.
    OldDataElsewhere {
        /// The peer.
        server: ServerId,
    },
    /// This disk has old data, and too few others have the same.
    OldDataTooFew {
        /// The farm.
        farm: String,
        /// The list here.
        ours: BTreeSet<ServerId>,
    },
}

/// Why a peer is not heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Absence {
    /// It has not been dialled since the start, or since its link was lost.
    #[default]
    NotDialled,
    /// Its host is there, and no process listens.
    Refuses,
    /// There is no answer.
    Silent,
    /// Its address is a name, and that leads nowhere.
    Nowhere,
    /// It answers, and one of the two refuses the other: what the link was refused for is said beside this.
    Objects,
}

/// Who has to run so that a cluster can be founded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Need {
    /// All servers of the list, and none has agreed yet.
    All,
    /// All servers of the list, because this one has agreed with them: some may be founded already.
    Agreed,
    /// A majority with old data.
    Majority,
}

/// What a person can do about a server that found a cluster without its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Remedy {
    /// It is not a member.
    Add,
    /// It is one, and its disk was lost.
    Replace(ServerId),
}

impl Reason {
    /// True if it passes by itself, or another one follows within a second.
    #[must_use]
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::Missing { absence: Absence::NotDialled, .. })
    }

    /// True if a person has to do something about the configuration or the disks.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        !matches!(self, Self::Missing { .. } | Self::Undecided { .. })
    }
}

/// Numbers as people write them: `1, 2, 3`.
struct Listed<'a>(&'a BTreeSet<ServerId>);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, id) in self.0.iter().enumerate() {
            let gap = if place > 0 { ", " } else { "" };
            write!(f, "{gap}{id}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { farm, server, address, absence, need } => {
                write!(f, "waits to found farm {farm}: server {server} ({address}) {absence}. {need}")
            }
            Self::Undecided { farm, server } => {
                write!(f, "waits to found farm {farm}: server {server} has not agreed on the same disks yet")
            }
            Self::Alone { farm } => {
                write!(f, "waits to found farm {farm} with one server: say so once, with primus init --alone")
            }
            Self::ListsDiffer { server, theirs, ours } => {
                let (theirs, ours) = (Listed(theirs), Listed(ours));
                write!(f, "server {server} lists {theirs}; here are {ours}: make the lists equal")
            }
            Self::ListEdited { agreed, ours } => {
                let (agreed, ours) = (Listed(agreed), Listed(ours));
                write!(
                    f,
                    "this disk has agreed to found a cluster of {agreed}; here are {ours}: \
                     make the list as it was, or begin with an empty directory"
                )
            }
            Self::Belongs { server, cluster, remedy } => write!(
                f,
                "server {server} belongs to cluster {cluster} already: an empty server founds nothing beside it. \
                 {remedy}"
            ),
            Self::OldDataElsewhere { server } => write!(
                f,
                "server {server} has the data of an older release: an empty server founds nothing beside them. \
                 Bring back the data of this server"
            ),
            Self::OldDataTooFew { farm, ours } => write!(
                f,
                "waits to take over the data of farm {farm}: a majority of {} must have them, and remember the same \
                 disks of all",
                Listed(ours)
            ),
        }
    }
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotDialled => "is not dialled yet",
            Self::Refuses => "refuses connections",
            Self::Silent => "is silent",
            Self::Nowhere => "has a name that does not resolve",
            Self::Objects => "and this one refuse each other, as the refused link says",
        })
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "All must run once; to begin without it, see primus init",
            Self::Agreed => "All must run once more, because this server has agreed with it",
            Self::Majority => "A majority must run with its old data",
        })
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add => f.write_str(
                "A cluster keeps the members that it began with: stop this server, or give it a farm of its own",
            ),
            Self::Replace(server) => {
                write!(f, "Bring back the data of server {server}; until then the others go on without it")
            }
        }
    }
}
