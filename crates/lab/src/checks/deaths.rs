//! Deaths: nobody is taken for dead whom its own farm sees, or whom the borrower has had for so long that its owner must know.

use primus_core::ledger::Lent;

use super::Judgement;

/// What a borrower said last counts for two seconds, and a leader may have stood still in between.
const KNOWN_AFTER_US: u64 = 6_000_000;

pub(super) fn check(lent: &Lent, borrowed_since_us: Option<u64>, now_us: u64) -> Judgement {
    if !lent.is_missing {
        return Err(format!("{} is taken for dead, and its own farm sees it", lent.worker));
    }
    match borrowed_since_us {
        Some(since_us) if since_us + KNOWN_AFTER_US < now_us => {
            Err(format!("{} is taken for dead, and {} has had it since {since_us} µs", lent.worker, lent.to))
        }
        _ => Ok(()),
    }
}
