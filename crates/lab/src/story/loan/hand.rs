//! A worker: whose it is, and whom it works for.

use primus_core::ledger::LoanId;
use primus_core::ledger::loans::name_here;
use primus_core::loan::allegiance::{self, Allegiance};
use primus_core::planted::Planted;
use primus_core::{Input, Machine, Moment, Outbox, Output};

use super::member::{Command, Member, Message, Notice, Timer, name_of, node_of};
use crate::node::NodeId;

/// A worker.
#[derive(Debug)]
pub(super) struct Hand {
    now: Moment,
    /// What it is called away from home.
    guest_name: String,
    home: NodeId,
    pub(super) allegiance: Allegiance,
    away: Option<NodeId>,
}

impl Hand {
    pub(super) fn new(worker: NodeId, home: NodeId, epoch: LoanId) -> Self {
        let guest_name = name_here(&name_of(worker), &name_of(home));
        Self { now: Moment::START, guest_name, home, allegiance: Allegiance::new(epoch, Planted::NONE), away: None }
    }

    pub(super) fn step(&mut self, now: Moment, input: Input<Member>, out: &mut Outbox<Member>) {
        self.now = now;
        match input {
            Input::Message { from, message: Message::Word(message) } if from == self.home => {
                self.step_allegiance(Input::Message { from: from.server(), message }, out);
            }
            Input::Message { from, message: Message::Word(word) } if self.away == Some(from) => {
                self.step_allegiance(Input::Command(allegiance::Command::Abroad(word)), out);
            }
            Input::Timer(Timer::Worker(timer)) => self.step_allegiance(Input::Timer(timer), out),
            Input::Command(Command::Worker(command)) => self.step_allegiance(Input::Command(command), out),
            Input::Persisted(token) => self.step_allegiance(Input::Persisted(token), out),
            _ => out.ignore("what is not for this worker"),
        }
    }

    fn step_allegiance(&mut self, input: Input<Allegiance>, out: &mut Outbox<Member>) {
        let mut inner = Outbox::new();
        self.allegiance.step(self.now, input, &mut inner);
        inner.drain().for_each(|output| self.carry_out(output, out));
    }

    fn carry_out(&mut self, output: Output<Allegiance>, out: &mut Outbox<Member>) {
        match output {
            Output::Send { to, message } => out.send(to.into(), Message::Word(message)),
            Output::Persist { token, records } => out.persist(token, records),
            Output::Set { timer, delay } => out.set(Timer::Worker(timer), delay),
            Output::Cancel(timer) => out.cancel(Timer::Worker(timer)),
            Output::Notify(notice) => self.obey(notice, out),
            Output::Ignore(reason) => out.ignore(reason),
        }
    }

    fn obey(&mut self, notice: allegiance::Notice, out: &mut Outbox<Member>) {
        out.notify(Notice::Worker(notice.clone()));
        match notice {
            allegiance::Notice::Go { farm, loan } => {
                self.away = node_of(&farm);
                let arrival = Message::Arrival(self.guest_name.clone(), loan);
                self.away.into_iter().for_each(|farm| out.send(farm, arrival.clone()));
            }
            allegiance::Notice::Finish => {}
            // What runs is killed, so nothing does.
            allegiance::Notice::Stop => {
                self.step_allegiance(Input::Command(allegiance::Command::Idle(true)), out);
            }
            allegiance::Notice::ComeHome => {
                let departure = Message::Departure(self.guest_name.clone());
                self.away.take().into_iter().for_each(|farm| out.send(farm, departure.clone()));
            }
        }
    }
}
