//! End to end: two farms in network namespaces that are cut off from each other, or from a worker, while it is lent. In the end
//! both sides agree, and nobody ever worked for both.
//!
//! They need `unshare`, `ip` and `nft`, and root or user namespaces; `./x test` runs them wherever there are those.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::process::Child;

use common::flood::{Flood, Verdict, judge_allegiance};
use common::namespace::inside;
use common::neighbourhood::{Ledgers, Member, text};
use common::network::{API, LINKS, address, cut, heal, lay_switch, start};
use common::place::Place;
use common::{eventually, eventually_or};
use serde_json::Value;

/// The hosts. North has one worker, and borrows two of south.
const NORTH: u8 = 1;
const SOUTH: u8 = 2;
const WORKERS: [(u8, &str, &str); 3] = [(11, "n1", "north"), (21, "s1", "south"), (22, "s2", "south")];
const GUESTS: [u8; 2] = [21, 22];
const FLOOD: (usize, &str) = (100, "0.1");
/// It goes on until loans are overdue.
const LONG_FLOOD: (usize, &str) = (250, "0.1");
/// Enough to want one's own workers back.
const OWN_FLOOD: (usize, &str) = (20, "0.1");
/// So long that it is never over before the network is healed, and so short that it always is.
const LONG: &str = "60s";
const SHORT: &str = "2s";

/// Two farms whose nodes are hosts of their own.
struct Town<'a> {
    place: &'a Place,
    ledgers: Ledgers,
    nodes: Vec<Child>,
}

impl<'a> Town<'a> {
    /// Starts everybody. Workers are lent for so long.
    fn start(place: &'a Place, loan: &str) -> Self {
        lay_switch();
        let mut town = Self { place, ledgers: Ledgers { farms: Vec::new() }, nodes: Vec::new() };
        for (host, farm, neighbour) in [(NORTH, "north", (SOUTH, "south")), (SOUTH, "south", (NORTH, "north"))] {
            let config = place.dir.join(format!("{farm}.toml"));
            fs::write(&config, configuration(place, (host, farm), neighbour, loan)).expect("a file can be written");
            let config = config.to_str().expect("folders of tests have plain names").to_owned();
            // Beyond loopback no server founds a farm alone unless it is told to.
            let alone =
                place.primus(&format!("init --alone {}", place.dir.join(format!("server-{farm}")).display()));
            assert_eq!(alone.code, Some(0), "{alone:?}");
            town.nodes.push(start(place, host, &["server", "--insecure", "--config", &config]));
            let workers = WORKERS.iter().filter(|(_, _, home)| *home == farm);
            for (host, name, _) in workers.clone() {
                let dir = place.dir.join(name).to_str().expect("folders of tests have plain names").to_owned();
                let words = [
                    "worker",
                    "--insecure",
                    "--config",
                    &config,
                    "--name",
                    name,
                    "--dir",
                    &dir,
                    "--slots",
                    "1",
                    "--allow",
                    "*",
                ];
                town.nodes.push(start(place, *host, &words));
            }
            let (name, api) = (farm.to_owned(), vec![SocketAddr::new(address(host), API)]);
            let workers = workers.map(|(_, name, _)| (*name).to_owned()).collect();
            town.ledgers.farms.push(Member { name, api, workers });
        }
        town.ledgers.await_start();
        town
    }

