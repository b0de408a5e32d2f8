//! One run: servers, workers, links, clients and a log in virtual time, all chance drawn from one seed.
//!
//! Here are the loop, the servers with their log, and the clients; workers and links are in [`super::hands`], what goes
//! wrong in [`super::strokes`].

use primus_core::Term;
use std::collections::{BTreeMap, BTreeSet};

use primus_core::farm::Message;
use primus_core::farm::foreman::{self, Command, Foreman, Notice, Rules};
use primus_core::farm::worker::{self, Worker};
use primus_core::ledger::{Batch, Entry, Held, Ledger};
use primus_core::machine::{Delay, Input, Machine, Moment, Outbox, Output, Token};

use super::checks::{Checks, Witness};
use super::faults::{self, FAULTS_END_US, Plan, Stroke};
use super::host::{ServerHost, WorkerHost};
use super::{Farm, Faults, Report};
use crate::chance::Chance;
use crate::log::Log;
use crate::node::NodeId;
use crate::observer::Observer;
use crate::queue::Queue;
use crate::simulate::Happening;

/// How long after the faults every task may take to come to its end.
const HEALING_US_MAX: u64 = 30_000_000;
const COMMIT: Delay = Delay { min_us: 200, max_us: 5_000 };
/// How often servers look whether there is a leader, and clients whether they have what they want.
const WATCH: Delay = Delay { min_us: 5_000, max_us: 40_000 };
const CLIENT_EVERY_US: u64 = 100_000;
/// How long a deposed leader that reaches the others may go on.
const IGNORANCE: Delay = Delay { min_us: 1_000, max_us: 500_000 };
/// Workers are numbered from here on.
const FIRST_WORKER: u64 = 101;

/// A run under way.
pub(super) struct Run<'a, O> {
    seed: u64,
    observer: &'a mut O,
    pub(super) server_ids: Vec<NodeId>,
    pub(super) worker_ids: Vec<NodeId>,
    pub(super) servers: BTreeMap<NodeId, ServerHost>,
    pub(super) workers: BTreeMap<NodeId, WorkerHost>,
    pub(super) log: Log,
    pub(super) queue: Queue<Event>,
    pub(super) chance: Chance,
    pub(super) now_us: u64,
    /// Timers and links are numbered, so that old ones are known.
    pub(super) next_number: u64,
    /// What waits while a process stands still.
    pub(super) frozen: BTreeMap<NodeId, Vec<Event>>,
    /// Servers that reach no other.
    pub(super) isolated: BTreeSet<NodeId>,
    /// Workers and servers that do not reach each other.
    pub(super) cut: BTreeSet<(NodeId, NodeId)>,
    plan: Plan,
    /// What clients want and have not got yet.
    wishes: Vec<Entry>,
    pub(super) checks: Checks,
    rules: Rules,
    /// Are workers out of reach at times, so that what they have is run again?
    pub(super) may_rerun: bool,
    leaders: u64,
    pub(super) starts: u64,
    pub(super) double_starts: u64,
    steps: u64,
}

/// Something that will happen.
#[derive(Debug, Clone)]
pub(super) enum Event {
    ToServer { server: NodeId, worker: NodeId, link: u64, message: Message },
    ToWorker { worker: NodeId, link: u64, message: Message },
    ServerTimer { at: NodeId, timer: foreman::Timer, number: u64 },
    WorkerTimer { at: NodeId, timer: worker::Timer, number: u64 },
    Synced { at: NodeId, incarnation: u32, token: Token },
    Done { at: NodeId, incarnation: u32, held: Held },
    Commit { leader: NodeId, term: u64 },
    Depose { server: NodeId, term: u64 },
    Watch,
    Look { worker: NodeId },
    ServerSees { server: NodeId, worker: NodeId, link: u64 },
    WorkerSees { worker: NodeId, link: u64 },
    Wish(Box<Entry>),
    Clients,
    Stroke(Stroke, u64),
    Restart(NodeId),
    Resume(NodeId),
    Rejoin(NodeId),
    Mend(NodeId, NodeId),
}

