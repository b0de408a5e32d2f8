//! The guards of a run and what runs under their leases; how their questions find the leader, and the answers them.

use primus_core::lease::guard::{Command, Leader, Notice, Rules};
use primus_core::lease::{Guard, Message, Poll};
use primus_core::load::Score;
use primus_core::machine::{Delay, Input, Output};
use primus_core::{SessionId, Term};
use primus_server::control::{self, Reason};
use primus_server::leases;

use super::host::{GuardHost, Stand};
use super::{Asker, Audience, Event, Run, Timer, What};
use crate::checks::Interval;
use crate::node::NodeId;

/// How soon a guard says that what ran is dead.
const DEATH: Delay = Delay { min_us: 0, max_us: 20_000 };
/// How often what runs ends by itself, in a while.
const SHORT_LIVED_PPM: u32 = 50_000;
/// How often a guard that is free to choose speaks through another server than the last time.
const RESTLESS_PPM: u32 = 50_000;

impl<O: Audience> Run<'_, O> {
    pub(super) fn guard(&mut self, id: NodeId) -> &mut GuardHost {
        self.guards.get_mut(&id).expect("a guard of this run")
    }

    /// A new process is a new session.
    pub(super) fn start_guard(&mut self, id: NodeId) {
        let rules = Rules { lease_us: self.plan.server.lease_us, planted: self.plan.server.planted };
        let (now_us, session) = (self.time.now_us, SessionId(self.number()));
        let score = Score::from_hundredths(u32::try_from(self.time.chance.below(10_000)).expect("it is small"));
        let host = self.guard(id);
        host.clock.began_us = now_us;
        host.process = Some(Stand::new(Guard::new(session, rules)));
        let (at, wants) = (host.at, host.wants.clone());
        for command in [Command::Score(score), Command::At(at.server()), Command::Want(wants)] {
            self.step_guard(id, Input::Command(command));
        }
    }

    pub(super) fn step_guard(&mut self, id: NodeId, input: Input<Guard>) {
        let now_us = self.time.now_us;
        let host = self.guard(id);
        let now = host.clock.moment(now_us);
        let Some(process) = &mut host.process else { return };
        let outputs = process.step(now, input.clone());
        self.see(id, &input, &outputs);
        for output in outputs {
            self.carry_out_guard(id, output);
        }
    }

    fn carry_out_guard(&mut self, id: NodeId, output: Output<Guard>) {
        match output {
            Output::Send { message: Message::Poll(poll), .. } => self.send_poll(id, poll),
            Output::Set { timer, delay } => self.set(id, self.guards[&id].clock, Timer::Guard(timer), delay),
            Output::Cancel(timer) => self.cancel(id, Timer::Guard(timer)),
            Output::Notify(notice) => self.on_guard_notice(id, notice),
            Output::Send { .. } | Output::Ignore(_) => {}
        }
    }

    fn on_guard_notice(&mut self, id: NodeId, notice: Notice) {
        match notice {
            Notice::Granted(group, token, until_us) => self.on_granted(id, group, token, until_us),
            Notice::Renewed(_, token, until_us) => {
                let host = self.guard(id);
                let (end_us, term) = (host.clock.real_us(until_us), host.heard);
                self.checks.on_renewed(token, end_us, term, self.time.now_us);
            }
            Notice::Recalled(group) => {
                self.checks.saw("recalls_of_leases");
                let grace = Delay { min_us: 0, max_us: self.plan.server.lease_us / 2 };
                self.end_within(id, group, grace);
            }
            Notice::Lost(group) => {
                if let Some(token) = self.guard(id).runs.get(&group).copied() {
                    self.checks.leases.end(token, self.time.now_us, false);
                }
                self.end_within(id, group, DEATH);
            }
            Notice::Refused(..) => {}
        }
    }

    fn on_granted(&mut self, id: NodeId, group: String, token: u64, until_us: u64) {
        let from_us = self.time.now_us;
        let host = self.guard(id);
        host.runs.insert(group.clone(), token);
        let (end_us, term) = (host.clock.real_us(until_us), host.heard);
        let session = host.session().expect("only the living are told");
        let interval = Interval { group: group.clone(), session, token, from_us, end_us, until_us: end_us, term };
        self.checks.on_granted(interval);
        if self.time.chance.happens(SHORT_LIVED_PPM) {
            self.end_within(id, group, Delay { min_us: 0, max_us: 2 * self.plan.server.lease_us });
        }
    }

    /// What runs will have ended by then, and its guard will say so.
    fn end_within(&mut self, id: NodeId, group: String, delay: Delay) {
        if let Some(token) = self.guard(id).runs.get(&group).copied() {
            self.time.after(delay, Event::To(id, What::Ends(group, token)));
        }
    }

    pub(super) fn on_ends(&mut self, id: NodeId, group: String, token: u64) {
        let host = self.guard(id);
        if host.runs.get(&group) == Some(&token) {
            host.runs.remove(&group);
            self.checks.leases.end(token, self.time.now_us, true);
            self.step_guard(id, Input::Command(Command::Ended(group)));
        }
    }

    pub(super) fn leave(&mut self, id: NodeId, until_us: u64) {
        let host = self.guard(id);
        let wanted: Vec<String> = host.wants.iter().map(|candidacy| candidacy.group.clone()).collect();
        let group = self.time.chance.pick(&wanted.iter().collect::<Vec<_>>()).clone();
        if self.guard(id).process.is_none() || self.frozen.contains_key(&id) {
            return;
        }
        self.guard(id).has_left.insert(group.clone());
        self.time.at(until_us, Event::To(id, What::WantAgain(group.clone())));
        self.step_guard(id, Input::Command(Command::Leave(group)));
    }

    pub(super) fn on_want_again(&mut self, id: NodeId, group: &str) {
        let host = self.guard(id);
        if host.process.is_some() && host.has_left.remove(group) {
            let candidacy = host.wants.iter().find(|candidacy| candidacy.group == group).cloned();
            self.step_guard(id, Input::Command(Command::Want(candidacy.into_iter().collect())));
        }
    }

    pub(super) fn end_something(&mut self, id: NodeId) {
        if let Some((group, token)) = self.guard(id).runs.first_key_value() {
            let event = Event::To(id, What::Ends(group.clone(), *token));
            self.time.at(self.time.now_us, event);
        }
    }

    pub(super) fn crash_guard(&mut self, id: NodeId) {
        if let Some(session) = self.guards[&id].session() {
            self.checks.leases.end_all(session, self.time.now_us);
        }
        self.guard(id).forget();
    }
}

