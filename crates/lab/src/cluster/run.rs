//! One run: servers, disks, links and clients in virtual time, all chance drawn from one seed.
//!
//! It drives the servers as a real one drives its own: outputs are carried out in order, an owner that wants a snapshot
//! says so while it applies, messages that promise something wait for the disk.

mod farms;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use primus_core::ServerId;
use primus_core::Term;
use primus_core::election::Algorithm;
use primus_core::machine::{Delay, Input, Machine, Moment, Outbox, Output, Token};
use primus_core::planted::Bug;
use primus_core::rank::RankBy;
use primus_replica::Consensus;
use primus_replica::message::{Entry, Kind, Record};
use primus_replica::replica::Refusal;
use primus_server::control::{Command, Message, Notice, Reason, Timer};
use primus_server::{self as server, Server, farm};

use self::farms::Callers;
use super::checks::{Checks, State, is_healed};
use super::faults::{self, Plan, Stroke};
use super::host::{Host, Owner};
use super::{Cluster, Failover, Messages, Report, Words};
use crate::chance::Chance;
use crate::node::NodeId;
use crate::observer::Observer;
use crate::outcome::Leaders;
use crate::queue::Queue;
use crate::simulate::Happening;

/// How long after the faults everybody may take to agree and to have everything.
const HEALING_US_MAX: u64 = 10_000_000;
const CLIENT_EVERY_US: u64 = 7_000;
/// Where loads are the matter, clients only see to it that something is written at all.
const QUIET_CLIENT_EVERY_US: u64 = 1_000_000;
const READS_PPM: u32 = 300_000;
/// How soon a peer notices that a process has died.
const NOTICE: Delay = Delay { min_us: 50, max_us: 3_000 };
/// How long a new link takes.
const DIAL: Delay = Delay { min_us: 200, max_us: 2_000 };

/// A run under way.
pub(super) struct Run<'a, O> {
    cluster: &'a Cluster,
    seed: u64,
    observer: &'a mut O,
    ids: Vec<ServerId>,
    /// In the order of the ids, which begin with 1.
    hosts: Vec<Host>,
    /// How servers are put together.
    pattern: server::Plan,
    plan: Plan,
    queue: Queue<Event>,
    outbox: Outbox<Server>,
    chance: Chance,
    now_us: u64,
    /// Timers are numbered: one that was set again or cancelled is known by its old number.
    next_number: u64,
    cut: BTreeSet<(ServerId, ServerId)>,
    clients: Clients,
    callers: Callers,
    /// What control has just refused.
    refused: Option<(Refusal, Vec<Bytes>)>,
    checks: Checks,
    /// In which term each host leads.
    leading: Vec<Option<Term>>,
    /// Why it began to lead, and whom it is handing over to.
    leads_because: Vec<Reason>,
    successors: Vec<Option<ServerId>>,
    leaders: Leaders,
    messages: Messages,
    handovers_us: Vec<u64>,
    restored: u64,
    failover: Option<Failover>,
    last_change_us: u64,
    healed_us: Option<u64>,
    steps: u64,
}

/// Something that will happen.
#[derive(Debug, Clone)]
pub(super) enum Event {
    Deliver {
        from: ServerId,
        to: ServerId,
        message: Box<Words>,
    },
    Timer {
        at: ServerId,
        timer: Timer,
        number: u64,
    },
    Synced {
        at: ServerId,
        incarnation: u32,
    },
    /// A link is lost; is the peer's process gone, or another one in its place?
    Look {
        at: ServerId,
        peer: ServerId,
        incarnation: u32,
    },
    /// A link can be made again.
    Dial {
        at: ServerId,
        peer: ServerId,
    },
    /// A farm has a turn.
    Farm {
        at: ServerId,
        incarnation: u32,
    },
    FarmTimer {
        at: ServerId,
        timer: farm::Timer,
        number: u64,
    },
    /// Control hears what its farm wants.
    Wishes {
        at: ServerId,
        incarnation: u32,
    },
    Clients,
    Happening(Happening),
    Stroke(Stroke, u64),
    Command(ServerId, Command),
}

/// Everybody who writes and reads.
#[derive(Debug, Default)]
struct Clients {
    written: u64,
    read: u64,
    acknowledged: u64,
    answered: u64,
    /// Writes after this one were asked for when the faults were over.
    last_in_trouble: Option<u64>,
    /// Where the first of those is.
    wanted: Option<u64>,
}

