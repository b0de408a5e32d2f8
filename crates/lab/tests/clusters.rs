//! Whole clusters under all faults: nothing may be violated. `PRIMUS_RUNS` says how many seeds, `PRIMUS_SEED_OFFSET` where
//! they begin.

#[path = "common/seeds.rs"]
mod seeds;

use primus_core::handover;
use primus_lab::cluster::{Cluster, Noise, Pattern, Report};
use primus_lab::faults::Kinds;
use primus_lab::invariants::repeatability::Fingerprint;
use primus_lab::tally;
use seeds::seeds;

fn check(cluster: &Cluster) -> Vec<Report> {
    let reports: Vec<Report> = seeds(50).map(|seed| cluster.run(seed, &mut ())).collect();
    for report in &reports {
        assert_eq!(report.violation, None, "{cluster:?}, seed {}: {report:#?}", report.seed);
    }
    tally::add("runs", reports.len());
    reports
}

#[test]
fn a_cluster_without_faults_elects_a_leader_and_writes() {
    for report in check(&Cluster::new(3, Kinds::NONE)) {
        assert_eq!(report.leaders.most_at_once, 1, "{report:#?}");
        assert!(report.acknowledged > 0 && report.reads > 0, "{report:#?}");
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
        sum(|report| report.leaders.changes.into()),
        sum(|report| report.acknowledged),
        sum(|report| report.reads),
        sum(|report| report.restored),
        reports.iter().filter_map(|report| report.healed_us).max().unwrap_or(0) / 1000,
        sum(|report| report.steps),
    );
    // A run in which nothing happens proves nothing.
    assert!(sum(|report| report.restored) > 0 && sum(|report| report.leaders.changes.into()) > sum(|_| 1));
    assert!(reports.iter().any(|report| report.leaders.most_at_once > 1));
}

#[test]
fn the_same_seed_gives_the_same_run_bit_for_bit() {
    let cluster = Cluster::new(5, Kinds::All);
    let fingerprint = |seed| -> (Report, u64) {
        let mut fingerprint = Fingerprint::default();
        let report = cluster.run(seed, &mut fingerprint);
        (report, fingerprint.number())
    };
    for seed in seeds(50).take(50) {
        assert_eq!(fingerprint(seed), fingerprint(seed), "seed {seed}");
    }
    assert_ne!(fingerprint(1).1, fingerprint(2).1, "different seeds give different runs");
}

/// Handovers while loads change for so many minutes, of three servers without faults.
fn handovers(pattern: Pattern, points: u32, minutes: u64) -> Vec<u64> {
    const SEED: u64 = 1;
    let noise = Some(Noise { pattern, points, minutes });
    let report = Cluster { noise, ..Cluster::new(3, Kinds::NONE) }.run(SEED, &mut ());
    assert_eq!(report.violation, None, "{report:#?}");
    let others = u64::from(report.leaders.changes) - report.handovers_us.len() as u64;
    assert_eq!(others, 1, "but for handovers nobody takes over: {report:#?}");
    tally::add("runs", 1);
    report.handovers_us
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
