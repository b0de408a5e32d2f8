//! What went wrong between a client and its farm, before the operation says what that means for it.

use primus_client::Kind;
use primus_core::retry::Fate;
use primus_node::handle::Unable;

/// Whose fault it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The program's: what it asks makes no sense.
    Wrong(String),
    /// There is no such thing.
    NotFound,
    /// The key of a job belongs to another one.
    KeyTaken(String),
    /// There is no room at the moment.
    Full(String),
    /// The server does not allow it.
    NotAllowed(String),
    /// No server can do it at the moment. Nothing was done.
    Unavailable(String),
    /// It may have been done.
    Unknown(String),
}

impl Trouble {
    /// What became of the request.
    pub(crate) const fn fate(&self) -> Fate {
        match self {
            Self::Unavailable(_) => Fate::NotTaken,
            Self::Unknown(_) => Fate::Unknown,
            Self::Wrong(_) | Self::NotFound | Self::KeyTaken(_) | Self::Full(_) | Self::NotAllowed(_) => {
                Fate::Refused
            }
        }
    }
}

impl From<Unable> for Trouble {
    fn from(unable: Unable) -> Self {
        let words = unable.to_string();
        match unable {
            Unable::TooLong => Self::Wrong(words),
            Unable::DiskFull | Unable::DisksFull | Unable::StateFull(_) => Self::Full(words),
            Unable::Unknown => Self::Unknown(words),
            Unable::NotLeading(_)
            | Unable::NoLeader
            | Unable::Busy
            | Unable::NotTransferred(_)
            | Unable::NoWorker => Self::Unavailable(words),
        }
    }
}

impl From<primus_client::Error> for Trouble {
    fn from(error: primus_client::Error) -> Self {
        let words = error.to_string();
        match (error.kind(), error.code()) {
            (_, "not_found") => Self::NotFound,
            (_, "other_job") => Self::KeyTaken(words),
            (_, "queue_full" | "disk_full" | "state_full") => Self::Full(words),
            (Kind::Usage, _) => Self::Wrong(words),
            (Kind::NotAllowed, _) => Self::NotAllowed(words),
            (Kind::Unreachable | Kind::NotNow, _) => Self::Unavailable(words),
            (Kind::Failed, _) => Self::Unknown(words),
        }
    }
}
