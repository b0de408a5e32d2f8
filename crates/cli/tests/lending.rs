//! End to end: farms of real processes lend each other workers while leaders and workers are killed, and both ledgers are
//! looked at all the while.
//!
//! `PRIMUS_LENDING_KILLS` says how often each kind of victim is killed.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use common::clients::{StopAtEnd, number_from};
use common::eventually;
use common::flood::{Flood, Verdict, judge_allegiance};
use common::neighbourhood::{Ledgers, Neighbourhood, text};
use common::place::Place;
use jiff::Timestamp;
use primus_lab::tally;
use serde_json::Value;

const UP: &str = "--farms 2 --servers 3 --workers 4 --slots 1";
const TASKS: (usize, &str) = (200, "0.1");
const BORROWER: &str = "north";
const LENDER: &str = "south";
/// What goes round, farm by farm.
const BURST: (usize, &str) = (60, "0.1");
/// How long a worker stays where it is, at least. Events are told in whole milliseconds.
const STAY_MS: i64 = 999;
/// How long a witness rests between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// One at a time: more farms than one pair on a small host would test the host.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks at all farms again and again. Whoever is listed as killed may be missing.
struct Witness<'a> {
    farms: &'a Ledgers,
    flood: &'a Flood<'a>,
    killed: Mutex<BTreeSet<String>>,
    looks: AtomicU64,
    stop: AtomicBool,
}

impl<'a> Witness<'a> {
    fn new(farms: &'a Ledgers, flood: &'a Flood<'a>) -> Self {
        let (killed, looks, stop) = (Mutex::default(), AtomicU64::new(0), AtomicBool::new(false));
        Self { farms, flood, killed, looks, stop }
    }

    /// Looks while something is done.
    fn while_it_looks<T>(&self, act: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            scope.spawn(|| {
                while !self.stop.load(Ordering::Relaxed) {
                    self.look();
                    thread::sleep(PAUSE);
                }
            });
            let _stop = StopAtEnd(&self.stop);
            act()
        })
    }

    fn look(&self) {
        self.flood.look();
        for farm in &self.farms.farms {
            self.count_workers(&farm.name, &farm.workers);
            self.check_loans(&farm.name, &farm.workers);
        }
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    /// Every worker is counted once by its owner, wherever it works; guests are workers of neighbours.
    fn count_workers(&self, farm: &str, own: &BTreeSet<String>) {
        let workers = self.farms.workers(farm);
        let (at_home, guests): (Vec<_>, Vec<_>) = workers.iter().partition(|worker| worker["home"] == farm);
        let mut names: Vec<String> = at_home.iter().map(|worker| text(&worker["name"])).collect();
        let killed = self.killed.lock().expect("nobody panics while noting").clone();
        names.extend(killed.intersection(own).filter(|dead| !names.contains(dead)).cloned().collect::<Vec<_>>());
        names.sort();
        assert!(names.iter().eq(own), "{farm} counts its workers wrongly: {workers:?}");
        for guest in guests {
            let name = text(&guest["name"]);
            let (worker, home) = name.split_once('@').unwrap_or_else(|| panic!("{name} has no home: {workers:?}"));
            assert!(guest["home"] == home && self.farms.member(home).workers.contains(worker), "{workers:?}");
        }
    }

    /// Nobody is under two loans, and only own workers are lent.
    fn check_loans(&self, farm: &str, own: &BTreeSet<String>) {
        let loans = self.farms.loans(farm);
        let who = |loan: &Value| (text(&loan["worker"]), text(&loan["home"]));
        let all: BTreeSet<_> = loans.iter().map(who).collect();
        assert_eq!(all.len(), loans.len(), "somebody is lent twice: {loans:?}");
        for loan in loans.iter().filter(|loan| loan["direction"] == "lent") {
            assert!(loan["home"] == farm && own.contains(&text(&loan["worker"])), "{loans:?}");
        }
    }
}

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    BorrowersLeader,
    LendersLeader,
    BothLeaders,
    /// A worker that is lent and has not arrived.
    InTransit,
    /// A borrowed worker that runs a task.
    AtWork,
}

/// When leaders are killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// A borrowed worker runs a task.
    AtWork,
    /// The lender has just written down that it lends.
    Lent,
    /// All tasks have ended, and everybody is about to go home.
    Calm,
}

const MOMENTS: [Moment; 3] = [Moment::AtWork, Moment::Lent, Moment::Calm];

impl Moment {
    fn wait(self, farms: &Ledgers, flood: &Flood<'_>) {
        match self {
            Self::AtWork => _ = eventually("a borrowed worker to work", || flood.guest_at_work()),
            Self::Lent => _ = just_lent(farms),
            Self::Calm => flood.wait(),
        }
    }
}

/// A worker that the lender has written down as lent.
fn just_lent(farms: &Ledgers) -> (String, String) {
    eventually("somebody to be lent", || {
        let loans = farms.loans(LENDER);
        loans.first().map(|loan| (LENDER.to_owned(), text(&loan["worker"])))
    })
}

