//! Termination: every election ends, and every live node ends *defined* (election theory calls it liveness).

use super::Evidence;

/// In a partition that stays, two leaders may depose each other for ever. Nobody may be without any for longer than this.
const UNDEFINED_US_MAX: u64 = 5_000_000;

/// Always applies. While a fault lasts, a node may start again and again, as long as it does not wait for ever.
#[must_use]
pub fn holds(evidence: &Evidence<'_>) -> Option<bool> {
    let outcome = evidence.outcome;
    if !evidence.faults_ended && !outcome.settled {
        return Some(outcome.undefined_us <= UNDEFINED_US_MAX);
    }
    Some(outcome.settled && outcome.table.iter().all(|(_, leader)| leader.is_some()))
}
