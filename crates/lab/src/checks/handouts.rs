//! Handouts: no attempt is handed out after the task's result, or that it is cancelled, was committed, by a leader that knew.

use primus_core::ledger::{Held, Ledger};

use super::Judgement;
use crate::node::NodeId;

pub(super) fn on_handout(server: NodeId, held: Held, ledger: &Ledger) -> Judgement {
    let state = ledger.state(held.task);
    if state.is_some_and(|state| !state.is_final()) {
        return Ok(());
    }
    Err(format!(
        "server {server} hands out {held}, and knows that it is {}",
        state.map_or("unknown", |state| state.name())
    ))
}
