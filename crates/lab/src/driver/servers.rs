//! The control thread of a server: its disk, its links to the other servers of its farm, and what it tells farm and leases.

use primus_core::machine::{Delay, Input, Output, Token};
use primus_core::planted::Bug;
use primus_core::{ServerId, Term, lease};
use primus_replica::message::{Entry, Kind, Record};
use primus_replica::replica::Refusal;
use primus_replica::{Consensus, Role};
use primus_server::control::{Command, Message, Notice, Reason};
use primus_server::farm::Farm;
use primus_server::leases::{self, Leases};
use primus_server::record::{Content, State};
use primus_server::relay::Relay;
use primus_server::{Server, farm};

use super::host::{Process, Read, ServerHost, Thread, Told, Wish, Words};
use super::{Audience, Event, Run, Timer, What, Write};
use crate::node::NodeId;
use crate::observer::Observer;
use crate::outcome::Leaders;

/// How soon a peer notices that a process has died.
pub(super) const NOTICE: Delay = Delay { min_us: 50, max_us: 3_000 };
/// How long a new link takes.
const DIAL: Delay = Delay { min_us: 200, max_us: 2_000 };
/// When what control did not take is tried again.
const AGAIN: Delay = Delay { min_us: 1_000, max_us: 1_000 };

impl<O: Audience> Run<'_, O> {
    pub(super) fn server(&mut self, id: NodeId) -> &mut ServerHost {
        self.servers.get_mut(&id).expect("a server of this run")
    }

    pub(super) fn process(&mut self, id: NodeId) -> Option<&mut Process> {
        self.servers.get_mut(&id)?.process.as_deref_mut()
    }

    /// The other servers of its farm.
    pub(super) fn peers(&self, id: NodeId) -> Vec<NodeId> {
        let farm = &self.farms[self.servers[&id].farm];
        farm.server_ids.iter().copied().filter(|peer| *peer != id).collect()
    }

    /// A process starts with what is on its disk.
    pub(super) fn start_server(&mut self, id: NodeId) {
        let (now_us, farm) = (self.time.now_us, self.servers[&id].farm);
        let mut plan = self.plan.server.clone();
        plan.id = id.server();
        let address = plan.servers.values().next().expect("a plan has servers").clone();
        plan.servers = self.farms[farm].server_ids.iter().map(|id| (id.server(), address.clone())).collect();
        let rules = self.farm_rules(farm, plan.servers.len());
        let host = self.servers.get_mut(&id).expect("a server of this run");
        host.incarnation += 1;
        host.clock.began_us = now_us;
        let control = plan.server(host.disk.read());
        // Every process has an origin of its own.
        let origin = id.0 << 32 | u64::from(host.incarnation);
        let mut machine = Farm::new(id.server(), origin, rules);
        let log = control.replica().log();
        let snapshot = log.snapshot().cloned();
        self.checks.on_start(farm, id.server(), log, snapshot.as_ref());
        if let Some(snapshot) = &snapshot {
            let state = State::from_bytes(&snapshot.data).expect("what was written down can be read");
            machine.restore(host.clock.moment(now_us), snapshot.index, state);
        }
        let rules = lease::lessor::Rules { lease_us: host.lease_us, planted: plan.planted };
        let leases = Leases::new(id.server(), rules);
        let relay = Relay::new(snapshot.map_or(0, |snapshot| snapshot.index), plan.snapshot_every);
        host.process = Some(Box::new(Process::new(control, machine, leases, relay)));
        self.step_control(id, Input::Command(Command::Boot));
        let dial = self.travelled(DIAL, 4);
        for peer in self.peers(id) {
            self.time.after(dial, Event::To(peer, What::Dial(id)));
            self.time.after(dial, Event::To(id, What::Dial(peer)));
        }
    }

    fn farm_rules(&self, farm: usize, servers: usize) -> farm::Rules {
        let neighbours = self.neighbours(farm).into_iter().map(|other| self.farms[other].name.clone());
        farm::Rules {
            work: self.plan.work,
            lending: self.plan.server.lending.rules,
            neighbours: neighbours.collect(),
            limits: self.plan.server.farm.limits,
            state_max: self.plan.server.farm.state_max,
            servers,
            planted: self.plan.server.planted,
        }
    }

    /// What died with the process. The others notice that its links are closed: that has to travel, and so have the next dial and
    /// its refusal.
    pub(super) fn crash_server(&mut self, id: NodeId) {
        let notice = self.travelled(NOTICE, 3);
        let host = self.servers.get_mut(&id).expect("a server of this run");
        host.disk.crash(&mut self.time.chance);
        host.process = None;
        let incarnation = host.incarnation;
        for peer in self.peers(id) {
            self.time.after(notice, Event::To(peer, What::Look(id, incarnation)));
        }
        self.break_links_of_server(id);
    }

    /// This long, and the time of as many messages on links that are slow.
    fn travelled(&self, delay: Delay, messages: u64) -> Delay {
        delay.longer_by(self.plan.one_way_us * messages)
    }

    /// Only a refusal counts, and a cut link cannot refuse.
    pub(super) fn on_look(&mut self, at: NodeId, peer: NodeId, incarnation: u32) {
        let found = &self.servers[&peer];
        let is_gone = found.process.is_none() || found.incarnation != incarnation;
        if is_gone && !self.ways.is_cut(peer, at) {
            self.step_control(at, Input::LinkDown(peer.server()));
            self.step_control(at, Input::Command(Command::Gone(peer.server())));
        }
    }

    pub(super) fn on_dial(&mut self, at: NodeId, peer: NodeId) {
        if self.ways.is_cut(peer, at) {
            return;
        }
        let input = match self.servers[&peer].process {
            Some(_) => Input::LinkUp(peer.server()),
            None => Input::Command(Command::Gone(peer.server())),
        };
        self.step_control(at, input);
    }

    /// Two servers hear each other again.
    pub(super) fn dial_again(&mut self, at: NodeId, peer: NodeId) {
        self.time.after(self.travelled(DIAL, 4), Event::To(at, What::Dial(peer)));
    }

    pub(super) fn on_log_synced(&mut self, at: NodeId, incarnation: u32) {
        let now_us = self.time.now_us;
        let host = self.server(at);
        if host.incarnation != incarnation || host.process.is_none() {
            return;
        }
        if host.stalled_until_us > now_us {
            let until_us = host.stalled_until_us;
            return self.time.at(until_us, Event::To(at, What::Synced(incarnation, Write::Log)));
        }
        let Some(token) = host.disk.end_sync() else { return };
        let Some(process) = &mut host.process else { return };
        let waiting = std::mem::take(&mut process.waiting);
        let (ready, waiting): (Vec<(Token, ServerId, Words)>, _) =
            waiting.into_iter().partition(|(after, ..)| *after <= token);
        process.waiting = waiting;
        ready.into_iter().for_each(|(_, to, words)| self.send(at, to, words));
        self.sync(at);
        self.step_control(at, Input::Persisted(token));
    }

    /// Starts a sync, if there is something to sync and none runs.
    fn sync(&mut self, at: NodeId) {
        let host = self.server(at);
        let (incarnation, delay) = (host.incarnation, host.sync);
        if host.disk.begin_sync() {
            self.time.after(delay, Event::To(at, What::Synced(incarnation, Write::Log)));
        }
    }

    pub(super) fn step_control(&mut self, id: NodeId, mut input: Input<Server>) {
        let now_us = self.time.now_us;
        let Some(host) = self.servers.get_mut(&id) else { return };
        let Some(process) = &mut host.process else { return };
        if self.plan.server.planted.is(Bug::OldTermAppend) {
            renew_term(&mut input, process.control.machine.replica().view().2);
        }
        let outputs = process.control.step(host.clock.moment(now_us), input.clone());
        self.see(id, &input, &outputs);
        self.check_step(id, &outputs);
        for output in outputs {
            self.carry_out(id, output);
        }
    }

    fn check_step(&mut self, id: NodeId, outputs: &[Output<Server>]) {
        let host = self.servers.get_mut(&id).expect("a server of this run");
        let Some(process) = &mut host.process else { return };
        let replica = process.control.machine.replica();
        let (log, (role, _, term)) = (replica.log(), replica.view());
        for output in outputs {
            if let Output::Persist { records, .. } = output {
                self.checks.on_append(host.farm, id.server(), term, records.iter().filter_map(appended), log);
            }
        }
        let leads = (role == Role::Leader).then_some(term);
        let before = std::mem::replace(&mut process.leading, leads);
        if let Some(term) = leads.filter(|_| leads != before) {
            self.checks.on_lead(host.farm, id.server(), term, log);
            let farm = host.farm;
            let leading = |other: &&ServerHost| other.farm == farm && leads_now(other).is_some();
            let at_once = self.servers.values().filter(leading).count();
            let Leaders { most_at_once, changes } = &mut self.tally.leaders;
            *most_at_once = (*most_at_once).max(u32::try_from(at_once).unwrap_or(u32::MAX));
            *changes += 1;
            self.tally.last_change_us = self.time.now_us;
            self.tally.on_lead(term, self.time.now_us);
        }
        self.check_handover(id);
    }

    fn check_handover(&mut self, id: NodeId) {
        let Some(host) = self.servers.get_mut(&id) else { return };
        let Some(process) = &mut host.process else { return };
        let successor = process.control.machine.successor();
        let before = std::mem::replace(&mut process.successor, successor.map(|(to, _)| to));
        if let Some((to, reason)) = successor.filter(|(to, _)| before != Some(*to)) {
            self.checks.on_handover(host.farm, to, reason, process.leads_because, process.relay.applied());
        }
    }

    fn carry_out(&mut self, id: NodeId, output: Output<Server>) {
        let is_hasty = self.plan.server.planted.is(Bug::AcknowledgedBeforeSync);
        match output {
            Output::Send { to, message } => self.send(id, to, message),
            Output::SendAfter { to, message, .. } if is_hasty => self.send(id, to, message),
            Output::SendAfter { token, to, message } => {
                self.process(id).into_iter().for_each(|process| process.waiting.push((token, to, message.clone())));
            }
            Output::Persist { token, records } => {
                self.server(id).disk.write(token, records);
                self.sync(id);
                if is_hasty {
                    self.step_control(id, Input::Persisted(token));
                }
            }
            Output::Set { timer, delay } => self.set(id, self.servers[&id].clock, Timer::Control(timer), delay),
            Output::Cancel(timer) => self.cancel(id, Timer::Control(timer)),
            Output::Notify(notice) => self.on_notice(id, notice),
            Output::Ignore(_) => {}
        }
    }

    fn send(&mut self, from: NodeId, to: ServerId, words: Words) {
        let to = NodeId::from(to);
        self.tally.messages.add(&words);
        let arrivals = self.plan.network.arrivals(self.time.now_us, &mut self.time.chance);
        if arrivals.at_us[0].is_none() {
            return Observer::<Server>::on_loss(self.observer, self.time.now_us, from, to, &words);
        }
        for at_us in arrivals.at_us.into_iter().flatten() {
            self.time.at(at_us, Event::To(to, What::Words(from, Box::new(words.clone()))));
        }
    }
}

