//! One run: servers, guards and a log in virtual time, all chance drawn from one seed.
//!
//! Here are the loop and the servers with their log; guards are in [`super::candidates`], what goes wrong in
//! [`super::strokes`].

use std::collections::{BTreeMap, BTreeSet};

use primus_core::SessionId;
use primus_core::lease::lessor::{Command, Notice, Rules, Tick};
use primus_core::lease::{Guard, Lessor, Message, Poll, guard};
use primus_core::ledger::{Batch, Entry};
use primus_core::machine::{Delay, Input, Machine, Moment, Outbox, Output};
use primus_core::planted::Planted;

use super::checks::Checks;
use super::faults::{self, FAULTY_LEASES, Network, Stroke};
use super::host::{GuardHost, ServerHost};
use super::{Leases, Report};
use crate::chance::Chance;
use crate::log::Log;
use crate::node::NodeId;
use crate::observer::Observer;
use crate::queue::Queue;
use crate::simulate::Happening;

/// So many leases after the last fault everything must be held that can be.
const HEALING_LEASES: u64 = 8;
const COMMIT: Delay = Delay { min_us: 200, max_us: 5_000 };
/// From the moment at which a majority has voted to the moment at which the new leader knows.
const COUNTING: Delay = Delay { min_us: 50, max_us: 20_000 };
/// How often servers look whether there is a leader.
const WATCH: Delay = Delay { min_us: 5_000, max_us: 40_000 };
/// How long a deposed leader that reaches the others may go on.
const IGNORANCE: Delay = Delay { min_us: 1_000, max_us: 500_000 };

/// A run under way.
pub(super) struct Run<'a, O> {
    seed: u64,
    observer: &'a mut O,
    pub(super) server_ids: Vec<NodeId>,
    pub(super) guard_ids: Vec<NodeId>,
    pub(super) servers: BTreeMap<NodeId, ServerHost>,
    pub(super) guards: BTreeMap<NodeId, GuardHost>,
    pub(super) log: Log,
    pub(super) queue: Queue<Event>,
    pub(super) chance: Chance,
    pub(super) now_us: u64,
    pub(super) lease_us: u64,
    pub(super) planted: Planted,
    /// Timers and sessions are numbered.
    next_number: u64,
    /// What waits while a process stands still.
    pub(super) frozen: BTreeMap<NodeId, Vec<Event>>,
    /// Servers that reach no other.
    pub(super) isolated: BTreeSet<NodeId>,
    /// Guards that reach no server.
    pub(super) cut_off: BTreeSet<NodeId>,
    /// Until then nothing is committed.
    pub(super) stalled_until_us: u64,
    network: Network,
    strokes: Vec<(u64, Stroke, u64)>,
    pub(super) checks: Checks,
    leaders: u64,
    steps: u64,
}

/// Something that will happen.
#[derive(Debug, Clone)]
pub(super) enum Event {
    Poll {
        server: NodeId,
        guard: NodeId,
        session: SessionId,
        poll: Poll,
        is_passed_on: bool,
    },
    Answer {
        server: NodeId,
        term: u64,
        guard: NodeId,
        session: SessionId,
        message: Message,
    },
    Failed {
        guard: NodeId,
        session: SessionId,
        number: u64,
    },
    Tick {
        server: NodeId,
        number: u64,
    },
    GuardTimer {
        guard: NodeId,
        timer: guard::Timer,
        number: u64,
    },
    /// A leader asks another server whether it leads.
    Ask {
        server: NodeId,
        leader: NodeId,
        term: u64,
        question: u64,
    },
    /// That server knows of nobody newer.
    Told {
        leader: NodeId,
        server: NodeId,
        term: u64,
        question: u64,
    },
    Commit {
        leader: NodeId,
        term: u64,
    },
    /// A server hears that a majority has voted for it; what is committed before its term is so long.
    Elected {
        leader: NodeId,
        term: u64,
        length: usize,
    },
    Depose {
        server: NodeId,
        term: u64,
    },
    Watch,
    /// What ran under this token has ended.
    Ends {
        guard: NodeId,
        group: String,
        token: u64,
    },
    WantAgain {
        guard: NodeId,
        group: String,
    },
    /// Nothing is held beside this server any more.
    Vacant(NodeId),
    /// A transfer has taken too long.
    Impatience(NodeId),
    Stroke(Stroke, u64),
    Restart(NodeId),
    Resume(NodeId),
    Isolate(NodeId, u64),
    Rejoin(NodeId),
}

