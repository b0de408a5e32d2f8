//! The clock of leases.

use rustix::time::{ClockId, clock_gettime};

/// Microseconds since the host started; unlike other clocks this one goes on while the host sleeps.
#[must_use]
pub fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1000
}
