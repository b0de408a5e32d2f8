//! Once: a task that must not start twice does not, unless somebody wanted it again after it had ended.

use std::collections::BTreeMap;

use primus_core::ledger::{Held, TaskId};

use super::Judgement;
use crate::node::NodeId;

/// How often each of them was started.
#[derive(Debug, Default)]
pub(super) struct Watch {
    started: BTreeMap<TaskId, u64>,
}

impl Watch {
    pub(super) fn on_start(
        &mut self,
        worker: NodeId,
        held: Held,
        is_once: bool,
        wanted: &BTreeMap<TaskId, u64>,
    ) -> Judgement {
        let started = self.started.entry(held.task).or_default();
        *started += 1;
        if !is_once || *started <= 1 + wanted.get(&held.task).copied().unwrap_or(0) {
            return Ok(());
        }
        Err(format!("worker {worker} starts {held}, which was started before and must not start twice"))
    }
}
