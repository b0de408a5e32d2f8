//! Those who wait until jobs or tasks have ended.
//!
//! Whoever waits for many waits for one of them at a time: for the first that has not ended yet. So a hundred thousand jobs
//! cost no more than the list of them, and an end is looked up once, however many wait for something else.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use primus_core::ledger::{Effect, Job, JobId, Ledger, State, Target, TaskId};

use crate::handle::{Reply, Unable};

/// What somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// One task.
    Task(TaskId),
    /// All tasks of these jobs, both ends included.
    Jobs(JobId, JobId),
}

impl From<Target> for Awaited {
    fn from(target: Target) -> Self {
        match target {
            Target::Job(job) => Self::Jobs(job, job),
            Target::Task(task) => Self::Task(task),
        }
    }
}

/// How many may wait.
const WAITERS_MAX: usize = 100_000;

/// All who wait, by what they wait for at the moment.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    by_target: BTreeMap<Target, Vec<Waiter>>,
    count: usize,
}

#[derive(Debug)]
struct Waiter {
    /// The last is looked at first.
    awaited: Vec<Awaited>,
    reply: Reply<()>,
}

impl Waiters {
    /// Somebody waits, unless all have ended already or too many wait.
    pub(super) fn add(&mut self, mut awaited: Vec<Awaited>, reply: Reply<()>, ledger: &Ledger) {
        if self.count >= WAITERS_MAX {
            self.sweep();
        }
        if self.count >= WAITERS_MAX {
            _ = reply.send(Err(Unable::Busy));
            return;
        }
        awaited.reverse();
        self.place(Waiter { awaited, reply }, ledger);
    }

    fn place(&mut self, mut waiter: Waiter, ledger: &Ledger) {
        match waiter.next(ledger) {
            Some(target) => {
                self.count += 1;
                self.by_target.entry(target).or_default().push(waiter);
            }
            None => _ = waiter.reply.send(Ok(())),
        }
    }

    /// These things happened to the ledger.
    pub(super) fn on_effects(&mut self, effects: &[Effect], ledger: &Ledger) {
        if self.by_target.is_empty() {
            return;
        }
        let over = |effect: &Effect| match effect {
            Effect::Finished(held) => Some(held.task),
            Effect::Cancelled(task) => Some(*task),
            _ => None,
        };
        let mut last_job = None;
        for task in effects.iter().filter_map(over) {
            self.on_end(Target::Task(task), ledger);
            if last_job.replace(task.job) != Some(task.job) {
                self.on_end(Target::Job(task.job), ledger);
            }
        }
    }

    fn on_end(&mut self, target: Target, ledger: &Ledger) {
        if is_over(target, ledger) {
            let waiters = self.by_target.remove(&target).unwrap_or_default();
            self.count -= waiters.len();
            waiters.into_iter().for_each(|waiter| self.place(waiter, ledger));
        }
    }

    /// Nobody can be told here any more.
    pub(super) fn refuse(&mut self, unable: Unable) {
        self.count = 0;
        let all = std::mem::take(&mut self.by_target).into_values().flatten();
        all.for_each(|waiter| _ = waiter.reply.send(Err(unable)));
    }

    /// Those who have gone away need no place.
    fn sweep(&mut self) {
        self.by_target.retain(|_, waiters| {
            waiters.retain(|waiter| !waiter.reply.is_closed());
            !waiters.is_empty()
        });
        self.count = self.by_target.values().map(Vec::len).sum();
    }
}

impl Waiter {
    /// The first that has not ended yet.
    fn next(&mut self, ledger: &Ledger) -> Option<Target> {
        while let Some(awaited) = self.awaited.pop() {
            match awaited {
                Awaited::Task(task) if is_over(Target::Task(task), ledger) => {}
                Awaited::Task(task) => return Some(Target::Task(task)),
                Awaited::Jobs(first, last) => {
                    if let Some(open) = first_open(first..=last, ledger) {
                        // The rest of them comes next.
                        self.awaited.push(Awaited::Jobs(open, last));
                        return Some(Target::Job(open));
                    }
                }
            }
        }
        None
    }
}

/// Jobs that are unknown have ended, too.
fn first_open(jobs: RangeInclusive<JobId>, ledger: &Ledger) -> Option<JobId> {
    let mut known = ledger.jobs(*jobs.start()).take_while(|(id, _)| id <= jobs.end());
    known.find(|(_, job)| job.open() > 0).map(|(id, _)| id)
}

fn is_over(target: Target, ledger: &Ledger) -> bool {
    match target {
        Target::Task(task) => ledger.state(task).is_none_or(State::is_final),
        Target::Job(job) => ledger.job(job).is_none_or(|job: &Job| job.open() == 0),
    }
}

#[cfg(test)]
mod tests {
    use primus_core::ledger::{Batch, Entry, Fan, Spec, Work};
    use tokio::sync::oneshot;

    use super::*;

    fn submitted(fans: impl IntoIterator<Item = Fan>) -> Ledger {
        let work = Work::Kind { name: "noop".to_owned(), input: Vec::new() };
        let mut ledger = Ledger::default();
        let entry = |fan| Entry::Submit {
            spec: Spec {
                name: String::new(),
                work: work.clone(),
                fan,
                retries: 0,
                timeout_ms: None,
                is_once: false,
                priority: 0,
                cpus: 1,
            },
            key: None,
        };
        ledger.apply(Batch { time_ms: 0, entries: fans.into_iter().map(entry).collect() });
        ledger
    }

    fn end(ledger: &mut Ledger, waiters: &mut Waiters, target: Target) {
        let effects = ledger.apply(Batch { time_ms: 0, entries: vec![Entry::Cancel(target)] });
        waiters.on_effects(&effects, ledger);
    }

    #[test]
    fn whoever_waits_for_many_hears_when_the_last_has_ended() {
        let mut ledger = submitted(vec![Fan::Array { first: 1, last: 2 }; 5]);
        let mut waiters = Waiters::default();
        let (reply, mut answer) = oneshot::channel();
        let task = |job, index| TaskId { job: JobId(job), index };
        let awaited =
            vec![Awaited::Jobs(JobId(2), JobId(9)), Awaited::Task(task(1, 2)), Awaited::Task(task(77, 1))];
        waiters.add(awaited, reply, &ledger);
        for job in [4, 2, 3, 5] {
            end(&mut ledger, &mut waiters, Target::Job(JobId(job)));
            assert!(answer.try_recv().is_err());
        }
        end(&mut ledger, &mut waiters, Target::Task(task(1, 1)));
        assert!(answer.try_recv().is_err(), "it waits for the other task of job 1");
        end(&mut ledger, &mut waiters, Target::Task(task(1, 2)));
        assert_eq!(answer.try_recv(), Ok(Ok(())));
        assert_eq!((waiters.count, waiters.by_target.len()), (0, 0));
    }

    #[test]
    fn those_who_cannot_be_told_are_refused_and_those_who_left_are_forgotten() {
        let ledger = submitted([Fan::One]);
        let mut waiters = Waiters::default();
        let (stays, mut answer) = oneshot::channel();
        let (leaves, left) = oneshot::channel();
        waiters.add(vec![Awaited::Jobs(JobId(1), JobId(1))], stays, &ledger);
        waiters.add(vec![Awaited::Jobs(JobId(1), JobId(1))], leaves, &ledger);
        drop(left);
        waiters.sweep();
        assert_eq!(waiters.count, 1);
        waiters.refuse(Unable::NoLeader);
        assert_eq!(answer.try_recv(), Ok(Err(Unable::NoLeader)));
    }
}
