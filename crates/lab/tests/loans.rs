//! Several farms that lend each other workers, under all faults: nothing may be violated. `PRIMUS_RUNS` says how many seeds,
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
use primus_lab::loans::Loans;
use seeds::seeds;

fn check(loans: &Loans, share: u64) -> Vec<Report> {
    let reports = whole::check(loans, seeds(300).filter(|seed| seed % share == 0));
    let sum = |count: fn(&Report) -> u64| reports.iter().map(count).sum::<u64>();
    println!(
        "{} runs of {} farms with {:?}: {} tasks, {} starts, {} lost; {} leaders; {} steps",
        reports.len(),
        loans.farms,
        loans.faults,
        sum(|report| report.tasks),
        sum(|report| report.tally.starts),
        sum(|report| report.lost),
        sum(|report| report.tally.leaders.changes.into()),
        sum(|report| report.tally.steps),
    );
    reports
}

#[test]
fn without_faults_nothing_is_lost_nor_run_twice() {
    for farms in [2, 5] {
        let reports = check(&Loans::new(farms, Kinds::NONE), 2);
        for report in &reports {
            assert_eq!((report.lost, u64::from(report.tally.leaders.changes)), (0, farms as u64), "{report:#?}");
            // Only what is stopped because its worker has to go home runs again.
            assert_eq!(report.tally.starts, report.tasks + report.seen("stops"), "{report:#?}");
        }
        assert!(reports.iter().any(|report| report.seen("borrowed_starts") > 10), "or nothing was tested");
    }
}

#[test]
fn farms_that_lend_survive_all_faults() {
    let mut reports = check(&Loans::new(2, Kinds::All), 1);
    reports.extend(check(&Loans::new(3, Kinds::All), 2));
    reports.extend(check(&Loans::new(5, Kinds::All), 5));
    let sum = |what: &str| reports.iter().map(|report| report.seen(what)).sum::<u64>();
    let seen = [
        ("loans", sum("loans")),
        ("arrivals", sum("arrivals")),
        ("tasks on borrowed workers", sum("borrowed_starts")),
        ("homecomings", sum("homecomings")),
        ("workers taken for dead", sum("deaths")),
        ("workers taken for dead that were only out of reach", sum("false_deaths")),
        ("changes of a lender's leader during a loan", sum("lender_changes")),
        ("changes of a borrower's leader during a loan", sum("borrower_changes")),
        ("workers that died on their way", sum("died_in_transit")),
        ("workers that died away from home", sum("died_away")),
        ("overdue loans that came home", sum("overdue_homecomings")),
        ("results told after going home", sum("told_after_going_home")),
        ("tasks stopped because of a recall", sum("stops")),
        ("loans whose time was over", sum("leases_over")),
        ("recalls", sum("recalls")),
        ("refusals", sum("refusals")),
        ("neighbours that did not answer", sum("unanswered")),
        ("partitions between farms", sum("partitions")),
        ("workers that stood still for too long", sum("pauses")),
    ];
    println!("{seen:?}");
    // A run in which nothing happens proves nothing. Of one in forty runs, fifty may show nothing.
    let is_rare = |what: &str| what.ends_with("only out of reach");
    for (what, count) in seen {
        assert!(count > 0 || is_rare(what) && seeds(300).count() < 300, "no {what}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run_bit_for_bit() {
    let loans = Loans::new(3, Kinds::All);
    whole::check_repeatable(&loans, seeds(300).take(20));
}

fn must_find(bug: Bug) {
    const SEEDS_MAX: u64 = 300;
    bugs::must_find_in(bug, SEEDS_MAX, |planted| Loans { planted, ..Loans::new(3, Kinds::All) });
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
