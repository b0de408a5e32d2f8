//! End to end: an election can be followed step by step, in the log of each server and on demand, in the words of stories.

mod common;

use std::fs;

use common::place::{Farm, Place};
use common::{eventually, eventually_or};
use serde_json::Value;

/// By id, so that 3 leads and 2 comes next.
const FARM: &str = "--workers 0 --dir farm --rank id";

/// The lines of this level in the log of a server, from the name of the server on: `2: gone 3 -> …`.
fn lines(place: &Place, server: u64, level: &str) -> Vec<String> {
    let log = fs::read_to_string(place.dir.join(format!("farm/server-{server}.log"))).unwrap_or_default();
    let level = format!(" {level} ");
    log.lines().filter_map(|line| line.split_once(&level)).map(|(_, line)| line.to_owned()).collect()
}

/// Finds the steps one after the other; one line may tell several.
fn in_order(lines: &[String], steps: &[&[&str]]) -> Result<(), String> {
    let mut rest = lines;
    for step in steps {
        let is_told = |line: &String| step.iter().all(|words| line.contains(words));
        let place = rest.iter().position(is_told).ok_or_else(|| format!("no {step:?} in\n{}", rest.join("\n")))?;
        rest = &rest[place..];
    }
    Ok(())
}

fn kill_leader(place: &Place, farm: &Farm<'_>) {
    eventually("the highest id to lead", || (farm.leader_other_than(0) == 3).then_some(()));
    farm.wait_until_alive(3);
    assert_eq!(place.primus("chaos kill leader").code, Some(0));
    // On a slow disk the other one may lead for a moment.
    eventually("server 2 to lead", || (farm.leader_other_than(3) == 2).then_some(()));
}

/// What server 2 does to lead, and server 1 to follow it. Who notices first is left to chance.
fn failover(server: u64) -> Vec<&'static [&'static str]> {
    match server {
        2 => vec![
            &["2: ", " -> suspect 3 ", ", no leader term "],
            &["2: ", "become leader, ", "send 1 coordinator r"],
            &["2: from 1 RequestPreVoteResponse t", "send 1 RequestVote t"],
            &["2: ", "leader 2 term "],
        ],
        _ => vec![
            &["1: ", " -> suspect 3 ", ", no leader term "],
            &["1: from 2 RequestVote t", " -> once durable send 2 RequestVoteResponse t"],
            &["1: ", "leader 2 term "],
        ],
    }
}

#[test]
fn an_election_can_be_followed_in_the_log() {
    let place = Place::new();
    let farm = place.up_with(FARM, &[("PRIMUS_LOG", "debug")]);
    kill_leader(&place, &farm);
    for server in [1, 2] {
        eventually_or("the steps in the log", || in_order(&lines(&place, server, "debug"), &failover(server)));
        // The start is there, too: server 1 asked those that rank better, or heard from one that leads already.
        in_order(&lines(&place, server, "debug"), &[&["boot -> set startup"], &["coordinator r"]]).unwrap();
        assert_eq!(lines(&place, server, "trace"), Vec::<String>::new(), "heartbeats are left out");
    }
    let told = place.primus("events --steps").stdout;
    let told: Vec<&str> = told.lines().filter_map(|line| line.splitn(3, "  ").last()).collect();
    for server in [1, 2] {
        for line in lines(&place, server, "debug") {
            assert!(told.iter().any(|step| step.trim().ends_with(&line)), "{line} is missing in {told:#?}");
        }
    }
}

#[test]
fn steps_are_told_on_demand_though_nothing_of_them_is_in_the_log() {
    let place = Place::new();
    let farm = place.up_with(FARM, &[("PRIMUS_LOG", "")]);
    kill_leader(&place, &farm);
    let steps = eventually("the steps", || {
        let ran = place.primus("events --steps -o json");
        let steps: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |server: u64| {
            let own = steps.iter().filter(|step| step["server"] == server);
            own.map(|step| step["step"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        let is_told = |server| in_order(&of(server), &failover(server)).is_ok();
        (is_told(1) && is_told(2)).then_some(steps)
    });
    assert!(steps.iter().all(|step| step["kind"] == "election_step" && step["index"].is_u64()), "{steps:?}");
    assert!(steps.is_sorted_by_key(|step| step["time"].as_str().unwrap_or_default().to_owned()), "{steps:?}");
    for server in [1, 2, 3] {
        let log = fs::read_to_string(place.dir.join(format!("farm/server-{server}.log"))).unwrap();
        assert!(!log.contains(" -> "), "{log}");
    }
}

#[test]
fn heartbeats_are_written_at_trace_only() {
    let place = Place::new();
    let _farm = place.up_with(FARM, &[("PRIMUS_LOG", "trace")]);
    let is_beat =
        |line: &String| line.contains("from 3 Heartbeat t") && line.contains("send 3 HeartbeatResponse t");
    eventually("heartbeats", || lines(&place, 1, "trace").iter().any(is_beat).then_some(()));
    assert!(!lines(&place, 1, "debug").iter().any(is_beat), "a heartbeat is not a step of an election");
    let told = place.primus("events --steps").stdout;
    // A heartbeat may be how a server learns who leads; that is a step, but its answer is none.
    assert!(told.contains("boot -> ") && !told.contains("send 3 HeartbeatResponse"), "{told}");
}

#[test]
fn the_elections_of_groups_are_told_and_what_they_repeat_is_not() {
    let place = Place::new();
    let words = format!("{FARM} --group router=bully:id --group scrapper=ring");
    let _farm = place.up_with(&words, &[("PRIMUS_LOG", "trace")]);
    let has = |level: &str, words: &str| lines(&place, 1, level).iter().filter(|line| line.contains(words)).count();
    for leads in ["router leader 3 r", "scrapper leader 3 r"] {
        eventually("the group's leader", || (has("debug", leads) > 0).then_some(()));
    }
    // Nothing happens any more, but leaders go on to announce themselves.
    eventually("quiet", || {
        let (told, repeated) = (has("debug", ""), has("trace", "from 3 router coordinator r"));
        eventually("repetitions", || (has("trace", "from 3 router coordinator r") > repeated + 3).then_some(()));
        (has("debug", "") == told).then_some(())
    });
}
