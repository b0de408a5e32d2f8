//! Processes that die and disks that fill up.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use primus_replica::log::Log;
use primus_replica::message::Record;
use rustix::process::geteuid;

use crate::PROGRAM;
use crate::scratch::{Scratch, entry, open};

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
    let mut child = Command::new(PROGRAM).arg("writer").arg(dir).stdout(Stdio::piped()).spawn().unwrap();
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
#[ignore = "needs mount namespaces"]
fn a_full_disk_is_named_and_survived() {
    on_a_small_disk("filler");
}

#[test]
#[ignore = "needs mount namespaces"]
fn the_disk_thread_waits_for_room() {
    on_a_small_disk("waiter");
}

/// A small disk is mounted for this role alone.
fn on_a_small_disk(role: &str) {
    let scratch = Scratch::new();
    let script = r#"mount -t tmpfs -o size=12m tmpfs "$1" && exec "$2" "$3" "$1""#;
    let mut command = Command::new("unshare");
    command.arg("--mount").args((!geteuid().is_root()).then_some("--map-root-user"));
    command.args(["sh", "-c", script, "sh"]).arg(scratch.path()).args([PROGRAM, role]);
    assert!(command.status().unwrap().success(), "{role} failed on its small disk");
}
