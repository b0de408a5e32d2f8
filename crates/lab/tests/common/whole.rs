//! What the tests of all setups of whole servers do with a setup.

use std::fmt::Debug;

use primus_lab::checks::Report;
use primus_lab::invariants::repeatability::Fingerprint;
use primus_lab::setup::Setup;
use primus_lab::tally;

/// No run of these seeds violates anything.
pub(crate) fn check<S: Setup + Debug>(setup: &S, seeds: impl Iterator<Item = u64>) -> Vec<Report> {
    let reports: Vec<Report> = seeds.map(|seed| setup.run(seed, &mut ())).collect();
    for report in &reports {
        assert_eq!(report.violation, None, "{setup:?}, seed {}: {report:#?}", report.seed);
    }
    tally::add("runs", reports.len());
    reports
}

/// Each of these seeds gives the same run twice, bit for bit.
pub(crate) fn check_repeatable<S: Setup>(setup: &S, seeds: impl Iterator<Item = u64>) {
    let fingerprint = |seed| -> (Report, u64) {
        let mut fingerprint = Fingerprint::default();
        let report = setup.run(seed, &mut fingerprint);
        (report, fingerprint.number())
    };
    for seed in seeds {
        assert_eq!(fingerprint(seed), fingerprint(seed), "seed {seed}");
    }
    assert_ne!(fingerprint(1).1, fingerprint(2).1, "different seeds give different runs");
}
