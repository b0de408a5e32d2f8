//! End to end: disks of servers and workers fill up and get room again. New work is refused, everything else goes on, and
//! nothing that was acknowledged is lost.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;

use common::disks::{Disks, FARM};
use common::eventually;
use common::http::{ask, exchange};
use common::namespace::inside;
use common::place::{Farm, Place, Ran};
use serde_json::Value;

/// Prints as much as a result holds, so that results need room.
const CHATTY: [&str; 4] = ["--", "sh", "-c", "seq 1000; seq 1000 >&2"];
const MANY: usize = 1000;
/// More than a leader hears in the time that it gives silent followers.
const MESSAGES: f64 = 300.0;

#[test]
#[ignore = "needs mount namespaces"]
fn servers_without_room_refuse_new_work_and_go_on_when_there_is_room() {
    inside("--mount", "servers_without_room_refuse_new_work_and_go_on_when_there_is_room", || {
        let place = Place::new();
        let disks = Disks::new(&place);
        let farm = place.up(&format!("--dir {FARM}"));
        let leader = place.json("leader");
        let [first, second] = followers(&farm);
        let many = submit(&place, &[&["--array", &format!("1-{MANY}")], &CHATTY[..]].concat());
        eventually("some to be done", || (done(&place, &many) > 20).then_some(()));

        disks.fill(&format!("server-{first}"));
        await_full(&place, &[first]);
        let urgent = submit(&place, &["--priority", "9", "--", "echo", "urgent"]);
        eventually("it to be done", || (done(&place, &urgent) == 1).then_some(()));

        disks.fill(&format!("server-{second}"));
        await_full(&place, &[first, second]);
        for follower in [first, second] {
            eventually("writes to wait", || {
                (meter(farm.api_of(follower), "primus_disk_stuck") > 0.0).then_some(())
            });
        }
        is_refused(&place, &farm, "the disks of too many servers are full");
        still_serves(&place, &urgent);
        let api = farm.api_of(leader["leader"].as_u64().expect("one leads"));
        let heard = meter(api, "primus_messages_received_total");
        eventually("the leader to hear the others for long enough", || {
            (meter(api, "primus_messages_received_total") > heard + MESSAGES).then_some(())
        });
        assert_eq!(place.json("leader"), leader, "it leads on");

        let full = leader["leader"].as_u64().expect("one leads");
        disks.fill(&format!("server-{full}"));
        await_full(&place, &[1, 2, 3]);
        is_refused(&place, &farm, "the leader's disk is full");
        still_serves(&place, &urgent);

        (1..=3).for_each(|server| disks.empty(&format!("server-{server}")));
        let last = eventually("new work to be taken", || {
            let ran = run(&place, &["submit", "-o", "json", "--", "true"]);
            (ran.code == Some(0)).then(|| job_of(&ran))
        });
        for (job, tasks) in [(&many, MANY), (&urgent, 1), (&last, 1)] {
            assert_eq!(place.primus(&format!("wait {job}")).code, Some(0));
            assert_eq!(done(&place, job), tasks);
        }
        assert_eq!(place.json("leader"), leader, "nobody else has led");
        await_full(&place, &[]);
        farm.end();
    });
}

