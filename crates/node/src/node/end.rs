//! Why a server ends by itself, and whether it may be started again as it is.

use primus_core::ServerId;
use primus_core::founding::ClusterId;

use crate::store::WriteError;
use crate::watched::Broken;

/// Why a server ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// Its disk has failed: a server that cannot write must not go on.
    #[error(transparent)]
    Disk(#[from] WriteError),
    /// A part of it has failed.
    #[error("this server cannot go on, {0}")]
    Part(#[from] Broken),
    /// Nothing says where a member of its cluster is.
    #[error(
        "server {server} is a member of cluster {cluster}, and nothing says where it is: add it to cluster.servers"
    )]
    NoAddress {
        /// The member.
        server: ServerId,
        /// The cluster.
        cluster: ClusterId,
    },
    /// It was founded with others than its list names: it was told to begin alone, or words of an earlier start were under way.
    #[error("cluster {0} is founded, and its members are not those of the list: start this server again")]
    OtherMembers(ClusterId),
    /// It has less than it acknowledged.
    #[error(
        "server {leader} knows that this one has acknowledged {index} entries of the log, and here are {last}: the data \
         directory is older than it was"
    )]
    Forgotten {
        /// Who leads.
        leader: ServerId,
        /// What was acknowledged.
        index: u64,
        /// What there is.
        last: u64,
    },
    /// It has taken over a state that it cannot read.
    #[error(
        "the state at entry {0} of the log cannot be read: another version of primus, or a stranger, has made it"
    )]
    Unreadable(u64),
}

impl EndError {
    /// True if starting the server again as it is can only end the same way, or worse.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        match self {
            Self::Disk(error) => matches!(error, WriteError::Damaged { .. } | WriteError::Failed(_)),
            Self::NoAddress { .. } | Self::OtherMembers(_) => false,
            Self::Part(_) | Self::Forgotten { .. } | Self::Unreadable(_) => true,
        }
    }
}
