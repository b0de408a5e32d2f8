//! End to end: servers and workers of a whole farm are killed, frozen, cut off, drained and started again, at times all at once,
//! while jobs are submitted, and some cancelled, whose tasks leave traces; then results and traces are compared.
//!
//! What goes wrong is drawn from a seed before anything starts, and printed: the same seed gives the same strokes in the same
//! order, though not what the operating system makes of them. `PRIMUS_SEED` sets the seed, `PRIMUS_TASKS` the number of tasks.

mod common;

use std::fmt;

use common::clients::{number_from, seed};
use common::http::ask;
use common::place::{Farm, Place};
use common::submitters::Submitters;
use common::{eventually, is_running, send};
use primus_lab::chance::Chance;
use primus_lab::tally;
use rustix::process::Signal;
use serde_json::Value;

const SERVERS: u64 = 3;
const WORKERS: u64 = 3;
const SLOTS: u64 = 2;
const TASKS: u64 = 2000;
/// How many tasks end before a stroke, and until it is mended. At the longer ones a frozen worker is given up.
const BETWEEN: (u64, u64) = (5, 30);
const LASTS: (u64, u64) = (10, 90);

/// What goes wrong together, and for how many tasks it lasts.
struct Stroke {
    harms: Vec<Harm>,
    after: u64,
    lasts: u64,
}

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harm {
    Server(Blow, Role),
    /// By its number.
    Worker(Blow, u64),
    /// Nothing passes between this worker and all servers, or its links are closed, and it is turned away.
    Link(Manner, u64),
    /// This worker gets nothing new.
    Drain(u64),
    /// Every process is killed, `primus up` included.
    Everybody,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blow {
    Kill,
    Freeze,
    /// Frozen, and killed in its sleep.
    FreezeAndKill,
    /// From the other servers; workers and clients still reach it.
    CutOff,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Hold,
    Close,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Leader,
    /// The first or the second of the others.
    Follower(usize),
}

/// Breaks a farm and mends it.
struct Saboteur<'a> {
    place: &'a Place,
    farm: Farm<'a>,
    submitters: &'a Submitters,
}

#[test]
fn every_acknowledged_task_has_one_result_whatever_dies() {
    let (seed, tasks) = (seed(), number_from("PRIMUS_TASKS").unwrap_or(TASKS));
    println!("seed {seed}, {tasks} tasks");
    let place = Place::new();
    let farm = place.up(&format!("--servers {SERVERS} --workers {WORKERS} --slots {SLOTS} --dir farm"));
    let submitters = Submitters::new(&place, &farm.api, seed, tasks);
    let mut saboteur = Saboteur { place: &place, farm, submitters: &submitters };
    let count = submitters.while_they_work(|| {
        let strokes = strokes(seed).take_while(|_| !submitters.are_done());
        strokes.map(|stroke| saboteur.strike(&stroke)).count()
    });
    submitters.wait_for_all();
    saboteur.farm.end();
    submitters.must_have_ended();
    println!("{count} strokes");
    // Only what was with a worker can be lost.
    submitters.judge(count as u64 * WORKERS * SLOTS);
    tally::add("kills", count);
}

/// Strokes without end, in rounds in which everything goes wrong once.
fn strokes(seed: u64) -> impl Iterator<Item = Stroke> {
    let mut chance = Chance::new(seed);
    std::iter::repeat_with(move || round(&mut chance)).flatten()
}

fn round(chance: &mut Chance) -> Vec<Stroke> {
    let follower = Role::Follower(usize::from(chance.happens(500_000)));
    let mut all: Vec<Vec<Harm>> = Vec::new();
    for role in [Role::Leader, follower] {
        let blows = [Blow::Kill, freeze(chance), Blow::CutOff];
        all.extend(blows.map(|blow| vec![Harm::Server(blow, role)]));
    }
    // One stroke is about workers alone; every other server has a worker for company.
    all.push(Vec::new());
    for harms in &mut all {
        if harms.is_empty() || chance.happens(500_000) {
            let blow = if chance.happens(500_000) { Blow::Kill } else { freeze(chance) };
            harms.push(Harm::Worker(blow, chance.between(1, WORKERS)));
        }
    }
    let links = [Manner::Hold, Manner::Close].map(|manner| Harm::Link(manner, chance.between(1, WORKERS)));
    for harm in links.into_iter().chain([Harm::Drain(chance.between(1, WORKERS))]) {
        let leader = chance.happens(500_000).then_some(Harm::Server(Blow::Kill, Role::Leader));
        all.push([harm].into_iter().chain(leader).collect());
    }
    all.push(vec![Harm::Everybody]);
    chance.shuffle(&mut all);
    let mut between = |(least, most)| chance.between(least, most);
    all.into_iter().map(|harms| Stroke { harms, after: between(BETWEEN), lasts: between(LASTS) }).collect()
}

fn freeze(chance: &mut Chance) -> Blow {
    if chance.happens(300_000) { Blow::FreezeAndKill } else { Blow::Freeze }
}

