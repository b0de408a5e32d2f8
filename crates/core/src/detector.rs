//! How long a leader may be silent: T, measured rather than guessed.
//!
//! Election theory says T = 2·t_max + t_process. Here t_max is the longest time that lately passed between two signs of
//! life, and t_process how late this node itself lately was; T has a floor, because a host that was calm for a while is
//! not calm for ever, and a ceiling, because a leader that nobody hears must be replaced at some point. Both grow with the
//! round trips of slow links, unless they were configured: what is lost there is sent again a round trip later. A follower
//! that stood still itself has no right to call others silent: a pause of one's own stops the clock, and then grants at
//! least one more heartbeat.
//!
//! This is one of the two machines that measure, so whoever drives it says what time it is: a monotonic number of
//! microseconds. Nodes never compare theirs.

use crate::machine::{Delay, Moment};

/// Watches one leader at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Detector {
    rules: Rules,
    now_us: u64,
    heard_at_us: u64,
    /// When the next look was put off last.
    put_off_at_us: u64,
    /// Not before this, whatever was heard when: a grace after a pause of one's own.
    grace_until_us: u64,
    /// What happened in the present stretch of time, and in the one before.
    lately: [Worst; 2],
    stretch_ends_us: u64,
    /// By how much links are slower than those that the rules were made for.
    slower_us: u64,
}

/// What T is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rules {
    /// How often a leader shows itself. This node must be given an input at least as often.
    pub heartbeat_us: u64,
    /// T is at least this long.
    pub floor_us: u64,
    /// And at most this.
    pub ceiling_us: u64,
    /// Does the floor stay as it is, however slow links are?
    pub is_floor_fixed: bool,
    /// And the ceiling?
    pub is_ceiling_fixed: bool,
}

/// The worst that was seen in a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Worst {
    gap_us: u64,
    late_us: u64,
}

/// What a look at the clock says of the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It has been silent for too long.
    Silent,
    /// Not yet; look again after this.
    Wait(Delay),
}

/// For how long a bad moment is remembered, at least; at most twice as long.
const STRETCH_US: u64 = 10_000_000;
/// The ceiling grows by this many round trips.
const CEILING_TRIPS: u64 = 4;

impl Rules {
    /// The defaults between servers.
    pub const DEFAULT: Self = Self {
        heartbeat_us: 25_000,
        floor_us: 80_000,
        ceiling_us: 1_000_000,
        is_floor_fixed: false,
        is_ceiling_fixed: false,
    };
}

impl Detector {
    /// A detector that has seen nothing yet.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            now_us: 0,
            heard_at_us: 0,
            put_off_at_us: 0,
            grace_until_us: 0,
            lately: [Worst::default(); 2],
            stretch_ends_us: STRETCH_US,
            slower_us: 0,
        }
    }

    /// A message there and back takes this much longer than on a local network.
    pub const fn slower(&mut self, by_us: u64) {
        self.slower_us = by_us;
    }

    /// Time has passed. To be told with every input; a long time without any is a pause of one's own.
    pub fn advance(&mut self, now: Moment) {
        let now_us = now.0;
        let asleep_us = now_us.saturating_sub(self.now_us);
        let is_first = self.now_us == 0;
        self.now_us = self.now_us.max(now_us);
        self.turn_over();
        if is_first || asleep_us <= self.rules.heartbeat_us {
            return;
        }
        let late_us = asleep_us - self.rules.heartbeat_us;
        if late_us > self.rules.heartbeat_us {
            // Nothing could be heard meanwhile, so it was nobody's silence.
            self.heard_at_us += asleep_us;
            self.grace_until_us = self.now_us + self.rules.heartbeat_us;
        } else {
            let late = &mut self.lately[0].late_us;
            *late = late_us.max(*late);
        }
    }

    /// There is a leader to watch from now on. Says when to look first.
    pub fn watch(&mut self) -> Delay {
        self.heard_at_us = self.now_us;
        exactly(self.allowance_us())
    }

    /// The leader gave a sign of life. Says when to look, if that is long enough ago since it was said last: a look that is
    /// put off costs less than one that finds nothing, but not after every single message.
    pub fn heard(&mut self) -> Option<Delay> {
        let gap_us = self.now_us.saturating_sub(self.heard_at_us);
        let worst = &mut self.lately[0].gap_us;
        *worst = gap_us.max(*worst);
        self.heard_at_us = self.now_us.max(self.heard_at_us);
        let is_long_ago = self.now_us.saturating_sub(self.put_off_at_us) >= self.rules.heartbeat_us / 2;
        is_long_ago.then(|| {
            self.put_off_at_us = self.now_us;
            exactly(self.allowance_us())
        })
    }

    /// Is it too late?
    #[must_use]
    pub fn look(&self) -> Verdict {
        let due_us = (self.heard_at_us + self.allowance_us()).max(self.grace_until_us);
        match due_us.checked_sub(self.now_us) {
            None | Some(0) => Verdict::Silent,
            Some(rest_us) => Verdict::Wait(exactly(rest_us)),
        }
    }

    /// T as it is now.
    #[must_use]
    pub fn allowance_us(&self) -> u64 {
        let [now, before] = self.lately;
        let t_max_us = now.gap_us.max(before.gap_us);
        let t_process_us = now.late_us.max(before.late_us);
        let (floor_us, ceiling_us) = self.limits();
        (2 * t_max_us + t_process_us).clamp(floor_us, ceiling_us.max(floor_us))
    }

    const fn limits(&self) -> (u64, u64) {
        let Rules { floor_us, ceiling_us, is_floor_fixed, is_ceiling_fixed, .. } = self.rules;
        let more_us = if is_floor_fixed { 0 } else { self.slower_us };
        let much_more_us = if is_ceiling_fixed { 0 } else { self.slower_us.saturating_mul(CEILING_TRIPS) };
        (floor_us.saturating_add(more_us), ceiling_us.saturating_add(much_more_us))
    }

    fn turn_over(&mut self) {
        if self.now_us >= self.stretch_ends_us {
            self.stretch_ends_us = self.now_us + STRETCH_US;
            self.lately = [Worst::default(), self.lately[0]];
        }
    }
}

