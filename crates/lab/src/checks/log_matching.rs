//! Log matching: if two logs have an entry of the same index and term, they are the same up to there.
//!
//! It is enough to look at neighbours: an entry of this index and term has these data and follows an entry of that term,
//! in every log. The rest follows by induction, so that one look per append replaces a comparison of all logs.

use std::collections::BTreeMap;

use bytes::Bytes;
use primus_core::ServerId;
use primus_replica::log::Log;
use primus_replica::message::Entry;

use super::Judgement;

/// Every entry that was ever in a log, by index and term.
#[derive(Debug, Default)]
pub(super) struct Watch {
    seen: BTreeMap<(u64, u64), Seen>,
}

#[derive(Debug)]
struct Seen {
    data: Bytes,
    /// The term of the entry before it, unless a snapshot has swallowed that one wherever this was seen.
    follows: Option<u64>,
}

impl Watch {
    /// Entries in a row have just come into this log.
    pub(super) fn on_append<'a>(
        &mut self,
        id: ServerId,
        entries: impl Iterator<Item = &'a Entry>,
        log: &Log,
    ) -> Judgement {
        let mut before: Option<&Entry> = None;
        for entry in entries {
            let neighbour = before.filter(|before| before.index + 1 == entry.index).map(|before| before.term);
            self.look(id, entry, neighbour.or_else(|| log.term_of(entry.index - 1)))?;
            before = Some(entry);
        }
        Ok(())
    }

    fn look(&mut self, id: ServerId, entry: &Entry, follows: Option<u64>) -> Judgement {
        let place = (entry.index, entry.term);
        let seen = self.seen.entry(place).or_insert_with(|| Seen { data: entry.data.clone(), follows });
        let same_neighbour = seen.follows.is_none() || follows.is_none() || seen.follows == follows;
        seen.follows = seen.follows.or(follows);
        if seen.data == entry.data && same_neighbour {
            return Ok(());
        }
        Err(format!(
            "server {id} has another entry {} of term {} than others, or another before it",
            place.0, place.1
        ))
    }
}

#[cfg(test)]
mod tests {
    use primus_replica::message::Record;

    use super::*;

    fn entries(terms: &[u64]) -> Vec<Entry> {
        let entry =
            |(place, term): (usize, &u64)| Entry { index: place as u64 + 1, term: *term, data: Bytes::new() };
        terms.iter().enumerate().map(entry).collect()
    }

    fn judge(logs: &[&[u64]]) -> bool {
        let mut watch = Watch::default();
        logs.iter().all(|terms| {
            let entries = entries(terms);
            let log = Log::new(Vec::new(), entries.iter().cloned().map(Record::Append));
            watch.on_append(ServerId(1), entries.iter(), &log).is_ok()
        })
    }

    #[test]
    fn logs_that_agree_later_must_agree_before() {
        assert!(judge(&[&[1, 1, 2], &[1, 1, 3], &[1, 1]]));
        assert!(judge(&[&[1, 2, 2], &[1, 1, 3]]));
        assert!(!judge(&[&[1, 2, 3], &[1, 1, 3]]));
        assert!(!judge(&[&[1, 2, 3, 3], &[2, 2, 3, 3]]));
    }
}
