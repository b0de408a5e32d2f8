//! What the farm is told, step by step, and how all that it wants is carried out: words, timers, answers, records, events.

use std::sync::Arc;

use primus_core::bounds::ABSURD;
use primus_core::farm;
use primus_core::ledger::{Loans, timekeeper};
use primus_core::machine::{Input, Machine, Moment, Output};
use primus_core::{ServerId, WorkerId};
use primus_server::farm::{Command, Farm, Message, Notice, Peer};
use primus_server::leases;
use primus_wire::work::ToWorker;
use tokio::time::Instant;

use super::ToControl;
use super::run::Driver;
use crate::clock::now;
use crate::events::Kind;
use crate::timers::drawn;

impl Driver {
    pub(super) fn command(&mut self, command: Command) {
        self.step(Input::Command(command));
    }

    pub(super) fn step(&mut self, input: Input<Farm>) {
        self.step_at(now(), input);
    }

    pub(super) fn step_at(&mut self, now: Moment, input: Input<Farm>) {
        let mut outbox = std::mem::take(&mut self.outbox);
        self.farm.step(now, input, &mut outbox);
        for output in outbox.drain() {
            self.carry_out(output);
        }
        self.outbox = outbox;
    }

    fn carry_out(&mut self, output: Output<Farm>) {
        match output {
            Output::Send { to: Peer::Worker(to), message } => self.say(to, message),
            Output::Send { to: Peer::Neighbour(to), message: Message::Loan(message) } => {
                self.neighbours.say(to, &message);
            }
            Output::Set { timer, delay } => self.timers.set(timer, Instant::now() + drawn(delay)),
            Output::Cancel(timer) => self.timers.cancel(timer),
            Output::Notify(notice) => self.on_notice(notice),
            Output::Ignore(ABSURD) => self.history.refused(format!("what a neighbour says: {ABSURD}")),
            Output::Send { .. } | Output::Ignore(_) => {}
        }
    }

    fn say(&mut self, to: WorkerId, message: Message) {
        match message {
            Message::Leads(term) => {
                self.callers.say(to, &ToWorker::Leads(term));
                self.callers.lead(to, true);
                self.greet(to);
            }
            Message::Follows => {
                self.callers.say(to, &ToWorker::Follows);
                self.callers.lead(to, false);
            }
            Message::Placement(word) => self.placements.push((to, word)),
            Message::Work(message) => {
                if let farm::Message::Run(_, assignments) = &message {
                    let newest = assignments.iter().map(|assignment| assignment.held.attempt).max();
                    newest.into_iter().for_each(|attempt| self.starts.note(attempt, Instant::now().into_std()));
                }
                if matches!(message, farm::Message::Welcome(_)) {
                    self.callers.welcome(to);
                }
                self.callers.add(to, message);
            }
            Message::Loan(_) => {}
        }
    }

    fn on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Append(term, records) => self.wish(ToControl::Enter(term, records)),
            Notice::Answer(ticket, answer) => self.replies.answer(ticket, answer, &self.farm),
            Notice::Held(term, groups) => self.tell_leases(leases::Command::Lead(term, groups)),
            Notice::Leases(term, effects) => self.tell_leases(leases::Command::Applied(term, effects)),
            Notice::Beside(tasks) => self.wish(ToControl::Tasks(tasks)),
            Notice::Close(worker) => {
                self.callers.drop_link(worker);
                self.outputs.on_link_down(worker);
                self.fleet.shown.gone(worker);
            }
            Notice::Roll => {
                self.tell_roll();
                self.tell_authorities();
            }
            Notice::Forgotten(worker) => self.callers.free(&worker),
            Notice::Lending(true) => {
                self.neighbours.lead();
                self.news.count(self.farm.ledger().loans());
            }
            Notice::Lending(false) => {
                self.neighbours.follow();
                self.news.count(&Loans::default());
            }
            Notice::Loans(effects) => {
                let loans = self.farm.ledger().loans();
                effects.iter().for_each(|effect| self.news.tell_effect(effect, loans));
                self.news.count(loans);
            }
            Notice::Happened(happening) => self.news.tell_happening(happening, self.farm.ledger().loans()),
            Notice::Clock(timekeeper::Notice::Off(ServerId(server), ahead_ms)) => {
                self.history.add(Kind::ClockOff { server, ahead_ms });
            }
            Notice::Clock(timekeeper::Notice::Right(ServerId(server))) => {
                self.history.add(Kind::ClockRight { server });
            }
        }
    }

    pub(super) fn tell_roll(&mut self) {
        self.roll.send_replace(Arc::new(self.farm.ledger().roll().clone()));
        self.know_neighbours();
    }

    /// The roll, or what this server has learnt, may have made other farms neighbours.
    pub(super) fn know_neighbours(&mut self) {
        let (farm, lending) = (&self.farm, self.farm.lending());
        self.neighbours.know(farm.ledger().roll(), |name| lending.number_of(name));
    }

    pub(super) fn wish(&self, wish: ToControl) {
        // Control does not listen any more only when the server is about to end.
        _ = self.wishes.send(wish);
    }

    fn tell_leases(&self, command: leases::Command) {
        // As above.
        _ = self.leases.send((crate::leases::Arrived::ToFarm(command), None));
    }
}
