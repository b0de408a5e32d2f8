//! End to end: how a farm is founded, and what can no longer go wrong with that. Two empty servers start nothing beside an older
//! cluster, an edited list changes no members, and a server that waits says for what.

mod common;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use common::broker::free_ports;
use common::http::ask;
use common::place::{Place, Ran};
use common::{eventually, eventually_or};
use primus_core::ServerId;
use primus_core::founding::{ClusterId, Disks};
use primus_node::store::{Identity, Store};

/// How late the last server is that others wait for.
const LATE: Duration = Duration::from_secs(3);
/// How many times a server is killed while its farm is founded.
const KILLS: u64 = 9;
const RELEASE_BEFORE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/farm-0.6.0.tar.gz");

/// Servers 1 to 5 of a farm, each started with the list that a test gives it.
struct Servers<'a> {
    place: &'a Place,
    ports: Vec<u16>,
    running: Vec<Option<Child>>,
}

impl<'a> Servers<'a> {
    fn new(place: &'a Place) -> Self {
        let file = place.dir.join("north.founding");
        if !file.exists() {
            let made = place.primus("init --farm north --out north.founding");
            assert_eq!(made.code, Some(0), "{made:?}");
        }
        let ports = (0..5).map(|_| free_ports()).collect();
        Self { place, ports, running: (0..5).map(|_| None).collect() }
    }

    fn index(id: u64) -> usize {
        usize::try_from(id - 1).expect("it is small")
    }

    fn port(&self, id: u64) -> u16 {
        self.ports[Self::index(id)]
    }

    fn api(&self, id: u64) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port(id) + 1))
    }

    fn dir(&self, id: u64) -> PathBuf {
        self.place.dir.join(format!("data-{id}"))
    }

    fn command(&self, id: u64, list: &[u64]) -> Command {
        let server = |id: &u64| {
            let (address, api) = (SocketAddr::from(([127, 0, 0, 1], self.port(*id))), self.api(*id));
            format!("{{ id = {id}, address = \"{address}\", api = \"{api}\" }}, ")
        };
        let list: String = list.iter().map(server).collect();
        let text = format!(
            "[server]\nid = {id}\nfarm = \"north\"\ndir = \"data-{id}\"\n[cluster]\nservers = [{list}]\n\
             founding = \"north.founding\"\n"
        );
        fs::write(self.place.dir.join(format!("{id}.toml")), text).expect("a file can be written");
        self.place.command(&["server", "--config", &format!("{id}.toml")])
    }

    fn start(&mut self, id: u64, list: &[u64]) {
        let log = OpenOptions::new().create(true).append(true).open(self.place.dir.join(format!("{id}.log")));
        let mut command = self.command(id, list);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.expect("a file can be made"));
        self.running[Self::index(id)] = Some(command.spawn().expect("primus starts"));
    }

    /// As `kill -9` does.
    fn kill(&mut self, id: u64) {
        if let Some(mut child) = self.running[Self::index(id)].take() {
            child.kill().and_then(|()| child.wait()).expect("it ends");
        }
    }

    fn kill_all(&mut self) {
        (1..=5).for_each(|id| self.kill(id));
    }

    fn wipe(&self, id: u64) {
        fs::remove_dir_all(self.dir(id)).expect("its folder can be removed");
    }

    fn log(&self, id: u64) -> String {
        fs::read_to_string(self.place.dir.join(format!("{id}.log"))).unwrap_or_default()
    }

    fn run(&self, id: u64, line: &str) -> Ran {
        self.place.primus(&format!("{line} --api http://{}", self.api(id)))
    }

    fn put(&self, id: u64, key: &str, value: &str) {
        eventually_or("a write", || {
            let ran = self.run(id, &format!("kv put {key} {value}"));
            if ran.code == Some(0) { Ok(()) } else { Err(format!("{ran:?}\n{}", self.log(id))) }
        });
    }

    fn has(&self, id: u64, key: &str, value: &str) {
        eventually_or("a read", || {
            let ran = self.run(id, &format!("kv get {key}"));
            let is_right = ran.code == Some(0) && ran.stdout.trim() == value;
            if is_right { Ok(()) } else { Err(format!("{ran:?}\n{}", self.log(id))) }
        });
    }

    /// It says this on stderr, in `/readyz` and to `primus status`, and takes nothing.
    fn waits(&self, id: u64, sentence: &str) {
        eventually_or("what it waits for", || {
            let said = ask(self.api(id), "GET", "/readyz", "").ok();
            let is_said = said.as_ref().is_some_and(|(status, answer)| {
                let message = answer["error"]["message"].as_str().unwrap_or_default();
                *status == 503 && answer["error"]["code"] == "not_founded" && message.contains(sentence)
            });
            let log = self.log(id);
            if is_said && log.contains(sentence) { Ok(()) } else { Err(format!("{said:?}\n{log}")) }
        });
        assert_eq!(ask(self.api(id), "PUT", "/v1/kv/k", "").expect("it answers").0, 503);
        let status = self.run(id, "status");
        assert!(status.code == Some(4) && status.stderr.contains(sentence), "{status:?}");
        let put = self.run(id, "kv put k beside");
        assert!(put.code == Some(4) && put.stderr.contains(sentence), "{put:?}");
    }

    /// The cluster of a server that does not run.
    fn cluster(&self, id: u64) -> Option<(ClusterId, Disks)> {
        cluster_of(&self.dir(id), "north", id)
    }

    /// Servers 1, 2 and 3, founded together, with this value.
    fn found_three(&mut self, value: &str) {
        [1, 2, 3].into_iter().for_each(|id| self.start(id, &[1, 2, 3]));
        self.put(1, "k", value);
        [1, 2, 3].into_iter().for_each(|id| self.has(id, "k", value));
    }
}

