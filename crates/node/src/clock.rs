//! The clocks that machines go by.

use primus_core::Moment;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// Microseconds since the host started; unlike other clocks this one goes on while the host sleeps.
#[must_use]
pub fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1000
}

/// The same, as machines are told it.
#[must_use]
pub fn now() -> Moment {
    Moment(now_us())
}

/// The moment of those that must not take a sleep of the host for silence of others.
pub(crate) fn since(started: Instant) -> Moment {
    Moment(u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX))
}
