//! The leader's side of a farm: it keeps the ledger, hands tasks to workers and takes their results.
//!
//! Every server has a foreman and applies what the log says; only the leader's hands anything out. What it handed out is its
//! own knowledge, never agreed on: a new leader asks the workers. What was submitted in its own term it hands out at once;
//! older tasks wait until every registered worker has reported, or [`Rules::settle`] has passed, because one of them may run
//! them already. A result is proposed only for an attempt that this leader handed out or took over, so that a worker that was
//! given up cannot overwrite anything. A task that must not start twice is handed out only after the log says so.
//!
//! Events change state and only *ask* for scheduling (hyperqueue): every step ends with one look at queue and workers.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::assign::{Candidate, Rule};
use super::queue::Queue;
use super::{Assignment, Hello, Message};
use crate::NodeId;
use crate::election::NoRecord;
use crate::ledger::{
    Attempt, Batch, Effect, Entry, Held, Job, JobId, Ledger, Outcome, Report, Start, State, Tail, TaskId, Verdict,
    Work,
};
use crate::load::Score;
use crate::machine::{Delay, Input, Machine, Outbox};

/// The foreman of one server.
#[derive(Debug, Clone)]
pub struct Foreman {
    rules: Rules,
    ledger: Ledger,
    desk: Option<Desk>,
}

/// What a foreman goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Who gets a task.
    pub assignment: Rule,
    /// How long a new leader waits for workers that an older one knew.
    pub settle: Delay,
    /// How long a worker whose link was lost may take to come back.
    pub grace: Delay,
    /// How long a worker may be silent.
    pub silence: Delay,
    /// How much work a worker may have in advance, as time.
    pub ahead_us: u64,
    /// And as a number of tasks per slot.
    pub ahead_max: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            assignment: Rule::Balanced,
            settle: Delay::exactly_ms(2000),
            grace: Delay::exactly_ms(10),
            silence: Delay::exactly_ms(1500),
            ahead_us: 10_000,
            ahead_max: 256,
        }
    }
}

/// What its owner tells a foreman.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// The log says this.
    Apply(Batch),
    /// This server leads from now on, in this term.
    Lead(u64),
    /// It does not any more.
    Follow,
}

/// What a foreman tells its owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Notice {
    /// Write this into the log.
    Propose(Vec<Entry>),
    /// What the last batch came to.
    Applied(Vec<Effect>),
}

/// Its timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// Workers that an older leader knew have had time enough to report.
    Settle,
    /// A worker whose link was lost has not come back.
    Grace(NodeId),
    /// A worker has been silent for too long.
    Silence(NodeId),
}

/// What only a leader has.
#[derive(Debug, Clone)]
struct Desk {
    term: u64,
    sequence: u64,
    turn: u64,
    queue: Queue,
    /// What was submitted before this term, until it is settled who runs it already.
    older: Option<Queue>,
    /// Registered workers that have not reported yet.
    unheard: BTreeSet<String>,
    workers: BTreeMap<NodeId, Worker>,
    hands: BTreeMap<TaskId, Hand>,
}

/// A worker as the leader sees it.
#[derive(Debug, Clone)]
struct Worker {
    name: String,
    slots: u32,
    /// How many slots its tasks take, those in advance included.
    busy: u32,
    score: Score,
    /// How long its tasks take, smoothed; nothing until one has ended.
    task_us: Option<u64>,
    /// What it has, in the order in which it got it.
    held: BTreeMap<Attempt, TaskId>,
    /// Has it been asked to give something back, and not answered yet?
    is_asked: bool,
}

/// Where a task is.
#[derive(Debug, Clone, Copy)]
struct Hand {
    attempt: Attempt,
    worker: NodeId,
    cpus: u32,
    /// Its result has arrived and is on its way into the log.
    is_reported: bool,
}

