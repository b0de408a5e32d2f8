//! The twin: what a ledger does, told as simply as it can be. Tasks are single tasks in one map, and whatever is looked for is looked
//! for everywhere. There are no ranges, no counts and no lengths that must be kept up to date.
//!
//! It knows no limit of groups, loans and the roll; unit tests reach those.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::roll::Roll;
use crate::ledger::loans::home_of;
use crate::ledger::roll::{Change, Denial};
use crate::ledger::{
    Attempt, Batch, Borrow, Borrowed, Effect, Ending, Entry, Grant, Group, Held, Holding, JobId, Lend, Lent,
    Limits, LoanId, Outcome, Registration, Release, Report, Spec, Start, State, Target, TaskId, Verdict,
};

#[derive(Debug, Default)]
pub(super) struct Twin {
    pub(super) jobs: BTreeMap<JobId, Job>,
    pub(super) tasks: BTreeMap<TaskId, Task>,
    /// In which order tasks ended, and when.
    pub(super) ended: Vec<(u64, TaskId)>,
    pub(super) workers: BTreeMap<String, Registration>,
    pub(super) groups: BTreeMap<String, Group>,
    pub(super) lent: BTreeMap<LoanId, Lent>,
    pub(super) borrowed: BTreeMap<String, Borrowed>,
    pub(super) limits: Limits,
    pub(super) roll: Roll,
    last_job: u64,
    last_token: u64,
    last_loan: u64,
}

#[derive(Debug)]
pub(super) struct Job {
    pub(super) spec: Spec,
    pub(super) key: Option<String>,
    pub(super) submitted_ms: u64,
}

#[derive(Debug, PartialEq)]
pub(super) struct Task {
    pub(super) state: State,
    pub(super) outcome: Option<Outcome>,
    pub(super) start: Option<Start>,
    /// Attempts that failed.
    pub(super) spent: Vec<Attempt>,
}

/// How many bytes a result takes, with its place and its length before it.
fn len_of(outcome: &Outcome) -> u64 {
    let len = postcard::to_allocvec(outcome).unwrap().len();
    (1 + postcard::to_allocvec(&len).unwrap().len() + len) as u64
}

impl Twin {
    /// What each entry came to. Where the ledger names many tasks at once, the twin names one after the other.
    pub(super) fn apply(&mut self, batch: &Batch) -> Vec<Effect> {
        let entries = batch.entries.iter().cloned();
        let effects = entries.flat_map(|entry| self.apply_one(entry, batch.time_ms)).collect();
        self.forget(batch.time_ms);
        effects
    }

    fn apply_one(&mut self, entry: Entry, time_ms: u64) -> Vec<Effect> {
        let is_bad = |state: State| matches!(state, State::Failed | State::Lost | State::Cancelled);
        let effect = match entry {
            Entry::Cancel(target) => return self.cancel(target, time_ms),
            Entry::Retry(target) => return self.retry(target, is_bad),
            Entry::RetryFailed(job) => {
                return self.retry(Target::Job(job), |state| is_bad(state) && state != State::Cancelled);
            }
            Entry::Limit(limits) => {
                self.limits = limits;
                return Vec::new();
            }
            Entry::Submit { spec, key } => self.submit(spec, key, time_ms),
            Entry::Finish(report) => self.finish(report, time_ms),
            Entry::Start(start) => self.start(start),
            Entry::Join { worker, slots } => self.join(worker, slots),
            Entry::Leave { worker } => self.leave(worker),
            Entry::Drain { worker, is_draining } => self.drain(&worker, is_draining),
            Entry::Grant(grant) => self.grant(grant, time_ms),
            Entry::Release(release) => self.release(release),
            Entry::Lend(lend) => self.lend(lend, time_ms),
            Entry::Recall(loan) => self.recall(loan),
            Entry::EndLoan(loan, ending) => self.end_loan(loan, ending),
            Entry::Borrow(borrow) => self.borrow(borrow, time_ms),
            Entry::GiveBack { worker, loan } => self.give_back(worker, loan),
            Entry::Roll(change) => self.change_roll(change, time_ms),
        };
        alloc::vec![effect]
    }

    fn submit(&mut self, spec: Spec, key: Option<String>, time_ms: u64) -> Effect {
        if let Some((job, known)) = self.jobs.iter().find(|(_, job)| key.is_some() && job.key == key) {
            let same = Effect::Submitted { job: *job, is_new: false };
            return if known.spec == spec { same } else { Effect::OtherJob(*job) };
        }
        let waiting = self.tasks.values().filter(|task| matches!(task.state, State::Waiting { .. })).count() as u64;
        let more = spec.expansion.len();
        if more == 0 || waiting + more > self.limits.waiting {
            return Effect::Full;
        }
        self.last_job += 1;
        let job = JobId(self.last_job);
        for index in 1..=more {
            let (state, spent) = (State::Waiting { failures: 0 }, Vec::new());
            self.tasks.insert(TaskId { job, index }, Task { state, outcome: None, start: None, spent });
        }
        self.jobs.insert(job, Job { spec, key, submitted_ms: time_ms });
        Effect::Submitted { job, is_new: true }
    }

