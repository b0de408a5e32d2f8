//! No process of a task outlives its worker, however the worker ends.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use primus_core::ledger::{Verdict, Work};
use primus_node::executor::{Ended, Executor, Kinds};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{PATIENCE, eventually_async};
use crate::program;
use crate::stage::{STUBBORN, Scratch, Stage, TASKS, alive, assignment, held, marked, settings, wait_until};

/// A worker in a process of its own, with its tasks running.
struct Worker {
    process: Child,
    stdout: BufReader<ChildStdout>,
    /// Its folder, and what its tasks are known by.
    mark: String,
    _directory: Scratch,
}

impl Worker {
    fn start() -> Self {
        let directory = Scratch::new();
        let mark = directory.0.display().to_string();
        let mut command = Command::new(program());
        command.arg("worker").arg(&mark);
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
        let stdout = BufReader::new(process.stdout.take().expect("it was asked for"));
        let worker = Self { process, stdout, mark, _directory: directory };
        wait_until("its tasks to start", || alive(&worker.mark).len() as u64 == 4 * TASKS);
        worker
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("it lives");
    }

    fn wait_for_tasks_to_end(&self) -> Duration {
        wait_until("the end of its processes", || alive(&self.mark).is_empty())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
        wait_until("the end of its processes", || alive(&self.mark).is_empty());
    }
}

#[test]
fn no_process_outlives_a_killed_worker() {
    let worker = Worker::start();
    worker.signal(Signal::KILL);
    println!("all processes were gone after {:?}", worker.wait_for_tasks_to_end());
}

#[test]
fn no_process_outlives_the_patience_with_a_frozen_worker() {
    let mut worker = Worker::start();
    worker.signal(Signal::STOP);
    let took = worker.wait_for_tasks_to_end();
    assert!(took >= Duration::from_millis(500), "it was not given time: {took:?}");
    worker.signal(Signal::CONT);
    // What was killed is no result; the worker hears so.
    let mut line = String::new();
    for _ in 0..TASKS {
        while !line.contains("abandoned 3.") {
            line.clear();
            assert!(worker.stdout.read_line(&mut line).unwrap() > 0, "the worker ended");
        }
        line.clear();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn tasks_of_a_killed_companion_are_killed_and_another_takes_over() {
    let mut stage = Stage::new();
    let mark = stage.directory.0.display().to_string();
    stage.executor.run(assignment(1, Work::Command(marked("sleep 1000 & sleep 1000", &mark))));
    wait_until("it to start", || alive(&mark).len() >= 2);
    kill_process(companion_of(alive(&mark)[0]), Signal::KILL).unwrap();
    assert_eq!(stage.next().await, Ended::Abandoned(held(1)));
    assert_eq!(alive(&mark), [0; 0]);
    assert_eq!(stage.verdict(&["true"]).await, Verdict::Exited(0));
}

/// It leads the session of its tasks.
fn companion_of(task: u32) -> Pid {
    let stat = std::fs::read_to_string(format!("/proc/{task}/stat")).expect("the task runs");
    // After the name in brackets: state, parent, group, session.
    let session = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(3));
    session.and_then(|session| session.parse().ok()).and_then(Pid::from_raw).expect("it has a session")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_companion_ends_only_with_its_worker() {
    let mut stage = Stage::new();
    let mark = stage.directory.0.display().to_string();
    stage.executor.run(assignment(1, Work::Command(marked("sleep 1000 & sleep 1000", &mark))));
    wait_until("it to start", || alive(&mark).len() >= 2);
    let companion = companion_of(alive(&mark)[0]);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        kill_process(companion, signal).unwrap();
        assert_eq!(stage.verdict_of(2, &["true"]).await, Verdict::Exited(0));
    }
    assert_eq!(companion_of(alive(&mark)[0]), companion);
    // What a terminal or a service manager sends to the companion is not held back from tasks.
    assert_eq!(stage.verdict_of(2, &["sh", "-c", "kill -TERM $$"]).await, Verdict::Signalled(15));
}

#[tokio::test]
async fn a_worker_that_gets_no_companion_is_told_so() {
    let directory = Scratch::new();
    let mut settings = settings(&directory.0);
    settings.companion = Some(("/no/such/program".into(), Vec::new()));
    assert!(Executor::start(settings.clone(), Kinds::default()).is_err());
    settings.companion = Some(("false".into(), Vec::new()));
    let (executor, mut ended) = Executor::start(settings, Kinds::default()).unwrap();
    executor.run(assignment(1, Work::Command(marked("true", "nobody"))));
    let told = async { while ended.recv().await.is_some() {} };
    tokio::time::timeout(PATIENCE, told).await.unwrap();
}

#[tokio::test]
async fn a_dropped_executor_leaves_nothing() {
    let stage = Stage::new();
    let mark = stage.directory.0.display().to_string();
    stage.executor.run(assignment(1, Work::Command(marked(STUBBORN, &mark))));
    eventually_async("all processes to start", async || (alive(&mark).len() == 4).then_some(())).await;
    stage.close().await;
    assert_eq!(alive(&mark), [0; 0]);
}
