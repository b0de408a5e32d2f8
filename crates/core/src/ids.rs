//! The numbers that name things. Each is a type of its own, so that a worker is never taken for a server.

use core::cmp::Ordering;
use core::fmt;

use serde::{Deserialize, Serialize};

/// A server of a cluster, or a member of any other election, and at the same time the identifier that elections by id compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerId(pub u64);

/// A worker as one server knows it, by its link: when it comes again on another link, it is another number. What it is called
/// stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u64);

/// A neighbour: its place in the list of those that a farm is configured with, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FarmId(pub u64);

/// A candidate for leases: one process, or one part of it, for as long as it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId(pub u64);

/// The number of a leadership. At most one leader of a farm has it. It means nothing beside a term of another farm: see [`Fence`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Term(pub u64);

/// A term, and whose it is. Of two farms' terms none is older, so they cannot be put in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fence {
    /// Whose leader it is.
    pub farm: FarmId,
    /// In which term it leads.
    pub term: Term,
}

impl PartialOrd for Fence {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self.farm == other.farm).then(|| self.term.cmp(&other.term))
    }
}

impl FarmId {
    /// The farm that somebody belongs to, beside its neighbours.
    pub const OWN: Self = Self(0);
}

/// The number of an election. It only grows; a message of an older round is stale.
///
/// Rounds are not terms: nobody ratifies them, and two sides of a partition may count to different numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Round(pub u64);

impl Round {
    /// The round of a node that has taken part in none, or of a foreign message that names none.
    pub const UNKNOWN: Self = Self(0);

    /// The round after this one. It stops at the largest number instead of starting again at zero, where
    /// everything would be stale; a peer that sends such a number can stop elections, but not break them.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

macro_rules! shown_as_a_number {
    ($($id:ty),*) => {$(
        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

shown_as_a_number!(ServerId, WorkerId, FarmId, SessionId, Term, Round);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_of_two_farms_have_no_order() {
        let fence = |farm, term| Fence { farm: FarmId(farm), term: Term(term) };
        assert!(fence(1, 2) < fence(1, 3));
        assert_eq!(fence(1, 2).partial_cmp(&fence(2, 3)), None);
        assert!(fence(1, 2) >= fence(1, 2));
    }
}