impl<'a, O: Observer<Server>> Run<'a, O> {
    pub(super) fn new(cluster: &'a Cluster, seed: u64, observer: &'a mut O) -> Self {
        let ids: Vec<ServerId> = (1..=cluster.servers).map(ServerId).collect();
        let mut chance = Chance::new(seed);
        let mut pattern = pattern(&ids, &mut chance);
        let mut plan = faults::plan(&ids, &cluster.faults, &mut chance);
        if cluster.kill {
            plan.add_kill(&ids, &mut chance);
        }
        if let Some(noise) = cluster.noise {
            plan.add_noise(&ids, noise, &mut chance);
            (pattern.algorithm, pattern.rank) = (Algorithm::Bully, RankBy::Load);
        }
        if let Some(slow) = cluster.slow {
            plan.slow_down(slow);
        }
        Self {
            cluster,
            seed,
            observer,
            hosts: ids.iter().map(|_| Host::default()).collect(),
            leading: vec![None; ids.len()],
            leads_because: vec![Reason::Start; ids.len()],
            successors: vec![None; ids.len()],
            ids,
            pattern,
            plan,
            queue: Queue::new(),
            outbox: Outbox::new(),
            chance,
            now_us: 0,
            next_number: 0,
            cut: BTreeSet::new(),
            clients: Clients::default(),
            callers: Callers::default(),
            refused: None,
            checks: Checks::default(),
            leaders: Leaders::default(),
            messages: Messages::default(),
            handovers_us: Vec::new(),
            restored: 0,
            failover: None,
            last_change_us: 0,
            healed_us: None,
            steps: 0,
        }
    }

    /// Makes the run and judges it.
    pub(super) fn finish(mut self) -> Report {
        self.begin();
        while !self.checks.is_violated() && !self.is_over() && self.next_event() {}
        self.check_farms();
        let states = self.states();
        self.checks.on_end(&states, self.clients.wanted);
        let (violation, properties) = self.checks.verdict();
        Report {
            seed: self.seed,
            violation,
            properties,
            table: states.iter().map(|state| (state.id, state.leader)).collect(),
            leaders: self.leaders,
            messages: self.messages,
            handovers_us: self.handovers_us,
            acknowledged: self.clients.acknowledged,
            reads: self.clients.answered,
            restored: self.restored,
            submitted: self.callers.submitted,
            looks: self.callers.looked,
            failover: self.failover,
            last_change_us: self.last_change_us,
            healed_us: self.healed_us,
            virtual_us: self.now_us,
            steps: self.steps,
        }
    }

    fn begin(&mut self) {
        for id in self.ids.clone() {
            let at_us = self.chance.between(0, 100_000);
            self.queue.push(at_us, Event::Happening(Happening::Restart(id.into())));
        }
        self.queue.push(CLIENT_EVERY_US, Event::Clients);
        for (at_us, happening) in std::mem::take(&mut self.plan.schedule) {
            self.queue.push(at_us, Event::Happening(happening));
        }
        for (at_us, stroke, until_us) in std::mem::take(&mut self.plan.strokes) {
            self.queue.push(at_us, Event::Stroke(stroke, until_us));
        }
        for (at_us, server, command) in std::mem::take(&mut self.plan.commands) {
            self.queue.push(at_us, Event::Command(server, command));
        }
    }

    fn is_over(&self) -> bool {
        self.healed_us.is_some() || self.now_us > self.plan.end_us + HEALING_US_MAX
    }

    fn states(&self) -> Vec<State> {
        let state = |(id, host): (&ServerId, &Host)| {
            let process = host.process.as_ref()?;
            Some(State { id: *id, leader: process.leader(), applied: host.owner.applied })
        };
        self.ids.iter().zip(&self.hosts).filter_map(state).collect()
    }

    fn host(&mut self, id: ServerId) -> &mut Host {
        &mut self.hosts[place(id)]
    }

