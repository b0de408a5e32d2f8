//! The ledger itself: entries in, one agreed state out.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use super::entry::{Batch, Entry, Report, Start, Target};
use super::groups::{Grant, Groups};
use super::job::{Job, JobId, Spec};
use super::kept::Results;
use super::loans::{Borrowed, Ending, Lend, Lent, LoanId, Loans, home_of};
use super::task::{Attempt, Held, Outcome, State, TaskId, Verdict};
use crate::ids::SessionId;

/// What a farm agrees on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ledger {
    jobs: BTreeMap<JobId, Job>,
    last_job: u64,
    keys: BTreeMap<String, JobId>,
    /// The newest results in full; of older ones only the state is left.
    results: Results,
    /// Who has the tasks that must not start twice.
    starts: BTreeMap<TaskId, Start>,
    /// Attempts that have failed and are counted: a worker may report one again, and it must not count twice.
    spent: BTreeMap<TaskId, Vec<Attempt>>,
    workers: BTreeMap<String, Registration>,
    groups: Groups,
    loans: Loans,
    counts: Counts,
    limits: Limits,
}

/// What is agreed about a worker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Registration {
    /// How much it can run at once.
    pub slots: u16,
    /// Does it get nothing new?
    pub is_draining: bool,
}

/// How many tasks there are in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[expect(missing_docs, reason = "the names are those of the states")]
pub struct Counts {
    pub waiting: u64,
    pub started: u64,
    pub done: u64,
    pub failed: u64,
    pub lost: u64,
    pub cancelled: u64,
}

/// How much is kept. All servers must go by the same, so the leader's are written into the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Limits {
    /// How many results are kept.
    pub results: usize,
    /// How many bytes they may have together.
    pub results_len: u64,
    /// For how long.
    pub age_ms: u64,
    /// How many tasks may wait.
    pub waiting: u64,
}

/// What an entry came to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// The job has this number; it is not new if its key was known.
    Submitted {
        /// Its number.
        job: JobId,
        /// Did this entry make it?
        is_new: bool,
    },
    /// Nothing: its key belongs to this job, which is another one.
    OtherJob(JobId),
    /// Too much waits already, or the job has too many tasks.
    Full,
    /// This attempt's result is recorded, and the task is over.
    Finished(Held),
    /// This attempt failed, and the task is to run again.
    Again(Held),
    /// This attempt's result came too late, and will never be recorded.
    Refused(Held),
    /// Somebody wants this task to run again.
    Wanted(TaskId),
    /// This task may start now: it is written down that it does.
    MayStart(Start),
    /// This task is not wanted any more.
    Cancelled(TaskId),
    /// A worker came or changed.
    Workers,
    /// This worker is given up.
    Left(String),
    /// Somebody holds a group.
    Granted {
        /// Who, and which group.
        grant: Grant,
        /// Under which token.
        token: u64,
        /// Since when, in milliseconds since 1970.
        since_ms: u64,
    },
    /// Somebody held a group.
    Released {
        /// Which group.
        group: String,
        /// Who.
        session: SessionId,
        /// Under which token.
        token: u64,
    },
    /// A worker of ours is lent, under this number.
    Lent(LoanId),
    /// It is wanted back.
    Recalled(LoanId),
    /// A loan is over.
    LoanEnded {
        /// Its number.
        loan: LoanId,
        /// What it was.
        lent: Lent,
        /// How it ended.
        ending: Ending,
    },
    /// This worker of another farm works here from now on.
    Borrowed(String),
    /// And does not any more.
    GivenBack(String, Borrowed),
    /// The entry came too late, or made no sense.
    Nothing,
}

impl Default for Limits {
    fn default() -> Self {
        Self { results: 100_000, results_len: 256 << 20, age_ms: 24 * 3600 * 1000, waiting: 4_000_000 }
    }
}

impl Ledger {
    /// An empty ledger.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Applies what the log holds, and says what each entry came to.
    pub fn apply(&mut self, batch: Batch) -> Vec<Effect> {
        let time_ms = batch.time_ms;
        let mut effects = Vec::with_capacity(batch.entries.len());
        for entry in batch.entries {
            self.apply_one(entry, time_ms, &mut effects);
        }
        self.forget(time_ms);
        effects
    }