/// What control says.
impl<O: Audience> Run<'_, O> {
    fn on_notice(&mut self, id: NodeId, notice: Notice) {
        match notice {
            Notice::Committed(entries) => entries.iter().for_each(|entry| self.apply(id, entry)),
            Notice::Restored(snapshot) => {
                self.tally.restored += 1;
                self.checks.on_restore(self.servers[&id].farm, id.server(), &snapshot);
                let Some(process) = self.process(id) else { return };
                process.relay.on_restored(&snapshot);
                self.tell_farm(id, Told::Restored(snapshot.index, snapshot.data));
                self.let_look(id);
            }
            Notice::Readable(number, index) => {
                let read = self.process(id).and_then(|process| process.reads.asked.remove(&number));
                self.on_readable(id, read, index);
            }
            Notice::Unreadable(number) => self.on_unreadable(id, number),
            Notice::Leader(leader, term, reason) => self.on_leader(id, leader, (term, reason)),
            // From now on everybody stands again.
            Notice::Confirmed(confirmed) if confirmed.leader == id.server() => {
                self.process(id).into_iter().for_each(|process| process.leads_because = Reason::Elected);
            }
            Notice::Refused(refusal, all) => self.on_refused(id, refusal, all),
            Notice::HandOver(to, reason) => self.tell_leases(id, leases::Command::HandOver(to, reason)),
            Notice::NotTransferred(_) => self.tell_leases(id, leases::Command::Stay),
            _ => {}
        }
    }

    fn on_leader(&mut self, id: NodeId, leader: Option<ServerId>, (term, reason): (Term, Reason)) {
        let leads = leader == Some(id.server());
        let Some(process) = self.process(id) else { return };
        let was_leading = process.leader.0 == Some(id.server());
        process.leader = (leader, term);
        process.for_leases.has_other_leader = true;
        // What a leader wanted that is deposed is void.
        process.wishes.retain(|wish| !matches!(wish, Wish::Append(..)));
        process.relay.on_leader(leads.then_some(term));
        if leads {
            process.leads_because = reason;
        } else {
            // Clients of a deposed leader never learn what became of their writes.
            process.writes.clear();
            process.reads.asked.clear();
            process.reads.early.clear();
        }
        if leads && reason == Reason::Load {
            self.tally.handovers_us.push(self.time.now_us);
        }
        if leads || was_leading {
            self.wake(id, Thread::Leases);
        }
        self.tell_farm(id, Told::Leader(leader));
        self.start_leading(id);
    }

    /// A new leader is ready once it has applied an entry of its own term.
    fn start_leading(&mut self, id: NodeId) {
        let Some(process) = self.process(id) else { return };
        let Some(term) = process.relay.start_leading() else { return };
        let early = std::mem::take(&mut process.reads.early);
        self.tell_farm(id, Told::Lead(term));
        let shows_ms = self.servers[&id].clock.wall_ms(self.time.now_us);
        self.tell_farm(id, Told::Clock(id.server(), shows_ms));
        let farm = self.servers[&id].farm;
        self.checks.on_leader(farm);
        early.into_iter().for_each(|read| self.read(id, read));
    }

    /// Somebody wants to know how much of the log counts.
    pub(super) fn read(&mut self, id: NodeId, read: Read) {
        let number = self.number();
        let Some(process) = self.process(id) else { return };
        process.reads.asked.insert(number, read);
        self.step_control(id, Input::Command(Command::Read(number)));
    }

    fn on_readable(&mut self, id: NodeId, read: Option<Read>, index: u64) {
        let Some(read) = read else { return };
        if let Read::Client(_, since) = read {
            self.tally.reads += 1;
            self.checks.on_read(id.server(), since, index);
        }
        let Some(process) = self.process(id) else { return };
        process.reads.late.entry(index).or_default().push(read);
        self.let_look(id);
    }

    fn on_unreadable(&mut self, id: NodeId, number: u64) {
        let Some(process) = self.process(id) else { return };
        let read = process.reads.asked.remove(&number);
        if process.leader.0 == Some(id.server()) {
            process.reads.early.extend(read);
        }
    }

    /// Those who may look now do so.
    fn let_look(&mut self, id: NodeId) {
        let Some(process) = self.process(id) else { return };
        for read in process.reads.take_ready(process.relay.applied()) {
            match read {
                Read::Leases(question) => self.tell_leases(id, leases::Command::Confirmed(question)),
                Read::Client(known, _) => self.look(id, known),
            }
        }
    }

    fn apply(&mut self, id: NodeId, entry: &Entry) {
        let farm = self.servers[&id].farm;
        let Some(process) = self.process(id) else { return };
        let (term, before) = (process.control.machine.replica().view().2, process.relay.applied());
        let is_mine = process.relay.on_committed(entry);
        let is_for_farm = matches!(is_mine, Content::Register(_) | Content::Ledger { .. });
        let written = process.writes.remove(&entry.data);
        let is_new = self.checks.on_apply(farm, id.server(), (term, before), entry);
        if let Some(key) = written {
            self.acknowledge(farm, key, entry.index);
        }
        if is_new {
            self.on_agreed(farm, entry);
        }
        if is_for_farm {
            self.tell_farm(id, Told::Committed(entry.index, entry.data.clone()));
        }
        self.start_leading(id);
        self.let_look(id);
        let Some(process) = self.process(id) else { return };
        if process.relay.take_cut() {
            let cut = Told::Snapshot(entry.index, process.control.machine.gave_way().clone());
            self.tell_farm(id, cut);
        }
    }

    /// An entry is known to be committed for the first time.
    fn on_agreed(&mut self, farm: usize, entry: &Entry) {
        let leading = self.servers.iter().filter(|(_, host)| host.farm == farm);
        for (id, host) in leading {
            if let (Some(term), Some(process)) = (leads_now(host), &host.process) {
                self.checks.on_commit(farm, id.server(), term, process.control.machine.replica().log());
            }
        }
        if !entry.data.is_empty() {
            self.checks.on_commit_in_term(Term(entry.term), self.time.now_us);
        }
        if let Some(batch) = self.checks.assemble(farm, &entry.data) {
            self.on_batch(farm, &batch);
        }
    }

    fn on_refused(&mut self, id: NodeId, refusal: Refusal, all: Vec<bytes::Bytes>) {
        let incarnation = self.servers[&id].incarnation;
        let Some(process) = self.process(id) else { return };
        let is_client = all.iter().any(|words| process.writes.remove(words).is_some());
        let (leader, term) = process.leader;
        // What the farm wants and is not taken is tried again, and nothing overtakes it.
        if refusal == Refusal::Busy && !is_client && leader == Some(id.server()) {
            process.wishes.push_front(Wish::Append(term, all));
            process.wake(Thread::Control);
            self.time.after(AGAIN, Event::To(id, What::Turn(incarnation, Thread::Control)));
        }
    }

    /// Control hears what farm and leases want, in order.
    pub(super) fn on_control_turn(&mut self, id: NodeId) {
        while let Some(wish) = self.process(id).and_then(|process| process.wishes.pop_front()) {
            let Some(process) = self.process(id) else { return };
            match wish {
                Wish::Append(term, records) => {
                    if process.leader == (Some(id.server()), term) {
                        self.step_control(id, Input::Command(Command::Propose(records)));
                    }
                }
                Wish::Compact(index, state) => {
                    process.relay.on_cut(index);
                    let farm = self.servers[&id].farm;
                    self.checks.on_state(farm, id.server(), index, &state);
                    self.step_control(id, Input::Command(Command::Compact(index, state)));
                }
                Wish::Confirm(question) => self.read(id, Read::Leases(question)),
                Wish::Guarded(is_guarded) => {
                    self.step_control(id, Input::Command(Command::Guarded(is_guarded)));
                }
                Wish::Transfer(to, reason) => {
                    self.step_control(id, Input::Command(Command::Transfer(Some(to), reason)));
                }
            }
            // What was not taken waits.
            if self.process(id).is_some_and(|process| process.is_awake(Thread::Control)) {
                return;
            }
        }
    }

    /// Somebody who believes to lead this farm, and can answer.
    pub(super) fn leader_to_ask(&mut self, farm: usize) -> Option<NodeId> {
        let leads = |id: &NodeId| !self.frozen.contains_key(id) && leads_now(&self.servers[id]).is_some();
        let leaders: Vec<NodeId> = self.farms[farm].server_ids.iter().copied().filter(leads).collect();
        (!leaders.is_empty()).then(|| self.time.chance.pick(&leaders))
    }
}

/// The term in which the log is led from here.
fn leads_now(host: &ServerHost) -> Option<Term> {
    host.process.as_ref()?.leading
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
