//! What a lending side does for workers of its own farm that are lent, or are asked for.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::{
    AWAY_MAX, CannotLend, Happening, Leadership, LendOrder, Lending, Notice, OVERDUE_MS, PLEDGE, Pledge, REPEAT,
    Rules, Situation, UNABLE_MS, looks, propose,
};
use crate::ledger::{Ending, Entry, Lend, Lent, LoanId, Why};
use crate::loan::{Content, Objection, Request, WorkerMessage};
use crate::machine::Outbox;
use crate::planted::Bug;
use crate::{FarmId, Fence};

impl Lending {
    /// A neighbour would like to have workers.
    pub(super) fn on_ask(&mut self, said: Fence, request: Request, out: &mut Outbox<Self>) {
        let from = said.farm;
        let Some(to) = self.name_of(from).map(String::from) else { return };
        let Some(leadership) = &mut self.leadership else { return };
        let (now, neighbour) = (leadership.looks, leadership.neighbours.entry(from).or_default());
        if !neighbour.is_news(said.term, request.number) {
            return out.ignore("a request that came before");
        }
        if !neighbour.may_ask(now) {
            return out.ignore("a request too many");
        }
        match leadership.choose(request.count, &self.rules) {
            Err(objection) => {
                let refusal = Content::Refusal { number: request.number, objection };
                leadership.say(from, refusal, out);
            }
            Ok(workers) => {
                let for_ms = request.for_ms.min(self.rules.loan_ms);
                let pledge = Pledge { to: from, number: Some(request.number), until: leadership.looks + PLEDGE };
                leadership.pledged.extend(workers.iter().map(|worker| (worker.clone(), pledge)));
                let lend = |worker| Entry::Lend(Lend { worker, to: to.clone(), for_ms, why: Why::Asked });
                propose(workers.into_iter().map(lend).collect(), out);
            }
        }
    }

    /// An operator lends workers: this is to be written into the log. That outweighs the reserve, but not the most that may be
    /// lent; what is pledged counts, and is pledged at once.
    ///
    /// # Errors
    /// If nobody can go.
    pub fn lend(&mut self, order: &LendOrder, situation: &Situation) -> Result<Vec<Entry>, CannotLend> {
        let to = self.number_of(&order.to).ok_or(CannotLend::NoNeighbour)?;
        let Rules { lent_max, planted, .. } = self.rules;
        let leadership = self
            .leadership
            .as_mut()
            .filter(|leadership| leadership.heard(to).is_some())
            .ok_or(CannotLend::NotHeard)?;
        let is_hasty = planted.is(Bug::LendsUnpledged);
        let lent = if is_hasty { leadership.loans.lent().len() as u32 } else { leadership.lent_count() };
        let room = lent_max.saturating_sub(lent);
        if room == 0 {
            return Err(CannotLend::AllLent);
        }
        let idle = situation.idle.iter().map(|(worker, _)| worker).filter(|worker| leadership.can_go(worker));
        let workers: Vec<String> = idle.take(room.min(order.count) as usize).cloned().collect();
        let pledge = Pledge { to, number: None, until: leadership.looks + PLEDGE };
        leadership.pledged.extend(workers.iter().map(|worker| (worker.clone(), pledge)));
        let lend =
            |worker| Entry::Lend(Lend { worker, to: order.to.clone(), for_ms: order.for_ms, why: Why::Operator });
        if workers.is_empty() { Err(CannotLend::NoneIdle) } else { Ok(workers.into_iter().map(lend).collect()) }
    }

    /// Whoever has asked is told what it gets.
    pub(super) fn offer(&mut self, lent: &[LoanId], out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        let mut offers: BTreeMap<(FarmId, u64), Vec<LoanId>> = BTreeMap::new();
        for loan in lent {
            let worker = leadership.loans.lent().get(loan).map(|lent| lent.worker.clone());
            let pledge = worker.and_then(|worker| leadership.pledged.remove(&worker));
            // A neighbour that has not asked hears of it with everything else.
            if let Some((to, number)) = pledge.and_then(|pledge| Some((pledge.to, pledge.number?))) {
                offers.entry((to, number)).or_default().push(*loan);
            }
        }
        for ((to, number), loans) in offers {
            leadership.say(to, Content::Offer { number, loans }, out);
        }
    }

