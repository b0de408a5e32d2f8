//! Loans: which of our workers are with other farms, and which of theirs are here, as agreed on.
//!
//! The lender writes down whom it lends before the worker hears of it, and that it is back only when it is. So a worker that is
//! lent is nobody's to give work to meanwhile, whoever leads. The number of a loan is the worker's *epoch*, too, and only grows: a
//! worker follows a call abroad only if it is newer than all that it has followed, so whatever is late changes nothing.

use alloc::collections::BTreeMap;
use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::effect::Effect;

/// Names a loan, among those of one lender; it is the epoch of the worker that is lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct LoanId(pub u64);

/// No more workers are lent, or borrowed, at once.
pub const LOANS_MAX: usize = 1024;

/// All loans of a farm.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Loans {
    lent: BTreeMap<LoanId, Lent>,
    /// The loan of each own worker that is lent.
    by_worker: BTreeMap<String, LoanId>,
    borrowed: BTreeMap<String, Borrowed>,
    last_loan: u64,
}

/// One of our workers is with another farm, or on its way there or back.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lent {
    /// Who.
    pub worker: String,
    /// How much it can run at once.
    pub slots: u16,
    /// To which farm.
    pub to: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// For how long, on the worker's own clock.
    pub for_ms: u64,
    /// Why.
    pub why: Why,
    /// Is it wanted back?
    pub is_recalled: bool,
    /// Has its own farm lost sight of it? It may be dead, or only cut off.
    pub is_missing: bool,
}

/// Why a worker is lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Why {
    /// The other farm was saturated, and asked.
    Asked,
    /// An operator wants it. Such a worker stays although the other farm is calm.
    Operator,
}

/// A worker of another farm is here. Its name among ours says whose it is: see [`name_here`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Borrowed {
    /// Whose it is.
    pub from: String,
    /// The lender's number of the loan.
    pub loan: LoanId,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// For how long it was lent.
    pub for_ms: u64,
    /// Why.
    pub why: Why,
}

/// One of our workers is to be lent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lend {
    /// Who.
    pub worker: String,
    /// To which farm.
    pub to: String,
    /// For how long.
    pub for_ms: u64,
    /// Why.
    pub why: Why,
}

/// A worker of another farm has arrived.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Borrow {
    /// Who, as it is called here.
    pub worker: String,
    /// Whose it is.
    pub from: String,
    /// The lender's number of the loan.
    pub loan: LoanId,
    /// For how long it was lent.
    pub for_ms: u64,
    /// Why.
    pub why: Why,
}

/// How a loan ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Ending {
    /// The worker is back.
    Home,
    /// It is dead: neither farm has a link to it.
    Dead,
}

impl Lent {
    /// Until when it was lent, in milliseconds since 1970, if everybody's clock were right.
    #[must_use]
    pub const fn until_ms(&self) -> u64 {
        self.since_ms.saturating_add(self.for_ms)
    }
}

impl Borrowed {
    /// Is it this loan of this lender? Two lenders may count to the same number.
    #[must_use]
    pub fn is(&self, from: &str, loan: LoanId) -> bool {
        self.from == from && self.loan == loan
    }
}

/// What a borrowed worker is called where it works: two farms may each have a worker of the same name.
#[must_use]
pub fn name_here(worker: &str, home: &str) -> String {
    alloc::format!("{worker}@{home}")
}

/// Whose worker is this, if it is not our own?
#[must_use]
pub fn home_of(name: &str) -> Option<(&str, &str)> {
    name.split_once('@')
}

impl Loans {
    /// Our own workers that are lent.
    #[must_use]
    pub const fn lent(&self) -> &BTreeMap<LoanId, Lent> {
        &self.lent
    }

    /// Workers of others that are here, by the names that they have here.
    #[must_use]
    pub const fn borrowed(&self) -> &BTreeMap<String, Borrowed> {
        &self.borrowed
    }

