//! The clocks of a host: one that only moves forward, which its machines go by, and one that shows the time of day. Both run too fast
//! or too slow, and the second one may jump.

use primus_core::machine::{Delay, Moment};

/// When runs begin, in milliseconds since 1970.
const WALL_MS: u64 = 1_794_800_000_000;

/// Both clocks of a host.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clock {
    /// When the process began that reads them.
    pub(crate) began_us: u64,
    /// In parts per million; one that is too fast has a negative number here.
    pub(crate) slower_ppm: i64,
    /// How far the time of day is ahead of the true one.
    pub(crate) ahead_ms: i64,
}

impl Clock {
    /// How long the process has run, as it thinks.
    pub(crate) fn local_us(self, real_us: u64) -> u64 {
        let shown = u128::from(real_us.saturating_sub(self.began_us)) * 1_000_000 / self.per_million();
        u64::try_from(shown).expect("runs are short")
    }

    /// When it thinks that it has run for so long.
    pub(crate) fn real_us(self, local_us: u64) -> u64 {
        let real = (u128::from(local_us) * self.per_million()).div_ceil(1_000_000);
        self.began_us + u64::try_from(real).expect("runs are short")
    }

    pub(crate) fn moment(self, real_us: u64) -> Moment {
        Moment(self.local_us(real_us))
    }

    /// How long a timer really takes.
    pub(crate) fn real(self, delay: Delay) -> Delay {
        delay.skewed(self.slower_ppm)
    }

    /// What time of day it shows, in milliseconds since 1970.
    pub(crate) fn wall_ms(self, real_us: u64) -> u64 {
        (WALL_MS + real_us / 1000).saturating_add_signed(self.ahead_ms)
    }

    fn per_million(self) -> u128 {
        u128::try_from(1_000_000 + i128::from(self.slower_ppm)).expect("no clock runs backwards")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_has_shown_a_time_from_the_moment_at_which_it_shows_it() {
        for slower_ppm in [-10_000, -1, 0, 3, 10_000] {
            let clock = Clock { began_us: 77, slower_ppm, ahead_ms: -5 };
            for local_us in (0..3_000_000).step_by(997) {
                let real_us = clock.real_us(local_us);
                assert!(clock.local_us(real_us) >= local_us);
                assert!(real_us == 77 || clock.local_us(real_us - 1) <= local_us);
            }
        }
    }
}
