//! End to end: what people see of tasks while they run, and of workers.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};

use common::eventually;
use common::http::{ask, dressed, exchange};
use common::place::{Place, Ran};
use serde_json::Value;

/// A call with words as they are.
fn run(place: &Place, words: &[&str]) -> Ran {
    place.command(words).output().expect("primus starts").into()
}

/// A command that says this, waits until the flag is there, and says that.
fn held_up(place: &Place, first: &str, last: &str) -> String {
    let flag = place.dir.join("flag");
    format!("echo {first}; while [ ! -e {} ]; do sleep 0.01; done; echo {last}", flag.display())
}

fn release(place: &Place) {
    fs::write(place.dir.join("flag"), "").expect("a file can be written");
}

fn await_running(place: &Place, task: &str) {
    eventually(&format!("{task} to run"), || {
        (place.json(&format!("task {task}"))["state"] == "running").then_some(())
    });
}

#[test]
fn an_output_can_be_followed_over_http() {
    let place = Place::new();
    let farm = place.up("");
    let script = held_up(&place, "first", "last");
    assert_eq!(run(&place, &["submit", "--", "sh", "-c", &script]).code, Some(0));
    for api in &farm.api {
        let mut output = follow(*api, "/v1/tasks/1.1/output?follow=true");
        let mut line = String::new();
        output.read_line(&mut line).expect("it comes");
        assert_eq!(line, "first\n", "while it runs");
    }
    let mut followed: Vec<_> =
        farm.api.iter().map(|api| follow(*api, "/v1/tasks/1.1/output?follow=true")).collect();
    release(&place);
    for output in &mut followed {
        let mut text = String::new();
        output.read_to_string(&mut text).expect("it ends by itself");
        assert_eq!(text, "first\nlast\n");
    }
    let again =
        exchange(farm.api[0], b"GET /v1/tasks/1.1/output?follow=true HTTP/1.0\r\n\r\n").expect("it answers");
    assert!(again.ends_with("\r\n\r\nfirst\nlast\n"), "what has ended ends at once: {again}");
    let (status, problem) = ask(farm.api[0], "GET", "/v1/tasks/9.9/output?follow=true", "").expect("it answers");
    assert_eq!((status, &problem["error"]["code"]), (404, &"not_found".into()));
}

/// What a server sends after its head, as it comes.
fn follow(api: SocketAddr, path: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(api).expect("it listens");
    // In the older version of the protocol a body is what comes until the end.
    let request = dressed(api, format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes());
    stream.write_all(&request).expect("it reads");
    let mut answer = BufReader::new(stream);
    let mut line = String::new();
    answer.read_line(&mut line).expect("it answers");
    assert!(line.contains(" 200 "), "{line}");
    while line != "\r\n" {
        line.clear();
        answer.read_line(&mut line).expect("a head has an end");
    }
    answer
}

#[test]
fn whoever_waits_without_a_terminal_gets_a_line_now_and_then() {
    let place = Place::new();
    let _farm = place.up("");
    let script = held_up(&place, "first", "last");
    let words = ["submit", "--array", "1-3", "--wait", "--", "sh", "-c", &script];
    let mut waiting = place.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(waiting.stderr.take().unwrap());
    let mut lines = String::new();
    stderr.read_line(&mut lines).unwrap();
    stderr.read_line(&mut lines).unwrap();
    assert_eq!(lines, "job 1 is submitted: 3 tasks\njob 1: 3 tasks, 2 running, 1 queued\n");
    release(&place);
    let ran: Ran = waiting.wait_with_output().unwrap().into();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "job 1: 3 tasks, 3 done\n"));
}

#[test]
fn an_explanation_says_for_how_long() {
    let place = Place::new();
    let _farm = place.up("--workers 1");
    let script = held_up(&place, "first", "last");
    assert_eq!(run(&place, &["submit", "--array", "1-2", "--", "sh", "-c", &script]).code, Some(0));
    await_running(&place, "1.1");
    let explained = place.json("explain 1.1");
    let sentence = explained["explanation"].as_str().expect("a sentence");
    assert!(sentence.starts_with("1.1 has been running on w1 for ") && sentence.ends_with('s'), "{sentence}");
    assert_eq!(explained["code"], "running");
    let length = |explained: &Value| explained["for_ms"].as_f64().expect("a length of time");
    let first = length(&explained);
    let later = eventually("time to pass", || {
        let now = place.json("explain 1.1");
        (length(&now) > first + 200.0).then_some(now)
    });
    let since = |explained: &Value| {
        let since: jiff::Timestamp = explained["since"].as_str().expect("a time").parse().expect("as in RFC 3339");
        since.as_millisecond()
    };
    assert!(since(&later).abs_diff(since(&explained)) < 100, "it has not begun again: {later} {explained}");
    let sentence = place.primus("explain 1.2").stdout;
    assert!(sentence.starts_with("1.2 ") && sentence.contains("; it has waited for "), "{sentence}");
    release(&place);
    assert_eq!(place.primus("wait 1").code, Some(0));
    let ended = place.json("explain 1.1");
    assert_eq!((&ended["code"], &ended["since"], &ended["for_ms"]), (&"done".into(), &Value::Null, &Value::Null));
}

/// A worker that ends with this value.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
fn a_worker_says_what_happens_as_a_server_does() {
    let place = Place::new();
    let _farm = place.up("--workers 0");
    let worker = |level: &str, more: &[&str]| {
        let words = [&["worker", "--name", "one", "--slots", "1", "--allow", "*"], more].concat();
        let mut command = place.command(&words);
        command.env("PRIMUS_LOG", level).stdout(Stdio::null()).stderr(Stdio::piped());
        Worker(command.spawn().expect("primus starts"))
    };
    // The line before it says as whom tasks run.
    let second_line = |worker: &mut Worker| {
        let lines = BufReader::new(worker.0.stderr.take().unwrap()).lines();
        let lines: Vec<String> = lines.take(2).map(|line| line.expect("it says something")).collect();
        let says_whom = |text: &str| lines[0].contains(text);
        assert!(says_whom("tasks run as the user of this process") || says_whom("tasks_as_own_user"), "{lines:?}");
        lines[1].clone()
    };
    // On a busy host the first leader need not be the one that leads now.
    let leads = place.json("leader");
    let (leader, term) = (&leads["leader"], &leads["term"]);
    let text = second_line(&mut worker("", &[]));
    assert!(text.ends_with(&format!("Z info one: serve {leader} term {term}")), "{text}");
    let json: Value = serde_json::from_str(&second_line(&mut worker("info", &["--log-format", "json"]))).unwrap();
    assert_eq!((&json["level"], &json["kind"], &json["worker"]), (&"info".into(), &"serves".into(), &"one".into()));
    assert_eq!((&json["leader"], &json["term"]), (leader, term));
    let mut quiet = worker("error", &[]);
    assert_eq!(run(&place, &["run", "--", "echo", "hello"]).stdout, "hello\n");
    quiet.0.kill().unwrap();
    let mut said = String::new();
    quiet.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
    let mut wrong = worker("loud", &[]);
    let status = wrong.0.wait().unwrap();
    let mut said = String::new();
    wrong.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(status.code() == Some(2) && said.contains("PRIMUS_LOG is 'loud'"), "{status} {said}");
}
