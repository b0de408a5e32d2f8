//! Endings: an acknowledged task is never lost. It comes to its end, and one result is recorded.

use std::collections::BTreeMap;

use primus_core::ledger::{Effect, JobId, Ledger, TaskId, Tasks};

use super::Judgement;

/// How often each task has ended.
#[derive(Debug, Default)]
pub(super) struct Watch {
    ended: BTreeMap<TaskId, u64>,
}

impl Watch {
    pub(super) fn on_effect(&mut self, effect: &Effect, wanted: &BTreeMap<TaskId, u64>) -> Judgement {
        let tasks = match effect {
            Effect::Finished(held) => Tasks::from(held.task),
            Effect::Cancelled(tasks) => *tasks,
            _ => return Ok(()),
        };
        tasks.iter().try_for_each(|task| self.on_ended(task, wanted))
    }

    fn on_ended(&mut self, task: TaskId, wanted: &BTreeMap<TaskId, u64>) -> Judgement {
        let ended = self.ended.entry(task).or_default();
        *ended += 1;
        if *ended <= 1 + wanted.get(&task).copied().unwrap_or(0) {
            return Ok(());
        }
        Err(format!("{task} has ended {ended} times"))
    }
}

pub(super) fn on_end(truth: &Ledger, kept: usize) -> Judgement {
    let open: Vec<String> = truth
        .jobs(JobId(0))
        .flat_map(|(job, what)| (1..).zip(what.states()).map(move |(index, state)| (TaskId { job, index }, state)))
        .filter(|(_, state)| !state.is_final())
        .map(|(task, state)| format!("{task} {}", state.name()))
        .collect();
    if !open.is_empty() {
        return Err(format!("in the end these have no result: {}", open.join(", ")));
    }
    if kept > 0 {
        return Err(format!("in the end workers still keep {kept} results"));
    }
    Ok(())
}
