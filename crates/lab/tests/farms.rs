//! Whole farms under all faults: nothing may be violated. `PRIMUS_RUNS` says how many seeds, `PRIMUS_SEED_OFFSET` where they
//! begin.

#[path = "common/bugs.rs"]
mod bugs;
#[path = "common/seeds.rs"]
mod seeds;
#[path = "common/whole.rs"]
mod whole;

use primus_core::planted::Bug;
use primus_lab::checks::Report;
use primus_lab::farm::Farm;
use primus_lab::faults::Kinds;
use seeds::seeds;

fn check(farm: &Farm) -> Vec<Report> {
    let reports = whole::check(farm, seeds(300));
    let sum = |count: fn(&Report) -> u64| reports.iter().map(count).sum::<u64>();
    println!(
        "{} runs with {:?}: {} tasks, {} starts, {} double, {} lost; {} leaders; {} steps",
        reports.len(),
        farm.faults,
        sum(|report| report.tasks),
        sum(|report| report.tally.starts),
        sum(|report| report.tally.double_starts),
        sum(|report| report.lost),
        sum(|report| report.tally.leaders.changes.into()),
        sum(|report| report.tally.steps),
    );
    reports
}

#[test]
fn a_farm_without_faults_runs_every_task_once() {
    for report in check(&Farm::new(3, 3, Kinds::NONE)) {
        assert_eq!(
            (report.tally.double_starts, report.lost, report.tally.leaders.changes),
            (0, 0, 1),
            "{report:#?}"
        );
    }
}

#[test]
fn when_only_servers_fail_nothing_starts_twice() {
    let reports = check(&of_servers());
    for report in &reports {
        assert_eq!(report.tally.double_starts, 0, "{report:#?}");
    }
    assert!(reports.iter().any(|report| report.tally.leaders.changes > 3), "or nothing was tested");
}

#[test]
fn a_farm_survives_all_faults() {
    let reports = check(&Farm::new(3, 4, Kinds::All));
    // A run in which nothing happens proves nothing. A task starts twice in one run of sixty.
    assert!(reports.iter().any(|report| report.tally.double_starts > 0) || reports.len() < 300);
    assert!(reports.iter().any(|report| report.lost > 0));
}

#[test]
fn the_same_seed_gives_the_same_run_bit_for_bit() {
    let farm = Farm::new(3, 4, Kinds::All);
    whole::check_repeatable(&farm, seeds(300).take(50));
}

/// Only servers fail.
fn of_servers() -> Farm {
    Farm { only_servers: true, ..Farm::new(3, 4, Kinds::All) }
}

fn must_find(bug: Bug, farm: &Farm) {
    const SEEDS_MAX: u64 = 300;
    bugs::must_find_in(bug, SEEDS_MAX, |planted| Farm { planted, ..farm.clone() });
}

#[test]
fn attempts_without_their_term_are_found() {
    must_find(Bug::BareAttempts, &Farm::new(3, 4, Kinds::All));
}

#[test]
fn a_dispatch_before_the_workers_have_reported_is_found() {
    must_find(Bug::DispatchBeforeReports, &of_servers());
}

#[test]
fn a_start_that_is_not_written_down_is_found() {
    must_find(Bug::OnceWithoutCommit, &Farm::new(3, 4, Kinds::All));
}

/// A worker that lies in each hello, among others that lose their links.
fn with_an_impostor() -> Farm {
    Farm { has_impostor: true, ..Farm::new(3, 4, Kinds::All) }
}

#[test]
fn a_worker_that_speaks_for_others_is_not_believed() {
    let reports = check(&with_an_impostor());
    let forgeries = reports.iter().map(|report| report.seen("forgeries")).sum::<u64>();
    assert!(forgeries > 0, "or nothing was tested");
}

#[test]
fn a_leader_that_believes_a_worker_about_another_is_found() {
    must_find(Bug::BelievedAboutAnother, &with_an_impostor());
}
