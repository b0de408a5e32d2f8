//! What a lending side does for workers of other farms that are here, or are wanted.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::{
    ANSWER, ARRIVAL, ARRIVALS_MAX, Arrival, Asking, DOUBT, Happening, Leadership, Lending, Notice, Order, PAUSE,
    Rules, propose,
};
use crate::FarmId;
use crate::ledger::loans::{home_of, name_here};
use crate::ledger::{Borrow, Borrowed, Entry, LoanId, Why};
use crate::loan::{Content, LentWorker, Objection, Request, WorkerMessage};
use crate::machine::Outbox;

/// A borrowed worker that has not been one of ours for so many looks has left.
const LEFT: u64 = 4;

impl Lending {
    /// A farm that has had too much to do for long enough asks one neighbour after the other.
    pub(super) fn look_for_help(&mut self, out: &mut Outbox<Self>) {
        self.give_up_waiting(out);
        let Some(leadership) = &mut self.leadership else { return };
        let is_wanting = leadership.is_saturated(&self.rules)
            && leadership.asking.is_none()
            && leadership.looks >= leadership.not_before;
        let count = leadership.missing(&self.rules);
        if !is_wanting || count == 0 {
            return;
        }
        let others = leadership.order(&self.rules);
        self.ask_next(others, count, out);
    }

    fn ask_next(&mut self, mut others: Vec<FarmId>, count: u32, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        if others.is_empty() {
            leadership.asking = None;
            leadership.not_before = leadership.looks + PAUSE;
            return;
        }
        let whom = others.remove(0);
        leadership.last_request += 1;
        let number = leadership.last_request;
        leadership.asking = Some(Asking { number, count, whom, until: leadership.looks + ANSWER, others });
        leadership.say(whom, Content::Ask(Request { number, count, for_ms: self.rules.loan_ms }), out);
        let name = self.name_of(whom).unwrap_or_default();
        out.notify(Notice::Happened(Happening::Asked(name.into(), count)));
    }

    pub(super) fn on_refusal(&mut self, from: FarmId, number: u64, objection: Objection, out: &mut Outbox<Self>) {
        let Some(asking) = self.take_asking(from, number) else { return out.ignore("an answer to nothing") };
        let name = self.name_of(from).unwrap_or_default();
        out.notify(Notice::Happened(Happening::Refused(name.into(), objection)));
        self.ask_next(asking.others, asking.count, out);
    }

    pub(super) fn on_offer(
        &mut self,
        from: FarmId,
        name: &str,
        number: u64,
        loans: &[LoanId],
        out: &mut Outbox<Self>,
    ) {
        let Some(asking) = self.take_asking(from, number) else { return out.ignore("an answer to nothing") };
        let promised = u32::try_from(loans.len()).unwrap_or(u32::MAX).min(asking.count);
        out.notify(Notice::Happened(Happening::Promised(name.into(), promised)));
        if let Some(leadership) = &mut self.leadership {
            let until = leadership.looks + ARRIVAL;
            let neighbour = leadership.neighbours.entry(from).or_default();
            // More than was asked for is not waited for, and the same promise again gives no more time.
            for loan in loans.iter().take(promised as usize) {
                neighbour.promised.entry(*loan).or_insert(until);
            }
        }
        let count = asking.count.saturating_sub(promised);
        let others = if count == 0 { Vec::new() } else { asking.others };
        self.ask_next(others, count, out);
    }

    fn take_asking(&mut self, from: FarmId, number: u64) -> Option<Asking> {
        let leadership = self.leadership.as_mut()?;
        leadership.asking.take_if(|asking| asking.whom == from && asking.number == number)
    }

    /// Nobody is waited for without end.
    fn give_up_waiting(&mut self, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        let now = leadership.looks;
        for (number, neighbour) in &mut leadership.neighbours {
            let name = self.neighbours.get(number);
            for (loan, _) in neighbour.promised.extract_if(.., |_, until| *until < now) {
                let name = name.cloned().unwrap_or_default();
                neighbour.broken = Some(now);
                out.notify(Notice::Happened(Happening::NotSent(name, loan)));
            }
        }
        if let Some(asking) = leadership.asking.take_if(|asking| asking.until < now) {
            let name = self.name_of(asking.whom).unwrap_or_default();
            out.notify(Notice::Happened(Happening::NoAnswer(name.into())));
            self.ask_next(asking.others, asking.count, out);
        }
    }