const fn exactly(us: u64) -> Delay {
    Delay { min_us: us, max_us: us }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hears the leader every heartbeat until then.
    fn calm(until_ms: u64) -> Detector {
        let mut detector = Detector::new(Rules::DEFAULT);
        detector.advance(Moment(1));
        detector.watch();
        for ms in (25..=until_ms).step_by(25) {
            detector.advance(Moment(ms * 1000));
            detector.heard();
        }
        detector
    }

    /// Time passes in heartbeats, in which the own loop runs and nothing is heard.
    fn pass(detector: &mut Detector, from_ms: u64, until_ms: u64) {
        (from_ms..=until_ms).step_by(5).for_each(|ms| detector.advance(Moment(ms * 1000)));
    }

    #[test]
    fn on_a_calm_host_the_floor_decides() {
        let mut detector = calm(1000);
        assert_eq!(detector.allowance_us(), 80_000);
        pass(&mut detector, 1000, 1075);
        assert_eq!(detector.look(), Verdict::Wait(exactly(5_000)));
        pass(&mut detector, 1075, 1080);
        assert_eq!(detector.look(), Verdict::Silent);
    }

    #[test]
    fn a_leader_that_is_often_late_gets_more_time_and_a_calm_one_less_again() {
        let mut detector = calm(1000);
        pass(&mut detector, 1000, 1070);
        detector.heard();
        assert_eq!(detector.allowance_us(), 140_000, "twice the longest gap");
        for ms in (1075..40_000).step_by(25) {
            detector.advance(Moment(ms * 1000));
            detector.heard();
        }
        assert_eq!(detector.allowance_us(), 80_000, "what is long ago is forgotten");
    }

    #[test]
    fn ones_own_lateness_counts_once() {
        let mut detector = calm(1000);
        detector.advance(Moment(1_040_000));
        detector.heard();
        assert_eq!(detector.allowance_us(), 2 * 40_000 + 15_000);
    }

    #[test]
    fn a_pause_of_ones_own_is_nobody_elses_silence() {
        let mut detector = calm(1000);
        pass(&mut detector, 1000, 1070);
        detector.advance(Moment(3_000_000));
        assert_eq!(detector.look(), Verdict::Wait(exactly(25_000)), "one more heartbeat");
        pass(&mut detector, 3000, 3025);
        assert_eq!(detector.look(), Verdict::Silent);
        let mut detector = calm(1000);
        detector.advance(Moment(3_000_000));
        detector.heard();
        assert_eq!(detector.allowance_us(), 80_000, "the pause was no gap of the leader's");
    }

    #[test]
    fn slow_links_get_a_round_trip_more_unless_somebody_configured_it() {
        let mut detector = calm(1000);
        detector.slower(150_000);
        assert_eq!(detector.allowance_us(), 230_000);
        pass(&mut detector, 1000, 30_000);
        detector.heard();
        assert_eq!(detector.allowance_us(), 1_600_000, "the ceiling is higher, too");
        let fixed = Rules { is_floor_fixed: true, is_ceiling_fixed: true, ..Rules::DEFAULT };
        let mut detector = Detector::new(fixed);
        detector.slower(150_000);
        assert_eq!(detector.allowance_us(), 80_000);
    }

    #[test]
    fn nothing_makes_it_wait_for_ever() {
        let mut detector = calm(1000);
        pass(&mut detector, 1000, 30_000);
        detector.heard();
        assert_eq!(detector.allowance_us(), 1_000_000);
        pass(&mut detector, 30_000, 31_000);
        assert_eq!(detector.look(), Verdict::Silent);
    }
}