/// How questions and answers travel: to the server that the guard speaks through, and if another one leads, on to that one.
impl<O: Audience> Run<'_, O> {
    fn send_poll(&mut self, id: NodeId, poll: Poll) {
        let session = self.guard(id).session().expect("only the living ask");
        let at = self.guard(id).at;
        self.travel(Event::To(at, What::Poll(id, (id, session), Box::new(poll))));
        let is_restless = !self.is_calm() && self.time.chance.happens(RESTLESS_PPM);
        let is_gone = self.servers[&at].process.is_none();
        if !self.guard(id).is_beside && (is_gone || is_restless) {
            let next = self.time.chance.pick(&self.farms[self.guards[&id].farm].server_ids);
            self.guard(id).at = next;
            self.step_guard(id, Input::Command(Command::At(next.server())));
        }
    }

    /// Puts words on their way; while things go wrong they may be lost, late or doubled, and so overtake each other.
    fn travel(&mut self, event: Event) {
        let arrivals = self.plan.network.arrivals(self.time.now_us, &mut self.time.chance);
        arrivals.at_us.into_iter().flatten().for_each(|at_us| self.time.at(at_us, event.clone()));
    }

    /// Whoever leads hears the question; whoever does not passes it on to whoever does, as far as it knows.
    pub(super) fn on_poll(&mut self, from: NodeId, server: NodeId, asker: Asker, poll: Box<Poll>) {
        let is_passed_on = self.servers.contains_key(&from);
        let Some(process) = self.process(server) else { return };
        match process.leader.0.map(NodeId::from) {
            Some(leader) if leader == server => {
                let message = Message::Poll(*poll);
                self.ask_leases(server, Input::Message { from: asker.1, message });
            }
            Some(leader) if !is_passed_on => self.travel(Event::To(leader, What::Poll(server, asker, poll))),
            _ => self.travel(Event::To(asker.0, What::Failed(server, asker.1, poll.number))),
        }
    }

    pub(super) fn fail_poll(&mut self, server: NodeId, session: SessionId, number: u64) {
        if let Some(id) = self.guard_of(session) {
            self.travel(Event::To(id, What::Failed(server, session, number)));
        }
    }

    fn guard_of(&self, session: SessionId) -> Option<NodeId> {
        self.guards.iter().find(|(_, host)| host.session() == Some(session)).map(|(id, _)| *id)
    }

    /// The answer of a leader, of whatever term, to whoever has this session.
    pub(super) fn send_answer(&mut self, server: NodeId, session: SessionId, message: Message) {
        let term = self.servers[&server].process.as_ref().map_or(Term(0), |process| process.leader.1);
        let newest = self.servers.values().filter_map(|host| host.process.as_ref()?.leading).max();
        if newest.is_some_and(|newest| term < newest) {
            self.checks.saw("stale_answers");
        }
        if let Some(id) = self.guard_of(session) {
            self.travel(Event::To(id, What::Answer(server, term, session, Box::new(message))));
        }
    }

    pub(super) fn on_answer(&mut self, term: Term, (id, session): Asker, message: Message) {
        if self.guard(id).session() == Some(session) {
            self.guard(id).heard = term;
            self.step_guard(id, Input::Message { from: Leader, message });
        }
    }

    pub(super) fn on_failed(&mut self, (id, session): Asker, number: u64) {
        if self.guard(id).session() == Some(session) {
            self.step_guard(id, Input::Command(Command::Failed(number)));
        }
    }
}