    /// Somebody says that it is lent to this farm.
    pub(super) fn on_arrived(&mut self, worker: String, (loan, slots): (LoanId, u16), out: &mut Outbox<Self>) {
        let Some(from) = home_of(&worker).and_then(|(_, home)| self.number_of(home)) else {
            return out.ignore("a worker of a farm that is no neighbour");
        };
        let Some(leadership) = &mut self.leadership else {
            return out.ignore("an arrival at one that does not lead");
        };
        if leadership.arrivals.len() >= ARRIVALS_MAX && !leadership.arrivals.contains_key(&worker) {
            return out.ignore("too many wait to be let in");
        }
        let arrival = Arrival { from, loan, slots, strange_since: None };
        let known = leadership.arrivals.entry(worker).or_insert(arrival);
        if (known.from, known.loan, known.slots) != (from, loan, slots) {
            *known = arrival;
        }
        self.let_in(out);
    }

    /// A worker that is lent to this farm, as its own farm says, may work here: it is borrowed and registered in one write.
    pub(super) fn let_in(&mut self, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        let mut entries = Vec::new();
        for (worker, Arrival { from, loan, slots, .. }) in &leadership.arrivals {
            let Some(lending) = leadership.heard(*from).and_then(|known| known.lending(*loan)) else { continue };
            let home = self.neighbours.get(from).cloned().unwrap_or_default();
            if name_here(&lending.worker, &home) != *worker || lending.is_recalled {
                continue;
            }
            let (for_ms, why) = (lending.for_ms, lending.why);
            entries.push(Entry::Borrow(Borrow { worker: worker.clone(), from: home, loan: *loan, for_ms, why }));
            entries.push(Entry::Join { worker: worker.clone(), slots: *slots });
        }
        let is_in = |entry: &Entry, name: &str| matches!(entry, Entry::Borrow(borrow) if borrow.worker == name);
        leadership.arrivals.retain(|worker, _| !entries.iter().any(|entry| is_in(entry, worker)));
        propose(entries, out);
    }

    /// Whose farm is heard and says nothing of it is a stranger. It does not keep others from waiting to be let in.
    pub(super) fn doubt_strangers(&mut self, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        let (now, mut arrivals) = (leadership.looks, core::mem::take(&mut leadership.arrivals));
        for (worker, arrival) in &mut arrivals {
            let is_strange = leadership.is_strange(worker, arrival);
            arrival.strange_since = is_strange.then(|| arrival.strange_since.unwrap_or(now));
            if arrival.strange_since.is_some_and(|since| since + ANSWER == now) {
                let home = self.neighbours.get(&arrival.from).cloned().unwrap_or_default();
                out.notify(Notice::Happened(Happening::UnknownWorker(home, worker.clone())));
            }
        }
        arrivals.retain(|_, arrival| arrival.strange_since.is_none_or(|since| since + ARRIVAL > now));
        leadership.arrivals = arrivals;
    }

    /// Compares what is borrowed with what lenders say, and with who is here. A worker that is not wanted any more is sent home
    /// at once, and told again from time to time: the first message may be lost.
    pub(super) fn look_after_borrowed(&mut self, is_time: bool, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        let mut entries = Vec::new();
        let (now, mut before) = (leadership.looks, core::mem::take(&mut leadership.guests));
        let mut guests = BTreeMap::new();
        for (worker, borrowed) in leadership.loans.borrowed() {
            let known = before.remove(worker).filter(|known| known.loan == borrowed.loan);
            let mut guest = known.unwrap_or_else(|| Guest::new(borrowed.loan, now));
            if leadership.situation.guests.contains(worker) {
                guest.missed_since = None;
            } else if *guest.missed_since.get_or_insert(now) + LEFT <= now {
                entries.push(Entry::GiveBack { worker: worker.clone(), loan: borrowed.loan });
            }
            let lender = self.neighbours.iter().find(|(_, name)| **name == borrowed.from);
            let is_wanted =
                lender.is_some_and(|(number, _)| leadership.is_wanted(*number, borrowed, guest.since, &self.rules));
            if !is_wanted && (is_time || !guest.is_sent_home) {
                let within_ms = self.rules.recall_ms;
                out.notify(Notice::Tell(worker.clone(), WorkerMessage::Return { loan: borrowed.loan, within_ms }));
            }
            guest.is_sent_home = !is_wanted;
            guests.insert(worker.clone(), guest);
        }
        leadership.guests = guests;
        propose(entries, out);
    }
}

