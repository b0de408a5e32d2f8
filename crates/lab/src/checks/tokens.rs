//! Tokens: no two grants bear the same one, and whoever holds a group later than all others has a greater one.
//!
//! Where several may hold a group, two grants that were agreed on together may be heard of in any order.

use std::collections::BTreeMap;

use primus_core::ledger::GroupRules;
use primus_core::{SessionId, Term};

use super::Judgement;

/// Somebody holds a group, in real time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) group: String,
    pub(crate) session: SessionId,
    pub(crate) token: u64,
    pub(crate) from_us: u64,
    /// When it ends, or has ended.
    pub(crate) end_us: u64,
    /// When the last promise ends.
    pub(crate) until_us: u64,
    /// The term of the leader that promised last.
    pub(crate) term: Term,
}

/// Who has held what.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    pub(super) groups: BTreeMap<String, GroupRules>,
    lease_us: u64,
    /// In the order in which they began.
    pub(super) intervals: Vec<Interval>,
}

impl Leases {
    pub(super) const fn new(groups: BTreeMap<String, GroupRules>, lease_us: u64) -> Self {
        Self { groups, lease_us, intervals: Vec::new() }
    }

    /// One more. Did it begin because somebody else had let go, or because that one's time was over?
    pub(super) fn add(&mut self, next: Interval) -> (bool, bool) {
        let before = self.intervals.iter().rev().find(|interval| interval.group == next.group);
        let came = before.filter(|before| before.session != next.session).map_or((false, false), |before| {
            let is_soon = next.from_us < before.end_us + self.lease_us / 10;
            (is_soon && next.from_us < before.until_us, next.from_us >= before.until_us)
        });
        self.intervals.push(next);
        came
    }

    /// It goes on. Which one is it?
    pub(super) fn renew(&mut self, token: u64, end_us: u64, term: Term) -> Option<usize> {
        let place = self.intervals.iter().position(|interval| interval.token == token)?;
        let interval = &mut self.intervals[place];
        (interval.end_us, interval.until_us) = (end_us, end_us);
        interval.term = interval.term.max(term);
        Some(place)
    }

    /// What ran has ended, by its guard's word or because its time was over.
    pub(crate) fn end(&mut self, token: u64, now_us: u64, is_said: bool) {
        if let Some(interval) = self.intervals.iter_mut().find(|interval| interval.token == token) {
            interval.end_us = interval.end_us.min(now_us);
            interval.until_us = if is_said { interval.until_us } else { interval.end_us };
        }
    }

    /// A guard has died, and with it everything that it ran.
    pub(crate) fn end_all(&mut self, session: SessionId, now_us: u64) {
        for interval in self.intervals.iter_mut().filter(|interval| interval.session == session) {
            interval.end_us = interval.end_us.min(now_us);
        }
    }

    /// Was the time of this one over? Whatever ended by anybody's word ended before its promise did.
    pub(super) fn has_expired(&self, session: SessionId, now_us: u64) -> bool {
        let mut own = self.intervals.iter().filter(|interval| interval.session == session);
        own.any(|interval| interval.end_us == interval.until_us && interval.end_us < now_us)
    }

    /// Does a promise of an older leader still run?
    pub(super) fn has_older(&self, term: Term, now_us: u64) -> bool {
        self.intervals.iter().any(|interval| interval.term < term && interval.end_us > now_us)
    }
}

pub(super) fn check(leases: &Leases, new: &Interval) -> Judgement {
    let before = &leases.intervals;
    if let Some(same) = before.iter().find(|interval| interval.token == new.token) {
        return Err(format!("#{} is granted to {:?}, and was to {:?}", new.token, new.session, same.session));
    }
    let newest = before.iter().filter(|interval| interval.group == new.group).map(|interval| interval.token).max();
    match newest {
        Some(newest) if leases.groups[&new.group].holders == 1 && newest > new.token => {
            Err(format!("{} is held under #{}, and was under #{newest}", new.group, new.token))
        }
        _ => Ok(()),
    }
}
