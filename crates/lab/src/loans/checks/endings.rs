//! Endings: every loan ends once both farms are reachable and faults are over, and no task is left.

use primus_core::ledger::Ledger;

use super::super::host::FarmId;
use super::Judgement;

pub(super) fn is_at_rest(truth: &Ledger) -> bool {
    let (counts, loans) = (truth.counts(), truth.loans());
    counts.waiting + counts.started == 0 && loans.lent().is_empty() && loans.borrowed().is_empty()
}

pub(super) fn check(farm: FarmId, truth: &Ledger) -> Judgement {
    if let Some((loan, lent)) = truth.loans().lent().first_key_value() {
        return Err(format!("in the end farm {farm} still lends {} to {} under loan {loan}", lent.worker, lent.to));
    }
    match truth.loans().borrowed().first_key_value() {
        None => Ok(()),
        Some((worker, borrowed)) => {
            Err(format!("in the end farm {farm} still has borrowed {worker} under loan {}", borrowed.loan))
        }
    }
}
