//! The ledger's time, as a leader tells it from clocks that may be wrong.
//!
//! Every batch of the log carries a time, and results are forgotten by it. A clock that jumps would date everything wrongly and
//! make results vanish, so a leader does not simply read its own. It compares the clocks of all servers with how much time has
//! passed on a clock that nobody sets (`now_ms`, since the host started), by these rules:
//!
//! - The median of the clocks counts, so one wrong clock among three changes nothing.
//! - The median is followed while it moves by no more than a minute against the time that has passed. A greater jump is believed
//!   only after it has lasted for ten minutes; until then time passes as it did before.
//! - A server that has just started has nothing to compare with, so it believes a majority's clocks at once: perhaps the
//!   whole farm was down for days.
//! - The ledger's time never goes back. If it is ahead of the clocks, because a wrong one was believed, it goes at half the speed
//!   until they have caught up.
//! - While any of this is in doubt, and for a minute after, no result is forgotten because of its age.
//!
//! It reads no clock: readings are given to it. What it decides ends up in the log, in the time of each batch and in
//! [`Limits`], so all servers forget the same results at the same place.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::book::Limits;
use crate::ServerId;

/// A clock that is further away than this is off.
pub const OFF_MS: u64 = 60_000;
/// A jump is believed when it has lasted this long.
const BELIEVED_AFTER_MS: u64 = 600_000;
/// So long nothing must have been in doubt before results are forgotten again.
const CALM_MS: u64 = 60_000;
/// A clock counts for this long after it was heard. If so few are heard that they are no majority, the own one counts after
/// this time.
const HEARD_MS: u64 = 15_000;
/// How often it is told at most that the same clock is off.
const TOLD_EVERY_MS: u64 = 60_000;

/// What a server knows of clocks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Timekeeper {
    own: ServerId,
    servers: usize,
    clocks: BTreeMap<ServerId, Clock>,
    /// The latest time in the log, and how late it was here when that was heard of.
    ledger: (u64, u64),
    /// What is added to `now_ms` to tell the time, once that is known.
    believed_ms: Option<i64>,
    /// What the clocks say instead, and since when.
    doubted: Option<(i64, u64)>,
    /// When something was in doubt last.
    doubt_at_ms: Option<u64>,
    leads_since_ms: Option<u64>,
    off: BTreeMap<ServerId, Off>,
    notices: Vec<Notice>,
}

/// What a clock showed, as the difference to `now_ms`, and when that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Clock {
    ahead_ms: i64,
    at_ms: u64,
}

/// A clock that is off, or was not long ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Off {
    is_off: bool,
    /// Was that told?
    is_told: bool,
    told_at_ms: u64,
}

/// What happens to clocks, as the leader sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Notice {
    /// This server's clock is ahead of the farm's time by so many milliseconds, or behind it.
    Off(ServerId, i64),
    /// It is right again.
    Right(ServerId),
}

impl Timekeeper {
    /// Of one of so many servers.
    #[must_use]
    pub const fn new(own: ServerId, servers: usize) -> Self {
        Self {
            own,
            servers,
            clocks: BTreeMap::new(),
            ledger: (0, 0),
            believed_ms: None,
            doubted: None,
            doubt_at_ms: None,
            leads_since_ms: None,
            off: BTreeMap::new(),
            notices: Vec::new(),
        }
    }

    /// This server leads from now on, and tells the time.
    pub fn lead(&mut self, now_ms: u64) {
        self.leads_since_ms = Some(now_ms);
        self.judge(now_ms);
    }

    /// It does not any more.
    pub fn follow(&mut self) {
        self.leads_since_ms = None;
        self.off.clear();
        self.notices.clear();
    }

    /// The log has a batch of this time, or a ledger in which nothing is younger.
    pub fn on_applied(&mut self, time_ms: u64, now_ms: u64) {
        if time_ms > self.floor_ms(now_ms) {
            self.ledger = (time_ms, now_ms);
        }
        // What is written down at the very time that the own clock shows has just been written: both are right.
        let shown_ms = self.clocks.get(&self.own).map(|clock| shown(clock.ahead_ms, now_ms));
        if self.believed_ms.is_none() && shown_ms.is_some_and(|shown_ms| shown_ms.abs_diff(time_ms) <= OFF_MS) {
            self.believed_ms = self.clocks.get(&self.own).map(|clock| clock.ahead_ms);
        }
    }

    /// A server's clock shows this time, in milliseconds since 1970.
    pub fn on_clock(&mut self, server: ServerId, shows_ms: u64, now_ms: u64) {
        let ahead_ms = signed(shows_ms).saturating_sub(signed(now_ms));
        self.clocks.insert(server, Clock { ahead_ms, at_ms: now_ms });
        self.judge(now_ms);
    }

