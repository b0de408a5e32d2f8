//! End to end: the file for each document (docs/presets) is in force as it stands, and servers behave as that document says.

mod common;

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use common::broker::free_ports;
use common::eventually;
use common::http::ask;
use common::place::Place;
use serde_json::Value;

/// Three servers with the same preset.
struct Cluster<'a> {
    place: &'a Place,
    preset: PathBuf,
    /// Where each listens, for its peers and for others.
    places: Vec<(SocketAddr, SocketAddr)>,
    servers: Vec<Option<Child>>,
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        (1..=3).for_each(|id| self.kill(id));
    }
}

impl<'a> Cluster<'a> {
    /// Starts them. The addresses ascend with the ids, but for the first two, which are swapped.
    fn start(place: &'a Place, name: &str) -> Self {
        let preset = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/presets").join(name);
        let places = [2, 1, 3].map(|host| {
            let port = free_ports();
            (SocketAddr::from(([127, 0, 0, host], port)), SocketAddr::from(([127, 0, 0, host], port + 1)))
        });
        let servers = (0..3).map(|_| None).collect();
        let mut cluster = Self { place, preset, places: places.to_vec(), servers };
        for id in 1..=3 {
            // Server 2 is the least loaded.
            let load = [20, 5, 40][id - 1];
            fs::write(place.dir.join(format!("load-{id}")), load.to_string()).expect("a file can be written");
            cluster.start_server(id);
        }
        cluster
    }

    fn start_server(&mut self, id: usize) {
        let listed =
            |(place, (address, api)): (usize, &(SocketAddr, SocketAddr))| format!("{}@{address}/{api}", place + 1);
        let servers: Vec<String> = self.places.iter().enumerate().map(listed).collect();
        let apis: Vec<SocketAddr> = self.places.iter().map(|(_, api)| *api).collect();
        let mut command = self.place.command(&["server", "--config"]);
        command.arg(&self.preset).args(["--id", &id.to_string(), "--cluster", &servers.join(",")]);
        command.args(["--load", &format!("file:load-{id}"), "--dir", &format!("data-{id}")]);
        command.arg("--set").arg(format!("api.token_file={}", self.place.token_file(&apis).display()));
        let complaints = File::create(self.place.dir.join(format!("diary-{id}"))).expect("a file can be made");
        let child = command.stdin(Stdio::null()).stderr(complaints).spawn().expect("primus starts");
        self.servers[id - 1] = Some(child);
    }

    fn kill(&mut self, id: usize) {
        if let Some(mut child) = self.servers[id - 1].take() {
            _ = child.kill();
            _ = child.wait();
        }
    }

    /// Waits until all live servers follow this one.
    fn await_leader(&self, id: u64) {
        eventually(&format!("server {id} to lead ({})", self.preset.display()), || {
            let live = (0..3).filter(|place| self.servers[*place].is_some());
            let follows = |place: usize| {
                let (_, leader) = ask(self.places[place].1, "GET", "/v1/leader", "").ok()?;
                (leader["leader"] == id).then_some(())
            };
            live.map(follows).collect::<Option<Vec<()>>>().map(|_| ())
        });
    }

    /// The same where nothing preempts: a server that could not answer in time, because its disk was slow to start with, leads
    /// once an election is held with it.
    fn await_elected(&self, id: u64) {
        let live: Vec<SocketAddr> =
            (0..3).filter(|place| self.servers[*place].is_some()).map(|place| self.places[place].1).collect();
        eventually(&format!("server {id} to be elected ({})", self.preset.display()), || {
            let leaders: Option<Vec<Value>> =
                live.iter().map(|api| Some(ask(*api, "GET", "/v1/leader", "").ok()?.1["leader"].clone())).collect();
            let leaders = leaders?;
            if leaders.iter().all(|leader| *leader == id) {
                return Some(());
            }
            if leaders.iter().all(Value::is_u64) {
                _ = ask(live[0], "POST", "/v1/elections", "");
            }
            None
        });
    }

