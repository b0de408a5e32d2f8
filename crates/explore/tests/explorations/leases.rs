//! Two servers and two guards; the leader changes at any moment, or never.

use primus_core::planted::{Bug, Planted};
use primus_explore::frame::{Budget, Exploration};
use primus_explore::leases::Chance::{self, Delay, Drift, Freeze, Overtaking, Question, Resignation, Wish};
use primus_explore::leases::{EARLY_COMMIT, EXPIRY, GOES_ON, Leases, RELEASE, STALE_PROMISE};

use super::{must_break, visit};

fn leases(ticks: u64, budget: impl Into<Budget<Chance>>) -> Exploration<Leases> {
    Exploration::new(Leases { ticks, planted: Planted::NONE }, budget)
}

#[test]
fn explore_leases_that_end_and_go_on() {
    let resigns = leases(6, [(Resignation, 1), (Question(0), 4), (Question(1), 4)]);
    visit("a leader changes", resigns, &[RELEASE, EXPIRY, GOES_ON, STALE_PROMISE]);
    let wishes = leases(6, [(Wish, 1), (Question(0), 3), (Question(1), 3)]);
    visit("a free group is wanted", wishes, &[EARLY_COMMIT]);
}

#[test]
fn explore_leases_whose_words_are_late() {
    let late = leases(6, [(Delay, 1), (Overtaking, 1), (Question(0), 2), (Question(1), 2)]);
    visit("words are late", late, &[EXPIRY]);
}

/// Clocks that are wrong by two ticks in all are what those who wait allow for; three are too many.
#[test]
fn explore_leases_on_wrong_clocks() {
    let wrong_by = |drifts| leases(6, [(Drift, drifts), (Question(0), 2), (Question(1), 2)]);
    visit("clocks are wrong", wrong_by(2), &[EXPIRY, GOES_ON]);
    let broken = wrong_by(3).visit().expect_err("nobody waits that long");
    println!("clocks are too wrong: {broken}");
}

/// A server or a guard stands still while the first guard waits for one more promise, and the second one asks for the group.
const FROZEN: [(Chance, u8); 3] = [(Freeze, 1), (Question(0), 1), (Question(1), 4)];

#[test]
fn explore_leases_of_the_frozen() {
    visit("somebody freezes", leases(4, FROZEN), &[EXPIRY]);
    let long = leases(6, [(Freeze, 1), (Question(0), 2), (Question(1), 2)]);
    visit("somebody freezes for long", long, &[EXPIRY]);
    let drifting = leases(5, [(Freeze, 1), (Drift, 1), (Question(0), 1), (Question(1), 1)]);
    visit("somebody freezes, and a clock is wrong", drifting, &[EXPIRY]);
}

#[test]
fn explore_leases_finds_planted_bugs() {
    for bug in [Bug::SuccessorDoesNotWait, Bug::LeaseFromAnswer] {
        let setting = Leases { ticks: 4, planted: Planted::the(bug) };
        must_break(bug, Exploration::new(setting, FROZEN).visit());
    }
}
