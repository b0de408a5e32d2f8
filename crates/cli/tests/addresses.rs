//! End to end: where servers are reached, and where they listen. By numbers of version 6, by names, through relays on other
//! ports as behind a router, and by a name that moves to another address.

mod common;

use std::fs::{self, OpenOptions};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use common::broker::free_ports;
use common::namespace::inside;
use common::place::{Place, Ran};
use common::secured::{FARM, Record, founded};
use common::{eventually, eventually_or};
use serde_json::Value;

/// A server: where others reach it, and what it is told of where to listen.
struct Host {
    links: String,
    api: String,
    /// Where this test asks it, unless it is never asked.
    asked: Option<String>,
    more: Vec<String>,
}

/// Servers 1, 2, … and workers; all are killed at the end.
struct Farm<'a> {
    place: &'a Place,
    founding: PathBuf,
    hosts: Vec<Host>,
    nodes: Vec<(String, Child)>,
}

impl Host {
    /// One that listens where it is reached.
    fn at(links: String, api: String) -> Self {
        Self { asked: Some(api.clone()), links, api, more: Vec::new() }
    }

    /// The same, and told where to listen.
    fn listening(self, links: SocketAddr, api: SocketAddr) -> Self {
        let more = ["--listen".to_owned(), links.to_string(), "--api-listen".to_owned(), api.to_string()];
        Self { more: more.into(), ..self }
    }
}

impl<'a> Farm<'a> {
    fn new(place: &'a Place, hosts: Vec<Host>) -> Self {
        Self { place, founding: founded(place, "north.founding"), hosts, nodes: Vec::new() }
    }

    fn start_all(&mut self) {
        (1..=self.hosts.len()).for_each(|id| self.start_server(id));
        self.start_worker("w1");
        self.start_worker("w2");
    }

    fn start_server(&mut self, id: usize) {
        let list = (1..).zip(&self.hosts).map(|(id, host)| format!("{id}@{}/{}", host.links, host.api));
        let list = list.collect::<Vec<_>>().join(",");
        let (name, number) = (format!("server-{id}"), id.to_string());
        let words = ["server", "--farm", FARM, "--id", &number, "--dir", &name, "--cluster", &list];
        let more: Vec<&str> = self.hosts[id - 1].more.iter().map(String::as_str).collect();
        let child = spawn(self.place, &self.founding, &name, &[&words[..], &more].concat());
        self.nodes.push((name, child));
    }

    fn start_worker(&mut self, name: &str) {
        let list = (1..).zip(&self.hosts).map(|(id, host)| format!("{id}@{}", host.links));
        let list = list.collect::<Vec<_>>().join(",");
        let words = ["worker", "--farm", FARM, "--name", name, "--dir", name, "--allow", "*", "--servers", &list];
        self.nodes.push((name.to_owned(), spawn(self.place, &self.founding, name, &words)));
    }

    /// As an accident would.
    fn kill(&mut self, name: &str) {
        let place = self.nodes.iter().position(|(other, _)| other == name).expect("it runs");
        let (_, mut node) = self.nodes.remove(place);
        node.kill().expect("it runs");
        node.wait().expect("it was started here");
    }

    /// What a command says, as soon as it works at any server.
    fn primus(&self, words: &[&str]) -> String {
        eventually_or(words[0], || {
            let tries = self.hosts.iter().filter_map(|host| host.asked.as_ref()).map(|api| {
                let (command, rest) = words.split_first().expect("a command");
                let url = format!("http://{api}");
                self.place.command(&[&[*command, "--api", &url][..], rest].concat()).output().expect("it starts")
            });
            let tries: Vec<Ran> = tries.map(Ran::from).collect();
            let good = tries.iter().find(|ran| ran.code == Some(0)).map(|ran| ran.stdout.clone());
            good.ok_or_else(|| format!("{tries:?}\n{}", self.logs()))
        })
    }

    fn json(&self, command: &str) -> Value {
        serde_json::from_str(&self.primus(&[command, "-o", "json"])).expect("stdout is JSON")
    }

    fn leader(&self) -> usize {
        usize::try_from(self.json("leader")["leader"].as_u64().expect("it leads")).expect("it is small")
    }

    fn runs(&self, word: &str) {
        assert_eq!(self.primus(&["run", "--", "echo", word]).trim(), word);
    }

    /// Works, and goes on working when the leader is killed, and again when it is back and the next one is killed.
    fn survives_its_leaders(&mut self) {
        self.runs("hello");
        let first = self.leader();
        self.kill(&format!("server-{first}"));
        self.runs("again");
        let second = self.leader();
        assert_ne!(first, second);
        self.start_server(first);
        self.is_up(first);
        self.kill(&format!("server-{second}"));
        self.runs("for the third time");
        assert_ne!(self.leader(), second);
    }

