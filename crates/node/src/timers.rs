//! A machine's timers on a real clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use primus_core::machine::Delay;
use tokio::time::Instant;

/// The timers that run, earliest first.
#[derive(Debug)]
pub(crate) struct Timers<T> {
    due: BTreeSet<(Instant, T)>,
    by_name: BTreeMap<T, Instant>,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self { due: BTreeSet::new(), by_name: BTreeMap::new() }
    }
}

impl<T: Copy + Ord> Timers<T> {
    pub(crate) fn set(&mut self, timer: T, due: Instant) {
        self.cancel(timer);
        self.due.insert((due, timer));
        self.by_name.insert(timer, due);
    }

    pub(crate) fn cancel(&mut self, timer: T) {
        if let Some(due) = self.by_name.remove(&timer) {
            self.due.remove(&(due, timer));
        }
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// The next one that is due, and since when.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<(Instant, T)> {
        let (due, timer) = self.due.first().copied().filter(|(due, _)| *due <= now)?;
        self.cancel(timer);
        Some((due, timer))
    }
}

/// One length from the range.
pub(crate) fn drawn(delay: Delay) -> Duration {
    let mut bytes = [0; 8];
    let spread = delay.max_us - delay.min_us;
    let extra =
        if spread == 0 || getrandom::fill(&mut bytes).is_err() { 0 } else { u64::from_be_bytes(bytes) % spread };
    Duration::from_micros(delay.min_us + extra)
}
