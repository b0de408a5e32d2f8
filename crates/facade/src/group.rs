//! What only one of many may do at a time, or only so many of them.

use primus_core::ledger::GroupRank;
use primus_core::ledger::groups::HOLDERS_MAX;
use primus_node::group::{self, Turn, Unguarded};

/// A way to take part in a group, from [`Server::group`](crate::Server::group).
///
/// Two candidates never hold a group with one place at once, though no two clocks are compared; what stops or is cut off loses it.
#[derive(Debug, Clone)]
#[must_use = "a group does nothing until something is guarded"]
pub struct Group(pub(crate) group::Group);

/// Why a future is not guarded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuardError {
    /// Your program's mistake: a name of the group or the candidate that cannot be used.
    #[error("{0:?} cannot name a group or a candidate")]
    Name(String),
    /// Your program's mistake: a number of holders that makes no sense.
    #[error("1 to {HOLDERS_MAX} candidates can hold a group at once, not {0}")]
    Holders(u16),
    /// The other candidates' word against this one's: for them the group has another rank or another number of holders.
    #[error("{0}")]
    Refused(String),
    /// The server through which the future was guarded has ended, or is about to.
    #[error("the server through which this was guarded has ended")]
    Ended,
}

impl Group {
    /// Sets which candidate comes first: by default the one on the least loaded host. All candidates must agree.
    pub fn rank(self, rank: GroupRank) -> Self {
        Self(self.0.rank(rank))
    }

    /// Sets how many candidates hold the group at once: by default one. All candidates must agree.
    pub fn holders(self, holders: u16) -> Self {
        Self(self.0.holders(holders))
    }

    /// Sets what people call this candidate.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self(self.0.name(name))
    }

    /// Waits for this candidate's turn, runs the future then, and gives back what it gives.
    ///
    /// The future is dropped, at a point where it awaits something, before another candidate may begin; another future is made
    /// when it is this candidate's turn again. A future that computes for long without awaiting should look at
    /// [`Turn::remaining`]. Dropping what this returns drops the future and gives the group back.
    ///
    /// # Errors
    /// See [`GuardError`].
    pub async fn guard<T, F: Future<Output = T>>(self, work: impl FnMut(Turn) -> F) -> Result<T, GuardError> {
        self.0.guard(work).await.map_err(|unguarded| match unguarded {
            Unguarded::Name(name) => GuardError::Name(name),
            Unguarded::Holders(holders) => GuardError::Holders(holders),
            Unguarded::Refused(objection) => GuardError::Refused(objection.to_string()),
            Unguarded::Ended => GuardError::Ended,
        })
    }
}
