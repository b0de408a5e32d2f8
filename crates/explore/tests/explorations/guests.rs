//! A farm that has borrowed a worker for so many tasks.

use primus_core::planted::{Bug, Planted};
use primus_explore::frame::{Budget, Exploration};
use primus_explore::guests::Chance::{self, Call, Crash, Cut, Doubt};
use primus_explore::guests::{Guests, LEADER_DIED, LENT_AGAIN, RUNS_AGAIN, TOLD_FROM_HOME, WENT_BACK};

use super::{must_break, visit};

fn guests(tasks: u64, has_own: bool, budget: impl Into<Budget<Chance>>) -> Exploration<Guests> {
    Exploration::new(Guests { tasks, is_once: false, has_own, planted: Planted::NONE }, budget)
}

#[test]
fn explore_guests_and_their_tasks() {
    visit("somebody dies", guests(1, true, [(Crash, 1)]), &[TOLD_FROM_HOME, RUNS_AGAIN, LEADER_DIED]);
    visit("somebody dies, and there are two tasks", guests(2, false, [(Crash, 1)]), &[WENT_BACK]);
}

#[test]
fn explore_guests_that_are_cut_off() {
    visit("the guest is silent", guests(1, true, [(Doubt, 1)]), &[TOLD_FROM_HOME]);
    visit("a link breaks, and somebody dies", guests(1, true, [(Crash, 1), (Cut, 1)]), &[RUNS_AGAIN]);
}

#[test]
fn explore_guests_that_are_lent_again() {
    visit("the guest is lent again", guests(1, false, [(Call, 1)]), &[LENT_AGAIN]);
}

/// Such a task is handed out when the result of the one before it has been told: the guest may have gone by then.
#[test]
fn explore_guests_whose_tasks_must_not_start_twice() {
    let setting = Guests { is_once: true, ..guests(2, false, []).setting };
    visit("two tasks must not start twice", Exploration::new(setting, [(Crash, 1)]), &[TOLD_FROM_HOME]);
}

#[test]
fn explore_guests_finds_tasks_started_twice() {
    let bug = Bug::OnceWithoutCommit;
    let once = Guests { is_once: true, ..guests(1, true, []).setting };
    visit("without the bug", Exploration::new(once.clone(), [(Crash, 1)]), &[]);
    let setting = Guests { planted: Planted::the(bug), ..once };
    must_break(bug, Exploration::new(setting, [(Crash, 1)]).visit());
}
