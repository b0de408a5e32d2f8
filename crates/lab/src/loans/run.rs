//! One run: farms, links, clients and logs in virtual time, all chance drawn from one seed.
//!
//! Here are the loop and the clients; servers are in [`super::servers`], workers in [`super::crews`], what is said between them
//! in [`super::links`], what goes wrong in [`super::strokes`].

use std::collections::{BTreeMap, BTreeSet};

use primus_core::ledger::{Entry, Held};
use primus_core::loan::office::LendOrder;
use primus_core::loan::{self, office};
use primus_core::machine::{Delay, Token};
use primus_server::worker::Timer;

use super::checks::Checks;
use super::faults::{self, Act, FAULTS_END_US, Network, Plan, Stroke};
use super::host::{FarmHost, FarmId, Lane, Member, ServerHost, ServerTimer, Words, WorkerHost};
use super::{Audience, Loans, Report};
use crate::chance::Chance;
use crate::log::Log;
use crate::node::NodeId;
use crate::observer::Observer;
use crate::queue::Queue;
use crate::simulate::Happening;

/// How long after the faults every task and every loan may take to come to its end; loans may be long themselves.
const HEALING_US_MAX: u64 = 100_000_000;
/// How long all is quiet before one farm is flooded. Every new leader has lent nothing for as long as that.
const QUIET_US: u64 = 2_000_000;
/// How much every slot of the flooded farm gets: it takes three seconds.
const FLOOD_PER_SLOT: u64 = 15;
pub(super) const FLOOD_TASK_US: u64 = 200_000;
const CLIENT_EVERY_US: u64 = 100_000;
const SERVERS: u64 = 3;
const WORKERS_MAX: u64 = 4;
const NAMES: [&str; 5] = ["north", "south", "east", "west", "centre"];
/// How long an operator lends somebody for.
const OPERATOR_LOAN_MS: u64 = 2_000;

/// A run under way.
pub(super) struct Run<'a, O> {
    seed: u64,
    pub(super) observer: &'a mut O,
    pub(super) farms: Vec<FarmHost>,
    pub(super) servers: BTreeMap<NodeId, ServerHost>,
    pub(super) workers: BTreeMap<NodeId, WorkerHost>,
    /// From a server to one of another farm.
    pub(super) lanes: BTreeMap<(NodeId, NodeId), Lane>,
    pub(super) queue: Queue<Event>,
    pub(super) chance: Chance,
    pub(super) now_us: u64,
    /// Timers and links are numbered, so that old ones are known.
    next_number: u64,
    /// What waits while a process stands still.
    pub(super) frozen: BTreeMap<NodeId, Vec<Event>>,
    /// Servers that reach no other.
    pub(super) isolated: BTreeSet<NodeId>,
    /// Workers and farms that do not reach each other.
    pub(super) cut: BTreeSet<Member>,
    /// Farms that do not reach each other.
    pub(super) apart: BTreeSet<(FarmId, FarmId)>,
    strokes: Vec<(u64, Stroke, u64)>,
    wishes: Vec<(u64, FarmId, Entry)>,
    acts: Vec<(u64, FarmId, Act)>,
    pub(super) network: Network,
    pub(super) rules: office::Rules,
    pub(super) checks: Checks,
    /// When everything had come to its end, and which farm is flooded then.
    quiet_since_us: Option<u64>,
    pub(super) flooded: Option<FarmId>,
    pub(super) leaders: u64,
    pub(super) starts: u64,
    pub(super) steps: u64,
}

