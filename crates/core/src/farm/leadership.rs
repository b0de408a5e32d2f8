//! What only a leader has: which tasks wait, which workers are here, and who has what. It dies with the leadership.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use super::assign::{self, Candidate};
use super::foreman::{Foreman, Rules};
use super::past::Past;
use super::queue::{Queue, Stretch};
use super::{Hello, Message};
use crate::ledger::{Attempt, Held, Job, JobId, Ledger, LoanId, Outcome, Report, State, TaskId, Tasks};
use crate::load::Load;
use crate::machine::Outbox;
use crate::planted::{Bug, Planted};
use crate::{Term, WorkerId};

/// What only a leader has: it dies with the leadership.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Leadership {
    pub(super) term: Term,
    sequence: u64,
    pub(super) queue: Queue,
    /// What was submitted before this term, until it is settled who runs it already.
    pub(super) older: Option<Queue>,
    /// The last job that was submitted before this term.
    last_older: JobId,
    /// What needs more room than any worker has.
    unfit: Queue,
    /// Registered workers that have not reported yet.
    pub(super) unreported: BTreeSet<String>,
    /// Workers of which the log is about to say that they are gone.
    pub(super) leaving: BTreeSet<String>,
    /// Who has been asked who it is. Once is enough: each answer begins everything anew.
    pub(super) asked: BTreeSet<WorkerId>,
    pub(super) workers: BTreeMap<WorkerId, KnownWorker>,
    pub(super) assigned: BTreeMap<TaskId, Assigned>,
    pub(super) past: Past,
    planted: Planted,
}

/// A worker as the leader sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct KnownWorker {
    pub(super) name: String,
    pub(super) slots: u32,
    /// How many slots its tasks take, those in advance included.
    pub(super) busy: u32,
    /// How loaded its host is, as it last said.
    pub(super) load: Load,
    /// How long its tasks take, smoothed; nothing until one has ended.
    task_us: Option<u64>,
    /// What it has, in the order in which it got it.
    pub(super) held: BTreeMap<Attempt, TaskId>,
    /// Has it been asked to give something back, and not answered yet? One that had nothing is asked again when it has got more.
    pub(super) recall_pending: bool,
    /// Is the link there on which it said hello?
    pub(super) is_linked: bool,
    /// Is it given up, though the log does not say so yet?
    pub(super) is_gone: bool,
    /// Is there room for results on its disk?
    pub(super) has_room: bool,
    /// What a worker of another farm will have here once the ledger says that it is borrowed.
    offer: Option<Offer>,
}

/// What a worker of another farm offers: under which loan it comes, and with how many slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Offer {
    pub(super) loan: LoanId,
    pub(super) slots: u16,
}

/// Where a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Assigned {
    pub(super) attempt: Attempt,
    pub(super) worker: WorkerId,
    slots: u32,
    pub(super) phase: Phase,
}

/// How far an attempt has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// That it starts is on its way into the log; nothing has been sent.
    Starting,
    /// The worker has it.
    Out,
    /// Its result has arrived and is on its way into the log.
    Reported,
}

impl Leadership {
    pub(super) fn new(term: Term, ledger: &Ledger, planted: Planted) -> Self {
        let mut older = Queue::default();
        for (id, job) in ledger.jobs(JobId(0)).filter(|(_, job)| job.open() > 0) {
            older.push_job(job.spec.priority, id, job.spec.expansion.len());
        }
        let is_hasty = planted.is(Bug::DispatchBeforeReports);
        // Whoever is lent is waited for, too: it may not have gone yet, and if it is not heard, that must be agreed on.
        let unreported = ledger.workers().keys().filter(|_| !is_hasty).cloned().collect();
        Self {
            term,
            sequence: 0,
            queue: Queue::default(),
            older: Some(older),
            last_older: ledger.jobs(JobId(0)).next_back().map_or(JobId(0), |(id, _)| id),
            unfit: Queue::default(),
            unreported,
            leaving: BTreeSet::new(),
            asked: BTreeSet::new(),
            workers: BTreeMap::new(),
            assigned: BTreeMap::new(),
            past: Past::new(ledger),
            planted,
        }
    }

    pub(super) fn next_attempt(&mut self) -> Attempt {
        self.sequence += 1;
        let term = if self.planted.is(Bug::BareAttempts) { Term(0) } else { self.term };
        Attempt { term, sequence: self.sequence }
    }

