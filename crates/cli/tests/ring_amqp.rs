//! End to end: rings of real nodes, through a real RabbitMQ and over sockets. Every election is judged, and takes exactly as
//! many messages as the simulator says.

mod common;

use std::fs;

use common::broker::{self, Vhost};
use common::place::Place;
use serde_json::Value;

/// The mandatory cases of the document, section 6, and who must win.
const CASES: [(&[u64], u64); 4] =
    [(&[5, 3, 7], 3), (&[5, 3, 7, 1, 4], 1), (&[5, 4, 3, 2, 1], 1), (&[100, 42, 7, 999, 13], 7)];

/// The worked example of the document, section 5.3, and its validation.
const WORKED_EXAMPLE: &str = include_str!("common/worked_example.txt");

/// A ring's file in a place of its own.
fn ring(place: &Place, ids: &[u64], vhost: Option<&Vhost>) {
    let (port, vhost) = vhost.map_or((1, "/"), |vhost| (vhost.port, vhost.name.as_str()));
    let text = format!(
        "rabbitmq:\n  host: 127.0.0.1\n  port: {port}\n  vhost: {vhost}\n\
         ring:\n  size: {}\n  node_ids: {ids:?}\nelection:\n  initiator_index: 1\n",
        ids.len()
    );
    fs::write(place.dir.join("ring.yaml"), text).expect("a file can be written");
}

fn list(ids: impl IntoIterator<Item = u64>) -> String {
    ids.into_iter().map(|id| id.to_string()).collect::<Vec<_>>().join(",")
}

/// One election of real nodes beside the same one simulated.
fn is_as_simulated(place: &Place, run: &str, simulated: &str, leader: u64) {
    let held = place.json(&format!("ring run --config ring.yaml {run}"));
    let expected = place.json(&format!("simulate ring {simulated}"));
    assert_eq!(held["leader"], leader, "{run}: {held}");
    assert_eq!(held["messages"], expected["messages"], "{run}: {held}");
    let properties = held["properties"].as_object().expect("properties have names");
    assert!(properties.len() == 5 && properties.values().all(|holds| *holds == Value::Bool(true)), "{run}: {held}");
}

/// The mandatory cases, started by each node in turn, by all at once, and with each single node dead.
fn all_cases(transport: &str, vhost: Option<&Vhost>) {
    for (ids, winner) in CASES {
        let place = Place::new();
        ring(&place, ids, vhost);
        let run = |words: String, simulated: String, leader| {
            is_as_simulated(&place, &format!("--transport {transport} {words}"), &simulated, leader);
        };
        let all = list(ids.iter().copied());
        for node in 1..=ids.len() {
            run(format!("--start {node}"), format!("--ids {all} --start {node}"), winner);
        }
        // Where several tokens travel, it matters that none overtakes another, as in queues and sockets.
        run("--start all".to_owned(), format!("--ids {all} --start all --delay 5ms"), winner);
        for dead in 1..=ids.len() {
            let live: Vec<u64> = (1..).zip(ids).filter(|(place, _)| *place != dead).map(|(_, id)| *id).collect();
            let leader = *live.iter().min().expect("somebody lives");
            let starter = if dead == 1 { 2 } else { 1 };
            run(format!("--without {dead} --start {starter}"), format!("--ids {} --start 1", list(live)), leader);
        }
        if vhost.is_some() {
            assert_eq!(place.primus("ring setup --config ring.yaml --delete").code, Some(0));
        }
    }
}

#[test]
fn the_worked_example_is_told_line_by_line_over_sockets() {
    let place = Place::new();
    ring(&place, &[5, 3, 7, 1, 4], None);
    let ran = place.primus("ring run --config ring.yaml --transport tcp");
    assert!(ran.code == Some(0) && ran.stdout.starts_with(WORKED_EXAMPLE), "{ran:?}");
    assert!(ran.stdout.ends_with(" ms over tcp\n"), "{ran:?}");
}

#[test]
#[ignore = "needs RabbitMQ, which ./x test starts"]
fn the_worked_example_is_told_line_by_line_through_a_broker() {
    let vhost = broker::vhost();
    let place = Place::new();
    ring(&place, &[5, 3, 7, 1, 4], Some(&vhost));
    let ran = place.primus("ring run --config ring.yaml");
    assert!(ran.code == Some(0) && ran.stdout.starts_with(WORKED_EXAMPLE), "{ran:?}");
    assert!(ran.stdout.ends_with(" ms over amqp\n"), "{ran:?}");
}

#[test]
fn all_mandatory_cases_over_sockets() {
    all_cases("tcp", None);
}

#[test]
#[ignore = "needs RabbitMQ, which ./x test starts"]
fn all_mandatory_cases_through_a_broker() {
    let vhost = broker::vhost();
    all_cases("amqp", Some(&vhost));
}

#[test]
#[ignore = "needs RabbitMQ, which ./x test starts"]
fn ten_elections_in_a_row_take_as_many_messages_each() {
    let vhost = broker::vhost();
    let place = Place::new();
    for transport in ["tcp", "amqp"] {
        ring(&place, &[5, 3, 7, 1, 4], Some(&vhost));
        let held = place.json(&format!("ring run --config ring.yaml --transport {transport} --elections 10"));
        let items = held["items"].as_array().expect("a list");
        assert_eq!(items.len(), 10);
        for item in items {
            let by_type = &item["messages"]["by_type"];
            assert_eq!(
                (&item["leader"], &by_type["election"], &by_type["elected"]),
                (&1.into(), &8.into(), &5.into())
            );
        }
    }
}

#[test]
#[ignore = "needs RabbitMQ, which ./x test starts"]
fn setting_up_twice_changes_nothing_and_taking_down_is_thorough() {
    let vhost = broker::vhost();
    let place = Place::new();
    ring(&place, &[5, 3, 7], Some(&vhost));
    for _ in 0..2 {
        let ran = place.primus("ring setup --config ring.yaml");
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        assert!(
            ran.stdout.starts_with("the exchange leader.election.ring and the queues node.1 to node.3 are there")
        );
    }
    let foreigner = common::foreign::Foreigner::new(&vhost);
    assert_eq!(foreigner.look(3), (0, 0));
    foreigner.say(3, "ELECTION", 5, 3);
    common::eventually("the message to arrive", || (foreigner.look(3).0 == 1).then_some(()));
    assert_eq!(place.json("ring setup --config ring.yaml --delete")["deleted"], true);
    assert_eq!(place.json("ring setup --config ring.yaml")["ready"], true);
    assert_eq!(foreigner.look(3), (0, 0));
}
