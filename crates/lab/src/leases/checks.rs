//! What must be true of all leases, one property per file; and what must be seen sometimes, lest everything hold for want of
//! cases.
//!
//! A `Checks` hears of every grant, renewal and end in real time, and notes the first violation; the run ends there.

mod held_again;
mod holders;
mod tokens;

use std::collections::BTreeMap;

use primus_core::SessionId;
use primus_core::ledger::GroupRules;

/// A property of leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Property {
    /// No group is held by more at once than may hold it.
    Holders,
    /// Whoever holds a group later has a greater token.
    Tokens,
    /// When all is well, every group that somebody wants is held.
    HeldAgain,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What should have been true.
    pub property: Property,
    /// What was found.
    pub what: String,
}

/// What was seen in a run, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sightings {
    /// Somebody began to hold a group.
    pub grants: u64,
    /// Somebody held a group right after somebody else had let go of it.
    pub releases: u64,
    /// Somebody held a group after somebody else's time was over.
    pub expiries: u64,
    /// Somebody was asked to let go.
    pub recalls: u64,
    /// Nothing was held beside a leader any more that was about to hand over.
    pub vacancies: u64,
    /// A leader committed something while a promise of an older leader still ran.
    pub early_commits: u64,
    /// A deposed leader answered a guard.
    pub stale_answers: u64,
    /// A frozen guard went on after its time.
    pub late_wakes: u64,
    /// Somebody came with an old token.
    pub old_tokens: u64,
}

/// Somebody holds a group, in real time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) group: String,
    pub(super) session: SessionId,
    pub(super) token: u64,
    pub(super) from_us: u64,
    /// When it ends, or has ended.
    pub(super) end_us: u64,
    /// When the last promise ends.
    pub(super) until_us: u64,
    /// The term of the leader that promised last.
    pub(super) term: u64,
}

/// Everything that is known about a run, for all properties.
#[derive(Debug)]
pub(super) struct Checks {
    groups: BTreeMap<String, GroupRules>,
    lease_us: u64,
    /// In the order in which they began.
    intervals: Vec<Interval>,
    pub(super) seen: Sightings,
    violation: Option<Violation>,
}

/// What a property says: nothing, or what is wrong.
type Judgement = Result<(), String>;

impl Checks {
    pub(super) fn new(groups: Vec<(String, GroupRules)>, lease_us: u64) -> Self {
        let groups = groups.into_iter().collect();
        Self { groups, lease_us, intervals: Vec::new(), seen: Sightings::default(), violation: None }
    }

    fn note(&mut self, property: Property, judgement: Judgement) {
        if let Err(what) = judgement {
            self.violation.get_or_insert(Violation { property, what });
        }
    }

    /// A guard was told that it holds a group.
    pub(super) fn on_granted(&mut self, interval: Interval) {
        let rules = self.groups[&interval.group];
        let judgement = tokens::check(&self.intervals, &interval, rules);
        self.note(Property::Tokens, judgement);
        self.see_grant(&interval);
        let now_us = interval.from_us;
        self.intervals.push(interval);
        self.check_holders(self.intervals.len() - 1, now_us);
    }

    /// It was told that it may go on until then. An end that has passed is no end any more: this is stricter than companions
    /// are, who raise nobody from the dead.
    pub(super) fn on_renewed(&mut self, token: u64, end_us: u64, term: u64, now_us: u64) {
        let Some(place) = self.intervals.iter().position(|interval| interval.token == token) else { return };
        let interval = &mut self.intervals[place];
        (interval.end_us, interval.until_us) = (end_us, end_us);
        interval.term = interval.term.max(term);
        self.check_holders(place, now_us);
    }

    /// What ran has ended, by its guard's word or because its time was over.
    pub(super) fn on_end(&mut self, token: u64, now_us: u64, is_said: bool) {
        let interval = self.intervals.iter_mut().find(|interval| interval.token == token);
        if let Some(interval) = interval {
            interval.end_us = interval.end_us.min(now_us);
            interval.until_us = if is_said { interval.until_us } else { interval.end_us };
        }
    }

    /// A guard has died, and with it everything that it ran.
    pub(super) fn on_crash(&mut self, session: SessionId, now_us: u64) {
        for interval in self.intervals.iter_mut().filter(|interval| interval.session == session) {
            interval.end_us = interval.end_us.min(now_us);
        }
    }

    /// A guard that stood still goes on.
    pub(super) fn on_resume(&mut self, session: SessionId, now_us: u64) {
        let mut own = self.intervals.iter().filter(|interval| interval.session == session);
        // Whatever ended by anybody's word ended before its promise did.
        let is_late = own.any(|interval| interval.end_us == interval.until_us && interval.end_us < now_us);
        self.seen.late_wakes += u64::from(is_late);
    }

    /// The leader of this term has committed something that it proposed itself.
    pub(super) fn on_commit(&mut self, term: u64, now_us: u64) {
        let is_old = |interval: &Interval| interval.term < term && interval.end_us > now_us;
        self.seen.early_commits += u64::from(self.intervals.iter().any(is_old));
    }

    fn check_holders(&mut self, place: usize, now_us: u64) {
        let rules = self.groups[&self.intervals[place].group];
        let judgement = holders::check(&self.intervals, place, rules, now_us);
        self.note(Property::Holders, judgement);
    }

    fn see_grant(&mut self, next: &Interval) {
        self.seen.grants += 1;
        let before = self.intervals.iter().rev().find(|interval| interval.group == next.group);
        let Some(before) = before.filter(|before| before.session != next.session) else { return };
        let is_soon = next.from_us < before.end_us + self.lease_us / 10;
        self.seen.releases += u64::from(is_soon && next.from_us < before.until_us);
        self.seen.expiries += u64::from(next.from_us >= before.until_us);
    }

    /// The run is over, and nothing went wrong for a while. So many want a group.
    pub(super) fn on_end_of_run(&mut self, now_us: u64, candidates: impl Fn(&str) -> usize) {
        if self.violation.is_none() {
            let judgement = held_again::check(&self.groups, &self.intervals, now_us, candidates);
            self.note(Property::HeldAgain, judgement);
        }
    }

    pub(super) const fn is_violated(&self) -> bool {
        self.violation.is_some()
    }

    pub(super) fn verdict(self) -> (Sightings, Option<Violation>) {
        (self.seen, self.violation)
    }
}

impl Property {
    /// The property's name, as output contracts spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Holders => "holders",
            Self::Tokens => "tokens",
            Self::HeldAgain => "held_again",
        }
    }
}
