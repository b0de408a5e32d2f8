//! End to end: crowds that would like to keep all places or all memory of a server. Others are served while they last.

mod common;

use std::collections::VecDeque;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use common::http::{ask, dressed, exchange};
use common::place::{Farm, Place};
use common::{eventually, eventually_or};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

/// How much more memory a server may use, whatever is done to it.
const MORE_KIB_MAX: u64 = 256 * 1024;
/// How long a crowd goes on.
const CROWD_TIME: Duration = Duration::from_secs(6);

/// Clients that each send as much as the server takes.
struct Crowd {
    members: Vec<Member>,
}

struct Member {
    stream: TcpStream,
    head: VecDeque<u8>,
    /// How much of its body is left.
    rest: usize,
    has_ended: bool,
    heard: Vec<u8>,
    is_closed: bool,
}

impl Crowd {
    /// Each with this head, and this much of a body.
    fn new(api: SocketAddr, count: usize, head: &str, body: usize) -> Self {
        let member = |_| {
            let stream = eventually("a connection", || TcpStream::connect(api).ok());
            stream.set_nonblocking(true).expect("it is open");
            // What kind of body it is must not depend on whether one is there already.
            let head = dressed(api, format!("{head}\r\n\r\n").as_bytes()).into();
            Member { stream, head, rest: body, has_ended: false, heard: Vec::new(), is_closed: false }
        };
        Self { members: (0..count).map(member).collect() }
    }

    /// Sends whatever can be sent.
    fn push(&mut self) {
        self.members.iter_mut().filter(|member| !member.has_ended).for_each(Member::push);
    }