/// Something that will happen.
#[derive(Debug, Clone)]
pub(super) enum Event {
    ToServer { server: NodeId, member: Member, link: u64, words: Words },
    ToWorker { member: Member, link: u64, words: Words },
    Between { from: NodeId, to: NodeId, lane: u64, message: loan::Message },
    ServerTimer { at: NodeId, timer: ServerTimer, number: u64 },
    WorkerTimer { worker: NodeId, timer: Timer, number: u64 },
    Synced { member: Member, duty: u64, token: Token },
    EpochSynced { worker: NodeId, incarnation: u32, token: Token },
    Opened { worker: NodeId, incarnation: u32, farm: FarmId },
    Done { member: Member, duty: u64, held: Held },
    Commit { leader: NodeId, term: u64 },
    Depose { server: NodeId, term: u64 },
    Watch(FarmId),
    Look { worker: NodeId },
    ServerSees { server: NodeId, worker: NodeId, link: u64 },
    WorkerSees { member: Member, link: u64 },
    Wish(FarmId, Box<Entry>),
    Act(FarmId, Act),
    Clients,
    Stroke(Stroke, u64),
    Restart(NodeId),
    Resume(NodeId),
    Rejoin(NodeId),
    Mend(Member),
    Reunite(FarmId, FarmId),
}

impl<'a, O: Audience> Run<'a, O> {
    pub(super) fn new(loans: &'a Loans, seed: u64, observer: &'a mut O) -> Self {
        let mut chance = Chance::new(seed);
        let Plan { strokes, wishes, acts, network, rules } =
            faults::plan(loans.faults, loans.farms, loans.planted, &mut chance);
        let mut run = Self {
            seed,
            observer,
            farms: Vec::new(),
            servers: BTreeMap::new(),
            workers: BTreeMap::new(),
            lanes: BTreeMap::new(),
            queue: Queue::new(),
            chance,
            now_us: 0,
            next_number: 0,
            frozen: BTreeMap::new(),
            isolated: BTreeSet::new(),
            cut: BTreeSet::new(),
            apart: BTreeSet::new(),
            strokes,
            wishes,
            acts,
            network,
            rules,
            checks: Checks::new(loans.farms, &rules, loans.faults),
            quiet_since_us: None,
            flooded: None,
            leaders: 0,
            starts: 0,
            steps: 0,
        };
        (0..loans.farms).for_each(|farm| run.add_farm(farm));
        run
    }

    /// Servers and workers are numbered through, so that nobody is taken for somebody of another farm.
    fn add_farm(&mut self, farm: FarmId) {
        let first = 100 * (farm as u64 + 1);
        let server_ids: Vec<NodeId> = (first + 1..=first + SERVERS).map(NodeId).collect();
        let count = self.chance.between(2, WORKERS_MAX);
        let worker_ids: Vec<NodeId> = (first + 11..first + 11 + count).map(NodeId).collect();
        for id in &server_ids {
            self.servers.insert(*id, ServerHost::new(farm, faults::clock(&mut self.chance)));
        }
        for (place, id) in (1..).zip(&worker_ids) {
            let slots = self.chance.pick(&[1, 1, 2]);
            let clock = faults::clock(&mut self.chance);
            self.workers.insert(*id, WorkerHost::new(farm, format!("w{place}"), slots, clock));
        }
        let (log, wishes) = (Log::default(), Vec::new());
        self.farms.push(FarmHost { name: NAMES[farm], server_ids, worker_ids, log, wishes });
    }

    /// Makes the run and judges it.
    pub(super) fn finish(mut self) -> Report {
        self.begin();
        while !self.checks.is_violated() && !self.is_over() && self.next_event() {}
        let kept = self.kept();
        self.checks.on_end(kept, self.flooded.is_some());
        let (tasks, lost) = self.checks.tasks_and_lost();
        let (sightings, violation) = self.checks.verdict();
        Report {
            seed: self.seed,
            violation,
            tasks,
            starts: self.starts,
            lost,
            leaders: self.leaders,
            sightings,
            virtual_us: self.now_us,
            steps: self.steps,
        }
    }