    fn apply_one(&mut self, entry: Entry, time_ms: u64, effects: &mut Vec<Effect>) {
        match entry {
            Entry::Submit { spec, key } => effects.push(self.submit(spec, key, time_ms)),
            Entry::Finish(report) => effects.push(self.finish(report, time_ms)),
            Entry::Start(start) => effects.push(self.start(start)),
            Entry::Cancel(target) => self.cancel(target, time_ms, effects),
            Entry::Retry(target) => {
                self.retry(target, |state| state.is_final() && state != State::Done, effects);
            }
            Entry::RetryFailed(job) => {
                self.retry(Target::Job(job), |state| matches!(state, State::Failed | State::Lost), effects);
            }
            Entry::Join { worker, slots } => effects.push(self.join(worker, slots)),
            Entry::Leave { worker } => effects.push(self.leave(worker)),
            Entry::Limit(limits) => self.limits = limits,
            Entry::Grant(grant) => effects.push(self.groups.grant(grant, time_ms)),
            Entry::Release(release) => effects.push(self.groups.release(release)),
            Entry::Lend(lend) => effects.push(self.lend(lend, time_ms)),
            Entry::Recall(loan) => effects.push(self.loans.recall(loan)),
            Entry::EndLoan(loan, ending) => effects.push(self.loans.end(loan, ending)),
            Entry::Borrow(borrow) => effects.push(self.loans.borrow(borrow, time_ms)),
            Entry::GiveBack { worker, loan } => effects.push(self.give_back(worker, loan)),
            Entry::Drain { worker, is_draining } => {
                let known = self.workers.get_mut(&worker).map(|worker| worker.is_draining = is_draining);
                effects.push(changed(known.is_some()));
            }
        }
    }

    fn submit(&mut self, spec: Spec, key: Option<String>, time_ms: u64) -> Effect {
        if let Some(&job) = key.as_ref().and_then(|key| self.keys.get(key)) {
            // The same job sent twice gets the same answer twice; another job under the same name is a mistake.
            let is_same = self.jobs.get(&job).is_none_or(|known| *known.spec == spec);
            return if is_same { Effect::Submitted { job, is_new: false } } else { Effect::OtherJob(job) };
        }
        let tasks = spec.fan.len();
        if tasks == 0 || self.counts.waiting.saturating_add(tasks) > self.limits.waiting {
            return Effect::Full;
        }
        self.last_job += 1;
        let job = JobId(self.last_job);
        if let Some(key) = &key {
            self.keys.insert(key.clone(), job);
        }
        self.counts.waiting += tasks;
        self.jobs.insert(job, Job::new(spec, time_ms, key));
        Effect::Submitted { job, is_new: true }
    }

    /// The first result counts. A failure with attempts left is no result.
    fn finish(&mut self, report: Report, time_ms: u64) -> Effect {
        let Report { task, outcome } = report;
        let held = Held { task, attempt: outcome.attempt };
        let Some(job) = self.jobs.get(&task.job).filter(|_| self.is_wanted(held)) else {
            return Effect::Refused(held);
        };
        let failures = match job.state(task.index) {
            Some(State::Waiting { failures }) => failures,
            _ => 0,
        };
        let may_retry = !job.spec.is_once && failures < job.spec.retries;
        let next = match &outcome.verdict {
            Verdict::Lost => State::Lost,
            verdict if verdict.is_success() => State::Done,
            _ if may_retry => State::Waiting { failures: failures + 1 },
            _ => State::Failed,
        };
        self.set_state(task, next);
        if next == State::Done {
            self.spent.remove(&task);
        } else {
            self.spent.entry(task).or_default().push(held.attempt);
        }
        if !next.is_final() {
            return Effect::Again(held);
        }
        self.starts.remove(&task);
        self.results.add(time_ms, task, Some(&outcome));
        Effect::Finished(held)
    }

    fn start(&mut self, start: Start) -> Effect {
        let task = start.task;
        if !matches!(self.state(task), Some(State::Waiting { .. })) {
            return Effect::Nothing;
        }
        self.set_state(task, State::Started);
        self.starts.insert(task, start.clone());
        Effect::MayStart(start)
    }