#[test]
#[ignore = "needs mount namespaces"]
fn a_worker_without_room_begins_nothing_and_loses_nothing() {
    inside("--mount", "a_worker_without_room_begins_nothing_and_loses_nothing", || {
        let place = Place::new();
        let disks = Disks::new(&place);
        let farm = place.up(&format!("--dir {FARM}"));
        let starts = place.dir.join("starts");
        let script = format!("echo $PRIMUS_TASK >> {}; seq 1000; seq 1000 >&2", starts.display());
        disks.fill("w1");
        let many = submit(&place, &["--array", &format!("1-{MANY}"), "--", "sh", "-c", &script]);
        let left = eventually("the other worker to do the rest", || {
            let left = place.json(&format!("tasks --job {many} --limit {MANY}"));
            let left = left["items"].as_array()?.iter().filter(|task| task["state"] != "done");
            let left: Vec<Value> = left.cloned().collect();
            (!left.is_empty() && left.iter().all(|task| task["worker"] == "w1")).then_some(left)
        });
        // What it had begun with before it noticed; what it was handed in advance has gone to the other.
        assert!(left.len() < 10, "{left:?}");
        for _ in 0..3 {
            let ran = run(&place, &["run", "-o", "json", "--", "echo", "meanwhile"]);
            let task: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
            assert_eq!((&task["state"], &task["worker"]), (&"done".into(), &"w2".into()), "{task}");
        }
        disks.empty("w1");
        assert_eq!(place.primus(&format!("wait {many}")).code, Some(0));
        let starts = fs::read_to_string(&starts).expect("tasks have begun");
        let tasks: BTreeSet<&str> = starts.lines().collect();
        assert_eq!((starts.lines().count(), tasks.len()), (MANY, MANY), "each began once");
        eventually("the worker to work again", || {
            let ran = run(&place, &["run", "-o", "json", "--", "true"]);
            let task: Value = serde_json::from_str(&ran.stdout).ok()?;
            (task["worker"] == "w1").then_some(())
        });
        farm.end();
    });
}

fn run(place: &Place, words: &[&str]) -> Ran {
    place.command(words).output().expect("primus starts").into()
}

fn job_of(ran: &Ran) -> String {
    let answer: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    answer["job"].as_str().expect("a job has a name").to_string()
}

fn submit(place: &Place, words: &[&str]) -> String {
    let ran = run(place, &[&["submit", "-o", "json"], words].concat());
    assert_eq!(ran.code, Some(0), "{words:?}: {ran:?}");
    job_of(&ran)
}

/// How many of the job's tasks are done.
fn done(place: &Place, job: &str) -> usize {
    let jobs = place.json("jobs");
    let job = jobs["items"].as_array().expect("jobs are a list").iter().find(|one| one["job"] == job);
    let done = job.and_then(|job| job["done"].as_u64()).expect("the job is there");
    usize::try_from(done).expect("there are few")
}

fn followers(farm: &Farm<'_>) -> [u64; 2] {
    let leader = farm.ready["leader"].as_u64().expect("one leads");
    let others: Vec<u64> = (1..=3).filter(|server| *server != leader).collect();
    others.try_into().expect("two follow")
}

/// Waits until exactly these servers are known to have no room.
fn await_full(place: &Place, expected: &[u64]) {
    eventually(&format!("{expected:?} to be full"), || {
        let status = place.json("status");
        let full = status["servers"].as_array()?.iter().filter(|server| server["disk_full"] == true);
        full.map(|server| server["id"].as_u64()).eq(expected.iter().copied().map(Some)).then_some(())
    });
}

/// Work is refused in the documented way, whoever is asked.
fn is_refused(place: &Place, farm: &Farm<'_>, sentence: &str) {
    let ran = run(place, &["submit", "-o", "json", "--", "true"]);
    let refusal: Value = serde_json::from_str(&ran.stderr).unwrap_or_else(|_| panic!("{ran:?}"));
    assert_eq!((ran.code, &refusal["error"]["code"]), (Some(4), &"disk_full".into()), "{ran:?}");
    assert!(refusal["error"]["message"].as_str().expect("a sentence").starts_with(sentence), "{refusal}");
    for api in &farm.api {
        let (status, answer) = ask(*api, "POST", "/v1/jobs", r#"{"kind":"noop"}"#).expect("it answers");
        assert_eq!((status, &answer["error"]["code"]), (503, &"disk_full".into()), "{answer}");
    }
    let ran = place.primus("kv put key value -o json");
    assert!(ran.code == Some(4) && ran.stderr.contains("disk_full"), "{ran:?}");
}

/// What needs no room is answered as ever.
fn still_serves(place: &Place, job: &str) {
    assert_eq!(place.json("status")["servers"].as_array().map(Vec::len), Some(3));
    assert_eq!(place.json(&format!("tasks --job {job}"))["items"][0]["state"], "done");
    assert_eq!(place.primus(&format!("logs {job}")).stdout, "urgent\n");
}

/// A figure of `/metrics`.
fn meter(api: SocketAddr, name: &str) -> f64 {
    let text = exchange(api, b"GET /metrics HTTP/1.0\r\n\r\n").unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.parse().ok()).unwrap_or_default()
}
