//! Visits every state of small settings.
//!
//! In synchronous time everything must hold of elections. In asynchronous time two leaders must be found; the way there is kept
//! as a story, which `PRIMUS_REWRITE=1` writes anew. Whole servers, leases, loans and guests must be safe in any kind of time.

mod elections;
mod founding;
mod guests;
mod leases;
mod loans;
mod servers;

use primus_core::planted::Bug;
use primus_explore::frame::{Broken, Exploration, Milestone, Setting};
use primus_lab::tally;

fn visit<S: Setting>(name: &str, exploration: Exploration<S>, milestones: &'static [Milestone]) {
    let states = exploration.by_way_of(milestones).visit().unwrap_or_else(|broken| panic!("{name}: {broken}"));
    println!("{name}: {states} states");
    tally::add("states", states);
}

/// The tester tested: a planted bug must break something.
fn must_break(bug: Bug, result: Result<usize, Broken>) {
    match result {
        Ok(states) => panic!("{bug:?} was not found in {states} states"),
        Err(broken) => println!("{bug:?}: {broken}"),
    }
    tally::add("planted", 1);
}