impl Drop for Servers<'_> {
    fn drop(&mut self) {
        self.kill_all();
    }
}

fn cluster_of(dir: &Path, farm: &str, id: u64) -> Option<(ClusterId, Disks)> {
    let identity = Identity { cluster: farm.to_owned(), server: ServerId(id) };
    let opened = Store::open(dir, &identity).expect("its store opens");
    opened.origin.founded().map(|record| (record.cluster, record.members.clone()))
}

/// All three are founded, in one cluster, and nothing remembers another one.
fn are_founded_together(servers: &mut Servers<'_>) {
    [1, 2, 3].into_iter().for_each(|id| servers.put(id, &format!("k{id}"), "v"));
    servers.kill_all();
    let clusters: BTreeSet<_> =
        [1, 2, 3].into_iter().map(|id| servers.cluster(id).expect("it is founded")).collect();
    assert_eq!(clusters.len(), 1, "{clusters:?}");
}

#[test]
fn three_servers_are_founded_in_all_orders_even_if_the_last_is_late() {
    let orders = [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]];
    thread::scope(|scope| {
        for order in orders {
            scope.spawn(move || is_founded_in(order, order == orders[0]));
        }
    });
}

/// Starts them in this order, the last one perhaps late.
fn is_founded_in(order: [u64; 3], is_late: bool) {
    let place = Place::new();
    let mut servers = Servers::new(&place);
    for (turn, id) in order.into_iter().enumerate() {
        if turn == 2 {
            // Those that are there say whom they wait for, however late that one is.
            let missing = format!("waits to found farm north: server {id} (127.0.0.1:{})", servers.port(id));
            servers.waits(order[0], &missing);
            servers.waits(order[1], "All must run once; to begin without it, see primus init");
            if is_late {
                thread::sleep(LATE);
            }
        }
        servers.start(id, &[1, 2, 3]);
    }
    are_founded_together(&mut servers);
}

#[test]
fn a_server_that_is_killed_while_its_farm_is_founded_does_not_stop_it() {
    for round in 0..KILLS {
        let place = Place::new();
        let mut servers = Servers::new(&place);
        [1, 2, 3].into_iter().for_each(|id| servers.start(id, &[1, 2, 3]));
        // A process is killed between two phases only if it is killed at many moments.
        thread::sleep(Duration::from_millis(10 + round * 9));
        let victim = 1 + round % 3;
        servers.kill(victim);
        servers.start(victim, &[1, 2, 3]);
        are_founded_together(&mut servers);
    }
}

