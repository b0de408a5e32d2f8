//! What control is told, step by step, and how all that it wants is carried out: messages, writes, timers, notices.

use std::collections::VecDeque;

use bytes::Bytes;
use primus_core::ServerId;
use primus_core::machine::{Input, Machine, Output, Token};
use primus_server::control::{Message, Notice};
use primus_server::farm::Refusal;
use primus_server::peers::Sign;
use primus_server::words::Words;
use primus_server::{Server, groups, leases};
use tokio::time::Instant;

use super::{EndError, Running};
use crate::clock;
use crate::events::Kind;
use crate::handle::Unable;
use crate::links;
use crate::steps::Steps;
use crate::timers::drawn;

pub(super) type ControlWords = <Server as Machine>::Message;

impl Running {
    pub(super) fn send(&self, to: ServerId, message: ControlWords) {
        self.shown.meters.sent.add(1);
        self.links.send(to, Words::Control(message));
    }

    pub(super) fn on_synced(&mut self, token: Token) {
        let ready = self.writing.take_ready(token);
        ready.into_iter().for_each(|(_, to, message)| self.send(to, message));
        self.step(Input::Persisted(token));
    }

    pub(super) fn step(&mut self, input: Input<Server>) {
        if let Some(inputs) = &mut self.inputs {
            return inputs.push_back(input);
        }
        self.inputs = Some(VecDeque::new());
        let (mut next, mut outbox) = (Some(input), std::mem::take(&mut self.outbox));
        while let Some(input) = next {
            let copy = Steps::copy_of(&self.server, &input);
            self.server.step(clock::since(self.started), input, &mut outbox);
            if let Some(input) = copy {
                self.shown.steps.add(&input, outbox.as_slice());
            }
            for output in outbox.drain() {
                self.carry_out(output);
            }
            next = self.inputs.as_mut().and_then(VecDeque::pop_front);
        }
        (self.outbox, self.inputs) = (outbox, None);
    }

    fn carry_out(&mut self, output: Output<Server>) {
        match output {
            Output::Send { to, message } => self.send(to, message),
            Output::SendAfter { token, to, message } => self.writing.wait((token, to, message)),
            Output::Persist { token, records } => self.writing.add(token, records),
            Output::Set { timer, delay } => self.timers.set(timer, Instant::now() + drawn(delay)),
            Output::Cancel(timer) => self.timers.cancel(timer),
            Output::Notify(notice) => self.on_notice(notice),
            Output::Ignore(_) => {}
        }
    }

    fn on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Leader(leader, term, reason) => self.on_leader(leader, term, reason),
            Notice::Committed(entries) => self.apply_all(entries),
            Notice::Readable(number, index) => {
                self.reads.on_readable(number, index);
                self.answer_reads();
            }
            Notice::Unreadable(number) => self.reads.on_unreadable(number, self.leads(), self.unable()),
            Notice::Restored(snapshot) => self.restore(&snapshot),
            Notice::Refused(refusal, entries) => self.on_refused(refusal, entries),
            Notice::NoRoom(refusal, entries) => self.on_no_room(refusal, &entries),
            Notice::HandOver(to, reason) => self.others.tell_leases(leases::Command::HandOver(to, reason)),
            Notice::NotTransferred(obstacle) => {
                self.others.tell_leases(leases::Command::Stay);
                self.end_transfer(Err(Unable::NotTransferred(obstacle)));
                self.give_up_election(Unable::NotTransferred(obstacle));
                self.release_parked();
            }
            Notice::Confirmed(confirmed) => self.on_confirmed(confirmed),
            Notice::Strange(peer, what) => self.on_strange(peer, what),
            Notice::Forgotten { leader, index, last } => {
                self.end = Some(EndError::Forgotten { leader, index, last });
            }
            Notice::Suspected(peer, reason) => {
                self.see(peer, Sign::Silent);
                self.shown.state.suspicions += 1;
                self.shown.history.add(Kind::Suspected { peer: peer.0, reason: reason.name() });
            }
            // The steps of elections tell it.
            Notice::Election(_) => {}
            Notice::Slower(us) => self.others.elections.tell(Input::Command(groups::Command::Slower(us))),
        }
    }

    pub(super) fn unable(&self) -> Unable {
        Refusal::of(self.config.plan.id, self.shown.state.leader).into()
    }
}

/// Only a whole state can be too long for a frame.
impl links::Words for Words {
    fn unload(&mut self) -> Option<Bytes> {
        match self {
            Self::Control(Message::Replica(message)) => {
                message.snapshot.as_mut().map(|snapshot| std::mem::take(&mut snapshot.data))
            }
            _ => None,
        }
    }

    fn load(&mut self, cargo: Bytes) {
        if let Self::Control(Message::Replica(message)) = self
            && let Some(snapshot) = &mut message.snapshot
        {
            snapshot.data = cargo;
        }
    }
}
