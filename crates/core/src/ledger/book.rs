//! The ledger itself: entries in, one agreed state out.

mod size;
mod sweep;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::effect::Effect;
use super::entry::{Batch, Entry, Report, Start, Target};
use super::groups::Groups;
use super::job::{Job, JobId, Spec};
use super::loans::{Lend, LoanId, Loans, home_of};
use super::results::Results;
use super::roll::{self, Roll};
use super::task::{Attempt, Counts, Held, Outcome, State, TaskId, Verdict};
use super::weighed::Weighed;

/// What a farm agrees on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Ledger {
    jobs: Weighed<JobId, Job>,
    last_job: u64,
    keys: Weighed<String, JobId>,
    /// The newest results in full; of older ones only the state is left.
    results: Results,
    /// Who has the tasks that must not start twice.
    starts: Weighed<TaskId, Start>,
    /// Attempts that have failed and are counted: a worker may report one again, and it must not count twice.
    spent: Weighed<TaskId, Vec<Attempt>>,
    workers: Weighed<String, Registration>,
    groups: Groups,
    loans: Loans,
    counts: Counts,
    limits: Limits,
    /// The last part, because it is missing on disks of older releases.
    #[serde(with = "roll", skip_serializing_if = "Roll::is_untouched")]
    roll: Roll,
}

/// What is agreed about a worker.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Registration {
    /// How much it can run at once.
    pub slots: u16,
    /// Does it get nothing new?
    pub is_draining: bool,
}

/// How much is kept. All servers must go by the same, so the leader's are written into the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
            Entry::Roll(change) => effects.push(Effect::Roll(self.change_roll(change, time_ms))),
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
        let tasks = spec.expansion.len();
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
            self.spend(held);
        }
        if !next.is_final() {
            return Effect::Again(held);
        }
        self.starts.remove(&task);
        self.results.add(time_ms, task, &outcome);
        Effect::Finished(held)
    }

    /// This attempt has failed, and never counts again.
    fn spend(&mut self, held: Held) {
        if self.spent.change(&held.task, |spent| spent.push(held.attempt)).is_none() {
            self.spent.insert(held.task, alloc::vec![held.attempt]);
        }
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

    /// A worker that is forgotten is none of ours, drained or not; also one that never had a key.
    fn change_roll(&mut self, change: roll::Change, time_ms: u64) -> Result<roll::Done, roll::Denial> {
        let roll::Change::ForgetWorker(name) = &change else { return self.roll.apply(change, time_ms) };
        let is_known = self.workers.contains_key(name) || self.roll.workers().contains_key(name);
        if !is_known || home_of(name).is_some() {
            return Err(roll::Denial::NoSuchWorker(name.clone()));
        }
        let name = name.clone();
        let done = self.roll.apply(change, time_ms)?;
        self.loans.note_missing(&name, true);
        self.workers.remove(&name);
        Ok(done)
    }

    fn set_state(&mut self, task: TaskId, state: State) {
        let Some(job) = self.jobs.get_mut(&task.job) else { return };
        let before = job.counts();
        job.change(&(task.index..=task.index), |_| true, state, |_, _| ());
        self.counts.change(before, job.counts());
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
        times.chain([self.roll.newest_ms()]).max().unwrap_or(0)
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

    /// Who is who.
    #[must_use]
    pub const fn roll(&self) -> &Roll {
        &self.roll
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
        self.workers.map()
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

const fn changed(is_changed: bool) -> Effect {
    if is_changed { Effect::Workers } else { Effect::Nothing }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod twin;
