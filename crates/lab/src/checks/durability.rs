//! Durability: what was acknowledged is never lost. Every read that begins later sees it, and in the end it is still there.

use primus_core::ServerId;

use super::{Judgement, State};

/// What clients were told.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The last place of the log that was acknowledged.
    acknowledged: u64,
}

impl Watch {
    pub(super) fn on_acknowledged(&mut self, index: u64) {
        self.acknowledged = self.acknowledged.max(index);
    }

    pub(super) const fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// That the entries are the right ones is a matter of state machine safety.
    pub(super) fn on_end(&self, states: &[State]) -> Judgement {
        let known = states.iter().map(|state| state.applied).max().unwrap_or(0);
        if known >= self.acknowledged {
            return Ok(());
        }
        Err(format!("entry {} was acknowledged, and in the end nobody knows more than {known}", self.acknowledged))
    }
}

/// A read that began when everything up to `since` was acknowledged sees everything up to `index`.
pub(super) fn on_read(id: ServerId, since: u64, index: u64) -> Judgement {
    if index >= since {
        return Ok(());
    }
    Err(format!("server {id} let a client read at {index} what was acknowledged up to {since}"))
}

/// A client looks at a farm, and misses something that was acknowledged before it asked, or nothing.
pub(super) fn on_look(id: ServerId, missing: Option<&str>) -> Judgement {
    match missing {
        None => Ok(()),
        Some(what) => Err(format!("the farm of server {id} did not show {what} that was acknowledged before")),
    }
}
