//! When a leader hands over because it is too loaded: rarely.
//!
//! A leader whose score stays worse than the best peer's by a *margin* for a *dwell* time hands over. It does not in the
//! first moments of its *tenure*, nor before the *cool-down* after the last handover has passed, whoever led then. So
//! noise inside the margin moves nobody, and two servers that take turns at being busy do not toss leadership to and fro.

use crate::load::Score;
use crate::machine::Moment;

/// Watches the own load against the best peer's, on a leader.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Handover {
    rules: Rules,
    now_us: u64,
    /// Since when the best peer has been better by the margin.
    worse_since_us: Option<u64>,
    /// Not before this.
    rest_until_us: u64,
}

/// How rarely is rarely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rules {
    /// How much better a peer must be.
    pub margin: Score,
    /// For how long.
    pub dwell_us: u64,
    /// How long after a handover there is no other.
    pub cool_down_us: u64,
    /// How long a leader leads at least.
    pub tenure_us: u64,
}

/// How near a leader is to handing over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Progress {
    /// What it goes by.
    pub rules: Rules,
    /// For how long the best peer has been better by the margin, if it is.
    pub worse_for_us: Option<u64>,
    /// For how long nothing happens yet, however much better somebody is.
    pub rest_us: u64,
}

impl Rules {
    /// The defaults between servers.
    pub const DEFAULT: Self = Self {
        margin: Score::from_hundredths(1500),
        dwell_us: 10_000_000,
        cool_down_us: 60_000_000,
        tenure_us: 30_000_000,
    };
}

impl Handover {
    /// Nothing has happened yet.
    #[must_use]
    pub const fn new(rules: Rules) -> Self {
        Self { rules, now_us: 0, worse_since_us: None, rest_until_us: 0 }
    }

    /// Time has passed.
    pub fn advance(&mut self, now: Moment) {
        self.now_us = self.now_us.max(now.0);
    }

    /// Somebody leads from now on, perhaps because of a handover. Every server notes it, since it may lead next.
    pub fn on_leader(&mut self, is_handover: bool) {
        let rest_us =
            if is_handover { self.rules.cool_down_us.max(self.rules.tenure_us) } else { self.rules.tenure_us };
        self.rest_until_us = self.rest_until_us.max(self.now_us + rest_us);
        self.worse_since_us = None;
    }

    /// How near it is to handing over, as of the last comparison.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress {
            rules: self.rules,
            worse_for_us: self.worse_since_us.map(|since_us| self.now_us - since_us),
            rest_us: self.rest_until_us.saturating_sub(self.now_us),
        }
    }

    /// The leader compares itself with the best peer; to be asked again and again. True when it is time.
    pub fn is_due(&mut self, own: Score, best: Option<Score>) -> bool {
        let is_worse =
            best.is_some_and(|best| own.hundredths() >= best.hundredths() + self.rules.margin.hundredths());
        if !is_worse {
            self.worse_since_us = None;
            return false;
        }
        let since_us = *self.worse_since_us.get_or_insert(self.now_us);
        self.now_us >= (since_us + self.rules.dwell_us).max(self.rest_until_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    fn points(points: u32) -> Score {
        Score::from_hundredths(points * 100)
    }

    /// When a handover is due, if the loads are these from the start.
    fn due_after_s(own: u32, best: u32, after_handover: bool) -> Option<u64> {
        let mut handover = Handover::new(Rules::DEFAULT);
        handover.on_leader(after_handover);
        (1..1000).find(|second| {
            handover.advance(Moment(second * SECOND_US));
            handover.is_due(points(own), Some(points(best)))
        })
    }

    #[test]
    fn margin_dwell_tenure_and_cool_down_decide() {
        for (own, best, after_handover, due) in
            [(50, 36, false, None), (50, 35, false, Some(30)), (50, 35, true, Some(60)), (20, 90, false, None)]
        {
            assert_eq!(due_after_s(own, best, after_handover), due, "{own} against {best}");
        }
    }

    #[test]
    fn whoever_asks_is_told_how_near_it_is() {
        let mut handover = Handover::new(Rules::DEFAULT);
        handover.on_leader(false);
        for (second, own, worse_for_s, rest_s) in [
            (1, 50, None, 29),
            (2, 90, Some(0), 28),
            (6, 90, Some(4), 24),
            (31, 90, Some(29), 0),
            (32, 60, None, 0),
        ] {
            handover.advance(Moment(second * SECOND_US));
            _ = handover.is_due(points(own), Some(points(50)));
            let Progress { worse_for_us, rest_us, .. } = handover.progress();
            let seconds = (worse_for_us.map(|us| us / SECOND_US), rest_us / SECOND_US);
            assert_eq!(seconds, (worse_for_s, rest_s), "after {second} s");
        }
    }

    #[test]
    fn a_moment_below_the_margin_starts_the_dwell_anew() {
        let mut handover = Handover::new(Rules::DEFAULT);
        handover.advance(Moment(100 * SECOND_US));
        assert!(!handover.is_due(points(90), Some(points(10))));
        handover.advance(Moment(109 * SECOND_US));
        assert!(!handover.is_due(points(20), Some(points(10))));
        handover.advance(Moment(110 * SECOND_US));
        assert!(!handover.is_due(points(90), Some(points(10))));
        handover.advance(Moment(120 * SECOND_US));
        assert!(handover.is_due(points(90), Some(points(10))));
        assert!(!handover.is_due(points(90), None), "nobody is there to take over");
    }
}
