//! What a leader knows of who had which attempt before: by this it decides whether a worker that says *I hold this* may keep it.
//!
//! A worker is believed about itself only. Four rules, in this order:
//!
//! 1. What must not start twice is with the worker that the ledger names.
//! 2. An attempt that somebody has at present is that worker's, whatever others say.
//! 3. An attempt of this leader is believed of the worker to which it was given. Its name counts, not its link: it may have lost
//!    the one on which it got the attempt, or may have been given up.
//! 4. Who had an attempt of an older leader, nobody has written down. A leader believes the worker that says so first, in its
//!    first hello to this leader, about tasks that are older than this leadership. A name that was bound to a key only since then
//!    cannot have served an older leader, and neither can a worker of another farm that is not borrowed.
//!
//! So what is left for a worker that lies: right after a new leader has begun, it may claim tasks of older leaders before those
//! that have them do. It must be a worker that the farm knew by then; and it gets nothing that must not start twice.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use crate::ledger::loans::home_of;
use crate::ledger::{Attempt, Held, Ledger, TaskId};

/// Of no more workers is it remembered what they had. What others had runs again.
const FORMER_MAX: usize = 4096;
/// No more workers are believed about older leaders: as many as may have a key.
const HEARD_MAX: usize = crate::ledger::roll::KEYS_MAX;

/// What a leader knows of the past.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Past {
    /// What this leader gave to workers that have no link now.
    former: BTreeMap<String, BTreeSet<Held>>,
    /// Who has said hello to this leader.
    heard: BTreeSet<String>,
    /// The newest time that the ledger knew when this leader began.
    since_ms: u64,
}

impl Past {
    pub(super) fn new(ledger: &Ledger) -> Self {
        Self { since_ms: ledger.newest_ms(), ..Self::default() }
    }

    /// A worker is here no more, and had this.
    pub(super) fn note_gone(&mut self, worker: String, held: &BTreeMap<Attempt, TaskId>) {
        if held.is_empty() || self.former.len() >= FORMER_MAX && !self.former.contains_key(&worker) {
            return;
        }
        let held = held.iter().map(|(attempt, task)| Held { task: *task, attempt: *attempt });
        self.former.entry(worker).or_default().extend(held);
    }

    /// A worker has said all that it has.
    pub(super) fn note_heard(&mut self, worker: &str) {
        self.former.remove(worker);
        if self.heard.len() < HEARD_MAX && !self.heard.contains(worker) {
            self.heard.insert(worker.into());
        }
    }

    /// Did this leader give it this, before its link was lost?
    pub(super) fn had(&self, worker: &str, held: Held) -> bool {
        self.former.get(worker).is_some_and(|former| former.contains(&held))
    }

    /// Can an older leader have given it something that this one has not heard of?
    pub(super) fn may_have_served_another(&self, worker: &str, ledger: &Ledger) -> bool {
        let is_new = ledger.roll().workers().get(worker).is_some_and(|bound| bound.since_ms > self.since_ms);
        // A worker of another farm has nothing of this one unless it is borrowed.
        let is_stranger = home_of(worker).is_some() && !ledger.loans().borrowed().contains_key(worker);
        !is_new && !is_stranger && self.heard.len() < HEARD_MAX && !self.heard.contains(worker)
    }
}
