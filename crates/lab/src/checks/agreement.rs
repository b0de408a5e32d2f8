//! Agreement: servers that have applied the same entries have the same ledger.

use primus_core::ledger::Ledger;

use super::Judgement;
use crate::node::NodeId;

pub(super) fn check(server: NodeId, ledger: &Ledger, truth: &Ledger) -> Judgement {
    if ledger == truth {
        return Ok(());
    }
    Err(format!(
        "server {server} has applied everything, and counts {:?} instead of {:?}",
        ledger.counts(),
        truth.counts()
    ))
}
