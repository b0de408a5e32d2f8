//! How many commands per second the executor and its companion run, beside xargs:
//! `cargo bench -p primus-node --bench command_rate -- [COUNT] [AT_ONCE]`.

use primus_core::Term;
use std::process::Command;
use std::time::Instant;

use primus_core::farm::Assignment;
use primus_core::ledger::{Attempt, CommandLine, Held, JobId, TaskId, Work};
use primus_node::companion;
use primus_node::executor::{Executor, Kinds, Settings};

fn main() {
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let first = words.next().unwrap_or_else(|| "5000".to_owned());
    if first == "companion" {
        companion::run().expect("there is a worker");
        return;
    }
    let count = first.parse().expect("a number of tasks");
    let at_once = words.next().map_or(2, |word| word.parse().expect("how many at once"));
    for _ in 0..3 {
        let (ours, theirs) = (executor(count, at_once), xargs(count, at_once));
        println!("executor {ours:.0}/s  xargs {theirs:.0}/s  ratio {:.3}", ours / theirs);
    }
}

fn executor(count: u64, at_once: u64) -> f64 {
    let directory = std::env::temp_dir().join(format!("primus-command-rate-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("there is room");
    let own = std::env::current_exe().expect("this program has a path");
    let mut settings = Settings::new("rate", directory.clone(), (own, vec!["companion".into()]));
    settings.allow.push("*".to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let rate = runtime.block_on(async {
        let (executor, mut ended) = Executor::start(settings, Kinds::default()).expect("a companion");
        let began = Instant::now();
        for index in 0..at_once {
            executor.run(assignment(index));
        }
        for index in 0..count {
            ended.recv().await.expect("the companion lives");
            if index + at_once < count {
                executor.run(assignment(index + at_once));
            }
        }
        let rate = count as f64 / began.elapsed().as_secs_f64();
        drop(executor);
        // The channel closes when the companion is gone.
        while ended.recv().await.is_some() {}
        rate
    });
    _ = std::fs::remove_dir_all(directory);
    rate
}

fn assignment(index: u64) -> Assignment {
    let task = TaskId { job: JobId(1), index: index + 1 };
    let command = CommandLine { arguments: vec!["true".to_owned()], ..CommandLine::default() };
    let held = Held { task, attempt: Attempt { term: Term(1), sequence: index } };
    Assignment {
        held,
        work: Work::Command(command),
        argument: index.to_string(),
        number: index,
        timeout_ms: None,
        cpus: 1,
        is_once: false,
    }
}

fn xargs(count: u64, at_once: u64) -> f64 {
    let began = Instant::now();
    let line = format!("seq {count} | xargs -P{at_once} -n1 true");
    let status = Command::new("sh").args(["-c", &line]).status().expect("there is a shell");
    assert!(status.success());
    count as f64 / began.elapsed().as_secs_f64()
}
