//! The other two threads of a server: the farm, which may be busy, and the leases, which are not.
//!
//! What control says to the farm comes in one queue and what workers, neighbours and clients say in another, as in a real server. A turn
//! of the farm takes some of what it was told, and all of the rest.

use primus_core::lease::Message as LeaseMessage;
use primus_core::lease::lessor::Tick;
use primus_core::machine::{Delay, Input, Output};
use primus_core::{ServerId, SessionId};
use primus_server::farm::{Command, Farm, Message, Notice, Peer, Ticket, Timer};
use primus_server::leases::{self, Leases};
use primus_server::record::State;

use super::host::{Known, Process, Thread, Told, Wish};
use super::{Audience, Event, Run, What};
use crate::node::NodeId;

/// How long a thread takes to hear what another one says.
const HEARING: Delay = Delay { min_us: 5, max_us: 200 };
/// The same while the farm is busy.
const BUSY: Delay = Delay { min_us: 200, max_us: 30_000 };
const BUSY_PPM: u32 = 100_000;
/// When it is looked again whether somebody has been silent.
const SILENCE_AGAIN: Delay = Delay { min_us: 50_000, max_us: 50_000 };
/// How often the leader hears what a server's clock shows.
const CLOCKS_EVERY_US: u64 = 4_000_000;

