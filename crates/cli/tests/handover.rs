//! End to end: a leader that grows busy hands over, people are told why, and hooks run, whatever becomes of them.

mod common;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Stdio};

use common::broker::free_ports;
use common::eventually;
use common::place::Place;
use serde_json::Value;

/// A server that is killed at the end.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Servers whose loads are in files.
struct Cluster<'a> {
    place: &'a Place,
    /// Where each listens, for its peers and, one port above, for others.
    ports: Vec<u16>,
    servers: Vec<Server>,
}

impl<'a> Cluster<'a> {
    /// Starts so many of all of them. Everybody has a load of 20 points.
    fn start(place: &'a Place, all: usize, started: usize, more: impl Fn(usize) -> String) -> Self {
        let mut cluster = Self { place, ports: (0..all).map(|_| free_ports()).collect(), servers: Vec::new() };
        for id in 1..=started {
            cluster.set_load(id, 20);
            let text = format!("{}{}", cluster.configuration(id), more(id));
            fs::write(place.dir.join(format!("server-{id}.toml")), text).expect("a file can be written");
            let complaints = File::create(cluster.diary(id)).expect("a file can be made");
            let mut command = place.command(&["server", "--config", &format!("server-{id}.toml")]);
            let child = command.stdin(Stdio::null()).stderr(complaints).spawn().expect("primus starts");
            cluster.servers.push(Server(child));
        }
        cluster
    }

    /// A busy host must not make them suspect each other: only loads shall move the leader.
    fn configuration(&self, id: usize) -> String {
        let server = |(place, port): (usize, &u16)| {
            let api = port + 1;
            format!("{{ id = {}, address = \"127.0.0.1:{port}\", api = \"127.0.0.1:{api}\" }}, ", place + 1)
        };
        let servers: String = self.ports.iter().enumerate().map(server).collect();
        format!(
            "[server]\nid = {id}\nfarm = \"north\"\ndir = \"data-{id}\"\n[cluster]\nservers = [{servers}]\n\
             [election]\nhandover_margin = 30\nhandover_dwell = \"300ms\"\nhandover_cooldown = \"2s\"\n\
             least_tenure = \"300ms\"\nsilence_min = \"5s\"\n[load]\nsource = \"file:load-{id}\"\n"
        )
    }

    fn diary(&self, id: usize) -> std::path::PathBuf {
        self.place.dir.join(format!("diary-{id}"))
    }

    fn set_load(&self, id: usize, points: u32) {
        fs::write(self.place.dir.join(format!("load-{id}")), points.to_string()).expect("a file can be written");
    }

    /// What a command says on one line that asks this server, once it says anything.
    fn ask(&self, id: usize, line: &str) -> Option<Value> {
        let ran = self.place.primus(&format!("{line} -o json --api 127.0.0.1:{}", self.ports[id - 1] + 1));
        serde_json::from_str(&ran.stdout).ok()
    }

    fn explain(&self, id: usize) -> Option<Value> {
        self.ask(id, "explain leader").filter(|explained| explained["leader"].is_u64())
    }

    /// Whom all take for the leader, once they do.
    fn leader(&self) -> usize {
        eventually("all to follow one leader", || {
            let views: Vec<Value> = (1..=self.servers.len()).map_while(|id| self.ask(id, "leader")).collect();
            let first = views.first().map(|view| (view["leader"].as_u64(), view["term"].as_u64()))?;
            let agree = |view: &Value| (view["leader"].as_u64(), view["term"].as_u64()) == first;
            let agreed = views.len() == self.servers.len() && views.iter().all(agree);
            usize::try_from(first.0.filter(|_| agreed)?).ok()
        })
    }

    /// The lines that `primus events` prints about this kind of event on this server.
    fn events(&self, id: usize, kind: &str) -> Vec<String> {
        let ran = self.place.primus(&format!("events -o json --api 127.0.0.1:{}", self.ports[id - 1] + 1));
        let needle = format!("\"kind\":\"{kind}\"");
        ran.stdout.lines().filter(|line| line.contains(&needle)).map(str::to_owned).collect()
    }