    /// Compares what is lent with what workers and borrowers say.
    pub(super) fn look_after_lent(&mut self, is_time: bool, out: &mut Outbox<Self>) {
        let Some(leadership) = &self.leadership else { return };
        let mut entries = leadership.wanted_back(&self.rules);
        let mut overdue = Vec::new();
        for (loan, lent) in leadership.loans.lent() {
            let borrower = self.number_of(&lent.to);
            if is_time && !lent.is_missing && !leadership.is_held_back(lent) {
                out.notify(Notice::Tell(lent.worker.clone(), self.order_for(leadership, *loan, lent, borrower)));
            }
            if self.is_dead(leadership, *loan, lent, borrower) {
                entries.push(Entry::EndLoan(*loan, Ending::Dead));
            }
            let is_hasty = self.rules.planted.is(Bug::TakesBackByTimer);
            if is_hasty && leadership.situation.now_ms > lent.until_ms() {
                entries.push(Entry::EndLoan(*loan, Ending::Home));
            }
            let is_late = leadership.situation.now_ms > lent.until_ms().saturating_add(OVERDUE_MS);
            if is_late && !leadership.overdue.contains(loan) {
                overdue.push(*loan);
            }
        }
        propose(entries, out);
        let Some(leadership) = &mut self.leadership else { return };
        for loan in overdue {
            leadership.overdue.insert(loan);
            out.notify(Notice::Happened(Happening::Overdue(loan)));
        }
    }

    /// Where a worker that is lent should go. It is called home if it is wanted here, if its borrower had it and has it no more, or if
    /// it cannot go.
    fn order_for(
        &self,
        leadership: &Leadership,
        loan: LoanId,
        lent: &Lent,
        borrower: Option<FarmId>,
    ) -> WorkerMessage {
        let within_ms = self.rules.recall_ms;
        let is_given_back = borrower
            .and_then(|borrower| leadership.heard(borrower))
            .is_some_and(|borrower| borrower.arrived.contains(&loan) && !borrower.beat.borrowed.contains(&loan));
        let is_unable = leadership.unable.get(&lent.worker).is_some_and(|(unable, _)| *unable == loan);
        if lent.is_recalled || is_given_back || is_unable || borrower.is_none() {
            return WorkerMessage::Return { loan, within_ms };
        }
        WorkerMessage::Redirect { loan, farm: lent.to.clone(), for_ms: lent.for_ms, within_ms }
    }

    /// A worker is dead if its own farm has lost sight of it and the borrower does not have it either. That time has passed
    /// says nothing.
    fn is_dead(&self, leadership: &Leadership, loan: LoanId, lent: &Lent, borrower: Option<FarmId>) -> bool {
        let is_unknown_there =
            |borrower| leadership.heard(borrower).is_some_and(|borrower| !borrower.beat.borrowed.contains(&loan));
        // One that is a neighbour no more gets no work from this one, and its worker comes home when its time is over.
        lent.is_missing && borrower.is_none_or(is_unknown_there)
    }

    /// A worker of our own says where it is.
    pub(super) fn on_said(&mut self, worker: String, word: &WorkerMessage, out: &mut Outbox<Self>) {
        match *word {
            WorkerMessage::At { epoch, is_away } => self.on_at(worker, epoch, is_away, out),
            WorkerMessage::CannotGo { loan } => self.on_cannot_go(worker, loan, out),
            WorkerMessage::Redirect { .. } | WorkerMessage::Return { .. } => out.ignore("what only leaders say"),
        }
    }

    /// It will say when it is at home. Until somebody has looked after its host, others are lent.
    fn on_cannot_go(&mut self, worker: String, loan: LoanId, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else {
            return out.ignore("a worker's word to one that does not lead");
        };
        if leadership.loans.loan_of(&worker) != Some(loan) {
            return out.ignore("what it could not do is over");
        }
        let known = leadership.unable.insert(worker.clone(), (loan, leadership.looks + looks(UNABLE_MS)));
        if known.is_none_or(|(before, _)| before != loan) {
            let farm = leadership.loans.lent().get(&loan).map(|lent| lent.to.clone()).unwrap_or_default();
            out.notify(Notice::Happened(Happening::CannotGo(farm, worker)));
        }
    }

