//! End to end: the library's examples that join a farm work for one, and ask one. This program plays them, too, so it has a main
//! function of its own.

mod common;
#[path = "../../facade/tests/common/harness.rs"]
mod harness;
#[allow(dead_code, reason = "its main is for those who run it by hand")]
#[path = "../../facade/examples/own_kind.rs"]
mod own_kind;
#[allow(dead_code, reason = "its main is for those who run it by hand")]
#[path = "../../facade/examples/submit_jobs.rs"]
mod submit_jobs;

use std::error::Error;
use std::process::{Child, Command, ExitCode, Stdio};

use common::eventually;
use common::http::ask;
use common::place::{Farm, Place};
use serde_json::Value;
use tokio::runtime::Builder;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["role", "worker", folder] => block_on(own_kind::join("counter", folder)),
        ["role", "client"] => block_on(submit_jobs::run()),
        _ => harness::run(&[
            ("a_program_that_is_not_a_server_submits_and_waits", a_program_that_is_not_a_server_submits_and_waits),
            ("a_program_runs_tasks_of_its_own_kind_for_a_farm", a_program_runs_tasks_of_its_own_kind_for_a_farm),
        ]),
    }
}

fn block_on(role: impl Future<Output = Result<(), Box<dyn Error>>>) -> ExitCode {
    let runtime = Builder::new_current_thread().enable_all().build().expect("the system gives a runtime");
    runtime.block_on(role).expect("the example works");
    ExitCode::SUCCESS
}

/// This program in another role, as a user of this place.
fn role(place: &Place, words: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its program"));
    command.arg("role").args(words).current_dir(&place.dir);
    command.env("XDG_RUNTIME_DIR", place.dir.join("run")).env_remove("PRIMUS_API").env_remove("PRIMUS_TOKEN");
    command
}

/// It ends with this value.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// The example as a worker of the farm that runs here.
fn start(place: &Place, _: &Farm<'_>) -> Worker {
    let folder = place.dir.join("counter");
    let mut command = role(place, &["worker", folder.to_str().expect("it is text")]);
    Worker(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"))
}

fn a_program_that_is_not_a_server_submits_and_waits() {
    let place = Place::new();
    let farm = place.up("--servers 1 --workers 1");
    let done = role(&place, &["client"]).output().expect("it starts");
    let printed = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{done:?}");
    for expected in ["job 1: 3 of 3 tasks are done", "hello from task 1\nhello from task 2\nhello from task 3\n"] {
        assert!(printed.contains(expected), "{done:?}");
    }
    assert_eq!(place.json("kv list")["items"], Value::Array(Vec::new()), "it has tidied up");
    farm.end();
}

fn a_program_runs_tasks_of_its_own_kind_for_a_farm() {
    let place = Place::new();
    let farm = place.up("--workers 0");
    let _worker = start(&place, &farm);
    let ran = place.primus("submit --kind primes --array 10-12 --wait");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "job 1: 3 tasks, 3 done\n"), "{ran:?}");
    assert_eq!(place.primus("logs 1").stdout, "4\n5\n5\n");
    let body = r#"{"kind":"primes","input":"1000000"}"#;
    let (status, job) = ask(farm.api[0], "POST", "/v1/jobs", body).expect("it answers");
    assert_eq!(status, 201, "{job}");
    let task = eventually("the result", || {
        let (_, task) = ask(farm.api[0], "GET", "/v1/tasks/2.1", "").ok()?;
        (task["state"] == "done").then_some(task)
    });
    assert_eq!((&task["stdout"], &task["worker"]), (&Value::from("78498\n"), &"counter".into()), "{task}");
    let ran = place.primus("submit --kind primes --input many --wait");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(place.primus("logs 3 --stderr").stdout, "\"many\" is not a number");
    let ran = place.primus("submit --kind unheard --wait");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let sentence = place.primus("explain 4").stdout;
    assert!(sentence.contains("noop, primes, sleep"), "{sentence}");
    farm.end();
}
