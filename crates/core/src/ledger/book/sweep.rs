//! What concerns many tasks at once: cancelling and retrying whole jobs, and forgetting what is old.
//!
//! A job may have millions of tasks, and all servers do this on a thread that must never be late. So nothing here takes a step
//! for each task that costs more than a look at its state: neighbours in the same situation are one stretch, and what came of an
//! entry is said in at most [`TOLD_MAX`] words.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::{Ledger, Limits};
use crate::ledger::effect::Effect;
use crate::ledger::entry::Target;
use crate::ledger::job::JobId;
use crate::ledger::order::Stretch;
use crate::ledger::task::{Counts, State, TaskId, Tasks};

/// In how many stretches it is told what came of an entry. The last of them may have others in between.
const TOLD_MAX: usize = 1000;

impl Ledger {
    pub(super) fn cancel(&mut self, target: Target, time_ms: u64, effects: &mut Vec<Effect>) {
        let (id, ends) = ends_of(target);
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.open() > 0) else { return };
        let before = job.counts();
        // Of more than are kept, the first would be forgotten at once, and there may be millions.
        let most = if matches!(target, Target::Job(_)) { job.open() } else { 1 };
        let mut unkept = most.saturating_sub(self.limits.results as u64);
        let (mut told, is_open) = (Vec::new(), |state: State| !state.is_final());
        job.change(&ends, is_open, State::Cancelled, |first, last| {
            let skipped = unkept.min(last - first + 1);
            unkept -= skipped;
            if first + skipped <= last {
                self.results.add_without(Stretch { time_ms, job: id, first: first + skipped, last });
            }
            tell(&mut told, Tasks::all(id, first, last));
        });
        if told.is_empty() {
            return;
        }
        self.counts.change(before, job.counts());
        let is_over = |task: &TaskId| job.state(task.index).is_none_or(State::is_final);
        self.starts.remove_those(tasks(id, &ends), is_over);
        effects.extend(told.into_iter().map(Effect::Cancelled));
    }

    pub(super) fn retry(&mut self, target: Target, is_meant: impl Fn(State) -> bool, effects: &mut Vec<Effect>) {
        let (id, ends) = ends_of(target);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if !job.has_any(&ends, &is_meant) {
            return;
        }
        self.results.take_out(id, &ends, |index| job.state(index).is_some_and(&is_meant));
        let (mut told, before) = (Vec::new(), job.counts());
        job.change(&ends, is_meant, State::Waiting { failures: 0 }, |first, last| {
            tell(&mut told, Tasks::all(id, first, last));
        });
        self.counts.change(before, job.counts());
        effects.extend(told.into_iter().map(Effect::Wanted));
    }

    /// Old results go; a job goes with the last of them.
    pub(super) fn forget(&mut self, now_ms: u64) {
        while let Some(most) = self.too_many(now_ms) {
            let Some(stretch) = self.results.forget_oldest(most) else { return };
            self.spent.remove_those(tasks(stretch.job, &(stretch.first..=stretch.last)), |_| true);
            self.forget_job(stretch.job);
        }
    }

    /// How many of the oldest have to go, as far as that depends on nothing but their number and age.
    fn too_many(&self, now_ms: u64) -> Option<u64> {
        let Limits { results, results_len, age_ms, .. } = self.limits;
        let is_old = |time_ms: u64| time_ms.saturating_add(age_ms) <= now_ms;
        if self.results.len() > results_len || self.results.oldest_ms().is_some_and(is_old) {
            return Some(u64::MAX);
        }
        self.results.count().checked_sub(results as u64).filter(|more| *more > 0)
    }

    /// A job is forgotten once all of it has ended and none of its results is left.
    fn forget_job(&mut self, id: JobId) {
        let is_over = self.jobs.get(&id).is_some_and(|job| job.open() == 0);
        if !is_over || self.results.has_any_of(id) {
            return;
        }
        let Some(job) = self.jobs.remove(&id) else { return };
        self.counts.change(job.counts(), Counts::default());
        job.key.and_then(|key| self.keys.remove(&key));
        // Of those that were cancelled without being kept, too.
        self.spent.remove_those(tasks(id, &(0..=u64::MAX)), |_| true);
    }
}

fn ends_of(target: Target) -> (JobId, RangeInclusive<u64>) {
    match target {
        Target::Job(job) => (job, 1..=u64::MAX),
        // Tasks are counted from 1; place 0 gives an empty range.
        Target::Task(TaskId { job, index }) => (job, index.max(1)..=index),
    }
}

fn tasks(job: JobId, ends: &RangeInclusive<u64>) -> RangeInclusive<TaskId> {
    TaskId { job, index: *ends.start() }..=TaskId { job, index: *ends.end() }
}

/// Says of some tasks what has become of them. If there is too much to say, they are named with those before and those between.
fn tell(told: &mut Vec<Tasks>, tasks: Tasks) {
    let is_long = told.len() >= TOLD_MAX;
    match told.last_mut().filter(|_| is_long) {
        Some(latest) => *latest = Tasks { last: tasks.last, count: latest.count + tasks.count, ..*latest },
        None => told.push(tasks),
    }
}

#[cfg(test)]
mod tests;
