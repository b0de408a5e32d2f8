//! Whole clusters under all faults: nothing may be violated. `PRIMUS_RUNS` says how many seeds, `PRIMUS_SEED_OFFSET` where
//! they begin.

#[path = "common/seeds.rs"]
mod seeds;
#[path = "common/whole.rs"]
mod whole;

use primus_core::election::Algorithm;
use primus_core::handover;
use primus_lab::checks::{Property, Report};
use primus_lab::cluster::{Cluster, Noise, Pattern, Slow};
use primus_lab::faults::Kinds;
use primus_lab::setup::Setup;
use primus_lab::tally;
use seeds::seeds;

fn check(cluster: &Cluster) -> Vec<Report> {
    whole::check(cluster, seeds(50))
}

#[test]
fn a_cluster_without_faults_elects_a_leader_and_writes() {
    for report in check(&Cluster::new(3, Kinds::NONE)) {
        // While servers still start, a better one takes over: each leads once at most. Then leadership stays.
        assert!(report.tally.leaders.changes <= 3, "{report:#?}");
        assert!(report.tally.leaders.most_at_once <= report.tally.leaders.changes, "{report:#?}");
        assert!(report.tally.last_change_us < 300_000, "{report:#?}");
        assert!(report.tally.acknowledged > 0 && report.tally.reads > 0, "{report:#?}");
    }
}

#[test]
fn three_servers_survive_all_faults() {
    check(&Cluster::new(3, Kinds::All));
}

#[test]
fn five_servers_survive_all_faults() {
    let reports = check(&Cluster::new(5, Kinds::All));
    let sum = |count: fn(&Report) -> u64| reports.iter().map(count).sum::<u64>();
    println!(
        "{} runs: {} leaderships, {} writes, {} reads, {} states taken over; healed after {} ms at most; {} steps",
        reports.len(),
        sum(|report| report.tally.leaders.changes.into()),
        sum(|report| report.tally.acknowledged),
        sum(|report| report.tally.reads),
        sum(|report| report.tally.restored),
        reports.iter().filter_map(|report| report.tally.healed_us).max().unwrap_or(0) / 1000,
        sum(|report| report.tally.steps),
    );
    // A run in which nothing happens proves nothing.
    assert!(
        sum(|report| report.tally.restored) > 0 && sum(|report| report.tally.leaders.changes.into()) > sum(|_| 1)
    );
    assert!(reports.iter().any(|report| report.tally.leaders.most_at_once > 1));
}

#[test]
fn the_same_seed_gives_the_same_run_bit_for_bit() {
    whole::check_repeatable(&Cluster::new(5, Kinds::All), seeds(50).take(50));
}

/// Handovers while loads change for so many minutes, of three servers without faults.
fn handovers(pattern: Pattern, points: u32, minutes: u64) -> Vec<u64> {
    const SEED: u64 = 1;
    let noise = Some(Noise { pattern, points, minutes });
    let report = Cluster { noise, ..Cluster::new(3, Kinds::NONE) }.run(SEED, &mut ());
    assert_eq!(report.violation, None, "{report:#?}");
    let others = u64::from(report.tally.leaders.changes) - report.tally.handovers_us.len() as u64;
    assert_eq!(others, 1, "but for handovers nobody takes over: {report:#?}");
    tally::add("runs", 1);
    report.tally.handovers_us
}

/// Were there some, and never two within a cool-down?
fn check_rare(times: &[u64], what: &str) {
    let cool_down_us = handover::Rules::DEFAULT.cool_down_us;
    println!("handovers in {what}: {}", times.len());
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= cool_down_us), "{times:?}");
    assert!(times.len() > 1, "this must move somebody, or nothing was tested");
}

#[test]
fn ten_hours_of_noise_inside_the_margin_move_nobody() {
    let margin = handover::Rules::DEFAULT.margin.hundredths() / 100;
    let times = handovers(Pattern::Random, (margin - 1) / 2, 600);
    assert!(times.is_empty(), "{times:?}");
}

