//! End to end: lists come in pages, and commands show all of them as one.

mod common;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use common::eventually;
use common::http::{ask, exchange};
use common::place::{Farm, Place};
use serde_json::{Value, json};

const COUNT: usize = 250;
/// A page is not much longer than this, unless its only item is.
const PAGE_LEN_MAX: usize = (1 << 20) + 4096;

fn get(api: SocketAddr, path: &str) -> Value {
    let (status, answer) = ask(api, "GET", path, "").expect("it answers");
    assert_eq!(status, 200, "{path}: {answer}");
    assert!(answer.to_string().len() <= PAGE_LEN_MAX, "{path}: {} bytes", answer.to_string().len());
    answer
}

/// All pages with so many items, each by another server.
fn pages(farm: &Farm<'_>, path: &str, limit: usize) -> Vec<Vec<Value>> {
    let joint = if path.contains('?') { '&' } else { '?' };
    let (mut found, mut after) = (Vec::new(), String::new());
    for api in farm.api.iter().cycle() {
        let page = get(*api, &format!("{path}{joint}limit={limit}{after}"));
        found.push(page["items"].as_array().expect("a list has items").clone());
        let Some(next) = page["next"].as_str() else { return found };
        assert!(found.len() <= COUNT, "{path} goes on and on");
        after = format!("&after={}", next.replace('/', "%2F"));
    }
    unreachable!("a circle has no end")
}

/// Every item once, in pages that are as long as they should be.
fn in_pages(farm: &Farm<'_>, path: &str, name: &str, count: usize) -> Vec<String> {
    let pages = pages(farm, path, 99);
    let lengths: Vec<usize> = pages.iter().map(Vec::len).collect();
    assert_eq!(lengths, [99, 99, count - 198], "{path}");
    let names: Vec<String> =
        pages.iter().flatten().map(|item| item[name].as_str().expect("it has a name").to_owned()).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), count, "{path}: {names:?}");
    let usual = get(farm.api[0], path);
    assert_eq!((usual["items"].as_array().map(Vec::len), usual["next"].is_string()), (Some(100), true), "{path}");
    names
}

fn items(place: &Place, line: &str) -> Vec<Value> {
    let answer = place.json(line);
    assert_eq!(answer["next"], json!(null), "{line}");
    assert_eq!(answer.as_object().map(serde_json::Map::len), Some(2), "{line}");
    answer["items"].as_array().expect("a list has items").clone()
}

fn bulk(api: SocketAddr, path: &str, lines: &str) {
    let length = lines.len();
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}");
    let request = format!("{head}\r\ncontent-type: application/x-ndjson\r\n\r\n{lines}");
    let answer = exchange(api, request.as_bytes()).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn keys_are_listed_a_page_at_a_time() {
    let place = Place::new();
    let farm = place.up("--workers 0");
    let line = |number: usize| format!("{{\"key\":\"k/{number:03} ü\",\"value\":\"{number}\"}}\n");
    bulk(farm.api[0], "/v1/kv?batch=1000", &(0..COUNT).map(line).collect::<String>());
    bulk(farm.api[0], "/v1/kv", "{\"key\":\"other\",\"value\":\"1\"}\n");
    let encoded =
        |farm: &Farm<'_>, after: &str| get(farm.api[0], &format!("/v1/kv?prefix=k/&after={after}&limit=2"));
    let behind = encoded(&farm, "k/247%20%C3%BC");
    assert_eq!(behind["items"].as_array().map(Vec::len), Some(2));
    assert_eq!((&behind["items"][0]["value"], &behind["next"]), (&json!("248"), &json!(null)), "{behind}");
    let first = get(farm.api[1], "/v1/kv?limit=250");
    assert_eq!((first["items"].as_array().map(Vec::len), &first["next"]), (Some(250), &json!("k/249 ü")));
    let shown = items(&place, "kv list");
    assert_eq!((shown.len(), &shown[COUNT]["key"]), (COUNT + 1, &json!("other")));
    assert_eq!(items(&place, "kv list k/").len(), COUNT);
    assert_eq!(place.primus("kv list k/").stdout.lines().count(), COUNT);
    farm.end();
}