impl<'a, O: Observer<Lessor> + Observer<Guard>> Run<'a, O> {
    pub(super) fn new(leases: &'a Leases, seed: u64, observer: &'a mut O) -> Self {
        let mut chance = Chance::new(seed);
        let plan = faults::plan(leases.faults, leases.servers, &mut chance);
        let (lease_us, network, strokes) = (plan.lease_us, plan.network, plan.strokes);
        let servers: BTreeMap<_, _> = plan.servers.into_iter().collect();
        let guards: BTreeMap<_, _> = plan.guards.into_iter().collect();
        Self {
            seed,
            observer,
            server_ids: servers.keys().copied().collect(),
            guard_ids: guards.keys().copied().collect(),
            servers,
            guards,
            log: Log::default(),
            queue: Queue::new(),
            chance,
            now_us: 0,
            lease_us,
            planted: leases.planted,
            next_number: 0,
            frozen: BTreeMap::new(),
            isolated: BTreeSet::new(),
            cut_off: BTreeSet::new(),
            stalled_until_us: 0,
            network,
            strokes,
            checks: Checks::new(plan.groups, lease_us),
            leaders: 0,
            steps: 0,
        }
    }

    /// Makes the run and judges it.
    pub(super) fn finish(mut self) -> Report {
        self.begin();
        let end_us = (FAULTY_LEASES + HEALING_LEASES) * self.lease_us;
        while !self.checks.is_violated() && self.now_us < end_us && self.next_event() {}
        let guards = &self.guards;
        let candidates = |group: &str| guards.values().filter(|host| host.is_candidate(group)).count();
        self.checks.on_end_of_run(self.now_us, candidates);
        let (sightings, violation) = self.checks.verdict();
        let (seed, leaders, virtual_us, steps) = (self.seed, self.leaders, self.now_us, self.steps);
        Report { seed, violation, leaders, sightings, virtual_us, steps }
    }

    fn begin(&mut self) {
        for id in self.server_ids.iter().chain(&self.guard_ids) {
            self.queue.push(self.chance.between(0, 10_000), Event::Restart(*id));
        }
        self.queue.push(0, Event::Watch);
        for (at_us, stroke, until_us) in std::mem::take(&mut self.strokes) {
            self.queue.push(at_us, Event::Stroke(stroke, until_us));
        }
    }

    /// Are all faults over?
    pub(super) const fn is_calm(&self) -> bool {
        self.now_us > FAULTY_LEASES * self.lease_us
    }

    fn next_event(&mut self) -> bool {
        let Some((at_us, event)) = self.queue.pop() else { return false };
        self.now_us = at_us;
        if self.is_lost(&event) {
            return true;
        }
        match event.receiver().and_then(|at| self.frozen.get_mut(&at)) {
            Some(backlog) => backlog.push(event),
            None => self.on_event(event),
        }
        true
    }

    /// Does something lie between those who say this and those who are to hear it? What has arrived at a frozen process has
    /// arrived, whatever happens to the network later.
    fn is_lost(&self, event: &Event) -> bool {
        let is_parted = |one: &NodeId, other: &NodeId| {
            one != other && (self.isolated.contains(one) || self.isolated.contains(other))
        };
        match event {
            Event::Poll { server, guard, poll, .. } => {
                self.cut_off.contains(guard) || is_parted(&poll.at.into(), server)
            }
            Event::Answer { server, guard, .. } => {
                self.cut_off.contains(guard) || is_parted(&self.guards[guard].at, server)
            }
            Event::Failed { guard, .. } => self.cut_off.contains(guard),
            Event::Ask { server, leader, .. } | Event::Told { server, leader, .. } => is_parted(server, leader),
            _ => false,
        }
    }

