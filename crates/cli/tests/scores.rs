//! End to end: what runs on a host counts in its score, tasks find workers by it, and a farm is saturated when ten tasks wait.

mod common;

use std::fs::{self, File};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use common::broker::free_ports;
use common::http::exchange;
use common::place::Place;
use common::{eventually, eventually_or};
use serde_json::Value;

/// A server or worker that is killed at the end.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Servers that are configured by files, and their loads, too.
struct Cluster<'a> {
    place: &'a Place,
    ports: Vec<u16>,
    nodes: Vec<Node>,
}

impl<'a> Cluster<'a> {
    /// Starts so many servers whose files say this, too. Everybody is idle.
    fn start(place: &'a Place, count: usize, more: &str) -> Self {
        let ports = (0..count).map(|_| free_ports()).collect();
        let mut cluster = Self { place, ports, nodes: Vec::new() };
        for id in 1..=count {
            cluster.set_usage(id, 0, 0);
            // A busy host must not make them suspect each other.
            let text = format!(
                "[server]\nid = {id}\nfarm = \"north\"\ndir = \"data-{id}\"\n{}[load]\nsource = \"file:load-{id}\"\n\
                 [election]\nsilence_min = \"5s\"\n{more}",
                cluster.servers()
            );
            cluster.spawn("server", &format!("server-{id}"), &text, &[]);
        }
        eventually("a leader", || cluster.ask("leader").filter(|answer| answer["leader"].is_u64()));
        cluster
    }

    fn servers(&self) -> String {
        let server = |(place, port): (usize, &u16)| {
            format!("{{ id = {}, address = \"127.0.0.1:{port}\", api = \"127.0.0.1:{}\" }}, ", place + 1, port + 1)
        };
        let servers: String = self.ports.iter().enumerate().map(server).collect();
        format!("[cluster]\nservers = [{servers}]\n")
    }

    /// A worker on the host of this server.
    fn start_worker(&mut self, name: &str, slots: u32, beside: u64) {
        let text = format!(
            "[server]\nfarm = \"north\"\n{}[worker]\nname = \"{name}\"\nslots = {slots}\nallow = [\"*\"]\n\
             dir = \"data-{name}\"\n[load]\nsource = \"file:load-{beside}\"\n",
            self.servers()
        );
        self.spawn("worker", name, &text, &["--beside", &beside.to_string()]);
        eventually("the worker to join", || {
            let workers = self.ask("status")?["workers"].as_array()?.clone();
            workers.iter().any(|worker| worker["name"] == name && worker["registered"] == true).then_some(())
        });
    }

    fn spawn(&mut self, what: &str, name: &str, text: &str, more: &[&str]) {
        let file = format!("{name}.toml");
        fs::write(self.place.dir.join(&file), text).expect("a file can be written");
        let complaints = File::create(self.place.dir.join(format!("{name}.log"))).expect("a file can be made");
        let words: Vec<&str> = [what, "--config", &file].into_iter().chain(more.iter().copied()).collect();
        let mut command = self.place.command(&words);
        let child = command.stdin(Stdio::null()).stderr(complaints).spawn().expect("primus starts");
        self.nodes.push(Node(child));
    }

    /// What its processors and its memory are used for, in percent.
    fn set_usage(&self, id: usize, cpu: u32, memory: u32) {
        let text = format!("cpu = {cpu}\nmemory = {memory}\n");
        fs::write(self.place.dir.join(format!("load-{id}")), text).expect("a file can be written");
    }

    fn api(&self) -> String {
        format!("--api http://127.0.0.1:{}", self.ports[0] + 1)
    }

    fn ask(&self, line: &str) -> Option<Value> {
        let ran = self.place.primus(&format!("{line} -o json {}", self.api()));
        serde_json::from_str(&ran.stdout).ok()
    }

    /// Submits so many tasks that run until they are cancelled. What is the job called?
    fn submit(&self, count: u32) -> String {
        let ran = self.place.primus(&format!("submit --array 1-{count} -o json {} -- sleep 300", self.api()));
        let answer: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
        answer["job"].as_str().expect("a job has a name").to_owned()
    }

