//! If nothing happens but that the leader dies, two terms later at most another one leads; four, where messages overtake each
//! other.
//!
//! A candidate that waits for answers waits for as long as they take: one that asks again too soon begins another term for
//! nothing, and disturbs the one that is about to win. Links keep the order of messages. Where they do not, entries arrive with
//! gaps, all logs end at different places, and a candidate with a short log is refused.

use primus_core::Term;

use super::Judgement;

const TERMS_MAX: u64 = 2;
const TERMS_MAX_OVERTAKEN: u64 = 4;

/// Waits for the next leader.
#[derive(Debug, Default)]
pub(super) struct Watch {
    killed: Option<Term>,
    is_over: bool,
    overtaking: bool,
}

impl Watch {
    /// Nothing has happened yet. Do messages overtake each other?
    pub(super) const fn new(overtaking: bool) -> Self {
        Self { killed: None, is_over: false, overtaking }
    }

    pub(super) fn on_kill(&mut self, term: Term) {
        self.killed.get_or_insert(term);
    }

    pub(super) fn on_lead(&mut self, term: Term) -> Judgement {
        let Some(killed) = self.killed.filter(|killed| !self.is_over && term > *killed) else { return Ok(()) };
        self.is_over = true;
        let terms = term.0 - killed.0;
        let terms_max = if self.overtaking { TERMS_MAX_OVERTAKEN } else { TERMS_MAX };
        if terms <= terms_max { Ok(()) } else { Err(format!("the next leader came {terms} terms later")) }
    }

    /// Was the leader killed at all?
    pub(super) const fn applies(&self) -> bool {
        self.killed.is_some()
    }
}
