//! End to end: the example of a program with a task kind of its own works for a farm.

mod common;
#[allow(dead_code, reason = "its main is for those who run it by hand")]
#[path = "../../node/examples/own_kind.rs"]
mod own_kind;

use std::error::Error;
use std::io;
use std::process::{Child, Command, Stdio};

use common::eventually;
use common::http::ask;
use common::place::{Farm, Place};
use serde_json::Value;

/// What this program is, if it is not the test: the companion, or the worker with these words.
const ROLE: &str = "PRIMUS_TEST_ROLE";

#[test]
fn plays_the_companion() -> io::Result<()> {
    if std::env::var(ROLE).is_ok_and(|role| role == "companion") { primus_node::companion::run() } else { Ok(()) }
}

#[test]
fn plays_the_worker() -> Result<(), Box<dyn Error>> {
    let Some(words) = std::env::var(ROLE).ok().filter(|role| role != "companion") else { return Ok(()) };
    let own = std::env::current_exe()?.into_os_string();
    let arguments = [format!("{ROLE}=companion").into(), own, "--exact".into(), "plays_the_companion".into()];
    let companion = ("env".into(), arguments.into_iter().chain(["--nocapture".into()]).collect());
    own_kind::work(&words.split(' ').map(str::to_owned).collect::<Vec<_>>(), companion)
}

/// It ends with this value.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// The example as a worker of this farm.
fn start(place: &Place, farm: &Farm<'_>) -> Worker {
    let servers = farm.ready["servers"].as_array().expect("servers are a list").iter();
    let servers: Vec<String> = servers
        .map(|server| format!("{}@{}", server["id"], server["address"].as_str().expect("a place")))
        .collect();
    let words = format!("local counter {} {}", place.dir.join("counter").display(), servers.join(" "));
    let mut command = Command::new(std::env::current_exe().expect("a test knows its program"));
    command.args(["--exact", "plays_the_worker", "--nocapture"]).env(ROLE, words);
    Worker(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"))
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
    assert_eq!(place.primus("logs 3 --stderr").stdout, "\"many\" is no number");
    let ran = place.primus("submit --kind unheard --wait");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let sentence = place.primus("explain 4").stdout;
    assert!(sentence.contains("noop, primes, sleep"), "{sentence}");
    farm.end();
}
