//! Writes that came while nobody could take them: between two leaders, or while leadership is handed over.
//!
//! They wait here for a moment, inside the loop, so that a server that begins to lead writes them together with its first
//! entry. That they can wait at all has a bound, in time and in size.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::budget::Weight;
use crate::handle::Reply;

/// How long a write waits: a failover takes less.
pub(crate) const PARKING_TIME: Duration = Duration::from_millis(200);
/// And this many round trips, where links are slower than a local network.
pub(crate) const PARKING_TRIPS: u32 = 4;
/// How many bytes may wait together.
const LEN_MAX: usize = 16 << 20;

/// A write that nobody has taken yet.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) number: u64,
    pub(crate) entries: Vec<Bytes>,
    /// Do they bring new content?
    pub(crate) grows: bool,
    /// When it came, as far as clients are concerned.
    pub(crate) since: Instant,
    pub(crate) reply: Reply<u64>,
    /// What it takes of the memory for writes, until it is answered.
    pub(crate) weight: Weight,
}

/// All of them, in the order in which they are given up.
#[derive(Debug, Default)]
pub(crate) struct PendingWrites {
    writes: VecDeque<(Instant, Write)>,
    len: usize,
}

impl PendingWrites {
    /// Keeps a write until then; gives it back if there is no time or no room.
    pub(crate) fn keep(&mut self, write: Write, until: Instant, now: Instant) -> Result<(), Write> {
        let len = write.len();
        if until <= now || self.len + len > LEN_MAX {
            return Err(write);
        }
        self.len += len;
        self.writes.push_back((until, write));
        Ok(())
    }

    /// When the first of them must be given up.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.writes.iter().map(|(until, _)| *until).min()
    }

    /// Those whose time is over.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<Write> {
        if self.due().is_none_or(|due| due > now) {
            return Vec::new();
        }
        let (due, waiting): (VecDeque<_>, _) =
            std::mem::take(&mut self.writes).into_iter().partition(|(until, _)| *until <= now);
        self.writes = waiting;
        self.len = self.writes.iter().map(|(_, write)| write.len()).sum();
        due.into_iter().map(|(_, write)| write).collect()
    }

    /// All of them, in the order in which they came.
    pub(crate) fn take(&mut self) -> Vec<Write> {
        self.len = 0;
        std::mem::take(&mut self.writes).into_iter().map(|(_, write)| write).collect()
    }
}

impl Write {
    fn len(&self) -> usize {
        self.entries.iter().map(Bytes::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::budget::Budget;

    fn write(number: u64, len: usize, now: Instant) -> Write {
        let (reply, _) = oneshot::channel();
        let weight = Budget::new(1).add(1);
        Write { number, entries: vec![vec![0; len].into()], grows: true, since: now, reply, weight }
    }

    fn numbers(writes: Vec<Write>) -> Vec<u64> {
        writes.into_iter().map(|write| write.number).collect()
    }

    #[tokio::test]
    async fn writes_wait_for_their_time_and_no_longer() {
        let now = Instant::now();
        let at = |milliseconds| now + Duration::from_millis(milliseconds);
        let mut parked = PendingWrites::default();
        for (number, until) in [(1, 30), (2, 10), (3, 20)] {
            assert!(parked.keep(write(number, 1, now), at(until), now).is_ok());
        }
        assert!(parked.keep(write(4, 1, now), now, now).is_err(), "there is no time left");
        assert_eq!(parked.due(), Some(at(10)));
        assert_eq!(numbers(parked.take_due(at(20))), [2, 3]);
        assert_eq!(numbers(parked.take()), [1]);
        assert_eq!(parked.due(), None);
    }

    #[tokio::test]
    async fn there_is_a_bound_on_what_waits() {
        let now = Instant::now();
        let until = now + PARKING_TIME;
        let mut parked = PendingWrites::default();
        assert!(parked.keep(write(1, LEN_MAX, now), until, now).is_ok());
        assert!(parked.keep(write(2, 1, now), until, now).is_err());
        parked.take_due(until);
        assert!(parked.keep(write(3, 1, now), until, now).is_ok(), "there is room again");
    }
}