    fn sentence(&self) -> String {
        self.explain(1).expect("somebody leads")["sentence"].as_str().expect("a sentence").to_owned()
    }
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn hook(command: &str) -> String {
    format!("[hooks]\nleader_changed = [{command}]\n")
}

#[test]
fn a_busy_leader_hands_over_once_to_the_least_loaded_and_everybody_is_told() {
    let place = Place::new();
    let words = "$PRIMUS_FARM $PRIMUS_SERVER $PRIMUS_LEADER $PRIMUS_TERM $PRIMUS_REASON";
    let script = |id| format!("cat >> heard-{id}; echo {words} >> told-{id}");
    let cluster = Cluster::start(&place, 3, 3, |id| hook(&format!("\"sh\", \"-c\", \"{}\"", script(id))));
    let old = cluster.leader();
    let new = old % 3 + 1;

    // Less loaded by less than the margin: that is told, and moves nobody.
    cluster.set_load(new, 0);
    let before = eventually("the load to be known", || {
        let explained = cluster.explain(old)?;
        (explained["difference"].as_f64() > Some(19.5)).then_some(explained)
    });
    assert_eq!((&before["leader"], &before["best"]), (&old.into(), &new.into()), "{before}");
    assert_eq!((&before["margin"], &before["worse_for_ms"]), (&30.0.into(), &Value::Null), "{before}");
    let sentence = before["sentence"].as_str().expect("a sentence");
    assert!(sentence.contains(&format!(" Server {new} is ")), "{sentence}");
    assert!(sentence.contains(" points less loaded; handover at 30 points for 300 ms"), "{sentence}");

    cluster.set_load(old, 95);
    eventually("another leader", || (cluster.explain(1)?["leader"] == new).then_some(()));
    assert_eq!(cluster.leader(), new);
    let after = eventually("the cool-down to pass", || {
        let explained = cluster.explain(old)?;
        (explained["not_before_ms"] == 0).then_some(explained)
    });
    assert_eq!((&after["leader"], &after["reason"]), (&new.into(), &"load".into()), "{after}");
    assert_eq!(after["best"], Value::Null, "{after}");
    let sentence = after["sentence"].as_str().expect("a sentence");
    assert!(sentence.contains(&format!(" ago because server {old} was too loaded.")), "{sentence}");
    for id in 1..=3 {
        let changes = cluster.events(id, "leader_changed");
        let handovers = changes.iter().filter(|event| event.contains("\"reason\":\"load\"")).count();
        assert_eq!(handovers, 1, "{changes:?}");
        eventually("the hooks", || {
            (lines(&place.dir.join(format!("heard-{id}"))).len() == changes.len()).then_some(())
        });
        assert_eq!(lines(&place.dir.join(format!("heard-{id}"))), changes, "what is heard is what is told");
        let last = format!("north {id} {new} {} load", after["term"]);
        eventually("its environment", || {
            (lines(&place.dir.join(format!("told-{id}"))).last() == Some(&last)).then_some(())
        });
        let done = eventually("the hooks to end", || {
            let ended = cluster.events(id, "hook_ended");
            (ended.len() == changes.len()).then_some(ended)
        });
        assert!(done.iter().all(|event| event.contains("\"outcome\":\"done\"")), "{done:?}");
    }
}

#[test]
fn hooks_that_fail_are_seen_and_stop_nobody() {
    for (command, outcome, words) in [
        ("\"/no/such/program\"", "not_started", "did not run: program \"/no/such/program\" was not found"),
        ("\"sh\", \"-c\", \"echo alas >&2; exit 3\"", "failed", "failed with exit code 3 after "),
        ("\"sh\", \"-c\", \"echo slow; sleep 60\"", "timed_out", "it took too long: slow"),
    ] {
        let place = Place::new();
        let cluster = Cluster::start(&place, 1, 1, |_| format!("{}timeout = \"200ms\"\n", hook(command)));
        let event = eventually("the hook to end", || cluster.events(1, "hook_ended").pop());
        let event: Value = serde_json::from_str(&event).expect("an object");
        assert_eq!((&event["outcome"], &event["hook"]), (&outcome.into(), &"leader_changed".into()), "{event}");
        eventually("it to be written down", || {
            let diary = lines(&cluster.diary(1));
            diary
                .iter()
                .any(|line| line.contains(" warn 1: hook leader_changed ") && line.contains(words))
                .then_some(())
        });
        let api = format!("127.0.0.1:{}", cluster.ports[0] + 1);
        let told = place.primus(&format!("events --api {api}"));
        assert!(told.stdout.contains(words), "{told:?}");
        let metrics = common::http::exchange(api.parse().expect("an address"), b"GET /metrics HTTP/1.0\r\n\r\n");
        let expected = format!("\nprimus_hooks_total{{outcome=\"{outcome}\"}} 1\n");
        assert!(metrics.expect("it answers").contains(&expected));
        assert!(cluster.sentence().ends_with("It is the only server, so it leads as long as it runs."));
        assert_eq!(place.primus(&format!("kv put colour blue --api {api}")).code, Some(0));
    }
}

#[test]
fn a_hook_that_is_no_command_is_refused_at_the_start() {
    let place = Place::new();
    fs::write(place.dir.join("server.toml"), format!("[server]\nid = 1\n{}", hook(""))).expect("it can be written");
    let ran = place.primus("server --config server.toml");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    assert!(ran.stderr.starts_with("error: server.toml:4: hooks.leader_changed is empty; "), "{ran:?}");
}

#[test]
fn without_a_leader_the_explanation_says_who_is_missing() {
    let place = Place::new();
    let mut cluster = Cluster::start(&place, 3, 3, |_| String::new());
    let line = format!("explain leader --api 127.0.0.1:{}", cluster.ports[0] + 1);
    let explained = |begins: &str| {
        eventually(begins, || {
            let ran = place.primus(&line);
            ran.stdout.starts_with(begins).then_some(ran)
        })
    };
    explained("Server ");
    cluster.servers.truncate(1);
    let ran = explained("No server leads since ");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(4), ""), "{ran:?}");
    assert!(ran.stdout.ends_with("Server 1 reaches 1 of 3 servers, itself included; 2 must agree.\n"), "{ran:?}");
    let explained = cluster.ask(1, "explain leader").expect("an object");
    assert_eq!((&explained["leader"], &explained["best"]), (&Value::Null, &Value::Null), "{explained}");
}

