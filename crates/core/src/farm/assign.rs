//! Which worker gets the next task.
//!
//! Not the one with the lowest score: a score is as old as the last heartbeat, and everybody would run after it. The leader
//! counts what it handed out minus what came back, per slot, and gives the task to the freest; the score breaks ties and
//! keeps tasks away from hosts that are overloaded by others. The other rules are there to be compared with.

use crate::NodeId;
use crate::load::Score;

/// The rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Rule {
    /// The freest, by what was handed out.
    #[default]
    Balanced,
    /// The lowest score that was heard of, whatever was handed out since.
    Score,
    /// One after the other.
    RoundRobin,
    /// Any of them.
    Random,
}

/// A worker that could take the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Who it is.
    pub worker: NodeId,
    /// How many slots its tasks take.
    pub busy: u32,
    /// How many it has.
    pub slots: u32,
    /// How loaded its host is, as last heard.
    pub score: Score,
}

/// A host with this score gets nothing as long as another one has room.
pub const OVERLOADED: Score = Score::from_hundredths(9_500);

impl Rule {
    /// The candidate that gets the task. `turn` counts up with every task.
    pub fn choose(self, candidates: impl Iterator<Item = Candidate> + Clone, turn: u64) -> Option<NodeId> {
        let best = match self {
            Self::Balanced => candidates.min_by(|one, other| {
                // Shares are compared crosswise, because there are no fractions here.
                let share = |busy: u32, slots: u32| u64::from(busy) * u64::from(slots.max(1));
                let (left, right) = (share(one.busy, other.slots), share(other.busy, one.slots));
                let veto = |candidate: &Candidate| candidate.score >= OVERLOADED;
                let order = veto(one).cmp(&veto(other)).then(left.cmp(&right));
                order.then(one.score.cmp(&other.score)).then(one.worker.cmp(&other.worker))
            }),
            Self::Score => candidates.min_by_key(|candidate| (candidate.score, candidate.worker)),
            Self::RoundRobin => one_of(candidates, turn),
            Self::Random => one_of(candidates, scattered(turn)),
        };
        best.map(|candidate| candidate.worker)
    }
}

fn one_of(mut candidates: impl Iterator<Item = Candidate> + Clone, number: u64) -> Option<Candidate> {
    let count = candidates.clone().count().max(1) as u64;
    candidates.nth(usize::try_from(number % count).unwrap_or(0))
}

/// Nothing here draws random numbers; the turns, well mixed (`SplitMix64`), are as good.
const fn scattered(turn: u64) -> u64 {
    let mixed = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(worker: u64, busy: u32, slots: u32, score: u32) -> Candidate {
        Candidate { worker: NodeId(worker), busy, slots, score: Score::from_hundredths(score) }
    }

    #[test]
    fn the_freest_gets_it_and_scores_break_ties() {
        for (candidates, expected) in [
            ([candidate(1, 1, 1, 0), candidate(2, 1, 2, 9000)], 2),
            ([candidate(1, 1, 2, 5000), candidate(2, 2, 4, 4000)], 2),
            ([candidate(1, 0, 1, 9600), candidate(2, 5, 1, 100)], 2),
            ([candidate(1, 3, 1, 9600), candidate(2, 5, 1, 9700)], 1),
            ([candidate(1, 0, 1, 0), candidate(2, 0, 1, 0)], 1),
        ] {
            assert_eq!(Rule::Balanced.choose(candidates.into_iter(), 0), Some(NodeId(expected)), "{candidates:?}");
        }
        assert_eq!(Rule::Balanced.choose([].into_iter(), 0), None);
    }

    #[test]
    fn the_other_rules_do_what_they_say() {
        let candidates = [candidate(1, 0, 9, 5000), candidate(2, 8, 9, 4000), candidate(3, 0, 9, 6000)];
        assert_eq!(Rule::Score.choose(candidates.into_iter(), 0), Some(NodeId(2)));
        let turns = [0, 1, 2, 3].map(|turn| Rule::RoundRobin.choose(candidates.into_iter(), turn).map(|id| id.0));
        assert_eq!(turns, [Some(1), Some(2), Some(3), Some(1)]);
        let mut drawn = [0; 3];
        for turn in 0..3000 {
            let chosen = Rule::Random.choose(candidates.into_iter(), turn).expect("there are candidates");
            drawn[usize::try_from(chosen.0).unwrap() - 1] += 1;
        }
        assert!(drawn.iter().all(|count| (900..1100).contains(count)), "{drawn:?}");
    }
}
