//! In which order tasks ended, in few bytes.
//!
//! Tasks of one job that ended one after the other at the same time are one stretch: a cancelled array of millions takes no more
//! room than its first task. The first and the last stretch are kept as they are; of each of those in between only what changes
//! from the end of the one before it, in a form in which a small number takes one byte.
//!
//! On disk there are no stretches but single tasks, as all releases have written them.

use alloc::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::job::JobId;

/// All tasks that have ended and have not been forgotten, in the order in which they did.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(from = "disk::Order", into = "disk::Order")]
pub(super) struct Order {
    first: Option<Stretch>,
    /// For each stretch but the first, the step from the end of the one before; for each stretch between the first and the last, then
    /// by how much its last task is further than its first.
    steps: VecDeque<u8>,
    /// The last stretch, if there are two.
    last: Option<Stretch>,
    /// How many tasks all stretches have.
    count: u64,
}

/// Tasks that ended at the same time, one behind the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Stretch {
    pub(super) time_ms: u64,
    pub(super) job: JobId,
    /// The place of the first task.
    pub(super) first: u64,
    /// The place of the last one.
    pub(super) last: u64,
}

impl Order {
    /// How many tasks there are.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// How many bytes it takes beside itself.
    pub(super) fn len_bytes(&self) -> u64 {
        self.steps.len() as u64
    }

    /// Those that ended first.
    pub(super) const fn first(&self) -> Option<Stretch> {
        self.first
    }

    /// Those that ended last.
    pub(super) fn last(&self) -> Option<Stretch> {
        self.last.or(self.first)
    }

    /// These have ended. If they go on where the last stretch ends, they become part of it, so the same tasks in the same order
    /// are always kept in the same way.
    pub(super) fn push(&mut self, stretch: Stretch) {
        self.count = self.count.saturating_add(stretch.len());
        let Some(newest) = self.last.as_mut().or(self.first.as_mut()) else {
            self.first = Some(stretch);
            return;
        };
        if newest.is_followed_by(stretch) {
            newest.last = stretch.last;
            return;
        }
        let end = newest.end();
        if let Some(finished) = self.last.replace(stretch) {
            put_number(&mut self.steps, finished.last - finished.first);
        }
        let steps = end.into_iter().zip(stretch.start());
        steps.for_each(|(from, to)| put_step(&mut self.steps, to.wrapping_sub(from)));
    }

    /// Takes out those that ended first: one stretch, or as much of it as is asked for, and always at least one task.
    pub(super) fn pop(&mut self, most: u64) -> Option<Stretch> {
        let first = self.first.as_mut()?;
        let stretch = Stretch { last: first.last.min(first.first.saturating_add(most.max(1) - 1)), ..*first };
        self.count = self.count.saturating_sub(stretch.len());
        if stretch.last < first.last {
            first.first = stretch.last + 1;
        } else {
            self.first = self.next_after(stretch);
        }
        Some(stretch)
    }

    fn next_after(&mut self, before: Stretch) -> Option<Stretch> {
        let [time_ms, job, index] = before.end();
        let mut next = |from: u64| Some(from.wrapping_add(take_step(&mut self.steps)?));
        let (time_ms, job, first) = (next(time_ms)?, JobId(next(job)?), next(index)?);
        // How long the last one is is not written down, because it may grow.
        match number(|| self.steps.pop_front()) {
            Some(more) => Some(Stretch { time_ms, job, first, last: first.saturating_add(more) }),
            None => self.last.take(),
        }
    }
}

impl Stretch {
    /// How many tasks it has.
    pub(super) const fn len(self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }

    fn is_followed_by(self, next: Self) -> bool {
        self.time_ms == next.time_ms && self.job == next.job && self.last.checked_add(1) == Some(next.first)
    }

    const fn start(self) -> [u64; 3] {
        [self.time_ms, self.job.0, self.first]
    }

    const fn end(self) -> [u64; 3] {
        [self.time_ms, self.job.0, self.last]
    }
}

/// A small step takes a byte, whether it goes up or down.
fn put_step(steps: &mut VecDeque<u8>, step: u64) {
    let is_down = step >> 63;
    put_number(steps, (step << 1) ^ is_down.wrapping_neg());
}

fn take_step(steps: &mut VecDeque<u8>) -> Option<u64> {
    let folded = number(|| steps.pop_front())?;
    Some((folded >> 1) ^ (folded & 1).wrapping_neg())
}

/// Writes a number down in as many bytes as it needs: seven bits to a byte, the least first; the eighth says whether more follow.
fn put_number(bytes: &mut VecDeque<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.extend([number as u8 | 0x80]);
        number >>= 7;
    }
    bytes.extend([number as u8]);
}

/// Reads a number; nothing if the bytes end before it does, or it is too long.
fn number(mut next: impl FnMut() -> Option<u8>) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = next()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// The form on disk: the first and the last task, and what changes from each to the next.
mod disk {
    use alloc::collections::VecDeque;

