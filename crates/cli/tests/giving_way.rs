//! End to end: elections that an operator wants, servers that gave way and stay out of them, and servers that are missing.
//!
//! The servers are configured by files, so that a busy host does not make them suspect each other: only what a test does
//! moves the leader.

mod common;

use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::broker::free_ports;
use common::http::ask;
use common::place::{Place, Ran};
use common::{eventually, eventually_or, send};
use rustix::process::Signal;
use serde_json::{Value, json};

/// How long a leader is watched that should stay.
const WATCHED: Duration = Duration::from_secs(5);

/// Three servers with a section `[election]` of their own.
struct Cluster<'a> {
    place: &'a Place,
    /// Where each listens, for its peers and, one port above, for others.
    ports: Vec<u16>,
    servers: Vec<Option<Child>>,
    more: &'static str,
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        (1..=self.servers.len()).for_each(|id| self.kill(id));
    }
}

impl<'a> Cluster<'a> {
    fn start(place: &'a Place, more: &'static str) -> Self {
        let ports = (0..3).map(|_| free_ports()).collect();
        let mut cluster = Self { place, ports, servers: vec![None, None, None], more };
        for id in 1..=3 {
            cluster.set_load(id, 10);
            cluster.run(id);
        }
        cluster
    }

    fn run(&mut self, id: usize) {
        let server = |(place, port): (usize, &u16)| {
            let api = port + 1;
            format!("{{ id = {}, address = \"127.0.0.1:{port}\", api = \"127.0.0.1:{api}\" }}, ", place + 1)
        };
        let servers: String = self.ports.iter().enumerate().map(server).collect();
        let text = format!(
            "[server]\nid = {id}\nfarm = \"north\"\ndir = \"data-{id}\"\n[load]\nsource = \"file:load-{id}\"\n\
             [cluster]\nservers = [{servers}]\n[election]\nsilence_min = \"5s\"\n{}\n",
            self.more
        );
        fs::write(self.place.dir.join(format!("server-{id}.toml")), text).expect("a file can be written");
        let complaints = File::create(self.place.dir.join(format!("diary-{id}"))).expect("a file can be made");
        let mut command = self.place.command(&["server", "--config", &format!("server-{id}.toml")]);
        let child = command.stdin(Stdio::null()).stderr(complaints).spawn().expect("primus starts");
        self.servers[id - 1] = Some(child);
    }

    fn kill(&mut self, id: usize) {
        if let Some(mut child) = self.servers[id - 1].take() {
            _ = child.kill();
            _ = child.wait();
        }
    }

    fn pid(&self, id: usize) -> u64 {
        self.servers[id - 1].as_ref().expect("it runs").id().into()
    }

    fn set_load(&self, id: usize, points: u32) {
        fs::write(self.place.dir.join(format!("load-{id}")), points.to_string()).expect("a file can be written");
    }

