//! What a run calls its hosts.

use std::fmt;

use primus_core::{ServerId, WorkerId};

/// A server or a worker of a run, where either is meant. No two of a run have the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl NodeId {
    /// It is a server, and its machines know it as this one.
    #[must_use]
    pub const fn server(self) -> ServerId {
        ServerId(self.0)
    }

    /// It is a worker, and foremen know it as this one.
    #[must_use]
    pub const fn worker(self) -> WorkerId {
        WorkerId(self.0)
    }
}

impl From<ServerId> for NodeId {
    fn from(server: ServerId) -> Self {
        Self(server.0)
    }
}

impl From<WorkerId> for NodeId {
    fn from(worker: WorkerId) -> Self {
        Self(worker.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