    fn push_until(&mut self, until: Instant) {
        while Instant::now() < until {
            self.push();
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// What the other side has said to them so far.
    fn answers(&mut self) -> Vec<String> {
        self.members.iter_mut().for_each(Member::hear);
        self.members.iter().map(|member| String::from_utf8_lossy(&member.heard).into_owned()).collect()
    }

    /// Has the other side closed all of them?
    fn are_closed(&mut self) -> bool {
        self.members.iter_mut().for_each(Member::hear);
        self.members.iter().all(|member| member.is_closed)
    }
}

impl Member {
    fn push(&mut self) {
        let body = [b'x'; 64 * 1024];
        for _ in 0..8 {
            let bytes =
                if self.head.is_empty() { &body[..self.rest.min(body.len())] } else { self.head.make_contiguous() };
            if bytes.is_empty() {
                return;
            }
            match self.stream.write(bytes) {
                Ok(count) if self.head.is_empty() => self.rest -= count,
                Ok(count) => _ = self.head.drain(..count),
                Err(error) => {
                    self.has_ended = error.kind() != ErrorKind::WouldBlock;
                    return;
                }
            }
        }
    }

    fn hear(&mut self) {
        let mut buffer = [0; 4096];
        while !self.is_closed {
            match self.stream.read(&mut buffer) {
                Ok(count) if count > 0 => self.heard.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                _ => self.is_closed = true,
            }
        }
    }
}

fn may_have_many_files() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("more is allowed");
}

/// A farm of one server, for somebody who opens many connections.
fn at_one_server(test: impl FnOnce(&Farm<'_>, SocketAddr)) {
    may_have_many_files();
    let place = Place::new();
    let farm = place.up("--servers 1 --workers 0");
    test(&farm, farm.api[0]);
    farm.end();
}

fn kib(pid: u64, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).expect("the kernel counts it")
}

fn lives(api: SocketAddr) -> bool {
    exchange(api, b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .is_ok_and(|text| text.contains("alive"))
}

fn asks(api: SocketAddr, method: &str, path: &str, body: &str) -> Option<()> {
    ask(api, method, path, body).is_ok_and(|(status, _)| status == 200).then_some(())
}

/// What matters most is served, again and again, for as long as a crowd is there.
fn all_is_served(api: SocketAddr, until: Instant) {
    let question = json!({ "number": 1, "wants": [{ "group": "cron", "rank": "id", "name": "me" }] }).to_string();
    let mut times = 0;
    while times == 0 || Instant::now() < until {
        eventually("a sign of life", || lives(api).then_some(()));
        eventually("the leader", || asks(api, "GET", "/v1/leader", ""));
        eventually("a write", || asks(api, "PUT", "/v1/kv/x", "1"));
        eventually("a lease", || asks(api, "POST", "/v1/sessions/7", &question));
        times += 1;
    }
    println!("served {times} times");
}

/// Has a crowd do its worst, looks whether others are served, and how much memory the server needs for it.
fn withstands<'a>(farm: &Farm<'_>, api: SocketAddr, crowd: impl Fn() -> Crowd + Send + Sync + 'a) -> Vec<String> {
    let before: Vec<u64> = farm.pids().into_iter().map(|pid| kib(pid, "VmRSS:")).collect();
    let until = Instant::now() + CROWD_TIME;
    let answers = thread::scope(|scope| {
        let pushing = scope.spawn(|| {
            let mut crowd = crowd();
            crowd.push_until(until);
            crowd.answers()
        });
        all_is_served(api, until);
        pushing.join().expect("it pushes")
    });
    for (pid, before) in farm.pids().into_iter().zip(before) {
        let most = kib(pid, "VmHWM:");
        println!("process {pid}: {before} KiB before, {most} KiB at most");
        assert!(most < before + MORE_KIB_MAX, "process {pid} used {most} KiB, {before} KiB before");
    }
    answers
}

#[test]
fn lines_without_an_end_take_no_more_memory_than_there_is_for_bodies() {
    at_one_server(|farm, api| {
        let len = 39 * (1 << 20) / 10;
        let kind = "host: x\r\ncontent-type: application/x-ndjson";
        let jobs = format!("POST /v1/jobs HTTP/1.1\r\n{kind}\r\ncontent-length: {}", len + 1);
        withstands(farm, api, || Crowd::new(api, 250, &jobs, len));
        let import = format!("POST /v1/kv HTTP/1.1\r\n{kind}\r\ncontent-length: {}", (448 << 10) + 1);
        withstands(farm, api, || Crowd::new(api, 500, &import, 448 << 10));
        // When they have gone, there is room for everybody.
        let long = json!({ "command": ["echo", "x".repeat(70_000)] }).to_string();
        for (method, path, body) in [("POST", "/v1/jobs", &long), ("PUT", "/v1/kv/long", &"x".repeat(200_000))] {
            eventually_or("a long body to be taken", || match ask(api, method, path, body) {
                Ok((200 | 201, _)) => Ok(()),
                other => Err(format!("{path}: {other:?}")),
            });
        }
    });
}

#[test]
fn a_client_that_finds_no_room_is_told_to_come_again() {
    at_one_server(|_, api| {
        let len = 39 * (1 << 20) / 10;
        let kind = "host: x\r\ncontent-type: application/x-ndjson";
        let mut crowd =
            Crowd::new(api, 40, &format!("POST /v1/jobs HTTP/1.1\r\n{kind}\r\ncontent-length: {}", len + 1), len);
        let answer = eventually("a refusal", || {
            crowd.push();
            crowd.answers().into_iter().find(|answer| answer.starts_with("HTTP/1.1 503"))
        });
        let answer = answer.to_ascii_lowercase();
        assert!(answer.contains("retry-after: 1") && answer.contains("memory for bodies"), "{answer}");
    });
}

#[test]
fn slow_bodies_keep_nobody_waiting() {
    may_have_many_files();
    let place = Place::new();
    let farm = place.up("--workers 0");
    for api in &farm.api {
        for (count, head, sent) in [
            (
                300,
                "PUT /v1/kv/slow HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000",
                1,
            ),
            (
                8,
                "POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 200000",
                70_000,
            ),
        ] {
            let mut crowd = Crowd::new(*api, count, head, sent);
            crowd.push();
            all_is_served(*api, Instant::now());
            let job = json!({ "command": ["echo", "x".repeat(70_000)] }).to_string();
            eventually("a job", || ask(*api, "POST", "/v1/jobs", &job).ok().filter(|(status, _)| *status == 201));
            if api == &farm.api[0] {
                eventually("them to be sent away", || {
                    let answers = crowd.answers();
                    let is_told =
                        |answer: &&String| answer.contains("408") && answer.contains("8192 bytes per second");
                    crowd.push();
                    (answers.iter().filter(is_told).count() > 0).then_some(())
                });
            }
        }
    }
    farm.end();
}

#[test]
fn followers_give_way_to_others_and_the_oldest_goes_first() {
    at_one_server(|farm, api| {
        let head = "GET /v1/events HTTP/1.1\r\nhost: x";
        let mut first = Crowd::new(api, 1, head, 0);
        first.push();
        eventually("events", || first.answers()[0].contains("leader_changed").then_some(()));
        withstands(farm, api, || Crowd::new(api, 2100, head, 0));
        eventually("the oldest to go", || first.are_closed().then_some(()));
        // The newest one still hears what happens.
        let mut newest = Crowd::new(api, 1, head, 0);
        eventually("events", || {
            newest.push();
            newest.answers()[0].contains("leader_changed").then_some(())
        });
        all_is_served(api, Instant::now());
    });
}

#[test]
fn a_history_can_be_read_in_parts() {
    let place = Place::new();
    let farm = place.up("--servers 1 --workers 0");
    let api = farm.api[0];
    for _ in 0..3 {
        assert_eq!(place.primus("elect").code, Some(0));
    }
    let read = |query: &str| {
        let path = format!("GET /v1/events?follow=false&{query} HTTP/1.0\r\n\r\n");
        let text = exchange(api, path.as_bytes()).expect("it answers");
        text.lines()
            .filter_map(|line| line.strip_prefix("id: ").and_then(|id| id.parse().ok()))
            .collect::<Vec<u64>>()
    };
    let all = read("after=0");
    assert!(all.len() >= 4, "{all:?}");
    let first = read("limit=2");
    assert_eq!(first, all[..2]);
    assert_eq!(read(&format!("limit=10000&after={}", first[1])), all[2..]);
    for query in ["limit=2", "limit=0&follow=false", "limit=x&follow=false"] {
        let (status, answer) = ask(api, "GET", &format!("/v1/events?{query}"), "").expect("it answers");
        assert_eq!(status, 400, "{answer}");
    }
    farm.end();
}

#[test]
fn connections_that_say_nothing_give_way() {
    at_one_server(|_, api| {
        let silent: Vec<io::Result<TcpStream>> = (0..2300).map(|_| TcpStream::connect(api)).collect();
        all_is_served(api, Instant::now() + Duration::from_secs(2));
        // Nor do those that ask now and then, and keep their connections.
        let mut busy = Crowd::new(api, 2300, "GET /livez HTTP/1.1\r\nhost: x", 0);
        busy.push();
        all_is_served(api, Instant::now() + Duration::from_secs(2));
        drop(silent);
    });
}
