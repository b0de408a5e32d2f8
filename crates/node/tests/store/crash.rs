//! Processes that die and disks that fill up.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use primus_core::machine::Token;
use primus_node::disk;
use primus_node::meters::Meters;
use primus_node::store::{OpenError, Store, WriteError};
use primus_replica::log::Log;
use primus_replica::message::Record;

use crate::scratch::{Scratch, entry, hard_state, open, snapshot, try_open};

const WRITER: &str = "PRIMUS_TEST_WRITER";
const FULL: &str = "PRIMUS_TEST_FULL";

#[test]
fn what_was_acknowledged_survives_kills() {
    let scratch = Scratch::new();
    let mut acknowledged = 0;
    for kill in 1..=5 {
        acknowledged = kill_after(scratch.path(), acknowledged + 40 * kill).max(acknowledged);
        let log = Log::new(vec![1], open(scratch.path()).records);
        assert!(log.last() >= acknowledged, "{} of {acknowledged}", log.last());
        assert!(log.hard_state().term >= acknowledged);
        for found in log.entries() {
            assert_eq!(Record::Append(found.clone()), entry(found.index, found.index / 100 + 1));
        }
    }
}

/// Starts a writer, kills it once it has acknowledged this entry, and says what it acknowledged last.
fn kill_after(dir: &Path, index: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::a_child_writes_until_it_is_killed", "--nocapture"])
        .env(WRITER, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut last = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        last = line.strip_prefix("durable ").map_or(last, |number| number.parse().unwrap());
        if last >= index {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(last >= index, "the writer died by itself");
    last
}

#[test]
fn a_child_writes_until_it_is_killed() {
    let Some(dir) = std::env::var_os(WRITER) else { return };
    let opened = open(dir.as_ref());
    let (mut store, mut last) = (opened.store, Log::new(vec![1], opened.records).last());
    loop {
        let batch = 1 + last % 5;
        let mut records: Vec<Record> =
            (last + 1..=last + batch).map(|index| entry(index, index / 100 + 1)).collect();
        last += batch;
        records.push(hard_state(last, last - batch));
        if last % 50 < batch {
            records.push(snapshot(last - 10, (last - 10) / 100 + 1));
        }
        store.write(&records).unwrap();
        println!("durable {last}");
        std::io::stdout().flush().unwrap();
    }
}

#[test]
fn a_full_disk_is_named_and_survived() {
    on_a_small_disk("crash::a_child_fills_its_disk");
}

#[test]
fn the_disk_thread_waits_for_room() {
    on_a_small_disk("crash::a_child_waits_for_room");
}

/// A small disk is mounted for a child alone.
fn on_a_small_disk(test: &str) {
    let scratch = Scratch::new();
    let script = r#"mount -t tmpfs -o size=12m tmpfs "$1" && exec "$2" --exact "$3" --nocapture"#;
    let status = Command::new("unshare")
        .args(["--mount", "sh", "-c", &format!("{script} || exit 77"), "sh"])
        .arg(scratch.path())
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env(FULL, scratch.path())
        .status();
    match status.map(|status| status.code()) {
        Ok(Some(0)) => {}
        Ok(Some(101)) | Ok(None) => panic!("the child failed"),
        other => eprintln!("skipped, because a disk cannot be mounted here: {other:?}"),
    }
}

#[test]
fn a_child_fills_its_disk() {
    let Some(dir) = std::env::var_os(FULL) else { return };
    let (dir, filler) = (Path::new(&dir).join("store"), Path::new(&dir).join("filler"));
    let mut store = open(&dir).store;
    let mut last = 0;
    for round in 0..4 {
        assert!(fs::write(&filler, vec![1; 12 << 20]).is_err(), "the filler takes all that is left");
        let error = write_until_error(&mut store, &mut last);
        assert!(matches!(error, WriteError::Full { .. }), "{error}");
        assert!(matches!(store.write(&batch(last)), Err(WriteError::Full { .. })));
        fs::remove_file(&filler).unwrap();
        store.write(&batch(last)).unwrap();
        last += 100;
        if round % 2 == 0 {
            drop(store);
            let log = Log::new(vec![1], open(&dir).records);
            assert_eq!(log.last(), last);
            store = open(&dir).store;
        }
        store.write(&[snapshot(last - 1, 1)]).unwrap();
    }
    drop(store);
    assert_eq!(Log::new(vec![1], open(&dir).records).last(), last);
}

#[tokio::test]
async fn a_child_waits_for_room() {
    let Some(dir) = std::env::var_os(FULL) else { return };
    let (dir, filler) = (Path::new(&dir).join("store"), Path::new(&dir).join("filler"));
    let meters = Arc::new(Meters::default());
    let mut disk = disk::start(open(&dir).store, Arc::clone(&meters));
    assert!(fs::write(&filler, vec![1; 12 << 20]).is_err(), "the filler takes all that is left");
    let mut last = 0;
    while !meters.disk_stuck.get() {
        last += 100;
        disk.write(Token(last), batch(last - 100));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    disk.write(Token(last + 100), batch(last));
    last += 100;
    fs::remove_file(&filler).unwrap();
    while disk.done().await.unwrap() < Token(last) {}
    assert!(!meters.disk_stuck.get());
    assert!(meters.disk_full.get(), "so small a disk takes no new work");
    drop(disk);
    let records = loop {
        match try_open(&dir) {
            Ok(opened) => break opened.records,
            // The thread ends, and with it the lock, a moment later.
            Err(error) => assert!(matches!(error, OpenError::InUse { .. }), "{error}"),
        }
    };
    assert_eq!(Log::new(vec![1], records).last(), last);
}

fn write_until_error(store: &mut Store, last: &mut u64) -> WriteError {
    loop {
        if let Err(error) = store.write(&batch(*last)) {
            return error;
        }
        *last += 100;
    }
}

fn batch(last: u64) -> Vec<Record> {
    (last + 1..=last + 100).map(|index| entry(index, 1)).collect()
}
