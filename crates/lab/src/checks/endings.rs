//! Endings: an acknowledged task is never lost. It comes to its end, and one result is recorded. And every loan ends once both
//! farms are reachable and faults are over.

use std::collections::BTreeMap;

use primus_core::ledger::{Effect, JobId, Ledger, TaskId, Tasks};

use super::Judgement;
use crate::driver::host::FarmPlace;

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

/// Is nothing left to be done, and everybody at home?
pub(super) fn is_at_rest(truth: &Ledger) -> bool {
    let (counts, loans) = (truth.counts(), truth.loans());
    counts.waiting + counts.started == 0 && loans.lent().is_empty() && loans.borrowed().is_empty()
}

pub(super) fn of_loans(farm: FarmPlace, truth: &Ledger) -> Judgement {
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
