//! End to end: nodes of a ring over AMQP as processes that are killed and frozen, whose broker goes away, who meet foreign
//! members and garbage. Whatever happens, in the end there is exactly one leader, and all live nodes know it.
//!
//! `PRIMUS_BROKER_KILLS` says how often the broker is killed in the middle of an election.

mod common;

use std::fs::{self, File};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use common::broker::{self, Broker, Vhost, free_ports};
use common::clients::number_from;
use common::eventually;
use common::foreign::{Foreigner, Queue};
use common::place::Place;
use common::send;
use rustix::process::Signal;
use serde_json::Value;

const IDS: [u64; 5] = [5, 3, 7, 1, 4];
const PATIENCE: Duration = Duration::from_secs(30);

/// A ring of processes, killed when the test ends, however it ends.
struct Nodes<'a> {
    place: &'a Place,
    running: Vec<Option<Child>>,
}

fn write_ring(place: &Place, ids: &[u64], vhost: &Vhost, more: &str) {
    let Vhost { port, name } = vhost;
    let text = format!(
        "rabbitmq: {{host: 127.0.0.1, port: {port}, vhost: {name}{more}}}\nring: {{node_ids: {ids:?}}}\n\
         election: {{initiator_index: 1}}\n"
    );
    fs::write(place.dir.join("ring.yaml"), text).expect("a file can be written");
}

/// A ring's file, and fresh queues.
fn prepare(place: &Place, ids: &[u64], vhost: &Vhost) {
    write_ring(place, ids, vhost, "");
    for line in ["ring setup --config ring.yaml --delete", "ring setup --config ring.yaml"] {
        assert_eq!(place.primus(line).code, Some(0));
    }
}

impl<'a> Nodes<'a> {
    fn start(place: &'a Place, count: usize) -> Self {
        let mut nodes = Self { place, running: (0..count).map(|_| None).collect() };
        (1..=count).for_each(|node| nodes.start_one(node));
        nodes
    }

    fn start_one(&mut self, node: usize) {
        let log = File::options().create(true).append(true).open(self.log(node)).expect("a file can be made");
        let line = format!("ring node --config ring.yaml --index {node} -o json");
        let mut command = self.place.command(&line.split(' ').collect::<Vec<_>>());
        let complaints = log.try_clone().expect("a file has two handles");
        let child = command.stdout(log).stderr(complaints).stdin(Stdio::null()).spawn();
        self.running[node - 1] = Some(child.expect("primus starts"));
    }

    fn log(&self, node: usize) -> std::path::PathBuf {
        self.place.dir.join(format!("node-{node}.log"))
    }

    /// What this node has told so far.
    fn told(&self, node: usize) -> Vec<Value> {
        let text = fs::read_to_string(self.log(node)).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    fn pid(&self, node: usize) -> u64 {
        self.running[node - 1].as_ref().map(|child| u64::from(child.id())).expect("it runs")
    }

    fn kill(&mut self, node: usize) {
        if let Some(mut child) = self.running[node - 1].take() {
            child.kill().expect("it can be killed");
            child.wait().expect("it ends");
        }
    }

    /// Waits until all nodes that run, and nobody else, are there and take this one for the leader. In which round?
    fn agree_on(&self, leader: u64) -> u64 {
        let live: Vec<bool> = self.running.iter().map(Option::is_some).collect();
        self.those_agree_on(&live, leader)
    }

    fn those_agree_on(&self, live: &[bool], leader: u64) -> u64 {
        eventually(&format!("all to agree on {leader}"), || {
            let status = status(self.place)?;
            let nodes = status["nodes"].as_array()?;
            let is_good = |(node, is_live): (&Value, &bool)| {
                node["there"] == *is_live && (!is_live || node["leader"] == leader)
            };
            let leads = nodes.iter().filter(|node| node["state"] == "LEADER").count();
            let all_agree = nodes.iter().zip(live).all(is_good) && leads == 1 && status["leader"] == leader;
            let rounds = nodes.iter().filter_map(|node| node["round"].as_u64());
            all_agree.then(|| rounds.max())?
        })
    }
}

impl Drop for Nodes<'_> {
    fn drop(&mut self) {
        for child in self.running.iter_mut().flatten() {
            _ = child.kill();
            _ = child.wait();
        }
        if thread::panicking() {
            for node in 1..=self.running.len() {
                println!("node {node}: {}", fs::read_to_string(self.log(node)).unwrap_or_default());
            }
        }
    }
}

