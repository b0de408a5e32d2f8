//! What happens to a worker.

use std::fmt;

use primus_core::ServerId;
use primus_node::worker::Happening;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// What happens to a worker, one after the other: from [`Worker::events`](crate::Worker::events). The worker waits for nothing
/// that listens.
#[derive(Debug)]
pub struct WorkerEvents(broadcast::Receiver<Happening>);

/// Something that happened to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerEvent {
    /// It works for this server, which leads in this term.
    Serves {
        /// The leader.
        leader: ServerId,
        /// The number of its leadership.
        term: u64,
    },
    /// The server that it worked for does not lead any more, or is gone.
    LostLeader(ServerId),
    /// A server does not want it.
    Refused {
        /// The server.
        by: ServerId,
        /// Why.
        reason: String,
    },
    /// The name of a server does not resolve. It is tried again.
    Unresolved {
        /// The server.
        server: ServerId,
        /// What the resolver says.
        reason: String,
    },
    /// It is lent to this farm, and works for it from now on.
    Lent(String),
    /// It works for its own farm again.
    Home,
    /// It cannot work for another farm.
    CannotGo {
        /// The farm.
        farm: String,
        /// Why.
        reason: String,
    },
    /// So many events are left out here: more happened than was listened to.
    Missed(u64),
}

impl WorkerEvents {
    pub(super) const fn new(heard: broadcast::Receiver<Happening>) -> Self {
        Self(heard)
    }

    /// The next event. Nothing once the worker has ended.
    pub async fn next(&mut self) -> Option<WorkerEvent> {
        match self.0.recv().await {
            Ok(happening) => Some(WorkerEvent::of(happening)),
            Err(RecvError::Lagged(count)) => Some(WorkerEvent::Missed(count)),
            Err(RecvError::Closed) => None,
        }
    }
}

impl WorkerEvent {
    fn of(happening: Happening) -> Self {
        match happening {
            Happening::Serves(leader, term) => Self::Serves { leader, term: term.0 },
            Happening::LostLeader(leader) => Self::LostLeader(leader),
            Happening::Refused(by, reason) => Self::Refused { by, reason },
            Happening::Unresolved(server, reason) => Self::Unresolved { server, reason },
            Happening::Lent(farm, _) => Self::Lent(farm),
            Happening::Home(_) => Self::Home,
            Happening::CannotGo(farm, reason) | Happening::RefusedAbroad(farm, _, reason) => {
                Self::CannotGo { farm, reason }
            }
        }
    }
}

impl fmt::Display for WorkerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serves { leader, term } => write!(f, "works for server {leader}, which leads in term {term}"),
            Self::LostLeader(leader) => write!(f, "has lost server {leader}"),
            Self::Refused { by, reason } => write!(f, "server {by} refuses it: {reason}"),
            Self::Unresolved { server, reason } => write!(f, "has no link to server {server}: {reason}"),
            Self::Lent(farm) => write!(f, "is lent to {farm}"),
            Self::Home => f.write_str("is home again"),
            Self::CannotGo { farm, reason } => write!(f, "cannot work for {farm}: {reason}"),
            Self::Missed(count) => write!(f, "{count} more events"),
        }
    }
}
