//! What a replica refuses before the engine sees it. The engine was written for peers that keep to Raft: a term at the end
//! of the numbers, an append with a gap or a commit beyond the log ends its process, and a term is on the disk by then.
//!
//! What is refused here no replica that works can have said. So refusing it costs nothing, and it says something about its
//! sender: it is broken, or is not the peer that it says it is.

use primus_core::bounds::{ABSURD, NUMBER_MAX, is_credible};

use crate::message::{Entry, HardState, Kind, Message, Record, Snapshot};

/// How much a replica has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The newest term that it knows.
    pub term: u64,
    /// The index of its last entry.
    pub last: u64,
    /// True if it leads in that term.
    pub leads: bool,
}

/// Why a message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Objection {
    /// No replica says this, for this reason.
    Strange(&'static str),
    /// A leader takes this replica to have acknowledged more than it has: up to this index. Either that leader is none, or
    /// this replica's disk has lost what was acknowledged.
    Beyond(u64),
}

/// Why a replica that has this much must not take a message; nothing if it may.
#[must_use]
pub fn objection(message: &Message, own: Extent) -> Option<Objection> {
    let strange = absurd(message, own).or_else(|| malformed(message)).or_else(|| impossible_answer(message, own));
    strange.map(Objection::Strange).or_else(|| beyond(message, own))
}

/// Why records that were read from a disk cannot be those of a replica that works; nothing if they can.
#[must_use]
pub fn objection_to_records(records: &[Record]) -> Option<String> {
    let is_sound = |record: &Record| match record {
        Record::Append(Entry { index, term, .. }) => are_bounded([*index, *term]),
        Record::HardState(HardState { term, commit, .. }) => are_bounded([*term, *commit]),
        Record::Snapshot(snapshot) => are_bounded([snapshot.index, snapshot.term]),
    };
    records.iter().find(|record| !is_sound(record)).map(|record| format!("{record}: {ABSURD}"))
}

fn are_bounded<const N: usize>(numbers: [u64; N]) -> bool {
    numbers.iter().all(|number| *number <= NUMBER_MAX)
}

fn absurd(message: &Message, own: Extent) -> Option<&'static str> {
    let Message { term, log_term, index, commit, commit_term, reject_hint, .. } = *message;
    let snapshot = message.snapshot.as_ref().map_or([0; 2], |snapshot| [snapshot.index, snapshot.term]);
    let is_bounded = is_credible(term, own.term)
        && are_bounded([log_term, index, commit, commit_term, reject_hint])
        && are_bounded(snapshot)
        && message.entries.iter().all(|entry| are_bounded([entry.index, entry.term]));
    (!is_bounded).then_some(ABSURD)
}

/// What does not hang together, whoever hears it.
fn malformed(message: &Message) -> Option<&'static str> {
    // The engine takes a message without a term for one of its own.
    if message.term == 0 {
        return Some("a message without a term");
    }
    if message.request_snapshot != 0 {
        return Some("a request that no replica makes");
    }
    match message.kind {
        Kind::Append if !follows(message) => Some("entries that do not follow each other"),
        Kind::Snapshot if !message.snapshot.as_ref().is_some_and(|state| is_state(state, message)) => {
            Some("a state of nothing")
        }
        // A server reads where it leads, and asks nobody else to.
        Kind::ReadIndex | Kind::ReadIndexResponse => Some("a read that no server passes on"),
        _ => None,
    }
}

/// Do the entries continue the one that the message names, without a gap, in terms that only grow?
fn follows(message: &Message) -> bool {
    // Only before the first entry is there no term. The engine finds no term beyond its log either, and would take the two
    // for the same.
    let is_anchored = (message.index == 0) == (message.log_term == 0) && message.log_term <= message.term;
    let before = (message.index, message.log_term);
    let mut entries = message.entries.iter().scan(before, |before, entry| {
        let (index, term) = core::mem::replace(before, (entry.index, entry.term));
        Some(entry.index == index + 1 && entry.term >= term && is_within(entry.term, message))
    });
    is_anchored && entries.all(|follows| follows)
}

/// Does a state stand for something, of a term that its sender can know?
const fn is_state(state: &Snapshot, message: &Message) -> bool {
    state.index > 0 && is_within(state.term, message)
}

const fn is_within(term: u64, message: &Message) -> bool {
    0 < term && term <= message.term
}

/// Nobody acknowledges to a leader what that leader does not have.
fn impossible_answer(message: &Message, own: Extent) -> Option<&'static str> {
    let is_acknowledgement = message.kind == Kind::AppendResponse && !message.reject;
    let is_for_us = own.leads && message.term == own.term;
    (is_acknowledgement && is_for_us && message.index > own.last)
        .then_some("an acknowledgement of what there is not")
}

