//! Agreement: all live nodes name the same leader, and that one leads.

use super::Evidence;

/// Applies once the faults have ended.
#[must_use]
pub fn holds(evidence: &Evidence<'_>) -> Option<bool> {
    let is_dead = evidence.outcome.table.is_empty();
    (evidence.faults_ended && !is_dead).then(|| evidence.outcome.agreed_leader().is_some())
}