    fn flood(&self, farm: &str, tasks: (usize, &str)) -> Flood<'_> {
        Flood::begin(self.place, &self.ledgers, farm, tasks)
    }

    /// Floods north and waits until both guests are at work there.
    fn lend_to_north(&self, tasks: (usize, &str)) -> Flood<'_> {
        let flood = self.flood("north", tasks);
        eventually("both to be borrowed", || (self.ledgers.loans("north").len() == GUESTS.len()).then_some(()));
        self.await_guests_at_work(&flood, 1);
        flood
    }

    /// Waits until borrowed workers have begun so many tasks from now on.
    fn await_guests_at_work(&self, flood: &Flood<'_>, tasks: usize) {
        let before = flood.starts_at_guests();
        eventually_or("borrowed workers to work", || match flood.starts_at_guests() - before {
            begun if begun >= tasks => Ok(()),
            begun => Err(format!("{begun}; {:?}", self.ledgers.workers("north"))),
        });
    }

    /// Waits until this farm knows of no loan any more.
    fn await_no_loans(&self, farm: &str) {
        eventually_or(&format!("{farm} to have no loans"), || match self.ledgers.loans(farm) {
            loans if loans.is_empty() => Ok(()),
            loans => Err(format!("{loans:?} {:?}", self.ledgers.workers(farm))),
        });
    }

    /// Waits until everything has ended, and judges it.
    fn end(&self, floods: &[&Flood<'_>]) -> Vec<Verdict> {
        floods.iter().for_each(|flood| flood.wait());
        self.ledgers.await_all_home(&BTreeSet::new());
        judge_allegiance(floods);
        let verdicts: Vec<Verdict> = floods.iter().map(|flood| flood.judge()).collect();
        println!("{verdicts:?}");
        verdicts
    }

    fn has_told(&self, farm: &str, kind: &str) -> bool {
        let events = self.ledgers.events();
        events.iter().any(|(from, event): &(String, Value)| from == farm && event["kind"] == kind)
    }
}

impl Drop for Town<'_> {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            _ = node.kill();
            _ = node.wait();
        }
    }
}

fn configuration(place: &Place, (host, farm): (u8, &str), (other, neighbour): (u8, &str), loan: &str) -> String {
    let dir = place.dir.join(format!("server-{farm}"));
    let server =
        |host| format!("servers = [{{ id = 1, address = \"{0}:{LINKS}\", api = \"{0}:{API}\" }}]", address(host));
    let token = place.token_file(&[SocketAddr::new(address(host), API)]);
    format!(
        "[server]\nid = 1\nfarm = \"{farm}\"\ndir = {dir:?}\n[api]\ntoken_file = {token:?}\n[cluster]\n{}\n[[neighbours]]\nname = \"{neighbour}\"\n{}\n\
         [lending]\nloan = \"{loan}\"\n",
        server(host),
        server(other)
    )
}

/// Both ways, between all of these and that one.
fn between(hosts: &[u8], other: u8) -> Vec<(u64, u64)> {
    let pair = |host: &u8| [(u64::from(*host), u64::from(other)), (u64::from(other), u64::from(*host))];
    hosts.iter().flat_map(pair).collect()
}