fn status(place: &Place) -> Option<Value> {
    serde_json::from_str(&place.primus("ring status --config ring.yaml -o json").stdout).ok()
}

#[test]
#[ignore = "needs RabbitMQ, which ./x test starts"]
fn a_killed_leader_is_replaced_and_leads_again_when_it_returns() {
    let vhost = broker::vhost();
    let place = Place::new();
    prepare(&place, &IDS, &vhost);
    assert_eq!(place.primus("ring status --config ring.yaml -o json").code, Some(4), "nobody leads");
    let mut nodes = Nodes::start(&place, 5);
    let first = nodes.agree_on(1);
    let started = place.json("ring start --config ring.yaml --index 5");
    assert_eq!((&started["position"], &started["before"]), (&5.into(), &"FOLLOWER".into()), "{started}");
    eventually("the next round", || (nodes.agree_on(1) > first).then_some(()));
    nodes.kill(4);
    nodes.agree_on(3);
    assert_eq!(status(&place).expect("a status")["missing"], serde_json::json!([4]));
    nodes.kill(2);
    nodes.agree_on(4);
    nodes.start_one(2);
    nodes.agree_on(3);
    nodes.start_one(4);
    nodes.agree_on(1);
}

#[test]
#[ignore = "needs RabbitMQ, which ./x test starts"]
fn stale_messages_in_the_queue_of_a_dead_node_do_no_harm() {
    let vhost = broker::vhost();
    let place = Place::new();
    prepare(&place, &IDS, &vhost);
    let mut nodes = Nodes::start(&place, 5);
    nodes.agree_on(1);
    nodes.kill(3);
    nodes.kill(4);
    let before = nodes.agree_on(3);
    place.json("ring start --config ring.yaml --index 2");
    eventually("the next round", || (nodes.agree_on(3) > before).then_some(()));
    let foreigner = Foreigner::new(&vhost);
    for node in [3, 4] {
        for (kind, candidate) in [("ELECTION", 1), ("ELECTED", 7), ("ELECTION", 7), ("ELECTED", 1)] {
            let text = format!(r#"{{"type":"{kind}","candidate_id":{candidate},"sender_id":3,"round":1}}"#);
            foreigner.publish(node, text.as_bytes());
        }
        foreigner.say(node, "ELECTION", 5, 5);
        foreigner.say(node, "ELECTED", 4, 4);
    }
    nodes.start_one(3);
    nodes.agree_on(3);
    nodes.start_one(4);
    nodes.agree_on(1);
}

#[test]
#[ignore = "needs RabbitMQ, which ./x test starts"]
fn a_node_killed_while_it_holds_the_token_stops_nothing() {
    let vhost = broker::vhost();
    let place = Place::new();
    prepare(&place, &IDS, &vhost);
    let mut nodes = Nodes::start(&place, 5);
    let before = nodes.agree_on(1);
    hold_the_token(&nodes, 3);
    nodes.kill(3);
    eventually("the next round", || (nodes.agree_on(1) > before).then_some(()));
    nodes.start_one(3);
    nodes.agree_on(1);
}

#[test]
#[ignore = "needs RabbitMQ, which ./x test starts"]
fn a_frozen_leader_is_replaced_when_the_broker_misses_it_and_leads_again_when_it_thaws() {
    let vhost = broker::vhost();
    let place = Place::new();
    prepare(&place, &IDS, &vhost);
    let nodes = Nodes::start(&place, 5);
    nodes.agree_on(1);
    send(Signal::STOP, &[nodes.pid(4)]);
    nodes.those_agree_on(&[true, true, true, false, true], 3);
    send(Signal::CONT, &[nodes.pid(4)]);
    nodes.agree_on(1);
}

/// Freezes this node and lets its predecessor start: now it has the token.
fn hold_the_token(nodes: &Nodes<'_>, node: usize) {
    let predecessor = node - 1;
    let sent = || nodes.told(predecessor).iter().filter(|event| event["kind"] == "sent").count();
    let before = sent();
    send(Signal::STOP, &[nodes.pid(node)]);
    nodes.place.json(&format!("ring start --config ring.yaml --index {predecessor}"));
    eventually("the token to be sent", || (sent() > before).then_some(()));
}

#[test]
#[ignore = "needs RabbitMQ, which ./x test starts"]
fn a_broker_that_is_killed_in_the_middle_of_elections_stops_nothing() {
    let mut broker = Broker::start();
    let vhost = Vhost { port: broker.port, name: "t0".to_owned() };
    let place = Place::new();
    prepare(&place, &IDS, &vhost);
    let nodes = Nodes::start(&place, 5);
    for kill in 0..number_from("PRIMUS_BROKER_KILLS").unwrap_or(1) {
        let before = nodes.agree_on(1);
        let holder = 2 + usize::try_from(kill % 4).expect("a small number");
        hold_the_token(&nodes, holder);
        broker.kill();
        send(Signal::CONT, &[nodes.pid(holder)]);
        broker.go_on();
        let after = nodes.agree_on(1);
        assert!(after > before, "round {after} after {before}");
    }
}

/// What a member of the document does, rule by rule. Returns what it takes for the leader once it has passed that on, and the
/// queue, so that it is still there.
fn plays(foreigner: &Foreigner, node: usize, id: u64, successor: usize) -> (u64, Queue) {
    let mut queue = foreigner.consume(node);
    loop {
        let message = foreigner.next(&mut queue, PATIENCE).expect("somebody says something");
        let candidate = message["candidate_id"].as_u64().expect("a number");
        match message["type"].as_str().expect("a text") {
            "ELECTION" if candidate < id => foreigner.say(successor, "ELECTION", candidate, id),
            "ELECTION" if candidate > id => foreigner.say(successor, "ELECTION", id, id),
            "ELECTION" => foreigner.say(successor, "ELECTED", id, id),
            "ELECTED" if candidate == id => return (id, queue),
            "ELECTED" => {
                foreigner.say(successor, "ELECTED", candidate, id);
                return (candidate, queue);
            }
            other => panic!("{other}"),
        }
    }
}

/// Somebody must consume before the run looks who is there.
fn wait_for_consumer(foreigner: &Foreigner, node: usize) {
    eventually("a consumer", || (foreigner.look(node).1 == 1).then_some(()));
}

#[test]
#[ignore = "needs RabbitMQ, which ./x test starts"]
fn a_foreign_member_wins_and_loses_as_it_should() {
    let vhost = broker::vhost();
    for (node, starter) in [(4, 1), (1, 2), (3, 4), (5, 4)] {
        let place = Place::new();
        prepare(&place, &IDS, &vhost);
        let (foreigner, looker) = (Foreigner::new(&vhost), Foreigner::new(&vhost));
        let id = IDS[node - 1];
        thread::scope(|scope| {
            let playing = scope.spawn(|| plays(&foreigner, node, id, node % 5 + 1));
            wait_for_consumer(&looker, node);
            let line = format!("ring run --config ring.yaml --without {node} --start {starter} -o json");
            let ran = place.primus(&line);
            let (leader, _queue) = playing.join().expect("the foreign member is well");
            assert_eq!((ran.code, leader), (Some(0), 1), "{ran:?}");
            let held: Value = serde_json::from_str(&ran.stdout).expect("stdout is JSON");
            assert_eq!(held["leader"], 1, "{held}");
        });
    }
}

#[test]
#[ignore = "needs RabbitMQ, which ./x test starts"]
fn a_foreign_member_can_start_an_election_among_ours() {
    let vhost = broker::vhost();
    let place = Place::new();
    prepare(&place, &IDS, &vhost);
    let mut nodes = Nodes::start(&place, 5);
    let before = nodes.agree_on(1);
    nodes.kill(2);
    let foreigner = Foreigner::new(&vhost);
    foreigner.say(3, "ELECTION", 3, 3);
    assert_eq!(plays(&foreigner, 2, 3, 3).0, 1);
    eventually("the next round", || (nodes.agree_on(1) > before).then_some(()));
}

/// A member that breaks the ring on purpose, and stays until the end; and what is then no longer true.
fn breaks(ids: &[u64], node: usize, stranger: impl FnOnce(&Foreigner) -> Queue + Send, broken: &[&str]) {
    let vhost = broker::vhost();
    let place = Place::new();
    prepare(&place, ids, &vhost);
    let (foreigner, looker) = (Foreigner::new(&vhost), Foreigner::new(&vhost));
    let (ran, _queue) = thread::scope(|scope| {
        let playing = scope.spawn(|| stranger(&foreigner));
        wait_for_consumer(&looker, node);
        let line = format!("--without {node} --start 1 --timeout 4s");
        let ran = place.primus(&format!("ring run --config ring.yaml {line} -o json"));
        (ran, playing.join().expect("the stranger is well"))
    });
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let held: Value = serde_json::from_str(&ran.stdout).expect("stdout is JSON");
    for property in broken {
        assert_eq!(held["properties"][property], false, "{held}");
    }
}

#[test]
#[ignore = "needs RabbitMQ, which ./x test starts"]
fn a_swallowed_token_violates_termination() {
    let swallow = |foreigner: &Foreigner| {
        let mut queue = foreigner.consume(4);
        while foreigner.next(&mut queue, Duration::from_secs(5)).is_some() {}
        queue
    };
    breaks(&IDS, 4, swallow, &["termination"]);
}

#[test]
#[ignore = "needs RabbitMQ, which ./x test starts"]
fn a_lowest_id_that_does_not_stand_violates_correctness() {
    let pass_on = |foreigner: &Foreigner| {
        let mut queue = foreigner.consume(4);
        loop {
            let message = foreigner.next(&mut queue, PATIENCE).expect("somebody says something");
            foreigner.publish(5, message.to_string().as_bytes());
            if message["type"] == "ELECTED" {
                return queue;
            }
        }
    };
    breaks(&IDS, 4, pass_on, &["correctness"]);
}

#[test]
#[ignore = "needs RabbitMQ, which ./x test starts"]
fn two_tokens_that_come_home_violate_uniqueness() {
    let double = |foreigner: &Foreigner| {
        let mut queue = foreigner.consume(4);
        let mut next = || foreigner.next(&mut queue, PATIENCE).expect("somebody says something");
        assert_eq!(next()["candidate_id"], 3);
        foreigner.say(2, "ELECTION", 3, 1);
        assert_eq!(next()["type"], "ELECTED");
        foreigner.say(1, "ELECTION", 5, 1);
        queue
    };
    breaks(&[5, 3, 7, 1], 4, double, &["uniqueness", "agreement"]);
}

#[test]
#[ignore = "needs RabbitMQ, which ./x test starts"]
fn garbage_is_dropped_with_a_reason_and_the_ring_goes_on() {
    let vhost = broker::vhost();
    let place = Place::new();
    prepare(&place, &IDS, &vhost);
    let nodes = Nodes::start(&place, 5);
    let before = nodes.agree_on(1);
    let foreigner = Foreigner::new(&vhost);
    let long = vec![b'x'; 1 << 20];
    let garbage: [(&[u8], &str); 7] = [
        (b"", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[]", "no JSON object"),
        (br#"{"type":"HELLO"}"#, "type 'HELLO', neither ELECTION nor ELECTED"),
        (
            br#"{"type":"ELECTION","candidate_id":"five","sender_id":3}"#,
            "'candidate_id' is not a whole number from 0",
        ),
        (br#"{"type":"ELECTED","candidate_id":0,"sender_id":3}"#, "candidate_id 0 is not the id of a member"),
        (&long, "1048576 bytes, more than 65536"),
    ];
    for node in 1..=5 {
        garbage.iter().for_each(|(body, _)| foreigner.publish(node, body));
    }
    for node in 1..=5 {
        eventually("all garbage to be dropped", || {
            let told = nodes.told(node);
            let has =
                |reason: &str| told.iter().any(|event| event["kind"] == "dropped" && event["reason"] == reason);
            garbage.iter().all(|(_, reason)| has(reason)).then_some(())
        });
        assert_eq!(foreigner.look(node).0, 0, "nothing waits");
    }
    place.json("ring start --config ring.yaml --index 3");
    eventually("the next round", || (nodes.agree_on(1) > before).then_some(()));
}

#[test]
#[ignore = "needs RabbitMQ, which ./x test starts"]
fn a_ring_of_a_hundred_takes_as_many_messages_as_the_simulator_says() {
    let vhost = broker::vhost();
    let place = Place::new();
    write_ring(&place, &IDS, &vhost, "");
    for transport in ["tcp", "amqp"] {
        let line = format!("bench ring --nodes 100 --transport {transport} --config ring.yaml --runs 2");
        let figures = place.json(&line);
        assert_eq!((&figures["nodes"], &figures["elected"]), (&100.into(), &100.into()), "{figures}");
        assert_eq!(figures["messages"], figures["simulated_messages"], "{figures}");
        assert!(figures["messages_per_s"].as_f64().expect("a number") > 0.0, "{figures}");
    }
}

/// One clear sentence, and the exit code of the contract.
fn fails(place: &Place, line: &str, code: i32, words: &str) {
    let ran = place.primus(&format!("ring {line}"));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{line}: {ran:?}");
    assert!(ran.stderr.contains(words) && ran.stderr.matches('\n').count() == 1, "{line}: {ran:?}");
    assert!(!ran.stderr.contains("xyzzy"), "{line} tells the password: {ran:?}");
}

#[test]
#[ignore = "needs RabbitMQ, which ./x test starts"]
fn what_the_broker_refuses_is_one_clear_sentence() {
    let place = Place::new();
    let nowhere = Vhost { port: free_ports(), name: "/".to_owned() };
    write_ring(&place, &IDS, &nowhere, ", password: xyzzy");
    for command in ["setup", "node --index 1", "run", "status", "start --index 1"] {
        let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
        let line = format!("{name} --config ring.yaml {rest}");
        fails(&place, line.trim_end(), 3, &format!("no broker answers at 127.0.0.1:{}", nowhere.port));
    }
    let vhost = broker::vhost();
    write_ring(&place, &IDS, &vhost, ", password: xyzzy");
    fails(&place, "setup --config ring.yaml", 5, "refuses user 'guest'");
    write_ring(&place, &IDS, &vhost, ", user: nobody");
    fails(&place, "setup --config ring.yaml", 5, "refuses user 'nobody'");
    let strange = Vhost { port: vhost.port, name: "none".to_owned() };
    write_ring(&place, &IDS, &strange, "");
    fails(&place, "status --config ring.yaml", 5, "vhost 'none'");
    prepare(&place, &IDS, &vhost);
    let foreigner = Foreigner::new(&vhost);
    let _queue = foreigner.consume(2);
    fails(&place, "node --config ring.yaml --index 2", 4, "somebody else consumes the queue node.2");
    fails(&place, "run --config ring.yaml", 4, "somebody else consumes the queue node.2");
    fails(&place, "start --config ring.yaml --index 1", 4, "node 1 does not answer");
}

#[test]
#[ignore = "needs RabbitMQ, which ./x test starts"]
fn a_broker_is_spoken_to_in_secret_if_it_can_be_trusted() {
    let vhost = broker::vhost();
    let (port, authority) = broker::common().tls();
    let place = Place::new();
    let secret = Vhost { port, name: vhost.name.clone() };
    write_ring(&place, &IDS, &secret, &format!(", tls: true, ca_file: {}", authority.display()));
    assert_eq!(place.json("ring run --config ring.yaml")["leader"], 1);
    write_ring(&place, &IDS, &secret, ", tls: true");
    fails(&place, "run --config ring.yaml", 3, "invalid peer certificate");
    write_ring(&place, &IDS, &vhost, ", tls: true");
    fails(&place, "run --config ring.yaml", 3, "no broker answers");
}

#[test]
fn mistakes_in_a_rings_file_are_one_clear_sentence() {
    let place = Place::new();
    let good = "ring:\n  size: 3\n  node_ids: [5, 3, 7]\nelection:\n  initiator_index: 1\n";
    for (text, words) in [
        (good.replace("7]", "5]"), "ring.node_ids lists 5 more than once"),
        (good.replace("size: 3", "size: 4"), "ring.size is 4, but ring.node_ids lists 3"),
        (good.replace("index: 1", "index: 4"), "election.initiator_index is '4'"),
        (good.replace("size", "seize"), "key 'ring.seize' does not exist; did you mean ring.size?"),
        ("a: [".to_owned(), "this is not YAML"),
    ] {
        fs::write(place.dir.join("ring.yaml"), text).expect("a file can be written");
        fails(&place, "run --config ring.yaml --transport tcp", 2, words);
    }
    fs::write(place.dir.join("ring.yaml"), good).expect("a file can be written");
    fails(&place, "node --config ring.yaml --index 4", 2, "--index is '4'; give a whole number from 1 to 3");
    fails(&place, "run --config none.yaml", 2, "none.yaml cannot be read");
    fails(&place, "run --config ring.yaml --without 1,2,3", 2, "--without leaves no position");
    let ran = place.primus("ring run --config none.yaml -o json");
    let error: Value = serde_json::from_str(&ran.stderr).expect("one line of JSON");
    assert_eq!(error["error"]["code"], "usage");
}
