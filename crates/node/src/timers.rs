//! A server's timers on a real clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use primus_core::machine::Delay;
use primus_server::control::Timer;
use tokio::time::Instant;

/// The timers that run, earliest first.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: BTreeSet<(Instant, Timer)>,
    by_name: BTreeMap<Timer, Instant>,
}

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, due: Instant) {
        self.cancel(timer);
        self.due.insert((due, timer));
        self.by_name.insert(timer, due);
    }

    pub(crate) fn cancel(&mut self, timer: Timer) {
        if let Some(due) = self.by_name.remove(&timer) {
            self.due.remove(&(due, timer));
        }
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Timer> {
        let (_, timer) = self.due.first().copied().filter(|(due, _)| *due <= now)?;
        self.cancel(timer);
        Some(timer)
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