impl<'a, O: Observer<Foreman> + Observer<Worker>> Run<'a, O> {
    pub(super) fn new(farm: &'a Farm, seed: u64, observer: &'a mut O) -> Self {
        let server_ids: Vec<NodeId> = (1..=farm.servers).map(NodeId).collect();
        let worker_ids: Vec<NodeId> = (FIRST_WORKER..FIRST_WORKER + farm.workers).map(NodeId).collect();
        let mut chance = Chance::new(seed);
        let plan = faults::plan(farm.faults, farm.workers, &mut chance);
        Self {
            seed,
            observer,
            servers: server_ids.iter().map(|id| (*id, ServerHost::default())).collect(),
            workers: worker_ids.iter().map(|id| (*id, WorkerHost::default())).collect(),
            server_ids,
            worker_ids,
            log: Log::default(),
            queue: Queue::new(),
            chance,
            now_us: 0,
            next_number: 0,
            frozen: BTreeMap::new(),
            isolated: BTreeSet::new(),
            cut: BTreeSet::new(),
            plan,
            wishes: Vec::new(),
            checks: Checks::default(),
            rules: Rules { planted: farm.planted, ..Rules::default() },
            may_rerun: farm.faults == Faults::All,
            leaders: 0,
            starts: 0,
            double_starts: 0,
            steps: 0,
        }
    }

    /// Makes the run and judges it.
    pub(super) fn finish(mut self) -> Report {
        self.begin();
        while !self.checks.is_violated() && !self.is_over() && self.next_event() {}
        let kept = self.kept();
        self.checks.on_end(kept);
        let counts = self.checks.truth().counts();
        let tasks = counts.waiting + counts.started + counts.done + counts.failed + counts.lost + counts.cancelled;
        Report {
            seed: self.seed,
            tasks,
            lost: counts.lost,
            starts: self.starts,
            double_starts: self.double_starts,
            leaders: self.leaders,
            virtual_us: self.now_us,
            steps: self.steps,
            violation: self.checks.verdict(),
        }
    }

    fn begin(&mut self) {
        for id in self.server_ids.iter().chain(&self.worker_ids) {
            self.queue.push(self.chance.between(0, 10_000), Event::Restart(*id));
        }
        self.queue.push(0, Event::Watch);
        self.queue.push(CLIENT_EVERY_US, Event::Clients);
        for worker in &self.worker_ids {
            self.queue.push(0, Event::Look { worker: *worker });
        }
        for (at_us, stroke, until_us) in std::mem::take(&mut self.plan.strokes) {
            self.queue.push(at_us, Event::Stroke(stroke, until_us));
        }
        for (at_us, wish) in std::mem::take(&mut self.plan.wishes) {
            self.queue.push(at_us, Event::Wish(Box::new(wish)));
        }
    }

    /// Everything has ended, everybody knows, and nobody keeps anything.
    fn is_over(&self) -> bool {
        if self.now_us < FAULTS_END_US + 200_000 || self.now_us > FAULTS_END_US + HEALING_US_MAX {
            return self.now_us > FAULTS_END_US + HEALING_US_MAX;
        }
        let counts = self.checks.truth().counts();
        let is_known = self.servers.values().all(|host| host.applied == self.log.committed.len());
        is_known && counts.waiting + counts.started == 0 && self.wishes.is_empty() && self.kept() == 0
    }

    /// Are all faults over?
    pub(super) const fn is_calm(&self) -> bool {
        self.now_us > FAULTS_END_US
    }

    fn kept(&self) -> usize {
        self.workers.values().filter_map(|host| host.process.as_ref()).map(Worker::unrecorded).sum()
    }