    /// Can this worker have this attempt, as far as this leader knows? See [`Past`].
    pub(super) fn may_have(&self, worker: &str, held: Held, ledger: &Ledger) -> bool {
        let start = ledger.start_of(held.task);
        match start {
            // What must not start twice is with the worker that the ledger names.
            Some(start) => start.worker == worker,
            None if self.planted.is(Bug::BelievedAboutAnother) => self.has_given(held.attempt),
            None if self.past.had(worker, held) => true,
            None => {
                let is_older = held.attempt.term < self.term && held.task.job <= self.last_older;
                is_older && self.past.may_have_served_another(worker, ledger)
            }
        }
    }

    /// Can this attempt have been given to anybody? Of those of older leaders nobody knows.
    fn has_given(&self, attempt: Attempt) -> bool {
        attempt.term < self.term || attempt.term == self.term && attempt.sequence <= self.sequence
    }

    pub(super) fn ask_who(&mut self, caller: WorkerId, out: &mut Outbox<Foreman>) {
        if self.asked.insert(caller) {
            out.send(caller, Message::WhoAreYou(self.term));
        }
    }

    pub(super) fn welcome(&mut self, from: WorkerId, hello: &Hello, offer: Option<Offer>) {
        self.asked.remove(&from);
        self.unreported.remove(&hello.name);
        let worker = KnownWorker::new(hello.name.clone(), u32::from(hello.slots));
        self.workers.insert(from, KnownWorker { offer, ..worker });
        self.refit();
    }

    /// A worker of another farm has the slots that it offered, if it came under this loan. Says how many.
    pub(super) fn accept_offer(&mut self, guest: WorkerId, loan: Option<LoanId>) -> Option<u16> {
        let worker = self.workers.get_mut(&guest)?;
        let Offer { slots, .. } = worker.offer.take_if(|offer| Some(offer.loan) == loan)?;
        worker.slots = slots.into();
        self.refit();
        Some(slots)
    }

    pub(super) fn worker_named(&self, name: &str) -> Option<WorkerId> {
        self.workers.iter().find(|(_, worker)| worker.name == name).map(|(id, _)| *id)
    }

    /// Tasks that were handed out in vain, or are wanted again, come first; but older ones only when it is settled that nobody
    /// else runs them.
    pub(super) fn requeue(&mut self, ledger: &Ledger, tasks: impl Into<Tasks>) {
        let tasks = tasks.into();
        let priority = ledger.job(tasks.job).map_or(0, |job| job.spec.priority);
        match &mut self.older {
            Some(older) if tasks.job <= self.last_older => older.push_first(priority, tasks),
            _ => self.queue.push_first(priority, tasks),
        }
    }