impl Foreman {
    /// The foreman of a server that follows.
    #[must_use]
    pub const fn new(rules: Rules, ledger: Ledger) -> Self {
        Self { rules, ledger, desk: None }
    }

    /// What is agreed on.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The whole agreed state came from elsewhere.
    pub fn restore(&mut self, ledger: Ledger) {
        self.ledger = ledger;
    }

    /// Who has this task at the moment, and under which attempt, if this server leads.
    #[must_use]
    pub fn whereabouts(&self, task: TaskId) -> Option<(&str, Attempt)> {
        let desk = self.desk.as_ref()?;
        let hand = desk.hands.get(&task)?;
        desk.workers.get(&hand.worker).map(|worker| (worker.name.as_str(), hand.attempt))
    }

    /// How many tasks are with workers.
    #[must_use]
    pub fn handed_out(&self) -> usize {
        self.desk.as_ref().map_or(0, |desk| desk.hands.len())
    }

    /// The workers that are here: name, slots, how many of them are taken, score.
    pub fn present(&self) -> impl Iterator<Item = (&str, u32, u32, Score)> {
        let workers = self.desk.iter().flat_map(|desk| desk.workers.values());
        workers.map(|worker| (worker.name.as_str(), worker.slots, worker.busy, worker.score))
    }

    fn on_command(&mut self, command: Command, out: &mut Outbox<Self>) {
        match command {
            Command::Apply(batch) => {
                let effects = self.ledger.apply(batch);
                effects.iter().for_each(|effect| self.on_effect(effect, out));
                out.notify(Notice::Applied(effects));
            }
            Command::Lead(term) => self.lead(term, out),
            Command::Follow => self.desk = None,
        }
    }

    fn lead(&mut self, term: u64, out: &mut Outbox<Self>) {
        let mut older = Queue::default();
        for (id, job) in self.ledger.jobs(JobId(0)).filter(|(_, job)| job.open() > 0) {
            older.push_job(job.spec.priority, id, job.spec.fan.len());
        }
        let unheard: BTreeSet<String> = self.ledger.workers().keys().cloned().collect();
        out.set(Timer::Settle, self.rules.settle);
        self.desk = Some(Desk {
            term,
            sequence: 0,
            turn: 0,
            queue: Queue::default(),
            older: Some(older),
            unheard,
            workers: BTreeMap::new(),
            hands: BTreeMap::new(),
        });
        self.settle_if_all_reported(out);
    }

    fn settle_if_all_reported(&mut self, out: &mut Outbox<Self>) {
        if self.desk.as_ref().is_some_and(|desk| desk.older.is_some() && desk.unheard.is_empty()) {
            out.cancel(Timer::Settle);
            self.settle(out);
        }
    }

    /// Whoever has an older task has said so by now, or is not there to say it.
    fn settle(&mut self, out: &mut Outbox<Self>) {
        let Some(desk) = &mut self.desk else { return };
        let Some(mut older) = desk.older.take() else { return };
        older.append(core::mem::take(&mut desk.queue));
        desk.queue = older;
        let lost = self.ledger.starts().filter(|start| !desk.hands.contains_key(&start.task));
        let entries: Vec<Entry> = lost.map(|start| Entry::Finish(lost_report(start))).collect();
        propose(entries, out);
    }

    fn on_effect(&mut self, effect: &Effect, out: &mut Outbox<Self>) {
        let Some(desk) = &mut self.desk else { return };
        match effect {
            Effect::Submitted { job, is_new: true } => {
                if let Some(spec) = self.ledger.job(*job).map(|job| &job.spec) {
                    desk.queue.push_job(spec.priority, *job, spec.fan.len());
                }
            }
            Effect::Finished(held) | Effect::Refused(held) => desk.forget(*held, out),
            Effect::Again(held) => {
                desk.forget(*held, out);
                desk.queue.push_first(priority_of(&self.ledger, held.task), held.task);
            }
            Effect::Wanted(task) => desk.queue.push_first(priority_of(&self.ledger, *task), *task),
            Effect::MayStart(start) => {
                let held = Held { task: start.task, attempt: start.attempt };
                if let (true, Some(job)) = (desk.has(held), self.ledger.job(start.task.job)) {
                    let worker = desk.hands[&start.task].worker;
                    out.send(worker, Message::Run(desk.term, alloc::vec![assignment(job, held)]));
                }
            }
            Effect::Cancelled(task) => desk.stop(*task, out),
            Effect::Submitted { .. } | Effect::Full | Effect::Workers | Effect::Nothing => {}
        }
    }

