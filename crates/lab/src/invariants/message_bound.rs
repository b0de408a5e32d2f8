//! Message bounds: how many messages an election may take when nothing goes wrong.
//!
//! Ring over AMQP promises "at most 2n steps" and "O(n²) messages" in the same breath. The bounds that are true: with
//! one initiator at most 2n-1 ELECTION messages (n-1 to reach the winner, n to come back to it), with any initiators at
//! most n(n+1)/2 (each id travels at most to the next better one), and in both cases exactly n ELECTED.

use primus_core::election::MessageKind::{Alive, Coordinator, Elected, Election};

use super::Evidence;
use crate::simulate::Counts;

/// What is known of the election before it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// A ring of `n` members.
    Ring {
        /// Members.
        n: u64,
        /// Does exactly one member start?
        is_single: bool,
    },
    /// A Bully election of `n` nodes.
    Bully {
        /// Nodes.
        n: u64,
        /// Does everybody know everybody's rank?
        ranks_known: bool,
        /// Does the best node start, and nobody else?
        best_starts: bool,
        /// Is one peer asked at a time?
        one_by_one: bool,
    },
}

/// Applies to runs without faults.
#[must_use]
pub fn holds(evidence: &Evidence<'_>) -> Option<bool> {
    let bound = evidence.bound.filter(|_| !evidence.outcome.disturbed)?;
    Some(is_within(bound, &evidence.outcome.messages))
}

fn is_within(bound: Bound, sent: &Counts) -> bool {
    match bound {
        Bound::Ring { n, is_single } => {
            let most = if is_single { 2 * n - 1 } else { n * (n + 1) / 2 };
            sent.of(Election) <= most && sent.of(Elected) == n
        }
        Bound::Bully { n, best_starts: true, ranks_known: true, .. } => {
            sent.of(Election) == 0 && sent.of(Alive) == 0 && sent.of(Coordinator) == n - 1
        }
        Bound::Bully { n, ranks_known, one_by_one, .. } => {
            // Who knows all ranks asks the best alone, or those that rank better; who does not may have to ask everybody.
            let questions = match (ranks_known, one_by_one) {
                (true, true) => n - 1,
                (true, false) => n * (n - 1) / 2,
                (false, _) => n * (n - 1),
            };
            // Each question gets one answer at most; a leader answers by announcing itself once more.
            let answers = sent.of(Alive) + sent.of(Coordinator).saturating_sub(n - 1);
            sent.of(Election) <= questions && answers <= sent.of(Election) && sent.of(Coordinator) >= n - 1
        }
    }
}
