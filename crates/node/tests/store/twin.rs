//! The store against its slow twin: the log in memory that takes the same records in the same order.

use primus_core::founding::Phase;
use primus_node::store::Origin;
use primus_replica::log::Log;
use primus_replica::message::Record;
use proptest::prelude::*;

use crate::scratch::{Scratch, entry, hard_state, open, origin, record, snapshot, view, view_of};

/// What happens, in numbers that fit any log.
#[derive(Debug, Clone)]
enum Step {
    /// Entries of a term, from this far behind the end.
    Append {
        back: u64,
        count: u64,
        term: u64,
    },
    HardState {
        term: u64,
        commit: u64,
    },
    /// A snapshot of the log's own state, this far behind the end.
    Compact {
        back: u64,
    },
    /// A snapshot from elsewhere: of a place that this log has otherwise, or that lies ahead.
    Restore {
        ahead: u64,
        term: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4_u64, 1..6_u64, 1..5_u64).prop_map(|(back, count, term)| Step::Append { back, count, term }),
        2 => (1..9_u64, 0..9_u64).prop_map(|(term, commit)| Step::HardState { term, commit }),
        1 => (0..5_u64).prop_map(|back| Step::Compact { back }),
        1 => (0..5_u64, 5..9_u64).prop_map(|(ahead, term)| Step::Restore { ahead, term }),
    ]
}

/// The records of a step for a log that has come this far. What no replica ever writes is not made: gaps, snapshots older
/// than the last one, entries that a snapshot covers.
fn records(step: &Step, log: &Log) -> Vec<Record> {
    let base = log.last() - log.entries().count() as u64;
    match *step {
        Step::Append { back, count, term } => {
            let from = log.last().saturating_sub(back).max(base) + 1;
            (from..from + count).map(|index| entry(index, term)).collect()
        }
        Step::HardState { term, commit } => vec![hard_state(term, commit)],
        Step::Compact { back } => {
            let index = log.last().saturating_sub(back).max(base);
            let found = log.entries().find(|entry| entry.index == index);
            found.map(|entry| snapshot(index, entry.term)).into_iter().collect()
        }
        Step::Restore { ahead, term } => vec![snapshot((log.last() + ahead).saturating_sub(2).max(base + 1), term)],
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_store_gives_back_the_log_that_was_written(
        writes in prop::collection::vec((prop::collection::vec(step(), 1..5), any::<bool>()), 1..12),
    ) {
        let scratch = Scratch::new();
        let mut twin = Log::new(vec![1], []);
        let mut store = open(scratch.path()).store;
        for (steps, reopens) in writes {
            let mut batch = Vec::new();
            for step in steps {
                for record in records(&step, &twin) {
                    twin.apply(record.clone());
                    batch.push(record);
                }
            }
            store.write(&batch).unwrap();
            if reopens {
                drop(store);
                let opened = open(scratch.path());
                prop_assert_eq!(view_of(opened.records), view(&twin));
                store = opened.store;
            }
            prop_assert_eq!(view_of(open(scratch.copy().path()).records), view(&twin));
        }
    }
}

#[test]
fn a_snapshot_drops_what_does_not_continue_it() {
    let scratch = Scratch::new();
    let mut store = open(scratch.path()).store;
    store.write(&[entry(1, 1), entry(2, 1), entry(3, 1), entry(4, 1)]).unwrap();
    store.write(&[snapshot(2, 1)]).unwrap();
    store.write(&[snapshot(3, 2)]).unwrap();
    drop(store);
    assert_eq!(open(scratch.path()).records, [hard_state_of_commit(3), snapshot(3, 2)]);
}

#[test]
fn an_older_snapshot_and_entries_that_it_covers_change_nothing() {
    let scratch = Scratch::new();
    let mut store = open(scratch.path()).store;
    let records = [entry(1, 1), entry(2, 1), snapshot(2, 1), entry(3, 1)];
    store.write(&records).unwrap();
    // A write whose outcome was unknown is repeated.
    store.write(&records).unwrap();
    store.write(&[snapshot(1, 1)]).unwrap();
    drop(store);
    assert_eq!(open(scratch.path()).records, [hard_state_of_commit(2), snapshot(2, 1), entry(3, 1)]);
}

#[test]
fn how_far_the_founding_is_stays_beside_the_log() {
    let scratch = Scratch::new();
    let mut store = open(scratch.path()).store;
    store.write(&[entry(1, 1)]).unwrap();
    let agreed = Origin { phase: Phase::Agreed(record()), ..origin() };
    store.keep_origin(&agreed).unwrap();
    drop(store);
    let opened = open(scratch.path());
    assert_eq!((opened.origin, opened.records.len()), (agreed, 1));
    let mut store = opened.store;
    store.keep_origin(&origin()).unwrap();
    store.write(&[entry(2, 1)]).unwrap();
    drop(store);
    let opened = open(scratch.path());
    assert_eq!((opened.origin, opened.records.len()), (origin(), 2));
}

fn hard_state_of_commit(commit: u64) -> Record {
    let Record::HardState(mut state) = hard_state(0, commit) else { unreachable!() };
    state.vote = 0;
    Record::HardState(state)
}