    /// Server 3 leads, dies and is followed by this one, and leads again when it is back.
    fn outlives_its_leader(&mut self, next: u64) {
        self.await_leader(3);
        self.kill(3);
        self.await_leader(next);
        self.start_server(3);
        self.await_leader(3);
    }

    /// Are these values in force because the preset says so?
    fn check(&self, values: &[(&str, &str)]) {
        let file = self.preset.display().to_string();
        let shown = self.place.json(&format!("config show --config {file}"));
        let items = shown["items"].as_array().expect("a list").clone();
        for (key, value) in values {
            let item = items.iter().find(|item| item["key"] == *key).expect("every key is shown");
            let said = match &item["value"] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            assert_eq!(said, *value, "{key} in {file}");
            assert!(item["origin"].as_str().is_some_and(|origin| origin.starts_with("file ")), "{item}");
        }
    }
}

#[test]
fn bully_by_address() {
    let place = Place::new();
    let mut cluster = Cluster::start(&place, "bully-by-address.toml");
    cluster.check(&[("election.rank", "address"), ("election.asking", "one-by-one"), ("election.answers", "3s")]);
    // 127.0.0.2 is server 1.
    cluster.outlives_its_leader(1);
}

#[test]
fn election_theory() {
    let place = Place::new();
    let mut cluster = Cluster::start(&place, "election-theory.toml");
    cluster.check(&[("election.rank", "id"), ("election.preempt", "true"), ("election.asking", "at-once")]);
    cluster.outlives_its_leader(2);
}

#[test]
fn load_aware() {
    let place = Place::new();
    let mut cluster = Cluster::start(&place, "load-aware.toml");
    cluster.check(&[
        ("election.startup", "3100ms..3500ms"),
        ("election.heartbeat", "1s"),
        ("election.silence_min", "3s"),
        ("election.silence_max", "3s"),
        ("election.answers", "2s"),
        ("election.handover_margin", "100"),
        ("farm.assignment", "score"),
        ("load.weights.tasks", "30"),
    ]);
    cluster.await_elected(2);
    // The leader grows busy and stays; when it dies, the next least loaded leads.
    fs::write(place.dir.join("load-2"), "95").expect("a file can be written");
    cluster.kill(2);
    cluster.await_elected(1);
    cluster.start_server(2);
    cluster.await_leader(1);
}

#[test]
fn ring() {
    let place = Place::new();
    let mut cluster = Cluster::start(&place, "ring.toml");
    cluster.check(&[("election.algorithm", "ring")]);
    cluster.outlives_its_leader(2);
}

#[test]
fn lending() {
    let place = Place::new();
    let mut cluster = Cluster::start(&place, "lending.toml");
    cluster.check(&[("lending.saturated_at", "10"), ("lending.order", "listed")]);
    // By load, as servers elect when nothing else is said.
    cluster.await_elected(2);
    cluster.kill(2);
    cluster.await_elected(1);
}

#[test]
fn a_preset_is_a_whole_farm_with_primus_up() {
    let place = Place::new();
    let preset = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/presets/ring.toml");
    let farm = place.up(&format!("--workers 0 --config {preset}"));
    let leader = || Some(ask(farm.api[0], "GET", "/v1/leader", "").ok()?.1);
    eventually("server 3 to lead", || leader().filter(|leader| leader["leader"] == 3));
    let files =
        fs::read_dir(&place.dir).expect("a folder").flatten().map(|entry| entry.path().join("server-1.toml"));
    let file = files.filter_map(|file| fs::read_to_string(file).ok()).next().expect("servers have files");
    assert!(file.contains("algorithm = \"ring\"\npreempt = true"), "{file}");
    farm.end();
    let own = "[server]\nid = 1\n";
    fs::write(place.dir.join("own.toml"), own).expect("a file can be written");
    let ran = place.primus("up --config own.toml");
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("server.id"), "{ran:?}");
}
