//! Commits stay: a committed entry is in the logs of a majority, and no server overwrites it in the term in which it was
//! committed, or a later one.
//!
//! In an earlier term it may: a server that stood still for long can still hear a leader of then, who did not have the entry,
//! while the others have committed it without that server. But whoever leads later has it. This is the step on which the Raft paper's proof of leader completeness rests. It is violated by the first wrong append,
//! long before an unlucky election makes it a loss that anybody else could see.

use std::collections::BTreeMap;

use primus_core::ServerId;
use primus_core::Term;
use primus_replica::log::Log;
use primus_replica::message::Entry;

use super::{Committed, Judgement};

/// What each server has.
#[derive(Debug, Default)]
pub(super) struct Watch {
    logs: BTreeMap<ServerId, Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// A snapshot stands for everything up to here.
    covered: u64,
    /// The term of every entry after that.
    terms: BTreeMap<u64, u64>,
}

impl Watch {
    /// A server starts; what had not reached its disk is gone.
    pub(super) fn on_start(&mut self, id: ServerId, log: &Log) {
        let covered = log.snapshot().map_or(0, |snapshot| snapshot.index);
        let terms = log.entries().map(|entry| (entry.index, entry.term)).collect();
        self.logs.insert(id, Kept { covered, terms });
    }

    /// A server takes over a whole state, up to this entry.
    pub(super) fn on_restore(&mut self, id: ServerId, index: u64) {
        let kept = self.logs.entry(id).or_default();
        kept.covered = kept.covered.max(index);
    }

    /// An append replaces everything from its first entry on. The server is in this term.
    pub(super) fn on_append<'a>(
        &mut self,
        id: ServerId,
        term: Term,
        entries: impl Iterator<Item = &'a Entry>,
        committed: &[Committed],
    ) -> Judgement {
        let kept = self.logs.entry(id).or_default();
        let mut replaced = BTreeMap::new();
        for entry in entries {
            replaced.append(&mut kept.terms.split_off(&entry.index));
            kept.terms.insert(entry.index, entry.term);
        }
        let is_committed = |index: u64, of: u64| {
            entry_at(committed, index).is_some_and(|entry| entry.term == of && entry.known_in <= term)
        };
        let is_lost = |(index, of): &(&u64, &u64)| is_committed(**index, **of) && kept.terms.get(index) != Some(of);
        match replaced.iter().find(is_lost) {
            Some((index, of)) => {
                Err(format!("server {id} overwrote entry {index} of term {of}, which is committed"))
            }
            None => Ok(()),
        }
    }

    /// The last of these has just become known to be committed.
    pub(super) fn on_commit(&self, committed: &[Committed]) -> Judgement {
        let (index, Some(entry)) = (committed.len() as u64, committed.last()) else { return Ok(()) };
        let has = |kept: &&Kept| kept.covered >= index || kept.terms.get(&index) == Some(&entry.term);
        let count = self.logs.values().filter(has).count();
        if 2 * count > self.logs.len() {
            return Ok(());
        }
        Err(format!("entry {index} of term {} is committed, and {count} servers have it", entry.term))
    }
}

fn entry_at(committed: &[Committed], index: u64) -> Option<&Committed> {
    committed.get(usize::try_from(index.checked_sub(1)?).ok()?)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn entries(first: u64, terms: &[u64]) -> Vec<Entry> {
        (first..).zip(terms).map(|(index, term)| Entry { index, term: *term, data: Bytes::new() }).collect()
    }

    fn committed(terms: &[u64]) -> Vec<Committed> {
        let one = |term: &u64| Committed { term: *term, data: Bytes::new(), known_in: Term(*term) };
        terms.iter().map(one).collect()
    }

    fn watch(logs: &[&[u64]]) -> Watch {
        let mut watch = Watch::default();
        for (id, terms) in (1..).zip(logs) {
            watch.on_append(ServerId(id), Term(9), entries(1, terms).iter(), &[]).unwrap();
        }
        watch
    }

    #[test]
    fn only_what_is_not_committed_is_overwritten() {
        let append = |known_in, first, terms: &[u64]| {
            let (log, mut committed) = (entries(first, terms), committed(&[1, 1]));
            committed.iter_mut().for_each(|entry| entry.known_in = Term(known_in));
            watch(&[&[1, 1, 1]]).on_append(ServerId(1), Term(2), log.iter(), &committed).is_ok()
        };
        assert!(append(1, 3, &[2]) && append(1, 2, &[1, 2]) && append(1, 4, &[2]));
        assert!(!append(1, 2, &[2]) && !append(1, 1, &[1]) && !append(2, 2, &[2]));
        assert!(append(3, 2, &[2]), "it was committed later, by others");
    }

    #[test]
    fn a_majority_has_what_is_committed() {
        let mut watch = watch(&[&[1, 1], &[1], &[1, 2]]);
        assert!(watch.on_commit(&committed(&[1])).is_ok());
        assert!(watch.on_commit(&committed(&[1, 1])).is_err());
        watch.on_restore(ServerId(2), 2);
        assert!(watch.on_commit(&committed(&[1, 1])).is_ok());
    }
}