impl Victim {
    /// Waits for the moment. Who is to be killed now?
    fn choose(self, farms: &Ledgers, flood: &Flood<'_>, moment: Moment) -> Vec<(String, String)> {
        let leader = |farm: &str| (farm.to_owned(), farms.leader(farm));
        match self {
            Self::InTransit => return vec![just_lent(farms)],
            Self::AtWork => return vec![eventually("a borrowed worker to work", || flood.guest_at_work())],
            _ => moment.wait(farms, flood),
        }
        match self {
            Self::BorrowersLeader => vec![leader(BORROWER)],
            Self::LendersLeader => vec![leader(LENDER)],
            _ => vec![leader(BORROWER), leader(LENDER)],
        }
    }

    const fn is_worker(self) -> bool {
        matches!(self, Self::InTransit | Self::AtWork)
    }
}

/// Floods one farm and kills meanwhile; in the end everything is as it was.
fn kill_meanwhile(victim: Victim) {
    let _turn = turn();
    let rounds = number_from("PRIMUS_LENDING_KILLS").unwrap_or(1);
    let place = Place::new();
    let neighbourhood = Neighbourhood::up(&place, UP);
    for (round, moment) in (1..=rounds).zip(MOMENTS.into_iter().cycle()) {
        let verdict = flood_and_kill(&place, &neighbourhood, victim, moment);
        println!("round {round}: {victim:?} {moment:?}: {verdict:?}");
        tally::add("kills", 1);
    }
    neighbourhood.end();
}

fn flood_and_kill(place: &Place, neighbourhood: &Neighbourhood<'_>, victim: Victim, moment: Moment) -> Verdict {
    let farms = &neighbourhood.ledgers;
    let flood = Flood::begin(place, farms, BORROWER, TASKS);
    let witness = Witness::new(farms, &flood);
    let (victims, dead) = witness.while_it_looks(|| {
        let victims = victim.choose(farms, &flood, moment);
        let names = victims.iter().map(|(_, node)| node.clone()).filter(|_| victim.is_worker());
        let dead: BTreeSet<String> = names.collect();
        witness.killed.lock().expect("nobody panics while noting").clone_from(&dead);
        neighbourhood.kill(&victims);
        flood.wait();
        farms.await_all_home(&dead);
        (victims, dead)
    });
    neighbourhood.restart(&victims);
    farms.await_all_home(&BTreeSet::new());
    assert!(witness.looks.load(Ordering::Relaxed) > 10, "nobody looked");
    own_workers_work_at_home(farms);
    let verdict = flood.judge();
    // Only what was with a worker that died may run again.
    assert!(verdict.reruns.len() <= dead.len(), "{verdict:?}");
    verdict
}

/// As many tasks at once as there are workers: if all are home, each has one.
fn own_workers_work_at_home(farms: &Ledgers) {
    for farm in &farms.farms {
        let key = format!("{:?}", std::time::SystemTime::now());
        let by = farms.run(&farm.name, &key, farm.workers.len(), &["sleep", "0.{}"]);
        assert_eq!(by, farm.workers, "{} does not work with all its own", farm.name);
    }
}

#[test]
fn a_flooded_farm_borrows_and_everybody_comes_home() {
    let _turn = turn();
    let place = Place::new();
    let neighbourhood = Neighbourhood::up(&place, UP);
    let farms = &neighbourhood.ledgers;
    let flood = Flood::begin(&place, farms, BORROWER, TASKS);
    let witness = Witness::new(farms, &flood);
    witness.while_it_looks(|| {
        flood.wait();
        farms.await_all_home(&BTreeSet::new());
    });
    let verdict = flood.judge();
    println!("{verdict:?}");
    assert_eq!((verdict.starts, verdict.reruns), (TASKS.0, Vec::<String>::new()));
    assert_eq!(verdict.guests, farms.member(LENDER).workers);
    assert!(verdict.starts_at_guests > 20, "{}", verdict.starts_at_guests);
    own_workers_work_at_home(farms);
    the_story_is_told(&farms.events(), &verdict.guests);
    assert_eq!(neighbourhood.end(), "");
}

/// Saturated, asked, lent, borrowed, calm, given back and home, in this order, for every worker that was lent.
fn the_story_is_told(events: &[(String, Value)], guests: &BTreeSet<String>) {
    let find = |farm: &str, kind: &str, worker: Option<&str>| {
        let is_it = |(from, event): &&(String, Value)| {
            from == farm && event["kind"] == kind && worker.is_none_or(|worker| event["worker"] == worker)
        };
        let found: Vec<String> = events.iter().filter(is_it).map(|(_, event)| text(&event["time"])).collect();
        match &found[..] {
            [time] => time.clone(),
            [time, ..] if worker.is_none() => time.clone(),
            _ => panic!("{farm} should tell once of {kind} {worker:?}: {events:?}"),
        }
    };
    for worker in guests {
        let guest = format!("{worker}@{LENDER}");
        let lent = find(LENDER, "lent", Some(worker));
        let borrowed = find(BORROWER, "borrowed", Some(&guest));
        let calm = find(BORROWER, "calm", None);
        let story = [find(BORROWER, "saturated", None), find(BORROWER, "loan_asked", None), lent, borrowed, calm];
        assert!(story.is_sorted(), "{story:?}: {events:?}");
        let ends = [find(BORROWER, "given_back", Some(&guest)), find(LENDER, "loan_home", Some(worker))];
        assert!(ends.iter().all(|end| *end >= story[4]), "{story:?} {ends:?}: {events:?}");
    }
}