    pub(super) fn is_wanted(&self, held: Held) -> bool {
        self.tasks.get(&held.task).is_some_and(|task| match task.state {
            State::Waiting { .. } => !task.spent.contains(&held.attempt),
            State::Started => task.start.as_ref().unwrap().attempt == held.attempt,
            _ => false,
        })
    }

    fn finish(&mut self, report: Report, time_ms: u64) -> Effect {
        let held = report.held();
        if !self.is_wanted(held) {
            return Effect::Refused(held);
        }
        let spec = &self.jobs[&held.task.job].spec;
        let task = self.tasks.get_mut(&held.task).unwrap();
        let failures = if let State::Waiting { failures } = task.state { failures } else { 0 };
        match report.outcome.verdict {
            Verdict::Exited(0) => {
                task.state = State::Done;
                task.spent.clear();
            }
            Verdict::Lost => task.state = State::Lost,
            _ if failures < spec.retries && !spec.is_once => {
                task.state = State::Waiting { failures: failures + 1 };
                task.spent.push(held.attempt);
                return Effect::Again(held);
            }
            _ => task.state = State::Failed,
        }
        if task.state != State::Done {
            task.spent.push(held.attempt);
        }
        task.start = None;
        task.outcome = Some(report.outcome);
        self.ended.push((time_ms, held.task));
        Effect::Finished(held)
    }

    fn start(&mut self, start: Start) -> Effect {
        match self.tasks.get_mut(&start.task) {
            Some(task) if matches!(task.state, State::Waiting { .. }) => {
                task.state = State::Started;
                task.start = Some(start.clone());
                Effect::MayStart(start)
            }
            _ => Effect::Nothing,
        }
    }

    fn meant(&self, target: Target, is_meant: impl Fn(State) -> bool) -> Vec<TaskId> {
        let is_there = |task: TaskId| match target {
            Target::Job(job) => task.job == job,
            Target::Task(other) => task == other,
        };
        let tasks = self.tasks.iter().filter(|(id, task)| is_there(**id) && is_meant(task.state));
        tasks.map(|(id, _)| *id).collect()
    }

    /// Of more than are kept, the first are not even noted.
    fn cancel(&mut self, target: Target, time_ms: u64) -> Vec<Effect> {
        let ids = self.meant(target, |state| !state.is_final());
        for (number, id) in ids.iter().enumerate() {
            let task = self.tasks.get_mut(id).unwrap();
            task.state = State::Cancelled;
            task.start = None;
            if number + self.limits.results >= ids.len() {
                self.ended.push((time_ms, *id));
            }
        }
        ids.into_iter().map(|id| Effect::Cancelled(id.into())).collect()
    }

    fn retry(&mut self, target: Target, is_meant: impl Fn(State) -> bool) -> Vec<Effect> {
        let ids = self.meant(target, is_meant);
        for id in &ids {
            let task = self.tasks.get_mut(id).unwrap();
            task.state = State::Waiting { failures: 0 };
            task.outcome = None;
            self.ended.retain(|(_, other)| other != id);
        }
        ids.into_iter().map(|id| Effect::Wanted(id.into())).collect()
    }

    fn forget(&mut self, now_ms: u64) {
        while let Some((time_ms, id)) = self.ended.first().copied() {
            let len: u64 = self.tasks.values().filter_map(|task| task.outcome.as_ref()).map(len_of).sum();
            let is_old = time_ms + self.limits.age_ms <= now_ms;
            if !is_old && self.ended.len() <= self.limits.results && len <= self.limits.results_len {
                return;
            }
            self.ended.remove(0);
            if let Some(task) = self.tasks.get_mut(&id) {
                task.outcome = None;
                task.spent.clear();
            }
            let is_over = |task: &Task| task.state.is_final() && task.outcome.is_none();
            if self.tasks.iter().all(|(other, task)| other.job != id.job || is_over(task)) {
                self.jobs.remove(&id.job);
                self.tasks.retain(|other, _| other.job != id.job);
            }
        }
    }

    fn join(&mut self, worker: String, slots: u16) -> Effect {
        if home_of(&worker).is_some() && !self.borrowed.contains_key(&worker) {
            return Effect::Nothing;
        }
        self.note_missing(&worker, false);
        let is_draining = self.workers.get(&worker).is_some_and(|known| known.is_draining);
        let now = Registration { slots, is_draining };
        let before = self.workers.insert(worker, now.clone());
        if before == Some(now) { Effect::Nothing } else { Effect::Workers }
    }

