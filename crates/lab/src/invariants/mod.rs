//! What must be true of every election, one property per file.
//!
//! Each property looks at the [`Evidence`] of a run and says whether it holds, or nothing where it does not apply: a
//! property that does not apply is left out, never false. Without a quorum an election is safe under synchrony only,
//! so uniqueness, agreement and correctness are judged after the faults have ended and the election has settled.

pub mod agreement;
pub mod correctness;
pub mod fixed_rank;
pub mod message_bound;
pub mod repeatability;
pub mod termination;
pub mod uniqueness;

use std::collections::BTreeMap;

use primus_core::ServerId;

use crate::properties::properties;
use crate::simulate::Outcome;
use message_bound::Bound;

properties! {
    /// A property of an election.
    Termination "termination" "every live node knows a leader";
    Uniqueness "uniqueness" "exactly one node leads";
    Agreement "agreement" "all live nodes name the same leader";
    Correctness "correctness" "the leader is the best-ranked live node";
    MessageBound "message_bound" "it took no more messages than the algorithm needs";
    FixedRank "fixed_rank" "no rank changed within a round";
}

/// What is known of a run when it is judged.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// What the run came to.
    pub outcome: &'a Outcome,
    /// Did all faults end? A partition that stays is a fault that does not.
    pub faults_ended: bool,
    /// Who should lead, where that is determined.
    pub best: Option<ServerId>,
    /// How many messages the algorithm needs at most, in a run without faults.
    pub bound: Option<Bound>,
    /// Ranks that changed within a round, where ranks can change at all.
    pub changed_ranks: Option<u64>,
}

/// Every property that applies, and whether it holds.
#[must_use]
pub fn judge(evidence: &Evidence<'_>) -> BTreeMap<Property, bool> {
    let judgements = [
        (Property::Termination, termination::holds(evidence)),
        (Property::Uniqueness, uniqueness::holds(evidence)),
        (Property::Agreement, agreement::holds(evidence)),
        (Property::Correctness, correctness::holds(evidence)),
        (Property::MessageBound, message_bound::holds(evidence)),
        (Property::FixedRank, fixed_rank::holds(evidence)),
    ];
    judgements.into_iter().filter_map(|(property, holds)| Some((property, holds?))).collect()
}
