//! What is submitted runs and has a result.

use std::time::Instant;

use primus_core::ServerId;
use primus_core::ledger::{Effect, Entry, Expansion, Held, Job, JobId, State, TaskId, Verdict};
use primus_node::farm::Awaited;
use primus_node::handle::Unable;
use primus_node::outputs::Stream;
use primus_node::worker::Happening;
use primus_server::register::Change;

use super::stage::{Farm, command, first, noop, spec};
use crate::common::{PATIENCE, eventually_async};

#[tokio::test]
async fn what_is_submitted_runs_on_a_worker_and_has_a_result() {
    let farm = Farm::started().await;
    let job = farm.run(spec(command(&["sh", "-c", "echo hello; echo oh >&2; exit 3"]), Expansion::One)).await;
    let outcome = farm.outcome(first(job)).await;
    assert_eq!(outcome.verdict, Verdict::Exited(3));
    assert_eq!((&outcome.stdout.bytes[..], &outcome.stderr.bytes[..]), (&b"hello\n"[..], &b"oh\n"[..]));
    assert!(["w1", "w2"].contains(&outcome.worker.as_str()));
    assert_eq!(farm.states(job).await, [State::Failed]);
}

#[tokio::test]
async fn many_tasks_of_one_job_and_many_jobs_of_one_task_all_end() {
    let farm = Farm::started().await;
    let array = farm.run(spec(noop(), Expansion::Array { first: 1, last: 5000 })).await;
    assert!(farm.states(array).await.iter().all(|state| *state == State::Done));
    let entries = vec![Entry::Submit { spec: spec(noop(), Expansion::One), key: None }; 10_000];
    let began = Instant::now();
    let effects = farm.farm().await.enter(entries).await.expect("they are taken");
    let jobs: Vec<JobId> = effects
        .iter()
        .map(|effect| match effect {
            Effect::Submitted { job, is_new: true } => *job,
            _ => panic!("{effect:?}"),
        })
        .collect();
    farm.wait_for_all(Awaited::Jobs(jobs[0], jobs[9999])).await;
    println!("10,000 jobs in {:?}", began.elapsed());
    let done = farm.farm().await.look(|foreman| foreman.ledger().counts().done).await;
    assert_eq!(done, Ok(15_000));
}

#[tokio::test]
async fn a_batch_too_long_for_a_frame_reaches_everybody() {
    let farm = Farm::started().await;
    let mut lines = primus_core::ledger::job::Lines::default();
    (0..100_000).for_each(|number| assert!(lines.push(&format!("line {number} of a long list of lines"))));
    let mut long = spec(command(&["false"]), Expansion::Lines(lines));
    long.cpus = 9;
    let job = farm.submit(long).await;
    for id in 1..=3 {
        let here = farm.farm_of(id);
        let open = async || here.look_here(move |foreman| foreman.ledger().job(job).map(Job::open)).await;
        eventually_async("the job", async || (open().await == Ok(Some(100_000))).then_some(())).await;
    }
}

#[tokio::test]
async fn a_long_output_can_be_read_through_any_server() {
    let farm = Farm::started().await;
    let job = farm.run(spec(command(&["seq", "100000"]), Expansion::One)).await;
    let outcome = farm.outcome(first(job)).await;
    let held = Held { task: first(job), attempt: outcome.attempt };
    let mut whole = Vec::new();
    loop {
        let server = farm.farm_of(whole.len() as u64 % 3 + 1);
        let part = server.output(&outcome.worker, held, Stream::Stdout, whole.len() as u64, 100_000).await;
        let part = part.expect("the worker answers").expect("there is a file");
        if part.is_empty() {
            break;
        }
        whole.extend_from_slice(&part);
    }
    assert_eq!(whole.len() as u64, outcome.stdout.total);
    assert!(whole.ends_with(b"99999\n100000\n"));
    let none = farm.farm().await.output(&outcome.worker, held, Stream::Stderr, 0, 10).await;
    assert_eq!(none, Ok(None));
    let nobody = farm.farm().await.output("w9", held, Stream::Stdout, 0, 10).await;
    assert_eq!(nobody, Err(Unable::NoWorker));
}

#[tokio::test]
async fn tasks_know_their_numbers() {
    let farm = Farm::started().await;
    let script = ["sh", "-c", "echo $PRIMUS_TASK {} $PRIMUS_INDEX"];
    let job = farm.run(spec(command(&script), Expansion::Array { first: 5, last: 6 })).await;
    let second = TaskId { job, index: 2 };
    assert_eq!(farm.outcome(second).await.stdout.bytes, format!("{job}.2 6 6\n").into_bytes());
}

#[tokio::test]
async fn only_the_leader_takes_entries() {
    let farm = Farm::started().await;
    let leader = farm.leader().await;
    let other = farm.farm_of(leader % 3 + 1);
    let entries = vec![Entry::Submit { spec: spec(noop(), Expansion::One), key: None }];
    assert_eq!(other.enter(entries).await, Err(Unable::NotLeading(ServerId(leader))));
}

#[tokio::test]
async fn workers_hear_who_leads() {
    let mut farm = Farm::started().await;
    let leader = ServerId(farm.leader().await);
    farm.await_happening("w1", |it| matches!(it, Happening::Serves(server, _) if server == leader)).await;
}

/// Writes or deletes a key, whoever leads.
async fn change(farm: &Farm, change: Change<'_>) -> Result<u64, Unable> {
    let (reply, answer) = tokio::sync::oneshot::channel();
    farm.handle_of(farm.leader().await).change([vec![change]], true, reply);
    answer.await.expect("it lives")
}

#[tokio::test]
async fn a_farm_that_holds_enough_takes_nothing_new_until_there_is_room() {
    const MAX: u64 = 1 << 20;
    let mut farm = Farm::of("test", 1);
    farm.state_max = MAX;
    farm.start_server(1).await;
    let value = vec![b'x'; 100 << 10];
    let mut written = 0;
    let began = Instant::now();
    let refused = loop {
        assert!(began.elapsed() < PATIENCE, "it is refused in time");
        let key = format!("key {written}");
        match change(&farm, Change::Put(&key, &value)).await {
            Ok(_) => written += 1,
            Err(unable) => break unable,
        }
    };
    assert_eq!(refused, Unable::StateFull(MAX));
    assert!((10..30).contains(&written), "{written} were written");
    let job = || vec![Entry::Submit { spec: spec(noop(), Expansion::One), key: None }];
    assert_eq!(farm.farm().await.enter(job()).await, Err(Unable::StateFull(MAX)));
    assert_eq!(farm.farm().await.get("key 0".to_owned()).await.map(|found| found.is_some()), Ok(true));
    for number in 0..written {
        change(&farm, Change::Delete(&format!("key {number}"))).await.expect("deleting is always possible");
    }
    let taken = loop {
        // The farm has applied that before it answers a look.
        farm.farm().await.look(|_| ()).await.expect("it leads");
        if let Ok(effects) = farm.farm().await.enter(job()).await {
            break effects;
        }
        assert!(began.elapsed() < PATIENCE, "there is room again in time");
    };
    assert!(matches!(taken[..], [Effect::Submitted { is_new: true, .. }]));
    change(&farm, Change::Put("key", &value)).await.expect("there is room again");
}