#[test]
fn a_better_rank_takes_over_and_that_is_explained() {
    let place = Place::new();
    let farm = place.up("--rank id --workers 0");
    let sentence = |needle: &str| {
        eventually(needle, || {
            let ran = place.primus("explain leader");
            ran.stdout.contains(needle).then_some(ran.stdout)
        })
    };
    sentence("Server 3 leads in term ");
    place.json("chaos kill 3");
    sentence(
        "because the link to server 3 was lost. No live server ranks better; one that does takes over once it ",
    );
    place.json("chaos restart 3");
    sentence("because it ranks better than server 2. No live server ranks better; ");
    let explained = place.json("explain leader");
    assert_eq!((&explained["algorithm"], &explained["rank"]), (&"bully".into(), &"id".into()), "{explained}");
    assert_eq!((&explained["reason"], &explained["difference"]), (&"rank".into(), &Value::Null), "{explained}");
    farm.end();
}

#[test]
fn handovers_are_measured_and_leave_nothing_behind() {
    let place = Place::new();
    let bench = place.json("bench handover --runs 2");
    assert_eq!(
        (&bench["bench"], &bench["servers"], &bench["handovers"]),
        (&"handover".into(), &3.into(), &2.into())
    );
    assert_eq!(bench["runs"].as_array().map(Vec::len), Some(2), "{bench}");
    assert!(["median_ms", "p90_ms", "max_ms"].iter().all(|figure| bench[figure].as_f64() > Some(0.0)), "{bench}");
    assert!(place.known().is_empty() && place.left().is_empty(), "{:?}", place.left());
}