    fn on_message(&mut self, from: NodeId, message: Message, out: &mut Outbox<Self>) {
        let Some(desk) = &self.desk else { return out.ignore("a worker's message to one that does not lead") };
        if !matches!(message, Message::Hello(_)) && !desk.workers.contains_key(&from) {
            // It was given up, and may hold what others have by now.
            return out.send(from, Message::WhoAreYou(desk.term));
        }
        match message {
            Message::Hello(hello) => self.on_hello(from, hello, out),
            Message::Ended(reports) => self.on_ended(from, reports, out),
            Message::GaveBack(held) => self.on_gave_back(from, &held),
            Message::Beat(score) => self.on_beat(from, score, out),
            _ => out.ignore("what only leaders say"),
        }
    }

    /// A worker is here, perhaps again, and says what it has. What is missing from that is lost and runs again; what this
    /// leader did not know of is taken over, unless somebody else has it by now.
    fn on_hello(&mut self, from: NodeId, hello: Hello, out: &mut Outbox<Self>) {
        let known = self.desk.iter().flat_map(|desk| &desk.workers).find(|(_, worker)| worker.name == hello.name);
        let before = known.map(|(id, _)| *id);
        let kept: BTreeSet<Held> = hello.held.iter().copied().chain(hello.ended.iter().map(held_of)).collect();
        if let Some(before) = before {
            self.dismiss(before, &kept, out);
        }
        let Some(desk) = &mut self.desk else { return };
        let worker = Worker::new(hello.name.clone(), u32::from(hello.slots));
        desk.workers.insert(from, worker);
        desk.unheard.remove(&hello.name);
        out.set(Timer::Silence(from), self.rules.silence);
        out.send(from, Message::Welcome(desk.term));
        let registered = self.ledger.workers().get(&hello.name).map(|registration| registration.slots);
        if registered != Some(hello.slots) {
            propose(alloc::vec![Entry::Join { worker: hello.name, slots: hello.slots }], out);
        }
        hello.held.into_iter().for_each(|held| self.adopt(from, held, out));
        hello.ended.iter().for_each(|report| self.adopt(from, held_of(report), out));
        self.on_ended(from, hello.ended, out);
        self.settle_if_all_reported(out);
    }

    /// Takes over what a worker has, if it is still wanted and nobody else has it.
    fn adopt(&mut self, from: NodeId, held: Held, out: &mut Outbox<Self>) {
        let Some(desk) = &mut self.desk else { return };
        let is_wanted = match self.ledger.state(held.task) {
            Some(State::Waiting { .. }) => true,
            Some(State::Started) => {
                self.ledger.starts().any(|start| start.task == held.task && start.attempt == held.attempt)
            }
            _ => false,
        };
        if is_wanted && desk.hands.get(&held.task).is_none_or(|hand| hand.attempt == held.attempt) {
            let cpus = self.ledger.job(held.task.job).map_or(1, |job| u32::from(job.spec.cpus));
            desk.give(from, held, cpus);
        } else {
            out.send(from, Message::Stop(desk.term, alloc::vec![held]));
            out.send(from, Message::Forget(desk.term, alloc::vec![held]));
        }
    }

