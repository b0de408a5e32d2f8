//! The leader's side of a farm: it keeps the ledger, hands tasks to workers and takes their results.
//!
//! Every server has a foreman and applies what the log says; only the leader's hands anything out. What it handed out is its
//! own knowledge, never agreed on: a new leader asks the workers. What was submitted in its own term it hands out at once;
//! older tasks wait until every registered worker has reported, or is gone (after [`Rules::settle`]), because one of them may
//! run them already. A result is proposed only for an attempt that this leader handed out or took over, so that a worker that was
//! given up cannot overwrite anything. A task that must not start twice is handed out only after the log says so.
//!
//! Events change state and only *ask* for scheduling (hyperqueue): every step ends with one look at queue and workers.

mod hello;
mod queries;
mod words;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

pub use self::queries::TaskStatus;
pub use self::words::{Command, Notice, Timer};
use super::assign::Rule;
use super::leadership::{Leadership, Phase};
use super::{Assignment, Message};
use crate::ledger::roll::Done;
use crate::ledger::{
    Attempt, Effect, Entry, Held, Job, Ledger, Outcome, Report, Start, State, Tail, TaskId, Tasks, Verdict,
};
use crate::load::{Load, Weights};
use crate::machine::{Delay, Input, Machine, Moment, Never, Outbox};
use crate::planted::{Bug, Planted};
use crate::{Term, WorkerId};

/// The foreman of one server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Foreman {
    rules: Rules,
    ledger: Ledger,
    leadership: Option<Leadership>,
    /// Who has a link to this server, and may be a worker.
    callers: BTreeSet<WorkerId>,
    /// How many tasks run on workers that stand beside this server, by link.
    beside: BTreeMap<WorkerId, u32>,
}

/// What a foreman goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rules {
    /// Who gets a task.
    pub assignment: Rule,
    /// How much a task that was handed out counts in a score.
    pub weights: Weights,
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
    /// A known bug, to see whether the laboratory finds it.
    pub planted: Planted,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            assignment: Rule::Balanced,
            weights: Weights::DEFAULT,
            settle: Delay::exactly_ms(2000),
            grace: Delay::exactly_ms(10),
            silence: Delay::exactly_ms(1500),
            ahead_us: 15_000,
            ahead_max: 256,
            planted: Planted::NONE,
        }
    }
}

