//! How long the turns of the control loop take, and what takes so long.
//!
//! Control must never be late: leaders are deposed by that. So each turn is measured from its first input to its last word,
//! with the time for which its thread had a processor beside it: a host that has too much to do is not a fault of this
//! program.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use crate::events::{Kind, milliseconds};

/// A turn that takes longer is told.
const LATE: Duration = Duration::from_millis(50);
/// How often that is told at most.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// The system is asked for how long the thread has had a processor before a turn if so many turns came since the last time, or
/// turns of this length: to ask costs as much as a short turn.
const ASKED_EVERY: u32 = 16;
const ASKED_AFTER: Duration = Duration::from_millis(2);

/// A turn under way.
pub(super) struct Turn {
    began: Instant,
    last: Instant,
    slowest: (Duration, &'static str),
}

impl Turn {
    fn begin() -> Self {
        let began = Instant::now();
        Self { began, last: began, slowest: (Duration::ZERO, "nothing") }
    }

    /// This has just been done. Says for how long the turn has lasted.
    pub(super) fn note(&mut self, what: &'static str) -> Duration {
        let now = Instant::now();
        let took = now - std::mem::replace(&mut self.last, now);
        if took > self.slowest.0 {
            self.slowest = (took, what);
        }
        now - self.began
    }

    /// When something was last done.
    pub(super) const fn last(&self) -> Instant {
        self.last
    }
}

/// For how long this thread has had a processor.
fn worked() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// All turns.
#[derive(Debug)]
pub(super) struct Turns {
    pub(super) longest: Duration,
    told: Option<Instant>,
    left_out: u64,
    /// For how long the thread has had a processor, and how many turns, of which length, came since that was asked.
    worked: Duration,
    since: (u32, Duration),
}

impl Default for Turns {
    fn default() -> Self {
        Self { longest: Duration::ZERO, told: None, left_out: 0, worked: worked(), since: (0, Duration::ZERO) }
    }
}

impl Turns {
    pub(super) fn begin(&mut self) -> Turn {
        if self.since.0 >= ASKED_EVERY || self.since.1 >= ASKED_AFTER {
            (self.worked, self.since) = (worked(), (0, Duration::ZERO));
        }
        Turn::begin()
    }

    /// A turn is over. Says how long it took, and what to tell if it was late.
    pub(super) fn end(&mut self, mut turn: Turn) -> (Duration, Option<Kind>) {
        let took = turn.note("telling others");
        self.longest = self.longest.max(took);
        self.since = (self.since.0 + 1, self.since.1 + took);
        if took <= LATE {
            return (took, None);
        }
        let worked = worked().saturating_sub(self.worked).min(took);
        (took, self.late(took, worked, turn.slowest.1, turn.last))
    }

    fn late(&mut self, took: Duration, worked: Duration, slowest: &'static str, now: Instant) -> Option<Kind> {
        if self.told.is_some_and(|told| now - told < TOLD_EVERY) {
            self.left_out += 1;
            return None;
        }
        self.told = Some(now);
        // What did not have a processor did not do anything that could take so long.
        let cause = if worked > LATE { slowest } else { "the host" };
        let left_out = std::mem::take(&mut self.left_out);
        Some(Kind::LateTurn { took_ms: milliseconds(took), worked_ms: milliseconds(worked), cause, left_out })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(length: u64) -> Duration {
        Duration::from_millis(length)
    }

    #[test]
    fn a_late_turn_names_what_took_longest_or_the_host() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        let late = |turns: &mut Turns, worked, at| match turns.late(ms(80), ms(worked), "a wish", now + ms(at)) {
            Some(Kind::LateTurn { cause, left_out, .. }) => Some((cause, left_out)),
            _ => None,
        };
        assert_eq!(late(&mut turns, 70, 0), Some(("a wish", 0)));
        assert_eq!(late(&mut turns, 70, 500), None);
        assert_eq!(late(&mut turns, 10, 1000), Some(("the host", 1)));
    }

    #[test]
    fn the_first_thing_of_a_turn_counts() {
        let mut turns = Turns::default();
        let mut turn = turns.begin();
        while turn.note("a loop") <= LATE {}
        assert_eq!((turn.note("a word") > LATE, turn.slowest.1.is_empty()), (true, false));
        assert!(matches!(turns.end(turn), (_, Some(Kind::LateTurn { .. }))));
        assert!(turns.longest > LATE);
        let turn = turns.begin();
        assert_eq!(turns.end(turn).1, None);
    }

    #[test]
    fn what_turns_before_a_late_one_worked_is_not_its_own() {
        let mut turns = Turns::default();
        let mut busy = turns.begin();
        while busy.note("a loop") <= LATE {}
        assert!(turns.end(busy).1.is_some());
        turns.told = None;
        let mut late = turns.begin();
        std::thread::sleep(LATE + ms(10));
        late.note("a pause");
        assert!(matches!(turns.end(late), (_, Some(Kind::LateTurn { cause: "the host", .. }))));
    }
}
