//! If nothing happens but that the leader dies, two terms later at most another one leads.
//!
//! Everybody who waits for answers waits for as long as they take: whoever asks again too soon begins another term for
//! nothing, and disturbs whoever is about to win.

use primus_core::Term;

use super::Judgement;

const TERMS_MAX: u64 = 2;

/// Waits for the next leader.
#[derive(Debug, Default)]
pub(super) struct Watch {
    killed: Option<Term>,
    is_over: bool,
}

impl Watch {
    pub(super) fn on_kill(&mut self, term: Term) {
        self.killed.get_or_insert(term);
    }

    pub(super) fn on_lead(&mut self, term: Term) -> Judgement {
        let Some(killed) = self.killed.filter(|killed| !self.is_over && term > *killed) else { return Ok(()) };
        self.is_over = true;
        let terms = term.0 - killed.0;
        if terms <= TERMS_MAX { Ok(()) } else { Err(format!("the next leader came {terms} terms later")) }
    }

    /// Was the leader killed at all?
    pub(super) const fn applies(&self) -> bool {
        self.killed.is_some()
    }
}