    /// The next task that waits and that nobody has. Those before it need not run any more, and there may be millions.
    pub(super) fn next_waiting<'a>(&mut self, ledger: &'a Ledger) -> Option<(TaskId, &'a Job)> {
        while let Some(Stretch { job: id, next, last }) = self.queue.first() {
            let job = ledger.job(id);
            let next = job.and_then(|job| job.first_waiting(next..=last));
            self.queue.skip_to(next);
            let Some((job, index)) = job.zip(next) else { continue };
            let task = TaskId { job: id, index };
            if !self.assigned.contains_key(&task) {
                return Some((task, job));
            }
            self.queue.pop();
        }
        None
    }

    /// Does a job wait until it is settled who runs what?
    pub(super) fn is_older(&self, job: JobId) -> bool {
        self.older.is_some() && job <= self.last_older
    }

    /// What comes next needs more room than any worker has.
    pub(super) fn set_aside(&mut self) {
        self.queue.move_first_to(&mut self.unfit);
    }

    /// The workers are others now: perhaps there is room for what was set aside.
    pub(super) fn refit(&mut self) {
        let mut queue = core::mem::take(&mut self.unfit);
        queue.append(core::mem::take(&mut self.queue));
        self.queue = queue;
    }

    /// Could anybody here ever take a task of this job?
    pub(super) fn fits_somewhere(&self, ledger: &Ledger, job: &Job) -> bool {
        let slots = u32::from(job.spec.slots());
        self.workers.values().any(|worker| self.is_staying(worker, ledger) && worker.slots >= slots)
    }

    /// Those that could take a task of this job if there were room on their disks.
    pub(super) fn without_room(&self, ledger: &Ledger, job: &Job) -> Vec<String> {
        let slots = u32::from(job.spec.slots());
        let fits = |worker: &&KnownWorker| self.is_staying(worker, ledger) && worker.slots >= slots;
        let (ready, full): (Vec<&KnownWorker>, Vec<&KnownWorker>) =
            self.workers.values().filter(fits).partition(|worker| worker.has_room);
        if ready.is_empty() { full.into_iter().map(|worker| worker.name.clone()).collect() } else { Vec::new() }
    }

    /// May a worker get work now?
    pub(super) fn is_open(&self, worker: &KnownWorker, ledger: &Ledger) -> bool {
        worker.has_room && self.is_staying(worker, ledger)
    }

    /// May a worker get work at all? Only while the log knows of it: a new leader waits for no others.
    fn is_staying(&self, worker: &KnownWorker, ledger: &Ledger) -> bool {
        let is_registered = ledger.workers().get(&worker.name).is_some_and(|known| !known.is_draining);
        let is_here = !worker.is_gone && !self.leaving.contains(&worker.name);
        is_registered && is_here && !ledger.loans().is_lent(&worker.name)
    }

    pub(super) fn choose(&self, rules: &Rules, ledger: &Ledger, job: &Job) -> Option<WorkerId> {
        let need = u32::from(job.spec.slots());
        let candidate = |(id, worker): (&WorkerId, &KnownWorker)| Candidate {
            worker: *id,
            busy: worker.busy,
            slots: worker.slots,
            // What must not start twice waits here rather than there: there it would be lost with the worker.
            ahead: if job.spec.is_once { 0 } else { worker.ahead(rules) },
            tasks: u32::try_from(worker.held.len()).unwrap_or(u32::MAX),
            load: worker.load,
        };
        // Whether there is room is found out faster than whether the ledger lets it work.
        let candidates = self.workers.iter().map(|pair| (pair.1, candidate(pair)));
        let open = candidates.filter(|(worker, found)| found.has_room(need) && self.is_open(worker, ledger));
        rules.assignment.choose(rules.weights, need, open.map(|(_, found)| found), self.sequence + 1)
    }

    pub(super) fn give(&mut self, worker: WorkerId, held: Held, slots: u32, phase: Phase) {
        let Some(there) = self.workers.get_mut(&worker) else { return };
        there.recall_pending = false;
        if there.held.insert(held.attempt, held.task).is_none() {
            there.busy += slots;
        }
        self.assigned.insert(held.task, Assigned { attempt: held.attempt, worker, slots, phase });
    }

    pub(super) fn has(&self, held: Held) -> bool {
        self.assigned.get(&held.task).is_some_and(|hand| hand.attempt == held.attempt)
    }

    /// A result arrived: its slot is free at once. True if it is to be recorded.
    pub(super) fn take_report(&mut self, from: WorkerId, report: &Report) -> bool {
        let Some(hand) = self.assigned.get_mut(&report.task) else { return false };
        if hand.worker != from || hand.attempt != report.outcome.attempt || hand.phase != Phase::Out {
            return false;
        }
        hand.phase = Phase::Reported;
        let (slots, attempt) = (hand.slots, hand.attempt);
        if let Some(worker) = self.workers.get_mut(&from) {
            worker.note_duration(report.outcome.took_us);
            worker.drop_held(attempt, slots);
        }
        true
    }

    /// The log has decided on this attempt: nobody need keep it, and nobody need go on with it.
    pub(super) fn forget(&mut self, held: Held, out: &mut Outbox<Foreman>) {
        if !self.has(held) {
            return;
        }
        if let Some(Assigned { phase: Phase::Reported, worker, .. }) = self.assigned.get(&held.task).copied() {
            self.release(held.task);
            out.send(worker, Message::Forget(self.term, alloc::vec![held]));
        } else {
            self.stop([held.task], out);
        }
    }

    /// Nobody goes on with what is cancelled of these.
    pub(super) fn stop_all(&mut self, cancelled: &[Tasks], ledger: &Ledger, out: &mut Outbox<Foreman>) {
        let is_meant = |tasks: &Tasks, task: TaskId| {
            tasks.is_exact() || ledger.state(task).is_none_or(|state| state == State::Cancelled)
        };
        let held = |tasks: &Tasks| {
            let held = self.assigned.range(tasks.ends()).map(|(task, _)| *task);
            held.filter(|task| is_meant(tasks, *task)).collect::<Vec<TaskId>>()
        };
        let held: Vec<TaskId> = cancelled.iter().flat_map(held).collect();
        self.stop(held, out);
    }

    /// Nobody goes on with these. Whoever has several of them hears of all at once: between two orders it would begin with
    /// the next one.
    pub(super) fn stop(&mut self, tasks: impl IntoIterator<Item = TaskId>, out: &mut Outbox<Foreman>) {
        let mut parcels: BTreeMap<WorkerId, Vec<Held>> = BTreeMap::new();
        for task in tasks {
            if let Some(Assigned { attempt, worker, .. }) = self.release(task) {
                parcels.entry(worker).or_default().push(Held { task, attempt });
            }
        }
        for (worker, held) in parcels {
            out.send(worker, Message::Stop(self.term, held.clone()));
            out.send(worker, Message::Forget(self.term, held));
        }
    }

    /// Nobody has this task any more. Says who had it.
    pub(super) fn release(&mut self, task: TaskId) -> Option<Assigned> {
        let hand = self.assigned.remove(&task)?;
        if let Some(worker) = self.workers.get_mut(&hand.worker) {
            worker.drop_held(hand.attempt, hand.slots);
        }
        Some(hand)
    }

    /// A worker has room for results from now on, or none. What waits there then is wanted back, except what must not start
    /// twice: it is written down that it starts there.
    pub(super) fn set_room(&mut self, id: WorkerId, has_room: bool, ledger: &Ledger, out: &mut Outbox<Foreman>) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.has_room = has_room;
        if has_room {
            return;
        }
        let is_movable = |task: &TaskId| ledger.job(task.job).is_some_and(|job| !job.spec.is_once);
        let movable = worker.held.iter().filter(|(_, task)| is_movable(task));
        let held: Vec<Held> = movable.map(|(attempt, task)| Held { task: *task, attempt: *attempt }).collect();
        if !held.is_empty() {
            worker.recall_pending = true;
            out.send(id, Message::GiveBack(self.term, held));
        }
    }

    /// When nothing waits here and somebody is idle, whoever has the most in advance gives half of it back, as far as it
    /// fits there: otherwise it would go to and fro.
    pub(super) fn recall_prefetch(&mut self, ledger: &Ledger, out: &mut Outbox<Foreman>) {
        let idle = self.workers.values().filter(|worker| self.is_open(worker, ledger));
        let room = idle.map(|worker| worker.slots.saturating_sub(worker.busy)).max().unwrap_or(0);
        if room == 0 || self.queue.peek().is_some() {
            return;
        }
        let ahead = |worker: &KnownWorker| worker.busy.saturating_sub(worker.slots);
        let richest = self.workers.iter_mut().max_by_key(|(_, worker)| ahead(worker));
        let Some((id, worker)) = richest.filter(|(_, worker)| ahead(worker) > 0 && !worker.recall_pending) else {
            return;
        };
        let is_movable = |task: &TaskId| {
            ledger.job(task.job).is_some_and(|job| !job.spec.is_once && u32::from(job.spec.slots()) <= room)
        };
        // The newest are the last to begin.
        let newest = worker.held.iter().rev().take(ahead(worker).div_ceil(2) as usize);
        let movable = newest.filter(|(_, task)| is_movable(task));
        let held: Vec<Held> = movable.map(|(attempt, task)| Held { task: *task, attempt: *attempt }).collect();
        if !held.is_empty() {
            worker.recall_pending = true;
            out.send(*id, Message::GiveBack(self.term, held));
        }
    }
}

impl KnownWorker {
    const fn new(name: String, slots: u32) -> Self {
        Self {
            name,
            slots,
            busy: 0,
            load: Load::IDLE,
            task_us: None,
            held: BTreeMap::new(),
            recall_pending: false,
            is_linked: true,
            is_gone: false,
            has_room: true,
            offer: None,
        }
    }

    /// How many tasks it may have in advance: as much as keeps it busy while a message travels, and no more.
    fn ahead(&self, rules: &Rules) -> u32 {
        assign::ahead(self.slots, self.task_us, rules.ahead_us, rules.ahead_max)
    }

    fn note_duration(&mut self, took_us: u64) {
        let took_us = took_us.min(Outcome::TIME_MAX_US);
        self.task_us = Some(self.task_us.map_or(took_us, |before| (7 * before + took_us) / 8));
    }

    fn drop_held(&mut self, attempt: Attempt, slots: u32) {
        if self.held.remove(&attempt).is_some() {
            self.busy = self.busy.saturating_sub(slots);
        }
    }
}
