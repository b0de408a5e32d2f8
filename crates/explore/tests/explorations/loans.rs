//! Two farms for so many ticks, the first of which has so many workers.

use primus_core::planted::{Bug, Planted};
use primus_explore::frame::{Budget, Exploration};
use primus_explore::loans::Chance::{self, Crash, Cut, Delay, Flood, Loss, Order};
use primus_explore::loans::{
    ARRIVAL, BORROWER_CHANGE, DEATH, FALSE_DEATH, HOMECOMING, LATE_CALL, LENDER_CHANGE, Loans, RECALL,
};

use super::{must_break, visit};

fn loans(workers: usize, ticks: u64, budget: impl Into<Budget<Chance>>) -> Exploration<Loans> {
    Exploration::new(Loans { workers, ticks, planted: Planted::NONE }, budget)
}

/// A leader or a worker dies, and something is lost.
#[test]
fn explore_loans_of_two_workers() {
    visit("two are lent", loans(2, 2, [(Crash, 1), (Loss, 1)]), &[ARRIVAL, LENDER_CHANGE, BORROWER_CHANGE]);
}

#[test]
fn explore_loans_until_they_end() {
    visit("one is lent", loans(1, 3, [(Crash, 1), (Loss, 1)]), &[HOMECOMING, DEATH]);
}

#[test]
fn explore_loans_of_the_cut_off() {
    visit("somebody is cut off", loans(1, 2, [(Cut, 2)]), &[FALSE_DEATH, LATE_CALL]);
}

#[test]
fn explore_loans_that_somebody_wants_back() {
    visit("an operator orders", loans(1, 3, [(Order, 2)]), &[RECALL, HOMECOMING]);
    visit("both have too much to do", loans(1, 2, [(Flood, 1), (Delay, 1)]), &[RECALL]);
}

#[test]
fn explore_loans_finds_late_calls_obeyed() {
    find(Bug::LateRedirect, 4, [(Loss, 1)]);
}

#[test]
fn explore_loans_finds_workers_taken_back_by_timer() {
    find(Bug::TakesBackByTimer, 4, [(Loss, 1)]);
}

#[test]
fn explore_loans_finds_terms_of_two_farms_compared() {
    find(Bug::BareTerms, 1, [(Order, 1), (Crash, 1)]);
}

fn find(bug: Bug, ticks: u64, budget: impl Into<Budget<Chance>>) {
    let exploration = loans(1, ticks, budget);
    visit("without the bug", exploration.clone(), &[]);
    let setting = Loans { planted: Planted::the(bug), ..exploration.setting };
    must_break(bug, Exploration { setting, ..exploration }.visit());
}