#[test]
fn growing_by_editing_lists_loses_nothing_and_starts_no_second_cluster() {
    let place = Place::new();
    let mut servers = Servers::new(&place);
    servers.start(1, &[1]);
    for number in 0..5 {
        servers.put(1, &format!("k{number}"), "old");
    }
    // The new hosts first, as people do it; the old one runs, is down, and has the new list.
    [2, 3].into_iter().for_each(|id| servers.start(id, &[1, 2, 3]));
    let belongs = "server 1 belongs to cluster ";
    [2, 3].into_iter().for_each(|id| servers.waits(id, belongs));
    servers.kill(1);
    [2, 3].into_iter().for_each(|id| servers.waits(id, belongs));
    [2, 3].into_iter().for_each(|id| servers.kill(id));
    [2, 3].into_iter().for_each(|id| servers.start(id, &[1, 2, 3]));
    servers.waits(2, "server 1 (");
    servers.start(1, &[1, 2, 3]);
    for number in 0..5 {
        servers.has(1, &format!("k{number}"), "old");
    }
    servers.put(1, "new", "value");
    [2, 3].into_iter().for_each(|id| servers.waits(id, "an empty server founds nothing beside it"));
    let log = servers.log(1);
    assert!(log.contains("the file lists 1, 2, 3; the cluster has 1: correct the file"), "{log}");
    assert!(servers.log(2).contains("A cluster keeps the members that it began with"), "{}", servers.log(2));
    servers.kill_all();
    assert_eq!((servers.cluster(2), servers.cluster(3)), (None, None));
}

#[test]
fn members_count_and_no_list_does() {
    let place = Place::new();
    let mut servers = Servers::new(&place);
    servers.found_three("before");
    servers.kill_all();
    // Lists that do not agree: 1, 4, 5 beside 1, 2, 3. Servers 4 and 5 are new.
    [1, 4, 5].into_iter().for_each(|id| servers.start(id, &[1, 4, 5]));
    [4, 5].into_iter().for_each(|id| servers.waits(id, "server 1 belongs to cluster "));
    let alone = servers.run(1, "kv put k beside");
    assert_eq!(alone.code, Some(4), "{alone:?}");
    [2, 3].into_iter().for_each(|id| servers.start(id, &[1, 2, 3]));
    [1, 2, 3].into_iter().for_each(|id| servers.has(id, "k", "before"));
    servers.put(1, "k", "after");
    let log = servers.log(1);
    assert!(log.contains("the file lists 1, 4, 5; the cluster has 1, 2, 3: correct the file"), "{log}");
    // A list of itself alone makes no cluster of one.
    servers.kill_all();
    servers.start(1, &[1]);
    let alone =
        eventually("an answer", || Some(servers.run(1, "kv put k alone")).filter(|ran| ran.code == Some(4)));
    assert!(alone.stderr.contains("no server leads"), "{alone:?}");
    servers.start(2, &[1, 2, 3]);
    servers.has(1, "k", "after");
    assert!(servers.log(1).contains("the file lists 1; the cluster has 1, 2, 3"), "{}", servers.log(1));
}

#[test]
fn two_wiped_disks_of_three_start_nothing_and_the_third_keeps_what_was_acknowledged() {
    let place = Place::new();
    let mut servers = Servers::new(&place);
    servers.found_three("precious");
    servers.kill_all();
    for id in [1, 2] {
        let kept = place.dir.join(format!("kept-{id}"));
        fs::rename(servers.dir(id), &kept).expect("it can be kept");
    }
    [1, 2].into_iter().for_each(|id| servers.start(id, &[1, 2, 3]));
    [1, 2].into_iter().for_each(|id| servers.waits(id, "server 3 ("));
    servers.start(3, &[1, 2, 3]);
    for id in [1, 2] {
        servers.waits(id, &format!("Bring back the data of server {id}; until then the others go on without it"));
    }
    let third = servers.run(3, "kv put k beside");
    assert_eq!(third.code, Some(4), "{third:?}");
    // What has gone is brought back: all goes on.
    for id in [1, 2] {
        servers.kill(id);
        servers.wipe(id);
        fs::rename(place.dir.join(format!("kept-{id}")), servers.dir(id)).expect("it can be brought back");
        servers.start(id, &[1, 2, 3]);
    }
    [1, 2, 3].into_iter().for_each(|id| servers.has(id, "k", "precious"));
}