impl Foreman {
    /// The foreman of a server that follows.
    #[must_use]
    pub const fn new(rules: Rules, ledger: Ledger) -> Self {
        Self { rules, ledger, leadership: None, callers: BTreeSet::new(), beside: BTreeMap::new() }
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
    pub fn assignment_of(&self, task: TaskId) -> Option<(&str, Attempt)> {
        let leadership = self.leadership.as_ref()?;
        let hand = leadership.assigned.get(&task)?;
        leadership.workers.get(&hand.worker).map(|worker| (worker.name.as_str(), hand.attempt))
    }

    /// How many tasks are with workers.
    #[must_use]
    pub fn handed_out(&self) -> usize {
        self.leadership.as_ref().map_or(0, |leadership| leadership.assigned.len())
    }

    /// The workers that are here: name, slots, how many of them are taken, load.
    pub fn connected(&self) -> impl Iterator<Item = (&str, u32, u32, Load)> {
        let workers = self.leadership.iter().flat_map(|leadership| leadership.workers.values());
        workers.map(|worker| (worker.name.as_str(), worker.slots, worker.busy, worker.load))
    }

    fn on_command(&mut self, command: Command, out: &mut Outbox<Self>) {
        match command {
            Command::Apply(batch) => {
                let effects = self.ledger.apply(batch);
                effects.iter().for_each(|effect| self.on_effect(effect, out));
                self.stop_cancelled(&effects, out);
                out.notify(Notice::Applied(effects));
            }
            Command::Lead(term) => self.lead(term, out),
            Command::Follow => self.leadership = None,
        }
    }

    fn lead(&mut self, term: Term, out: &mut Outbox<Self>) {
        let mut leadership = Leadership::new(term, &self.ledger, self.rules.planted);
        // Some said hello before this server knew that it leads.
        self.callers.iter().for_each(|caller| leadership.ask_who(*caller, out));
        out.set(Timer::Settle, self.rules.settle);
        self.leadership = Some(leadership);
        self.settle_if_all_reported(out);
    }

    fn settle_if_all_reported(&mut self, out: &mut Outbox<Self>) {
        if self
            .leadership
            .as_ref()
            .is_some_and(|leadership| leadership.older.is_some() && leadership.unreported.is_empty())
        {
            out.cancel(Timer::Settle);
            self.settle(out);
        }
    }

    /// Whoever has an older task has said so by now, or is not there to say it.
    fn settle(&mut self, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        let Some(mut older) = leadership.older.take() else { return };
        older.append(core::mem::take(&mut leadership.queue));
        leadership.queue = older;
        let missing = self.ledger.starts().filter(|start| !leadership.assigned.contains_key(&start.task));
        propose(missing.map(lost).collect(), out);
    }

    fn on_effect(&mut self, effect: &Effect, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        match effect {
            Effect::Submitted { job, is_new: true } => {
                if let Some(spec) = self.ledger.job(*job).map(|job| &job.spec) {
                    leadership.queue.push_job(spec.priority, *job, spec.expansion.len());
                }
            }
            Effect::Finished(held) | Effect::Refused(held) => leadership.forget(*held, out),
            Effect::Again(held) => {
                leadership.forget(*held, out);
                leadership.requeue(&self.ledger, held.task);
            }
            Effect::Wanted(tasks) => leadership.requeue(&self.ledger, *tasks),
            Effect::MayStart(start) => self.on_may_start(start, out),
            Effect::Workers => self.on_workers(out),
            Effect::Left(worker) => self.on_left(worker, out),
            // All that are cancelled are stopped together.
            Effect::Cancelled(_) | Effect::Submitted { .. } | Effect::OtherJob(_) => {}
            Effect::Full | Effect::Nothing => {}
            // It may work here now, and was only heard until then; or the other way round.
            Effect::Borrowed(name) | Effect::GivenBack(name, _) => self.on_borrowed(name, out),
            // Whoever is back has room.
            Effect::LoanEnded { .. } => leadership.refit(),
            Effect::Lent(_) | Effect::Recalled(_) => {}
            Effect::Roll(Ok(Done::Forgotten(name))) => self.on_forgotten(name, out),
            // Groups are nothing to workers, and links see to the rest of the roll.
            Effect::Granted { .. } | Effect::Released { .. } | Effect::Roll(_) => {}
        }
    }

    fn stop_cancelled(&mut self, effects: &[Effect], out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        let cancelled = effects.iter().filter_map(|effect| match effect {
            Effect::Cancelled(tasks) => Some(*tasks),
            _ => None,
        });
        leadership.stop_all(&cancelled.collect::<Vec<Tasks>>(), &self.ledger, out);
    }

    /// It is written down that this task starts, so it may. If its worker has gone meanwhile, it is lost: nobody can write
    /// down that it did not start after all.
    fn on_may_start(&mut self, start: &Start, out: &mut Outbox<Self>) {
        let held = Held { task: start.task, attempt: start.attempt };
        let (Some(leadership), Some(job)) = (&mut self.leadership, self.ledger.job(start.task.job)) else { return };
        if !self.ledger.is_wanted(held) {
            return;
        }
        leadership.release(start.task);
        // One without slots works for another farm by now.
        let worker = leadership.worker_named(&start.worker).filter(|id| leadership.workers[id].slots > 0);
        let Some(worker) = worker else { return propose(alloc::vec![lost(start)], out) };
        leadership.give(worker, held, u32::from(job.spec.slots()), Phase::Out);
        out.send(worker, Message::Run(leadership.term, alloc::vec![assignment(job, held)]));
    }

    /// The workers that are agreed on are others now.
    fn on_workers(&mut self, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        leadership.refit();
        leadership.unreported.retain(|name| self.ledger.workers().contains_key(name));
        // Whoever was given up and is back: that it left may have been on its way into the log when it said hello.
        let is_unknown = |name: &String| !self.ledger.workers().contains_key(name);
        let here = leadership.workers.values().filter(|worker| worker.slots > 0 && !worker.is_gone);
        let back = here.filter(|worker| is_unknown(&worker.name));
        propose(back.map(|worker| join(&worker.name, worker.slots)).collect(), out);
        self.settle_if_all_reported(out);
    }

    /// It is agreed that a worker is gone: unless it has come back meanwhile, what it had runs elsewhere.
    fn on_left(&mut self, name: &str, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        leadership.leaving.remove(name);
        leadership.unreported.remove(name);
        let gone = leadership.worker_named(name).filter(|id| leadership.workers[id].is_gone);
        gone.into_iter().for_each(|id| self.dismiss(id, &BTreeSet::new(), out));
        self.on_workers(out);
    }

    /// Nothing that this worker says counts any more, so what it had runs elsewhere at once.
    fn on_forgotten(&mut self, name: &str, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        let forgotten = leadership.worker_named(name);
        let forgotten = forgotten.and_then(|id| leadership.workers.get_mut(&id));
        forgotten.into_iter().for_each(|worker| worker.is_gone = true);
        self.on_left(name, out);
    }

    fn on_message(&mut self, from: WorkerId, message: Message, out: &mut Outbox<Self>) {
        self.callers.insert(from);
        if let Message::Beside(tasks) = message {
            return self.on_beside(from, tasks, out);
        }
        let Some(leadership) = &mut self.leadership else {
            return out.ignore("a worker's message to one that does not lead");
        };
        let is_known = leadership.workers.get(&from).is_some_and(|worker| !worker.is_gone);
        if !is_known && !matches!(message, Message::Hello(_)) {
            // It was given up, and may hold what others have by now.
            return leadership.ask_who(from, out);
        }
        match message {
            Message::Hello(hello) if hello.term > leadership.term => out.ignore("a worker of a newer leader"),
            Message::Hello(hello) => self.on_hello(from, hello, out),
            Message::Ended(reports) => self.on_ended(from, reports, out),
            Message::GaveBack(held) => self.on_gave_back(from, &held, out),
            Message::Beat(load) => self.on_beat(from, load, out),
            Message::Room(has_room) => self.on_room(from, has_room, out),
            _ => out.ignore("what only leaders say"),
        }
    }

    fn on_ended(&mut self, from: WorkerId, reports: Vec<Report>, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        let Some(worker) = leadership.workers.get(&from).map(|worker| worker.name.clone()) else { return };
        let (mut entries, mut refused) = (Vec::new(), Vec::new());
        for mut report in reports {
            if leadership.take_report(from, &report) {
                // Whatever it says, this is who ran it.
                report.outcome.worker.clone_from(&worker);
                report.outcome.shorten();
                entries.push(Entry::Finish(report));
            } else if !leadership.has(report.held()) {
                refused.push(report.held());
            }
        }
        if !refused.is_empty() {
            out.send(from, Message::Forget(leadership.term, refused));
        }
        propose(entries, out);
    }

    /// Others may have these. But what must not start twice had begun, or it would not have been given: it is lost.
    fn on_gave_back(&mut self, from: WorkerId, back: &[Held], out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        let Some(worker) = leadership.workers.get_mut(&from) else { return };
        worker.recall_pending = back.is_empty();
        let mut entries = Vec::new();
        for held in back {
            let is_there = leadership.assigned.get(&held.task).is_some_and(|hand| hand.worker == from);
            if is_there && leadership.has(*held) {
                leadership.release(held.task);
                leadership.requeue(&self.ledger, held.task);
                entries.extend(self.ledger.start_of(held.task).map(lost));
            }
        }
        propose(entries, out);
    }

    fn on_beat(&mut self, from: WorkerId, load: Load, out: &mut Outbox<Self>) {
        let Some(worker) = self.leadership.as_mut().and_then(|leadership| leadership.workers.get_mut(&from)) else {
            return;
        };
        worker.load = load;
        out.set(Timer::Silence(from), self.rules.silence);
    }

    /// What runs beside a server counts in its load, leader or not, for as long as it is told again and again.
    fn on_beside(&mut self, from: WorkerId, tasks: u32, out: &mut Outbox<Self>) {
        let before = self.running_beside();
        if tasks == 0 {
            self.beside.remove(&from);
            out.cancel(Timer::Beside(from));
        } else {
            self.beside.insert(from, tasks);
            out.set(Timer::Beside(from), self.rules.silence);
        }
        self.tell_beside(before, out);
    }

    fn forget_beside(&mut self, from: WorkerId, out: &mut Outbox<Self>) {
        if self.beside.contains_key(&from) {
            self.on_beside(from, 0, out);
        }
    }

    fn tell_beside(&self, before: u32, out: &mut Outbox<Self>) {
        let now = self.running_beside();
        if now != before {
            out.notify(Notice::Beside(now));
        }
    }

    fn running_beside(&self) -> u32 {
        self.beside.values().fold(0, |sum, tasks| sum.saturating_add(*tasks))
    }

    /// A worker without room on its disk begins with nothing, so others get what waits there.
    fn on_room(&mut self, from: WorkerId, has_room: bool, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        leadership.set_room(from, has_room, &self.ledger, out);
    }

    fn on_link_down(&mut self, worker: WorkerId, out: &mut Outbox<Self>) {
        self.callers.remove(&worker);
        self.forget_beside(worker, out);
        let Some(leadership) = &mut self.leadership else { return };
        leadership.asked.remove(&worker);
        if let Some(lost) = leadership.workers.get_mut(&worker) {
            lost.is_linked = false;
            out.set(Timer::Grace(worker), self.rules.grace);
        }
    }

    fn on_timer(&mut self, timer: Timer, out: &mut Outbox<Self>) {
        match timer {
            Timer::Settle => self.give_up_unheard(out),
            Timer::Grace(worker) | Timer::Silence(worker) => self.give_up(worker, out),
            Timer::Beside(worker) => self.forget_beside(worker, out),
        }
    }

    /// Those that have not reported are gone, once the log says so: a leader that was frozen all the time must not believe it.
    fn give_up_unheard(&mut self, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        leadership.leaving.extend(leadership.unreported.iter().cloned());
        propose(leadership.unreported.iter().cloned().map(|worker| Entry::Leave { worker }).collect(), out);
    }

    /// A worker is dead or frozen. What it has runs elsewhere as soon as the log says that it is gone, and not before: a
    /// leader that is deposed, and whose workers therefore leave it, must not run everything again.
    fn give_up(&mut self, id: WorkerId, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        let Some(worker) = leadership.workers.get_mut(&id).filter(|worker| !worker.is_gone) else { return };
        worker.is_gone = true;
        let worker = worker.name.clone();
        leadership.leaving.insert(worker.clone());
        propose(alloc::vec![Entry::Leave { worker }], out);
    }

    /// What a worker has runs elsewhere, except what it is known to keep; what must not start twice is lost.
    fn dismiss(&mut self, id: WorkerId, kept: &BTreeSet<Held>, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        let Some(worker) = leadership.workers.remove(&id) else { return };
        leadership.past.note_gone(worker.name, &worker.held);
        out.cancel(Timer::Silence(id));
        out.cancel(Timer::Grace(id));
        let mut entries = Vec::new();
        for (attempt, task) in worker.held {
            // Whether something starts is decided when the log says that it may.
            if leadership
                .assigned
                .get(&task)
                .is_none_or(|hand| hand.attempt != attempt || hand.phase == Phase::Starting)
            {
                continue;
            }
            leadership.assigned.remove(&task);
            match self.ledger.state(task) {
                _ if kept.contains(&Held { task, attempt }) => {}
                Some(State::Waiting { .. }) => leadership.requeue(&self.ledger, task),
                Some(State::Started) => {
                    entries.extend(self.ledger.start_of(task).map(lost));
                }
                _ => {}
            }
        }
        propose(entries, out);
    }

    /// Hands out what waits to whoever has room.
    fn schedule(&mut self, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        let mut parcels: BTreeMap<WorkerId, Vec<Assignment>> = BTreeMap::new();
        let mut starts = Vec::new();
        while let Some((task, job)) = leadership.next_waiting(&self.ledger) {
            let Some(worker) = leadership.choose(&self.rules, &self.ledger, job) else {
                if leadership.fits_somewhere(&self.ledger, job) {
                    break;
                }
                // It must not keep all others from running.
                leadership.set_aside();
                continue;
            };
            leadership.queue.pop();
            let held = Held { task, attempt: leadership.next_attempt() };
            let must_wait = job.spec.is_once && !self.rules.planted.is(Bug::OnceWithoutCommit);
            leadership.give(
                worker,
                held,
                u32::from(job.spec.slots()),
                if must_wait { Phase::Starting } else { Phase::Out },
            );
            if must_wait {
                let name = leadership.workers[&worker].name.clone();
                starts.push(Entry::Start(Start { task, worker: name, attempt: held.attempt }));
            } else {
                parcels.entry(worker).or_default().push(assignment(job, held));
            }
        }
        let term = leadership.term;
        parcels.into_iter().for_each(|(worker, parcel)| out.send(worker, Message::Run(term, parcel)));
        if self.rules.assignment.takes_back() {
            leadership.recall_prefetch(&self.ledger, out);
        }
        propose(starts, out);
    }
}

impl Machine for Foreman {
    type Peer = WorkerId;
    type Message = Message;
    type Command = Command;
    type Timer = Timer;
    type Record = Never;
    type Token = Never;
    type Barrier = Never;
    type Notice = Notice;

