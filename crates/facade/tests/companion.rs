//! Workers that run commands: their program is its own companion, as users' programs are.
//!
//! It has a main function of its own, because `companion()` comes first there.

mod common;
#[path = "common/harness.rs"]
mod harness;

use std::process::ExitCode;

use primus_farm::{Job, TaskState, WorkerBuilder};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use common::{Farm, PATIENCE};

fn main() -> ExitCode {
    primus_farm::companion();
    harness::run(&[
        ("a_program_is_its_own_companion", || run(|worker| worker)),
        ("another_program_can_be_the_companion", || run(with_another)),
    ])
}

fn with_another(worker: WorkerBuilder) -> WorkerBuilder {
    let program = std::env::current_exe().expect("a program knows where it is");
    worker.companion_command("env", [program.into_os_string(), "primus-companion".into()])
}

fn run(choose: impl Fn(WorkerBuilder) -> WorkerBuilder) {
    let runtime = Runtime::new().expect("the system gives a runtime");
    runtime.block_on(commands_are_run_only_where_they_are_allowed(choose));
}

async fn commands_are_run_only_where_they_are_allowed(choose: impl Fn(WorkerBuilder) -> WorkerBuilder) {
    let farm = Farm::start("commands", 1).await;
    let server = &farm.servers[0];
    let worker = server.worker("runs", farm.dir.join("runs")).allow(["echo"]);
    let worker = choose(worker).start().await.expect("it starts");
    let client = server.client();
    let job = client.submit(Job::command(["echo", "line {}"]).lines(["a", "b"])).await.expect("it is taken");
    assert!(timeout(PATIENCE, job.wait()).await.expect("it ends").expect("it is known").is_success());
    let printed: Vec<String> =
        job.results().await.expect("they are kept").into_iter().map(|task| task.stdout).collect();
    assert_eq!(printed, ["line a\n", "line b\n"]);
    let job = client.submit(Job::command(["cat"])).await.expect("it is taken");
    timeout(PATIENCE, job.wait()).await.expect("it ends").expect("it is known");
    let task = job.results().await.expect("they are kept").remove(0);
    assert_eq!(task.state, TaskState::Failed);
    assert!(task.reason.is_some_and(|reason| reason.contains("does not allow")));
    worker.stop().await.expect("it ends well");
}
