//! Seeded runs under all faults: nothing may be violated. `PRIMUS_RUNS` says how many seeds per machine,
//! `PRIMUS_SEED_OFFSET` where they begin.

mod common;
#[path = "common/seeds.rs"]
mod seeds;

use common::{bully, ring};
use primus_core::election::bully::Asking;
use primus_core::election::ring::Winner;
use primus_core::rank::RankBy;
use primus_lab::experiment::{Experiment, Report};
use primus_lab::invariants::repeatability::Fingerprint;
use primus_lab::tally;
use seeds::seeds;

fn check(name: &str, experiment: &Experiment) {
    for seed in seeds(50) {
        let report = experiment.run(seed, &mut ());
        assert!(
            report.violation().is_none(),
            "{name}, seed {seed}: {:?} violated\n{report:#?}",
            report.violation()
        );
    }
    tally::add("runs", seeds(50).count());
}

#[test]
fn bully_by_id_survives_all_faults() {
    check("bully by id", &bully(RankBy::Id, 5, |_| {}));
}

#[test]
fn bully_by_address_survives_all_faults() {
    check("bully by address", &bully(RankBy::Address, 4, |_| {}));
}

#[test]
fn bully_by_load_survives_all_faults() {
    check("bully by load", &bully(RankBy::Load, 5, |_| {}));
}

#[test]
fn bully_by_load_with_preemption_survives_all_faults() {
    check("bully by load, preempt", &bully(RankBy::Load, 4, |rules| rules.preempt = true));
}

#[test]
fn bully_one_by_one_survives_all_faults() {
    check("bully one by one", &bully(RankBy::Id, 4, |rules| rules.asking = Asking::OneByOne));
}

#[test]
fn bully_without_preemption_survives_all_faults() {
    check("bully, no preempt", &bully(RankBy::Id, 5, |rules| rules.preempt = false));
}

#[test]
fn bully_of_ten_survives_all_faults() {
    check("bully of ten", &bully(RankBy::Id, 10, |_| {}));
}

#[test]
fn ring_of_the_lowest_survives_all_faults() {
    check("ring lowest", &ring(Winner::Lowest, 5, |_| {}));
}

#[test]
fn ring_of_the_highest_survives_all_faults() {
    check("ring highest", &ring(Winner::Highest, 7, |_| {}));
}

#[test]
fn ring_without_preemption_survives_all_faults() {
    check("ring, no preempt", &ring(Winner::Lowest, 4, |rules| rules.preempt = false));
}

#[test]
fn the_same_seed_gives_the_same_run_bit_for_bit() {
    for experiment in [bully(RankBy::Load, 5, |_| {}), ring(Winner::Lowest, 5, |_| {})] {
        let fingerprint = |seed| -> (Report, u64) {
            let mut fingerprint = Fingerprint::default();
            let report = experiment.run(seed, &mut fingerprint);
            (report, fingerprint.number())
        };
        for seed in seeds(50) {
            assert_eq!(fingerprint(seed), fingerprint(seed), "seed {seed}");
        }
        assert_ne!(fingerprint(1).1, fingerprint(2).1, "different seeds give different runs");
    }
}
