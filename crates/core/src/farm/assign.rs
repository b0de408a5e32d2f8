//! Which worker gets the next task.
//!
//! Not simply the one with the lowest score: a score is as old as the last heartbeat, and everybody would run after it. The leader
//! counts what it handed out minus what came back, per slot, and gives the task to the freest; the score breaks ties and
//! keeps tasks away from overloaded hosts. The other rules are there to be compared with.
//!
//! A task goes in advance to a worker without a free slot only if no worker has one; of the rules that look at workers at all,
//! that is true of both. So an overloaded host is only the last of those with a free slot: it is kept from nothing that would
//! otherwise wait. It cannot be told apart from one that is simply full of our own tasks (ten of sixteen slots, all processors
//! busy), and slots that stay idle while tasks wait help neither.
//!
//! The laboratory's comparison calls the very same functions.

use crate::WorkerId;
use crate::load::{Load, Score, Weights};

/// The rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Rule {
    /// The freest, by what was handed out.
    #[default]
    Balanced,
    /// The lowest score that was heard of, in which tasks count that were handed out since.
    Score,
    /// One after the other, free or not.
    RoundRobin,
    /// Any of them, free or not.
    Random,
}

/// A worker that may get work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Who it is.
    pub worker: WorkerId,
    /// How many slots its tasks take, those in advance included.
    pub busy: u32,
    /// How many it has.
    pub slots: u32,
    /// How many slots' worth of tasks it may have in advance.
    pub ahead: u32,
    /// How many tasks it has, as far as the leader knows.
    pub tasks: u32,
    /// How loaded its host is, as last heard.
    pub load: Load,
}

/// A host with this score gets nothing as long as another one has a free slot.
pub const OVERLOADED: Score = Score::from_hundredths(9_500);

/// However many slots a worker has, it has no more in advance: it tells of all of them in one word ([`super::HELD_MAX`]).
const AHEAD_MAX: u32 = 1 << 15;

/// How many slots' worth of tasks a worker may have in advance: as much as keeps it busy for `ahead_us`, at least one task and at
/// most `ahead_max` for each slot. `task_us` is how long its tasks take, once one has ended.
#[must_use]
pub fn ahead(slots: u32, task_us: Option<u64>, ahead_us: u64, ahead_max: u32) -> u32 {
    let per_slot = task_us.map_or(1, |task_us| ahead_us / task_us.max(1));
    let per_slot = u32::try_from(per_slot).unwrap_or(u32::MAX).clamp(1, ahead_max);
    per_slot.saturating_mul(slots).min(AHEAD_MAX.max(slots))
}

impl Candidate {
    /// Does a task that takes so many slots fit, at once or in advance?
    #[must_use]
    pub const fn has_room(&self, need: u32) -> bool {
        self.slots >= need && self.busy + need <= self.slots + self.ahead
    }

    const fn is_full(&self, need: u32) -> bool {
        self.busy + need > self.slots
    }

    /// What was handed out since the score was told counts in it.
    fn score(&self, weights: Weights) -> Score {
        weights.score_with(self.load, self.tasks)
    }
}

impl Rule {
    /// The candidate that gets a task which takes `need` slots, if any has room. `turn` counts up with every task.
    pub fn choose(
        self,
        weights: Weights,
        need: u32,
        candidates: impl Iterator<Item = Candidate> + Clone,
        turn: u64,
    ) -> Option<WorkerId> {
        let candidates = candidates.filter(|candidate| candidate.has_room(need));
        let best = match self {
            Self::Balanced => {
                let scored = candidates.map(|candidate| (candidate, candidate.score(weights)));
                let best = scored.min_by(|(one, score), (other, other_score)| {
                    // Shares are compared crosswise, because there are no fractions here.
                    let share = |busy: u32, slots: u32| u64::from(busy) * u64::from(slots.max(1));
                    let (left, right) = (share(one.busy, other.slots), share(other.busy, one.slots));
                    let order = one.is_full(need).cmp(&other.is_full(need));
                    let order = order.then((*score >= OVERLOADED).cmp(&(*other_score >= OVERLOADED)));
                    order.then(left.cmp(&right)).then(score.cmp(other_score)).then(one.worker.cmp(&other.worker))
                });
                best.map(|(candidate, _)| candidate)
            }
            Self::Score => candidates
                .min_by_key(|candidate| (candidate.is_full(need), candidate.score(weights), candidate.worker)),
            Self::RoundRobin => one_of(candidates, turn),
            Self::Random => one_of(candidates, scattered(turn)),
        };
        best.map(|candidate| candidate.worker)
    }

    /// Is a task that waits in advance taken back when another worker has a free slot?
    #[must_use]
    pub const fn takes_back(self) -> bool {
        matches!(self, Self::Balanced | Self::Score)
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
        let load = Load { tasks: busy, ..Score::from_hundredths(score).into() };
        Candidate { worker: WorkerId(worker), busy, slots, ahead: 2 * slots, tasks: busy, load }
    }

