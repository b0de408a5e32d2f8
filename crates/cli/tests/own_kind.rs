//! End to end: the library's examples that join a farm work for one, and ask one.

mod common;
#[allow(dead_code, reason = "its main is for those who run it by hand")]
#[path = "../../facade/examples/own_kind.rs"]
mod own_kind;
#[allow(dead_code, reason = "its main is for those who run it by hand")]
#[path = "../../facade/examples/submit_jobs.rs"]
mod submit_jobs;

use std::error::Error;
use std::process::{Child, Command, Stdio};

use common::eventually;
use common::http::ask;
use common::place::{Farm, Place};
use serde_json::Value;
use tokio::runtime::Builder;

/// What this program is, if it is not the test: `worker FOLDER` or `client`.
const ROLE: &str = "PRIMUS_TEST_ROLE";

#[test]
fn plays_its_role() -> Result<(), Box<dyn Error>> {
    let Ok(role) = std::env::var(ROLE) else { return Ok(()) };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    match role.split_once(' ') {
        Some((_, folder)) => runtime.block_on(own_kind::join("counter", folder)),
        None => runtime.block_on(submit_jobs::run()),
    }
}

/// This program in another role, as a user of this place.
fn role(place: &Place, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its program"));
    command.args(["--exact", "plays_its_role", "--nocapture"]).env(ROLE, role).current_dir(&place.dir);
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
    let mut command = role(place, &format!("worker {}", place.dir.join("counter").display()));
    Worker(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"))
}

#[test]
fn a_program_that_is_not_a_server_submits_and_waits() {
    let place = Place::new();
    let farm = place.up("--servers 1 --workers 1");
    let done = role(&place, "client").output().expect("it starts");
    let printed = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{done:?}");
    for expected in ["job 1: 3 of 3 tasks are done", "hello from task 1\nhello from task 2\nhello from task 3\n"] {
        assert!(printed.contains(expected), "{done:?}");
    }
    assert_eq!(place.json("kv list")["items"], Value::Array(Vec::new()), "it has tidied up");
    farm.end();
}

#[test]
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
