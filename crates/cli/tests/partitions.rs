//! End to end: five servers in network namespaces, cut off from each other in every way that is known to hurt, while
//! clients, who reach everybody, read and write; then the clients' history is judged, and who led when.
//!
//! They need `unshare`, `ip` and `nft`, and root or user namespaces; `./x test` runs them wherever there are those.

mod common;

use std::thread;
use std::time::Instant;

use common::clients::{Clients, Leaders, seed};
use common::eventually;
use common::http::{ask, events};
use common::namespace::inside;
use common::network::Network;
use common::place::Place;
use primus_lab::history::Outcome;

const SERVERS: u8 = 5;
const CLIENTS: u64 = 6;
/// Time passes in writes: while this many are acknowledged, whatever goes wrong for ever has gone wrong.
const MANY: usize = 1000;
/// How often another server may lead until a cluster has found its way round a partition.
const CHANGES_MAX: u64 = 3;

/// What is tried.
struct Trial<'a> {
    network: &'a Network,
    clients: &'a Clients<'a>,
}

#[test]
#[ignore = "needs network namespaces"]
fn a_leader_in_the_minority_is_replaced_and_acknowledges_nothing() {
    trial("a_leader_in_the_minority_is_replaced_and_acknowledges_nothing", |trial| {
        let (old, _) = trial.agreed();
        let minority = [old, trial.others(&[old])[0]];
        let majority = trial.others(&minority);
        trial.split(&minority, &majority);
        trial.is_replaced_by(&minority, &majority);
    });
}

#[test]
#[ignore = "needs network namespaces"]
fn a_leader_that_is_isolated_is_replaced_and_acknowledges_nothing() {
    trial("a_leader_that_is_isolated_is_replaced_and_acknowledges_nothing", |trial| {
        let (old, _) = trial.agreed();
        let others = trial.others(&[old]);
        trial.split(&[old], &others);
        trial.is_replaced_by(&[old], &others);
    });
}

#[test]
#[ignore = "needs network namespaces"]
fn a_minority_that_is_cut_off_and_returns_changes_neither_leader_nor_term() {
    trial("a_minority_that_is_cut_off_and_returns_changes_neither_leader_nor_term", |trial| {
        let before = trial.agreed();
        let followers = trial.others(&[before.0]);
        let minority = &followers[..2];
        trial.split(minority, &trial.others(minority));
        for server in minority {
            eventually("the leader to be missed", || trial.view(*server).filter(|(leader, _)| leader.is_none()));
        }
        trial.await_many_writes();
        trial.network.heal();
        assert_eq!(trial.agreed(), before);
    });
}

#[test]
#[ignore = "needs network namespaces"]
fn a_leader_that_nobody_hears_is_replaced() {
    trial("a_leader_that_nobody_hears_is_replaced", |trial| {
        let (old, _) = trial.agreed();
        let others = trial.others(&[old]);
        trial.network.cut(others.iter().map(|other| (old, *other)));
        trial.is_replaced_by(&[old], &others);
    });
}

#[test]
#[ignore = "needs network namespaces"]
fn a_leader_that_hears_nobody_is_replaced() {
    trial("a_leader_that_hears_nobody_is_replaced", |trial| {
        let (old, _) = trial.agreed();
        let others = trial.others(&[old]);
        trial.network.cut(others.iter().map(|other| (*other, old)));
        trial.is_replaced_by(&[old], &others);
    });
}

#[test]
#[ignore = "needs network namespaces"]
fn two_halves_joined_by_one_server_settle_on_a_leader() {
    trial("two_halves_joined_by_one_server_settle_on_a_leader", |trial| {
        let (old, before) = trial.agreed();
        let [here, joint, there @ ..] = &trial.others(&[old])[..] else { panic!("there are five servers") };
        trial.split(&[old, *here], there);
        trial.await_many_writes();
        let (_, term) = trial.leader_among(*joint, &[1, 2, 3, 4, 5]);
        assert!(term - before <= CHANGES_MAX, "{} leaders in turn", term - before);
    });
}