impl<O: Audience> Run<'_, O> {
    pub(super) fn wake(&mut self, id: NodeId, thread: Thread) {
        let is_busy = thread != Thread::Leases && !self.is_calm() && self.time.chance.happens(BUSY_PPM);
        let host = self.server(id);
        let incarnation = host.incarnation;
        if host.process.as_mut().is_some_and(|process| process.wake(thread)) {
            let delay = if is_busy { BUSY } else { HEARING };
            self.time.after(delay, Event::To(id, What::Turn(incarnation, thread)));
        }
    }

    pub(super) fn on_turn(&mut self, at: NodeId, incarnation: u32, thread: Thread) {
        let host = self.server(at);
        if host.incarnation != incarnation {
            return;
        }
        let Some(process) = &mut host.process else { return };
        process.begin_turn(thread);
        match thread {
            Thread::Control => self.on_control_turn(at),
            Thread::Farm => self.on_farm_turn(at),
            Thread::Leases => self.on_leases_turn(at),
        }
    }

    pub(super) fn tell_farm(&mut self, id: NodeId, told: Told) {
        let Some(process) = self.process(id) else { return };
        process.told.push_back(told);
        self.wake(id, Thread::Farm);
    }

    /// A worker, a neighbour or a client says something.
    pub(super) fn ask_farm(&mut self, id: NodeId, input: Input<Farm>) {
        let Some(process) = self.process(id) else { return };
        process.asked.push_back(input);
        self.wake(id, Thread::Farm);
    }

    pub(super) fn ask_farm_for(&mut self, id: NodeId, question: impl FnOnce(Ticket) -> Command) -> Ticket {
        let ticket = Ticket(self.number());
        self.ask_farm(id, Input::Command(question(ticket)));
        ticket
    }

    /// A client looks once everything is applied that it must see.
    pub(super) fn look(&mut self, id: NodeId, known: Known) {
        let Some(process) = self.process(id) else { return };
        let index = process.relay.told();
        let ticket = self.ask_farm_for(id, |ticket| Command::Look(ticket, index));
        self.process(id).into_iter().for_each(|process| _ = process.looks.insert(ticket, known));
    }

    fn on_farm_turn(&mut self, id: NodeId) {
        let told = self.process(id).map_or(0, |process| process.told.len() as u64);
        let count = if self.is_calm() { told } else { self.time.chance.between(0, told) };
        for _ in 0..count {
            self.take_told(id);
        }
        let asked = self.process(id).map(|process| std::mem::take(&mut process.asked)).unwrap_or_default();
        asked.into_iter().for_each(|input| self.step_farm(id, input));
        self.end_farm_turn(id);
        self.note_queue(id);
        if self.process(id).is_some_and(|process| !process.told.is_empty()) {
            self.wake(id, Thread::Farm);
        }
    }

    fn note_queue(&mut self, id: NodeId) {
        let Some(books) = &mut self.books else { return };
        let host = &self.servers[&id];
        if let Some(process) = &host.process {
            books.on_queue(host.farm, process.farm.machine.foreman().waiting(), self.time.now_us);
        }
    }

    /// In the end the farm takes everything that it was told.
    pub(super) fn let_farm_catch_up(&mut self, id: NodeId) {
        while self.process(id).is_some_and(|process| !process.told.is_empty()) {
            self.take_told(id);
        }
    }

    fn take_told(&mut self, id: NodeId) {
        let Some(told) = self.process(id).and_then(|process| process.told.pop_front()) else { return };
        let command = match told {
            Told::Committed(index, record) => {
                self.step_farm(id, Input::Command(Command::Committed(index, record)));
                return self.check_agreement(id, index);
            }
            Told::Leader(leader) => Command::Leader(leader),
            Told::Lead(term) => Command::Lead(term),
            Told::Clock(server, shows_ms) => Command::Clock(server, shows_ms),
            Told::Snapshot(index, gave_way) => {
                let Some(process) = self.process(id) else { return };
                let state = process.farm.machine.state().to_bytes(&gave_way);
                return self.wish(id, Wish::Compact(index, state));
            }
            Told::Restored(index, data) => {
                let state = State::from_bytes(&data).expect("a state that was sent can be read");
                let now = self.servers[&id].clock.moment(self.time.now_us);
                let Some(process) = self.process(id) else { return };
                return process.farm.machine.restore(now, index, state);
            }
        };
        self.step_farm(id, Input::Command(command));
    }

    fn check_agreement(&mut self, id: NodeId, index: u64) {
        let host = &self.servers[&id];
        if let Some(process) = &host.process {
            self.checks.on_farm_applied(host.farm, id, index, process.farm.machine.ledger());
        }
    }

    fn end_farm_turn(&mut self, id: NodeId) {
        let shows_ms = self.servers[&id].clock.wall_ms(self.time.now_us);
        self.step_farm(id, Input::Command(Command::Turn(shows_ms)));
    }

    /// Nobody is judged silent whose words may not have been read yet.
    pub(super) fn on_farm_timer(&mut self, at: NodeId, timer: Timer) {
        let has_words = self.process(at).is_some_and(|process| !process.asked.is_empty());
        if timer.is_about_silence() && has_words {
            return self.set(at, self.servers[&at].clock, super::Timer::Farm(timer), SILENCE_AGAIN);
        }
        self.step_farm(at, Input::Timer(timer));
        self.end_farm_turn(at);
    }

    fn step_farm(&mut self, id: NodeId, input: Input<Farm>) {
        let now_us = self.time.now_us;
        let Some(host) = self.servers.get_mut(&id) else { return };
        let Some(process) = &mut host.process else { return };
        let outputs = process.farm.step(host.clock.moment(now_us), input.clone());
        self.see(id, &input, &outputs);
        for output in outputs {
            self.carry_out_farm(id, output);
        }
    }

    fn carry_out_farm(&mut self, id: NodeId, output: Output<Farm>) {
        match output {
            Output::Send { to: Peer::Worker(link), message } => self.say_to_worker(id, link, message),
            Output::Send { to: Peer::Neighbour(farm), message: Message::Loan(message) } => {
                self.say_to_neighbour(id, farm, &message);
            }
            Output::Set { timer, delay } => self.set(id, self.servers[&id].clock, super::Timer::Farm(timer), delay),
            Output::Cancel(timer) => self.cancel(id, super::Timer::Farm(timer)),
            Output::Notify(notice) => self.on_farm_notice(id, notice),
            Output::Send { .. } | Output::Ignore(_) => {}
        }
    }

    fn on_farm_notice(&mut self, id: NodeId, notice: Notice) {
        match notice {
            Notice::Append(term, records) => self.wish(id, Wish::Append(term, records)),
            Notice::Answer(ticket, answer) => self.on_farm_answer(id, ticket, answer),
            Notice::Held(term, groups) => self.tell_leases(id, leases::Command::Lead(term, groups)),
            Notice::Leases(term, effects) => self.tell_leases(id, leases::Command::Applied(term, effects)),
            Notice::Close(link) => self.break_link(link, super::servers::NOTICE),
            Notice::Happened(happening) => {
                let farm = self.servers[&id].farm;
                self.checks.on_office_happening(farm, &happening);
            }
            Notice::Beside(_) | Notice::Lending(_) | Notice::Loans(_) | Notice::Clock(_) => {}
            Notice::Roll | Notice::Forgotten(_) => {}
        }
    }

    fn wish(&mut self, id: NodeId, wish: Wish) {
        let Some(process) = self.process(id) else { return };
        process.wishes.push_back(wish);
        self.wake(id, Thread::Control);
    }

    /// Every few seconds each server tells its leader what its clock shows.
    pub(super) fn on_clocks(&mut self) {
        self.time.at(self.time.now_us + CLOCKS_EVERY_US, Event::Clocks);
        let told = |(id, host): (&NodeId, &super::ServerHost)| {
            let leader = NodeId::from(host.process.as_ref()?.leader.0?);
            let is_heard = leader == *id || !self.ways.is_cut(*id, leader);
            is_heard.then_some((leader, id.server(), host.clock.wall_ms(self.time.now_us)))
        };
        let told: Vec<(NodeId, ServerId, u64)> = self.servers.iter().filter_map(told).collect();
        for (leader, server, shows_ms) in told {
            self.tell_farm(leader, Told::Clock(server, shows_ms));
        }
    }
}