    fn step(&mut self, _: Moment, input: Input<Self>, out: &mut Outbox<Self>) {
        match input {
            Input::Message { from, message } => self.on_message(from, message, out),
            Input::Timer(timer) => self.on_timer(timer, out),
            Input::Command(command) => self.on_command(command, out),
            Input::LinkDown(worker) => self.on_link_down(worker, out),
            Input::LinkUp(_) => out.ignore("what no foreman needs"),
        }
        self.schedule(out);
    }
}

fn propose(entries: Vec<Entry>, out: &mut Outbox<Foreman>) {
    if !entries.is_empty() {
        out.notify(Notice::Propose(entries));
    }
}

fn join(worker: &str, slots: u32) -> Entry {
    Entry::Join { worker: worker.into(), slots: u16::try_from(slots).unwrap_or(u16::MAX) }
}

fn assignment(job: &Job, held: Held) -> Assignment {
    let argument = job.spec.expansion.argument(held.task.index);
    Assignment {
        held,
        work: job.spec.work.clone(),
        argument,
        number: job.spec.expansion.number(held.task.index),
        timeout_ms: job.spec.timeout_ms,
        cpus: job.spec.slots(),
        is_once: job.spec.is_once,
    }
}

fn lost(start: &Start) -> Entry {
    let outcome = Outcome {
        attempt: start.attempt,
        worker: start.worker.clone(),
        verdict: Verdict::Lost,
        started_us: 0,
        took_us: 0,
        stdout: Tail::default(),
        stderr: Tail::default(),
    };
    Entry::Finish(Report { task: start.task, outcome })
}