    fn on_at(&mut self, worker: String, epoch: LoanId, is_away: bool, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else {
            return out.ignore("a worker's word to one that does not lead");
        };
        let loan = leadership.loans.loan_of(&worker);
        if is_away {
            if leadership.away.len() >= AWAY_MAX && !leadership.away.contains_key(&worker) {
                return out.ignore("too many are away");
            }
            let before = leadership.away.get(&worker).filter(|(known, _)| *known == epoch);
            let since = before.map_or(leadership.looks, |(_, since)| *since);
            leadership.away.insert(worker.clone(), (epoch, since));
            if loan != Some(epoch) {
                // It was taken for dead, or was away for longer than anybody remembers.
                out.notify(Notice::Tell(
                    worker,
                    WorkerMessage::Return { loan: epoch, within_ms: self.rules.recall_ms },
                ));
            }
            return;
        }
        if leadership.away.remove(&worker).is_some() {
            leadership.home_since.insert(worker, leadership.looks);
        }
        match loan {
            Some(loan) if loan <= epoch => propose(alloc::vec![Entry::EndLoan(loan, Ending::Home)], out),
            // The call has not reached it, or it will follow it soon.
            _ => {}
        }
    }
}

impl Leadership {
    /// Which workers a neighbour can have.
    fn choose(&self, count: u32, rules: &Rules) -> Result<Vec<String>, Objection> {
        if self.situation.queued > 0 {
            return Err(Objection::Busy);
        }
        let room = rules.lent_max.saturating_sub(self.lent_count());
        if room == 0 {
            return Err(Objection::AllLent);
        }
        if !self.has_stayed(0, rules) {
            return Err(Objection::NoneIdle);
        }
        let may_go = |worker: &&String| !self.home_since.contains_key(*worker) && self.can_go(worker);
        let idle: Vec<&String> = self.situation.idle.iter().map(|(worker, _)| worker).filter(may_go).collect();
        let spare = idle.len().saturating_sub(rules.reserve as usize);
        let number = spare.min(room as usize).min(count as usize);
        if number == 0 {
            return Err(Objection::NoneIdle);
        }
        Ok(idle.into_iter().take(number).cloned().collect())
    }

    fn can_go(&self, worker: &str) -> bool {
        let is_away = self.away.contains_key(worker) || self.unable.contains_key(worker);
        !is_away && !self.pledged.contains_key(worker) && !self.loans.is_lent(worker)
    }

    /// How many are lent, or about to be. A pledge whose worker is lent is not counted twice.
    fn lent_count(&self) -> u32 {
        let pledged = self.pledged.keys().filter(|worker| !self.loans.is_lent(worker)).count();
        u32::try_from(self.loans.lent().len() + pledged).unwrap_or(u32::MAX)
    }

    /// One that has not gone yet is not sent away while there is too much to do here.
    fn is_held_back(&self, lent: &Lent) -> bool {
        self.busy_for > 0 && lent.why == Why::Asked && !lent.is_recalled && !self.away.contains_key(&lent.worker)
    }

    /// Owner first: whoever has too much to do takes its own workers back before it asks others for theirs.
    fn wanted_back(&self, rules: &Rules) -> Vec<Entry> {
        if !self.is_saturated(rules) {
            return Vec::new();
        }
        let wanted = usize::try_from(self.situation.queued.div_ceil(rules.tasks_per_worker)).unwrap_or(usize::MAX);
        let coming = self.loans.lent().values().filter(|lent| lent.is_recalled && !lent.is_missing).count();
        let has_stayed = |lent: &Lent| match self.away.get(&lent.worker) {
            Some((_, since)) => self.has_stayed(*since, rules),
            // Nobody has called it for so long that it would have said by now that it has gone.
            None => self.busy_for > REPEAT,
        };
        let may_return = |lent: &Lent| !lent.is_recalled && lent.why == Why::Asked && has_stayed(lent);
        let away = self.loans.lent().iter().filter(|(_, lent)| may_return(lent));
        away.take(wanted.saturating_sub(coming)).map(|(loan, _)| Entry::Recall(*loan)).collect()
    }
}