    fn cancel(&mut self, target: Target, time_ms: u64, effects: &mut Vec<Effect>) {
        let tasks = self.tasks_of(target, |state| !state.is_final());
        // Of more than are kept, the first would be forgotten at once, and there may be millions.
        let unkept = tasks.len().saturating_sub(self.limits.results);
        effects.reserve(tasks.len());
        for (number, task) in tasks.into_iter().enumerate() {
            self.set_state(task, State::Cancelled);
            self.starts.remove(&task);
            if number >= unkept {
                self.results.add(time_ms, task, None);
            }
            effects.push(Effect::Cancelled(task));
        }
    }

    fn retry(&mut self, target: Target, is_meant: impl Fn(State) -> bool, effects: &mut Vec<Effect>) {
        let again: BTreeSet<TaskId> = self.tasks_of(target, is_meant).into_iter().collect();
        self.results.take_out(&again);
        for task in again {
            self.set_state(task, State::Waiting { failures: 0 });
            effects.push(Effect::Wanted(task));
        }
    }

    /// Only who is here and is ours can be lent.
    fn lend(&mut self, lend: Lend, time_ms: u64) -> Effect {
        match self.workers.get(&lend.worker) {
            Some(known) if !known.is_draining => self.loans.lend(lend, known.slots, time_ms),
            _ => Effect::Nothing,
        }
    }

    /// Only who is not here any more has left.
    fn give_back(&mut self, worker: String, loan: LoanId) -> Effect {
        if self.workers.contains_key(&worker) {
            return Effect::Nothing;
        }
        self.loans.give_back(worker, loan)
    }

    /// A worker of another farm is one of ours only while it is borrowed.
    fn join(&mut self, worker: String, slots: u16) -> Effect {
        if home_of(&worker).is_some() && !self.loans.borrowed().contains_key(&worker) {
            return Effect::Nothing;
        }
        self.loans.note_missing(&worker, false);
        let is_draining = self.workers.get(&worker).is_some_and(|known| known.is_draining);
        let now = Registration { slots, is_draining };
        changed(self.workers.insert(worker, now.clone()) != Some(now))
    }

    /// Whoever gets nothing new must not get something because it went and came back. But another farm's worker that has gone
    /// must not seem to be here.
    fn leave(&mut self, worker: String) -> Effect {
        self.loans.note_missing(&worker, true);
        let is_guest = home_of(&worker).is_some();
        if self.workers.get(&worker).is_some_and(|known| !known.is_draining || is_guest) {
            self.workers.remove(&worker);
        }
        Effect::Left(worker)
    }

    fn tasks_of(&self, target: Target, is_wanted: impl Fn(State) -> bool) -> Vec<TaskId> {
        match target {
            Target::Task(task) => {
                self.state(task).filter(|state| is_wanted(*state)).map(|_| task).into_iter().collect()
            }
            Target::Job(job) => {
                let states = self.jobs.get(&job).into_iter().flat_map(Job::states);
                let numbered = (1..).zip(states).filter(|(_, state)| is_wanted(*state));
                numbered.map(|(index, _)| TaskId { job, index }).collect()
            }
        }
    }

    fn set_state(&mut self, task: TaskId, state: State) {
        let Some(before) = self.jobs.get_mut(&task.job).and_then(|job| job.set_state(task.index, state)) else {
            return;
        };
        *self.counts.of(before) -= 1;
        *self.counts.of(state) += 1;
    }

    /// Old results go; a job goes with the last of them.
    fn forget(&mut self, now_ms: u64) {
        while self.keeps_too_much(now_ms) {
            let Some(task) = self.results.forget_oldest() else { return };
            self.spent.remove(&task);
            self.forget_job(task.job);
        }
    }

    fn keeps_too_much(&self, now_ms: u64) -> bool {
        let Limits { results, results_len, age_ms, .. } = self.limits;
        let is_old = |time_ms: u64| time_ms.saturating_add(age_ms) <= now_ms;
        self.results.count() > results
            || self.results.len() > results_len
            || self.results.oldest_ms().is_some_and(is_old)
    }