/// A borrowed worker, as this leader has seen it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Guest {
    loan: LoanId,
    /// The look at which it was seen first. The ledger's time would not do: it follows clocks, and they are set.
    since: u64,
    /// Since which look it has not been one of ours.
    missed_since: Option<u64>,
    /// It was told to go home.
    is_sent_home: bool,
}

impl Guest {
    const fn new(loan: LoanId, since: u64) -> Self {
        Self { loan, since, missed_since: None, is_sent_home: false }
    }
}

impl Leadership {
    /// Is a worker's farm heard, and has not lent it?
    fn is_strange(&self, worker: &str, arrival: &Arrival) -> bool {
        let name = home_of(worker).map(|(name, _)| name);
        let has_lent = |lending: &LentWorker| name == Some(lending.worker.as_str());
        self.heard(arrival.from).is_some_and(|known| !known.lending(arrival.loan).is_some_and(has_lent))
    }

    /// Should a borrowed worker stay? While its lender is not heard it does: nobody says otherwise, and its time ends by itself.
    fn is_wanted(&self, lender: FarmId, borrowed: &Borrowed, since: u64, rules: &Rules) -> bool {
        let is_lent = self
            .heard(lender)
            .is_none_or(|known| known.lending(borrowed.loan).is_some_and(|lending| !lending.is_recalled));
        is_lent && (borrowed.why == Why::Operator || !self.is_calm(rules) || !self.has_stayed(since, rules))
    }

    /// How many workers are to be asked for: those that are here or may be on their way count, and so do our own that are
    /// lent, because they are called back first.
    fn missing(&self, rules: &Rules) -> u32 {
        let wanted = u32::try_from(self.situation.queued.div_ceil(rules.tasks_per_worker)).unwrap_or(u32::MAX);
        let heard = self.neighbours.keys().filter_map(|neighbour| self.heard(*neighbour));
        let on_their_way: usize = heard.map(super::Neighbour::on_their_way).sum();
        let own = self.loans.lent().values().filter(|lent| lent.why == Why::Asked && !lent.is_missing).count();
        let coming = on_their_way + self.loans.borrowed().len() + own;
        wanted.saturating_sub(u32::try_from(coming).unwrap_or(u32::MAX))
    }

    /// Whom to ask, one after the other. Whoever keeps us waiting comes last: promises must not keep others from being asked.
    fn order(&self, rules: &Rules) -> Vec<FarmId> {
        let heard = self.neighbours.keys().copied().filter(|number| self.heard(*number).is_some());
        let mut others: Vec<FarmId> = heard.collect();
        if rules.order == Order::Idle {
            others.sort_by_key(|number| core::cmp::Reverse(self.neighbours[number].beat.idle));
        }
        others.sort_by_key(|number| self.neighbours[number].is_in_doubt(self.looks));
        others
    }
}

impl super::Neighbour {
    /// How many it has lent that may still arrive.
    fn on_their_way(&self) -> usize {
        self.beat.lent.iter().filter(|lending| self.promised.contains_key(&lending.loan)).count()
    }

    /// Has it kept us waiting for somebody, now or lately?
    fn is_in_doubt(&self, looks: u64) -> bool {
        let is_late = |until: &u64| *until < looks + ARRIVAL - ANSWER;
        self.promised.values().any(is_late) || self.broken.is_some_and(|broken| broken + DOUBT >= looks)
    }

    fn lending(&self, loan: LoanId) -> Option<&LentWorker> {
        self.beat.lent.iter().find(|lending| lending.loan == loan)
    }
}
