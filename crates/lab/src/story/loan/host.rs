//! A farm: the office of whoever leads it, and what is agreed on.

use std::collections::VecDeque;

use primus_core::ledger::loans::home_of;
use primus_core::ledger::{Batch, Effect, Entry, Ledger};
use primus_core::loan::office::{self, Office, Rules, Situation};
use primus_core::{FarmId, Input, Machine, Moment, Outbox, Output, Term};

use super::member::{Command, Member, Message, Notice, Timer, name_of, node_of};
use crate::node::NodeId;

/// A farm.
#[derive(Debug)]
pub(super) struct Host {
    office: Office,
    pub(super) ledger: Ledger,
    term: u64,
    neighbours: Vec<NodeId>,
    /// How many tasks wait; if any do, nobody is idle.
    queued: u64,
    now: Moment,
    /// What is to be written into the log, until the log takes it.
    pub(super) proposed: VecDeque<Vec<Entry>>,
}

impl Host {
    pub(super) fn new(neighbours: Vec<NodeId>) -> Self {
        let office = Office::new(Rules::default(), Vec::new());
        let (ledger, proposed) = (Ledger::default(), VecDeque::new());
        Self { office, ledger, term: 0, neighbours, queued: 0, now: Moment::START, proposed }
    }

    pub(super) fn step(&mut self, now: Moment, input: Input<Member>, out: &mut Outbox<Member>) {
        self.now = now;
        match input {
            Input::Message { from, message } => self.hear(from, message, out),
            Input::Timer(Timer::Farm(timer)) => self.step_office(Input::Timer(timer), out),
            Input::Command(Command::Lead) => self.lead(out),
            Input::Command(Command::Apply(entries)) => self.apply(entries, out),
            Input::Command(Command::Queue(queued)) => self.queued = queued,
            _ => out.ignore("what is for workers"),
        }
    }

    const fn now_ms(&self) -> u64 {
        self.now.0 / 1000
    }

    fn hear(&mut self, from: NodeId, message: Message, out: &mut Outbox<Member>) {
        match message {
            Message::Farm(message) => {
                let place = self.neighbours.iter().position(|neighbour| *neighbour == from);
                let number = place.map_or(0, |place| place as u64 + 1);
                self.step_office(Input::Message { from: FarmId(number), message }, out);
            }
            Message::Word(word) => self.tell_office(office::Command::Said(name_of(from), word), out),
            Message::Arrival(name, loan) => self.tell_office(office::Command::Arrived(name, loan), out),
            Message::Departure(worker) => self.propose(vec![Entry::Leave { worker }], out),
        }
    }

    /// A new server knows nothing but what is agreed on.
    fn lead(&mut self, out: &mut Outbox<Member>) {
        self.office = Office::new(Rules::default(), self.neighbours.iter().map(|node| name_of(*node)).collect());
        self.proposed.clear();
        self.term += 1;
        self.tell_office(office::Command::Lead(Term(self.term), self.ledger.loans().clone()), out);
    }

    /// Whoever is let in registers at once: the foreman asks it to.
    fn apply(&mut self, entries: Vec<Entry>, out: &mut Outbox<Member>) {
        for effect in self.ledger.apply(Batch { time_ms: self.now_ms(), entries }) {
            if let Effect::Borrowed(worker) = effect {
                self.propose(vec![Entry::Join { worker, slots: 1 }], out);
            }
        }
        self.tell_office(office::Command::Agreed(self.ledger.loans().clone()), out);
    }

    fn propose(&mut self, entries: Vec<Entry>, out: &mut Outbox<Member>) {
        if !self.proposed.contains(&entries) {
            self.proposed.push_back(entries.clone());
            out.notify(Notice::Propose(entries));
        }
    }

    fn tell_office(&mut self, command: office::Command, out: &mut Outbox<Member>) {
        self.step_office(Input::Command(command), out);
    }

    fn step_office(&mut self, input: Input<Office>, out: &mut Outbox<Member>) {
        let mut inner = Outbox::new();
        self.office.step(self.now, input, &mut inner);
        inner.drain().for_each(|output| self.carry_out(output, out));
    }

    fn carry_out(&mut self, output: Output<Office>, out: &mut Outbox<Member>) {
        match output {
            Output::Send { to, message } => {
                let place = usize::try_from(to.0).ok().and_then(|number| number.checked_sub(1));
                let neighbour = place.and_then(|place| self.neighbours.get(place));
                neighbour.into_iter().for_each(|node| out.send(*node, Message::Farm(message.clone())));
            }
            Output::Notify(office::Notice::LookAround) => {
                let situation = self.situation();
                self.tell_office(office::Command::Situation(situation), out);
            }
            Output::Notify(office::Notice::Tell(name, word)) => {
                node_of(&name).into_iter().for_each(|worker| out.send(worker, Message::Word(word.clone())));
            }
            Output::Notify(office::Notice::Propose(entries)) => self.propose(entries, out),
            Output::Notify(office::Notice::Happened(happening)) => out.notify(Notice::Happened(happening)),
            Output::Set { timer, delay } => out.set(Timer::Farm(timer), delay),
            Output::Cancel(timer) => out.cancel(Timer::Farm(timer)),
            Output::Ignore(reason) => out.ignore(reason),
        }
    }

    /// What a foreman would say.
    fn situation(&self) -> Situation {
        let (guests, own): (Vec<_>, Vec<_>) =
            self.ledger.workers().iter().partition(|(name, _)| home_of(name).is_some());
        let is_idle = |name: &str| self.queued == 0 && !self.ledger.loans().is_lent(name);
        let idle = own.into_iter().filter(|(name, _)| is_idle(name));
        let idle: Vec<_> = idle.map(|(name, registration)| (name.clone(), registration.slots)).collect();
        Situation {
            now_ms: self.now_ms(),
            queued: self.queued,
            free: idle.iter().map(|(_, slots)| u32::from(*slots)).sum(),
            idle,
            guests: guests.into_iter().map(|(name, _)| name.clone()).collect(),
        }
    }
}
