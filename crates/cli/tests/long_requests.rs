//! End to end: long lists and long jobs make nobody late. While they are read and cancelled in a loop, the same server leads,
//! and what is guarded runs on.

mod common;

use std::fs;
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::thread;

use common::eventually;
use common::http::{ask, events, exchange};
use common::place::{Farm, Place};
use serde_json::Value;

const KEYS: usize = 200_000;
const TASKS: u64 = 3_900_000;
const ROUNDS: usize = 5;

/// A command that runs on one host at a time, and writes down that it began.
struct Guarded(Child);

impl Guarded {
    fn start(place: &Place) -> Self {
        let words = ["lead", "--group", "g", "--", "sh", "-c", "echo $$ >> began; exec sleep 1000"];
        let mut command = place.command(&words);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        Self(child)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn import(api: SocketAddr) {
    for first in (0..KEYS).step_by(KEYS / 10) {
        let line = |number: usize| format!("{{\"key\":\"k{number:07}\",\"value\":\"v\"}}\n");
        let lines: String = (first..first + KEYS / 10).map(line).collect();
        let head = format!(
            "POST /v1/kv HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\
             content-type: application/x-ndjson\r\n\r\n",
            lines.len()
        );
        let answer = exchange(api, format!("{head}{lines}").as_bytes()).expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

/// Reads all keys; says how many there were.
fn read_all(api: SocketAddr) -> usize {
    let (mut count, mut after) = (0, String::new());
    loop {
        let (status, page) = ask(api, "GET", &format!("/v1/kv?limit=10000{after}"), "").expect("it answers");
        assert_eq!(status, 200, "{page}");
        count += page["items"].as_array().expect("a list has items").len();
        let Some(next) = page["next"].as_str() else { return count };
        after = format!("&after={next}");
    }
}

fn submit_and_cancel(api: SocketAddr) {
    let job = format!("{{\"command\":[\"true\"],\"array\":\"1-{TASKS}\"}}");
    let (status, taken) = ask(api, "POST", "/v1/jobs", &job).expect("it answers");
    assert_eq!(status, 201, "{taken}");
    let job = taken["job"].as_str().expect("a job has a number");
    let (status, answer) = ask(api, "POST", &format!("/v1/jobs/{job}/cancel"), "{}").expect("it answers");
    assert_eq!((status, &answer["cancelled"]), (200, &TASKS.into()), "{answer}");
}

fn leader(farm: &Farm<'_>) -> Value {
    ask(farm.api[0], "GET", "/v1/leader", "").expect("it answers").1
}

#[test]
fn long_requests_end_nothing_that_is_guarded_and_depose_nobody() {
    let place = Place::new();
    let farm = place.up("--workers 0");
    let _guarded = Guarded::start(&place);
    let began = || fs::read_to_string(place.dir.join("began")).ok();
    let first = eventually("the command to begin", || began().filter(|text| text.ends_with('\n')));
    import(farm.api[0]);
    let before = leader(&farm);
    thread::scope(|scope| {
        for api in &farm.api {
            scope.spawn(move || (0..ROUNDS).for_each(|_| assert_eq!(read_all(*api), KEYS)));
        }
        scope.spawn(|| (0..ROUNDS).for_each(|_| submit_and_cancel(farm.api[0])));
    });
    assert_eq!(leader(&farm), before, "it leads on");
    assert_eq!(began(), Some(first), "the command has begun once, and runs on");
    for api in &farm.api {
        let late = events(*api).expect("it answers").into_iter().filter(|event| event["kind"] == "late_turn");
        let late: Vec<Value> = late.filter(|event| event["cause"] != "the host").collect();
        assert!(late.is_empty(), "{late:?}");
    }
    farm.end();
}
