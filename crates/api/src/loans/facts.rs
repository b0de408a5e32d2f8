//! Loans and farms as objects: what the API says of them, and the commands print.
//!
//! A loan is named by its lender's number. So the own ones are `3`, and one of another farm is `3@south`: two lenders may count
//! to the same.

use std::time::Duration;

use primus_core::ledger::loans::{home_of, name_here};
use primus_core::ledger::{Borrowed, Ledger, Lent, LoanId, Why};
use primus_core::loan::Lending;
use primus_core::loan::lending::Neighbour;
use primus_shapes::described;
use primus_shapes::schema::Time;
use primus_shapes::values::time;
use serde::Serialize;

use crate::values::time_text;
use crate::words::{LoanDirection, LoanNumber, LoanReason, LoanState};

described! {
    /// A loan: a worker that works for another farm.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
    pub(crate) struct LoanFacts {
        /// The lender's number of the loan; with @LENDER behind it if another farm lends.
        pub(crate) id: String as LoanNumber,
        /// What its own farm calls the worker.
        worker: String,
        /// The farm whose worker it is.
        home: String,
        /// The farm that it works for.
        farm: String,
        /// Which way it went, seen from the farm that is asked.
        direction: Direction as LoanDirection,
        /// When it was lent.
        since: String as Time,
        /// When it should be back at the latest.
        until: String as Time,
        /// For how long it was lent.
        for_ms: u64,
        /// Why it was lent.
        why: &'static str as LoanReason,
        /// How far the loan is, as far as the leader that is asked knows.
        state: Stage as LoanState,
        #[serde(skip)]
        since_ms: u64,
    }
}

/// Which way a worker went, seen from the farm that is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Direction {
    Lent,
    Borrowed,
}

/// How far a loan is, as far as the leader that is asked knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Stage {
    /// The borrower has not let it in yet.
    Going,
    /// It is with the borrower.
    Away,
    /// The borrower has given it back, and it is not home yet.
    Returning,
    /// Its own farm wants it back.
    Recalled,
    /// It should be back by now.
    Overdue,
    /// Whoever is asked has lost sight of it.
    Missing,
}

/// All loans of a farm: those of its own workers, then those of others'.
pub(crate) fn loans(farm: &str, ledger: &Ledger, lending: &Lending) -> Vec<LoanFacts> {
    let lent = ledger.loans().lent().iter().map(|(loan, lent)| LoanFacts::of_lent(farm, *loan, lent, lending));
    let borrowed = ledger.loans().borrowed().iter();
    let borrowed = borrowed.map(|(name, borrowed)| LoanFacts::of_borrowed(farm, name, borrowed, ledger, lending));
    lent.chain(borrowed).collect()
}

impl LoanFacts {
    /// Where it stands in the list: an own loan by its number, a guest by its name here.
    pub(crate) fn place(&self) -> String {
        match self.direction {
            Direction::Lent => self.id.clone(),
            Direction::Borrowed => name_here(&self.worker, &self.home),
        }
    }

    /// Does it stand behind this place?
    pub(crate) fn is_behind(&self, place: &str) -> bool {
        match (self.direction, place.parse::<u64>()) {
            (Direction::Lent, Ok(number)) => self.id.parse::<u64>().is_ok_and(|id| id > number),
            (Direction::Lent, Err(_)) => false,
            (Direction::Borrowed, Ok(_)) => true,
            (Direction::Borrowed, Err(_)) => self.place().as_str() > place,
        }
    }

    fn of_lent(farm: &str, loan: LoanId, lent: &Lent, lending: &Lending) -> Self {
        Self {
            id: loan.to_string(),
            worker: lent.worker.clone(),
            home: farm.to_owned(),
            farm: lent.to.clone(),
            direction: Direction::Lent,
            since: time_text(lent.since_ms),
            until: time_text(lent.since_ms.saturating_add(lent.for_ms)),
            for_ms: lent.for_ms,
            why: why_name(lent.why),
            state: stage_of_lent(loan, lent, lending),
            since_ms: lent.since_ms,
        }
    }

