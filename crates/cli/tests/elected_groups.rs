//! End to end: groups that elect a leader each, without a quorum, on real servers that are killed, frozen and cut off.

mod common;

use std::fs;

use common::eventually;
use common::http::{ask, events};
use common::place::{Farm, Place, Ran};
use serde_json::{Value, json};

/// Two groups: one of all servers, one of two of them.
const GROUPS: &str = "--workers 0 --group router=bully:address --group scrapper=ring@1+3";

/// What one server says of all groups.
fn groups(farm: &Farm<'_>, server: u64) -> Option<Vec<Value>> {
    let (status, answer) = ask(farm.api_of(server), "GET", "/v1/groups", "").ok()?;
    assert_eq!((status, &answer["next"]), (200, &Value::Null), "{answer}");
    answer["items"].as_array().cloned()
}

/// Waits until these servers see these leaders of router and scrapper.
fn await_leaders(farm: &Farm<'_>, servers: &[u64], router: u64, scrapper: u64) {
    let expected =
        [("router", router), ("scrapper", scrapper)].map(|(group, leader)| (json!(group), json!(leader)));
    for server in servers {
        eventually(&format!("server {server} to see {router} and {scrapper} lead"), || {
            let seen = groups(farm, *server)?;
            let seen: Vec<_> = seen.iter().map(|group| (group["group"].clone(), group["leader"].clone())).collect();
            (seen == expected).then_some(())
        });
    }
}

/// The last change of this group's leader, as this server tells it.
fn last_change(farm: &Farm<'_>, server: u64, group: &str) -> Value {
    let events = events(farm.api_of(server)).expect("it answers");
    let is_one = |event: &&Value| event["kind"] == "group_leader_changed" && event["group"] == group;
    let mut last = events.iter().rfind(is_one).cloned().expect("somebody leads");
    let fields = last.as_object_mut().expect("an event is an object");
    ["index", "time", "kind", "group"].iter().for_each(|field| _ = fields.remove(*field));
    last
}

#[test]
fn groups_are_shown_to_people_and_scripts_whether_a_server_is_a_member_or_not() {
    let place = Place::new();
    let farm = place.up(GROUPS);
    await_leaders(&farm, &[1, 2, 3], 3, 3);
    let shown = place.json("groups");
    let facts = |group: &Value| {
        let is_known =
            group["round"].as_u64() > Some(0) && group["since"].is_string() && group["reason"].is_string();
        assert!(is_known, "{group}");
        ["group", "authority", "leader", "term", "candidates"].map(|key| group[key].clone())
    };
    let shown: Vec<_> = shown["items"].as_array().expect("a list").iter().map(facts).collect();
    let router = [json!("router"), json!("none"), json!(3), Value::Null, json!([1, 2, 3])];
    let scrapper = [json!("scrapper"), json!("none"), json!(3), Value::Null, json!([1, 3])];
    assert_eq!(shown, [router, scrapper]);
    let table = "\
GROUP     AUTHORITY  LEADER  TERM  CANDIDATES
router    none       3       -     1, 2, 3
scrapper  none       3       -     1, 3
";
    assert_eq!(place.primus("groups").stdout, table);
    let told = place.primus("events").stdout;
    assert!(told.contains("server 3 leads group router ("), "{told}");
    assert_eq!(place.primus("groups -o mermaid").code, Some(2));
}

#[test]
fn a_farm_without_groups_says_so() {
    let place = Place::new();
    let _farm = place.up("--workers 0 --servers 1");
    assert_eq!(place.json("groups"), json!({"items": [], "next": null}));
    assert!(place.primus("groups").stdout.starts_with("no groups yet; "));
}

#[test]
fn a_killed_leader_is_followed_by_the_next_and_leads_again_when_it_is_back() {
    let place = Place::new();
    let farm = place.up(GROUPS);
    await_leaders(&farm, &[1, 2, 3], 3, 3);
    place.json("chaos kill 3");
    await_leaders(&farm, &[1, 2], 2, 1);
    for (server, group, leader) in [(1, "router", 2), (2, "router", 2), (1, "scrapper", 1)] {
        let change = json!({"leader": leader, "previous": 3, "reason": "link_lost"});
        assert_eq!(last_change(&farm, server, group), change, "server {server} of {group}");
    }
    place.json("chaos restart 3");
    await_leaders(&farm, &[1, 2, 3], 3, 3);
    for (server, group, previous) in [(1, "router", 2), (2, "router", 2), (1, "scrapper", 1)] {
        let change = json!({"leader": 3, "previous": previous, "reason": "rank"});
        assert_eq!(last_change(&farm, server, group), change, "server {server} of {group}");
    }
}

#[test]
fn a_frozen_leader_is_followed_by_the_next_and_leads_again_when_it_is_thawed() {
    let place = Place::new();
    let farm = place.up(GROUPS);
    await_leaders(&farm, &[1, 2, 3], 3, 3);
    place.json("chaos freeze 3");
    await_leaders(&farm, &[1, 2], 2, 1);
    assert_eq!(last_change(&farm, 1, "router"), json!({"leader": 2, "previous": 3, "reason": "silence"}));
    assert_eq!(last_change(&farm, 1, "scrapper"), json!({"leader": 1, "previous": 3, "reason": "silence"}));
    place.json("chaos thaw 3");
    await_leaders(&farm, &[1, 2, 3], 3, 3);
    assert_eq!(last_change(&farm, 2, "router"), json!({"leader": 3, "previous": 2, "reason": "rank"}));
}

