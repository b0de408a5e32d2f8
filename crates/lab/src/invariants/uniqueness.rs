//! Uniqueness: in the end exactly one node leads.

use super::Evidence;

/// Applies once the faults have ended: during a partition both sides have a leader, as without a quorum they must.
#[must_use]
pub fn holds(evidence: &Evidence<'_>) -> Option<bool> {
    let is_dead = evidence.outcome.table.is_empty();
    (evidence.faults_ended && !is_dead).then(|| evidence.outcome.leaders_at_end().count() == 1)
}