    fn on_ended(&mut self, from: NodeId, reports: Vec<Report>, out: &mut Outbox<Self>) {
        let Some(desk) = &mut self.desk else { return };
        let (mut entries, mut refused) = (Vec::new(), Vec::new());
        for report in reports {
            if desk.take_report(from, &report) {
                entries.push(Entry::Finish(report));
            } else if !desk.has(held_of(&report)) {
                refused.push(held_of(&report));
            }
        }
        if !refused.is_empty() {
            out.send(from, Message::Forget(desk.term, refused));
        }
        propose(entries, out);
    }

    fn on_gave_back(&mut self, from: NodeId, back: &[Held]) {
        let Some(desk) = &mut self.desk else { return };
        let Some(worker) = desk.workers.get_mut(&from) else { return };
        worker.is_asked = false;
        for held in back.iter().filter(|held| worker.held.contains_key(&held.attempt)).copied().collect::<Vec<_>>()
        {
            desk.release(held);
            desk.queue.push_first(priority_of(&self.ledger, held.task), held.task);
        }
    }

    fn on_beat(&mut self, from: NodeId, score: Score, out: &mut Outbox<Self>) {
        let Some(worker) = self.desk.as_mut().and_then(|desk| desk.workers.get_mut(&from)) else { return };
        worker.score = score;
        out.set(Timer::Silence(from), self.rules.silence);
    }

    fn on_timer(&mut self, timer: Timer, out: &mut Outbox<Self>) {
        match timer {
            Timer::Settle => self.settle(out),
            Timer::Grace(worker) | Timer::Silence(worker) => self.dismiss(worker, &BTreeSet::new(), out),
        }
    }

    /// A worker is given up. What it has runs elsewhere, except what it is known to keep; what must not start twice is lost.
    fn dismiss(&mut self, id: NodeId, kept: &BTreeSet<Held>, out: &mut Outbox<Self>) {
        let Some(desk) = &mut self.desk else { return };
        let Some(worker) = desk.workers.remove(&id) else { return };
        out.cancel(Timer::Silence(id));
        out.cancel(Timer::Grace(id));
        let mut entries = Vec::new();
        for (attempt, task) in worker.held {
            desk.hands.remove(&task);
            match self.ledger.state(task) {
                _ if kept.contains(&Held { task, attempt }) => {}
                Some(State::Waiting { .. }) => desk.queue.push_first(priority_of(&self.ledger, task), task),
                Some(State::Started) => {
                    let start = self.ledger.starts().find(|start| start.task == task);
                    entries.extend(start.map(|start| Entry::Finish(lost_report(start))));
                }
                _ => {}
            }
        }
        propose(entries, out);
    }

    /// Hands out what waits to whoever has room.
    fn schedule(&mut self, out: &mut Outbox<Self>) {
        let Some(desk) = &mut self.desk else { return };
        let mut parcels: BTreeMap<NodeId, Vec<Assignment>> = BTreeMap::new();
        let mut starts = Vec::new();
        while let Some(task) = desk.queue.peek() {
            let job = self.ledger.job(task.job);
            let is_waiting = matches!(job.and_then(|job| job.state(task.index)), Some(State::Waiting { .. }));
            let Some(job) = job.filter(|_| is_waiting && !desk.hands.contains_key(&task)) else {
                desk.queue.pop();
                continue;
            };
            let Some(worker) = desk.choose(&self.rules, &self.ledger, job) else { break };
            desk.queue.pop();
            let held = Held { task, attempt: desk.next_attempt() };
            desk.give(worker, held, u32::from(job.spec.cpus));
            if job.spec.is_once {
                let name = desk.workers[&worker].name.clone();
                starts.push(Entry::Start(Start { task, worker: name, attempt: held.attempt }));
            } else {
                parcels.entry(worker).or_default().push(assignment(job, held));
            }
        }
        let term = desk.term;
        parcels.into_iter().for_each(|(worker, parcel)| out.send(worker, Message::Run(term, parcel)));
        desk.take_back(out);
        propose(starts, out);
    }
}