/// A leader's sign of life names what this replica has acknowledged, at most.
const fn beyond(message: &Message, own: Extent) -> Option<Objection> {
    let is_sign_of_life = matches!(message.kind, Kind::Heartbeat) && message.term >= own.term;
    if is_sign_of_life && message.commit > own.last { Some(Objection::Beyond(message.commit)) } else { None }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use primus_core::bounds::LEAP_MAX;

    use super::*;

    const OWN: Extent = Extent { term: 5, last: 9, leads: false };

    fn message(kind: Kind) -> Message {
        Message {
            kind,
            term: 5,
            log_term: 0,
            index: 0,
            entries: Vec::new(),
            commit: 0,
            commit_term: 0,
            snapshot: None,
            request_snapshot: 0,
            reject: false,
            reject_hint: 0,
            context: Bytes::new(),
        }
    }

    fn entry(index: u64, term: u64) -> Entry {
        Entry { index, term, data: Bytes::new() }
    }

    fn append(index: u64, log_term: u64, entries: &[(u64, u64)]) -> Message {
        let entries = entries.iter().map(|(index, term)| entry(*index, *term)).collect();
        Message { index, log_term, entries, ..message(Kind::Append) }
    }

    fn state(index: u64, term: u64) -> Message {
        let snapshot = Some(Snapshot { index, term, data: Bytes::new() });
        Message { snapshot, ..message(Kind::Snapshot) }
    }

    fn is_strange(message: &Message) -> bool {
        matches!(objection(message, OWN), Some(Objection::Strange(_)))
    }

    #[test]
    fn no_number_is_beyond_what_anybody_can_have_reached() {
        let with = |change: fn(&mut Message, u64)| {
            [NUMBER_MAX + 1, u64::MAX].map(|number| {
                let mut message = message(Kind::RequestVote);
                change(&mut message, number);
                message
            })
        };
        let changes: [fn(&mut Message, u64); 7] = [
            |message, number| message.term = number,
            |message, number| message.log_term = number,
            |message, number| message.index = number,
            |message, number| message.commit = number,
            |message, number| message.commit_term = number,
            |message, number| message.reject_hint = number,
            |message, number| message.request_snapshot = number,
        ];
        for message in changes.into_iter().flat_map(with) {
            assert!(is_strange(&message), "{message:?}");
        }
        for message in [append(9, 5, &[(u64::MAX, 5)]), append(9, 5, &[(10, u64::MAX)]), state(u64::MAX, 5)] {
            assert!(is_strange(&message), "{message:?}");
        }
        let leap = |term| objection(&Message { term, ..message(Kind::Heartbeat) }, OWN);
        assert_eq!((leap(5 + LEAP_MAX), leap(6 + LEAP_MAX)), (None, Some(Objection::Strange(ABSURD))));
    }

    #[test]
    fn what_does_not_hang_together_is_refused() {
        for good in [
            message(Kind::Heartbeat),
            message(Kind::RequestPreVote),
            append(0, 0, &[(1, 1), (2, 1), (3, 5)]),
            append(9, 5, &[(10, 5)]),
            append(99, 4, &[]),
            state(50, 5),
        ] {
            assert_eq!(objection(&good, OWN), None, "{good:?}");
        }
        for bad in [
            Message { term: 0, ..message(Kind::Append) },
            Message { term: 0, ..message(Kind::RequestVote) },
            append(99, 0, &[(100, 5)]),
            append(0, 3, &[]),
            append(9, 6, &[]),
            append(9, 5, &[(11, 5)]),
            append(9, 5, &[(10, 4)]),
            append(9, 5, &[(10, 6)]),
            append(0, 0, &[(1, 0)]),
            append(9, 5, &[(10, 5), (10, 5)]),
            message(Kind::Snapshot),
            state(0, 5),
            state(50, 0),
            state(50, 6),
            Message { term: 0, entries: vec![entry(0, 0)], ..message(Kind::ReadIndex) },
            Message { entries: vec![entry(0, 0)], ..message(Kind::ReadIndex) },
            Message { entries: vec![entry(0, 0)], ..message(Kind::ReadIndexResponse) },
        ] {
            assert!(is_strange(&bad), "{bad:?}");
        }
    }

    #[test]
    fn nobody_speaks_of_more_than_there_is() {
        let answer = Message { index: 10, ..message(Kind::AppendResponse) };
        let leading = Extent { leads: true, ..OWN };
        assert!(matches!(objection(&answer, leading), Some(Objection::Strange(_))));
        assert_eq!(objection(&answer, OWN), None, "it is for somebody else, and ignored");
        assert_eq!(objection(&Message { reject: true, ..answer }, leading), None);
        let beat = |commit, term| objection(&Message { commit, term, ..message(Kind::Heartbeat) }, OWN);
        assert_eq!((beat(9, 5), beat(10, 5)), (None, Some(Objection::Beyond(10))));
        assert_eq!(beat(10, 4), None, "a deposed leader is only told so");
    }

    #[test]
    fn a_disk_with_a_term_that_nobody_can_have_reached_is_refused() {
        let state = |term, commit| Record::HardState(HardState { term, vote: 1, commit });
        assert_eq!(objection_to_records(&[state(7, 3), Record::Append(entry(1, 7))]), None);
        for bad in [state(u64::MAX, 0), state(7, u64::MAX), Record::Append(entry(1, NUMBER_MAX + 1))] {
            assert!(objection_to_records(&[state(7, 3), bad.clone()]).is_some(), "{bad}");
        }
    }
}