#[test]
fn two_sides_of_a_partition_have_a_leader_each_and_one_when_it_heals() {
    let place = Place::new();
    let farm = place.up(GROUPS);
    await_leaders(&farm, &[1, 2, 3], 3, 3);
    place.json("chaos partition '1,2|3'");
    await_leaders(&farm, &[1, 2], 2, 1);
    await_leaders(&farm, &[3], 3, 3);
    let api = &farm.ready["api"][2].as_str().expect("it has an API");
    assert_eq!(place.json(&format!("groups --api {api}"))["items"][0]["leader"], 3, "as it sees things itself");
    place.json("chaos heal");
    await_leaders(&farm, &[1, 2, 3], 3, 3);
    assert_eq!(last_change(&farm, 1, "router"), json!({"leader": 3, "previous": 2, "reason": "rank"}));
}

#[test]
fn a_wrong_group_is_refused_in_one_sentence() {
    let place = Place::new();
    for (words, expected) in [
        (&["--group", "a b"][..], "--group holds a group whose name is 'a b'; use 1 to 64 letters"),
        (&["--group", ""], "--group holds a group whose name is ''; use 1 to 64 letters"),
        (&["--group", "a=moon"], "--group holds 'a', whose algorithm is 'moon'; choose one of bully, ring"),
        (
            &["--group", "a=bully:beauty"],
            "--group holds 'a', whose rank is 'beauty'; choose one of load, id, address",
        ),
        (
            &["--group", "a=ring:load"],
            "--group holds 'a', a ring with a rank: a ring compares ids and nothing else; ",
        ),
        (&["--group", "a", "--group", "a"], "--group holds two groups called 'a'; give each its own name"),
        (&["--group", "a@1+9"], "--group holds 'a', which has server 9, and there is none; "),
        (&["--group", "a@1+1"], "--group holds 'a', which has server 1 twice; "),
        (&["--group", "a@x"], "--group holds 'a', whose members are not all ids: 'x'; "),
    ] {
        let words: Vec<&str> = ["up"].iter().chain(words).copied().collect();
        let ran: Ran = place.command(&words).output().expect("primus starts").into();
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{words:?}: {ran:?}");
        assert!(ran.stderr.contains(expected) && ran.stderr.matches('\n').count() == 1, "{words:?}: {ran:?}");
    }
    assert!(place.known().is_empty() && place.left().is_empty(), "{:?}", place.left());
    let many: String = (0..65).map(|n| format!("[[groups]]\nname = \"g{n}\"\n")).collect();
    fs::write(place.dir.join("many.toml"), format!("[server]\nid = 1\n{many}")).expect("a file can be written");
    let ran = place.primus("server --config many.toml");
    assert!(ran.code == Some(2) && ran.stderr.contains("groups holds 65 groups; leave it at 64"), "{ran:?}");
}

#[test]
fn an_election_of_a_group_is_held_whoever_is_asked() {
    let place = Place::new();
    let farm = place.up("--workers 0 --group router=bully:load --group scrapper=ring@1+3");
    let leader_of = |name: &str, server: u64| {
        let groups = groups(&farm, server)?;
        groups.iter().find(|group| group["group"] == name)?["leader"].as_u64()
    };
    let leader = || leader_of("router", 1);
    let old = eventually("a leader of the group", leader);
    for member in [1, 3] {
        eventually("a leader of the ring", || leader_of("scrapper", member));
    }
    // Server 2 is not a member, so it asks one that is.
    for (server, asked) in [(1, 1), (2, 2), (3, 3)] {
        let line = format!("elect --group scrapper -o json --api http://{}", farm.api_of(server));
        let held: Value = serde_json::from_str(&place.primus(&line).stdout).expect("an object");
        assert_eq!((&held["outcome"], &held["leader"]), (&"confirmed".into(), &3.into()), "{held}");
        assert_eq!((&held["group"], &held["asked"]), (&"scrapper".into(), &asked.into()), "{held}");
        assert!(held["term"].is_null() && held["round"].as_u64() > Some(1), "{held}");
    }
    let told = events(farm.api_of(1)).expect("it answers");
    let confirmed = told.iter().find(|event| event["kind"] == "group_leader_confirmed").expect("it is told");
    assert_eq!((&confirmed["leader"], &confirmed["held_by"]), (&3.into(), &1.into()), "{confirmed}");

    // By load nobody takes over from a leader that grows busy, until an election is held.
    place.json(&format!("chaos load {old} 90"));
    let held = eventually("the load to count", || {
        let held = place.json("elect --group router");
        (held["outcome"] == "transferred").then_some(held)
    });
    assert_eq!(held["previous"], old, "{held}");
    let new = held["leader"].as_u64().expect("somebody leads");
    assert_ne!(new, old);
    eventually("everybody to see it", || (leader()? == new).then_some(()));
    assert_eq!(last_change(&farm, new, "router")["reason"], "operator");
    let text = place.primus("elect --group router").stdout;
    assert!(
        text.starts_with(&format!("confirmed: server {new} ranks best and leads on group router in round ")),
        "{text}"
    );
    let unknown = place.primus("elect --group nobody");
    assert!(unknown.code == Some(1) && unknown.stderr.contains("no group nobody"), "{unknown:?}");
    farm.end();
}
