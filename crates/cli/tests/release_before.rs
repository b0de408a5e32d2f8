//! End to end: a farm whose directory was written by the release before goes on with everything in it.
//!
//! `data/farm-0.6.0.tar.gz` is what `primus up --dir` of version 0.6.0 left behind: three servers and a worker, fifty-six
//! values in the register behind a snapshot, results of all kinds, a task that ran and four that waited.

mod common;

use std::process::Command;

use common::eventually;
use common::place::Place;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/farm-0.6.0.tar.gz");

/// A place with the farm of the release before in the folder `farm`.
fn unpacked() -> Place {
    let place = Place::new();
    let tar = Command::new("tar").args(["-xzf", DIRECTORY, "-C"]).arg(&place.dir).status().expect("tar is there");
    assert!(tar.success());
    place
}

#[test]
fn a_directory_of_the_release_before_opens() {
    let place = unpacked();
    let farm = place.up("--dir farm");
    assert_eq!((&farm.ready["farm"], farm.ready["servers"].as_array().map(Vec::len)), (&"vintage".into(), Some(3)));
    assert_eq!(place.primus("kv get colour").stdout, "blue\n");
    assert_eq!(place.primus("kv get k49").stdout, "v\n");
    // What ran when the farm was stopped runs again; without it the others get its slot.
    eventually("the task that ran to run again", || (place.json("task 6.1")["state"] == "running").then_some(()));
    assert_eq!(place.primus("cancel 6").code, Some(0));
    let ran = place.primus("wait 7 --timeout 30s");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // Numbers go on where they were.
    let ran = place.primus("submit -o json -- true");
    assert!(ran.stdout.contains(r#""job":"8""#), "{ran:?}");
    farm.end();
}

#[test]
fn a_farm_of_the_release_before_survives_its_leader() {
    let place = unpacked();
    let farm = place.up("--dir farm");
    let leader = farm.ready["leader"].as_u64().expect("a server leads");
    assert_eq!(place.primus("kv put colour green").code, Some(0));
    assert_eq!(place.primus("chaos kill leader").code, Some(0));
    farm.leader_other_than(leader);
    assert_eq!(place.primus("kv get colour").stdout, "green\n");
    assert_eq!(place.primus("kv get key5").stdout, "value5\n");
    farm.end();
}