    fn api(&self, id: usize) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports[id - 1] + 1))
    }

    fn run_at(&self, id: usize, line: &str) -> Ran {
        self.place.primus(&format!("{line} --api {}", self.api(id)))
    }

    /// What a command says on one line that asks this server, once it says anything.
    fn ask(&self, id: usize, line: &str) -> Option<Value> {
        serde_json::from_str(&self.run_at(id, &format!("{line} -o json")).stdout).ok()
    }

    fn views(&self) -> Vec<Option<u64>> {
        let running = (1..=3).filter(|id| self.servers[id - 1].is_some());
        running.map(|id| self.ask(id, "leader")?["leader"].as_u64()).collect()
    }

    fn await_leader(&self, leader: u64) {
        eventually_or(&format!("server {leader} to lead"), || {
            let views = self.views();
            views.iter().all(|view| *view == Some(leader)).then_some(()).ok_or_else(|| format!("{views:?}"))
        });
    }

    /// It leads, and goes on leading in the same term.
    fn stays(&self, leader: u64) {
        self.await_leader(leader);
        let at = usize::try_from(leader).expect("ids are small");
        let term = self.ask(at, "leader").expect("it answers")["term"].clone();
        let until = Instant::now() + WATCHED;
        while Instant::now() < until {
            let now = self.ask(at, "leader").expect("it answers");
            assert_eq!((&now["leader"], &now["term"]), (&leader.into(), &term), "{now}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Has a command carried out that moves leadership to this server. On a busy host a transfer may come to nothing at first, or
    /// to something a little late.
    fn move_leader(&self, id: usize, line: &str, to: u64) {
        eventually_or(line, || {
            let leader = self.ask(id, "leader").and_then(|leader| leader["leader"].as_u64());
            let ran = if leader == Some(to) { None } else { Some(self.run_at(id, line)) };
            let is_done = ran.as_ref().is_none_or(|ran| ran.code == Some(0));
            is_done.then_some(()).ok_or_else(|| format!("{ran:?}"))
        });
        self.await_leader(to);
    }

    /// One server as another sees it.
    fn seen(&self, by: usize, id: usize) -> Option<Value> {
        let servers = self.ask(by, "status")?["servers"].clone();
        servers.as_array()?.iter().find(|server| server["id"] == id).cloned()
    }

    /// Waits until a server knows who gave way to whom.
    fn await_gave_way(&self, by: usize, expected: &[Option<u64>; 3]) {
        eventually_or("everybody to know who gave way", || {
            let status = self.ask(by, "status").unwrap_or_default();
            let seen: Vec<Option<u64>> =
                (0..3).map(|place| status["servers"][place]["gave_way_to"].as_u64()).collect();
            (seen == expected).then_some(()).ok_or_else(|| status.to_string())
        });
    }

    fn events(&self, id: usize, kind: &str) -> Vec<Value> {
        let said = self.run_at(id, "events -o json").stdout;
        let events = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(|event| event["kind"] == kind).collect()
    }
}

/// What is measured is smoothed.
fn is_near(score: Option<f64>, points: f64) -> bool {
    score.is_some_and(|score| (score - points).abs() < 1.0)
}

/// Server 3 ranks best. It resigns, and that lasts: for seconds, after restarts, until somebody wants it otherwise.
fn a_resignation_lasts(more: &'static str) {
    let place = Place::new();
    let mut cluster = Cluster::start(&place, more);
    cluster.await_leader(3);
    cluster.move_leader(1, "resign", 2);
    cluster.stays(2);
    cluster.await_gave_way(1, &[None, None, Some(2)]);
    let explained = cluster.ask(1, "explain leader").expect("it answers");
    assert_eq!(explained["gave_way"], json!([{"server": 3, "to": 2}]), "{explained}");
    let sentence = explained["sentence"].as_str().expect("a sentence");
    assert!(sentence.contains(" Server 3 gave way to server 2. "), "{sentence}");
    let shown = cluster.run_at(1, "status").stdout;
    assert!(shown.contains("server 3 gave way to server 2: it does not stand"), "{shown}");

    // It and another follower start again.
    for id in [3, 1] {
        cluster.kill(id);
        cluster.run(id);
        eventually("it to be back", || (cluster.seen(2, id)?["state"] == "up").then_some(()));
    }
    cluster.stays(2);
    cluster.await_gave_way(3, &[None, None, Some(2)]);

    // An operator has an election held, through a server that does not lead.
    cluster.move_leader(1, "elect", 3);
    cluster.stays(3);
    cluster.await_gave_way(1, &[None, None, None]);

    // The leader that it gave way to dies.
    cluster.move_leader(2, "resign", 2);
    cluster.await_leader(2);
    cluster.await_gave_way(1, &[None, None, Some(2)]);
    cluster.kill(2);
    cluster.await_leader(3);
    cluster.await_gave_way(1, &[None, None, None]);
}

#[test]
fn a_resignation_lasts_where_ids_rank() {
    a_resignation_lasts("rank = \"id\"");
}

#[test]
fn a_resignation_lasts_where_addresses_rank() {
    a_resignation_lasts("rank = \"address\"");
}

#[test]
fn a_resignation_lasts_in_a_ring() {
    a_resignation_lasts("algorithm = \"ring\"");
}

#[test]
fn a_transfer_lasts_until_the_next_one_and_when_all_start_again() {
    let place = Place::new();
    let mut cluster = Cluster::start(&place, "rank = \"id\"");
    cluster.await_leader(3);
    cluster.move_leader(2, "transfer 1", 1);
    // Nor does server 2 take over, which ranks better, too.
    cluster.stays(1);
    cluster.await_gave_way(2, &[None, None, Some(1)]);
    (1..=3).for_each(|id| cluster.kill(id));
    (1..=3).for_each(|id| cluster.run(id));
    // Of those who stand the best leads.
    cluster.stays(2);
    cluster.await_gave_way(1, &[None, None, Some(1)]);
    cluster.move_leader(1, "transfer 3", 3);
    cluster.stays(3);
    cluster.await_gave_way(1, &[None, Some(3), None]);
}

#[test]
fn an_election_confirms_the_leader_or_moves_leadership_whoever_is_asked() {
    let place = Place::new();
    let cluster = Cluster::start(&place, "rank = \"load\"\nleast_tenure = \"10m\"");
    let first = eventually("a leader", || cluster.views().into_iter().collect::<Option<Vec<_>>>()).remove(0);
    let first = usize::try_from(first).expect("ids are small");
    let (second, third) = (first % 3 + 1, (first + 1) % 3 + 1);
    cluster.set_load(first, 20);
    cluster.set_load(second, 60);
    cluster.set_load(third, 90);
    let has_scores = |scores: [(usize, f64); 3]| {
        eventually("the loads to be known", || {
            let status = cluster.ask(first, "status")?;
            let score = |id: usize| status["servers"][id - 1]["score"].as_f64();
            scores.iter().all(|(id, points)| is_near(score(*id), *points)).then_some(())
        });
    };
    has_scores([(first, 20.0), (second, 60.0), (third, 90.0)]);
    let term = cluster.ask(first, "leader").expect("it answers")["term"].clone();
    for asked in 1..=3 {
        let held = cluster.ask(asked, "elect").expect("it answers");
        assert_eq!((&held["started"], &held["outcome"]), (&true.into(), &"confirmed".into()), "{held}");
        assert_eq!((&held["leader"], &held["previous"]), (&first.into(), &first.into()), "{held}");
        assert_eq!((&held["asked"], &held["held_by"]), (&asked.into(), &first.into()), "{held}");
        assert_eq!(held["term"], term, "{held}");
        assert_eq!(held["scores"].as_array().map(Vec::len), Some(3), "{held}");
        let one = &held["scores"][second - 1];
        assert!(one["id"] == second && is_near(one["score"].as_f64(), 60.0), "{held}");
    }
    for id in 1..=3 {
        let confirmed = eventually("everybody to be told", || {
            let events = cluster.events(id, "leader_confirmed");
            (events.len() == 3).then_some(events)
        });
        let asked: Vec<&Value> = confirmed.iter().map(|event| &event["asked"]).collect();
        assert_eq!(asked, [1, 2, 3], "{confirmed:?}");
        assert!(confirmed.iter().all(|event| event["leader"] == first && event["held_by"] == first));
        let one = &confirmed[0]["scores"][third - 1];
        assert!(one["id"] == third && is_near(one["score"].as_f64(), 90.0), "{confirmed:?}");
        assert_eq!(cluster.events(id, "leader_changed").len(), 1, "nobody was deposed");
    }
    let said = cluster.run_at(second, "elect");
    let confirmed = format!("confirmed: server {first} ranks best and leads on in term {term} (scores: 1 at ");
    assert!(said.code == Some(0) && said.stdout.starts_with(&confirmed), "{said:?}");

    // It grows busy, and stays for now: the least tenure is long. An operator does not want to wait.
    cluster.set_load(first, 95);
    has_scores([(first, 95.0), (second, 60.0), (third, 90.0)]);
    let held = eventually("the election to be won", || cluster.ask(third, "elect"));
    assert_eq!(held["leader"], second, "{held}");
    if held["outcome"] != "confirmed" {
        assert_eq!((&held["outcome"], &held["previous"]), (&"transferred".into(), &first.into()), "{held}");
        assert_eq!(held["held_by"], first, "{held}");
    }
    cluster.await_leader(second as u64);
    let changes = cluster.events(third, "leader_changed");
    assert_eq!(changes.last().expect("it changed")["reason"], "operator", "{changes:?}");
    cluster.await_gave_way(third, &[None, None, None]);
}

#[test]
fn a_missing_server_is_shown_with_the_reason() {
    let place = Place::new();
    let mut cluster = Cluster::start(&place, "rank = \"id\"");
    cluster.await_leader(3);
    let own = cluster.seen(3, 3).expect("it answers");
    assert_eq!((&own["state"], &own["role"], &own["why"]), (&"up".into(), &"leader".into(), &Value::Null), "{own}");
    let follower = eventually("its load", || cluster.seen(3, 1).filter(|server| server["score"].is_f64()));
    assert_eq!((&follower["state"], &follower["role"]), (&"up".into(), &"follower".into()), "{follower}");
    assert!(follower["heard_ms"].as_f64() < Some(30_000.0) && follower["since"].is_string(), "{follower}");

    cluster.kill(1);
    let dead = eventually("its death", || cluster.seen(2, 1).filter(|server| server["state"] == "dead"));
    assert_eq!(
        (&dead["alive"], &dead["role"], &dead["score"]),
        (&false.into(), &Value::Null, &Value::Null),
        "{dead}"
    );
    assert_eq!(dead["why"], "its port refuses connections", "{dead}");
    assert!(dead["heard_ms"].is_f64() && dead["since"].is_string() && dead["tasks"].is_null(), "{dead}");
    let shown = cluster.run_at(3, "status").stdout;
    let row = shown.lines().find(|line| line.starts_with("1 ")).expect("a row");
    assert!(row.split_whitespace().take(4).eq(["1", "-", "dead", "-"]), "{shown}");
    assert!(shown.contains("server 1 is dead since "), "{shown}");

    // One that only stands still is suspected, and is up when it goes on.
    cluster.run(1);
    eventually("it to be back", || (cluster.seen(3, 1)?["state"] == "up").then_some(()));
    send(Signal::STOP, &[cluster.pid(1)]);
    let frozen = eventually("its silence", || cluster.seen(3, 1).filter(|server| server["state"] == "suspected"));
    assert_eq!((&frozen["role"], &frozen["alive"]), (&Value::Null, &true.into()), "{frozen}");
    assert_eq!(frozen["why"], "it is silent: frozen, cut off or very busy", "{frozen}");
    send(Signal::CONT, &[cluster.pid(1)]);
    eventually("it to be heard", || (cluster.seen(3, 1)?["state"] == "up").then_some(()));

    // One whose disk was wiped belongs to no cluster: all of them say so, and it is not ready.
    cluster.kill(1);
    fs::remove_dir_all(place.dir.join("data-1")).expect("its folder can be removed");
    cluster.run(1);
    let refused = eventually("its refusal", || cluster.seen(3, 1).filter(|server| server["state"] == "suspected"));
    let why = "refuses: server 1 does not belong to a cluster yet";
    assert!(refused["why"].as_str().is_some_and(|said| said.contains(why)), "{refused}");
    let shown = cluster.run_at(3, "status").stdout;
    assert!(shown.contains(why) && !shown.contains("is cut off"), "{shown}");
    let (status, answer) = eventually("it to know", || {
        let founds =
            |answer: &Value| answer["error"]["message"].as_str().is_some_and(|said| said.contains("belongs"));
        ask(cluster.api(1), "GET", "/readyz", "").ok().filter(|(_, answer)| founds(answer))
    });
    let message = answer["error"]["message"].as_str().expect("a message");
    assert!(status == 503 && message.contains("Bring back the data of server 1"), "{answer}");
}

#[test]
fn a_server_that_has_heard_nobody_says_so() {
    let place = Place::new();
    let mut cluster = Cluster::start(&place, "rank = \"id\"");
    cluster.await_leader(3);
    (1..=3).for_each(|id| cluster.kill(id));
    cluster.run(2);
    let dead =
        eventually("the other ports to refuse", || cluster.seen(2, 1).filter(|server| server["state"] == "dead"));
    assert_eq!((&dead["heard_ms"], &dead["alive"]), (&Value::Null, &false.into()), "{dead}");
    let (status, answer) = ask(cluster.api(2), "GET", "/readyz", "").expect("it answers");
    assert_eq!((status, &answer["error"]["code"]), (503, &"no_leader".into()), "{answer}");
    // An election without a majority comes to nothing, and that is said.
    let held = cluster.run_at(2, "elect");
    assert!(held.code == Some(4) && held.stderr.contains("the election has not ended yet"), "{held:?}");
}
