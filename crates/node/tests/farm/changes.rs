//! Servers and workers come and go; nothing is lost, and nothing that goes on somewhere runs twice.

use primus_core::ledger::{Expansion, State, Verdict};
use primus_node::worker::Happening;

use super::stage::{Farm, command, first, noop, sleep, spec};

#[tokio::test]
async fn what_runs_goes_on_when_the_leader_dies() {
    let mut farm = Farm::started().await;
    let job = farm.submit(spec(sleep(600), Expansion::Array { first: 1, last: 2 })).await;
    farm.wait_until("both run", |farm| async move { farm.look(|foreman| foreman.handed_out() == 2).await }).await;
    let leader = farm.leader().await;
    let term = farm.handle_of(leader).view.borrow().term;
    farm.stop_server(leader);
    farm.wait_for(job).await;
    assert_ne!(farm.leader().await, leader);
    let outcome = farm.outcome(first(job)).await;
    assert_eq!(
        (outcome.attempt.term, outcome.verdict),
        (term, Verdict::Exited(0)),
        "the first attempt came to its end"
    );
}

#[tokio::test]
async fn what_a_dead_worker_had_runs_elsewhere() {
    let mut farm = Farm::started().await;
    let job = farm.submit(spec(command(&["sleep", "0.5"]), Expansion::Array { first: 1, last: 2 })).await;
    farm.wait_until("both run", |farm| async move { farm.look(|foreman| foreman.handed_out() == 2).await }).await;
    farm.stop_worker("w2");
    farm.wait_for(job).await;
    assert_eq!(farm.states(job).await, [State::Done, State::Done]);
    assert_eq!(farm.outcome(first(job)).await.worker, "w1");
}

#[tokio::test]
async fn a_result_survives_its_worker_and_every_server() {
    let mut farm = Farm::started().await;
    farm.stop_worker("w2");
    farm.wait_for_workers(1).await;
    let (mark, before) = (farm.path("ran"), farm.results_len("w1"));
    let script = format!("echo once >> {}; sleep 0.3", mark.display());
    let job = farm.submit(spec(command(&["sh", "-c", &script]), Expansion::One)).await;
    farm.wait_until("it runs", |farm| async move { farm.look(|foreman| foreman.handed_out() == 1).await }).await;
    (1..=3).for_each(|id| farm.stop_server(id));
    // The worker has it on its disk when it has ended, though nobody can be told.
    farm.wait_for_more_results("w1", before).await;
    farm.stop_worker("w1");
    for id in 1..=3 {
        farm.start_server(id).await;
    }
    farm.start_worker("w1");
    farm.wait_for(job).await;
    assert_eq!(farm.states(job).await, [State::Done]);
    assert_eq!(std::fs::read_to_string(mark).expect("it ran"), "once\n");
}

#[tokio::test]
async fn a_server_that_was_away_gets_the_whole_ledger() {
    let mut farm = Farm::new();
    farm.snapshot_every = 20;
    for id in 1..=3 {
        farm.start_server(id).await;
    }
    // All of them must run once.
    farm.leader().await;
    farm.stop_server(3);
    let waits = farm.submit(spec(noop(), Expansion::Array { first: 1, last: 100_000 })).await;
    for _ in 0..50 {
        farm.submit(spec(noop(), Expansion::One)).await;
    }
    // It ranks best, so it leads as soon as it knows everything.
    farm.start_server(3).await;
    farm.wait_for_leader(3).await;
    assert_eq!(farm.states(waits).await.len(), 100_000);
    farm.start_worker("w1");
    farm.wait_for(waits).await;
    assert!(farm.states(waits).await.iter().all(|state| *state == State::Done));
}

#[tokio::test]
async fn two_workers_of_one_name_are_noticed() {
    let mut farm = Farm::started().await;
    farm.start_worker_in("w1", "elsewhere");
    let reason = loop {
        if let Happening::Refused(_, reason) = farm.happening("w1").await {
            break reason;
        }
    };
    assert!(reason.contains("another worker is called 'w1'"), "{reason}");
}