/// Another server is to lead: what is held beside the leader ends first.
impl<O: Audience> Run<'_, O> {
    pub(super) fn transfer(&mut self, leader: NodeId, until_us: u64) {
        let heir = self.time.chance.pick(&self.peers(leader));
        let ticket = primus_server::farm::Ticket(self.number());
        let Some(process) = self.process(leader) else { return };
        if process.leader.0 == Some(leader.server()) {
            process.heir = Some(heir);
            self.time.at(until_us, Event::To(leader, What::Impatience));
            self.tell_leases(leader, leases::Command::Vacate(ticket));
        }
    }

    /// What is held beside this server has ended: now the other one may lead.
    pub(super) fn on_vacant(&mut self, leader: NodeId, is_vacant: bool) {
        let Some(heir) = self.process(leader).and_then(|process| process.heir.take()) else { return };
        if is_vacant {
            self.checks.saw("vacancies");
            let transfer = control::Command::Transfer(Some(heir.server()), Reason::Operator);
            self.step_control(leader, Input::Command(transfer));
        }
    }

    /// It took too long: the other one leads all the same, or the transfer is given up.
    pub(super) fn on_impatience(&mut self, leader: NodeId) {
        let Some(heir) = self.process(leader).and_then(|process| process.heir.take()) else { return };
        if self.time.chance.happens(500_000) {
            let transfer = control::Command::Transfer(Some(heir.server()), Reason::Operator);
            self.step_control(leader, Input::Command(transfer));
        } else {
            self.tell_leases(leader, leases::Command::Stay);
        }
    }
}