    pub(super) fn on_event(&mut self, event: Event) {
        match event {
            Event::Poll { .. } => self.on_poll(event),
            Event::Answer { .. } => self.on_answer(event),
            Event::Failed { guard, session, number } => self.on_failed(guard, session, number),
            Event::Tick { server, number } => self.on_tick(server, number),
            Event::GuardTimer { guard, timer, number } => self.on_guard_timer(guard, timer, number),
            Event::Ask { server, leader, term, question } => self.on_ask(server, leader, term, question),
            Event::Told { leader, server, term, question } => self.on_told(leader, server, term, question),
            Event::Commit { leader, term } => self.on_commit(leader, term),
            Event::Elected { leader, term, length } => self.on_elected(leader, term, length),
            Event::Depose { server, term } => self.on_depose(server, term),
            Event::Watch => self.on_watch(),
            Event::Ends { guard, group, token } => self.on_ends(guard, group, token),
            Event::WantAgain { guard, group } => self.on_want_again(guard, &group),
            Event::Vacant(leader) => self.on_vacant(leader),
            Event::Impatience(leader) => self.on_impatience(leader),
            Event::Stroke(stroke, until_us) => self.on_stroke(stroke, until_us),
            Event::Restart(id) => self.restart(id),
            Event::Resume(id) => self.resume(id),
            Event::Isolate(server, until_us) => self.isolate(server, until_us),
            Event::Rejoin(id) => _ = self.isolated.remove(&id) || self.cut_off.remove(&id),
        }
    }

    pub(super) fn after(&mut self, delay: Delay, event: Event) {
        let at_us = self.now_us + self.chance.between(delay.min_us, delay.max_us);
        self.queue.push(at_us, event);
    }

