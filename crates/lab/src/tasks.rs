//! What farms of runs, stories and explorations are given to do, and how it ends: tasks of which only the length matters.

use std::net::SocketAddr;

use primus_core::ServerId;
use primus_core::ledger::{Expansion, Held, Outcome, Report, Spec, Tail, Verdict, Work};
use primus_server::worker::{FarmAddress, Servers};

/// A job without a name, a limit or any wish of its own.
#[must_use]
pub const fn job(work: Work, expansion: Expansion) -> Spec {
    let name = String::new();
    Spec { name, work, expansion, retries: 0, timeout_ms: None, is_once: false, priority: 0, cpus: 1 }
}

/// Something that does nothing but take its time.
#[must_use]
pub fn sleep(input: Vec<u8>) -> Work {
    Work::Kind { name: "sleep".to_owned(), input }
}

/// An attempt has ended with this code.
#[must_use]
pub fn report(held: Held, worker: String, code: u8, took_us: u64) -> Report {
    let (attempt, verdict, started_us) = (held.attempt, Verdict::Exited(code), 0);
    let (stdout, stderr) = (Tail::default(), Tail::default());
    Report { task: held.task, outcome: Outcome { attempt, worker, verdict, started_us, took_us, stdout, stderr } }
}

/// Where a farm is. Nobody dials here, so any address will do.
#[must_use]
pub fn address(farm: &str, servers: impl IntoIterator<Item = ServerId>) -> FarmAddress {
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 1));
    let servers: Servers = servers.into_iter().map(|server| (server, anywhere.into())).collect();
    FarmAddress { name: farm.to_owned(), servers }
}
