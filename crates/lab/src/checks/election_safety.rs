//! Election safety: at most one server leads in a term.

use std::collections::BTreeMap;

use primus_core::ServerId;
use primus_core::Term;

use super::Judgement;

/// Who led when.
#[derive(Debug, Default)]
pub(super) struct Watch {
    leaders: BTreeMap<Term, ServerId>,
}

impl Watch {
    pub(super) fn on_lead(&mut self, id: ServerId, term: Term) -> Judgement {
        let first = *self.leaders.entry(term).or_insert(id);
        if first == id { Ok(()) } else { Err(format!("servers {first} and {id} both led in term {}", term.0)) }
    }
}
