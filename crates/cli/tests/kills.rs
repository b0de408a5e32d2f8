//! End to end: servers are killed, frozen and started again while clients read and write; then the clients' history is
//! judged, and what the servers say about who led when.
//!
//! The faults are drawn from a seed, which is printed; what the operating system makes of them is not. `PRIMUS_SEED` sets
//! the seed, `PRIMUS_KILLS` the number of faults.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Instant;

use common::clients::{Clients, Leaders, number_from, seed};
use common::http::ask;
use common::place::{Farm, Place};
use common::{eventually, send};
use primus_lab::chance::Chance;
use primus_lab::history::Outcome;
use primus_lab::tally;
use rustix::process::Signal;

const SERVERS: u64 = 5;
/// A majority of five stays.
const DOWN_MAX: usize = 2;
const CLIENTS: u64 = 8;
const FAULTS: usize = 30;
/// How often a whole farm is killed.
const ROUNDS: usize = 3;

/// What a server is made to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Runs,
    Dead,
    Frozen,
}

/// Breaks servers and mends them.
struct Saboteur<'a> {
    place: &'a Place,
    farm: &'a Farm<'a>,
    clients: &'a Clients<'a>,
    chance: Chance,
    states: BTreeMap<u64, State>,
    leaders: Leaders,
}

#[test]
fn kills_freezes_and_restarts_cost_no_acknowledged_write() {
    let faults = number_from("PRIMUS_KILLS").map_or(FAULTS, |count| usize::try_from(count).unwrap());
    under_sabotage(&format!("{faults} faults"), |saboteur| {
        (0..faults).for_each(|_| saboteur.harm());
        saboteur.mend_all();
    });
    tally::add("kills", faults);
}

#[test]
fn a_farm_that_is_killed_as_a_whole_keeps_every_acknowledged_write() {
    under_sabotage("everybody at once", |saboteur| {
        for round in 1..=ROUNDS {
            let clients = saboteur.clients;
            eventually("many writes", || (clients.count(Outcome::Ok) > 200 * round).then_some(()));
            saboteur.kill_everybody();
            saboteur.mend_all();
        }
    });
    tally::add("kills", ROUNDS);
}

/// Does this to a farm while clients work, then judges.
fn under_sabotage(what: &str, act: impl FnOnce(&mut Saboteur<'_>)) {
    let seed = seed();
    println!("seed {seed}, {what}");
    let place = Place::new();
    let farm = place.up(&format!("--servers {SERVERS}"));
    let clients = Clients::new(&farm.api, seed);
    let leaders = clients.while_they_work(CLIENTS, || {
        let mut saboteur = Saboteur::new(&place, &farm, &clients, seed);
        act(&mut saboteur);
        saboteur.leaders
    });
    clients.judge(leaders);
    assert_eq!(farm.pids().len(), farm.api.len());
    farm.end();
}

impl<'a> Saboteur<'a> {
    fn new(place: &'a Place, farm: &'a Farm<'a>, clients: &'a Clients<'a>, seed: u64) -> Self {
        let states = (1..=SERVERS).map(|server| (server, State::Runs)).collect();
        Self { place, farm, clients, chance: Chance::new(seed), states, leaders: Leaders::default() }
    }

    /// One more fault; before it, as much is mended as must be, and at times more.
    fn harm(&mut self) {
        while !self.down().is_empty() && (self.down().len() == DOWN_MAX || self.chance.happens(300_000)) {
            let server = self.chance.pick(&self.down());
            self.mend(server);
        }
        self.ask_for_leaders();
        let (server, leads) = self.victim();
        let (what, state) = match self.chance.below(5) {
            0..3 => ("kill", State::Dead),
            _ => ("freeze", State::Frozen),
        };
        let (began, failed) = (Instant::now(), self.clients.count(Outcome::Failed));
        self.chaos(what, server);
        self.states.insert(server, state);
        self.wait_for_a_write();
        let role = if leads { "leader" } else { "follower" };
        let failed = self.clients.count(Outcome::Failed) - failed;
        let down = self.down();
        let took_ms = began.elapsed().as_millis();
        println!("{what} {server} ({role}): a write after {took_ms} ms, {failed} failed before; down: {down:?}");
    }

    /// Every other time it is the leader, if there is one. Does it lead?
    fn victim(&mut self) -> (u64, bool) {
        let running = self.servers(|state| state == State::Runs);
        let views = running.iter().filter_map(|server| {
            let (_, view) = ask(self.farm.api_of(*server), "GET", "/v1/leader", "").ok()?;
            Some((view["term"].as_u64()?, view["leader"].as_u64()?))
        });
        let leader = views.max().map(|(_, leader)| leader).filter(|leader| running.contains(leader));
        let other = self.chance.pick(&running);
        let server = leader.filter(|_| self.chance.happens(500_000)).unwrap_or(other);
        (server, leader == Some(server))
    }

    /// One that is frozen goes on, or is killed in its sleep.
    fn mend(&mut self, server: u64) {
        let is_frozen = self.states[&server] == State::Frozen;
        let thaws = is_frozen && !self.chance.happens(300_000);
        self.chaos(if thaws { "thaw" } else { "restart" }, server);
        self.states.insert(server, State::Runs);
    }

    fn mend_all(&mut self) {
        for server in self.down() {
            self.mend(server);
        }
        self.wait_for_a_write();
        eventually("all servers to know one leader", || {
            let ask_one = |api: &SocketAddr| ask(*api, "GET", "/v1/leader", "").ok()?.1["leader"].as_u64();
            let leaders: Option<BTreeSet<u64>> = self.farm.api.iter().map(ask_one).collect();
            leaders.filter(|leaders| leaders.len() == 1)
        });
    }

    /// In one call, so that nobody has time to notice.
    fn kill_everybody(&mut self) {
        self.ask_for_leaders();
        send(Signal::KILL, &self.farm.pids());
        self.states.values_mut().for_each(|state| *state = State::Dead);
    }

    fn wait_for_a_write(&self) {
        self.clients.wait_for_a_write(0..self.farm.api.len());
    }

    fn chaos(&self, what: &str, server: u64) {
        let ran = self.place.primus(&format!("chaos {what} {server}"));
        assert_eq!(ran.code, Some(0), "chaos {what} {server}: {ran:?}; {}", self.farm.complaints());
    }

    /// A server forgets its history when it dies, so everybody is asked before.
    fn ask_for_leaders(&mut self) {
        for server in self.servers(|state| state == State::Runs) {
            _ = self.leaders.ask(self.farm.api_of(server));
        }
    }

    fn down(&self) -> Vec<u64> {
        self.servers(|state| state != State::Runs)
    }

    fn servers(&self, wanted: impl Fn(State) -> bool) -> Vec<u64> {
        self.states.iter().filter(|(_, state)| wanted(**state)).map(|(server, _)| *server).collect()
    }
}