    fn of_borrowed(farm: &str, name: &str, borrowed: &Borrowed, ledger: &Ledger, lending: &Lending) -> Self {
        let is_here = ledger.workers().contains_key(name);
        Self {
            id: format!("{}@{}", borrowed.loan, borrowed.from),
            worker: home_of(name).map_or(name, |(worker, _)| worker).to_owned(),
            home: borrowed.from.clone(),
            farm: farm.to_owned(),
            direction: Direction::Borrowed,
            since: time_text(borrowed.since_ms),
            until: time_text(borrowed.since_ms.saturating_add(borrowed.for_ms)),
            for_ms: borrowed.for_ms,
            why: why_name(borrowed.why),
            state: stage_of_borrowed(borrowed, is_here, lending),
            since_ms: borrowed.since_ms,
        }
    }

    /// Its own farm wants it back from now on.
    pub(crate) const fn call_home(&mut self) {
        self.state = Stage::Recalled;
    }

    /// Who, whose, where, since, until, why, and what happens next, in a sentence or two.
    pub(crate) fn explanation(&self, now_ms: u64, recall_ms: u64) -> String {
        let Self { worker, home, farm, .. } = self;
        let is = match self.state {
            Stage::Going => format!("is on its way to {farm}"),
            Stage::Away => format!("works for {farm}"),
            Stage::Returning => format!("is on its way home from {farm}"),
            Stage::Recalled => format!("is called home from {farm}"),
            Stage::Overdue => format!("should be back from {farm}"),
            Stage::Missing => format!("works for {farm} or is dead: it has not been heard lately"),
        };
        let why = match self.why {
            "operator" => "an operator wanted it".to_owned(),
            _ => format!("{farm} was saturated and asked"),
        };
        let age = length(now_ms.saturating_sub(self.since_ms));
        format!(
            "Worker {worker} of {home} {is}; it was lent {age} ago for {}, because {why}. {}.",
            length(self.for_ms),
            self.prospect(now_ms, recall_ms)
        )
    }

    fn prospect(&self, now_ms: u64, recall_ms: u64) -> String {
        let Self { home, farm, .. } = self;
        let left_ms = self.since_ms.saturating_add(self.for_ms).saturating_sub(now_ms);
        let end = format!("or in {} at the latest", length(left_ms));
        match (self.state, self.direction) {
            (Stage::Going, _) => format!("{farm} gives it work once it has let it in"),
            (Stage::Away, _) if left_ms == 0 => {
                "Its time is over, so it goes home when what it runs has ended".to_owned()
            }
            (Stage::Away, _) if self.why == "operator" => format!("It goes home when {home} recalls it, {end}"),
            (Stage::Away, _) => format!("It goes home when {farm} is calm, when {home} wants it back, {end}"),
            (Stage::Returning, _) => format!("{home} gives it work again as soon as it says that it is there"),
            (Stage::Recalled, _) => {
                let within = length(recall_ms);
                format!("What it runs may take {within} to end; then it is stopped, and runs again elsewhere")
            }
            (Stage::Overdue, _) => {
                format!("{home} takes it back when it arrives or is dead, never because time has passed")
            }
            (Stage::Missing, Direction::Lent) => {
                format!("{home} counts it as dead once {farm} says that it does not have it either")
            }
            (Stage::Missing, Direction::Borrowed) => {
                format!("{farm} gives it back unless it is heard again at once")
            }
        }
    }
}

/// How far the loan of an own worker is. What is amiss comes first.
fn stage_of_lent(loan: LoanId, lent: &Lent, lending: &Lending) -> Stage {
    let borrower = neighbour(lending, &lent.to);
    match borrower {
        _ if lent.is_missing => Stage::Missing,
        _ if lending.overdue().any(|overdue| overdue == loan) => Stage::Overdue,
        _ if lent.is_recalled => Stage::Recalled,
        Some(borrower) if borrower.beat.borrowed.contains(&loan) => Stage::Away,
        Some(borrower) if borrower.has_had(loan) => Stage::Returning,
        Some(_) => Stage::Going,
        // Nobody says otherwise.
        None => Stage::Away,
    }
}

fn stage_of_borrowed(borrowed: &Borrowed, is_here: bool, lending: &Lending) -> Stage {
    let is_wanted_back = |lender: &Neighbour| {
        let lending = lender.beat.lent.iter().find(|lending| lending.loan == borrowed.loan);
        lending.is_none_or(|lending| lending.is_recalled)
    };
    match neighbour(lending, &borrowed.from) {
        _ if !is_here => Stage::Missing,
        Some(lender) if is_wanted_back(lender) => Stage::Recalled,
        _ => Stage::Away,
    }
}