impl Desk {
    fn next_attempt(&mut self) -> Attempt {
        self.sequence += 1;
        Attempt { term: self.term, sequence: self.sequence }
    }

    fn choose(&mut self, rules: &Rules, ledger: &Ledger, job: &Job) -> Option<NodeId> {
        self.turn += 1;
        let cpus = u32::from(job.spec.cpus);
        let has_room = |worker: &Worker| {
            let is_draining = ledger.workers().get(&worker.name).is_some_and(|known| known.is_draining);
            // What must not start twice waits here rather than there: there it would be lost with the worker.
            let ahead = if job.spec.is_once { 0 } else { worker.ahead(rules) };
            !is_draining && worker.slots >= cpus && worker.busy + cpus <= worker.slots + ahead
        };
        let candidates = self.workers.iter().filter(|(_, worker)| has_room(worker)).map(|(id, worker)| Candidate {
            worker: *id,
            busy: worker.busy,
            slots: worker.slots,
            score: worker.score,
        });
        rules.assignment.choose(candidates, self.turn)
    }

    fn give(&mut self, worker: NodeId, held: Held, cpus: u32) {
        let Some(there) = self.workers.get_mut(&worker) else { return };
        if there.held.insert(held.attempt, held.task).is_none() {
            there.busy += cpus;
        }
        self.hands.insert(held.task, Hand { attempt: held.attempt, worker, cpus, is_reported: false });
    }

    fn has(&self, held: Held) -> bool {
        self.hands.get(&held.task).is_some_and(|hand| hand.attempt == held.attempt)
    }

    /// A result arrived: its slot is free at once. True if it is to be recorded.
    fn take_report(&mut self, from: NodeId, report: &Report) -> bool {
        let Some(hand) = self.hands.get_mut(&report.task) else { return false };
        if hand.worker != from || hand.attempt != report.outcome.attempt || hand.is_reported {
            return false;
        }
        hand.is_reported = true;
        let (cpus, attempt) = (hand.cpus, hand.attempt);
        if let Some(worker) = self.workers.get_mut(&from) {
            worker.note_duration(report.outcome.took_us);
            worker.drop_held(attempt, cpus);
        }
        true
    }

    /// The log has decided on this attempt: nobody need keep it.
    fn forget(&mut self, held: Held, out: &mut Outbox<Foreman>) {
        if self.has(held)
            && let Some(worker) = self.release(held)
        {
            out.send(worker, Message::Forget(self.term, alloc::vec![held]));
        }
    }

    fn stop(&mut self, task: TaskId, out: &mut Outbox<Foreman>) {
        let Some(hand) = self.hands.get(&task) else { return };
        let held = Held { task, attempt: hand.attempt };
        if let Some(worker) = self.release(held) {
            out.send(worker, Message::Stop(self.term, alloc::vec![held]));
            out.send(worker, Message::Forget(self.term, alloc::vec![held]));
        }
    }

    /// Nobody has this attempt any more. Says who had it.
    fn release(&mut self, held: Held) -> Option<NodeId> {
        let hand = self.hands.remove(&held.task)?;
        if let Some(worker) = self.workers.get_mut(&hand.worker) {
            worker.drop_held(held.attempt, hand.cpus);
        }
        Some(hand.worker)
    }

    /// When nothing waits here and somebody is idle, whoever has the most in advance gives half of it back.
    fn take_back(&mut self, out: &mut Outbox<Foreman>) {
        let is_idle = |worker: &Worker| worker.busy < worker.slots;
        if self.queue.peek().is_some() || !self.workers.values().any(is_idle) {
            return;
        }
        let ahead = |worker: &Worker| worker.busy.saturating_sub(worker.slots);
        let richest = self.workers.iter_mut().max_by_key(|(_, worker)| ahead(worker));
        let Some((id, worker)) = richest.filter(|(_, worker)| ahead(worker) > 0 && !worker.is_asked) else {
            return;
        };
        worker.is_asked = true;
        let count = ahead(worker).div_ceil(2) as usize;
        // The newest are the last to begin.
        let newest = worker.held.iter().rev().take(count);
        let held = newest.map(|(attempt, task)| Held { task: *task, attempt: *attempt }).collect();
        out.send(*id, Message::GiveBack(self.term, held));
    }
}

