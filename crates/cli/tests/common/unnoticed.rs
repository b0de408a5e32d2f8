//! Whether a cluster notices what is done to it.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use primus_lab::history::Outcome;
use serde_json::Value;

use super::clients::{Clients, Leaders, seed};
use super::eventually;
use super::place::{Farm, Place};

const CLIENTS: u64 = 2;
/// A server never uses more memory, whatever is done to it.
const RESIDENT_KIB_MAX: u64 = 64 * 1024;
/// The longest time without an acknowledged write. Far more than it should be, because the host may be busy.
const GAP_MAX: Duration = Duration::from_secs(2);
/// Connections between servers come and go by themselves.
const FILES_MORE: usize = 12;

/// Does this to a cluster, started with these words, that serves, then looks whether it noticed: another leader, a write that failed
/// or was late, memory or files that are not given back.
pub(crate) fn unnoticed(words: &str, act: impl FnOnce(&Farm<'_>)) {
    unnoticed_in(&Place::new(), words, act);
}

/// The same in this place.
pub(crate) fn unnoticed_in(place: &Place, words: &str, act: impl FnOnce(&Farm<'_>)) {
    let farm = place.up(words);
    let clients = Clients::new(&farm.api, seed());
    let before = place.json("leader");
    clients.while_they_work(CLIENTS, || {
        clients.wait_for_a_write(0..farm.api.len());
        let files = farm.pids().into_iter().map(open_files).collect::<Vec<_>>();
        act(&farm);
        for (pid, files) in farm.pids().into_iter().zip(files) {
            let resident_kib = most_resident_kib(pid);
            println!("process {pid}: {files} files before, at most {resident_kib} KiB");
            assert!(resident_kib < RESIDENT_KIB_MAX, "process {pid} used {resident_kib} KiB");
            eventually("files to be given back", || (open_files(pid) <= files + FILES_MORE).then_some(()));
        }
        clients.wait_for_a_write(0..farm.api.len());
    });
    let after = place.json("leader");
    assert_eq!((&after["leader"], &after["term"]), (&before["leader"], &before["term"]));
    println!("at most {} ms between two writes", clients.longest_gap().as_millis());
    assert!(clients.longest_gap() < GAP_MAX, "no write for {:?}", clients.longest_gap());
    assert_eq!((clients.count(Outcome::Failed), clients.count(Outcome::Unknown)), (0, 0));
    clients.judge(Leaders::default());
    farm.end();
}

fn open_files(pid: u64) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map(Iterator::count).unwrap_or_default()
}

fn most_resident_kib(pid: u64) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).expect("the kernel counts it")
}

/// Where the servers' links are.
pub(crate) fn links(farm: &Farm<'_>) -> Vec<SocketAddr> {
    let servers = farm.ready["servers"].as_array().expect("servers are a list");
    let address = |server: &Value| server["address"].as_str().and_then(|address| address.parse().ok());
    servers.iter().map(|server| address(server).expect("a server has an address")).collect()
}
