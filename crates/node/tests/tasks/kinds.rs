//! What runs inside the worker's own process.

use std::time::{Duration, Instant};

use primus_core::ledger::{Verdict, Work};
use primus_node::executor::{Ended, Kinds};

use crate::stage::{Stage, assignment, held};

fn kind(name: &str, input: &str) -> Work {
    Work::Kind { name: name.to_owned(), input: input.as_bytes().to_vec() }
}

#[tokio::test]
async fn the_kinds_that_every_worker_has() {
    let mut stage = Stage::new();
    stage.executor.run(assignment(1, kind("noop", "")));
    assert_eq!(stage.outcome().await.verdict, Verdict::Exited(0));
    let begun = Instant::now();
    stage.executor.run(assignment(1, kind("sleep", "60")));
    assert_eq!(stage.outcome().await.verdict, Verdict::Exited(0));
    assert!(begun.elapsed() >= Duration::from_millis(60));
    stage.executor.run(assignment(1, kind("sleep", "")));
    let outcome = stage.outcome().await;
    assert_eq!(outcome.verdict, Verdict::Exited(1));
    assert_eq!(outcome.stderr.bytes, b"\"argument 1\" is not a number of milliseconds");
    stage.executor.run(assignment(1, kind("dance", "")));
    let refused = Verdict::Refused("this worker has no kind \"dance\"; it has noop, sleep".to_owned());
    assert_eq!(stage.outcome().await.verdict, refused);
}

#[tokio::test]
async fn kinds_can_be_stopped() {
    let mut stage = Stage::new();
    let mut short = assignment(1, kind("sleep", "100000"));
    short.timeout_ms = Some(50);
    stage.executor.run(short);
    assert_eq!(stage.outcome().await.verdict, Verdict::TimedOut);
    stage.executor.run(assignment(2, kind("sleep", "50")));
    stage.executor.kill(held(2));
    stage.executor.run(assignment(3, kind("sleep", "100")));
    assert!(matches!(stage.next().await, Ended::Finished(report) if report.task == held(3).task));
}

#[tokio::test]
async fn a_program_has_kinds_of_its_own() {
    let mut kinds = Kinds::default();
    kinds.add("reverse", async |call| Ok(call.input.into_iter().rev().collect()));
    kinds.add("panic", async |call| panic!("at {}", call.held.task));
    let mut stage = Stage::with(|_| {}, kinds);
    stage.executor.run(assignment(1, kind("reverse", "primus")));
    assert_eq!(stage.outcome().await.stdout.bytes, b"sumirp");
    stage.executor.run(assignment(1, kind("panic", "")));
    let outcome = stage.outcome().await;
    assert_eq!(outcome.verdict, Verdict::Exited(101));
    assert!(String::from_utf8(outcome.stderr.bytes).unwrap().contains("at 3.1"));
}