    /// What time it is for the ledger.
    #[must_use]
    pub fn time_ms(&self, now_ms: u64) -> u64 {
        let own = || self.clocks.get(&self.own).map(|clock| clock.ahead_ms);
        // A ledger in which nothing has a time cannot be harmed by a wrong one.
        let ahead_ms = self.believed_ms.or_else(|| own().filter(|_| self.ledger.0 == 0));
        ahead_ms.map_or(0, |ahead_ms| shown(ahead_ms, now_ms)).max(self.floor_ms(now_ms))
    }

    /// True if the time is known, and not only that it is not earlier.
    #[must_use]
    pub const fn is_sure(&self) -> bool {
        self.believed_ms.is_some()
    }

    /// How much is to be kept: what was configured or, while the time is in doubt, results of any age.
    #[must_use]
    pub const fn limits(&self, configured: Limits, now_ms: u64) -> Limits {
        match self.doubt_at_ms {
            Some(at_ms) if now_ms.saturating_sub(at_ms) < CALM_MS => Limits { age_ms: u64::MAX, ..configured },
            _ => configured,
        }
    }

    /// What is to be told.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        core::mem::take(&mut self.notices)
    }

    /// The ledger's time is never less. It goes on at half the speed, so that whatever waits for a while still happens.
    const fn floor_ms(&self, now_ms: u64) -> u64 {
        self.ledger.0.saturating_add(now_ms.saturating_sub(self.ledger.1) / 2)
    }

    fn judge(&mut self, now_ms: u64) {
        let Some(leads_since_ms) = self.leads_since_ms else { return };
        if let Some(agreed_ms) = self.agreed(leads_since_ms, now_ms) {
            self.compare(agreed_ms, now_ms);
        }
        let is_ahead = self
            .believed_ms
            .is_none_or(|believed_ms| self.floor_ms(now_ms) > shown(believed_ms, now_ms).saturating_add(OFF_MS));
        if self.ledger.0 > 0 && (is_ahead || self.doubted.is_some()) {
            self.doubt_at_ms = Some(now_ms);
        }
        self.look_for_wrong_clocks(now_ms);
    }

    /// The clocks agree on this: is it what was believed?
    fn compare(&mut self, agreed_ms: i64, now_ms: u64) {
        let Some(believed_ms) = self.believed_ms else {
            // Nothing to compare with. If the ledger is much older, it may be long since it was written.
            let is_old = shown(agreed_ms, now_ms).abs_diff(self.ledger.0) > OFF_MS;
            self.doubt_at_ms = Some(now_ms).filter(|_| is_old && self.ledger.0 > 0).or(self.doubt_at_ms);
            self.believed_ms = Some(agreed_ms);
            return;
        };
        if agreed_ms.abs_diff(believed_ms) <= OFF_MS {
            (self.believed_ms, self.doubted) = (Some(agreed_ms), None);
            return;
        }
        match self.doubted {
            Some((ahead_ms, since_ms)) if ahead_ms.abs_diff(agreed_ms) <= OFF_MS => {
                if now_ms.saturating_sub(since_ms) >= BELIEVED_AFTER_MS {
                    (self.believed_ms, self.doubted) = (Some(agreed_ms), None);
                }
            }
            _ => self.doubted = Some((agreed_ms, now_ms)),
        }
    }

    /// The median of the clocks that were heard lately, if they are a majority's. Of the two in the middle the one that is
    /// nearer to what is believed counts, or the earlier one.
    fn agreed(&self, leads_since_ms: u64, now_ms: u64) -> Option<i64> {
        let heard = self.clocks.values().filter(|clock| now_ms.saturating_sub(clock.at_ms) <= HEARD_MS);
        let mut heard: Vec<i64> = heard.map(|clock| clock.ahead_ms).collect();
        if heard.len() <= self.servers / 2 {
            let own = self.clocks.get(&self.own).filter(|_| now_ms.saturating_sub(leads_since_ms) > HEARD_MS);
            return own.map(|clock| clock.ahead_ms);
        }
        heard.sort_unstable();
        let middle = [*heard.get((heard.len() - 1) / 2)?, *heard.get(heard.len() / 2)?];
        match self.believed_ms {
            Some(believed_ms) => middle.into_iter().min_by_key(|ahead_ms| ahead_ms.abs_diff(believed_ms)),
            None => Some(middle[0]),
        }
    }

    fn look_for_wrong_clocks(&mut self, now_ms: u64) {
        let Some(believed_ms) = self.believed_ms else { return };
        for (server, clock) in &self.clocks {
            let ahead_ms = clock.ahead_ms.saturating_sub(believed_ms);
            let off = self.off.entry(*server).or_insert(Off { is_off: false, is_told: false, told_at_ms: 0 });
            // It must come well back before it counts as right, or one that is off by just a minute would be told of for ever.
            if !off.is_off && ahead_ms.unsigned_abs() > OFF_MS {
                let is_early = off.told_at_ms > 0 && now_ms.saturating_sub(off.told_at_ms) < TOLD_EVERY_MS;
                *off = Off { is_off: true, is_told: !is_early, told_at_ms: off.told_at_ms };
                if !is_early {
                    off.told_at_ms = now_ms.max(1);
                    self.notices.push(Notice::Off(*server, ahead_ms));
                }
            } else if off.is_off && ahead_ms.unsigned_abs() <= OFF_MS / 2 {
                if off.is_told {
                    self.notices.push(Notice::Right(*server));
                }
                off.is_off = false;
            }
        }
    }
}

