//! A worker's results on disk: what survives, what is dropped, and what is refused.

mod common;

use primus_core::Term;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use common::eventually;
use primus_core::farm::worker::Record;
use primus_core::ledger::{Attempt, Held, JobId, Outcome, Report, Tail, TaskId, Verdict};
use primus_core::machine::Token;
use primus_node::disk::{self, Durable};
use primus_node::meters::Meters;
use primus_node::results::{OpenError, Results};
use proptest::prelude::*;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A directory that vanishes after a test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("primus-results-{}-{number}", std::process::id())))
    }

    fn file(&self) -> PathBuf {
        self.0.join("results")
    }

    fn open(&self) -> (Results, Vec<Record>) {
        Results::open(&self.0).expect("there is room")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

fn held(index: u64) -> Held {
    Held { task: TaskId { job: JobId(1), index }, attempt: Attempt { term: Term(2), sequence: index } }
}

fn ended(index: u64) -> Record {
    let outcome = Outcome {
        attempt: held(index).attempt,
        worker: "w1".to_owned(),
        verdict: Verdict::Exited(0),
        started_us: index,
        took_us: 1,
        stdout: Tail { total: 1000, bytes: vec![b'x'; 1000] },
        stderr: Tail::default(),
    };
    Record::Ended(Report { task: held(index).task, outcome })
}

fn forgotten(index: u64) -> Record {
    Record::Forgotten(held(index))
}

#[test]
fn what_was_written_is_there_until_it_is_forgotten() {
    let scratch = Scratch::new();
    let (mut results, found) = scratch.open();
    assert_eq!(found, []);
    results.write(&[ended(1), ended(2)]).unwrap();
    results.write(&[forgotten(1), ended(3)]).unwrap();
    drop(results);
    let (mut results, found) = scratch.open();
    assert_eq!(found, [ended(2), ended(3)]);
    results.write(&[forgotten(3), forgotten(9)]).unwrap();
    drop(results);
    assert_eq!(scratch.open().1, [ended(2)]);
}

#[test]
fn what_is_forgotten_makes_room() {
    let scratch = Scratch::new();
    let (mut results, _) = scratch.open();
    results.write(&[ended(0)]).unwrap();
    for round in 0..100 {
        let indices = || round * 100 + 1..=round * 100 + 100;
        results.write(&indices().map(ended).collect::<Vec<_>>()).unwrap();
        results.write(&indices().map(forgotten).collect::<Vec<_>>()).unwrap();
        assert!(fs::metadata(scratch.file()).unwrap().len() < 3 << 20);
    }
    drop(results);
    assert_eq!(scratch.open().1, [ended(0)]);
}

#[test]
fn nobody_else_may_use_it() {
    let scratch = Scratch::new();
    let opened = scratch.open();
    let refused = Results::open(&scratch.0).unwrap_err();
    assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
    drop(opened);
    scratch.open();
}

#[test]
fn another_format_is_refused() {
    let scratch = Scratch::new();
    drop(scratch.open());
    let mut bytes = fs::read(scratch.file()).unwrap();
    bytes[15] += 1;
    fs::write(scratch.file(), bytes).unwrap();
    let refused = Results::open(&scratch.0).unwrap_err();
    assert!(matches!(refused, OpenError::OtherFormat { found: 2, .. }), "{refused}");
}

/// A file with three blocks, and where each ends.
fn three_blocks() -> (Scratch, Vec<u8>, Vec<usize>) {
    let scratch = Scratch::new();
    let (mut results, _) = scratch.open();
    let length = || usize::try_from(fs::metadata(scratch.file()).expect("it is there").len()).expect("it is short");
    let mut ends = vec![length()];
    for index in 1..=3 {
        results.write(&[ended(index)]).expect("there is room");
        ends.push(length());
    }
    drop(results);
    let bytes = fs::read(scratch.file()).expect("it is there");
    (scratch, bytes, ends)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_torn_end_is_dropped_wherever_it_is_torn(cut in 0usize..4000, zeros in 0usize..2000) {
        let (scratch, mut bytes, ends) = three_blocks();
        let cut = ends[0] + cut % (bytes.len() - ends[0] + 1);
        let whole = ends.iter().filter(|end| **end <= cut).count() as u64 - 1;
        bytes.truncate(cut);
        // A length may reach the disk before what it is the length of.
        if ends.contains(&cut) {
            bytes.resize(cut + zeros, 0);
        }
        fs::write(scratch.file(), &bytes).unwrap();
        let (mut results, found) = scratch.open();
        prop_assert_eq!(found, (1..=whole).map(ended).collect::<Vec<_>>());
        results.write(&[ended(7)]).unwrap();
        drop(results);
        prop_assert_eq!(scratch.open().1, (1..=whole).chain([7]).map(ended).collect::<Vec<_>>());
    }

    #[test]
    fn damage_before_the_last_block_is_refused_and_nothing_is_changed(place in any::<prop::sample::Index>(), bit in 0..8) {
        let (scratch, mut bytes, ends) = three_blocks();
        let place = place.index(ends[2]);
        bytes[place] ^= 1u8 << bit;
        fs::write(scratch.file(), &bytes).unwrap();
        let refused = Results::open(&scratch.0).map(|(_, found)| found);
        let is_refused = matches!(refused, Err(OpenError::Damaged { .. } | OpenError::OtherFormat { .. }));
        prop_assert!(is_refused, "{:?}", refused);
        prop_assert_eq!(fs::read(scratch.file()).unwrap(), bytes);
    }
}

#[tokio::test]
async fn the_disk_takes_what_waits_in_one_go_and_says_how_far_it_is() {
    let scratch = Scratch::new();
    let mut disk = disk::start(scratch.open().0, Arc::new(Meters::default()));
    for index in 1..=500 {
        disk.write(Token(index), vec![ended(index)]);
    }
    let mut words = 1;
    while disk.done().await.unwrap() < Token(500) {
        words += 1;
    }
    assert!(words < 500, "every record was synced alone");
    drop(disk);
    // The thread ends, and with it the lock, a moment later.
    let found = eventually("the end of the disk's thread", || match Results::open(&scratch.0) {
        Ok((_, found)) => Some(found),
        Err(OpenError::InUse { .. }) => None,
        Err(error) => panic!("{error}"),
    });
    assert_eq!(found, (1..=500).map(ended).collect::<Vec<_>>());
}