/// The leases.
impl<O: Audience> Run<'_, O> {
    pub(super) fn tell_leases(&mut self, id: NodeId, command: leases::Command) {
        self.ask_leases(id, Input::Command(command));
    }

    pub(super) fn ask_leases(&mut self, id: NodeId, input: Input<Leases>) {
        let Some(process) = self.process(id) else { return };
        process.for_leases.inputs.push_back(input);
        self.wake(id, Thread::Leases);
    }

    fn on_leases_turn(&mut self, id: NodeId) {
        self.look_for_leader(id);
        while let Some(input) = self.process(id).and_then(|process| process.for_leases.inputs.pop_front()) {
            if let Input::Message { from, message: LeaseMessage::Poll(poll) } = &input {
                let (from, number) = (*from, poll.number);
                self.process(id).into_iter().for_each(|process| _ = process.polls.insert(from, number));
            }
            self.step_leases(id, input);
        }
    }

    /// Of who leads, only the newest counts, and it counts before anything else. Sessions must ask elsewhere then, or again.
    fn look_for_leader(&mut self, id: NodeId) {
        let Some(process) = self.process(id) else { return };
        if std::mem::take(&mut process.for_leases.has_other_leader) {
            let (leader, term) = process.leader;
            self.step_leases(id, Input::Command(leases::Command::Leader(leader, term)));
            let polls = self.process(id).map(|process| std::mem::take(&mut process.polls)).unwrap_or_default();
            polls.into_iter().for_each(|(session, number)| self.fail_poll(id, session, number));
        }
    }

    pub(super) fn on_leases_timer(&mut self, at: NodeId, tick: Tick) {
        self.look_for_leader(at);
        self.step_leases(at, Input::Timer(tick));
    }

    fn step_leases(&mut self, id: NodeId, input: Input<Leases>) {
        let now_us = self.time.now_us;
        let Some(host) = self.servers.get_mut(&id) else { return };
        let Some(process) = &mut host.process else { return };
        let outputs = process.leases.step(host.clock.moment(now_us), input.clone());
        self.see(id, &input, &outputs);
        for output in outputs {
            self.carry_out_leases(id, output);
        }
    }

    fn carry_out_leases(&mut self, id: NodeId, output: Output<Leases>) {
        match output {
            Output::Send { to, message } => self.answer_poll(id, to, message),
            Output::Set { timer, delay } => {
                self.set(id, self.servers[&id].clock, super::Timer::Leases(timer), delay);
            }
            Output::Cancel(timer) => self.cancel(id, super::Timer::Leases(timer)),
            Output::Notify(notice) => self.on_leases_notice(id, notice),
            Output::Ignore(_) => {}
        }
    }

    fn on_leases_notice(&mut self, id: NodeId, notice: leases::Notice) {
        match notice {
            leases::Notice::Want(term, entries) => self.ask_farm(id, Input::Command(Command::Want(term, entries))),
            leases::Notice::Confirm(question) => self.wish(id, Wish::Confirm(question)),
            leases::Notice::Guarded(is_guarded) => self.wish(id, Wish::Guarded(is_guarded)),
            leases::Notice::Transfer(to, reason) => self.wish(id, Wish::Transfer(to, reason)),
            leases::Notice::Vacant(_, result) => self.on_vacant(id, result.is_ok()),
            leases::Notice::Elsewhere(session, _) => {
                let number = self.process(id).and_then(|process| process.polls.remove(&session));
                number.into_iter().for_each(|number| self.fail_poll(id, session, number));
            }
            leases::Notice::OldToken => self.checks.saw("old_tokens"),
        }
    }

    /// An answer goes to whoever has asked last in this session, if this is the answer to that.
    fn answer_poll(&mut self, id: NodeId, session: SessionId, message: LeaseMessage) {
        let LeaseMessage::Answer(answer) = &message else { return };
        let (number, process) = (answer.number, self.process(id));
        let Some(Process { polls, .. }) = process else { return };
        if polls.get(&session) == Some(&number) {
            polls.remove(&session);
            self.send_answer(id, session, message);
        }
    }
}
