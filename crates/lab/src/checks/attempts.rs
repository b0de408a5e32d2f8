//! Attempts: no two bear the same name, whoever hands them out.

use std::collections::BTreeMap;

use primus_core::ledger::Held;

use super::Judgement;
use crate::node::NodeId;

/// Who handed what out.
#[derive(Debug, Default)]
pub(super) struct Watch {
    handed_out: BTreeMap<Held, NodeId>,
}

impl Watch {
    pub(super) fn on_handout(&mut self, server: NodeId, held: Held) -> Judgement {
        match self.handed_out.insert(held, server) {
            None => Ok(()),
            Some(before) => {
                Err(format!("server {server} hands out {held}, and server {before} has done so before"))
            }
        }
    }
}