#[test]
fn noisy_loads_move_the_leader_once_per_cool_down_at_most() {
    check_rare(&handovers(Pattern::Random, 50, 120), "two hours of noise");
}

#[test]
fn two_servers_that_take_turns_at_being_busy_do_not_toss_leadership_to_and_fro() {
    check_rare(&handovers(Pattern::Turns, 40, 60), "an hour of turns");
}

/// Links like those between cities, and between continents.
const SLOW: [Slow; 4] = [
    Slow { one_way_us: 25_000, jitter_us: 0 },
    Slow { one_way_us: 25_000, jitter_us: 10_000 },
    Slow { one_way_us: 75_000, jitter_us: 0 },
    Slow { one_way_us: 75_000, jitter_us: 30_000 },
];

#[test]
fn on_slow_links_all_faults_are_survived_too() {
    for slow in SLOW {
        check(&Cluster { slow: Some(slow), ..Cluster::new(3, Kinds::All) });
    }
}

/// One death of a leader, and nothing else: two terms at most, and T and four round trips. In a ring the token has to go
/// round before that. Where messages overtake each other, as they do not on a real link, entries are sent again and again, so
/// that only the number of terms says much, and that may be four.
#[test]
fn a_single_death_on_slow_links_costs_two_terms_and_four_round_trips_at_most() {
    for (servers, slow) in [3, 5].into_iter().flat_map(|servers| SLOW.map(|slow| (servers, slow))) {
        let cluster = Cluster { slow: Some(slow), kill: true, ..Cluster::new(servers, Kinds::NONE) };
        let round_trip_us = 2 * (slow.one_way_us + slow.jitter_us);
        let trips = if slow.jitter_us == 0 { 4 } else { 20 };
        let limit_us = 80_000 + round_trip_us + trips * round_trip_us;
        let ring_us = (servers - 1) * round_trip_us / 2;
        let (mut terms, mut slowest_us, mut late) = (0, 0, 0);
        let reports = check(&cluster);
        for report in &reports {
            // A ring on slow links may still be at its first election when a leader was to die.
            let Some(failover) = report.tally.failover else {
                late += 1;
                continue;
            };
            assert_eq!(report.properties.get(&Property::FewTerms), Some(&true), "{report:#?}");
            let wrote_us = failover.wrote_us.expect("somebody wrote");
            let more_us = if failover.algorithm == Algorithm::Ring { ring_us } else { 0 };
            assert!(wrote_us <= limit_us + more_us, "{slow:?}: {limit_us} {report:#?}");
            (terms, slowest_us) = (failover.terms.unwrap_or(0).max(terms), wrote_us.max(slowest_us));
        }
        assert!(late * 100 <= reports.len(), "{late} of {} runs had no leader in time", reports.len());
        println!("{servers} servers, {slow:?}: {terms} terms, {} ms of {} ms", slowest_us / 1000, limit_us / 1000);
    }
}

#[test]
fn a_single_death_on_a_local_network_costs_one_or_two_terms() {
    for report in check(&Cluster { kill: true, ..Cluster::new(3, Kinds::NONE) }) {
        assert_eq!(report.properties.get(&Property::FewTerms), Some(&true), "{report:#?}");
    }
}

#[test]
fn in_a_quiet_hour_on_slow_links_nobody_takes_over() {
    for slow in SLOW {
        let noise = Some(Noise { pattern: Pattern::Random, points: 0, minutes: 60 });
        let report = Cluster { noise, slow: Some(slow), ..Cluster::new(3, Kinds::NONE) }.run(1, &mut ());
        assert_eq!(report.violation, None, "{report:#?}");
        assert!(report.tally.last_change_us < 5_000_000, "{slow:?}: {report:#?}");
        tally::add("runs", 1);
    }
}