    /// Waits until status says this of a server or worker: tasks, score.
    fn await_load(&self, list: &str, node: usize, tasks: u64, score: f64) {
        eventually_or(&format!("{tasks} tasks and a score of {score} in {list}"), || {
            let status = self.ask("status").ok_or("no answer")?;
            let found = &status[list][node];
            let is_so = found["tasks"] == tasks && found["score"].as_f64() == Some(score);
            if is_so { Ok(()) } else { Err(status.to_string()) }
        });
    }
}

/// Idle, moderately loaded, heavily loaded: as the load-aware document computes it, on a server and on its worker.
#[test]
fn the_worked_examples_of_the_load_aware_document_hold_on_a_live_node() {
    let place = Place::new();
    let cluster = Cluster::start(&place, 1, "[worker]\nslots = 12\nallow = [\"*\"]\n");
    let nodes = ["servers", "workers"];
    nodes.into_iter().for_each(|list| cluster.await_load(list, 0, 0, 0.0));
    let jobs = [(5, 5, 40, 43.0), (7, 12, 80, 86.0)].map(|(more, all, used, score)| {
        cluster.set_usage(1, used, used);
        let job = cluster.submit(more);
        nodes.into_iter().for_each(|list| cluster.await_load(list, 0, all, score));
        job
    });
    let status = cluster.ask("status").expect("it answers");
    for list in nodes {
        let [cpu, memory] = ["cpu", "memory"].map(|part| status[list][0][part].as_f64());
        assert_eq!((cpu, memory), (Some(80.0), Some(80.0)), "{status}");
    }
    let text = place.primus(&format!("status {}", cluster.api())).stdout;
    let header = |name: &str| text.lines().any(|line| line.starts_with(name) && line.contains("TASKS"));
    assert!(header("SERVER") && header("WORKER") && text.contains("86.0"), "{text}");
    for job in jobs {
        assert_eq!(place.primus(&format!("cancel {job} {}", cluster.api())).code, Some(0));
    }
    nodes.into_iter().for_each(|list| cluster.await_load(list, 0, 0, 56.0));
}

/// Two workers beside one server; then one of them dies.
#[test]
fn tasks_of_a_worker_raise_the_score_of_the_server_beside_it_until_its_link_is_lost() {
    let place = Place::new();
    let mut cluster = Cluster::start(&place, 3, "");
    cluster.start_worker("w1", 4, 2);
    cluster.start_worker("w2", 4, 2);
    cluster.submit(8);
    cluster.await_load("servers", 1, 8, 24.0);
    cluster.await_load("servers", 0, 0, 0.0);
    cluster.await_load("servers", 2, 0, 0.0);
    cluster.await_load("workers", 0, 4, 12.0);
    drop(cluster.nodes.pop());
    cluster.await_load("servers", 1, 4, 12.0);
}

#[test]
fn up_pairs_workers_with_servers_in_turn() {
    let place = Place::new();
    let farm = place.up("--servers 3 --workers 4 --slots 2");
    assert_eq!(place.primus("submit --array 1-8 -- sleep 300").code, Some(0));
    eventually_or("tasks on all servers", || {
        let status = place.json("status");
        let tasks: Vec<Option<u64>> = (0..3).map(|server| status["servers"][server]["tasks"].as_u64()).collect();
        // Two workers stand beside the first server.
        if tasks != [Some(4), Some(2), Some(2)] {
            return Err(status.to_string());
        }
        for server in status["servers"].as_array().expect("a list") {
            let [score, cpu, memory, tasks] = ["score", "cpu", "memory", "tasks"].map(|part| server[part].as_f64());
            let (Some(score), Some(cpu), Some(memory), Some(tasks)) = (score, cpu, memory, tasks) else {
                return Err(status.to_string());
            };
            let expected = 0.5 * cpu + 3.0 * tasks + 0.2 * memory;
            assert!((score - expected).abs() < 0.02, "{score} is not {expected}: {server}");
        }
        Ok(())
    });
    drop(farm);
}

