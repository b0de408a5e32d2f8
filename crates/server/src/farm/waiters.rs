//! Those who wait until jobs or tasks have ended.
//!
//! A question about many waits for one of them at a time: for the first that has not ended yet. So a hundred thousand jobs
//! cost no more than the list of them, and an end is looked up once, however many wait for something else.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use primus_core::ledger::{Effect, Job, JobId, Ledger, State, Target, Tasks};

use super::words::{Awaited, Ticket};

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
    ticket: Ticket,
}

impl Waiters {
    /// May one more wait, if so many more will soon?
    pub(super) const fn has_room_beside(&self, others: usize) -> bool {
        self.count + others < WAITERS_MAX
    }

    /// Somebody waits. Have all of them ended already?
    pub(super) fn add(&mut self, mut awaited: Vec<Awaited>, ticket: Ticket, ledger: &Ledger) -> bool {
        awaited.reverse();
        self.place(Waiter { awaited, ticket }, ledger).is_some()
    }

    /// The one that need not wait any more, if this one need not.
    fn place(&mut self, mut waiter: Waiter, ledger: &Ledger) -> Option<Ticket> {
        let Some(target) = waiter.next(ledger) else { return Some(waiter.ticket) };
        self.count += 1;
        self.by_target.entry(target).or_default().push(waiter);
        None
    }

    /// These things happened to the ledger. Who need not wait any more?
    pub(super) fn on_effects(&mut self, effects: &[Effect], ledger: &Ledger) -> Vec<Ticket> {
        if self.by_target.is_empty() {
            return Vec::new();
        }
        let over = |effect: &Effect| match effect {
            Effect::Finished(held) => Some(Tasks::from(held.task)),
            Effect::Cancelled(tasks) => Some(*tasks),
            _ => None,
        };
        let (mut done, mut last_job) = (Vec::new(), None);
        for tasks in effects.iter().filter_map(over) {
            let ends = (Target::Task(*tasks.ends().start()), Target::Task(*tasks.ends().end()));
            let awaited: Vec<Target> = self.by_target.range(ends.0..=ends.1).map(|(target, _)| *target).collect();
            awaited.into_iter().for_each(|target| done.extend(self.on_end(target, ledger)));
            if last_job.replace(tasks.job) != Some(tasks.job) {
                done.extend(self.on_end(Target::Job(tasks.job), ledger));
            }
        }
        done
    }

    fn on_end(&mut self, target: Target, ledger: &Ledger) -> Vec<Ticket> {
        if !self.by_target.contains_key(&target) || !is_over(target, ledger) {
            return Vec::new();
        }
        let waiters = self.by_target.remove(&target).unwrap_or_default();
        self.count -= waiters.len();
        waiters.into_iter().filter_map(|waiter| self.place(waiter, ledger)).collect()
    }

    /// Nobody can be told here any more.
    pub(super) fn take_all(&mut self) -> Vec<Ticket> {
        self.count = 0;
        let all = std::mem::take(&mut self.by_target).into_values().flatten();
        all.map(|waiter| waiter.ticket).collect()
    }

    /// These have gone away.
    pub(super) fn forget(&mut self, tickets: &[Ticket]) {
        let tickets: BTreeSet<&Ticket> = tickets.iter().collect();
        self.by_target.retain(|_, waiters| {
            waiters.retain(|waiter| !tickets.contains(&waiter.ticket));
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
    use primus_core::ledger::{Batch, Entry, Expansion, Spec, TaskId, Work};

    use super::*;

    fn submitted(fans: impl IntoIterator<Item = Expansion>) -> Ledger {
        let work = Work::Kind { name: "noop".to_owned(), input: Vec::new() };
        let mut ledger = Ledger::default();
        let entry = |expansion| Entry::Submit {
            spec: Spec {
                name: String::new(),
                work: work.clone(),
                expansion,
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

    fn end(ledger: &mut Ledger, waiters: &mut Waiters, target: Target) -> Vec<Ticket> {
        let effects = ledger.apply(Batch { time_ms: 0, entries: vec![Entry::Cancel(target)] });
        waiters.on_effects(&effects, ledger)
    }

    #[test]
    fn a_question_about_many_is_answered_when_the_last_has_ended() {
        let mut ledger = submitted(vec![Expansion::Array { first: 1, last: 2 }; 5]);
        let mut waiters = Waiters::default();
        let task = |job, index| TaskId { job: JobId(job), index };
        let awaited =
            vec![Awaited::Jobs(JobId(2), JobId(9)), Awaited::Task(task(1, 2)), Awaited::Task(task(77, 1))];
        assert!(!waiters.add(awaited, Ticket(1), &ledger));
        for job in [4, 2, 3, 5] {
            assert_eq!(end(&mut ledger, &mut waiters, Target::Job(JobId(job))), []);
        }
        let other = end(&mut ledger, &mut waiters, Target::Task(task(1, 1)));
        assert_eq!(other, [], "it waits for the other task of job 1");
        assert_eq!(end(&mut ledger, &mut waiters, Target::Task(task(1, 2))), [Ticket(1)]);
        assert_eq!((waiters.count, waiters.by_target.len()), (0, 0));
        assert!(waiters.add(vec![Awaited::Task(task(1, 2))], Ticket(2), &ledger), "it has ended already");
    }

    #[test]
    fn all_who_wait_for_tasks_of_a_job_hear_that_it_was_cancelled() {
        let mut ledger = submitted([Expansion::Array { first: 1, last: 3_000_000 }, Expansion::One]);
        let mut waiters = Waiters::default();
        let task = |job, index| Awaited::Task(TaskId { job: JobId(job), index });
        let awaited = [task(1, 1), task(1, 3_000_000), task(2, 1), Awaited::Jobs(JobId(1), JobId(1)), task(1, 77)];
        for (ticket, awaited) in (1..).zip(awaited) {
            waiters.add(vec![awaited], Ticket(ticket), &ledger);
        }
        let told = end(&mut ledger, &mut waiters, Target::Job(JobId(1)));
        assert_eq!(told, [1, 5, 2, 4].map(Ticket), "and whoever waits for another job does not");
        assert_eq!((waiters.count, waiters.by_target.len()), (1, 1));
    }

    #[test]
    fn those_who_left_are_forgotten() {
        let ledger = submitted([Expansion::One]);
        let mut waiters = Waiters::default();
        for ticket in [1, 2] {
            waiters.add(vec![Awaited::Jobs(JobId(1), JobId(1))], Ticket(ticket), &ledger);
        }
        waiters.forget(&[Ticket(2)]);
        assert_eq!(waiters.count, 1);
        assert_eq!(waiters.take_all(), [Ticket(1)]);
    }
}
