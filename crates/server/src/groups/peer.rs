//! What a server knows of the life of another one.

use primus_core::Moment;
use primus_core::detector::{Detector, Rules, Verdict};
use primus_core::load::Score;

use super::SHOW_EVERY;

/// Another server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    silence: Rules,
    detector: Detector,
    /// Does it lead a group of ours, and so show itself at every heartbeat?
    leads: bool,
    is_missed: bool,
    slower_us: u64,
    /// How loaded it said it is.
    pub(super) score: Option<Score>,
}

impl Peer {
    /// One that has not been heard yet.
    pub(super) fn new(silence: Rules) -> Self {
        Self {
            silence,
            detector: Detector::new(now_and_then(silence)),
            leads: false,
            is_missed: false,
            slower_us: 0,
            score: None,
        }
    }

    pub(super) fn advance(&mut self, now: Moment) {
        self.detector.advance(now);
    }

    /// Messages there and back take this much longer than on a local network.
    pub(super) const fn slower(&mut self, us: u64) {
        self.slower_us = us;
        self.detector.slower(us);
    }

    /// From now on silence counts.
    pub(super) fn watch(&mut self) {
        self.detector.watch();
    }

    /// It is there. Was it missed?
    pub(super) fn hear(&mut self) -> bool {
        self.detector.heard();
        std::mem::take(&mut self.is_missed)
    }

    /// It is not there. Is that news?
    pub(super) const fn miss(&mut self) -> bool {
        !std::mem::replace(&mut self.is_missed, true)
    }

    /// Has it been silent for too long, and does nobody know yet?
    pub(super) fn is_silent(&self) -> bool {
        !self.is_missed && self.detector.look() == Verdict::Silent
    }

    /// Whoever begins or ceases to lead shows itself at another pace: what was learned of the old one does not count.
    pub(super) fn expect(&mut self, leads: bool, now: Moment) {
        if self.leads != leads {
            self.leads = leads;
            self.detector = Detector::new(if leads { self.silence } else { now_and_then(self.silence) });
            self.detector.slower(self.slower_us);
            self.detector.advance(now);
            self.detector.watch();
        }
    }
}

/// How long somebody may be silent who shows itself only now and then.
fn now_and_then(silence: Rules) -> Rules {
    let least_us = silence.heartbeat_us * u64::from(SHOW_EVERY) * 4;
    let floor_us = silence.ceiling_us.max(least_us);
    Rules { floor_us, ceiling_us: floor_us, ..silence }
}
