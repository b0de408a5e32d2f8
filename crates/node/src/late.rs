//! What arrives on a link that is slow on purpose: it waits, in order, for as long as it would have travelled.
//!
//! It waits where it arrives, so that what a process said before it died still arrives, as on a real network. There is a
//! bound; beyond it nothing is read from the link, and whoever writes to it has to wait, as on a network that is full.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// How many messages may be on their way.
const LATE_LEN_MAX: usize = 8192;

/// Messages on their way, the next one first.
#[derive(Debug)]
pub(crate) struct Late<T>(VecDeque<(Instant, T)>);

impl<T> Default for Late<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Late<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.0.len() < LATE_LEN_MAX
    }

    /// Gives the message back if it need not wait. It never overtakes another one, not even if links are fast again.
    pub(crate) fn keep(&mut self, message: T, delay: Duration, now: Instant) -> Option<T> {
        if delay.is_zero() && self.is_empty() {
            return Some(message);
        }
        let due = now + delay;
        let last = self.0.back().map_or(due, |(last, _)| *last);
        self.0.push_back((due.max(last), message));
        None
    }

    /// The next message, once it is there; never, if none is on its way. It loses nothing if nobody waits for it any more.
    pub(crate) async fn next(&mut self) -> T {
        match self.0.front() {
            Some((due, _)) => sleep_until(*due).await,
            None => std::future::pending().await,
        }
        self.0.pop_front().expect("it was there").1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(75);

    #[test]
    fn what_is_delayed_waits_and_nothing_overtakes_it() {
        let (mut late, now) = (Late::default(), Instant::now());
        assert_eq!(late.keep(0, Duration::ZERO, now), Some(0), "a fast link holds nothing back");
        assert_eq!(late.keep(1, DELAY, now), None);
        let later = now + Duration::from_millis(1);
        assert_eq!(late.keep(2, Duration::ZERO, later), None, "it would overtake the one before");
        assert_eq!(late.keep(3, DELAY, later), None);
        assert_eq!(late.0, [(now + DELAY, 1), (now + DELAY, 2), (later + DELAY, 3)]);
    }

    #[test]
    fn there_is_a_bound() {
        let mut late = Late::default();
        (0..LATE_LEN_MAX).for_each(|number| _ = late.keep(number, DELAY, Instant::now()));
        assert!(!late.has_room());
    }
}
