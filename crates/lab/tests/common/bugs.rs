//! The tester tested: a planted bug must be found within a bounded number of seeds. Without it the same seeds must all pass.

use primus_core::planted::{Bug, Planted};
use primus_lab::setup::Setup;
use primus_lab::tally;

/// In the runs of a setup.
pub(crate) fn must_find_in<S: Setup>(bug: Bug, seeds_max: u64, setup: impl Fn(Planted) -> S) {
    must_find(bug, seeds_max, |planted, seed| {
        let violation = setup(planted).run(seed, &mut ()).violation?;
        Some(format!("{}: {}", violation.property.name(), violation.what))
    });
}

/// What a seed violates, with and without the bug.
pub(crate) fn must_find(bug: Bug, seeds_max: u64, violation: impl Fn(Planted, u64) -> Option<String>) {
    let found = (0..seeds_max).find_map(|seed| Some((seed, violation(Planted::the(bug), seed)?)));
    let (last, violated) = found.unwrap_or_else(|| panic!("{bug:?} was not found"));
    for seed in 0..=last {
        assert_eq!(violation(Planted::NONE, seed), None, "seed {seed} without {bug:?}");
    }
    println!("{bug:?} violates {violated} at seed {last}");
    tally::add("planted", 1);
}
