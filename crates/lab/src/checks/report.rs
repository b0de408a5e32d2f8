//! What a run came to.

use std::collections::BTreeMap;

use primus_core::election::Algorithm;
use primus_core::{ServerId, Term};
use primus_server::control::Message;

use super::Property;
use crate::driver::host::Words;
use crate::outcome::Leaders;

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What should have been true.
    pub property: Property,
    /// What was found.
    pub what: String,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The seed that gives this run again.
    pub seed: u64,
    /// What went wrong first, if anything did; the run ended there.
    pub violation: Option<Violation>,
    /// The properties that apply, and whether they hold.
    pub properties: BTreeMap<Property, bool>,
    /// What every live server takes for the leader of its farm.
    pub table: BTreeMap<ServerId, Option<ServerId>>,
    /// What was seen, and how often.
    pub seen: BTreeMap<&'static str, u64>,
    /// How many tasks were acknowledged.
    pub tasks: u64,
    /// Tasks that must not start twice, and of which nobody knows how they ended.
    pub lost: u64,
    /// What was counted.
    pub tally: Tally,
}

/// What is counted in a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// Leaders during the run. Two at once are two terms: one of them does not know yet that it is deposed; or two farms.
    pub leaders: Leaders,
    /// Messages sent between servers.
    pub messages: Messages,
    /// When a server began to lead because its predecessor was too loaded.
    pub handovers_us: Vec<u64>,
    /// How many writes were acknowledged.
    pub acknowledged: u64,
    /// How many reads were answered.
    pub reads: u64,
    /// How often a server got the whole state from the leader.
    pub restored: u64,
    /// How many jobs were acknowledged that clients submitted in pairs.
    pub submitted: u64,
    /// How many clients looked at farms.
    pub looks: u64,
    /// How many attempts were started.
    pub starts: u64,
    /// How many of them were started while another attempt at the same task ran, or its result was kept somewhere.
    pub double_starts: u64,
    /// What the leader's death came to, if it was killed on purpose.
    pub failover: Option<Failover>,
    /// When a server last began to lead.
    pub last_change_us: u64,
    /// How long after the last fault everybody agreed and had everything, if that was so.
    pub healed_us: Option<u64>,
    /// When it ended.
    pub virtual_us: u64,
    /// Steps taken.
    pub steps: u64,
}

/// What the death of a leader came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failover {
    /// How the others elected.
    pub algorithm: Algorithm,
    /// When it died.
    pub at_us: u64,
    /// In which term it led.
    pub term: u64,
    /// How many terms began until another one led.
    pub terms: Option<u64>,
    /// How long that took.
    pub led_us: Option<u64>,
    /// How long it took until a client's write was acknowledged.
    pub wrote_us: Option<u64>,
}

/// Messages by what they are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Messages {
    /// Who should lead.
    pub election: u64,
    /// The log: votes, entries, heartbeats, snapshots.
    pub replica: u64,
    /// Loads, and announcements of a change.
    pub other: u64,
}

impl Report {
    /// How often this was seen.
    #[must_use]
    pub fn seen(&self, what: &str) -> u64 {
        self.seen.get(what).copied().unwrap_or(0)
    }
}

impl Tally {
    /// The leader is killed, and that is all.
    pub(crate) fn on_kill(&mut self, algorithm: Algorithm, Term(term): Term, at_us: u64) {
        let failover = Failover { algorithm, at_us, term, terms: None, led_us: None, wrote_us: None };
        self.failover.get_or_insert(failover);
    }

    pub(crate) fn on_lead(&mut self, term: Term, now_us: u64) {
        if let Some(failover) = self.failover.as_mut().filter(|failover| failover.terms.is_none()) {
            failover.terms = Some(term.0 - failover.term);
            failover.led_us = Some(now_us - failover.at_us);
        }
    }

    pub(crate) fn on_write(&mut self, now_us: u64) {
        if let Some(failover) = self.failover.as_mut().filter(|failover| failover.terms.is_some()) {
            failover.wrote_us.get_or_insert(now_us - failover.at_us);
        }
    }
}

impl Messages {
    pub(crate) fn add(&mut self, message: &Words) {
        match message {
            Message::Election(_) => self.election += 1,
            Message::Replica(_) => self.replica += 1,
            _ => self.other += 1,
        }
    }

    /// How many were sent in all.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.election + self.replica + self.other
    }
}