    fn begin(&mut self) {
        for id in self.servers.keys().chain(self.workers.keys()) {
            self.queue.push(self.chance.between(0, 10_000), Event::Restart(*id));
        }
        (0..self.farms.len()).for_each(|farm| self.queue.push(0, Event::Watch(farm)));
        self.queue.push(CLIENT_EVERY_US, Event::Clients);
        self.workers.keys().for_each(|worker| self.queue.push(0, Event::Look { worker: *worker }));
        for (at_us, stroke, until_us) in std::mem::take(&mut self.strokes) {
            self.queue.push(at_us, Event::Stroke(stroke, until_us));
        }
        for (at_us, farm, wish) in std::mem::take(&mut self.wishes) {
            self.queue.push(at_us, Event::Wish(farm, Box::new(wish)));
        }
        for (at_us, farm, act) in std::mem::take(&mut self.acts) {
            self.queue.push(at_us, Event::Act(farm, act));
        }
    }

    /// Everything has ended, everybody knows, and nobody keeps anything; twice, because one farm is flooded in between.
    fn is_over(&mut self) -> bool {
        if self.now_us < FAULTS_END_US + 200_000 {
            return false;
        }
        if self.now_us > FAULTS_END_US + HEALING_US_MAX {
            return true;
        }
        if !self.is_quiet() {
            self.quiet_since_us = None;
            return false;
        }
        let since_us = *self.quiet_since_us.get_or_insert(self.now_us);
        if self.flooded.is_some() {
            return true;
        }
        if since_us + QUIET_US < self.now_us {
            self.flood();
        }
        false
    }

    fn is_quiet(&self) -> bool {
        let is_known = self.servers.values().all(|host| host.applied == self.farms[host.farm].log.committed.len());
        let is_granted = self.farms.iter().all(|farm| farm.wishes.is_empty());
        is_known && is_granted && self.checks.is_at_rest() && self.kept() == 0
    }

    /// Now one farm gets much more than it can do, and the others have nothing to do.
    fn flood(&mut self) {
        let farm = self.chance.below(self.farms.len() as u64) as FarmId;
        let alive = |host: &&WorkerHost| host.worker.is_some();
        let own = self.workers.values().filter(alive).filter(|host| host.home == farm);
        let slots: u64 = own.map(|host| u64::from(host.slots)).sum();
        let number_of = |other| self.workers.values().filter(alive).filter(|host| host.home == other).count();
        let reserve = self.rules.reserve as usize;
        let can_help = (0..self.farms.len()).any(|other| other != farm && number_of(other) > reserve);
        self.flooded = Some(farm);
        self.checks.on_flood(farm, can_help);
        self.quiet_since_us = None;
        self.farms[farm].wishes.push(faults::submit(slots * FLOOD_PER_SLOT, false, "flood"));
    }

    /// Are all faults over?
    pub(super) const fn is_calm(&self) -> bool {
        self.now_us > FAULTS_END_US
    }