/// The time that a clock shows which is ahead of `now_ms` by so much.
fn shown(ahead_ms: i64, now_ms: u64) -> u64 {
    now_ms.saturating_add_signed(ahead_ms)
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600 * 1000;
    /// It is the year 2026, and the host has run for an hour.
    const TODAY: u64 = 1_790_000_000_000;
    const NOW: u64 = 3_600_000;

    /// Servers whose clocks are ahead of the true time by these milliseconds; the first one leads.
    struct Farm {
        keeper: Timekeeper,
        ahead: Vec<i64>,
        now_ms: u64,
        told: Vec<Notice>,
    }

    impl Farm {
        fn new(servers: usize) -> Self {
            let ahead = alloc::vec![0; servers];
            Self { keeper: Timekeeper::new(ServerId(1), servers), ahead, now_ms: NOW, told: Vec::new() }
        }

        /// The true time.
        fn truth(&self) -> u64 {
            TODAY + self.now_ms
        }

        /// Seconds pass, and every clock is heard in each.
        fn pass(&mut self, seconds: u64) {
            for _ in 0..seconds {
                self.now_ms += 1000;
                self.look();
            }
        }

        fn look(&mut self) {
            for (place, ahead) in self.ahead.iter().enumerate() {
                let shows = self.truth().saturating_add_signed(*ahead);
                self.keeper.on_clock(ServerId(place as u64 + 1), shows, self.now_ms);
            }
            self.told.extend(self.keeper.take_notices());
        }

        /// Writes a batch; by how much is its time ahead of the truth?
        fn write(&mut self) -> i64 {
            let time_ms = self.keeper.time_ms(self.now_ms);
            self.keeper.on_applied(time_ms, self.now_ms);
            time_ms as i64 - self.truth() as i64
        }

        fn forgets(&self) -> bool {
            self.keeper.limits(Limits::default(), self.now_ms) == Limits::default()
        }
    }

    fn running(servers: usize) -> Farm {
        let mut farm = Farm::new(servers);
        farm.look();
        farm.keeper.lead(farm.now_ms);
        farm.look();
        assert_eq!((farm.write(), farm.forgets()), (0, true), "a new farm tells the time at once");
        farm.pass(100);
        farm
    }

    #[test]
    fn a_clock_that_jumps_for_a_moment_changes_nothing() {
        for days in [3, -30, 40_000] {
            let mut farm = running(1);
            farm.ahead[0] = days * DAY as i64;
            farm.look();
            assert_eq!((farm.write(), farm.forgets()), (0, false), "{days} days");
            farm.pass(2);
            assert_eq!((farm.write(), farm.forgets()), (0, false));
            farm.ahead[0] = 0;
            farm.look();
            assert_eq!(farm.write(), 0, "and is right again at once");
            farm.pass(61);
            assert_eq!((farm.write(), farm.forgets()), (0, true));
            assert_eq!(farm.told, [Notice::Off(ServerId(1), days * DAY as i64), Notice::Right(ServerId(1))]);
        }
    }

    #[test]
    fn one_wrong_clock_of_three_changes_nothing_however_long_it_is_wrong() {
        for wrong in 0..3 {
            let mut farm = running(3);
            farm.ahead[wrong] = 3 * DAY as i64;
            farm.pass(7200);
            assert_eq!((farm.write(), farm.forgets()), (0, true), "server {}", wrong + 1);
            assert_eq!(farm.told, [Notice::Off(ServerId(wrong as u64 + 1), 3 * DAY as i64)], "told once");
        }
    }

    #[test]
    fn a_new_leader_with_a_wrong_clock_waits_for_the_others() {
        let mut farm = Farm::new(3);
        farm.ahead[0] = 3 * DAY as i64;
        let yesterday = farm.truth() - DAY;
        farm.keeper.on_applied(yesterday, farm.now_ms);
        farm.keeper.on_clock(ServerId(1), farm.truth() + 3 * DAY, farm.now_ms);
        farm.keeper.lead(farm.now_ms);
        assert_eq!(farm.keeper.time_ms(farm.now_ms), yesterday, "it does not know better yet");
        farm.look();
        assert_eq!((farm.write(), farm.forgets()), (0, false));
        farm.pass(61);
        assert_eq!((farm.write(), farm.forgets()), (0, true));
        assert_eq!(farm.told, [Notice::Off(ServerId(1), 3 * DAY as i64)]);
    }

    #[test]
    fn after_a_long_downtime_the_clocks_are_believed_at_once_and_results_go_a_minute_later() {
        for servers in [1, 3] {
            let mut farm = Farm::new(servers);
            farm.keeper.on_applied(farm.truth() - 3 * DAY, farm.now_ms);
            farm.look();
            farm.keeper.lead(farm.now_ms);
            farm.look();
            assert_eq!((farm.write(), farm.forgets()), (0, false));
            farm.pass(59);
            assert!(!farm.forgets());
            farm.pass(2);
            assert!(farm.forgets());
            assert_eq!(farm.told, []);
        }
    }

    #[test]
    fn a_jump_that_lasts_is_believed_and_time_never_goes_back() {
        let mut farm = running(1);
        farm.ahead[0] = DAY as i64;
        farm.pass(599);
        assert_eq!((farm.write(), farm.forgets()), (0, false));
        farm.pass(2);
        assert_eq!(farm.write(), DAY as i64);
        // It was wrong after all: the ledger's time goes on at half the speed, and nothing is forgotten.
        farm.ahead[0] = 0;
        let mut last = farm.keeper.time_ms(farm.now_ms);
        for _ in 0..5 * DAY / 2000 {
            farm.pass(1);
            let time_ms = farm.keeper.time_ms(farm.now_ms);
            farm.keeper.on_applied(time_ms, farm.now_ms);
            assert!(time_ms > last, "{time_ms} after {last}");
            assert!(!farm.forgets() || time_ms <= farm.truth() + OFF_MS);
            last = time_ms;
        }
        assert_eq!((farm.write(), farm.forgets()), (0, true), "after two days they have caught up");
    }

    #[test]
    fn a_follower_that_has_seen_the_time_pass_does_not_believe_its_own_jump() {
        let mut farm = Farm::new(1);
        farm.look();
        farm.keeper.on_applied(farm.truth(), farm.now_ms);
        farm.now_ms += 5 * 3600 * 1000;
        farm.ahead[0] = 3 * DAY as i64;
        farm.look();
        farm.keeper.lead(farm.now_ms);
        farm.look();
        assert_eq!((farm.write(), farm.forgets()), (0, false));
        assert_eq!(farm.told, [Notice::Off(ServerId(1), 3 * DAY as i64)]);
    }

    #[test]
    fn small_corrections_are_followed_and_a_restless_clock_is_told_of_rarely() {
        let mut farm = running(1);
        for step in [20_000, -30_000, 25_000, 0] {
            farm.ahead[0] = step;
            farm.pass(1);
            assert!(farm.write() >= step, "{step}");
        }
        assert_eq!(farm.told, []);
        for second in 0..120 {
            farm.ahead[0] = if second % 2 == 0 { DAY as i64 } else { 0 };
            farm.pass(1);
        }
        assert!(farm.told.len() <= 5, "{:?}", farm.told);
    }

    #[test]
    fn a_leader_that_hears_no_other_clock_goes_by_its_own_after_a_while() {
        let mut farm = Farm::new(3);
        farm.keeper.on_applied(farm.truth() - DAY, farm.now_ms);
        farm.keeper.lead(farm.now_ms);
        for _ in 0..17 {
            farm.now_ms += 1000;
            farm.keeper.on_clock(ServerId(1), farm.truth(), farm.now_ms);
        }
        assert_eq!(farm.write(), 0);
    }

    #[test]
    fn absurd_clocks_are_survived() {
        let mut farm = running(1);
        for shows in [0, 1, u64::MAX, i64::MAX as u64] {
            farm.keeper.on_clock(ServerId(1), shows, farm.now_ms);
            farm.keeper.on_clock(ServerId(1), shows, farm.now_ms + BELIEVED_AFTER_MS);
        }
        farm.keeper.on_applied(u64::MAX, farm.now_ms);
        assert_eq!(farm.keeper.time_ms(u64::MAX), u64::MAX);
    }
}