/// The leader's host gets busy with our own tasks, and with nothing else.
#[test]
fn a_leader_whose_host_is_full_of_tasks_hands_over() {
    let place = Place::new();
    let rules = "handover_margin = 20\nhandover_dwell = \"300ms\"\nleast_tenure = \"300ms\"\n";
    let mut cluster = Cluster::start(&place, 3, rules);
    let leader = cluster.ask("leader").and_then(|answer| answer["leader"].as_u64()).expect("there is a leader");
    cluster.start_worker("w1", 10, leader);
    cluster.submit(10);
    let after = eventually("another leader", || {
        cluster.ask("leader").filter(|answer| answer["leader"].is_u64() && answer["leader"] != leader)
    });
    assert_eq!(after["reason"], "load", "{after}");
}

#[test]
fn the_lowest_score_leaves_no_slot_idle_while_tasks_wait() {
    let place = Place::new();
    let more = "[worker]\nslots = 10\nallow = [\"*\"]\n[farm]\nassignment = \"score\"\n";
    let cluster = Cluster::start(&place, 3, more);
    eventually("all workers to join", || {
        let status = cluster.ask("status")?;
        let workers = status["workers"].as_array()?;
        (workers.iter().filter(|worker| worker["registered"] == true).count() == 3).then_some(())
    });
    cluster.submit(24);
    let status = eventually_or("all to run at once", || {
        let status = cluster.ask("status").ok_or("no answer")?;
        if status["running"] == 24 && status["queued"] == 0 { Ok(status) } else { Err(status.to_string()) }
    });
    let running = |worker: &Value| worker["running"].as_u64();
    let running: Vec<Option<u64>> = status["workers"].as_array().expect("a list").iter().map(running).collect();
    assert_eq!(running, [Some(8), Some(8), Some(8)], "{status}");
}

/// A figure of `/metrics`.
fn figure(api: &str, name: &str) -> Option<u64> {
    let address = api.trim_start_matches("http://").parse().expect("an address");
    let text = exchange(address, b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// Two slots, so two more are handed out in advance: they wait like the others.
#[test]
fn lending_begins_when_ten_tasks_wait_and_not_before() {
    let place = Place::new();
    let farm = place.up("--farms 2 --servers 1 --workers 2 --slots 1");
    eventually("the farms to hear each other", || {
        let farms = place.json("farms --farm north");
        farms["items"].as_array()?.iter().all(|farm| farm["heard"] == true).then_some(())
    });
    let submit = |count: u32| {
        let line = format!("submit --farm north --array 1-{count} -- sleep 300");
        assert_eq!(place.primus(&line).code, Some(0));
    };
    submit(11);
    let counts = || {
        let (status, farms) = (place.json("status --farm north"), place.json("farms --farm north"));
        let api = farm.ready["farms"][0]["api"][0].as_str().expect("a server has an API");
        let waiting = figure(api, "primus_tasks_waiting");
        [status["queued"].as_u64(), farms["items"][0]["queued"].as_u64(), waiting, status["running"].as_u64()]
    };
    let nine = [Some(9), Some(9), Some(9), Some(2)];
    eventually("all to count nine", || (counts() == nine).then_some(()));
    // Five times as long as a farm must be saturated.
    thread::sleep(Duration::from_secs(1));
    assert_eq!(counts(), nine);
    let events = || place.primus("events --farm north -o json").stdout;
    let told = |kind: &str| -> Vec<Value> {
        let needle = format!("\"kind\":\"{kind}\"");
        let events = events();
        let lines = events.lines().filter(|line| line.contains(&needle));
        lines.map(|line| serde_json::from_str(line).expect("an event is JSON")).collect()
    };
    assert_eq!(told("saturated"), Vec::<Value>::new());
    submit(1);
    let saturated = eventually("the farm to be saturated", || told("saturated").first().cloned());
    assert_eq!(saturated["queued"], 10, "{saturated}");
    eventually("a worker to be borrowed", || {
        let loans = place.json("loans --farm north");
        loans["items"].as_array()?.iter().any(|loan| loan["direction"] == "borrowed").then_some(())
    });
    drop(farm);
}
