//! Asking again: what became of a request, and how long to wait before the next one. Who asks keeps the time.

use core::time::Duration;

/// What became of a request, as far as its sender can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was carried out.
    Taken,
    /// It was not carried out, and may be at another server or in a moment.
    NotTaken,
    /// It may have been carried out.
    Unknown,
    /// It will never be carried out.
    Refused,
}

impl Fate {
    /// True if the request may be sent again. A write that must not take place twice may not, if its fate is unknown.
    #[must_use]
    pub const fn allows_another(self, is_repeatable: bool) -> bool {
        match self {
            Self::NotTaken => true,
            Self::Unknown => is_repeatable,
            Self::Taken | Self::Refused => false,
        }
    }
}

/// How long to go on asking, and the pauses between.
#[derive(Debug, Clone, Copy)]
pub struct Retry {
    length: Duration,
    pause: Duration,
    pause_max: Duration,
}

impl Retry {
    /// For so long, with pauses that double from the first one to the last one.
    #[must_use]
    pub const fn new(length: Duration, pause: Duration, pause_max: Duration) -> Self {
        Self { length, pause, pause_max }
    }

    /// For so long, with equal pauses.
    #[must_use]
    pub const fn steady(length: Duration, pause: Duration) -> Self {
        Self::new(length, pause, pause)
    }

    /// How much time is left when so much has passed.
    #[must_use]
    pub const fn left(&self, passed: Duration) -> Duration {
        self.length.saturating_sub(passed)
    }

    /// How long to wait before the next attempt when so much time has passed; none if that attempt would come too late.
    pub fn pause(&mut self, passed: Duration) -> Option<Duration> {
        let pause = self.pause;
        self.pause = (pause * 2).min(self.pause_max);
        (pause < self.left(passed)).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_until_one_would_end_too_late() {
        let ms = Duration::from_millis;
        let mut retry = Retry::new(ms(100), ms(2), ms(5));
        let passed = [0, 0, 0, 94, 95].map(ms);
        assert_eq!(
            passed.map(|passed| retry.pause(passed)),
            [Some(ms(2)), Some(ms(4)), Some(ms(5)), Some(ms(5)), None]
        );
        assert_eq!((retry.left(ms(30)), retry.left(ms(130))), (ms(70), Duration::ZERO));
    }

    #[test]
    fn what_may_be_done_twice_may_be_sent_twice() {
        let fates = [Fate::Taken, Fate::NotTaken, Fate::Unknown, Fate::Refused];
        assert_eq!(fates.map(|fate| fate.allows_another(true)), [false, true, true, false]);
        assert_eq!(fates.map(|fate| fate.allows_another(false)), [false, true, false, false]);
    }
}