    use super::{Stretch, put_step, take_step};
    use crate::ledger::job::JobId;
    use crate::ledger::task::TaskId;

    #[derive(serde::Serialize, serde::Deserialize)]
    pub(super) struct Order {
        first: Option<Ended>,
        last: Option<Ended>,
        steps: VecDeque<u8>,
        count: usize,
    }

    #[derive(Clone, Copy, serde::Serialize, serde::Deserialize)]
    struct Ended {
        time_ms: u64,
        task: TaskId,
    }

    impl From<super::Order> for Order {
        fn from(mut order: super::Order) -> Self {
            let mut all = Self { first: None, last: None, steps: VecDeque::new(), count: 0 };
            while let Some(stretch) = order.pop(u64::MAX) {
                (stretch.first..=stretch.last)
                    .for_each(|index| all.push(Stretch { first: index, last: index, ..stretch }));
            }
            all
        }
    }

    impl From<Order> for super::Order {
        fn from(mut all: Order) -> Self {
            let mut order = Self::default();
            let mut next = all.first.map(Ended::fields);
            while let Some([time_ms, job, index]) = next {
                order.push(Stretch { time_ms, job: JobId(job), first: index, last: index });
                next = all.next_after([time_ms, job, index]);
            }
            order
        }
    }

    impl Order {
        fn push(&mut self, one: Stretch) {
            let ended = Ended { time_ms: one.time_ms, task: TaskId { job: one.job, index: one.first } };
            self.count += 1;
            match self.last.replace(ended) {
                None => self.first = Some(ended),
                Some(before) => {
                    let steps = before.fields().into_iter().zip(ended.fields());
                    steps.for_each(|(from, to)| put_step(&mut self.steps, to.wrapping_sub(from)));
                }
            }
        }

        fn next_after(&mut self, before: [u64; 3]) -> Option<[u64; 3]> {
            let mut next = |from: u64| Some(from.wrapping_add(take_step(&mut self.steps)?));
            let [time_ms, job, index] = before;
            Some([next(time_ms)?, next(job)?, next(index)?])
        }
    }

    impl Ended {
        const fn fields(self) -> [u64; 3] {
            [self.time_ms, self.task.job.0, self.task.index]
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn stretch(time_ms: u64, job: u64, first: u64, last: u64) -> Stretch {
        Stretch { time_ms, job: JobId(job), first, last }
    }

    fn singles(stretches: &[Stretch]) -> Vec<Stretch> {
        let single = |stretch: &Stretch| {
            let stretch = *stretch;
            (stretch.first..=stretch.last).map(move |index| Stretch { first: index, last: index, ..stretch })
        };
        stretches.iter().flat_map(single).collect()
    }

    fn order(stretches: &[Stretch]) -> Order {
        let mut order = Order::default();
        stretches.iter().for_each(|stretch| order.push(*stretch));
        order
    }

    fn all_of(mut order: Order) -> Vec<Stretch> {
        core::iter::from_fn(|| order.pop(u64::MAX)).collect()
    }

    #[test]
    fn millions_that_ended_together_take_no_room() {
        let mut order = order(&[stretch(1, 1, 1, 1), stretch(2, 2, 1, 4_000_000), stretch(3, 2, 1, 1)]);
        assert_eq!(order.count(), 4_000_002);
        assert!(order.len_bytes() < 20);
        assert_eq!(order.pop(1), Some(stretch(1, 1, 1, 1)));
        assert_eq!(order.pop(1_000_000), Some(stretch(2, 2, 1, 1_000_000)));
        assert_eq!((order.first(), order.count()), (Some(stretch(2, 2, 1_000_001, 4_000_000)), 3_000_001));
        assert_eq!(all_of(order).len(), 2);
    }

    proptest! {
        /// Jobs and times are few, so that neighbours are often neighbours.
        #[test]
        fn stretches_are_kept_as_single_tasks_would_be(
            stretches in prop::collection::vec((0..2_u64, 0..2_u64, 0..9_u64, 0..4_u64), 0..20),
            taken in prop::collection::vec(0..5_u64, 0..10),
        ) {
            let stretches: Vec<Stretch> = stretches.into_iter().map(|(time, job, first, more)| stretch(time, job, first, first + more)).collect();
            let (mut whole, mut single) = (order(&stretches), order(&singles(&stretches)));
            prop_assert_eq!(&whole, &single);
            let mut left = singles(&stretches);
            for most in taken {
                let popped = whole.pop(most);
                let popped: Vec<Stretch> = singles(popped.as_slice());
                popped.iter().for_each(|one| assert_eq!(single.pop(1), Some(*one)));
                prop_assert_eq!(&left[..popped.len()], &popped[..]);
                left.drain(..popped.len());
                prop_assert_eq!(&whole, &single);
                prop_assert_eq!(&whole, &order(&left), "what is left is kept as if nothing had been before it");
                prop_assert_eq!(whole.count(), left.len() as u64);
            }
            prop_assert_eq!(singles(&all_of(whole)), left);
        }
    }
}