    /// Waits until the leader hears this server.
    fn is_up(&self, id: usize) {
        eventually_or("a server to be up", || {
            let seen = self.seen(id);
            if seen["state"] == "up" { Ok(()) } else { Err(format!("{seen}\n{}", self.logs())) }
        });
    }

    /// What the status says of a server.
    fn seen(&self, id: usize) -> Value {
        self.json("status")["servers"][id - 1].clone()
    }

    fn logs(&self) -> String {
        let logs = fs::read_dir(&self.place.dir).expect("it is there").flatten();
        let logs = logs.filter(|file| file.path().extension().is_some_and(|kind| kind == "log"));
        logs.map(|file| fs::read_to_string(file.path()).unwrap_or_default()).collect()
    }
}

impl Drop for Farm<'_> {
    fn drop(&mut self) {
        for (_, node) in &mut self.nodes {
            _ = node.kill();
            _ = node.wait();
        }
    }
}

fn spawn(place: &Place, founding: &Path, name: &str, words: &[&str]) -> Child {
    let log = OpenOptions::new().append(true).create(true).open(place.dir.join(format!("{name}.log")));
    let mut command = place.command(words);
    command.args(["--parent", &std::process::id().to_string(), "--founding"]).arg(founding);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.expect("a file can be made"));
    command.spawn().expect("primus starts")
}

/// The addresses of links and API on a free pair of ports.
fn pair(ip: impl Into<IpAddr>) -> (SocketAddr, SocketAddr) {
    let (ip, port) = (ip.into(), free_ports());
    (SocketAddr::new(ip, port), SocketAddr::new(ip, port + 1))
}

#[test]
fn servers_on_version_6_elect_work_and_survive() {
    let place = Place::new();
    let host = |_| {
        let (links, api) = pair(Ipv6Addr::LOCALHOST);
        Host::at(links.to_string(), api.to_string())
    };
    let mut farm = Farm::new(&place, (0..3).map(host).collect());
    farm.start_all();
    farm.survives_its_leaders();
    let status = farm.json("status");
    for (host, server) in farm.hosts.iter().zip(status["servers"].as_array().expect("a list")) {
        assert!(host.links.starts_with("[::1]:") && server["address"] == host.links.as_str(), "{server}");
        assert_eq!(server["api"], host.api.as_str());
    }
}

#[test]
fn servers_are_reached_by_names() {
    let place = Place::new();
    let host = |_| {
        let port = free_ports();
        Host::at(format!("localhost:{port}"), format!("localhost:{}", port + 1))
    };
    let mut farm = Farm::new(&place, (0..3).map(host).collect());
    farm.start_all();
    farm.survives_its_leaders();
    assert_eq!(farm.seen(1)["address"], farm.hosts[0].links.as_str());
}

#[test]
fn servers_listen_on_one_port_and_are_reached_through_a_relay_on_another() {
    let (place, record) = (Place::new(), Record::default());
    let host = |_| {
        let (links, api) = pair(Ipv4Addr::LOCALHOST);
        let relays = [links, api].map(|address| record.relay(address).to_string());
        let [reached, served] = relays;
        Host::at(reached, served).listening(links, api)
    };
    let mut farm = Farm::new(&place, (0..3).map(host).collect());
    farm.start_all();
    farm.survives_its_leaders();
    assert!(record.len() > 1000, "nothing went over the relays");
}

#[test]
fn a_name_that_does_not_resolve_is_shown_and_ends_nothing() {
    let place = Place::new();
    let mut hosts: Vec<Host> = (0..3)
        .map(|_| {
            let (links, api) = pair(Ipv4Addr::LOCALHOST);
            Host::at(links.to_string(), api.to_string()).listening(links, api)
        })
        .collect();
    hosts[2].asked = None;
    let mut farm = Farm::new(&place, hosts);
    farm.start_all();
    farm.runs("hello");
    // This ending is promised to exist nowhere. The third one dials the others, but they cannot dial it.
    farm.hosts[2].links = "nowhere.invalid:7460".to_owned();
    for name in ["server-1", "server-2", "server-3", "w1", "w2"] {
        farm.kill(name);
    }
    farm.start_all();
    farm.runs("hello again");
    let why = "the name nowhere.invalid does not resolve: ";
    eventually_or("the name to be shown", || {
        let seen = farm.seen(3);
        if seen["why"].as_str().is_some_and(|said| said.starts_with(why)) { Ok(()) } else { Err(farm.logs()) }
    });
    let shown = farm.primus(&["status"]);
    assert!(shown.contains("server 3 is suspected since ") && shown.contains(why), "{shown}");
    eventually("a worker to say it", || farm.logs().contains(&format!("no link to 3: {why}")).then_some(()));
    let (name, third) = farm.nodes.iter_mut().find(|(name, _)| name == "server-3").expect("it was started");
    assert!(third.try_wait().expect("it can be asked").is_none(), "{name} has ended");
}