impl Worker {
    const fn new(name: String, slots: u32) -> Self {
        Self {
            name,
            slots,
            busy: 0,
            score: Score::from_hundredths(0),
            task_us: None,
            held: BTreeMap::new(),
            is_asked: false,
        }
    }

    /// How many tasks it may have in advance: as much as keeps it busy while a message travels, and no more.
    fn ahead(&self, rules: &Rules) -> u32 {
        let per_slot = self.task_us.map_or(1, |task_us| rules.ahead_us / task_us.max(1));
        let per_slot = u32::try_from(per_slot).unwrap_or(u32::MAX).clamp(1, rules.ahead_max);
        per_slot * self.slots
    }

    fn note_duration(&mut self, took_us: u64) {
        self.task_us = Some(self.task_us.map_or(took_us, |before| (7 * before + took_us) / 8));
    }

    fn drop_held(&mut self, attempt: Attempt, cpus: u32) {
        if self.held.remove(&attempt).is_some() {
            self.busy = self.busy.saturating_sub(cpus);
        }
    }
}

impl Machine for Foreman {
    type Message = Message;
    type Command = Command;
    type Timer = Timer;
    type Record = NoRecord;
    type Notice = Notice;

    fn step(&mut self, input: Input<Self>, out: &mut Outbox<Self>) {
        match input {
            Input::Message { from, message } => self.on_message(from, message, out),
            Input::Timer(timer) => self.on_timer(timer, out),
            Input::Command(command) => self.on_command(command, out),
            Input::LinkDown(worker) => out.set(Timer::Grace(worker), self.rules.grace),
            Input::LinkUp(_) | Input::Persisted(_) => out.ignore("what no foreman needs"),
        }
        self.schedule(out);
    }
}

fn propose(entries: Vec<Entry>, out: &mut Outbox<Foreman>) {
    if !entries.is_empty() {
        out.notify(Notice::Propose(entries));
    }
}

fn held_of(report: &Report) -> Held {
    Held { task: report.task, attempt: report.outcome.attempt }
}

fn priority_of(ledger: &Ledger, task: TaskId) -> i16 {
    ledger.job(task.job).map_or(0, |job| job.spec.priority)
}

fn assignment(job: &Job, held: Held) -> Assignment {
    let argument = job.spec.fan.argument(held.task.index);
    let mut work = job.spec.work.clone();
    if let Work::Command(command) = &mut work {
        command.arguments = command.arguments_for(&argument);
    }
    Assignment { held, work, argument, timeout_ms: job.spec.timeout_ms, cpus: job.spec.cpus }
}

fn lost_report(start: &Start) -> Report {
    let outcome = Outcome {
        attempt: start.attempt,
        worker: start.worker.clone(),
        verdict: Verdict::Lost,
        started_ms: 0,
        took_us: 0,
        stdout: Tail::default(),
        stderr: Tail::default(),
    };
    Report { task: start.task, outcome }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apply(batch) => write!(f, "apply {}", batch.entries.len()),
            Self::Lead(term) => write!(f, "lead in term {term}"),
            Self::Follow => f.write_str("follow"),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Propose(entries) => write!(f, "propose {}", entries.len()),
            Self::Applied(effects) => write!(f, "applied {}", effects.len()),
        }
    }
}

impl fmt::Display for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settle => f.write_str("settle"),
            Self::Grace(worker) => write!(f, "grace {worker}"),
            Self::Silence(worker) => write!(f, "silence {worker}"),
        }
    }
}
