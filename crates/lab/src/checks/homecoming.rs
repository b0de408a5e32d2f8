//! Homecoming: a lender takes a worker for its own again only when it is back; and whoever is away is lent, or was taken for dead.

use primus_core::ledger::{Lent, LoanId};
use primus_core::loan::Placement;

use super::{Judgement, LoanName};

/// The lender says that the worker is back. If it has died since it said so, it will be at home when it starts again.
pub(super) fn on_back(lent: &Lent, loan: LoanId, placement: Option<&Placement>) -> Judgement {
    let Some(placement) = placement else { return Ok(()) };
    if placement.farm().is_none() && placement.epoch() >= loan {
        return Ok(());
    }
    let place = placement.farm().unwrap_or("home");
    Err(format!(
        "loan {loan} is over, and {} is at {place} and has followed calls up to {}",
        lent.worker,
        placement.epoch()
    ))
}

/// The worker goes.
pub(super) fn on_go(worker: &str, (farm, loan): LoanName, lent: Option<&Lent>, is_dead: bool) -> Judgement {
    if is_dead || lent.is_some_and(|lent| lent.worker == worker) {
        return Ok(());
    }
    Err(format!("{worker} goes under loan {loan} of farm {farm}, which is over"))
}
