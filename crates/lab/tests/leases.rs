//! Leases under all faults, on clocks that run wrong: nothing may be violated. `PRIMUS_RUNS` says how many seeds,
//! `PRIMUS_SEED_OFFSET` where they begin.

#[path = "common/bugs.rs"]
mod bugs;
#[path = "common/seeds.rs"]
mod seeds;

use primus_core::planted::Bug;
use primus_lab::checks::Report;
use primus_lab::faults::Kinds;
use primus_lab::invariants::repeatability::Fingerprint;
use primus_lab::leases::Leases;
use primus_lab::setup::Setup;
use primus_lab::tally;
use seeds::seeds;

fn check(leases: &Leases) -> Vec<Report> {
    let reports: Vec<Report> = seeds(300).map(|seed| leases.run(seed, &mut ())).collect();
    for report in &reports {
        assert_eq!(report.violation, None, "{leases:?}, seed {}: {report:#?}", report.seed);
    }
    tally::add("runs", reports.len());
    reports
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
    let fingerprint = |seed| -> (Report, u64) {
        let mut fingerprint = Fingerprint::default();
        let report = leases.run(seed, &mut fingerprint);
        (report, fingerprint.number())
    };
    for seed in seeds(300).take(50) {
        assert_eq!(fingerprint(seed), fingerprint(seed), "seed {seed}");
    }
    assert_ne!(fingerprint(1).1, fingerprint(2).1, "different seeds give different runs");
}

fn must_find(bug: Bug) {
    const SEEDS_MAX: u64 = 100;
    bugs::must_find(bug, SEEDS_MAX, |planted, seed| {
        let leases = Leases { planted, ..Leases::new(3, Kinds::All) };
        let violation = leases.run(seed, &mut ()).violation?;
        Some(format!("{}: {}", violation.property.name(), violation.what))
    });
}

#[test]
fn a_successor_that_does_not_wait_is_found() {
    must_find(Bug::SuccessorDoesNotWait);
}

#[test]
fn a_lease_counted_from_the_answer_is_found() {
    must_find(Bug::LeaseFromAnswer);
}
