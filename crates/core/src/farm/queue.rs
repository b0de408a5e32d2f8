//! The tasks that wait, in the order in which they are to run: greater priority first, then as they came.
//!
//! A job is one item however many tasks it has, so that a million waiting tasks take no room here.

use alloc::collections::{BTreeMap, VecDeque};
use core::cmp::Reverse;

use crate::ledger::{JobId, TaskId, Tasks};

/// What waits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Queue {
    by_priority: BTreeMap<Reverse<i16>, VecDeque<Stretch>>,
}

/// Some tasks of a job, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Stretch {
    pub(super) job: JobId,
    pub(super) next: u64,
    pub(super) last: u64,
}

impl Queue {
    /// A whole job comes last.
    pub(super) fn push_job(&mut self, priority: i16, job: JobId, tasks: u64) {
        self.of(priority).push_back(Stretch { job, next: 1, last: tasks });
    }

    /// All that another queue has comes after what is here.
    pub(super) fn append(&mut self, other: Self) {
        for (priority, stretches) in other.by_priority {
            self.by_priority.entry(priority).or_default().extend(stretches);
        }
    }

    /// Tasks that were handed out in vain, or are wanted again, come first. Many of them take the place of what is here of them
    /// already, so that a client that cancels and retries again and again does not fill this.
    pub(super) fn push_first(&mut self, priority: i16, tasks: Tasks) {
        let Tasks { job, first, last, .. } = tasks;
        let waiting = self.of(priority);
        if first < last {
            waiting.retain(|other| other.job != job || other.next < first || other.last > last);
        }
        waiting.push_front(Stretch { job, next: first, last });
    }

    /// The tasks that come next, without taking them.
    pub(super) fn first(&self) -> Option<Stretch> {
        self.by_priority.values().next()?.front().copied()
    }

    /// Of the tasks that come next, those before this place need not run any more; without a place, none need.
    pub(super) fn skip_to(&mut self, place: Option<u64>) {
        let Some(mut first) = self.by_priority.first_entry() else { return };
        match (first.get_mut().front_mut(), place) {
            (Some(stretch), Some(place)) => stretch.next = place,
            _ => _ = first.get_mut().pop_front(),
        }
        if first.get().is_empty() {
            first.remove();
        }
    }

    /// What comes next, without taking it.
    pub(super) fn peek(&self) -> Option<TaskId> {
        let stretch = self.first()?;
        Some(TaskId { job: stretch.job, index: stretch.next })
    }

    /// How many tasks come before this one, those included that need not run any more.
    pub(super) fn before(&self, priority: i16, task: TaskId) -> u64 {
        let mut before = 0;
        for (greater, stretches) in self.by_priority.range(..=Reverse(priority)) {
            for stretch in stretches {
                let is_here = *greater == Reverse(priority) && stretch.job == task.job;
                if is_here && (stretch.next..=stretch.last).contains(&task.index) {
                    return before + (task.index - stretch.next);
                }
                before += stretch.last + 1 - stretch.next;
            }
        }
        before
    }

    /// What comes next.
    pub(super) fn pop(&mut self) -> Option<TaskId> {
        let Stretch { job, next, last } = self.first()?;
        self.skip_to((next < last).then_some(next + 1));
        Some(TaskId { job, index: next })
    }

    /// All that comes next from one job, without what others have in between, goes to the end of another queue.
    pub(super) fn move_first_to(&mut self, other: &mut Self) {
        let Some(mut first) = self.by_priority.first_entry() else { return };
        let priority = *first.key();
        let stretch = first.get_mut().pop_front();
        if first.get().is_empty() {
            first.remove();
        }
        other.by_priority.entry(priority).or_default().extend(stretch);
    }

    fn of(&mut self, priority: i16) -> &mut VecDeque<Stretch> {
        self.by_priority.entry(Reverse(priority)).or_default()
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn greater_priority_first_then_as_they_came_and_what_came_back_before_the_rest() {
        let mut queue = Queue::default();
        queue.push_job(0, JobId(1), 3);
        queue.push_job(5, JobId(2), 1);
        queue.push_job(0, JobId(3), 1);
        let before = [(5, 2, 1), (0, 1, 3), (0, 3, 1)];
        let before = before.map(|(priority, job, index)| queue.before(priority, TaskId { job: JobId(job), index }));
        assert_eq!(before, [0, 3, 4]);
        let mut order: Vec<String> = Vec::new();
        while let Some(task) = queue.peek() {
            assert_eq!(queue.pop(), Some(task));
            order.push(task.to_string());
            if order.len() == 2 {
                queue.push_first(0, TaskId { job: JobId(1), index: 9 }.into());
            }
        }
        assert_eq!(order, ["2.1", "1.1", "1.9", "1.2", "1.3", "3.1"]);
        assert_eq!(queue, Queue::default());
    }

    #[test]
    fn those_that_are_wanted_again_stand_here_once() {
        let mut queue = Queue::default();
        let million = |job| Tasks::all(JobId(job), 1, 1_000_000);
        queue.push_job(0, JobId(1), 1_000_000);
        queue.push_job(0, JobId(2), 3);
        (0..10).for_each(|_| queue.push_first(0, million(1)));
        assert_eq!(queue.before(0, TaskId { job: JobId(2), index: 1 }), 1_000_000);
        queue.skip_to(Some(999_999));
        let order: Vec<String> = core::iter::from_fn(|| queue.pop()).map(|task| task.to_string()).collect();
        assert_eq!(order, ["1.999999", "1.1000000", "2.1", "2.2", "2.3"]);
        queue.push_first(0, million(1));
        queue.skip_to(None);
        assert_eq!(queue, Queue::default());
    }
}