/// Bursts move round five farms. Everybody goes where the work is, but nobody to and fro.
#[test]
fn bursts_that_move_round_five_farms_toss_nobody_about() {
    let _turn = turn();
    let place = Place::new();
    let neighbourhood = Neighbourhood::up(&place, "--farms 5 --servers 1 --workers 2 --slots 1");
    let farms = &neighbourhood.ledgers;
    let mut floods: Vec<Flood<'_>> = Vec::new();
    for farm in &farms.farms {
        let flood = Flood::begin(&place, farms, &farm.name, BURST);
        // The next one begins while this one goes on.
        eventually("half of a burst to be over", || {
            flood.look();
            (flood.ended() > BURST.0 / 2).then_some(())
        });
        floods.push(flood);
    }
    floods.iter().for_each(Flood::wait);
    farms.await_all_home(&BTreeSet::new());
    let verdicts: Vec<Verdict> = floods.iter().map(Flood::judge).collect();
    assert!(verdicts.iter().all(|verdict| verdict.reruns.is_empty()), "{verdicts:?}");
    let at_guests: usize = verdicts.iter().map(|verdict| verdict.starts_at_guests).sum();
    judge_allegiance(&floods.iter().collect::<Vec<_>>());
    let changes = nobody_is_tossed_about(&farms.events());
    let utilisation = utilisation(&floods, farms);
    println!("{at_guests} tasks were done by borrowed workers; {changes} times somebody went or came home");
    println!("{utilisation:.0} % of all slots were in use from the first start to the last end");
    assert!(at_guests > BURST.0 / 2 && changes > 10, "{verdicts:?}");
    assert_eq!(neighbourhood.end(), "");
}

/// How much of all slots of all farms was in use while there was something to do, in hundredths.
fn utilisation(floods: &[Flood<'_>], farms: &Ledgers) -> f64 {
    let slots: usize = farms.farms.iter().map(|farm| farm.workers.len()).sum();
    let spans: Vec<(u64, u64, u64)> = floods.iter().map(Flood::span).collect();
    let busy: u64 = spans.iter().map(|(busy, ..)| busy).sum();
    let first = spans.iter().map(|(_, first, _)| *first).min().unwrap_or(0);
    let last = spans.iter().map(|(_, _, last)| *last).max().unwrap_or(0);
    100.0 * busy as f64 / (slots as f64 * (last - first).max(1) as f64)
}

/// A worker stays where it is for a while, whether that is home or not. How often did any go or come back?
fn nobody_is_tossed_about(events: &[(String, Value)]) -> usize {
    let (mut last, mut changes) = (BTreeMap::<String, (String, i64)>::new(), 0);
    // Whoever was called back before it had gone has not changed its place.
    let gone = events.iter().filter(|(_, event)| event["kind"] == "borrowed");
    let gone: BTreeSet<(String, u64)> = gone
        .map(|(_, event)| (text(&event["from"]), event["loan"].as_u64().expect("a loan has a number")))
        .collect();
    let is_change = |(home, event): &&(String, Value)| {
        (event["kind"] == "lent" || event["kind"] == "loan_home")
            && event["loan"].as_u64().is_some_and(|loan| gone.contains(&(home.clone(), loan)))
    };
    for (_, event) in events.iter().filter(is_change) {
        let time: Timestamp = text(&event["time"]).parse().expect("a time is a point in time");
        let (kind, time_ms) = (text(&event["kind"]), time.as_millisecond());
        changes += 1;
        if let Some((before, since)) = last.insert(text(&event["worker"]), (kind.clone(), time_ms)) {
            assert_ne!(before, kind, "{event}");
            assert!(time_ms >= since + STAY_MS, "{event} came {} ms after the last", time_ms - since);
        }
    }
    changes
}

#[test]
fn the_borrowers_leader_may_die() {
    kill_meanwhile(Victim::BorrowersLeader);
}

#[test]
fn the_lenders_leader_may_die() {
    kill_meanwhile(Victim::LendersLeader);
}

#[test]
fn both_leaders_may_die_at_once() {
    kill_meanwhile(Victim::BothLeaders);
}

#[test]
fn a_worker_may_die_on_its_way() {
    kill_meanwhile(Victim::InTransit);
}

#[test]
fn a_borrowed_worker_may_die_at_work() {
    kill_meanwhile(Victim::AtWork);
}
