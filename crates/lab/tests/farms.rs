//! Whole farms under all faults: nothing may be violated. `PRIMUS_RUNS` says how many seeds, `PRIMUS_SEED_OFFSET` where they
//! begin.

#[path = "common/bugs.rs"]
mod bugs;
#[path = "common/seeds.rs"]
mod seeds;

use primus_core::planted::Bug;
use primus_lab::farm::{Farm, Faults, Report};
use primus_lab::invariants::repeatability::Fingerprint;
use primus_lab::tally;
use seeds::seeds;

fn check(farm: &Farm) -> Vec<Report> {
    let reports: Vec<Report> = seeds(300).map(|seed| farm.run(seed, &mut ())).collect();
    for report in &reports {
        assert_eq!(report.violation, None, "{farm:?}, seed {}: {report:#?}", report.seed);
    }
    tally::add("runs", reports.len());
    let sum = |count: fn(&Report) -> u64| reports.iter().map(count).sum::<u64>();
    println!(
        "{} runs with {:?}: {} tasks, {} starts, {} double, {} lost; {} leaders; {} steps",
        reports.len(),
        farm.faults,
        sum(|report| report.tasks),
        sum(|report| report.starts),
        sum(|report| report.double_starts),
        sum(|report| report.lost),
        sum(|report| report.leaders),
        sum(|report| report.steps),
    );
    reports
}

#[test]
fn a_farm_without_faults_runs_every_task_once() {
    for report in check(&Farm::new(3, 3, Faults::None)) {
        assert_eq!((report.double_starts, report.lost, report.leaders), (0, 0, 1), "{report:#?}");
    }
}

#[test]
fn when_only_servers_fail_nothing_starts_twice() {
    let reports = check(&Farm::new(3, 4, Faults::Leaders));
    for report in &reports {
        assert_eq!(report.double_starts, 0, "{report:#?}");
    }
    assert!(reports.iter().any(|report| report.leaders > 3), "or nothing was tested");
}

#[test]
fn a_farm_survives_all_faults() {
    let reports = check(&Farm::new(3, 4, Faults::All));
    // A run in which nothing happens proves nothing.
    assert!(reports.iter().any(|report| report.double_starts > 0));
    assert!(reports.iter().any(|report| report.lost > 0));
}

#[test]
fn the_same_seed_gives_the_same_run_bit_for_bit() {
    let farm = Farm::new(3, 4, Faults::All);
    let fingerprint = |seed| -> (Report, u64) {
        let mut fingerprint = Fingerprint::default();
        let report = farm.run(seed, &mut fingerprint);
        (report, fingerprint.number())
    };
    for seed in seeds(300).take(50) {
        assert_eq!(fingerprint(seed), fingerprint(seed), "seed {seed}");
    }
    assert_ne!(fingerprint(1).1, fingerprint(2).1, "different seeds give different runs");
}

fn must_find(bug: Bug, faults: Faults) {
    const SEEDS_MAX: u64 = 300;
    bugs::must_find(bug, SEEDS_MAX, |planted, seed| {
        let farm = Farm { planted, ..Farm::new(3, 4, faults) };
        let violation = farm.run(seed, &mut ()).violation?;
        Some(format!("{}: {}", violation.property.name(), violation.what))
    });
}

#[test]
fn attempts_without_their_term_are_found() {
    must_find(Bug::BareAttempts, Faults::All);
}

#[test]
fn a_dispatch_before_the_workers_have_reported_is_found() {
    must_find(Bug::DispatchBeforeReports, Faults::Leaders);
}

#[test]
fn a_start_that_is_not_written_down_is_found() {
    must_find(Bug::OnceWithoutCommit, Faults::All);
}