fn trial(test: &str, loan: &str, act: impl FnOnce(&Town<'_>)) {
    inside("--net", test, || {
        let place = Place::new();
        act(&Town::start(&place, loan));
    });
}

#[test]
#[ignore = "needs network namespaces"]
fn farms_that_are_cut_off_for_a_while_go_on_with_their_loans() {
    trial("farms_that_are_cut_off_for_a_while_go_on_with_their_loans", LONG, |town| {
        let flood = town.lend_to_north(FLOOD);
        let before = town.ledgers.loans("north");
        cut(between(&[NORTH], SOUTH));
        await_unheard(town, "north");
        await_unheard(town, "south");
        town.await_guests_at_work(&flood, 4);
        heal();
        eventually("the farms to hear each other", || {
            let known = |farm| town.ledgers.items(farm, "/v1/farms");
            ["north", "south"].iter().all(|farm| known(farm).iter().all(|farm| farm["heard"] == true)).then_some(())
        });
        assert_eq!(ids(&town.ledgers.loans("north")), ids(&before), "a loan ended");
        assert_eq!(town.end(&[&flood])[0].reruns, Vec::<String>::new());
    });
}

#[test]
#[ignore = "needs network namespaces"]
fn an_owner_calls_its_workers_home_though_the_farms_are_cut_off() {
    trial("an_owner_calls_its_workers_home_though_the_farms_are_cut_off", LONG, |town| {
        let flood = town.lend_to_north(FLOOD);
        cut(between(&[NORTH], SOUTH));
        let own = town.flood("south", OWN_FLOOD);
        town.await_no_loans("south");
        town.await_no_loans("north");
        heal();
        assert!(town.has_told("south", "recalled"), "{:?}", town.ledgers.events());
        let verdicts = town.end(&[&flood, &own]);
        assert!(verdicts.iter().all(|verdict| verdict.reruns.is_empty()), "{verdicts:?}");
    });
}

#[test]
#[ignore = "needs network namespaces"]
fn workers_go_home_when_their_time_is_over_though_the_farms_are_cut_off() {
    trial("workers_go_home_when_their_time_is_over_though_the_farms_are_cut_off", SHORT, |town| {
        let flood = town.lend_to_north(FLOOD);
        cut(between(&[NORTH], SOUTH));
        town.await_no_loans("south");
        town.await_no_loans("north");
        let own = town.flood("south", (4, "0.1"));
        own.wait();
        heal();
        let verdicts = town.end(&[&flood, &own]);
        assert!(verdicts.iter().all(|verdict| verdict.reruns.is_empty()), "{verdicts:?}");
    });
}

#[test]
#[ignore = "needs network namespaces"]
fn workers_that_are_cut_off_from_the_borrower_come_home_before_their_time_is_over() {
    trial("workers_that_are_cut_off_from_the_borrower_come_home_before_their_time_is_over", LONG, |town| {
        cut_off_from_the_borrower(town);
    });
}

#[test]
#[ignore = "needs network namespaces"]
fn workers_that_are_cut_off_from_the_borrower_come_home_when_their_time_is_over() {
    trial("workers_that_are_cut_off_from_the_borrower_come_home_when_their_time_is_over", SHORT, |town| {
        cut_off_from_the_borrower(town);
    });
}

/// They come home; what they had runs again, and what they know of it changes nothing.
fn cut_off_from_the_borrower(town: &Town<'_>) {
    let flood = town.lend_to_north(FLOOD);
    cut(between(&GUESTS, NORTH));
    town.await_no_loans("north");
    town.await_no_loans("south");
    let own = town.flood("south", (4, "0.1"));
    own.wait();
    heal();
    let verdicts = town.end(&[&flood, &own]);
    // Each ran a task, and had the next one with it.
    assert!(verdicts[0].reruns.len() <= 2 * GUESTS.len() && verdicts[1].reruns.is_empty(), "{verdicts:?}");
}

#[test]
#[ignore = "needs network namespaces"]
fn workers_whose_home_is_out_of_reach_stay_and_are_overdue() {
    trial("workers_whose_home_is_out_of_reach_stay_and_are_overdue", SHORT, |town| {
        let flood = town.lend_to_north(LONG_FLOOD);
        let lent = ids(&town.ledgers.loans("south"));
        cut(between(&GUESTS, SOUTH));
        eventually("south to miss them", || town.has_told("south", "overdue").then_some(()));
        // South does not take them for dead, because north has them.
        assert_eq!(ids(&town.ledgers.loans("south")), lent);
        town.await_guests_at_work(&flood, 1);
        heal();
        assert_eq!(town.end(&[&flood])[0].reruns, Vec::<String>::new());
        assert!(!town.has_told("south", "loan_dead"), "{:?}", town.ledgers.events());
    });
}

/// Waits until this farm does not hear the other one.
fn await_unheard(town: &Town<'_>, farm: &str) {
    eventually("farms to miss each other", || {
        let known = town.ledgers.items(farm, "/v1/farms");
        known.iter().any(|other| other["heard"] == false).then_some(())
    });
}

/// Which loans these are, without whose they are.
fn ids(loans: &[Value]) -> BTreeSet<String> {
    loans.iter().map(|loan| text(&loan["id"])).collect()
}