#[test]
#[ignore = "needs network namespaces"]
fn a_star_is_led_by_its_middle_though_another_one_led() {
    trial("a_star_is_led_by_its_middle_though_another_one_led", |trial| {
        let (old, before) = trial.agreed();
        let middle = trial.others(&[old])[0];
        let tips = trial.others(&[middle]);
        let pairs = tips.iter().flat_map(|from| tips.iter().map(|to| (*from, *to)));
        trial.network.cut(pairs.filter(|(from, to)| from != to));
        // Nobody else reaches a majority, and the middle still hears the old leader.
        assert_eq!(trial.leader_among(middle, &[middle]).0, middle);
        trial.await_many_writes();
        let (leader, term) = trial.leader_among(old, &[middle]);
        assert_eq!(leader, middle);
        assert!(term - before <= CHANGES_MAX, "{} leaders in turn", term - before);
    });
}

/// Does this to five servers while clients work; afterwards all agree, all serve, and nothing was lost.
fn trial(test: &str, act: impl FnOnce(&Trial<'_>)) {
    inside("--net", test, || {
        let place = Place::new();
        let network = Network::up(&place, SERVERS);
        let clients = Clients::new(&network.api, seed());
        let trial = Trial { network: &network, clients: &clients };
        clients.while_they_work(CLIENTS, || {
            act(&trial);
            network.heal();
            let healed = Instant::now();
            trial.agreed();
            println!("all agree {} ms after the partition", healed.elapsed().as_millis());
            (0..network.api.len()).for_each(|server| clients.wait_for_a_write([server]));
        });
        clients.judge(Leaders::default());
    });
}

impl Trial<'_> {
    /// The leader that all servers know, and its term.
    fn agreed(&self) -> (u64, u64) {
        eventually("all servers to know one leader", || {
            let views: Option<Vec<_>> = self.others(&[]).into_iter().map(|server| self.view(server)).collect();
            let views = views?;
            let (leader, term) = views[0];
            views.iter().all(|view| *view == views[0]).then_some((leader?, term))
        })
    }

    /// The leader that this server knows, and its term, once it is one of these.
    fn leader_among(&self, server: u64, wanted: &[u64]) -> (u64, u64) {
        eventually("another leader", || match self.view(server)? {
            (Some(leader), term) => wanted.contains(&leader).then_some((leader, term)),
            (None, _) => None,
        })
    }

    /// Who leads as far as this server knows, and in which term.
    fn view(&self, server: u64) -> Option<(Option<u64>, u64)> {
        let (_, view) = ask(self.network.api[place_of(server)], "GET", "/v1/leader", "").ok()?;
        Some((view["leader"].as_u64(), view["term"].as_u64()?))
    }

    fn others(&self, but: &[u64]) -> Vec<u64> {
        (1..=u64::from(SERVERS)).filter(|server| !but.contains(server)).collect()
    }

    /// Cuts these off from those, both ways.
    fn split(&self, these: &[u64], those: &[u64]) {
        let pairs = these.iter().flat_map(|this| those.iter().map(|that| (*this, *that)));
        self.network.cut(pairs.flat_map(|(this, that)| [(this, that), (that, this)]));
    }

    /// Those who are left find another leader and serve; whoever was cut off just now acknowledges nothing any more.
    fn is_replaced_by(&self, gone: &[u64], left: &[u64]) {
        let cut_us = self.clients.now_us();
        for server in left {
            self.leader_among(*server, left);
        }
        self.clients.wait_for_a_write(left.iter().map(|server| place_of(*server)));
        println!("a write {} ms after the cut", (self.clients.now_us() - cut_us) / 1000);
        for server in gone {
            let value = format!("at {server}, cut off");
            assert!(!self.clients.put(place_of(*server), 0, value), "server {server} was cut off and acknowledged");
            assert!(self.clients.acknowledged_us(place_of(*server)) < cut_us, "server {server} acknowledged");
        }
    }

    fn await_many_writes(&self) {
        let wanted = self.clients.count(Outcome::Ok) + MANY;
        eventually("many writes", || (self.clients.count(Outcome::Ok) >= wanted).then_some(()));
    }
}

/// Whoever must find out what went wrong wants to know what the servers say.
impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            for server in self.others(&[]) {
                println!("server {server}: {:?}", self.view(server));
                let events = events(self.network.api[place_of(server)]).unwrap_or_default();
                events.iter().for_each(|event| println!("  {event}"));
            }
        }
    }
}

fn place_of(server: u64) -> usize {
    usize::try_from(server).expect("ids are small") - 1
}
