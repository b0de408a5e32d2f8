//! State machine safety: all servers apply the same entry at the same place, one after the other, and a state that comes
//! as a whole is the one that applying would have made.

use std::collections::BTreeMap;

use bytes::Bytes;
use primus_core::ServerId;
use primus_core::Term;
use primus_replica::message::{Entry, Snapshot};
use primus_server::record;

use super::{Committed, Judgement};

/// A server in this term applies an entry after this one; whoever is the first decides what belongs there.
pub(super) fn on_apply(
    id: ServerId,
    (term, before): (Term, u64),
    entry: &Entry,
    committed: &mut Vec<Committed>,
) -> Judgement {
    let place = usize::try_from(entry.index - 1).expect("an index fits");
    if entry.index != before + 1 || place > committed.len() {
        return Err(format!("server {id} applied entry {} after {before}", entry.index));
    }
    if place == committed.len() {
        committed.push(Committed { term: entry.term, data: entry.data.clone(), known_in: term });
    }
    let first = &committed[place];
    if (first.term, &first.data) == (entry.term, &entry.data) {
        return Ok(());
    }
    Err(format!("server {id} applied another entry {} than the first that did", entry.index))
}

/// A farm writes down everything up to here; who does so first decides what that is.
pub(super) fn on_state(id: ServerId, index: u64, data: &Bytes, states: &mut BTreeMap<u64, u64>) -> Judgement {
    let state = state_of(data);
    if *states.entry(index).or_insert(state) == state {
        return Ok(());
    }
    Err(format!("the farm of server {id} wrote down another state at {index} than the first that did"))
}

/// A server takes over a whole state.
pub(super) fn on_restore(
    id: ServerId,
    snapshot: &Snapshot,
    committed: &[Committed],
    states: &BTreeMap<u64, u64>,
) -> Judgement {
    let place = usize::try_from(snapshot.index).ok().and_then(|index| index.checked_sub(1));
    let entry = place.and_then(|place| committed.get(place));
    let is_known = states.get(&snapshot.index) == Some(&state_of(&snapshot.data));
    let is_same = |entry: &Committed| entry.term == snapshot.term && is_known;
    if entry.is_some_and(is_same) {
        return Ok(());
    }
    Err(format!("server {id} took over a state at {} that nobody ever had", snapshot.index))
}

/// Keys and jobs of a whole state, in one number. Who gave way may be a little newer.
fn state_of(data: &Bytes) -> u64 {
    record::split_state(data).map_or(0, |(register, ledger)| digest(digest(0, &register), &ledger))
}

/// Everything in one number (FNV-1a, with the length, so that nothing counts, too).
fn digest(before: u64, data: &[u8]) -> u64 {
    const PRIME: u64 = 0x0100_0000_01b3;
    data.iter().fold(before.wrapping_mul(PRIME) ^ (data.len() as u64 + 1), |digest, byte| {
        (digest ^ u64::from(*byte)).wrapping_mul(PRIME)
    })
}
