//! Several farms that lend each other workers, under all faults: nothing may be violated. `PRIMUS_RUNS` says how many seeds,
//! `PRIMUS_SEED_OFFSET` where they begin.

#[path = "common/bugs.rs"]
mod bugs;
#[path = "common/seeds.rs"]
mod seeds;

use primus_core::planted::Bug;
use primus_lab::invariants::repeatability::Fingerprint;
use primus_lab::loans::checks::Sightings;
use primus_lab::loans::{Faults, Loans, Report};
use primus_lab::tally;
use seeds::seeds;

fn check(loans: &Loans, share: u64) -> Vec<Report> {
    let reports: Vec<Report> =
        seeds(300).filter(|seed| seed % share == 0).map(|seed| loans.run(seed, &mut ())).collect();
    for report in &reports {
        assert_eq!(report.violation, None, "{loans:?}, seed {}: {report:#?}", report.seed);
    }
    tally::add("runs", reports.len());
    let sum = |count: fn(&Report) -> u64| reports.iter().map(count).sum::<u64>();
    println!(
        "{} runs of {} farms with {:?}: {} tasks, {} starts, {} lost; {} leaders; {} steps",
        reports.len(),
        loans.farms,
        loans.faults,
        sum(|report| report.tasks),
        sum(|report| report.starts),
        sum(|report| report.lost),
        sum(|report| report.leaders),
        sum(|report| report.steps),
    );
    reports
}

#[test]
fn without_faults_nothing_is_lost_nor_run_twice() {
    for farms in [2, 5] {
        let reports = check(&Loans::new(farms, Faults::None), 2);
        for report in &reports {
            assert_eq!((report.lost, report.leaders), (0, farms as u64), "{report:#?}");
            // Only what is stopped because its worker has to go home runs again.
            assert_eq!(report.starts, report.tasks + report.sightings.stops, "{report:#?}");
        }
        assert!(reports.iter().any(|report| report.sightings.borrowed_starts > 10), "or nothing was tested");
    }
}

#[test]
fn farms_that_lend_survive_all_faults() {
    let mut reports = check(&Loans::new(2, Faults::All), 1);
    reports.extend(check(&Loans::new(3, Faults::All), 2));
    reports.extend(check(&Loans::new(5, Faults::All), 5));
    let sum = |count: fn(&Sightings) -> u64| reports.iter().map(|report| count(&report.sightings)).sum::<u64>();
    let seen = [
        ("loans", sum(|seen| seen.loans)),
        ("arrivals", sum(|seen| seen.arrivals)),
        ("tasks on borrowed workers", sum(|seen| seen.borrowed_starts)),
        ("homecomings", sum(|seen| seen.homecomings)),
        ("workers taken for dead", sum(|seen| seen.deaths)),
        ("workers taken for dead that were only out of reach", sum(|seen| seen.false_deaths)),
        ("changes of a lender's leader during a loan", sum(|seen| seen.lender_changes)),
        ("changes of a borrower's leader during a loan", sum(|seen| seen.borrower_changes)),
        ("workers that died on their way", sum(|seen| seen.died_in_transit)),
        ("workers that died away from home", sum(|seen| seen.died_away)),
        ("overdue loans that came home", sum(|seen| seen.overdue_homecomings)),
        ("results told after going home", sum(|seen| seen.told_after_going_home)),
        ("tasks stopped because of a recall", sum(|seen| seen.stops)),
        ("loans whose time was over", sum(|seen| seen.leases_over)),
        ("recalls", sum(|seen| seen.recalls)),
        ("refusals", sum(|seen| seen.refusals)),
        ("neighbours that did not answer", sum(|seen| seen.unanswered)),
        ("partitions between farms", sum(|seen| seen.partitions)),
        ("workers that stood still for too long", sum(|seen| seen.pauses)),
    ];
    println!("{seen:?}");
    // A run in which nothing happens proves nothing.
    for (what, count) in seen {
        assert!(count > 0, "no {what}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run_bit_for_bit() {
    let loans = Loans::new(3, Faults::All);
    let fingerprint = |seed| -> (Report, u64) {
        let mut fingerprint = Fingerprint::default();
        let report = loans.run(seed, &mut fingerprint);
        (report, fingerprint.number())
    };
    for seed in seeds(300).take(20) {
        assert_eq!(fingerprint(seed), fingerprint(seed), "seed {seed}");
    }
    assert_ne!(fingerprint(1).1, fingerprint(2).1, "different seeds give different runs");
}

fn must_find(bug: Bug) {
    const SEEDS_MAX: u64 = 300;
    bugs::must_find(bug, SEEDS_MAX, |planted, seed| {
        let loans = Loans { planted, ..Loans::new(3, Faults::All) };
        let violation = loans.run(seed, &mut ()).violation?;
        Some(format!("{}: {}", violation.property.name(), violation.what))
    });
}

#[test]
fn terms_compared_across_farms_are_found() {
    must_find(Bug::BareTerms);
}

#[test]
fn a_lender_that_takes_back_by_its_clock_is_found() {
    must_find(Bug::TakesBackByTimer);
}

#[test]
fn a_worker_that_follows_a_late_call_is_found() {
    must_find(Bug::LateRedirect);
}

#[test]
fn a_worker_that_begins_tasks_while_it_goes_is_found() {
    must_find(Bug::RoomClosedTooLate);
}

#[test]
fn a_lender_that_counts_only_what_is_agreed_on_is_found() {
    must_find(Bug::LendsUnpledged);
}
