//! End to end: everything that goes over the network between the processes of two farms that work and lend, as somebody sees it who
//! may look at all packets. It needs a namespace of its own, so that there are no other packets.

mod common;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;

use common::capture::{Capture, Segment};
use common::http::ask;
use common::namespace::inside;
use common::neighbourhood::Neighbourhood;
use common::place::Place;
use common::{eventually, eventually_or};

/// What tasks are given, and what they make of it (`tr a-z n-za-m`).
const ARGUMENT: &str = "argument-of-this-task";
const OUTPUT: &str = "nethzrag-bs-guvf-gnfx";
const KEY: &str = "key-of-the-register";
const VALUE: &str = "value-of-the-register";
/// Enough for a farm of two workers to borrow others.
const TASKS: usize = 60;
/// How often workers are waited for that come from the other farm.
const TRIES: usize = 5;

/// What goes between the nodes of two busy farms, started with these words: everything but what goes to and from APIs.
fn between_nodes(words: &str) -> Vec<Segment> {
    let place = Place::new();
    let capture = Capture::start();
    let town = Neighbourhood::up(&place, &format!("--farms 2 --servers 3 --workers 2 {words}"));
    let is_lent = (0..TRIES).any(|number| {
        let script = "sleep 0.2; echo $0 | tr a-z n-za-m";
        let command = ["sh", "-c", script, &format!("{ARGUMENT}-{{}}")];
        let workers: BTreeSet<String> = town.ledgers.run("north", &format!("job {number}"), TASKS, &command);
        workers.iter().any(|worker| worker.contains("south"))
    });
    assert!(is_lent, "no worker was lent");
    for farm in ["north", "south"] {
        // Two of three servers ask the leader.
        for api in &town.ledgers.member(farm).api {
            let path = format!("/v1/kv/{KEY}");
            eventually("a write", || matches!(ask(*api, "PUT", &path, VALUE), Ok((200, _))).then_some(()));
            eventually_or("a read", || match ask(*api, "GET", &path, "") {
                Ok((200, answer)) if answer["value"] == VALUE => Ok(()),
                other => Err(format!("{other:?}")),
            });
        }
    }
    let logs = town.ledgers.member("north").api.iter().map(|api| {
        let ran = place.primus(&format!("logs 1.1 --api http://{api}"));
        assert!(ran.code == Some(0) && ran.stdout.contains(OUTPUT), "{ran:?}");
    });
    assert_eq!(logs.count(), 3);
    let apis: BTreeSet<u16> =
        town.ledgers.farms.iter().flat_map(|farm| farm.api.iter().map(SocketAddr::port)).collect();
    town.end();
    let mut segments = capture.end();
    segments.retain(|segment| !segment.ports.iter().any(|port| apis.contains(port)));
    segments
}

#[test]
#[ignore = "needs network namespaces"]
fn no_link_of_farms_that_work_and_lend_shows_what_it_carries() {
    inside("--net", "no_link_of_farms_that_work_and_lend_shows_what_it_carries", || {
        assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().expect("there is an ip").success());
        let payload = [ARGUMENT, OUTPUT, KEY, VALUE];
        // Names, too, and which server is dialled.
        let names = ["north", "south", "server-", "primus://"];
        let shown = |segments: &[Segment], text: &str| segments.iter().any(|segment| segment.holds(text));
        let plain = between_nodes("--insecure");
        for text in payload.into_iter().chain(["north", "south"]) {
            // Without encryption it is there, so the test can see it.
            assert!(shown(&plain, text), "{text} is not in {} segments", plain.len());
        }
        let encrypted = between_nodes("");
        println!("{} segments in clear, {} encrypted", plain.len(), encrypted.len());
        assert!(encrypted.len() > 1000, "{} segments", encrypted.len());
        for text in payload.into_iter().chain(names) {
            assert!(!shown(&encrypted, text), "{text} is in clear");
        }
    });
}
