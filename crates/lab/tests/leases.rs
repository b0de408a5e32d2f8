//! Leases under all faults, on clocks that run wrong: nothing may be violated. `PRIMUS_RUNS` says how many seeds,
//! `PRIMUS_SEED_OFFSET` where they begin.

#[path = "common/bugs.rs"]
mod bugs;
#[path = "common/seeds.rs"]
mod seeds;
#[path = "common/whole.rs"]
mod whole;

use primus_core::planted::Bug;
use primus_lab::checks::Report;
use primus_lab::faults::Kinds;
use primus_lab::leases::Leases;
use seeds::seeds;

fn check(leases: &Leases) -> Vec<Report> {
    whole::check(leases, seeds(300))
}

#[test]
fn without_faults_every_group_is_held_and_nobody_loses_it() {
    for report in check(&Leases::new(3, Kinds::NONE)) {
        assert_eq!((report.tally.leaders.changes, report.seen("expiries")), (1, 0), "{report:#?}");
    }
}

#[test]
fn intervals_never_overlap_whatever_goes_wrong() {
    for servers in [3, 5] {
        let reports = check(&Leases::new(servers, Kinds::All));
        let sum = |what: &str| reports.iter().map(|report| report.seen(what)).sum::<u64>();
        let seen = [
            ("grants", sum("grants")),
            ("releases that let the next one in at once", sum("releases")),
            ("expiries", sum("expiries")),
            ("recalls", sum("recalls_of_leases")),
            ("vacancies before a transfer", sum("vacancies")),
            ("commits of a successor while an old promise ran", sum("early_commits")),
            ("answers of a deposed leader", sum("stale_answers")),
            ("guards that woke up after their time", sum("late_wakes")),
            ("old tokens", sum("old_tokens")),
        ];
        println!("{} runs of {servers} servers: {seen:?}", reports.len());
        // A run in which nothing happens proves nothing.
        for (what, count) in seen {
            assert!(count > 0, "no {what}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run_bit_for_bit() {
    let leases = Leases::new(3, Kinds::All);
    whole::check_repeatable(&leases, seeds(300).take(50));
}

fn must_find(bug: Bug) {
    const SEEDS_MAX: u64 = 100;
    bugs::must_find_in(bug, SEEDS_MAX, |planted| Leases { planted, ..Leases::new(3, Kinds::All) });
}

#[test]
fn a_successor_that_does_not_wait_is_found() {
    must_find(Bug::SuccessorDoesNotWait);
}

#[test]
fn a_lease_counted_from_the_answer_is_found() {
    must_find(Bug::LeaseFromAnswer);
}
