//! The processes of a run of leases, and what belongs to them: a clock, timers, a copy of the ledger.

use std::collections::{BTreeMap, BTreeSet};

use primus_core::SessionId;
use primus_core::lease::{Candidacy, Guard, Lessor, guard};
use primus_core::ledger::Ledger;
use primus_core::machine::Delay;

use crate::node::NodeId;

/// A host's clock. It began at some time, runs too fast or too slow, and never stands still.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    pub(super) ahead_us: u64,
    /// In parts per million.
    pub(super) slower_ppm: i64,
}

/// A server's host.
#[derive(Debug)]
pub(super) struct ServerHost {
    pub(super) clock: Clock,
    pub(super) lease_us: u64,
    /// None while it is dead.
    pub(super) lessor: Option<Lessor>,
    /// The newest term that it has taken part in, which it never forgets.
    pub(super) term: u64,
    /// The term in which it leads, as far as it knows.
    pub(super) leads: Option<u64>,
    pub(super) ledger: Ledger,
    /// How much of the log it has applied.
    pub(super) applied: usize,
    /// The number under which its timer was set last.
    pub(super) tick: Option<u64>,
    /// Who has said that it leads, by term and question.
    pub(super) told: BTreeMap<(u64, u64), BTreeSet<NodeId>>,
    /// Who is to lead as soon as nothing is held beside this server any more.
    pub(super) heir: Option<NodeId>,
}

/// A host with a guard.
#[derive(Debug)]
pub(super) struct GuardHost {
    pub(super) clock: Clock,
    /// The server that it speaks through.
    pub(super) at: NodeId,
    /// Is it on the same host as that server?
    pub(super) is_beside: bool,
    /// None while it is dead.
    pub(super) guard: Option<Guard>,
    /// What it wants, unless it has left it for a while.
    pub(super) wants: Vec<Candidacy>,
    pub(super) has_left: BTreeSet<String>,
    /// The number under which each timer was set last.
    pub(super) timers: BTreeMap<guard::Timer, u64>,
    /// What runs, and under which tokens.
    pub(super) runs: BTreeMap<String, u64>,
    /// The term of the leader that spoke last.
    pub(super) heard: u64,
}

impl Clock {
    /// What it shows at this moment.
    pub(super) fn local_us(self, real_us: u64) -> u64 {
        let shown = u128::from(real_us) * 1_000_000 / self.per_million();
        self.ahead_us + u64::try_from(shown).expect("runs are short")
    }

    /// When it shows this.
    pub(super) fn real_us(self, local_us: u64) -> u64 {
        let real = (u128::from(local_us.saturating_sub(self.ahead_us)) * self.per_million()).div_ceil(1_000_000);
        u64::try_from(real).expect("runs are short")
    }

    /// How long a timer really takes.
    pub(super) fn real(self, delay: Delay) -> Delay {
        delay.skewed(self.slower_ppm)
    }

    fn per_million(self) -> u128 {
        u128::try_from(1_000_000 + i128::from(self.slower_ppm)).expect("no clock runs backwards")
    }
}

impl ServerHost {
    pub(super) fn new(clock: Clock, lease_us: u64) -> Self {
        Self {
            clock,
            lease_us,
            lessor: None,
            term: 0,
            leads: None,
            ledger: Ledger::default(),
            applied: 0,
            tick: None,
            told: BTreeMap::new(),
            heir: None,
        }
    }

    /// What died with the process; the term is on its disk, and so is the log, which it will apply again.
    pub(super) fn forget(&mut self) {
        *self = Self { term: self.term, ..Self::new(self.clock, self.lease_us) };
    }
}

impl GuardHost {
    pub(super) const fn new(clock: Clock, at: NodeId, is_beside: bool, wants: Vec<Candidacy>) -> Self {
        Self {
            clock,
            at,
            is_beside,
            guard: None,
            wants,
            has_left: BTreeSet::new(),
            timers: BTreeMap::new(),
            runs: BTreeMap::new(),
            heard: 0,
        }
    }

    pub(super) fn session(&self) -> Option<SessionId> {
        self.guard.as_ref().map(Guard::session)
    }

    /// Does it want this group now?
    pub(super) fn is_candidate(&self, group: &str) -> bool {
        let is_wanted = self.wants.iter().any(|candidacy| candidacy.group == group);
        self.guard.is_some() && is_wanted && !self.has_left.contains(group)
    }

    /// What died with the process; its companion ends what ran.
    pub(super) fn forget(&mut self) {
        self.guard = None;
        self.timers.clear();
        self.has_left.clear();
        self.runs.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_has_shown_a_time_from_the_moment_at_which_it_shows_it() {
        for slower_ppm in [-10_000, -1, 0, 3, 10_000] {
            let clock = Clock { ahead_us: 77, slower_ppm };
            for local_us in (77..3_000_000).step_by(997) {
                let real_us = clock.real_us(local_us);
                assert!(clock.local_us(real_us) >= local_us);
                assert!(real_us == 0 || clock.local_us(real_us - 1) <= local_us);
            }
        }
    }
}
