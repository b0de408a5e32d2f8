//! Gave way: leadership is not handed to a server that gave way, neither because of its rank nor because of its load, while
//! the log says so; and a state that comes as a whole says the same as the log.
//!
//! A leader that was elected because the one before it was lost, or by an election that an operator wanted, may do so before
//! that is in the log: then everybody stands. That a server which gave way does not win an election is not judged here: if no
//! other one can win, it must.

use primus_core::ServerId;
use primus_replica::message::Snapshot;
use primus_server::Reason;
use primus_server::gave_way::GaveWay;
use primus_server::record;

use super::{Committed, Judgement};

/// A leader that has applied everything up to here hands over to that one, for this reason. It leads itself for the other.
pub(super) fn on_handover(
    to: ServerId,
    reason: Reason,
    leads_because: Reason,
    applied: u64,
    committed: &[Committed],
) -> Judgement {
    use Reason::{Elected, LinkLost, Load, LostQuorum, Rank, Silence};
    let is_free = matches!(leads_because, LinkLost | Silence | LostQuorum | Elected);
    let is_by_rules = matches!(reason, Rank | Load);
    let known = committed.len().min(usize::try_from(applied).unwrap_or(usize::MAX));
    match after(GaveWay::default(), &committed[..known]).servers().get(&to) {
        Some(leader) if is_by_rules && !is_free => {
            Err(format!("leadership was handed to server {to} ({reason}), which gave way to server {leader}"))
        }
        _ => Ok(()),
    }
}

/// A whole state may be newer than its place in the log, as far as this is concerned: what comes after it changes nothing.
pub(super) fn on_restore(id: ServerId, snapshot: &Snapshot, committed: &[Committed]) -> Judgement {
    let covered = committed.len().min(usize::try_from(snapshot.index).unwrap_or(usize::MAX));
    let told = after(record::gave_way(&snapshot.data), &committed[covered..]);
    if told == after(GaveWay::default(), committed) {
        return Ok(());
    }
    Err(format!("server {id} took over a state at {} that is wrong about who gave way", snapshot.index))
}

fn after(mut gave_way: GaveWay, committed: &[Committed]) -> GaveWay {
    committed.iter().filter_map(|entry| record::fact(&entry.data)).for_each(|fact| gave_way.apply(fact));
    gave_way
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use primus_core::Term;
    use primus_server::gave_way::Fact;

    use super::*;

    fn committed(facts: &[Fact]) -> Vec<Committed> {
        let one = |fact: &Fact| Committed { term: 1, data: record::of_fact(*fact), known_in: Term(1) };
        facts.iter().map(one).collect()
    }

    const FACT: Fact = Fact::GaveWay { server: ServerId(3), to: ServerId(2), is_chosen: false };

    #[test]
    fn leadership_is_not_handed_to_one_that_gave_way() {
        let log = committed(&[FACT, Fact::AllStand]);
        let judge =
            |to, reason, because, applied| on_handover(ServerId(to), reason, because, applied, &log).is_ok();
        assert!(!judge(3, Reason::Rank, Reason::Resigned, 1) && !judge(3, Reason::Load, Reason::Start, 1));
        assert!(judge(3, Reason::Operator, Reason::Resigned, 1), "an operator may");
        assert!(judge(3, Reason::Rank, Reason::Silence, 1), "the leader before is lost");
        assert!(judge(3, Reason::Rank, Reason::Resigned, 0) && judge(3, Reason::Rank, Reason::Resigned, 2));
        assert!(judge(1, Reason::Rank, Reason::Resigned, 1));
    }

    #[test]
    fn a_state_says_the_same_as_the_log() {
        let log = committed(&[FACT, Fact::AllStand, FACT]);
        let mut gave_way = GaveWay::default();
        gave_way.apply(FACT);
        let judge = |index, gave_way: &GaveWay| {
            let data = record::front(b"", gave_way);
            on_restore(ServerId(1), &Snapshot { index, term: 1, data }, &log).is_ok()
        };
        assert!(judge(3, &gave_way) && judge(1, &gave_way) && judge(1, &GaveWay::default()));
        assert!(!judge(3, &GaveWay::default()));
        assert!(on_restore(ServerId(1), &Snapshot { index: 0, term: 0, data: Bytes::new() }, &log).is_ok());
    }
}