#[test]
fn a_name_that_moves_is_followed() {
    inside("--mount", "a_name_that_moves_is_followed", || {
        let place = Place::new();
        let names = place.dir.join("hosts");
        let lead = |address: &str| {
            fs::write(&names, format!("127.0.0.1 localhost\n{address} moving.example\n"))
                .expect("it can be written");
        };
        lead("127.0.0.2");
        let mount = std::process::Command::new("mount").arg("--bind").arg(&names).arg("/etc/hosts").status();
        assert!(mount.expect("there is a mount").success());
        let mut hosts: Vec<Host> = (0..2)
            .map(|_| {
                let (links, api) = pair(Ipv4Addr::LOCALHOST);
                Host::at(links.to_string(), api.to_string())
            })
            .collect();
        let port = free_ports();
        let on = |host: u8, port| SocketAddr::from(([127, 0, 0, host], port));
        let moving = |host| {
            let api = on(1, port + 1);
            Host::at(format!("moving.example:{port}"), api.to_string()).listening(on(host, port), api)
        };
        hosts.push(moving(2));
        let mut farm = Farm::new(&place, hosts);
        farm.start_all();
        farm.runs("hello");
        farm.is_up(3);
        farm.kill("server-3");
        lead("127.0.0.3");
        farm.hosts[2] = moving(3);
        farm.start_server(3);
        farm.is_up(3);
        // Both others are needed now, so what it says and hears counts.
        let leader = farm.leader();
        let gone = if leader == 1 { 1 } else { 2 };
        farm.kill(&format!("server-{gone}"));
        farm.runs("again");
        _ = std::process::Command::new("umount").arg("--lazy").arg("/etc/hosts").status();
    });
}

/// Runs a server to its end, which comes at once.
fn refused(place: &Place, words: &[&str]) -> String {
    let all = [&["server", "--farm", FARM, "--id", "1", "--dir", "server-1"], words].concat();
    let ran: Ran = place.command(&all).output().expect("primus starts").into();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    ran.stderr
}

#[test]
fn what_makes_no_sense_is_refused_with_a_sentence() {
    let place = Place::new();
    let (links, api) = pair(Ipv4Addr::LOCALHOST);
    let here = format!("1@{links}/{api}");
    let named = format!("1@nowhere.invalid:7460/{api}");
    for (words, sentence) in [
        (
            vec!["--cluster", &named],
            "server.address is nowhere.invalid:7460, a name that does not lead to loopback alone; say in server.listen where it listens, such as 0.0.0.0:7460",
        ),
        (
            vec!["--cluster", &here, "--listen", "0.0.0.0:7460"],
            "server.listen is 0.0.0.0:7460, which other hosts can reach, and links are not encrypted",
        ),
        (
            vec!["--cluster", &here, "--listen", "[::]:7460"],
            "server.listen is [::]:7460, which other hosts can reach, and links are not encrypted",
        ),
        (
            vec!["--cluster", &here, "--api-listen", "[::]:7461"],
            "api.listen is [::]:7461, which other hosts can reach, and without api.token_file",
        ),
        (
            vec!["--cluster", &here, "--listen", "localhost:7460"],
            "server.listen is 'localhost:7460', and a process listens at a number; write it like 127.0.0.1:7460, 0.0.0.0:7460 or [::]:7460",
        ),
        (
            vec!["--cluster", &here, "--address", "::1:7460"],
            "server.address is '::1:7460', which has an IPv6 address without brackets; write it like [::1]:7460",
        ),
        (
            vec!["--cluster", &here, "--address", "10.0.0.300:7460"],
            "server.address is '10.0.0.300:7460', which looks like a number and is not an address; write it like 127.0.0.1:7460 or [::1]:7460",
        ),
    ] {
        let said = refused(&place, &words);
        assert!(said.contains(sentence), "{words:?}: {said}");
    }
}

#[test]
fn an_address_that_is_taken_names_its_key() {
    let place = Place::new();
    let taken = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).expect("a free port");
    let (taken, (links, api)) = (taken.local_addr().expect("it is bound").to_string(), pair(Ipv4Addr::LOCALHOST));
    let list = format!("1@{links}/{api}");
    for (flag, key) in [("--listen", "server.listen"), ("--api-listen", "api.listen")] {
        let said = refused(&place, &["--cluster", &list, flag, &taken]);
        assert!(said.contains(&format!("cannot listen on {taken}: ")) && said.contains(key), "{said}");
    }
}
