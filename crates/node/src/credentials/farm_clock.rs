//! The time by which certificates are judged: the farm's, as soon as this node has heard it.
//!
//! Until then the clock of the host counts, if it can be right: it shows a time within the node's own certificate, and not before
//! anything that the node has written down. A host that boots in 1970, or runs years ahead, knows no more than these limits. It
//! believes a certificate that may be good between them, and one that is good if the clock is right after all: then its own has
//! ended. Those who know the time judge its own.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use primus_identity::UnixTime;
use primus_identity::certificate::{DAY, Present, Validity};
use primus_identity::verify::{Clock, HostClock};

use super::folder::DAYS;
use crate::clock::now_us;

/// What a node knows of the time.
pub(crate) struct FarmClock {
    host: Arc<dyn Clock>,
    known: Mutex<Known>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    /// What the farm said, and when that was since this host started.
    told: Option<(UnixTime, u64)>,
    earliest: UnixTime,
    latest: UnixTime,
}

impl Default for FarmClock {
    fn default() -> Self {
        Self::of(Arc::new(HostClock))
    }
}

impl fmt::Debug for FarmClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FarmClock({:?})", self.present())
    }
}

impl FarmClock {
    fn of(host: Arc<dyn Clock>) -> Self {
        let known = Known { told: None, earliest: seconds(0), latest: seconds(u64::MAX) };
        Self { host, known: Mutex::new(known) }
    }

    /// The farm's time is this now, in milliseconds since 1970.
    pub(crate) fn tell(&self, now_ms: u64) {
        self.known().told = Some((time_of(now_ms), now_us()));
    }

    /// It is not earlier than this.
    pub(crate) fn at_least(&self, time_ms: u64) {
        let mut known = self.known();
        known.earliest = known.earliest.max(time_of(time_ms));
    }

    /// This node got a certificate that is good for this time: a day after its first second at the latest.
    pub(crate) fn live_within(&self, Validity { from, until }: Validity) {
        let mut known = self.known();
        known.earliest = known.earliest.max(from);
        // What a founding file gave by a clock that runs ahead is good for years.
        let usual = Validity::since_yesterday(from, DAYS + 1).until;
        known.latest = until.min(usual).max(seconds(known.earliest.as_secs().saturating_add(DAY.as_secs())));
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("nobody panics while holding this")
    }
}

impl Clock for FarmClock {
    fn now(&self) -> UnixTime {
        self.present().earliest
    }

    fn present(&self) -> Present {
        let known = *self.known();
        if let Some((time, at_us)) = known.told {
            let passed = now_us().saturating_sub(at_us) / 1_000_000;
            return seconds(time.as_secs().saturating_add(passed)).into();
        }
        let host = self.host.now();
        if (known.earliest..=known.latest).contains(&host) {
            return host.into();
        }
        Present { earliest: known.earliest, latest: known.latest, doubted: Some(host) }
    }
}

fn seconds(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

fn time_of(time_ms: u64) -> UnixTime {
    seconds(time_ms / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR: u64 = 365 * 24 * 3600;
    /// In November 2026.
    const TODAY: u64 = 1_795_000_000;

    /// The clock of a node that was named a month ago, on a host that shows this time.
    fn clock(host: u64) -> FarmClock {
        let clock = FarmClock::of(Arc::new(move || seconds(host)));
        clock.live_within(Validity::since_yesterday(seconds(TODAY - YEAR / 12), 365));
        clock
    }

    /// What becomes of a certificate that was issued so many seconds after today.
    fn judge(clock: &FarmClock, issued: i64) -> &'static str {
        let issued = seconds(TODAY.saturating_add_signed(issued));
        let judged = Validity::since_yesterday(issued, 365).judge(clock.present());
        judged.err().map_or("", |refusal| refusal.code())
    }

    #[test]
    fn a_host_that_boots_in_1970_or_runs_years_ahead_believes_its_own_farm() {
        for host in [0, TODAY - 30 * YEAR, TODAY, TODAY + 3 * YEAR] {
            let clock = clock(host);
            for issued in [0, -2_000_000, -20_000_000] {
                assert_eq!(judge(&clock, issued), "", "{host} {issued}");
            }
            assert_eq!(judge(&clock, -3 * YEAR as i64), "expired", "{host}");
            assert_eq!(judge(&clock, 9 * YEAR as i64), "not_yet_valid", "{host}");
        }
    }

    #[test]
    fn a_certificate_that_is_good_for_years_does_not_make_a_clock_right() {
        let clock = FarmClock::of(Arc::new(|| seconds(TODAY + 3 * YEAR)));
        clock.live_within(Validity { from: seconds(TODAY), until: seconds(TODAY + 4 * YEAR) });
        assert_eq!((judge(&clock, 0), judge(&clock, -2 * YEAR as i64)), ("", "expired"));
    }

    #[test]
    fn a_node_whose_own_certificate_has_ended_believes_the_others() {
        assert_eq!(judge(&clock(TODAY + 3 * YEAR), 3 * YEAR as i64), "");
    }

    #[test]
    fn as_soon_as_the_farm_says_what_time_it_is_nothing_else_counts() {
        for host in [0, TODAY, TODAY + 3 * YEAR] {
            let clock = clock(host);
            clock.tell((TODAY + YEAR / 2) * 1000);
            assert_eq!(judge(&clock, 0), "");
            assert_eq!(judge(&clock, -20_000_000), "expired", "it ended in between");
            assert!(clock.now().as_secs().abs_diff(TODAY + YEAR / 2) < 60);
        }
    }

    #[test]
    fn what_was_written_down_is_past() {
        let clock = clock(0);
        assert_eq!(judge(&clock, -31_000_000), "");
        clock.at_least((TODAY + 1_000_000) * 1000);
        assert_eq!(judge(&clock, -31_000_000), "expired");
        clock.at_least(TODAY * 1000);
        assert_eq!(judge(&clock, -31_000_000), "expired", "it does not go back");
    }
}