    /// A job is forgotten once all of it has ended and none of its results is left.
    fn forget_job(&mut self, id: JobId) {
        let is_over = self.jobs.get(&id).is_some_and(|job| job.open() == 0);
        if !is_over || self.results.has_any_of(id) {
            return;
        }
        let Some(job) = self.jobs.remove(&id) else { return };
        job.states().for_each(|state| *self.counts.of(state) -= 1);
        job.key.and_then(|key| self.keys.remove(&key));
    }

    /// The latest time that anything in it has, in milliseconds since 1970; nothing that is told later may be earlier.
    #[must_use]
    pub fn newest_ms(&self) -> u64 {
        let job = self.jobs.values().next_back().map(|job| job.submitted_ms);
        let holders = self.groups.held().values().flat_map(|group| group.holders.values());
        let since = holders.map(|holding| holding.since_ms);
        let lent = self.loans.lent().values().map(|lent| lent.since_ms);
        let borrowed = self.loans.borrowed().values().map(|borrowed| borrowed.since_ms);
        let times = job.into_iter().chain(self.results.newest_ms()).chain(since).chain(lent).chain(borrowed);
        times.max().unwrap_or(0)
    }

    /// A job, if it is known.
    #[must_use]
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id)
    }

    /// All jobs from this number on.
    pub fn jobs(&self, from: JobId) -> impl DoubleEndedIterator<Item = (JobId, &Job)> {
        self.jobs.range(from..).map(|(id, job)| (*id, job))
    }

    /// Who is lent and borrowed.
    #[must_use]
    pub const fn loans(&self) -> &Loans {
        &self.loans
    }

    /// What is agreed about a task.
    #[must_use]
    pub fn state(&self, task: TaskId) -> Option<State> {
        self.jobs.get(&task.job)?.state(task.index)
    }

    /// Would this attempt's result count?
    #[must_use]
    pub fn is_wanted(&self, held: Held) -> bool {
        match self.state(held.task) {
            Some(State::Waiting { .. }) => {
                self.spent.get(&held.task).is_none_or(|spent| !spent.contains(&held.attempt))
            }
            Some(State::Started) => self.starts.get(&held.task).is_some_and(|start| start.attempt == held.attempt),
            _ => false,
        }
    }

    /// A task's result, if it is still kept.
    #[must_use]
    pub fn outcome(&self, task: TaskId) -> Option<Outcome> {
        self.results.get(task)
    }

    /// Who has the tasks that must not start twice.
    pub fn starts(&self) -> impl Iterator<Item = &Start> {
        self.starts.values()
    }

    /// Who has this task, if it must not start twice and has started.
    #[must_use]
    pub fn start_of(&self, task: TaskId) -> Option<&Start> {
        self.starts.get(&task)
    }

    /// The workers.
    #[must_use]
    pub const fn workers(&self) -> &BTreeMap<String, Registration> {
        &self.workers
    }

    /// Who holds which group.
    #[must_use]
    pub const fn groups(&self) -> &Groups {
        &self.groups
    }

    /// How many tasks there are in each state.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// How much is kept.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        self.limits
    }
}

impl Counts {
    const fn of(&mut self, state: State) -> &mut u64 {
        match state {
            State::Waiting { .. } => &mut self.waiting,
            State::Started => &mut self.started,
            State::Done => &mut self.done,
            State::Failed => &mut self.failed,
            State::Lost => &mut self.lost,
            State::Cancelled => &mut self.cancelled,
        }
    }
}