    fn leave(&mut self, worker: String) -> Effect {
        self.note_missing(&worker, true);
        let stays = |known: &Registration| known.is_draining && home_of(&worker).is_none();
        self.workers.retain(|name, known| *name != worker || stays(known));
        Effect::Left(worker)
    }

    fn drain(&mut self, worker: &str, is_draining: bool) -> Effect {
        let Some(known) = self.workers.get_mut(worker) else { return Effect::Nothing };
        known.is_draining = is_draining;
        Effect::Workers
    }

    fn change_roll(&mut self, change: Change, time_ms: u64) -> Effect {
        if let Change::ForgetWorker(name) = &change {
            let is_ours = home_of(name).is_none();
            if !is_ours || !self.workers.contains_key(name) && self.roll.key_of(name).is_none() {
                return Effect::Roll(Err(Denial::NoSuchWorker(name.clone())));
            }
            self.note_missing(name, true);
            self.workers.remove(name);
        }
        Effect::Roll(self.roll.apply(change, time_ms))
    }

    fn note_missing(&mut self, worker: &str, is_missing: bool) {
        for lent in self.lent.values_mut().filter(|lent| lent.worker == worker) {
            lent.is_missing = is_missing;
        }
    }

    pub(super) fn loan_of(&self, worker: &str) -> Option<LoanId> {
        self.lent.iter().find(|(_, lent)| lent.worker == worker).map(|(loan, _)| *loan)
    }

    fn lend(&mut self, lend: Lend, time_ms: u64) -> Effect {
        let Lend { worker, to, for_ms, why } = lend;
        let known = self.workers.get(&worker).filter(|known| !known.is_draining && home_of(&worker).is_none());
        let (Some(known), None) = (known, self.loan_of(&worker)) else { return Effect::Nothing };
        self.last_loan += 1;
        let (is_recalled, is_missing) = (false, false);
        let slots = known.slots;
        let lent = Lent { worker, slots, to, since_ms: time_ms, for_ms, why, is_recalled, is_missing };
        self.lent.insert(LoanId(self.last_loan), lent);
        Effect::Lent(LoanId(self.last_loan))
    }

    fn recall(&mut self, loan: LoanId) -> Effect {
        match self.lent.get_mut(&loan) {
            Some(lent) if !lent.is_recalled => {
                lent.is_recalled = true;
                Effect::Recalled(loan)
            }
            _ => Effect::Nothing,
        }
    }

    fn end_loan(&mut self, loan: LoanId, ending: Ending) -> Effect {
        match self.lent.get(&loan).cloned() {
            Some(lent) if ending == Ending::Home || lent.is_missing => {
                self.lent.remove(&loan);
                Effect::LoanEnded { loan, lent, ending }
            }
            _ => Effect::Nothing,
        }
    }

    fn borrow(&mut self, borrow: Borrow, time_ms: u64) -> Effect {
        let Borrow { worker, from, loan, for_ms, why } = borrow;
        if self.borrowed.get(&worker).is_some_and(|known| loan <= known.loan) {
            return Effect::Nothing;
        }
        self.borrowed.insert(worker.clone(), Borrowed { from, loan, since_ms: time_ms, for_ms, why });
        Effect::Borrowed(worker)
    }

    fn give_back(&mut self, worker: String, loan: LoanId) -> Effect {
        match self.borrowed.get(&worker).cloned() {
            Some(borrowed) if borrowed.loan == loan && !self.workers.contains_key(&worker) => {
                self.borrowed.remove(&worker);
                Effect::GivenBack(worker, borrowed)
            }
            _ => Effect::Nothing,
        }
    }

    fn grant(&mut self, grant: Grant, time_ms: u64) -> Effect {
        let new = || Group { rules: grant.rules, holders: BTreeMap::new() };
        let mut group = self.groups.get(&grant.group).cloned().unwrap_or_else(new);
        let is_full = group.holders.len() >= usize::from(group.rules.holders);
        if group.rules != grant.rules || is_full || group.holders.contains_key(&grant.session) {
            return Effect::Nothing;
        }
        self.last_token += 1;
        let (token, name, since_ms, lease_us) = (self.last_token, grant.name.clone(), time_ms, grant.lease_us);
        group.holders.insert(grant.session, Holding { token, name, since_ms, lease_us });
        self.groups.insert(grant.group.clone(), group);
        Effect::Granted { grant, token, since_ms }
    }

    fn release(&mut self, release: Release) -> Effect {
        let Release { group, session, token } = release;
        let Some(known) = self.groups.get_mut(&group) else { return Effect::Nothing };
        if known.holders.get(&session).map(|holding| holding.token) != Some(token) {
            return Effect::Nothing;
        }
        known.holders.remove(&session);
        self.groups.retain(|_, group| !group.holders.is_empty());
        Effect::Released { group, session, token }
    }
}
