//! Who should lead. The slow twin of every election: it sees all nodes at once and simply takes the best.

use std::collections::BTreeMap;

use primus_core::ServerId;
use primus_core::election::{bully, ring};
use primus_core::load::Score;

/// The best-ranked of the live nodes in a Bully election, with the scores that they have.
#[must_use]
pub fn best_by_rank(
    rules: &bully::Rules,
    scores: &BTreeMap<ServerId, Score>,
    live: &[ServerId],
) -> Option<ServerId> {
    let score = |id| scores.get(&id).copied().unwrap_or_default();
    live.iter().map(|id| rules.rank_of(*id, score(*id))).max().map(|best| best.id)
}

/// The lowest or the highest of the live members of a ring.
#[must_use]
pub fn best_in_ring(rules: &ring::Rules, live: &[ServerId]) -> Option<ServerId> {
    match rules.winner {
        ring::Winner::Lowest => live.iter().min().copied(),
        ring::Winner::Highest => live.iter().max().copied(),
    }
}