const fn changed(is_changed: bool) -> Effect {
    if is_changed { Effect::Workers } else { Effect::Nothing }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Term;
    use crate::ledger::{Fan, Tail, Work};

    fn spec(fan: Fan) -> Spec {
        Spec {
            name: String::new(),
            work: Work::Kind { name: "noop".into(), input: Vec::new() },
            fan,
            retries: 0,
            timeout_ms: None,
            is_once: false,
            priority: 0,
            cpus: 1,
        }
    }

    fn outcome(sequence: u64, code: u8) -> Outcome {
        Outcome {
            attempt: Attempt { term: Term(1), sequence },
            worker: "w1".into(),
            verdict: Verdict::Exited(code),
            started_us: 0,
            took_us: 0,
            stdout: Default::default(),
            stderr: Default::default(),
        }
    }

    fn apply(ledger: &mut Ledger, time_ms: u64, entry: Entry) -> Vec<Effect> {
        ledger.apply(Batch { time_ms, entries: alloc::vec![entry] })
    }

    fn submit(ledger: &mut Ledger, spec: Spec, key: Option<&str>) -> Effect {
        apply(ledger, 0, Entry::Submit { spec, key: key.map(String::from) }).remove(0)
    }

    fn finish(ledger: &mut Ledger, job: u64, index: u64, sequence: u64, code: u8) -> Effect {
        let task = TaskId { job: JobId(job), index };
        apply(ledger, 0, Entry::Finish(Report { task, outcome: outcome(sequence, code) })).remove(0)
    }

    fn task(job: u64, index: u64) -> TaskId {
        TaskId { job: JobId(job), index }
    }

    fn held(job: u64, index: u64, sequence: u64) -> Held {
        Held { task: task(job, index), attempt: Attempt { term: Term(1), sequence } }
    }

    #[test]
    fn a_key_makes_one_job_however_often_it_is_submitted() {
        let mut ledger = Ledger::default();
        for (expected, is_new) in [(1, true), (1, false)] {
            let effect = submit(&mut ledger, spec(Fan::One), Some("once"));
            assert_eq!(effect, Effect::Submitted { job: JobId(expected), is_new });
        }
        assert_eq!(submit(&mut ledger, spec(Fan::One), None), Effect::Submitted { job: JobId(2), is_new: true });
    }

    #[test]
    fn another_job_under_the_same_key_is_refused_and_changes_nothing() {
        let mut ledger = Ledger::default();
        submit(&mut ledger, spec(Fan::One), Some("once"));
        let before = ledger.clone();
        let other = spec(Fan::Array { first: 1, last: 3 });
        assert_eq!(submit(&mut ledger, other, Some("once")), Effect::OtherJob(JobId(1)));
        assert_eq!(ledger, before);
    }

    #[test]
    fn the_first_result_counts() {
        let mut ledger = Ledger::default();
        submit(&mut ledger, spec(Fan::Array { first: 1, last: 3 }), None);
        assert_eq!(finish(&mut ledger, 1, 2, 7, 0), Effect::Finished(held(1, 2, 7)));
        assert_eq!(finish(&mut ledger, 1, 2, 8, 1), Effect::Refused(held(1, 2, 8)));
        assert_eq!(ledger.outcome(task(1, 2)).map(|outcome| outcome.attempt.sequence), Some(7));
        assert_eq!((ledger.counts().waiting, ledger.counts().done), (2, 1));
        for (job, index) in [(1, 0), (1, 4), (9, 1)] {
            let effect = finish(&mut ledger, job, index, 9, 0);
            assert_eq!(effect, Effect::Refused(held(job, index, 9)), "{job}.{index} does not exist");
        }
    }

    #[test]
    fn a_failure_is_tried_again_as_often_as_was_asked() {
        let mut ledger = Ledger::default();
        submit(&mut ledger, Spec { retries: 2, ..spec(Fan::One) }, None);
        assert_eq!(finish(&mut ledger, 1, 1, 1, 3), Effect::Again(held(1, 1, 1)));
        assert_eq!(finish(&mut ledger, 1, 1, 2, 3), Effect::Again(held(1, 1, 2)));
        assert_eq!(finish(&mut ledger, 1, 1, 3, 3), Effect::Finished(held(1, 1, 3)));
        assert_eq!(ledger.state(task(1, 1)), Some(State::Failed));
        assert_eq!(apply(&mut ledger, 0, Entry::Retry(Target::Job(JobId(1)))), [Effect::Wanted(task(1, 1))]);
        assert_eq!(finish(&mut ledger, 1, 1, 4, 0), Effect::Finished(held(1, 1, 4)));
    }

    #[test]
    fn a_failure_that_is_reported_twice_counts_once() {
        let mut ledger = Ledger::default();
        submit(&mut ledger, Spec { retries: 1, ..spec(Fan::One) }, None);
        assert_eq!(finish(&mut ledger, 1, 1, 1, 3), Effect::Again(held(1, 1, 1)));
        assert_eq!(finish(&mut ledger, 1, 1, 1, 3), Effect::Refused(held(1, 1, 1)));
        assert_eq!(finish(&mut ledger, 1, 1, 2, 3), Effect::Finished(held(1, 1, 2)));
        apply(&mut ledger, 0, Entry::Retry(Target::Task(task(1, 1))));
        for sequence in [1, 2] {
            assert_eq!(finish(&mut ledger, 1, 1, sequence, 3), Effect::Refused(held(1, 1, sequence)));
        }
        assert_eq!(finish(&mut ledger, 1, 1, 3, 0), Effect::Finished(held(1, 1, 3)));
    }

    #[test]
    fn a_worker_that_gets_nothing_new_stays_so_when_it_comes_back() {
        let mut ledger = Ledger::default();
        let join = || Entry::Join { worker: "w1".into(), slots: 1 };
        let leave = || Entry::Leave { worker: "w1".into() };
        assert_eq!(apply(&mut ledger, 0, join()), [Effect::Workers]);
        assert_eq!(apply(&mut ledger, 0, leave()), [Effect::Left("w1".into())]);
        assert!(ledger.workers().is_empty());
        apply(&mut ledger, 0, join());
        apply(&mut ledger, 0, Entry::Drain { worker: "w1".into(), is_draining: true });
        apply(&mut ledger, 0, leave());
        assert_eq!(apply(&mut ledger, 0, join()), [Effect::Nothing]);
        assert!(ledger.workers()["w1"].is_draining);
    }

    #[test]
    fn a_task_that_must_not_start_twice_starts_once() {
        let mut ledger = Ledger::default();
        submit(&mut ledger, Spec { is_once: true, ..spec(Fan::One) }, None);
        let start = |sequence| Start {
            task: task(1, 1),
            worker: "w1".into(),
            attempt: Attempt { term: Term(1), sequence },
        };
        assert_eq!(apply(&mut ledger, 0, Entry::Start(start(1))), [Effect::MayStart(start(1))]);
        assert_eq!(apply(&mut ledger, 0, Entry::Start(start(2))), [Effect::Nothing]);
        assert_eq!(finish(&mut ledger, 1, 1, 2, 0), Effect::Refused(held(1, 1, 2)), "an attempt that never was");
        assert_eq!(finish(&mut ledger, 1, 1, 1, 1), Effect::Finished(held(1, 1, 1)));
        assert_eq!(ledger.state(task(1, 1)), Some(State::Failed));
        assert_eq!(ledger.starts().count(), 0);
    }

    #[test]
    fn what_is_cancelled_has_no_result() {
        let mut ledger = Ledger::default();
        submit(&mut ledger, spec(Fan::Array { first: 1, last: 3 }), None);
        finish(&mut ledger, 1, 1, 1, 0);
        let effects = apply(&mut ledger, 0, Entry::Cancel(Target::Job(JobId(1))));
        assert_eq!(effects, [Effect::Cancelled(task(1, 2)), Effect::Cancelled(task(1, 3))]);
        assert_eq!(finish(&mut ledger, 1, 2, 2, 0), Effect::Refused(held(1, 2, 2)));
        assert_eq!((ledger.counts().done, ledger.counts().cancelled), (1, 2));
    }

    #[test]
    fn a_job_of_more_tasks_than_are_kept_is_known_to_be_cancelled() {
        let mut ledger = Ledger::new(Limits { results: 2, ..Limits::default() });
        submit(&mut ledger, spec(Fan::One), None);
        finish(&mut ledger, 1, 1, 1, 0);
        submit(&mut ledger, spec(Fan::Array { first: 1, last: 5 }), None);
        assert_eq!(apply(&mut ledger, 0, Entry::Cancel(Target::Job(JobId(2)))).len(), 5);
        assert_eq!((ledger.counts().cancelled, ledger.job(JobId(1))), (5, None), "the older one went");
        submit(&mut ledger, spec(Fan::One), None);
        finish(&mut ledger, 3, 1, 1, 0);
        assert_eq!(ledger.job(JobId(2)), None, "it goes when it is its turn");
    }

    #[test]
    fn old_results_go_and_their_jobs_with_them() {
        let mut ledger = Ledger::new(Limits { results: 2, age_ms: 1000, waiting: 10, ..Limits::default() });
        submit(&mut ledger, spec(Fan::Array { first: 1, last: 3 }), Some("key"));
        (1..=3).for_each(|index| _ = finish(&mut ledger, 1, index, index, 0));
        assert_eq!(ledger.outcome(task(1, 1)), None, "only two are kept");
        assert_eq!(ledger.state(task(1, 1)), Some(State::Done), "but that it ended is known");
        apply(&mut ledger, 1000, Entry::Leave { worker: "nobody".into() });
        assert_eq!((ledger.jobs(JobId(0)).count(), ledger.counts()), (0, Counts::default()));
        assert_eq!(
            submit(&mut ledger, spec(Fan::One), Some("key")),
            Effect::Submitted { job: JobId(2), is_new: true }
        );
    }

    #[test]
    fn long_results_push_the_oldest_out() {
        let mut ledger = Ledger::new(Limits { results_len: 10_000, ..Limits::default() });
        submit(&mut ledger, spec(Fan::Array { first: 1, last: 5 }), None);
        let long = |index: u64| {
            let stdout = Tail { total: 4000, bytes: alloc::vec![b'x'; 4000] };
            Report { task: task(1, index), outcome: Outcome { stdout, ..outcome(index, 0) } }
        };
        (1..=4).for_each(|index| _ = apply(&mut ledger, 0, Entry::Finish(long(index))));
        let kept = |ledger: &Ledger| (1..=5).filter(|index| ledger.outcome(task(1, *index)).is_some()).count();
        assert_eq!((kept(&ledger), ledger.outcome(task(1, 2))), (2, None), "only two fit");
        assert_eq!(ledger.state(task(1, 2)), Some(State::Done), "but that it ended is known");
        apply(&mut ledger, 0, Entry::Limit(Limits { results_len: 1, ..Limits::default() }));
        assert_eq!(kept(&ledger), 0);
        finish(&mut ledger, 1, 5, 5, 0);
        assert_eq!((ledger.jobs(JobId(0)).count(), ledger.counts()), (0, Counts::default()));
    }

    #[test]
    fn what_failed_is_retried_without_what_was_cancelled() {
        let mut ledger = Ledger::default();
        submit(&mut ledger, spec(Fan::Array { first: 1, last: 4 }), None);
        [(1, 0), (2, 1), (4, 1)].iter().for_each(|(index, code)| _ = finish(&mut ledger, 1, *index, *index, *code));
        apply(&mut ledger, 0, Entry::Cancel(Target::Job(JobId(1))));
        let again = apply(&mut ledger, 0, Entry::RetryFailed(JobId(1)));
        assert_eq!(again, [Effect::Wanted(task(1, 2)), Effect::Wanted(task(1, 4))]);
        assert_eq!(ledger.state(task(1, 3)), Some(State::Cancelled));
        assert_eq!(apply(&mut ledger, 0, Entry::Retry(Target::Job(JobId(1)))), [Effect::Wanted(task(1, 3))]);
        assert_eq!(ledger.outcome(task(1, 2)), None, "it has not ended any more");
    }

    #[test]
    fn limits_count_from_the_moment_at_which_the_log_names_them() {
        let mut ledger = Ledger::default();
        submit(&mut ledger, spec(Fan::Array { first: 1, last: 3 }), None);
        (1..=3).for_each(|index| _ = finish(&mut ledger, 1, index, index, 0));
        assert!(ledger.outcome(task(1, 1)).is_some());
        let limits = Limits { results: 1, waiting: 2, ..Limits::default() };
        apply(&mut ledger, 0, Entry::Limit(limits));
        assert_eq!(ledger.outcome(task(1, 2)), None, "only one is kept");
        assert!(ledger.outcome(task(1, 3)).is_some());
        assert_eq!(submit(&mut ledger, spec(Fan::Array { first: 1, last: 3 }), None), Effect::Full);
    }

    #[test]
    fn too_much_is_refused_without_allocating_it() {
        let mut ledger = Ledger::default();
        assert_eq!(submit(&mut ledger, spec(Fan::Array { first: 1, last: 1_000_000_000_000 }), None), Effect::Full);
        assert_eq!(submit(&mut ledger, spec(Fan::Array { first: 0, last: u64::MAX }), None), Effect::Full);
        assert_eq!(ledger, Ledger::default());
    }
}