    fn kept(&self) -> usize {
        let workers = self.workers.values().filter_map(|host| host.worker.as_ref());
        let work = workers.flat_map(|worker| worker.farms().filter_map(|(farm, _)| worker.work(farm)));
        work.map(primus_core::farm::worker::Worker::unrecorded).sum()
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
            Event::ToServer { server, member, link, words } => self.deliver_to_server(server, member, link, words),
            Event::ToWorker { member, link, words } => self.deliver_to_worker(member, link, words),
            Event::Between { from, to, lane, message } => self.deliver_between(from, to, lane, message),
            Event::ServerTimer { at, timer, number } => self.on_server_timer(at, timer, number),
            Event::WorkerTimer { worker, timer, number } => self.on_worker_timer(worker, timer, number),
            Event::Synced { member, duty, token } => self.on_synced(member, duty, token),
            Event::EpochSynced { worker, incarnation, token } => self.on_epoch_synced(worker, incarnation, token),
            Event::Opened { worker, incarnation, farm } => self.on_opened(worker, incarnation, farm),
            Event::Done { member, duty, held } => self.on_done(member, duty, held),
            Event::Commit { leader, term } => self.on_commit(leader, term),
            Event::Depose { server, term } => self.on_depose(server, term),
            Event::Watch(farm) => self.on_watch(farm),
            Event::Look { worker } => self.on_look(worker),
            Event::ServerSees { server, worker, link } => self.on_server_sees(server, worker, link),
            Event::WorkerSees { member, link } => self.on_worker_sees(member, link),
            Event::Wish(farm, wish) => self.farms[farm].wishes.push(*wish),
            Event::Act(farm, act) => self.on_act(farm, act),
            Event::Clients => self.on_clients(),
            Event::Stroke(stroke, until_us) => self.on_stroke(stroke, until_us),
            Event::Restart(id) => self.restart(id),
            Event::Resume(id) => self.resume(id),
            Event::Rejoin(server) => _ = self.isolated.remove(&server),
            Event::Mend(member) => _ = self.cut.remove(&member),
            Event::Reunite(one, other) => _ = self.apart.remove(&(one, other)),
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

    /// Clients ask whoever believes to lead, again and again, until they have what they want.
    fn on_clients(&mut self) {
        self.queue.push(self.now_us + CLIENT_EVERY_US, Event::Clients);
        for farm in 0..self.farms.len() {
            let leads = |id: &NodeId| self.servers[id].leads.is_some() && !self.frozen.contains_key(id);
            let leaders: Vec<NodeId> = self.farms[farm].server_ids.iter().copied().filter(leads).collect();
            if !leaders.is_empty() && !self.farms[farm].wishes.is_empty() {
                let leader = self.chance.pick(&leaders);
                self.propose(leader, self.farms[farm].wishes.clone());
            }
        }
    }

    /// An operator lends somebody who is there, or wants somebody back.
    fn on_act(&mut self, farm: FarmId, act: Act) {
        match act {
            Act::Lend => self.order_loans(farm),
            Act::Recall => {
                if let Some(loan) = self.checks.truth(farm).loans().lent().keys().next().copied() {
                    self.checks.on_recall_by_operator(farm, loan);
                    self.farms[farm].wishes.push(Entry::Recall(loan));
                }
            }
        }
    }

    /// The leader is told to lend one worker, and another one right after that. The office decides whether a worker goes.
    fn order_loans(&mut self, farm: FarmId) {
        let others: Vec<FarmId> = (0..self.farms.len()).filter(|other| *other != farm).collect();
        let to = self.farms[self.chance.pick(&others)].name.to_owned();
        let order = LendOrder { to, count: 1, for_ms: OPERATOR_LOAN_MS };
        let leads = |id: &&NodeId| self.servers[id].leads.is_some() && !self.frozen.contains_key(id);
        let Some(leader) = self.farms[farm].server_ids.iter().find(leads).copied() else { return };
        for _ in 0..2 {
            let now_ms = self.servers[&leader].clock.now_ms(self.now_us);
            let Some(process) = self.server(leader).process.as_mut() else { return };
            let situation = process.foreman.situation(now_ms).unwrap_or_default();
            if let Ok(entries) = process.office.lend(&order, &situation) {
                self.propose(leader, entries);
            }
        }
    }

    pub(super) fn observe(&mut self, happening: &Happening) {
        <O as Observer<loan::Office>>::on_happening(self.observer, self.now_us, happening);
    }
}

impl Event {
    /// Who must be able to move for this to happen.
    const fn receiver(&self) -> Option<NodeId> {
        match self {
            Self::ToServer { server, .. } | Self::ServerSees { server, .. } | Self::Depose { server, .. } => {
                Some(*server)
            }
            Self::ToWorker { member, .. } | Self::WorkerSees { member, .. } => Some(member.worker),
            Self::Synced { member, .. } | Self::Done { member, .. } => Some(member.worker),
            Self::WorkerTimer { worker, .. } | Self::EpochSynced { worker, .. } => Some(*worker),
            Self::Opened { worker, .. } => Some(*worker),
            Self::ServerTimer { at, .. } => Some(*at),
            Self::Between { to, .. } => Some(*to),
            Self::Commit { leader, .. } => Some(*leader),
            _ => None,
        }
    }

    /// After standing still, messages come before timers: a pause of one's own is nobody else's silence.
    pub(super) const fn is_timer(&self) -> bool {
        matches!(self, Self::ServerTimer { .. } | Self::WorkerTimer { .. })
    }
}
