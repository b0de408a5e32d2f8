//! Users of a store that are killed, fill their disk, or lack rights.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use primus_core::machine::Token;
use primus_node::disk;
use primus_node::meters::Meters;
use primus_node::store::{OpenError, Store, WriteError};
use primus_replica::log::Log;
use primus_replica::message::Record;
use tokio::runtime::Builder;

use crate::common::{PATIENCE, eventually, eventually_async};
use crate::scratch::{entry, hard_state, open, snapshot, try_open};

/// More than the small disk holds.
const FILLER_LEN: usize = 12 << 20;

/// Says what is durable, again and again.
pub(crate) fn write_until_killed(dir: &Path) {
    let opened = open(dir);
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

pub(crate) fn fill_the_disk(disk: &Path) {
    let dir = disk.join("store");
    let mut store = open(&dir).store;
    let mut last = 0;
    for round in 0..4 {
        let filler = fill(disk);
        let error = write_until_error(&mut store, &mut last);
        assert!(matches!(error, WriteError::Full { .. }), "{error}");
        assert!(matches!(store.write(&batch(last)), Err(WriteError::Full { .. })));
        fs::remove_file(filler).unwrap();
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

pub(crate) fn wait_for_room(disk: &Path) {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(waits_for_room(disk));
}

async fn waits_for_room(small: &Path) {
    let dir = small.join("store");
    let meters = Arc::new(Meters::default());
    let mut disk = disk::start(open(&dir).store, Arc::clone(&meters));
    let filler = fill(small);
    let mut last = 0;
    eventually_async("the disk to be full", async || {
        last += 100;
        disk.write(Token(last), batch(last - 100));
        meters.disk_stuck.get().then_some(())
    })
    .await;
    disk.write(Token(last + 100), batch(last));
    last += 100;
    fs::remove_file(filler).unwrap();
    let all = async { while disk.done().await.unwrap() < Token(last) {} };
    tokio::time::timeout(PATIENCE, all).await.expect("it is written in time");
    assert!(!meters.disk_stuck.get());
    assert!(meters.disk_full.get(), "so small a disk takes no new work");
    drop(disk);
    // The thread ends, and with it the lock, a moment later.
    let records = eventually("the end of the disk's thread", || match try_open(&dir) {
        Ok(opened) => Some(opened.records),
        Err(OpenError::InUse { .. }) => None,
        Err(error) => panic!("{error}"),
    });
    assert_eq!(Log::new(vec![1], records).last(), last);
}

pub(crate) fn is_refused(dir: &Path) {
    let error = try_open(dir).unwrap_err();
    assert!(matches!(error, OpenError::NotWritable { .. }), "{error}");
}

/// Takes all that is left of a small disk; gives back the file that does.
fn fill(disk: &Path) -> std::path::PathBuf {
    let filler = disk.join("filler");
    assert!(fs::write(&filler, vec![1; FILLER_LEN]).is_err(), "the filler takes all that is left");
    filler
}

fn write_until_error(store: &mut Store, last: &mut u64) -> WriteError {
    loop {
        if let Err(error) = store.write(&batch(*last)) {
            return error;
        }
        *last += 100;
        assert!(*last < 10_000_000, "a small disk never fills up");
    }
}

fn batch(last: u64) -> Vec<Record> {
    (last + 1..=last + 100).map(|index| entry(index, 1)).collect()
}
