//! A machine's timers on a real clock.

use std::time::Duration;

use primus_core::machine::Delay;
use tokio::time::Instant;

/// The timers that run, earliest first.
pub(crate) type Timers<T> = primus_core::timers::Timers<T, Instant>;

/// One length from the range.
pub(crate) fn drawn(delay: Delay) -> Duration {
    Duration::from_micros(delay.drawn(getrandom::u64().unwrap_or(0)))
}
