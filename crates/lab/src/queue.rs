//! The queue of future events: earliest first, and first in, first out among events of the same moment.
//!
//! A radix heap. Virtual time never runs backwards, so an event only ever moves towards the front: it sits in the
//! bucket of the highest bit in which its time differs from now, and moves at most once per bit. That is several
//! times faster than a binary heap when a million timers wait far in the future.

use std::collections::VecDeque;

/// Events ordered by time.
#[derive(Debug)]
pub struct Queue<T> {
    now: u64,
    /// What happens at `now`.
    due: VecDeque<T>,
    /// `later[b]` holds the events whose time differs from `now` in bit `b` and in no higher one.
    later: Vec<Vec<(u64, T)>>,
    /// Which of `later` hold anything.
    filled: u64,
}

impl<T> Queue<T> {
    /// An empty queue at time 0.
    #[must_use]
    pub fn new() -> Self {
        Self { now: 0, due: VecDeque::new(), later: (0..64).map(|_| Vec::new()).collect(), filled: 0 }
    }

    /// Adds an event. A time that has passed counts as now.
    pub fn push(&mut self, at: u64, event: T) {
        let at = at.max(self.now);
        match (at ^ self.now).checked_ilog2() {
            None => self.due.push_back(event),
            Some(bit) => {
                self.later[bit as usize].push((at, event));
                self.filled |= 1 << bit;
            }
        }
    }

    /// Takes the earliest event and moves the time to it.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        if self.due.is_empty() {
            self.advance();
        }
        self.due.pop_front().map(|event| (self.now, event))
    }

    /// Moves the time to the earliest event and deals its bucket out again, in order, so that events of one moment
    /// keep the order in which they came.
    fn advance(&mut self) {
        if self.filled == 0 {
            return;
        }
        let first = self.filled.trailing_zeros() as usize;
        self.filled &= !(1 << first);
        let mut bucket = std::mem::take(&mut self.later[first]);
        self.now = bucket.iter().map(|&(at, _)| at).min().expect("a filled bucket holds something");
        for (at, event) in bucket.drain(..) {
            self.push(at, event);
        }
        // Keep the memory for the next events of this bucket.
        self.later[first] = bucket;
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // The slow twin: sort by time, stable.
        #[test]
        fn gives_events_in_the_order_of_a_stable_sort(steps in prop::collection::vec((0u64..5000, 0usize..4), 0..300)) {
            let mut queue = Queue::new();
            let mut twin: Vec<(u64, usize)> = Vec::new();
            let mut now = 0;
            for (number, (delay, pops)) in steps.into_iter().enumerate() {
                queue.push(now + delay, number);
                twin.push((now + delay, number));
                for _ in 0..pops {
                    let earliest = twin.iter().enumerate().min_by_key(|(place, (at, _))| (*at, *place));
                    let expected = earliest.map(|(place, _)| place).map(|place| twin.remove(place));
                    prop_assert_eq!(queue.pop(), expected);
                    now = expected.map_or(now, |(at, _)| at);
                }
            }
            twin.sort_by_key(|&(at, _)| at);
            prop_assert_eq!(std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>(), twin);
        }
    }

    #[test]
    fn a_time_that_has_passed_counts_as_now() {
        let mut queue = Queue::new();
        queue.push(10, 'a');
        assert_eq!(queue.pop(), Some((10, 'a')));
        queue.push(3, 'b');
        assert_eq!(queue.pop(), Some((10, 'b')));
    }
}
