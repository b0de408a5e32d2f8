//! Leader completeness: whoever leads has every entry that was committed in an earlier term.
//!
//! Nobody sees the moment of a commit, only when the first server learns of it. So there are two moments to look: when
//! somebody begins to lead, and when a commit becomes known while somebody leads in a later term. A leader that others
//! have long deposed, and that only does not know it yet, needs to have nothing of what they committed since.

use primus_core::ServerId;
use primus_core::Term;
use primus_replica::log::Log;

use super::{Committed, Judgement};

/// Somebody begins to lead.
pub(super) fn on_lead(id: ServerId, term: Term, log: &Log, committed: &[Committed]) -> Judgement {
    let places = (1..).zip(committed);
    places
        .filter(|(_, entry)| entry.known_in < term)
        .try_for_each(|(index, entry)| has(id, term, log, index, entry))
}

/// The last of these has just become known, while this server leads.
pub(super) fn on_commit(id: ServerId, term: Term, log: &Log, committed: &[Committed]) -> Judgement {
    match committed.last() {
        Some(entry) if entry.known_in < term => has(id, term, log, committed.len() as u64, entry),
        _ => Ok(()),
    }
}

fn has(id: ServerId, term: Term, log: &Log, index: u64, entry: &Committed) -> Judgement {
    // What a snapshot covers was committed, and is compared as a state.
    let is_covered = log.snapshot().is_some_and(|snapshot| snapshot.index >= index);
    if is_covered || log.term_of(index) == Some(entry.term) {
        return Ok(());
    }
    Err(format!("server {id} leads in term {} without entry {index} of term {}", term.0, entry.term))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use primus_replica::message::{Entry, Record};

    use super::*;

    fn log(terms: &[u64]) -> Log {
        let entries = (1..).zip(terms).map(|(index, term)| Entry { index, term: *term, data: Bytes::new() });
        Log::new(Vec::new(), entries.map(Record::Append))
    }

    fn committed(terms: &[(u64, u64)]) -> Vec<Committed> {
        let one = |(term, known_in): &(u64, u64)| Committed {
            term: *term,
            data: Bytes::new(),
            known_in: Term(*known_in),
        };
        terms.iter().map(one).collect()
    }

    #[test]
    fn a_leader_needs_what_was_committed_before_its_term_and_nothing_else() {
        let known = committed(&[(1, 1), (1, 3)]);
        let lead = |term, terms: &[u64]| on_lead(ServerId(1), Term(term), &log(terms), &known).is_ok();
        assert!(lead(4, &[1, 1]));
        assert!(!lead(4, &[1]) && !lead(4, &[1, 2]) && !lead(2, &[]));
        assert!(lead(2, &[1]), "the second entry may have been committed in term 3");
    }

    #[test]
    fn a_commit_that_becomes_known_later_is_looked_for_then() {
        let known = committed(&[(1, 1), (1, 1)]);
        assert!(on_commit(ServerId(1), Term(2), &log(&[1, 1]), &known).is_ok());
        assert!(on_commit(ServerId(1), Term(2), &log(&[1]), &known).is_err());
        assert!(on_commit(ServerId(1), Term(1), &log(&[1]), &known).is_ok());
    }
}
