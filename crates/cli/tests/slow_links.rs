//! End to end: links that are slow on purpose. Servers measure them, wait accordingly, and need few terms for a failover.

mod common;

use std::net::SocketAddr;

use common::eventually;
use common::http::{ask, exchange};
use common::place::{Farm, Place};
use serde_json::{Value, json};

const DELAY_MS: f64 = 75.0;

/// What a server measures of this peer, in milliseconds.
fn round_trip(api: SocketAddr, peer: u64) -> Option<f64> {
    let text = exchange(api, b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let name = format!("primus_round_trip_seconds{{peer=\"{peer}\"}} ");
    let seconds: f64 = text.lines().find_map(|line| line.strip_prefix(&name))?.parse().ok()?;
    Some(seconds * 1000.0)
}

/// What each server measures of each other one.
fn round_trips(farm: &Farm<'_>) -> Vec<f64> {
    let peers = |api: &SocketAddr| (1..=3).filter_map(|peer| round_trip(*api, peer)).collect::<Vec<f64>>();
    farm.api.iter().flat_map(peers).collect()
}

fn await_round_trips(farm: &Farm<'_>, what: &str, count: usize, is_right: impl Fn(f64) -> bool) {
    eventually(what, || {
        let trips = round_trips(farm);
        (trips.len() == count && trips.iter().all(|trip| is_right(*trip))).then_some(())
    });
}

/// By id a server that was late takes over when it is there.
fn await_leader(farm: &Farm<'_>, id: u64) {
    eventually(&format!("server {id} to lead"), || leader(farm).filter(|leader| leader["leader"] == id));
}

/// Who leads, as the first server sees it.
fn leader(farm: &Farm<'_>) -> Option<Value> {
    let (_, leader) = ask(farm.api[0], "GET", "/v1/leader", "").ok()?;
    leader["leader"].is_u64().then_some(leader)
}

#[test]
fn delayed_links_are_measured_shown_and_waited_for() {
    let place = Place::new();
    let farm = place.up("--rank id --workers 0");
    await_leader(&farm, 3);
    await_round_trips(&farm, "all links to be measured", 6, |trip| trip < DELAY_MS);
    let done = place.json("chaos delay all 75ms");
    assert_eq!((&done["chaos"], &done["delay_ms"]), (&json!("delay"), &json!(75)));
    assert_eq!(done["servers"], json!([1, 2, 3]));
    // There and back takes twice the delay; how much longer depends on how busy the host is.
    await_round_trips(&farm, "all links to be slow", 6, |trip| (2.0 * DELAY_MS..1000.0).contains(&trip));
    let status = place.primus("status");
    assert!(status.stdout.contains("is delayed by 75 ms each way"), "{status:?}");
    let before = eventually("a leader that is known", || leader(&farm));
    place.json("chaos kill 3");
    let after = eventually("another leader", || leader(&farm).filter(|leader| leader["leader"] != 3));
    let terms = after["term"].as_u64().zip(before["term"].as_u64()).map(|(after, before)| after - before);
    assert!(terms.is_some_and(|terms| terms <= 2), "{before} {after}");
    await_leader(&farm, 2);
    place.json("chaos restart 3");
    place.json("chaos delay 1,2 0ms");
    eventually("the link between 1 and 2 to be fast", || {
        round_trip(farm.api[0], 2).filter(|trip| *trip < DELAY_MS)
    });
    place.json("chaos heal");
    await_round_trips(&farm, "all links to be fast again", 6, |trip| trip < DELAY_MS);
    farm.end();
}

#[test]
fn a_delay_that_makes_no_sense_is_refused() {
    let place = Place::new();
    let farm = place.up("--servers 2 --workers 0");
    for line in ["1 75ms", "1,4 75ms", "1,2 6s", "1,2 75", "1,2 -1ms", "1,2 1.5us", "boss,1 5ms"] {
        let ran = place.primus(&format!("chaos delay {line}"));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{line}: {ran:?}");
    }
    farm.end();
}