#[test]
fn who_begins_alone_says_so_once() {
    let place = Place::new();
    let mut servers = Servers::new(&place);
    servers.start(1, &[1, 2, 3]);
    servers.waits(1, "to begin without it, see primus init");
    let told = place.primus("init --alone data-1 -o json");
    assert_eq!((told.code, told.stdout.trim()), (Some(0), r#"{"dir":"data-1","order":"alone"}"#), "{told:?}");
    // With members that are not those of its list it is to be started again.
    eventually("its end", || servers.running[0].as_mut()?.try_wait().ok()?);
    assert!(servers.log(1).contains("start this server again"), "{}", servers.log(1));
    servers.start(1, &[1, 2, 3]);
    servers.put(1, "k", "alone");
    servers.start(2, &[1, 2, 3]);
    servers.waits(2, "server 1 belongs to cluster ");
    // Once it is founded, that changes nothing.
    assert_eq!(place.primus("init --alone data-1").code, Some(0));
    servers.kill(1);
    servers.start(1, &[1]);
    servers.has(1, "k", "alone");
    // It can be said before the first start, too.
    assert_eq!(place.primus("init --alone data-4").code, Some(0));
    servers.start(4, &[4, 5]);
    servers.put(4, "k", "beside");
    for wrong in
        ["init --alone data-1 --farm north", "init --alone data-1 --secure data-1", "init --alone north.founding"]
    {
        assert_eq!(place.primus(wrong).code, Some(2), "{wrong}");
    }
}

#[test]
fn how_links_are_secured_is_a_fact_of_the_founding() {
    let place = Place::new();
    let mut servers = Servers::new(&place);
    let ends_with = |mut command: Command, sentence: &str| {
        let ran: Ran = command.stdin(Stdio::null()).output().expect("primus starts").into();
        assert!(ran.code == Some(2) && ran.stderr.contains(sentence), "{ran:?}");
    };
    let plain = |servers: &Servers<'_>| {
        let mut command = servers.command(1, &[1]);
        let file = place.dir.join("1.toml");
        let text =
            fs::read_to_string(&file).expect("it was written").replace("founding = \"north.founding\"\n", "");
        fs::write(file, text).expect("a file can be written");
        command.arg("--insecure");
        command
    };
    let log = File::create(place.dir.join("1.log")).expect("a file can be made");
    servers.running[0] = Some(plain(&servers).stderr(log).spawn().expect("primus starts"));
    servers.put(1, "k", "plain");
    servers.kill(1);
    ends_with(servers.command(1, &[1]), "was founded without encrypted links");
    // The refused start has made a certificate already, which plain links do not need.
    assert_eq!(place.primus("init --secure data-1").code, Some(0));
    servers.start(1, &[1]);
    servers.has(1, "k", "plain");
    servers.kill(1);
    fs::remove_dir_all(servers.dir(1).join("tls")).expect("it is there");
    ends_with(plain(&servers), "the links of the farm");
}

#[test]
fn an_old_directory_is_taken_over_and_one_dead_host_does_not_stop_that() {
    let place = Place::new();
    let tar =
        Command::new("tar").args(["-xzf", RELEASE_BEFORE, "-C"]).arg(&place.dir).status().expect("tar is there");
    assert!(tar.success());
    fs::remove_dir_all(place.dir.join("farm/server-3")).expect("it is there");
    let farm = place.up("--dir farm");
    assert_eq!(place.primus("kv get colour").stdout, "blue\n");
    let log = || fs::read_to_string(place.dir.join("farm/server-3.log")).unwrap_or_default();
    eventually_or("what the empty one waits for", || {
        let log = log();
        let is_said =
            log.contains("an empty server founds nothing beside ") && log.contains("Bring back the data of ");
        if is_said { Ok(()) } else { Err(log) }
    });
    farm.end();
    let of = |id: u64| cluster_of(&place.dir.join(format!("farm/server-{id}")), "vintage", id);
    let (first, second) = (of(1).expect("it is founded"), of(2).expect("it is founded"));
    assert_eq!((&first, first.1.len(), of(3)), (&second, 3, None));
}
