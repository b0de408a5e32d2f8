//! The guards of a run and what runs under their leases; how their questions find the leader, and the answers them.

use primus_core::SessionId;
use primus_core::lease::guard::Leader;
use primus_core::lease::guard::{Command, Notice, Rules, Timer};
use primus_core::lease::{Guard, Lessor, Message, Poll};
use primus_core::load::Score;
use primus_core::machine::{Delay, Input, Machine, Moment, Outbox, Output};

use super::checks::Interval;
use super::host::GuardHost;
use super::run::{Event, Run};
use crate::node::NodeId;
use crate::observer::Observer;

/// How soon a guard says that what ran is dead.
const DEATH: Delay = Delay { min_us: 0, max_us: 20_000 };
/// How often what runs ends by itself, in a while.
const SHORT_LIVED_PPM: u32 = 50_000;
/// How often a guard that is free to choose speaks through another server than the last time.
const RESTLESS_PPM: u32 = 50_000;
/// How often somebody who looks for the leader finds one that is deposed and does not know it.
const MISLED_PPM: u32 = 150_000;

impl<O: Observer<Lessor> + Observer<Guard>> Run<'_, O> {
    pub(super) fn guard(&mut self, id: NodeId) -> &mut GuardHost {
        self.guards.get_mut(&id).expect("a guard of this run")
    }

    /// A new process is a new session.
    pub(super) fn start_guard(&mut self, id: NodeId) {
        let rules = Rules { lease_us: self.lease_us, planted: self.planted };
        let session = SessionId(self.number());
        let score = Score::from_hundredths(u32::try_from(self.chance.below(10_000)).expect("it is small"));
        let host = self.guard(id);
        host.guard = Some(Guard::new(session, rules));
        let (at, wants) = (host.at, host.wants.clone());
        for command in [Command::Score(score), Command::At(at.server()), Command::Want(wants)] {
            self.step_guard(id, Input::Command(command));
        }
    }

    pub(super) fn step_guard(&mut self, id: NodeId, input: Input<Guard>) {
        let now_us = self.now_us;
        let host = self.guard(id);
        let local_us = host.clock.local_us(now_us);
        let Some(guard) = &mut host.guard else { return };
        let mut outbox = Outbox::new();
        guard.step(Moment(local_us), input.clone(), &mut outbox);
        self.observe_guard(id, &input, outbox.as_slice());
        for output in outbox.drain() {
            self.carry_out(id, output);
        }
    }

    fn carry_out(&mut self, id: NodeId, output: Output<Guard>) {
        match output {
            Output::Send { message: Message::Poll(poll), .. } => self.send_poll(id, poll),
            Output::Set { timer, delay } => {
                let number = self.number();
                let host = self.guard(id);
                host.timers.insert(timer, number);
                let delay = host.clock.real(delay);
                self.after(delay, Event::GuardTimer { guard: id, timer, number });
            }
            Output::Cancel(timer) => _ = self.guard(id).timers.remove(&timer),
            Output::Notify(notice) => self.on_guard_notice(id, notice),
            Output::Send { .. } | Output::Ignore(_) => {}
        }
    }

    pub(super) fn on_guard_timer(&mut self, id: NodeId, timer: Timer, number: u64) {
        if self.guard(id).timers.get(&timer) == Some(&number) {
            self.guard(id).timers.remove(&timer);
            self.step_guard(id, Input::Timer(timer));
        }
    }

    fn on_guard_notice(&mut self, id: NodeId, notice: Notice) {
        match notice {
            Notice::Granted(group, token, until_us) => self.on_granted(id, group, token, until_us),
            Notice::Renewed(_, token, until_us) => {
                let host = self.guard(id);
                let (end_us, term) = (host.clock.real_us(until_us), host.heard);
                self.checks.on_renewed(token, end_us, term, self.now_us);
            }
            Notice::Recalled(group) => {
                self.checks.seen.recalls += 1;
                let grace = Delay { min_us: 0, max_us: self.lease_us / 2 };
                self.end_within(id, group, grace);
            }
            Notice::Lost(group) => {
                if let Some(token) = self.guard(id).runs.get(&group).copied() {
                    self.checks.on_end(token, self.now_us, false);
                }
                self.end_within(id, group, DEATH);
            }
            Notice::Refused(..) => {}
        }
    }

    fn on_granted(&mut self, id: NodeId, group: String, token: u64, until_us: u64) {
        let from_us = self.now_us;
        let host = self.guard(id);
        host.runs.insert(group.clone(), token);
        let (end_us, term) = (host.clock.real_us(until_us), host.heard);
        let session = host.session().expect("only the living are told");
        let interval = Interval { group: group.clone(), session, token, from_us, end_us, until_us: end_us, term };
        self.checks.on_granted(interval);
        if self.chance.happens(SHORT_LIVED_PPM) {
            self.end_within(id, group, Delay { min_us: 0, max_us: 2 * self.lease_us });
        }
    }

    /// What runs will have ended by then, and its guard will say so.
    fn end_within(&mut self, id: NodeId, group: String, delay: Delay) {
        if let Some(token) = self.guard(id).runs.get(&group).copied() {
            self.after(delay, Event::Ends { guard: id, group, token });
        }
    }

    pub(super) fn on_ends(&mut self, id: NodeId, group: String, token: u64) {
        let host = self.guard(id);
        if host.runs.get(&group) == Some(&token) {
            host.runs.remove(&group);
            self.checks.on_end(token, self.now_us, true);
            self.step_guard(id, Input::Command(Command::Ended(group)));
        }
    }

    /// The question goes to the server through which the guard speaks; next time to another one, perhaps.
    fn send_poll(&mut self, id: NodeId, poll: Poll) {
        let session = self.guard(id).session().expect("only the living ask");
        let at = self.guard(id).at;
        self.send(Event::Poll { server: at, guard: id, session, poll, is_passed_on: false });
        let is_restless = !self.is_calm() && self.chance.happens(RESTLESS_PPM);
        let is_gone = self.servers[&at].lessor.is_none();
        if !self.guard(id).is_beside && (is_gone || is_restless) {
            let next = self.chance.pick(&self.server_ids);
            self.guard(id).at = next;
            self.step_guard(id, Input::Command(Command::At(next.server())));
        }
    }

    /// Whoever leads hears the question; whoever does not passes it on to whoever does, if it can.
    pub(super) fn on_poll(&mut self, event: Event) {
        let Event::Poll { server, guard, session, poll, is_passed_on } = event else { return };
        if self.servers[&server].lessor.is_none() {
            return;
        }
        if self.servers[&server].leads.is_some() {
            let message = Message::Poll(poll);
            return self.step_lessor(server, Input::Message { from: session, message });
        }
        let leader = self.leader_for(server).filter(|_| !is_passed_on);
        match leader {
            Some(leader) => {
                self.send(Event::Poll { server: leader, guard, session, poll, is_passed_on: true });
            }
            None => self.send(Event::Failed { guard, session, number: poll.number }),
        }
    }

    fn leader_for(&mut self, server: NodeId) -> Option<NodeId> {
        let believes = |id: &NodeId| self.servers[id].leads.is_some();
        let believers: Vec<NodeId> = self.server_ids.iter().copied().filter(believes).collect();
        let is_misled = !self.is_calm() && !believers.is_empty() && self.chance.happens(MISLED_PPM);
        let leader = if is_misled { Some(self.chance.pick(&believers)) } else { self.log.leader() }?;
        (!self.isolated.contains(&server) && leader != server).then_some(leader)
    }

    /// The answer of a leader, of whatever term, to whoever has this session.
    pub(super) fn send_answer(&mut self, server: NodeId, session: SessionId, message: Message) {
        let Some(term) = self.servers[&server].leads else { return };
        self.checks.seen.stale_answers += u64::from(term < self.log.term);
        let guard = self.guards.iter().find(|(_, host)| host.session() == Some(session)).map(|(id, _)| *id);
        if let Some(guard) = guard {
            self.send(Event::Answer { server, term, guard, session, message });
        }
    }

    pub(super) fn on_answer(&mut self, event: Event) {
        let Event::Answer { term, guard, session, message, .. } = event else { return };
        if self.guard(guard).session() == Some(session) {
            self.guard(guard).heard = term;
            self.step_guard(guard, Input::Message { from: Leader, message });
        }
    }

    pub(super) fn on_failed(&mut self, id: NodeId, session: SessionId, number: u64) {
        if self.guard(id).session() == Some(session) {
            self.step_guard(id, Input::Command(Command::Failed(number)));
        }
    }
}