#[test]
fn a_page_of_long_values_ends_early() {
    let place = Place::new();
    let farm = place.up("--servers 1 --workers 0");
    // As JSON each of these characters is six bytes long.
    for (key, value) in [("a", "x".repeat(200_000)), ("b", "\u{1}".repeat(200_000)), ("c", "x".repeat(200_000))] {
        for number in 0..4 {
            let put = ask(farm.api[0], "PUT", &format!("/v1/kv/{key}{number}"), &value).expect("it answers");
            assert_eq!(put.0, 200, "{}", put.1);
        }
    }
    let mut after = String::new();
    let mut counts = Vec::new();
    loop {
        let (status, page) =
            ask(farm.api[0], "GET", &format!("/v1/kv?limit=10000{after}"), "").expect("it answers");
        assert_eq!(status, 200, "{page}");
        counts.push(page["items"].as_array().map_or(0, Vec::len));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(counts, [4, 1, 1, 1, 1, 4]);
    assert_eq!(items(&place, "kv list").len(), 12);
    farm.end();
}

#[test]
fn jobs_and_tasks_are_listed_a_page_at_a_time() {
    let place = Place::new();
    let farm = place.up("--workers 0");
    bulk(farm.api[0], "/v1/jobs", &"{\"kind\":\"noop\"}\n".repeat(COUNT));
    let jobs = in_pages(&farm, "/v1/jobs", "job", COUNT);
    assert_eq!((jobs[0].as_str(), jobs[COUNT - 1].as_str()), ("250", "1"), "the newest first");
    let tasks = in_pages(&farm, "/v1/tasks?state=queued", "task", COUNT);
    assert_eq!((tasks[0].as_str(), tasks[COUNT - 1].as_str()), ("250.1", "1.1"));
    assert_eq!(items(&place, "jobs --all").len(), COUNT);
    assert_eq!(items(&place, "tasks --all --state queued").len(), COUNT);
    assert_eq!(items(&place, "tasks --all --job 7").len(), 1);
    assert_eq!(items(&place, "jobs --limit 20000").len(), COUNT);
    let some = place.json("jobs");
    assert_eq!((some["items"].as_array().map(Vec::len), &some["next"]), (Some(20), &json!("231")));
    // One job has so much to say that a page is full with a few of them.
    let long = json!({ "command": ["echo", "x".repeat(300_000)] }).to_string() + "\n";
    bulk(farm.api[0], "/v1/jobs", &long.repeat(7));
    let lengths: Vec<usize> = pages(&farm, "/v1/jobs", 10_000).iter().map(Vec::len).collect();
    assert_eq!(lengths, [3, 3, COUNT + 1]);
    assert_eq!(items(&place, "jobs --all").len(), COUNT + 7);
    farm.end();
}

#[test]
fn leases_workers_and_farms_are_listed_a_page_at_a_time() {
    let place = Place::new();
    let farm = place.up("--workers 3 --group g1=bully");
    let want = |number: usize| json!({ "group": format!("team/{number:03}"), "rank": "id", "name": "me" });
    let question = json!({ "number": 1, "wants": (0..COUNT).map(want).collect::<Vec<_>>() }).to_string();
    eventually("leases", || {
        ask(farm.api[1], "POST", "/v1/sessions/7", &question).ok().filter(|(code, _)| *code == 200)
    });
    eventually("workers", || (get(farm.api[0], "/v1/workers")["items"].as_array()?.len() == 3).then_some(()));
    let groups = in_pages(&farm, "/v1/groups", "group", COUNT + 1);
    assert_eq!((groups[0].as_str(), groups[1].as_str()), ("g1", "team/000"));
    assert_eq!(items(&place, "groups").len(), COUNT + 1);
    let full = get(farm.api[2], "/v1/groups?limit=1");
    assert_eq!((&full["items"][0]["group"], &full["next"]), (&json!("g1"), &json!("none/g1")));
    let workers: Vec<usize> = pages(&farm, "/v1/workers", 2).iter().map(Vec::len).collect();
    assert_eq!(workers, [2, 1]);
    assert_eq!(pages(&farm, "/v1/farms", 1).len(), 1);
    assert_eq!(items(&place, "farms").len(), 1);
    assert_eq!(items(&place, "loans").len(), 0);
    farm.end();
}

#[test]
fn a_limit_that_cannot_be_is_refused_in_one_sentence() {
    let place = Place::new();
    let farm = place.up("--servers 1 --workers 0");
    for path in ["/v1/kv", "/v1/jobs", "/v1/tasks", "/v1/workers", "/v1/groups", "/v1/farms", "/v1/loans"] {
        for limit in ["0", "10001", "many", "-1", "1.5", "", "99999999999999999999999"] {
            let (status, answer) =
                ask(farm.api[0], "GET", &format!("{path}?limit={limit}"), "").expect("it answers");
            let message = answer["error"]["message"].as_str().expect("it says why");
            let expected = format!("limit is \"{limit}\", not a whole number from 1 to 10000");
            assert_eq!((status, message), (400, expected.as_str()), "{path}");
        }
        for limit in [1, 10_000] {
            get(farm.api[0], &format!("{path}?limit={limit}"));
        }
        let (status, _) = ask(farm.api[0], "GET", &format!("{path}?colour=red"), "").expect("it answers");
        assert_eq!(status, 400, "{path}");
    }
    for path in ["/v1/jobs?after=x", "/v1/tasks?after=x", "/v1/groups?after=x", "/v1/farms?after=nowhere"] {
        let (status, answer) = ask(farm.api[0], "GET", path, "").expect("it answers");
        assert_eq!(status, 400, "{path}: {answer}");
    }
    assert_eq!(place.primus("jobs --limit 0").code, Some(2));
    farm.end();
}
