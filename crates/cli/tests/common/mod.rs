//! What the end-to-end tests share: farms of real processes in places of their own, clients whose history is judged, and
//! patience.
#![allow(dead_code, reason = "every test program uses its part of this")]

pub(crate) mod broker;
pub(crate) mod capture;
pub(crate) mod clients;
pub(crate) mod disks;
pub(crate) mod flood;
pub(crate) mod foreign;
pub(crate) mod http;
pub(crate) mod namespace;
pub(crate) mod neighbourhood;
pub(crate) mod network;
pub(crate) mod place;
pub(crate) mod secured;
pub(crate) mod stranger;
pub(crate) mod submitters;
pub(crate) mod unnoticed;
#[path = "../../../api/tests/validator/mod.rs"]
pub(crate) mod validator;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a condition may take. Far more than it should, because the host may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(Instant::now() < until, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The same, for an attempt that says what it has seen instead.
pub(crate) fn eventually_or<T>(what: &str, mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Ok(found) => return found,
            Err(seen) => assert!(Instant::now() < until, "waited in vain for {what}: {seen}"),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a signal to all of them, one right after the other, so that nobody has time to notice.
pub(crate) fn send(signal: Signal, pids: &[u64]) {
    let pid = |pid: &u64| i32::try_from(*pid).ok().and_then(Pid::from_raw).expect("processes have small numbers");
    let pids: Vec<Pid> = pids.iter().map(pid).collect();
    pids.into_iter().for_each(|pid| kill_process(pid, signal).expect("it can be told"));
}

pub(crate) fn is_running(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}