    fn next_event(&mut self) -> bool {
        let Some((at_us, event)) = self.queue.pop() else { return false };
        self.now_us = at_us;
        match event.receiver().and_then(|at| self.host(at).backlog.as_mut()) {
            Some(backlog) => backlog.push(event),
            None => self.on_event(event),
        }
        true
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Deliver { from, to, message } => self.deliver(from, to, *message),
            Event::Timer { at, timer, number } => self.on_timer(at, timer, number),
            Event::Synced { at, incarnation } => self.on_synced(at, incarnation),
            Event::Look { at, peer, incarnation } => self.on_look(at, peer, incarnation),
            Event::Dial { at, peer } => self.on_dial(at, peer),
            Event::Farm { at, incarnation } => self.on_farm(at, incarnation),
            Event::FarmTimer { at, timer, number } => self.on_farm_timer(at, timer, number),
            Event::Wishes { at, incarnation } => self.on_wishes(at, incarnation),
            Event::Clients => self.on_clients(),
            Event::Happening(happening) => self.on_happening(happening),
            Event::Stroke(stroke, until_us) => self.on_stroke(stroke, until_us),
            Event::Command(server, command) => self.step(server, Input::Command(command)),
        }
    }

    fn on_happening(&mut self, happening: Happening) {
        if self.is_idle(&happening) {
            return;
        }
        self.observer.on_happening(self.now_us, &happening);
        match happening {
            Happening::Crash(id) => self.crash(id.server()),
            Happening::Restart(id) => self.restart(id.server()),
            Happening::Pause(id) => self.host(id.server()).pause(),
            Happening::Resume(id) => self.resume(id.server()),
            Happening::Cut(from, to) => _ = self.cut.insert((from.server(), to.server())),
            Happening::Mend(from, to) => {
                self.cut.remove(&(from.server(), to.server()));
                self.after(self.travelled(DIAL, 4), Event::Dial { at: to.server(), peer: from.server() });
            }
            Happening::Command(..) => unreachable!("clusters are commanded otherwise"),
        }
    }

    /// Would it change nothing?
    fn is_idle(&self, happening: &Happening) -> bool {
        let host = |id: &NodeId| &self.hosts[place(id.server())];
        match happening {
            Happening::Restart(id) => host(id).process.is_some(),
            Happening::Crash(id) | Happening::Pause(id) => host(id).process.is_none(),
            Happening::Resume(id) => host(id).backlog.is_none(),
            Happening::Cut(from, to) => self.cut.contains(&(from.server(), to.server())),
            Happening::Mend(from, to) => !self.cut.contains(&(from.server(), to.server())),
            Happening::Command(..) => false,
        }
    }

    /// Whoever leads is hit; if nobody does, anybody.
    fn on_stroke(&mut self, stroke: Stroke, until_us: u64) {
        let victim = self.leader_to_ask().unwrap_or_else(|| self.chance.pick(&self.ids));
        if let Some(Term(term)) = self.leading[place(victim)].filter(|_| self.cluster.kill) {
            let (algorithm, at_us) = (self.pattern.algorithm, self.now_us);
            let failover = Failover { algorithm, at_us, term, terms: None, led_us: None, wrote_us: None };
            self.failover.get_or_insert(failover);
            self.checks.on_kill(Term(term));
        }
        let happening = |at_us, happening| (at_us, Event::Happening(happening));
        let events = match stroke {
            Stroke::Crash => vec![
                happening(self.now_us, Happening::Crash(victim.into())),
                happening(until_us, Happening::Restart(victim.into())),
            ],
            Stroke::Pause => vec![
                happening(self.now_us, Happening::Pause(victim.into())),
                happening(until_us, Happening::Resume(victim.into())),
            ],
            Stroke::Isolate => {
                let pairs = self.peers(victim).into_iter().flat_map(|peer| [(victim, peer), (peer, victim)]);
                let both = pairs.flat_map(|(from, to)| {
                    [
                        happening(self.now_us, Happening::Cut(from.into(), to.into())),
                        happening(until_us, Happening::Mend(from.into(), to.into())),
                    ]
                });
                both.collect()
            }
        };
        events.into_iter().for_each(|(at_us, event)| self.queue.push(at_us, event));
    }

    fn after(&mut self, delay: Delay, event: Event) {
        let at_us = self.now_us + self.chance.between(delay.min_us, delay.max_us);
        self.queue.push(at_us, event);
    }

    fn peers(&self, id: ServerId) -> Vec<ServerId> {
        self.ids.iter().copied().filter(|peer| *peer != id).collect()
    }

    /// Messages first, then timers: a pause of one's own is nobody else's silence.
    fn resume(&mut self, id: ServerId) {
        let Some(mut backlog) = self.host(id).backlog.take() else { return };
        backlog.sort_by_key(|event| matches!(event, Event::Timer { .. } | Event::FarmTimer { .. }));
        backlog.into_iter().for_each(|event| self.queue.push(self.now_us, event));
    }

    fn crash(&mut self, id: ServerId) {
        let host = &mut self.hosts[place(id)];
        host.disk.crash(&mut self.chance);
        host.forget();
        let incarnation = host.incarnation;
        self.leading[place(id)] = None;
        // That a link is closed has to travel, and so have the next dial and its refusal.
        let notice = self.travelled(NOTICE, 3);
        for peer in self.peers(id) {
            self.after(notice, Event::Look { at: peer, peer: id, incarnation });
        }
    }

    fn restart(&mut self, id: ServerId) {
        let records = self.host(id).disk.read();
        self.pattern.id = id;
        let Ok(process) = catch_unwind(AssertUnwindSafe(|| self.pattern.server(records))) else {
            return self.checks.on_panic(id, "it cannot start with what is on its disk");
        };
        let log = process.replica().log();
        self.checks.on_start(id, log, log.snapshot());
        let owner = Owner::new(log.snapshot(), |index| self.checks.digest_at(index), self.pattern.snapshot_every);
        let host = &mut self.hosts[place(id)];
        host.owner = owner;
        host.incarnation += 1;
        host.started_us = self.now_us;
        host.process = Some(process);
        self.start_farm(id);
        self.step(id, Input::Command(Command::Boot));
        let dial = self.travelled(DIAL, 4);
        for peer in self.peers(id) {
            self.after(dial, Event::Dial { at: peer, peer: id });
            self.after(dial, Event::Dial { at: id, peer });
        }
    }

    /// This long, and the time of as many messages on links that are slow.
    fn travelled(&self, delay: Delay, messages: u64) -> Delay {
        delay.longer_by(self.cluster.slow.map_or(0, |slow| slow.one_way_us * messages))
    }

    /// Only a refusal counts, and a cut link cannot refuse.
    fn on_look(&mut self, at: ServerId, peer: ServerId, incarnation: u32) {
        let found = self.host(peer);
        let is_gone = found.process.is_none() || found.incarnation != incarnation;
        if is_gone && !self.cut.contains(&(peer, at)) {
            self.step(at, Input::LinkDown(peer));
            self.step(at, Input::Command(Command::Gone(peer)));
        }
    }

    fn on_dial(&mut self, at: ServerId, peer: ServerId) {
        if self.cut.contains(&(peer, at)) {
            return;
        }
        let input = match self.host(peer).process {
            Some(_) => Input::LinkUp(peer),
            None => Input::Command(Command::Gone(peer)),
        };
        self.step(at, input);
    }

    /// Somebody who believes to lead, and can answer.
    fn leader_to_ask(&mut self) -> Option<ServerId> {
        let leads = |id: &ServerId| self.hosts[place(*id)].is_running() && self.leading[place(*id)].is_some();
        let leaders: Vec<ServerId> = self.ids.iter().copied().filter(leads).collect();
        (!leaders.is_empty()).then(|| self.chance.pick(&leaders))
    }

    /// Clients ask whoever leads, now and then, and see whether all is well again.
    fn on_clients(&mut self) {
        let every_us = if self.cluster.noise.is_some() { QUIET_CLIENT_EVERY_US } else { CLIENT_EVERY_US };
        self.queue.push(self.now_us + every_us, Event::Clients);
        if self.now_us > self.plan.end_us {
            self.clients.last_in_trouble.get_or_insert(self.clients.written);
            if is_healed(&self.states(), self.clients.wanted) {
                self.healed_us = Some(self.now_us - self.plan.end_us);
                return;
            }
        }
        let Some(leader) = self.leader_to_ask() else { return };
        if self.chance.happens(READS_PPM) {
            self.clients.read += 1;
            let (number, since) = (self.clients.read, self.checks.acknowledged());
            self.host(leader).owner.reads.insert(number, since);
            self.step(leader, Input::Command(Command::Read(number)));
        }
        self.clients.written += 1;
        let words = Bytes::copy_from_slice(&self.clients.written.to_be_bytes());
        self.host(leader).owner.writes.insert(words.clone());
        self.step(leader, Input::Command(Command::Propose(vec![words])));
        self.ask_farm(leader);
    }

    fn deliver(&mut self, from: ServerId, to: ServerId, message: Words) {
        if self.cut.contains(&(from, to)) {
            self.observer.on_loss(self.now_us, from.into(), to.into(), &message);
        } else {
            self.step(to, Input::Message { from, message });
        }
    }

    fn on_timer(&mut self, at: ServerId, timer: Timer, number: u64) {
        if self.host(at).timers.get(&timer) == Some(&number) {
            self.host(at).timers.remove(&timer);
            self.step(at, Input::Timer(timer));
        }
    }

    fn on_synced(&mut self, at: ServerId, incarnation: u32) {
        let host = self.host(at);
        if host.incarnation != incarnation || host.process.is_none() {
            return;
        }
        let Some(token) = host.disk.end_sync() else { return };
        let waiting = std::mem::take(&mut host.waiting);
        let (ready, waiting) = waiting.into_iter().partition(|(after, ..)| *after <= token);
        host.waiting = waiting;
        let ready: Vec<(Token, ServerId, Words)> = ready;
        ready.into_iter().for_each(|(_, to, message)| self.send(at, to, message));
        self.sync(at);
        self.step(at, Input::Persisted(token));
    }

    /// Starts a sync, if there is something to sync and none runs.
    fn sync(&mut self, at: ServerId) {
        let host = self.host(at);
        let incarnation = host.incarnation;
        if host.disk.begin_sync() {
            let delay = self.plan.syncs[place(at)];
            self.after(delay, Event::Synced { at, incarnation });
        }
    }

    fn step(&mut self, id: ServerId, mut input: Input<Server>) {
        let clock_us = self.clock_us(id);
        let Some(server) = self.hosts[place(id)].process.as_mut() else { return };
        if self.cluster.planted.is(Bug::OldTermAppend) {
            renew_term(&mut input, server.replica().view().2);
        }
        let mut outbox = std::mem::take(&mut self.outbox);
        let stepped = catch_unwind(AssertUnwindSafe(|| server.step(Moment(clock_us), input.clone(), &mut outbox)));
        self.steps += 1;
        if let Err(words) = stepped {
            self.hosts[place(id)].process = None;
            return self
                .checks
                .on_panic(id, words.downcast_ref::<String>().map_or("without a word", String::as_str));
        }
        self.observer.on_step(self.now_us, id.into(), &input, outbox.as_slice());
        self.check_step(id, outbox.as_slice());
        for output in outbox.drain() {
            self.carry_out(id, output);
        }
        self.outbox = outbox;
    }

    fn check_step(&mut self, id: ServerId, outputs: &[Output<Server>]) {
        let Some(server) = &self.hosts[place(id)].process else { return };
        let (log, (_, _, term)) = (server.replica().log(), server.replica().view());
        for output in outputs {
            if let Output::Persist { records, .. } = output {
                self.checks.on_append(id, term, records.iter().filter_map(appended), log);
            }
        }
        let leads = self.hosts[place(id)].leads();
        let before = std::mem::replace(&mut self.leading[place(id)], leads);
        if let Some(term) = leads.filter(|_| leads != before) {
            self.checks.on_lead(id, term, log);
            self.leaders.changes += 1;
            self.last_change_us = self.now_us;
            if let Some(failover) = self.failover.as_mut().filter(|failover| failover.terms.is_none()) {
                failover.terms = Some(term.0 - failover.term);
                failover.led_us = Some(self.now_us - failover.at_us);
            }
            let at_once = self.leading.iter().flatten().count();
            self.leaders.most_at_once = self.leaders.most_at_once.max(u32::try_from(at_once).unwrap_or(u32::MAX));
        }
        self.check_handover(id);
    }

    fn check_handover(&mut self, id: ServerId) {
        let host = &self.hosts[place(id)];
        let successor = host.process.as_ref().and_then(Server::successor);
        let before = std::mem::replace(&mut self.successors[place(id)], successor.map(|(to, _)| to));
        if let Some((to, reason)) = successor.filter(|(to, _)| before != Some(*to)) {
            self.checks.on_handover(to, reason, self.leads_because[place(id)], host.owner.applied);
        }
    }

    fn carry_out(&mut self, id: ServerId, output: Output<Server>) {
        let is_hasty = self.cluster.planted.is(Bug::AcknowledgedBeforeSync);
        match output {
            Output::Send { to, message } => self.send(id, to, message),
            Output::SendAfter { to, message, .. } if is_hasty => self.send(id, to, message),
            Output::SendAfter { token, to, message } => self.host(id).waiting.push((token, to, message)),
            Output::Persist { token, records } => {
                self.host(id).disk.write(token, records);
                self.sync(id);
                if is_hasty {
                    self.step(id, Input::Persisted(token));
                }
            }
            Output::Set { timer, delay } => self.set_timer(id, timer, delay),
            Output::Cancel(timer) => _ = self.host(id).timers.remove(&timer),
            Output::Notify(notice) => self.on_notice(id, notice),
            Output::Ignore(_) => {}
        }
    }

    fn send(&mut self, from: ServerId, to: ServerId, message: Words) {
        self.messages.add(&message);
        let network = self.plan.network;
        if self.now_us < network.faulty_until_us {
            if self.chance.happens(network.loss_ppm) {
                return self.observer.on_loss(self.now_us, from.into(), to.into(), &message);
            }
            if self.chance.happens(network.duplication_ppm) {
                self.dispatch(from, to, message.clone());
            }
        }
        self.dispatch(from, to, message);
    }

    /// Every message draws its own time, so messages overtake each other.
    fn dispatch(&mut self, from: ServerId, to: ServerId, message: Words) {
        let network = self.plan.network;
        let is_late = self.now_us < network.faulty_until_us && self.chance.happens(network.lateness_ppm);
        let late_us = if is_late { self.chance.between(network.late_by.min_us, network.late_by.max_us) } else { 0 };
        let at_us = self.now_us + late_us + self.chance.between(network.delay.min_us, network.delay.max_us);
        self.queue.push(at_us, Event::Deliver { from, to, message: Box::new(message) });
    }

    fn set_timer(&mut self, id: ServerId, timer: Timer, delay: Delay) {
        self.next_number += 1;
        let number = self.next_number;
        self.host(id).timers.insert(timer, number);
        self.after(delay.skewed(self.skew_ppm(id)), Event::Timer { at: id, timer, number });
    }

    fn skew_ppm(&self, id: ServerId) -> i64 {
        self.plan.clock_skew_ppm.get(place(id)).copied().unwrap_or(0)
    }

    /// A process counts from its own start, on a clock of its own.
    fn clock_us(&self, id: ServerId) -> u64 {
        let elapsed_us = i128::from(self.now_us - self.hosts[place(id)].started_us);
        let clock_us = elapsed_us * 1_000_000 / (1_000_000 + i128::from(self.skew_ppm(id)));
        u64::try_from(clock_us).unwrap_or(0)
    }

    fn on_notice(&mut self, id: ServerId, notice: Notice) {
        match notice {
            Notice::Committed(entries) => entries.iter().for_each(|entry| self.apply(id, entry)),
            Notice::Restored(snapshot) => {
                self.restored += 1;
                self.checks.on_restore(id, &snapshot);
                let digest = self.checks.digest_at(snapshot.index);
                self.host(id).owner.restore(&snapshot, digest);
                self.tell_farm(id, |farm| farm.on_restored(&snapshot));
                self.let_look(id);
            }
            Notice::Readable(number, index) => {
                self.host(id).farm.iter_mut().for_each(|farm| farm.on_readable(number, index));
                self.let_look(id);
                if let Some(since) = self.host(id).owner.reads.remove(&number) {
                    self.clients.answered += 1;
                    self.checks.on_read(id, since, index);
                }
            }
            Notice::Unreadable(number) => _ = self.host(id).owner.reads.remove(&number),
            // Clients of a deposed leader never learn what became of their writes.
            Notice::Leader(leader, ..) if leader != Some(id) => {
                self.tell_farm(id, |farm| farm.on_leader(leader, None));
                self.host(id).owner.writes.clear();
                self.host(id).owner.reads.clear();
            }
            Notice::Leader(leader, term, reason) => {
                self.tell_farm(id, |farm| farm.on_leader(leader, Some(term)));
                self.leads_because[place(id)] = reason;
                if reason == Reason::Load {
                    self.handovers_us.push(self.now_us);
                }
            }
            // From now on everybody stands again.
            Notice::Confirmed(confirmed) if confirmed.leader == id => {
                self.leads_because[place(id)] = Reason::Elected;
            }
            Notice::Refused(refusal, all) => {
                all.iter().for_each(|words| _ = self.host(id).owner.writes.remove(words));
                self.refused = Some((refusal, all));
            }
            _ => {}
        }
    }

    fn apply(&mut self, id: ServerId, entry: &Entry) {
        let host = &mut self.hosts[place(id)];
        let Some(term) = host.process.as_ref().map(|server| server.replica().view().2) else { return };
        let is_new = self.checks.on_apply(id, term, entry, &host.owner);
        host.owner.apply(entry.index, &entry.data);
        if host.owner.writes.remove(&entry.data) {
            self.acknowledge(entry);
        }
        if is_new {
            self.check_leaders();
        }
        self.tell_committed(id, entry);
        self.take_snapshot(id, entry.index);
    }

    /// A snapshot, if it is time for one: the farm's, or the owner's where there is no farm.
    fn take_snapshot(&mut self, id: ServerId, index: u64) {
        let host = &mut self.hosts[place(id)];
        let Some(gave_way) = host.process.as_ref().map(Server::gave_way) else { return };
        if let Some(farm) = &mut host.farm {
            farm.cut(gave_way);
        } else if let Some(state) = host.owner.snapshot(gave_way) {
            self.step(id, Input::Command(Command::Compact(index, state)));
        }
    }

    fn acknowledge(&mut self, entry: &Entry) {
        self.checks.on_acknowledged(entry.index);
        if let Some(failover) = self.failover.as_mut().filter(|failover| failover.terms.is_some()) {
            failover.wrote_us.get_or_insert(self.now_us - failover.at_us);
        }
        self.clients.acknowledged += 1;
        let number = entry.data.first_chunk().copied().map(u64::from_be_bytes);
        if self.clients.last_in_trouble.is_some_and(|last| number > Some(last)) {
            self.clients.wanted.get_or_insert(entry.index);
        }
    }

    fn check_leaders(&mut self) {
        for (id, host) in self.ids.iter().zip(&self.hosts) {
            if let (Some(term), Some(server)) = (host.leads(), &host.process) {
                self.checks.on_commit(*id, term, server.replica().log());
            }
        }
    }
}

