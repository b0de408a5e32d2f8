//! What one server of a farm answers, asked directly.

use std::time::Duration;

use primus_client::http::{Request, escaped};
use serde_json::Value;

/// How long one server may take to answer.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(2);
/// How long somebody waits for an answer that should not come.
const REFUSAL_TIME: Duration = Duration::from_millis(500);

/// Who leads, and since which term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaderTerm {
    /// The server that leads.
    pub leader: u64,
    /// The number of its leadership.
    pub term: u64,
}

/// How long messages take, and how long a leader may be silent, as one server measures it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// How long a leader may be silent.
    pub silence_ms: f64,
    /// The round trip of the slowest link.
    pub round_trip_ms: f64,
    /// The round trip of the fastest link.
    pub(crate) fastest_ms: f64,
}

impl Pace {
    pub(crate) fn of(status: &Value) -> Option<Self> {
        let trips = status["servers"].as_array()?.iter().filter_map(|server| server["round_trip_ms"].as_f64());
        let trips: Vec<f64> = trips.collect();
        let reduced = |of: fn(f64, f64) -> f64| trips.iter().copied().reduce(of);
        let (round_trip_ms, fastest_ms) = (reduced(f64::max)?, reduced(f64::min)?);
        Some(Self { silence_ms: status["silence_ms"].as_f64()?, round_trip_ms, fastest_ms })
    }
}

impl LeaderTerm {
    /// As a server sees it.
    pub fn of(view: &Value) -> Option<Self> {
        Some(Self { leader: view["leader"].as_u64()?, term: view["term"].as_u64()? })
    }
}

/// Whom this server follows.
pub fn believes(api: &str) -> Option<LeaderTerm> {
    LeaderTerm::of(&json(api, "/v1/leader")?)
}

/// The value under a key, as this server answers.
pub fn value(api: &str, key: &str) -> Option<String> {
    json(api, &path(key))?["value"].as_str().map(str::to_string)
}

/// Does this server acknowledge a write, soon?
pub fn accepts(api: &str, key: &str, value: &str) -> bool {
    let path = path(key);
    let request = Request { method: "PUT", path: &path, body: value.as_bytes() };
    request.send(place(api), REFUSAL_TIME).is_ok_and(|answer| answer.status == 200)
}

/// All events that this server remembers.
pub fn history(api: &str) -> Option<Vec<Value>> {
    let response = Request::get("/v1/events?follow=false").send(place(api), ANSWER_TIME).ok()?;
    let lines = response.lines().map_while(Result::ok);
    Some(lines.filter_map(|line| serde_json::from_str(line.strip_prefix("data:")?).ok()).collect())
}

/// When an event was, in milliseconds since 1970.
pub fn time_ms(event: &Value) -> Option<f64> {
    let time: jiff::Timestamp = event["time"].as_str()?.parse().ok()?;
    Some(time.as_millisecond() as f64)
}

pub(crate) fn json(api: &str, path: &str) -> Option<Value> {
    let response = Request::get(path).send(place(api), ANSWER_TIME).ok()?;
    serde_json::from_slice(&response.bytes().ok()?).ok()
}

pub(crate) fn links_up(api: &str) -> Option<usize> {
    Some(metric(api, "primus_links_up")? as usize)
}

/// One of the numbers that this server counts.
pub fn metric(api: &str, name: &str) -> Option<f64> {
    let response = Request::get("/metrics").send(place(api), ANSWER_TIME).ok()?;
    let text = String::from_utf8(response.bytes().ok()?).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// The address of an API, without its scheme.
pub fn place(api: &str) -> &str {
    api.trim_start_matches("http://")
}

pub(crate) fn path(key: &str) -> String {
    format!("/v1/kv/{}", escaped(key))
}
