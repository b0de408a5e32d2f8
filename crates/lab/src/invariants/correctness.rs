//! Correctness: the leader is the best-ranked live node.

use super::Evidence;

/// Applies once the faults have ended, where it is determined who should lead: not where a worse leader may stay.
#[must_use]
pub fn holds(evidence: &Evidence<'_>) -> Option<bool> {
    let best = evidence.best.filter(|_| evidence.faults_ended)?;
    Some(
        evidence.outcome.leaders_at_end().all(|leader| leader == best)
            && evidence.outcome.agreed_leader() == Some(best),
    )
}
