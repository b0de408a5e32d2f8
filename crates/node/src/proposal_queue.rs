//! Records that wait to be proposed, in their order.
//!
//! A long batch has many, and proposing all of them at once would take the control thread longer than it may; so each turn
//! takes some. They must not overtake each other: a batch is one only if its pieces stay together. What the replica does not
//! take for the moment, because leadership is being handed over or too much is under way, waits a little.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

/// How many bytes are proposed in one turn; a single record may have more.
const TURN_LEN_MAX: usize = 1 << 20;
/// How long records wait that were not taken.
const AGAIN: Duration = Duration::from_millis(1);

/// What waits.
#[derive(Debug, Default)]
pub(crate) struct ProposalQueue {
    records: VecDeque<Bytes>,
    not_before: Option<Instant>,
}

impl ProposalQueue {
    /// These come last.
    pub(crate) fn add(&mut self, records: Vec<Bytes>) {
        self.records.extend(records);
    }

    /// When there is something to be proposed.
    pub(crate) fn due(&self) -> Option<Instant> {
        (!self.records.is_empty()).then(|| self.not_before.unwrap_or_else(Instant::now))
    }

    /// What is to be proposed in this turn.
    pub(crate) fn take(&mut self, now: Instant) -> Vec<Bytes> {
        if self.not_before.is_some_and(|until| now < until) {
            return Vec::new();
        }
        self.not_before = None;
        let mut len = 0;
        let fits = |record: &&Bytes| {
            len += record.len();
            len <= TURN_LEN_MAX
        };
        let count = self.records.iter().take_while(fits).count().max(1);
        self.records.drain(..count.min(self.records.len())).collect()
    }

    /// These were not taken, and come first.
    pub(crate) fn put_back(&mut self, records: Vec<Bytes>, now: Instant) {
        records.into_iter().rev().for_each(|record| self.records.push_front(record));
        self.not_before = Some(now + AGAIN);
    }

    /// Nobody wants them any more.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(lengths: &[usize]) -> Vec<Bytes> {
        lengths.iter().map(|len| vec![7; *len].into()).collect()
    }

    #[test]
    fn each_turn_takes_some_and_the_order_stays() {
        let (mut entering, now) = (ProposalQueue::default(), Instant::now());
        assert_eq!((entering.due(), entering.take(now).len()), (None, 0));
        entering.add(records(&[1, TURN_LEN_MAX - 1, 2]));
        entering.add(records(&[TURN_LEN_MAX + 1, 3]));
        assert_eq!(entering.take(now), records(&[1, TURN_LEN_MAX - 1]));
        let second = entering.take(now);
        entering.put_back(second, now);
        assert_eq!(entering.due(), Some(now + AGAIN));
        assert_eq!(entering.take(now).len(), 0, "it waits");
        let later = now + AGAIN;
        assert_eq!(entering.take(later), records(&[2]));
        assert_eq!(entering.take(later), records(&[TURN_LEN_MAX + 1]));
        assert_eq!(entering.take(later), records(&[3]));
        assert_eq!(entering.due(), None);
    }
}