    fn chosen(rule: Rule, candidates: &[Candidate]) -> Option<u64> {
        rule.choose(Weights::DEFAULT, 1, candidates.iter().copied(), 0).map(|WorkerId(worker)| worker)
    }

    #[test]
    fn the_freest_gets_it_and_scores_break_ties() {
        for (candidates, expected) in [
            ([candidate(1, 1, 1, 0), candidate(2, 1, 2, 9000)], 2),
            ([candidate(1, 1, 2, 5000), candidate(2, 2, 4, 4000)], 2),
            ([candidate(1, 0, 1, 0), candidate(2, 0, 1, 0)], 1),
            ([candidate(1, 2, 1, 0), candidate(2, 1, 1, 9000)], 2),
        ] {
            assert_eq!(chosen(Rule::Balanced, &candidates), Some(expected), "{candidates:?}");
        }
        assert_eq!(chosen(Rule::Balanced, &[]), None);
        assert_eq!(chosen(Rule::Balanced, &[candidate(1, 3, 1, 0)]), None, "no room, not even in advance");
    }

    #[test]
    fn an_overloaded_host_is_the_last_with_a_free_slot_and_before_those_without() {
        for (candidates, expected) in [
            ([candidate(1, 0, 4, 9600), candidate(2, 3, 4, 100)], 2),
            ([candidate(1, 10, 16, 9600), candidate(2, 4, 4, 100)], 1),
            ([candidate(1, 1, 1, 9600), candidate(2, 2, 1, 100)], 2),
            ([candidate(1, 1, 1, 9600), candidate(2, 2, 1, 9700)], 1),
        ] {
            assert_eq!(chosen(Rule::Balanced, &candidates), Some(expected), "{candidates:?}");
        }
    }

    /// All processors and three quarters of the memory in use, and ten tasks: with the usual weights.
    #[test]
    fn a_real_load_can_be_overloaded() {
        let usage = crate::load::Usage::Parts { cpu: Score::MAX, memory: Score::from_percent(75.0) };
        for (tasks, is_overloaded) in [(9, false), (10, true), (16, true)] {
            assert_eq!(Weights::DEFAULT.load(usage, tasks).score >= OVERLOADED, is_overloaded, "{tasks}");
        }
    }

    #[test]
    fn the_lowest_score_gets_it_but_never_a_full_worker_while_another_has_a_free_slot() {
        let full = candidate(2, 9, 9, 0);
        assert_eq!(chosen(Rule::Score, &[candidate(1, 0, 9, 5000), full, candidate(3, 0, 9, 4000)]), Some(3));
        assert_eq!(chosen(Rule::Score, &[candidate(1, 9, 9, 5000), full]), Some(2), "in advance");
    }

    #[test]
    fn what_was_handed_out_since_counts_in_a_score() {
        // Scenario 3 of the load-aware document: a score rises with every task that the leader gives it.
        let mut workers = [candidate(1, 0, 30, 2530), candidate(2, 0, 30, 3000), candidate(3, 0, 30, 4210)];
        let order: [u64; 6] = core::array::from_fn(|_| {
            let chosen = chosen(Rule::Score, &workers).expect("there is room");
            let worker = &mut workers[usize::try_from(chosen).unwrap() - 1];
            (worker.busy, worker.tasks) = (worker.busy + 1, worker.tasks + 1);
            chosen
        });
        assert_eq!(order, [1, 1, 2, 1, 2, 1]);
    }

    #[test]
    fn the_other_rules_do_what_they_say() {
        let candidates = [candidate(1, 0, 9, 5000), candidate(2, 8, 9, 4000), candidate(3, 0, 9, 6000)];
        let choose = |rule: Rule, turn| rule.choose(Weights::DEFAULT, 1, candidates.into_iter(), turn);
        assert_eq!(choose(Rule::Score, 0), Some(WorkerId(2)));
        let turns = [0, 1, 2, 3].map(|turn| choose(Rule::RoundRobin, turn).map(|id| id.0));
        assert_eq!(turns, [Some(1), Some(2), Some(3), Some(1)]);
        let mut drawn = [0; 3];
        for turn in 0..3000 {
            let chosen = choose(Rule::Random, turn).expect("there are candidates");
            drawn[usize::try_from(chosen.0).unwrap() - 1] += 1;
        }
        assert!(drawn.iter().all(|count| (900..1100).contains(count)), "{drawn:?}");
    }

    #[test]
    fn short_tasks_are_handed_out_in_advance_for_as_long_as_a_message_travels() {
        for (task_us, expected) in [(None, 4), (Some(1_000_000), 4), (Some(1_000), 60), (Some(0), 1024)] {
            assert_eq!(ahead(4, task_us, 15_000, 256), expected, "{task_us:?}");
        }
    }
}
