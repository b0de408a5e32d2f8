//! Questions that wait for the farm: for a leader that is ready, for the log, or for the end of something.

use std::collections::BTreeMap;

use primus_core::loan::lending::LendOrder;
use primus_core::machine::{Input, Outbox};
use primus_core::planted::Bug;

use super::Farm;
use super::waiters::Waiters;
use super::words::{Answer, Awaited, Command, Notice, Refusal, Ticket};
use crate::record::Draft;

/// How many questions may wait for the leader to be ready.
const EARLY_MAX: usize = 1024;
/// How many bytes they may bring; the last one may bring more.
const EARLY_LEN_MAX: usize = 64 << 20;
/// How many may wait for the log.
const LATER_MAX: usize = 100_000;

/// Who waits for what.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// Those that came before this server was ready to lead.
    early: Vec<Input<Farm>>,
    /// How many bytes of content they bring.
    early_len: usize,
    pub(super) waiters: Waiters,
    /// Those that want to look, or to wait for something, by how far the log must be applied.
    pub(super) later: BTreeMap<(u64, Ticket), Option<Vec<Awaited>>>,
}

impl Questions {
    const fn has_room_for_early(&self) -> bool {
        self.early.len() < EARLY_MAX && self.early_len < EARLY_LEN_MAX
    }

    /// May one more wait for the end of something? Those who still wait for the log may be about to.
    fn may_wait(&self) -> bool {
        self.waiters.has_room_beside(self.later.len())
    }
}

/// How many bytes a question brings.
fn content_len(question: &Input<Farm>) -> usize {
    match question {
        Input::Command(Command::Enter(_, draft)) => draft.len(),
        _ => 0,
    }
}

impl Farm {
    /// What came too early is asked now.
    pub(super) fn ask_again(&mut self, out: &mut Outbox<Self>) {
        self.questions.early_len = 0;
        let early = std::mem::take(&mut self.questions.early);
        early.into_iter().for_each(|question| self.on_question(question, out));
    }

    /// A question is for the leader. Before this server is ready to lead, it waits.
    pub(super) fn on_question(&mut self, question: Input<Self>, out: &mut Outbox<Self>) {
        if self.leads.is_some() {
            return self.answer(question, out);
        }
        if self.leader == Some(self.id) && self.questions.has_room_for_early() {
            self.questions.early_len += content_len(&question);
            return self.questions.early.push(question);
        }
        match question {
            Input::Command(
                Command::Enter(ticket, _)
                | Command::Await(ticket, ..)
                | Command::Look(ticket, _)
                | Command::Lend(ticket, _),
            ) => out.notify(Notice::Answer(ticket, Err(self.refusal()))),
            _ => out.ignore("what is not a question"),
        }
    }

    fn answer(&mut self, question: Input<Self>, out: &mut Outbox<Self>) {
        match question {
            Input::Command(Command::Enter(ticket, draft)) => {
                let refusal = self.no_room_for(&draft);
                if let Some(refusal) =
                    refusal.or_else(|| (!self.proposals.enter(ticket, draft)).then_some(Refusal::Busy))
                {
                    out.notify(Notice::Answer(ticket, Err(refusal)));
                }
            }
            Input::Command(Command::Await(ticket, ..)) if !self.questions.may_wait() => {
                out.notify(Notice::Answer(ticket, Err(Refusal::Busy)));
            }
            Input::Command(Command::Look(ticket, _)) if self.questions.later.len() >= LATER_MAX => {
                out.notify(Notice::Answer(ticket, Err(Refusal::Busy)));
            }
            Input::Command(Command::Await(ticket, index, awaited)) => {
                self.questions.later.insert((index, ticket), Some(awaited));
                self.let_look(out);
            }
            Input::Command(Command::Look(ticket, index)) => {
                self.questions.later.insert((index, ticket), None);
                self.let_look(out);
            }
            Input::Command(Command::Lend(ticket, order)) => self.lend(ticket, &order, out),
            _ => out.ignore("what is not a question"),
        }
    }

    /// Why a batch is not taken: the disks are full, or the state is, and the batch makes it longer.
    fn no_room_for(&self, draft: &Draft) -> Option<Refusal> {
        let is_too_long = draft.growth() > 0 && self.len_bytes().saturating_add(draft.growth()) > self.state_max;
        self.disks.refusal().or(is_too_long.then_some(Refusal::StateFull(self.state_max)))
    }

    fn lend(&mut self, ticket: Ticket, order: &LendOrder, out: &mut Outbox<Self>) {
        if let Some(refusal) = self.disks.refusal() {
            return out.notify(Notice::Answer(ticket, Err(refusal)));
        }
        let situation = self.foreman.situation(self.time.keeper.time_ms(self.now_ms()));
        match self.lending.lend(order, &situation.unwrap_or_default()) {
            Err(cannot) => out.notify(Notice::Answer(ticket, Ok(Answer::CannotLend(cannot)))),
            Ok(entries) if self.proposals.enter(ticket, Draft::new(&entries)) => {}
            Ok(_) => out.notify(Notice::Answer(ticket, Err(Refusal::Busy))),
        }
    }

    /// Those that want to see no more than is applied may look.
    pub(super) fn let_look(&mut self, out: &mut Outbox<Self>) {
        let is_hasty = self.planted.is(Bug::LookBeforeApplied);
        let applied = if is_hasty { u64::MAX } else { self.applied.index };
        while let Some(first) = self.questions.later.first_entry().filter(|first| first.key().0 <= applied) {
            let ((_, ticket), awaited) = first.remove_entry();
            let Some(awaited) = awaited else {
                out.notify(Notice::Answer(ticket, Ok(Answer::Look)));
                continue;
            };
            if self.questions.waiters.add(awaited, ticket, self.foreman.ledger()) {
                out.notify(Notice::Answer(ticket, Ok(Answer::Ended)));
            }
        }
    }

    pub(super) fn forget(&mut self, tickets: &[Ticket]) {
        self.questions.waiters.forget(tickets);
        self.questions.later.retain(|(_, ticket), _| !tickets.contains(ticket));
    }
}