impl Event {
    /// Whose process takes part in it, and can stand still.
    const fn receiver(&self) -> Option<ServerId> {
        match self {
            Self::Deliver { to: at, .. }
            | Self::Timer { at, .. }
            | Self::Synced { at, .. }
            | Self::Look { at, .. }
            | Self::Dial { at, .. }
            | Self::Farm { at, .. }
            | Self::FarmTimer { at, .. }
            | Self::Wishes { at, .. }
            | Self::Command(at, _) => Some(*at),
            Self::Clients | Self::Happening(_) | Self::Stroke(..) => None,
        }
    }
}

/// Servers as people configure them, with any algorithm and any rank, and with snapshots as often as runs need them.
fn pattern(ids: &[ServerId], chance: &mut Chance) -> server::Plan {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 7460));
    let mut plan = server::Plan::new(ids[0], ids.iter().map(|id| (*id, nowhere)).collect());
    plan.algorithm = chance.pick(&[Algorithm::Bully, Algorithm::Bully, Algorithm::Ring]);
    plan.rank = chance.pick(&[RankBy::Id, RankBy::Load]);
    plan.snapshot_every = chance.pick(&[8, 40, 1_000]);
    plan
}

fn place(id: ServerId) -> usize {
    usize::try_from(id.0 - 1).expect("ids of servers are small")
}

const fn appended(record: &Record) -> Option<&Entry> {
    match record {
        Record::Append(entry) => Some(entry),
        _ => None,
    }
}

/// The planted bug: an append of an old term is taken for one of this term.
fn renew_term(input: &mut Input<Server>, term: Term) {
    if let Input::Message { message: Message::Replica(message), .. } = input
        && message.kind == Kind::Append
    {
        message.term = message.term.max(term.0);
    }
}
