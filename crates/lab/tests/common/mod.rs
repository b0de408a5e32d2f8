//! The elections that the run tests and the planted bugs share.

use std::collections::BTreeMap;
use std::sync::Arc;

use primus_core::ServerId;
use primus_core::election::bully;
use primus_core::election::ring::{self, Winner};
use primus_core::rank::RankBy;
use primus_lab::experiment::{Contest, DELAY, Experiment, Starts, tuned_bully, tuned_ring};

/// A cold start of this many nodes under all faults. By address they are 172.18.0.8, .9, .10, …
pub(crate) fn bully(rank_by: RankBy, nodes: u64, change: impl Fn(&mut bully::Rules)) -> Experiment {
    let ids = (1..=nodes).map(ServerId);
    let address = |id: ServerId| (id, format!("172.18.0.{}", 7 + id.0).parse().expect("an address"));
    let mut rules = match rank_by {
        RankBy::Id => bully::Rules::by_id(ids),
        RankBy::Load => bully::Rules::by_load(ids),
        RankBy::Address => bully::Rules::by_address(ids.map(address)),
    };
    change(&mut rules);
    let contest = Contest::Bully { rules: Arc::new(tuned_bully(rules, DELAY)), scores: BTreeMap::new() };
    Experiment { all_faults: true, ..Experiment::new(contest, Starts::Cold) }
}

/// A cold start of a ring of this many members, in no particular order, under all faults.
pub(crate) fn ring(winner: Winner, members: u64, change: impl Fn(&mut ring::Rules)) -> Experiment {
    let members: Arc<[ServerId]> = (1..=members).map(|id| ServerId(1 + id * 37 % 101)).collect();
    let mut rules = ring::Rules::new(winner, members.len());
    change(&mut rules);
    let rules = Arc::new(tuned_ring(rules, members.len(), DELAY));
    Experiment { all_faults: true, ..Experiment::new(Contest::Ring { members, rules }, Starts::Cold) }
}