    fn next_event(&mut self) -> bool {
        let Some((at_us, event)) = self.queue.pop() else { return false };
        self.now_us = at_us;
        match event.receiver().and_then(|at| self.frozen.get_mut(&at)) {
            Some(backlog) => backlog.push(event),
            None => self.on_event(event),
        }
        true
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::ToServer { server, worker, link, message } => {
                self.deliver_to_server(server, worker, link, message);
            }
            Event::ToWorker { worker, link, message } => self.deliver_to_worker(worker, link, message),
            Event::ServerTimer { at, timer, number } => self.on_server_timer(at, timer, number),
            Event::WorkerTimer { at, timer, number } => self.on_worker_timer(at, timer, number),
            Event::Synced { at, incarnation, token } => self.on_synced(at, incarnation, token),
            Event::Done { at, incarnation, held } => self.on_done(at, incarnation, held),
            Event::Commit { leader, term } => self.on_commit(leader, term),
            Event::Depose { server, term } => self.on_depose(server, term),
            Event::Watch => self.on_watch(),
            Event::Look { worker } => self.on_look(worker),
            Event::ServerSees { server, worker, link } => self.on_server_sees(server, worker, link),
            Event::WorkerSees { worker, link } => self.on_worker_sees(worker, link),
            Event::Wish(wish) => self.wishes.push(*wish),
            Event::Clients => self.on_clients(),
            Event::Stroke(stroke, until_us) => self.on_stroke(stroke, until_us),
            Event::Restart(id) => self.restart(id),
            Event::Resume(id) => self.resume(id),
            Event::Rejoin(server) => _ = self.isolated.remove(&server),
            Event::Mend(worker, server) => _ = self.cut.remove(&(worker, server)),
        }
    }

    pub(super) fn after(&mut self, delay: Delay, event: Event) {
        let at_us = self.now_us + self.chance.between(delay.min_us, delay.max_us);
        self.queue.push(at_us, event);
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(super) fn server(&mut self, id: NodeId) -> &mut ServerHost {
        self.servers.get_mut(&id).expect("a server of this farm")
    }

    pub(super) fn start_server(&mut self, id: NodeId) {
        let foreman = Foreman::new(self.rules, Ledger::default());
        self.server(id).process = Some(foreman);
    }

    /// Can this server take part in what the log needs a majority for?
    pub(super) fn is_able(&self, id: NodeId) -> bool {
        let is_alive = self.servers.get(&id).is_some_and(|host| host.process.is_some());
        is_alive && !self.frozen.contains_key(&id) && !self.isolated.contains(&id)
    }

    pub(super) fn able(&self) -> Vec<NodeId> {
        self.server_ids.iter().copied().filter(|id| self.is_able(*id)).collect()
    }

    /// If nobody can lead who does, somebody else will. Followers hear what is committed.
    fn on_watch(&mut self) {
        self.after(WATCH, Event::Watch);
        let able = self.able();
        let is_led = self.log.leader().is_some_and(|leader| self.is_able(leader));
        if !is_led && 2 * able.len() > self.server_ids.len() && self.chance.happens(500_000) {
            let leader = self.chance.pick(&able);
            self.elect(leader);
        }
        for server in able {
            if self.servers[&server].leads.is_none() && (self.is_calm() || self.chance.happens(500_000)) {
                self.catch_up(server);
            }
        }
    }

    /// A new leader has applied everything that was ever committed before it is told that it leads.
    pub(super) fn elect(&mut self, leader: NodeId) {
        let before = (self.log.leader(), self.log.term);
        let kept = self.log.elect(leader, &mut self.chance);
        (0..kept).for_each(|_| self.commit());
        if let (Some(old), term) = before
            && old != leader
        {
            self.after(IGNORANCE, Event::Depose { server: old, term });
        }
        self.leaders += 1;
        let term = self.log.term;
        if self.server(leader).leads.take().is_some() {
            self.step_server(leader, Input::Command(Command::Follow));
        }
        self.catch_up(leader);
        self.server(leader).leads = Some(term);
        self.step_server(leader, Input::Command(Command::Lead(Term(term))));
    }

    /// A leader hears that there is a newer one, as soon as it hears anything.
    fn on_depose(&mut self, server: NodeId, term: u64) {
        if self.server(server).leads != Some(term) {
            return;
        }
        if self.isolated.contains(&server) {
            return self.after(IGNORANCE, Event::Depose { server, term });
        }
        self.server(server).leads = None;
        self.step_server(server, Input::Command(Command::Follow));
        self.catch_up(server);
    }

    fn propose(&mut self, server: NodeId, entries: Vec<Entry>) {
        let batch = Batch { time_ms: self.now_us / 1000, entries };
        if let Some(term) = self.server(server).leads
            && self.log.propose(server, term, batch)
        {
            self.after(COMMIT, Event::Commit { leader: server, term });
        }
    }

    fn on_commit(&mut self, leader: NodeId, term: u64) {
        if !self.log.is_led_by(leader, term) {
            return;
        }
        if !self.is_able(leader) {
            return self.after(COMMIT, Event::Commit { leader, term });
        }
        self.commit();
        self.catch_up(leader);
    }

    fn commit(&mut self) {
        if let Some(batch) = self.log.commit() {
            self.wishes.retain(|wish| !batch.entries.contains(wish));
            self.checks.on_commit(batch);
        }
    }

    fn catch_up(&mut self, server: NodeId) {
        while let Some(batch) = self.log.committed.get(self.servers[&server].applied).cloned() {
            self.server(server).applied += 1;
            self.step_server(server, Input::Command(Command::Apply(batch)));
        }
        if let Some(process) = &self.servers[&server].process {
            self.checks.on_apply(server, process.ledger());
        }
    }

    /// Clients ask whoever believes to lead, again and again, until they have what they want.
    fn on_clients(&mut self) {
        self.queue.push(self.now_us + CLIENT_EVERY_US, Event::Clients);
        let leads = |id: &NodeId| self.servers[id].leads.is_some() && !self.frozen.contains_key(id);
        let leaders: Vec<NodeId> = self.server_ids.iter().copied().filter(leads).collect();
        if leaders.is_empty() || self.wishes.is_empty() {
            return;
        }
        let leader = self.chance.pick(&leaders);
        self.propose(leader, self.wishes.clone());
    }

    pub(super) fn step_server(&mut self, id: NodeId, input: Input<Foreman>) {
        let Some(process) = self.servers.get_mut(&id).and_then(|host| host.process.as_mut()) else { return };
        self.steps += 1;
        let mut outbox = Outbox::new();
        process.step(Moment(self.now_us), input.clone(), &mut outbox);
        self.observer.on_step(self.now_us, id, &input, outbox.as_slice());
        for output in outbox.drain() {
            match output {
                Output::Send { to, message } => self.send_to_worker(id, to.into(), message),
                Output::Set { timer, delay } => {
                    let number = self.number();
                    self.server(id).timers.insert(timer, number);
                    self.after(delay, Event::ServerTimer { at: id, timer, number });
                }
                Output::Cancel(timer) => _ = self.server(id).timers.remove(&timer),
                Output::Notify(Notice::Propose(entries)) => self.propose(id, entries),
                Output::Notify(Notice::Applied(_) | Notice::Arrived(..) | Notice::Beside(_))
                | Output::Ignore(_) => {}
            }
        }
    }

    pub(super) fn observe_worker(&mut self, id: NodeId, input: &Input<Worker>, outputs: &[Output<Worker>]) {
        self.steps += 1;
        self.observer.on_step(self.now_us, id, input, outputs);
    }

    pub(super) fn observe(&mut self, happening: &Happening) {
        <O as Observer<Foreman>>::on_happening(self.observer, self.now_us, happening);
    }

    fn on_server_timer(&mut self, at: NodeId, timer: foreman::Timer, number: u64) {
        if self.server(at).timers.get(&timer) == Some(&number) {
            self.server(at).timers.remove(&timer);
            self.step_server(at, Input::Timer(timer));
        }
    }

    /// A leader hands something out.
    pub(super) fn on_handout(&mut self, server: NodeId, held: Held) {
        let witnesses: Vec<Witness> = self.worker_ids.iter().filter_map(|id| self.witness(server, *id)).collect();
        if let Some(process) = &self.servers[&server].process {
            self.checks.on_handout(server, held, process.ledger(), &witnesses);
        }
    }

    fn witness(&self, server: NodeId, worker: NodeId) -> Option<Witness> {
        let host = &self.workers[&worker];
        let process = host.process.as_ref().filter(|_| !self.frozen.contains_key(&worker))?;
        let is_linked = host.link.is_some_and(|link| link.server == server && !link.is_broken);
        let is_welcome = process.serves() == Some((server.server(), self.servers[&server].leads.map(Term)?));
        let name = worker_name(worker);
        let is_present = self.servers[&server].process.as_ref()?.present().any(|(present, ..)| present == name);
        (is_linked && is_welcome && is_present).then(|| Witness { worker, has: process.has().collect() })
    }
}

impl Event {
    /// Who must be able to move for this to happen.
    fn receiver(&self) -> Option<NodeId> {
        match self {
            Self::ToServer { server, .. } | Self::ServerSees { server, .. } | Self::Depose { server, .. } => {
                Some(*server)
            }
            Self::ToWorker { worker, .. } | Self::WorkerSees { worker, .. } => Some(*worker),
            Self::ServerTimer { at, .. } | Self::WorkerTimer { at, .. } => Some(*at),
            Self::Synced { at, .. } | Self::Done { at, .. } => Some(*at),
            Self::Commit { leader, .. } => Some(*leader),
            _ => None,
        }
    }

    /// After standing still, messages come before timers: a pause of one's own is nobody else's silence.
    pub(super) const fn is_timer(&self) -> bool {
        matches!(self, Self::ServerTimer { .. } | Self::WorkerTimer { .. })
    }
}

pub(super) fn worker_name(worker: NodeId) -> String {
    format!("w{}", worker.0 + 1 - FIRST_WORKER)
}
