//! Reruns: what a worker runs, or keeps the result of, is not handed out again by a leader that has welcomed this worker.

use primus_core::ledger::{Held, Ledger};

use super::Judgement;
use crate::node::NodeId;

/// A worker that lives, is linked to the leader and has been welcomed by it in its term; and what it has.
#[derive(Debug, Clone)]
pub(crate) struct Witness {
    pub(crate) worker: NodeId,
    pub(crate) has: Vec<Held>,
}

pub(super) fn on_handout(server: NodeId, held: Held, ledger: &Ledger, witnesses: &[Witness]) -> Judgement {
    for Witness { worker, has } in witnesses {
        let other = has.iter().find(|other| other.task == held.task && other.attempt != held.attempt);
        if let Some(other) = other.filter(|other| ledger.is_wanted(**other)) {
            return Err(format!("server {server} hands out {held}, and worker {worker} has {other}"));
        }
    }
    Ok(())
}