impl Saboteur<'_> {
    /// Strikes, lets the farm work under that, and mends it. One server of three may fail, and two workers of three, so tasks
    /// must come to their end all the while.
    fn strike(&mut self, stroke: &Stroke) {
        self.submitters.wait_for(stroke.after);
        println!("{:5} tasks ended: {stroke}", self.submitters.ended());
        let cures: Vec<String> = stroke.harms.iter().filter_map(|harm| self.inflict(*harm)).collect();
        self.submitters.wait_for(stroke.lasts);
        stroke.harms.iter().for_each(|harm| self.look_back_at(*harm));
        cures.iter().for_each(|cure| self.primus(cure));
    }

    /// Whoever is drained has come to its end by now or soon, and begins nothing any more.
    fn look_back_at(&self, harm: Harm) {
        let Harm::Drain(number) = harm else { return };
        let worker = format!("w{number}");
        eventually("a drained worker to end what it had", || {
            self.worker(&worker).filter(|its| its["draining"] == true && its["running"] == 0)
        });
        let traces_len = self.submitters.traces_len();
        self.submitters.wait_for(BETWEEN.0);
        let begun = self.submitters.begun_by(&worker, traces_len);
        assert!(begun.is_empty(), "{worker} is drained, and began {begun:?}");
    }

    /// What the leader says of a worker.
    fn worker(&self, name: &str) -> Option<Value> {
        self.farm.api.iter().find_map(|api| {
            let (_, status) = ask(*api, "GET", "/v1/workers", "").ok()?;
            status["items"].as_array()?.iter().find(|its| its["name"] == name).cloned()
        })
    }

    /// What mends it?
    fn inflict(&mut self, harm: Harm) -> Option<String> {
        match harm {
            Harm::Server(Blow::CutOff, role) => {
                let server = self.server(role);
                let others: Vec<String> =
                    (1..=SERVERS).filter(|id| *id != server).map(|id| id.to_string()).collect();
                self.primus(&format!("chaos partition {server}|{}", others.join(",")));
                Some("chaos heal".to_owned())
            }
            Harm::Link(manner, number) => {
                let close = if manner == Manner::Close { "--close " } else { "" };
                let servers: Vec<String> = (1..=SERVERS).map(|id| id.to_string()).collect();
                self.primus(&format!("chaos partition {close}w{number}|{}", servers.join(",")));
                Some("chaos heal".to_owned())
            }
            Harm::Drain(number) => {
                // It may be on its way back from the last stroke.
                let worker = format!("w{number}");
                eventually("a worker to be there", || self.worker(&worker).filter(|its| its["registered"] == true));
                self.primus(&format!("drain w{number}"));
                Some(format!("drain --undo w{number}"))
            }
            Harm::Server(blow, role) => Some(self.hit(blow, &self.server(role).to_string())),
            Harm::Worker(blow, number) => Some(self.hit(blow, &format!("w{number}"))),
            Harm::Everybody => {
                self.kill_everybody();
                None
            }
        }
    }

    fn hit(&self, blow: Blow, target: &str) -> String {
        let (what, cure) = match blow {
            Blow::Kill => ("kill", "restart"),
            Blow::Freeze => ("freeze", "thaw"),
            Blow::FreezeAndKill => ("freeze", "restart"),
            Blow::CutOff => unreachable!("only servers are cut off"),
        };
        self.primus(&format!("chaos {what} {target}"));
        format!("chaos {cure} {target}")
    }

    fn primus(&self, words: &str) {
        let ran = self.place.primus(words);
        assert_eq!(ran.code, Some(0), "{words}: {ran:?}; {}", self.farm.complaints());
    }

    /// The server that has this role now, as far as anybody knows.
    fn server(&self, role: Role) -> u64 {
        let leader = eventually("a leader", || {
            let views = self.farm.api.iter().filter_map(|api| {
                let (_, view) = ask(*api, "GET", "/v1/leader", "").ok()?;
                Some((view["term"].as_u64()?, view["leader"].as_u64()?))
            });
            views.max().map(|(_, leader)| leader)
        });
        match role {
            Role::Leader => leader,
            Role::Follower(number) => {
                (1..=SERVERS).filter(|id| *id != leader).nth(number).expect("there are two followers")
            }
        }
    }

    /// In one call, so that nobody has time to notice; then the farm is started again with what is on its disks.
    fn kill_everybody(&mut self) {
        let up = u64::from(self.farm.up.id());
        let mut pids = [vec![up], self.farm.pids(), self.farm.worker_pids()].concat();
        assert_eq!(pids.len() as u64, 1 + SERVERS + WORKERS, "everybody was mended");
        send(Signal::KILL, &pids);
        self.farm.up.wait().expect("it was killed");
        eventually("everybody to be dead", || {
            pids.retain(|pid| is_running(*pid));
            pids.is_empty().then_some(())
        });
        self.farm = self.place.up("--dir farm");
        self.submitters.move_to(&self.farm.api);
    }
}

impl fmt::Display for Stroke {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let harms: Vec<String> = self.harms.iter().map(|harm| format!("{harm:?}")).collect();
        write!(f, "{} for {} tasks", harms.join(", "), self.lasts)
    }
}

#[test]
fn a_seed_gives_the_same_strokes() {
    let words = |seed| strokes(seed).take(11).map(|stroke| stroke.to_string()).collect::<Vec<_>>();
    assert_eq!(words(7), words(7));
    assert_ne!(words(7), words(8));
    let all = words(7).join("\n");
    let harms = ["Kill, Leader", "CutOff, Leader", "CutOff, Follower", "Freeze", "Worker", "Everybody"];
    for wanted in harms.into_iter().chain(["Link(Hold", "Link(Close", "Drain"]) {
        assert!(all.contains(wanted), "no {wanted} in\n{all}");
    }
}