/// What is known of a neighbour, if it has been heard lately.
fn neighbour<'a>(lending: &'a Lending, name: &str) -> Option<&'a Neighbour> {
    lending.neighbours().find(|(known, _)| *known == name).and_then(|(_, neighbour)| neighbour)
}

const fn why_name(why: Why) -> &'static str {
    match why {
        Why::Asked => "asked",
        Why::Operator => "operator",
    }
}

/// As people say it: whole seconds without a point.
fn length(length_ms: u64) -> String {
    time(Duration::from_millis(length_ms)).replace(".0 ", " ")
}

#[cfg(test)]
mod tests {
    use primus_core::ledger::Entry;
    use primus_core::loan::Beat;

    use super::super::scene::{beat, ledger, lending};
    use super::*;

    fn states(entries: Vec<Entry>, beats: &[Beat]) -> Vec<(String, Stage)> {
        let ledger = ledger(entries);
        let found = loans("north", &ledger, &lending(&ledger, beats));
        found.into_iter().map(|facts| (facts.id, facts.state)).collect()
    }

    #[test]
    fn how_far_a_loan_is_follows_from_what_is_agreed_on_and_heard() {
        let (recall, leave) = (Entry::Recall(LoanId(1)), Entry::Leave { worker: "n1".to_owned() });
        let gone = Entry::Leave { worker: name_here("s1", "south") };
        for (entries, beats, lent, borrowed) in [
            (vec![], vec![], Stage::Away, Stage::Away),
            (vec![], vec![beat(&[], false)], Stage::Going, Stage::Away),
            (vec![], vec![beat(&[1], false)], Stage::Away, Stage::Away),
            (vec![], vec![beat(&[1], false), beat(&[], false)], Stage::Returning, Stage::Away),
            (vec![recall.clone()], vec![beat(&[1], true)], Stage::Recalled, Stage::Recalled),
            (vec![], vec![Beat { lent: Vec::new(), ..beat(&[1], false) }], Stage::Away, Stage::Recalled),
            (vec![recall, leave, gone], vec![beat(&[1], true)], Stage::Missing, Stage::Missing),
        ] {
            let expected = [("1".to_owned(), lent), ("1@south".to_owned(), borrowed)];
            assert_eq!(states(entries, &beats), expected, "{beats:?}");
        }
    }

    #[test]
    fn a_loan_is_an_object_with_times_as_texts() {
        let ledger = ledger(Vec::new());
        let found = loans("north", &ledger, &lending(&ledger, &[]));
        let expected = serde_json::json!({
            "id": "1@south", "worker": "s1", "home": "south", "farm": "north", "direction": "borrowed",
            "since": "1970-01-01T00:00:01.000Z", "until": "1970-01-01T00:00:06.000Z", "for_ms": 5000,
            "why": "operator", "state": "away",
        });
        assert_eq!(serde_json::to_value(&found[1]).unwrap(), expected);
    }

    #[test]
    fn a_loan_is_explained_with_what_happens_next() {
        let told = |entries: Vec<Entry>, place: usize, now_ms: u64| {
            let ledger = ledger(entries);
            loans("north", &ledger, &lending(&ledger, &[]))[place].explanation(now_ms, 10_000)
        };
        let asked = "it was lent 2 s ago for 60 s, because south was saturated and asked.";
        assert_eq!(
            told(vec![], 0, 3_000),
            format!(
                "Worker n1 of north works for south; {asked} It goes home when south is calm, when north wants it back, \
                 or in 58 s at the latest."
            )
        );
        assert_eq!(
            told(vec![Entry::Recall(LoanId(1))], 0, 3_000),
            format!(
                "Worker n1 of north is called home from south; {asked} What it runs may take 10 s to end; then it is \
                 stopped, and runs again elsewhere."
            )
        );
        assert_eq!(
            told(vec![], 1, 3_500),
            "Worker s1 of south works for north; it was lent 2.5 s ago for 5 s, because an operator wanted it. It goes \
             home when south recalls it, or in 2.5 s at the latest."
        );
        assert!(told(vec![], 1, 9_000).ends_with("Its time is over, so it goes home when what it runs has ended."));
    }
}