    /// Puts words on their way; while things go wrong they may be lost, late or doubled, and so overtake each other.
    pub(super) fn send(&mut self, event: Event) {
        let Network { travel, loss_ppm, duplication_ppm, lateness_ppm } = self.network;
        if self.is_calm() {
            return self.after(travel, event);
        }
        let late = Delay { min_us: 0, max_us: self.lease_us * 3 / 2 };
        let copies = 1 + u32::from(self.chance.happens(duplication_ppm));
        for _ in 0..copies {
            let travel = if self.chance.happens(lateness_ppm) { late } else { travel };
            if !self.chance.happens(loss_ppm) {
                self.after(travel, event.clone());
            }
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(super) fn server(&mut self, id: NodeId) -> &mut ServerHost {
        self.servers.get_mut(&id).expect("a server of this run")
    }

    pub(super) fn start_server(&mut self, id: NodeId) {
        let rules = Rules { lease_us: self.server(id).lease_us, planted: self.planted };
        self.server(id).lessor = Some(Lessor::new(id.server(), rules));
    }

    /// Can this server take part in what the log needs a majority for?
    pub(super) fn is_able(&self, id: NodeId) -> bool {
        let is_alive = self.servers.get(&id).is_some_and(|host| host.lessor.is_some());
        is_alive && !self.frozen.contains_key(&id) && !self.isolated.contains(&id)
    }

    pub(super) fn able(&self) -> Vec<NodeId> {
        self.server_ids.iter().copied().filter(|id| self.is_able(*id)).collect()
    }

    pub(super) fn has_majority(&self) -> bool {
        2 * self.able().len() > self.server_ids.len()
    }

    /// If nobody can lead who does, somebody else will. Followers hear what is committed.
    fn on_watch(&mut self) {
        self.after(WATCH, Event::Watch);
        let able = self.able();
        let is_led = self.log.leader().is_some_and(|leader| self.is_able(leader));
        if !is_led && self.has_majority() && self.chance.happens(500_000) {
            let candidate = self.chance.pick(&able);
            self.campaign(candidate);
        }
        for server in able {
            if self.servers[&server].leads.is_none() && (self.is_calm() || self.chance.happens(500_000)) {
                self.server(server).term = self.log.term;
                self.catch_up(server, self.log.committed.len());
            }
        }
    }

    /// A majority votes, now: from here on none of them says that anybody else leads. The winner hears it a little later.
    pub(super) fn campaign(&mut self, candidate: NodeId) {
        let before = (self.log.leader(), self.log.term);
        let kept = self.log.elect(candidate, &mut self.chance);
        (0..kept).for_each(|_| _ = self.log.commit());
        self.voters(candidate).into_iter().for_each(|voter| self.vote(voter));
        if let (Some(old), term) = before {
            self.after(IGNORANCE, Event::Depose { server: old, term });
        }
        let (term, length) = (self.log.term, self.log.committed.len());
        self.after(COUNTING, Event::Elected { leader: candidate, term, length });
    }

    /// Any majority of those who can, the candidate among them.
    fn voters(&mut self, candidate: NodeId) -> Vec<NodeId> {
        let mut others: Vec<NodeId> = self.able().into_iter().filter(|id| *id != candidate).collect();
        self.chance.shuffle(&mut others);
        let needed = self.server_ids.len() / 2;
        let count = self.chance.between(needed as u64, others.len() as u64);
        others.truncate(usize::try_from(count).expect("a length fits"));
        others.push(candidate);
        others
    }

    fn vote(&mut self, voter: NodeId) {
        self.server(voter).term = self.log.term;
        self.follow(voter);
    }

    fn follow(&mut self, server: NodeId) {
        if self.server(server).leads.take().is_some() {
            self.server(server).heir = None;
            self.step_lessor(server, Input::Command(Command::Follow));
        }
    }

    /// A new leader has applied everything that was committed before its term, before it is told that it leads. It may hear
    /// late that it was elected; then somebody else leads already.
    fn on_elected(&mut self, leader: NodeId, term: u64, length: usize) {
        if self.servers[&leader].lessor.is_none() || self.server(leader).term != term {
            return;
        }
        self.leaders += 1;
        self.catch_up(leader, length);
        self.server(leader).leads = Some(term);
        let groups = self.server(leader).ledger.groups().clone();
        self.step_lessor(leader, Input::Command(Command::Lead(groups)));
        if !self.log.is_led_by(leader, term) {
            self.after(IGNORANCE, Event::Depose { server: leader, term });
        }
    }

    /// A leader hears that there is a newer one, as soon as it hears anything.
    fn on_depose(&mut self, server: NodeId, term: u64) {
        if self.server(server).leads != Some(term) || self.log.term == term {
            return;
        }
        if self.isolated.contains(&server) {
            return self.after(IGNORANCE, Event::Depose { server, term });
        }
        self.server(server).term = self.log.term;
        self.follow(server);
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
        if !self.is_able(leader) || !self.has_majority() || self.now_us < self.stalled_until_us {
            return self.after(COMMIT, Event::Commit { leader, term });
        }
        if self.log.commit().is_some() {
            self.checks.on_commit(term, self.now_us);
        }
        self.catch_up(leader, self.log.committed.len());
    }

    fn catch_up(&mut self, server: NodeId, length: usize) {
        while self.servers[&server].applied < length {
            let host = self.servers.get_mut(&server).expect("a server of this run");
            let effects = host.ledger.apply(self.log.committed[host.applied].clone());
            host.applied += 1;
            self.step_lessor(server, Input::Command(Command::Applied(effects)));
        }
    }

    fn on_ask(&mut self, server: NodeId, leader: NodeId, term: u64, question: u64) {
        if self.servers[&server].lessor.is_some() && self.server(server).term == term {
            self.send(Event::Told { leader, server, term, question });
        }
    }

    fn on_told(&mut self, leader: NodeId, server: NodeId, term: u64, question: u64) {
        let majority = self.server_ids.len() / 2;
        // Forgotten if the leader has died since, because a new process asks anew.
        let Some(told) = self.server(leader).told.get_mut(&(term, question)) else { return };
        told.insert(server);
        if told.len() >= majority {
            self.server(leader).told.remove(&(term, question));
            self.step_lessor(leader, Input::Command(Command::Confirmed(question)));
        }
    }

    pub(super) fn step_lessor(&mut self, id: NodeId, input: Input<Lessor>) {
        let now_us = self.now_us;
        let host = self.server(id);
        let local_us = host.clock.local_us(now_us);
        let Some(lessor) = &mut host.lessor else { return };
        let mut outbox = Outbox::new();
        lessor.step(Moment(local_us), input.clone(), &mut outbox);
        self.steps += 1;
        self.observer.on_step(now_us, id, &input, outbox.as_slice());
        for output in outbox.drain() {
            match output {
                Output::Send { to, message } => self.send_answer(id, to, message),
                Output::Set { timer: Tick, delay } => self.set_tick(id, delay),
                Output::Cancel(Tick) => self.server(id).tick = None,
                Output::Notify(notice) => self.on_lessor_notice(id, notice),
                Output::Ignore(_) => {}
            }
        }
    }

    fn set_tick(&mut self, id: NodeId, delay: Delay) {
        let number = self.number();
        let host = self.server(id);
        host.tick = Some(number);
        let delay = host.clock.real(delay);
        self.after(delay, Event::Tick { server: id, number });
    }

    fn on_tick(&mut self, server: NodeId, number: u64) {
        if self.server(server).tick.take_if(|set| *set == number).is_some() {
            self.step_lessor(server, Input::Timer(Tick));
        }
    }

    fn on_lessor_notice(&mut self, id: NodeId, notice: Notice) {
        match notice {
            Notice::Propose(entries) => self.propose(id, entries),
            Notice::Confirm(question) => self.ask(id, question),
            Notice::Vacant => self.queue.push(self.now_us, Event::Vacant(id)),
            Notice::OldToken => self.checks.seen.old_tokens += 1,
        }
    }

    /// Asks all other servers whether this one leads.
    fn ask(&mut self, leader: NodeId, question: u64) {
        let Some(term) = self.server(leader).leads else { return };
        self.server(leader).told.insert((term, question), BTreeSet::new());
        for server in self.server_ids.clone().into_iter().filter(|server| *server != leader) {
            self.send(Event::Ask { server, leader, term, question });
        }
    }

    pub(super) fn observe_guard(&mut self, id: NodeId, input: &Input<Guard>, outputs: &[Output<Guard>]) {
        self.steps += 1;
        self.observer.on_step(self.now_us, id, input, outputs);
    }

    pub(super) fn observe(&mut self, happening: &Happening) {
        <O as Observer<Lessor>>::on_happening(self.observer, self.now_us, happening);
    }
}

impl Event {
    /// Who must be able to move for this to happen.
    const fn receiver(&self) -> Option<NodeId> {
        match self {
            Self::Poll { server, .. } | Self::Tick { server, .. } | Self::Ask { server, .. } => Some(*server),
            Self::Answer { guard, .. } | Self::Failed { guard, .. } | Self::GuardTimer { guard, .. } => {
                Some(*guard)
            }
            Self::Ends { guard, .. } | Self::WantAgain { guard, .. } => Some(*guard),
            Self::Told { leader, .. } | Self::Commit { leader, .. } | Self::Elected { leader, .. } => Some(*leader),
            Self::Depose { server, .. } | Self::Vacant(server) | Self::Impatience(server) => Some(*server),
            _ => None,
        }
    }
}
