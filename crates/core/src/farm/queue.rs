//! The tasks that wait, in the order in which they are to run: greater priority first, then as they came.
//!
//! A job is one item however many tasks it has, so that a million waiting tasks take no room here.

use alloc::collections::{BTreeMap, VecDeque};
use core::cmp::Reverse;

use crate::ledger::{JobId, TaskId};

/// What waits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Queue {
    by_priority: BTreeMap<Reverse<i16>, VecDeque<Stretch>>,
}

/// Some tasks of a job, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Stretch {
    job: JobId,
    next: u64,
    last: u64,
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

    /// A task that was handed out in vain comes first.
    pub(super) fn push_first(&mut self, priority: i16, task: TaskId) {
        self.of(priority).push_front(Stretch { job: task.job, next: task.index, last: task.index });
    }

    /// What comes next, without taking it.
    pub(super) fn peek(&self) -> Option<TaskId> {
        let stretch = self.by_priority.values().next()?.front()?;
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
        let mut first = self.by_priority.first_entry()?;
        let stretches = first.get_mut();
        let stretch = stretches.front_mut()?;
        let task = TaskId { job: stretch.job, index: stretch.next };
        if stretch.next < stretch.last {
            stretch.next += 1;
        } else {
            stretches.pop_front();
            if stretches.is_empty() {
                first.remove();
            }
        }
        Some(task)
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
                queue.push_first(0, TaskId { job: JobId(1), index: 9 });
            }
        }
        assert_eq!(order, ["2.1", "1.1", "1.9", "1.2", "1.3", "3.1"]);
        assert_eq!(queue, Queue::default());
    }
}
