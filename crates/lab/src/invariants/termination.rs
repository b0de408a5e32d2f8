//! Termination: every election ends, and every live node ends *defined* (election theory calls it liveness).

use super::Evidence;

/// Always applies: an election that goes on for ever is wrong whatever the faults were.
#[must_use]
pub fn holds(evidence: &Evidence<'_>) -> Option<bool> {
    let all_defined = evidence.outcome.table.iter().all(|(_, leader)| leader.is_some());
    Some(evidence.outcome.settled && all_defined)
}
