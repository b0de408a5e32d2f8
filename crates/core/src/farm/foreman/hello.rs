//! What follows from a worker's hello: it is here, perhaps again, and says what it has.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{Foreman, Notice, Timer, join, propose};
use crate::farm::leadership::{Assigned, KnownWorker, Offer, Phase};
use crate::farm::{Hello, Message, SLOTS_MAX};
use crate::ledger::loans::home_of;
use crate::ledger::{Entry, Held, Report};
use crate::machine::Outbox;
use crate::planted::Bug;
use crate::{Term, WorkerId};

impl Foreman {
    /// A worker is here, perhaps again, and says what it has. What is missing from that is lost and runs again; what this
    /// leader did not know of is taken over, unless somebody else has it by now.
    pub(super) fn on_hello(&mut self, from: WorkerId, mut hello: Hello, out: &mut Outbox<Self>) {
        hello.slots = hello.slots.min(SLOTS_MAX);
        let offer = self.receive_guest(&mut hello, out);
        let mut kept: BTreeSet<Held> =
            hello.held.iter().copied().chain(hello.ended.iter().map(Report::held)).collect();
        kept.extend(self.on_its_way(from, &hello));
        let before = self.leadership.as_ref().and_then(|leadership| leadership.worker_named(&hello.name));
        before.into_iter().for_each(|before| self.dismiss(before, &kept, out));
        // Another one of the same number, which cannot be there any more.
        self.dismiss(from, &BTreeSet::new(), out);
        let Some(leadership) = &mut self.leadership else { return };
        leadership.welcome(from, &hello, offer);
        out.cancel(Timer::Grace(from));
        out.set(Timer::Silence(from), self.rules.silence);
        let registered = self.ledger.workers().get(&hello.name).map(|registration| registration.slots);
        let is_news = registered != Some(hello.slots) || self.ledger.loans().is_missing(&hello.name);
        if hello.slots > 0 && is_news {
            propose(alloc::vec![join(&hello.name, hello.slots.into())], out);
        } else if hello.slots == 0 && registered.is_some() {
            propose(alloc::vec![Entry::Leave { worker: hello.name.clone() }], out);
        }
        self.adopt(from, kept, out);
        if let Some(leadership) = &mut self.leadership {
            leadership.past.note_heard(&hello.name);
        }
        self.on_ended(from, hello.ended, out);
        // Last, because a worker that is welcome begins at once with what it has, and not all of it may be wanted.
        out.send(from, Message::Welcome(self.leadership.as_ref().map_or(Term(0), |leadership| leadership.term)));
        self.settle_if_all_reported(out);
    }

    /// What this worker was given on this very link. If it says hello again, because it was asked for its name just when it had
    /// said it, it may not have got that yet; but a link loses nothing. One that leaves the farm will not begin with it.
    fn on_its_way(&self, from: WorkerId, hello: &Hello) -> Vec<Held> {
        let Some(leadership) = self.leadership.as_ref().filter(|_| hello.slots > 0) else { return Vec::new() };
        let is_there = |worker: &&KnownWorker| worker.name == hello.name && worker.is_linked && !worker.is_gone;
        let there = leadership.workers.get(&from).filter(is_there);
        let held = there.into_iter().flat_map(|worker| &worker.held);
        let held = held.map(|(attempt, task)| Held { task: *task, attempt: *attempt });
        held.filter(|held| leadership.assigned.get(&held.task).is_some_and(|hand| hand.phase == Phase::Out))
            .collect()
    }

    /// A worker of another farm is only heard, and gets nothing, until the ledger says that it is borrowed. What it offers is
    /// kept until then.
    fn receive_guest(&self, hello: &mut Hello, out: &mut Outbox<Self>) -> Option<Offer> {
        if hello.slots == 0 || home_of(&hello.name).is_none() {
            return None;
        }
        let borrowed = self.ledger.loans().borrowed().get(&hello.name);
        if borrowed.is_some_and(|borrowed| Some(borrowed.loan) == hello.loan) {
            return None;
        }
        let slots = core::mem::take(&mut hello.slots);
        let loan = hello.loan.unwrap_or_default();
        out.notify(Notice::Arrived(hello.name.clone(), loan, slots));
        Some(Offer { loan, slots })
    }

    /// A worker of another farm is borrowed now, or is not any more. If that is the loan under which it came, it works here at
    /// once; otherwise it has to say anew what it is. It may have gone before the log said that it is here.
    pub(super) fn on_borrowed(&mut self, name: &str, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        let is_registered = self.ledger.workers().contains_key(name);
        let loan = self.ledger.loans().borrowed().get(name).map(|borrowed| borrowed.loan);
        let Some(guest) = leadership.worker_named(name).filter(|guest| !leadership.workers[guest].is_gone) else {
            let left = is_registered.then(|| Entry::Leave { worker: name.into() });
            return propose(left.into_iter().collect(), out);
        };
        match leadership.accept_offer(guest, loan) {
            None => leadership.ask_who(guest, out),
            Some(_) if is_registered => {}
            Some(slots) => propose(alloc::vec![join(name, slots.into())], out),
        }
    }

    /// Takes over what a worker has, as far as it is still wanted and nobody else has it. The rest it need not keep.
    fn adopt(&mut self, from: WorkerId, kept: BTreeSet<Held>, out: &mut Outbox<Self>) {
        let (own, others): (Vec<Held>, Vec<Held>) = kept.into_iter().partition(|held| self.is_free(from, *held));
        let Some(leadership) = &mut self.leadership else { return };
        for held in own {
            let slots = self.ledger.job(held.task.job).map_or(1, |job| job.spec.slots());
            leadership.give(from, held, u32::from(slots), Phase::Out);
        }
        if !others.is_empty() {
            out.send(from, Message::Stop(leadership.term, others.clone()));
            out.send(from, Message::Forget(leadership.term, others));
        }
    }

    /// Is this attempt this worker's? What it had on an older link has been taken from there by now, so whatever somebody has
    /// is somebody else's.
    fn is_free(&self, from: WorkerId, held: Held) -> bool {
        let Some((leadership, worker)) =
            self.leadership.as_ref().and_then(|leadership| Some((leadership, leadership.workers.get(&from)?)))
        else {
            return false;
        };
        let is_credulous = self.rules.planted.is(Bug::BelievedAboutAnother);
        let is_its = |hand: &Assigned| hand.worker == from || is_credulous;
        let has_it = leadership.assigned.get(&held.task).is_none_or(|hand| is_its(hand) && leadership.has(held));
        has_it && leadership.may_have(&worker.name, held, &self.ledger) && self.ledger.is_wanted(held)
    }
}
