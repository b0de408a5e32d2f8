//! Stay: a worker changes its place once per stay time at most, unless an operator wants it otherwise or it has started
//! again.
//!
//! While things go wrong a borrower may lose sight of a worker, and it comes home early; so then only how soon it goes again is
//! judged.

use std::collections::{BTreeMap, BTreeSet};

use super::{Judgement, LoanName};
use crate::node::NodeId;

/// Clocks run wrong by so much, in parts per thousand.
const SKEW: u64 = 10;

/// When workers have gone and come home.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    stay_us: u64,
    is_strict: bool,
    /// Under which loan each has gone last, and when.
    gone: BTreeMap<NodeId, (LoanName, u64)>,
    home_since_us: BTreeMap<NodeId, u64>,
    excused: BTreeSet<LoanName>,
}

impl Watch {
    pub(super) fn new(stay_us: u64, is_strict: bool) -> Self {
        Self {
            stay_us: stay_us - stay_us * SKEW / 1000,
            is_strict,
            gone: BTreeMap::new(),
            home_since_us: BTreeMap::new(),
            excused: BTreeSet::new(),
        }
    }

    /// An operator wants this one back.
    pub(crate) fn excuse(&mut self, loan: LoanName) {
        self.excused.insert(loan);
    }

    pub(crate) fn on_crash(&mut self, worker: NodeId) {
        self.gone.remove(&worker);
        self.home_since_us.remove(&worker);
    }

    pub(super) fn on_go(&mut self, worker: NodeId, loan: LoanName, is_ordered: bool, now_us: u64) -> Judgement {
        self.gone.insert(worker, (loan, now_us));
        match self.home_since_us.remove(&worker) {
            Some(since_us) if since_us + self.stay_us > now_us && !is_ordered => {
                Err(format!("worker {worker} came home at {since_us} µs and goes again at {now_us} µs"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn on_come_home(&mut self, worker: NodeId, now_us: u64) -> Judgement {
        self.home_since_us.insert(worker, now_us);
        match self.gone.remove(&worker) {
            Some((loan, since_us))
                if self.is_strict && since_us + self.stay_us > now_us && !self.excused.contains(&loan) =>
            {
                Err(format!("worker {worker} went at {since_us} µs and comes home at {now_us} µs"))
            }
            _ => Ok(()),
        }
    }
}