    /// Is everybody at home?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lent.is_empty() && self.borrowed.is_empty()
    }

    /// Under which loan a worker of ours is lent.
    #[must_use]
    pub fn loan_of(&self, worker: &str) -> Option<LoanId> {
        self.by_worker.get(worker).copied()
    }

    /// Is this worker of ours lent?
    #[must_use]
    pub fn is_lent(&self, worker: &str) -> bool {
        self.by_worker.contains_key(worker)
    }

    pub(super) fn lend(&mut self, lend: Lend, slots: u16, time_ms: u64) -> Effect {
        // Whoever is another farm's is never lent on.
        if self.lent.len() >= LOANS_MAX || self.is_lent(&lend.worker) || home_of(&lend.worker).is_some() {
            return Effect::Nothing;
        }
        self.last_loan += 1;
        let loan = LoanId(self.last_loan);
        let Lend { worker, to, for_ms, why } = lend;
        self.by_worker.insert(worker.clone(), loan);
        let (is_recalled, is_missing) = (false, false);
        let lent = Lent { worker, slots, to, since_ms: time_ms, for_ms, why, is_recalled, is_missing };
        self.lent.insert(loan, lent);
        Effect::Lent(loan)
    }

    pub(super) fn recall(&mut self, loan: LoanId) -> Effect {
        match self.lent.get_mut(&loan) {
            Some(lent) if !lent.is_recalled => {
                lent.is_recalled = true;
                Effect::Recalled(loan)
            }
            _ => Effect::Nothing,
        }
    }

    /// Whoever has been seen again since somebody took it for dead is not.
    pub(super) fn end(&mut self, loan: LoanId, ending: Ending) -> Effect {
        let is_alive = |lent: &Lent| ending == Ending::Dead && !lent.is_missing;
        if self.lent.get(&loan).is_none_or(is_alive) {
            return Effect::Nothing;
        }
        let Some(lent) = self.lent.remove(&loan) else { return Effect::Nothing };
        self.by_worker.remove(&lent.worker);
        Effect::LoanEnded { loan, lent, ending }
    }

    pub(super) fn borrow(&mut self, borrow: Borrow, time_ms: u64) -> Effect {
        let Borrow { worker, from, loan, for_ms, why } = borrow;
        let is_full = self.borrowed.len() >= LOANS_MAX && !self.borrowed.contains_key(&worker);
        let is_old = self.borrowed.get(&worker).is_some_and(|known| known.loan >= loan);
        if is_full || is_old {
            return Effect::Nothing;
        }
        self.borrowed.insert(worker.clone(), Borrowed { from, loan, since_ms: time_ms, for_ms, why });
        Effect::Borrowed(worker)
    }

    pub(super) fn give_back(&mut self, worker: String, loan: LoanId) -> Effect {
        if self.borrowed.get(&worker).is_none_or(|known| known.loan != loan) {
            return Effect::Nothing;
        }
        let borrowed = self.borrowed.remove(&worker);
        borrowed.map_or(Effect::Nothing, |borrowed| Effect::GivenBack(worker, borrowed))
    }

    /// Is this worker of ours lent, and have we lost sight of it?
    #[must_use]
    pub fn is_missing(&self, worker: &str) -> bool {
        self.loan_of(worker).and_then(|loan| self.lent.get(&loan)).is_some_and(|lent| lent.is_missing)
    }

    /// A worker is registered with its own farm, or its farm has lost sight of it.
    pub(super) fn note_missing(&mut self, worker: &str, is_missing: bool) {
        let known = self.by_worker.get(worker).and_then(|loan| self.lent.get_mut(loan));
        known.into_iter().for_each(|lent| lent.is_missing = is_missing);
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn lend(loans: &mut Loans, worker: &str) -> Option<LoanId> {
        let lend = Lend { worker: worker.into(), to: "south".into(), for_ms: 1000, why: Why::Asked };
        match loans.lend(lend, 2, 5) {
            Effect::Lent(loan) => Some(loan),
            _ => None,
        }
    }

    fn borrow(loans: &mut Loans, loan: u64) -> Effect {
        let (worker, from) = (name_here("w1", "north"), "north".to_string());
        loans.borrow(Borrow { worker, from, loan: LoanId(loan), for_ms: 1000, why: Why::Asked }, 5)
    }

    #[test]
    fn a_worker_is_lent_once_and_every_loan_is_newer() {
        let mut loans = Loans::default();
        assert_eq!(lend(&mut loans, "w1"), Some(LoanId(1)));
        assert_eq!(lend(&mut loans, "w1"), None);
        assert_eq!(lend(&mut loans, "w2"), Some(LoanId(2)));
        assert_eq!((loans.loan_of("w1"), loans.lent()[&LoanId(1)].slots), (Some(LoanId(1)), 2));
        assert!(matches!(loans.end(LoanId(1), Ending::Home), Effect::LoanEnded { .. }));
        assert_eq!(loans.end(LoanId(1), Ending::Home), Effect::Nothing);
        assert_eq!(lend(&mut loans, "w1"), Some(LoanId(3)));
    }

    #[test]
    fn only_a_worker_that_nobody_sees_is_dead() {
        let mut loans = Loans::default();
        lend(&mut loans, "w1");
        assert_eq!(loans.end(LoanId(1), Ending::Dead), Effect::Nothing);
        loans.note_missing("w1", true);
        assert!(loans.is_missing("w1") && !loans.is_missing("w2"));
        loans.note_missing("w1", false);
        assert_eq!(loans.end(LoanId(1), Ending::Dead), Effect::Nothing, "it was seen again");
        loans.note_missing("w1", true);
        assert!(matches!(loans.end(LoanId(1), Ending::Dead), Effect::LoanEnded { .. }));
    }

    #[test]
    fn a_worker_of_another_farm_is_never_lent_on() {
        assert_eq!(lend(&mut Loans::default(), "w1@north"), None);
    }

    #[test]
    fn a_loan_is_recalled_once() {
        let mut loans = Loans::default();
        assert_eq!(loans.recall(LoanId(1)), Effect::Nothing);
        lend(&mut loans, "w1");
        assert_eq!(loans.recall(LoanId(1)), Effect::Recalled(LoanId(1)));
        assert_eq!(loans.recall(LoanId(1)), Effect::Nothing);
    }

    #[test]
    fn an_older_loan_neither_arrives_nor_ends_a_newer_one() {
        let mut loans = Loans::default();
        assert_eq!(borrow(&mut loans, 2), Effect::Borrowed("w1@north".into()));
        assert_eq!(borrow(&mut loans, 1), Effect::Nothing);
        assert_eq!(loans.give_back("w1@north".into(), LoanId(1)), Effect::Nothing);
        assert!(matches!(loans.give_back("w1@north".into(), LoanId(2)), Effect::GivenBack(..)));
        assert!(loans.borrowed().is_empty());
    }

    #[test]
    fn no_more_are_lent_than_can_be_kept_in_mind() {
        let mut loans = Loans::default();
        let lent = (0..=LOANS_MAX).filter(|number| lend(&mut loans, &number.to_string()).is_some()).count();
        assert_eq!(lent, LOANS_MAX);
    }
}
