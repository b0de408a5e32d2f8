//! An executor with a companion of its own, and ways to look at processes.

use primus_core::Term;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use primus_core::farm::Assignment;
use primus_core::ledger::{Attempt, CommandLine, Held, JobId, Outcome, TaskId, Verdict, Work};
use primus_node::executor::{Ended, Executor, Kinds, Settings};
use tokio::sync::mpsc;

use crate::common::{PATIENCE, eventually};
use crate::program;

/// How many tasks a worker in a process of its own has.
pub(crate) const TASKS: u64 = 4;
/// What they run. Two of its four processes are children of others, one has left the group and the session.
pub(crate) const STUBBORN: &str =
    "sleep 1000 & setsid sleep 1000 & trap '' TERM INT HUP; while :; do sleep 1000; done";

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A directory that vanishes after a test.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("primus-tasks-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("there is room for a directory");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn settings(directory: &Path) -> Settings {
    let companion = (program(), vec!["companion".into()]);
    let mut settings = Settings::new("w1", directory.to_owned(), companion);
    settings.allow.push("*".to_owned());
    // The tests renew all the time, but the host may be busy.
    settings.patience = PATIENCE;
    settings
}

/// An executor that renews whenever somebody waits for it.
pub(crate) struct Stage {
    pub(crate) executor: Executor,
    ended: mpsc::UnboundedReceiver<Ended>,
    pub(crate) directory: Scratch,
    pub(crate) patience: Duration,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(|_| {}, Kinds::default())
    }

    pub(crate) fn with(change: impl FnOnce(&mut Settings), kinds: Kinds) -> Self {
        let directory = Scratch::new();
        let mut settings = settings(&directory.0);
        change(&mut settings);
        let (executor, ended) = Executor::start(settings, kinds).expect("a companion can be started");
        Self { executor, ended, directory, patience: PATIENCE }
    }

    /// Waits for the next end.
    pub(crate) async fn next(&mut self) -> Ended {
        let begun = Instant::now();
        loop {
            self.executor.renew();
            match tokio::time::timeout(Duration::from_millis(50), self.ended.recv()).await {
                Ok(ended) => return ended.expect("there is a companion"),
                Err(_) => assert!(begun.elapsed() < self.patience, "nothing ended in time"),
            }
        }
    }

    pub(crate) async fn outcome(&mut self) -> Outcome {
        match self.next().await {
            Ended::Finished(report) => report.outcome,
            Ended::Abandoned(held) => panic!("{held} was abandoned"),
        }
    }

    /// Drops the executor and waits until nothing is left of it.
    pub(crate) async fn close(mut self) {
        drop(self.executor);
        let closed = async { while self.ended.recv().await.is_some() {} };
        tokio::time::timeout(PATIENCE, closed).await.expect("it ends in time");
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&mut self, command: CommandLine) -> Outcome {
        self.executor.run(assignment(1, Work::Command(command)));
        self.outcome().await
    }

    pub(crate) async fn verdict(&mut self, arguments: &[&str]) -> Verdict {
        self.verdict_of(1, arguments).await
    }

    pub(crate) async fn verdict_of(&mut self, index: u64, arguments: &[&str]) -> Verdict {
        self.executor.run(assignment(index, Work::Command(command(arguments))));
        self.outcome().await.verdict
    }
}

pub(crate) fn command(arguments: &[&str]) -> CommandLine {
    CommandLine { arguments: arguments.iter().map(ToString::to_string).collect(), ..CommandLine::default() }
}

/// The fifth attempt of term 7 at task 3.`index`.
pub(crate) fn assignment(index: u64, work: Work) -> Assignment {
    let argument = format!("argument {index}");
    Assignment { held: held(index), work, argument, number: index, timeout_ms: None, cpus: 1, is_once: false }
}

pub(crate) fn held(index: u64) -> Held {
    Held { task: TaskId { job: JobId(3), index }, attempt: Attempt { term: Term(7), sequence: 5 } }
}

/// A shell command whose processes all carry a mark.
pub(crate) fn marked(script: &str, mark: &str) -> CommandLine {
    CommandLine {
        environment: vec![("PRIMUS_TEST_MARK".to_owned(), mark.to_owned())],
        ..command(&["sh", "-c", script])
    }
}

/// The live processes that carry a mark.
pub(crate) fn alive(mark: &str) -> Vec<u32> {
    let wanted = format!("PRIMUS_TEST_MARK={mark}");
    let carries = |pid: &u32| {
        // A dead process has no environment any more.
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let processes = fs::read_dir("/proc").expect("there is a /proc").flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(carries).collect()
}

/// Waits for a condition; gives back how long that took.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    eventually(what, || is_so().then_some(()));
    begun.elapsed()
}
