//! The numbers that name things. Each is a type of its own, so that a round is never taken for a node.

use core::fmt;

/// A node of an election, and at the same time the identifier that elections by id compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NodeId(pub u64);

/// The number of an election. It only grows; a message of an older round is stale.
///
/// Rounds are not terms: nobody ratifies them, and two sides of a partition may count to different numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
