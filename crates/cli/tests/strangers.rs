//! End to end: somebody who knows the protocol greets as a server or as a worker, with hand-made frames. It ends nothing,
//! learns nothing, takes nothing over, and fills neither memory nor log. That it can be a worker at all is another matter:
//! whoever reaches the port can, until links have identities.

mod common;

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bytes::Bytes;
use common::broker::free_ports;
use common::clients::StopAtEnd;
use common::place::{Farm, Place, Ran};
use common::stranger::Stranger;
use common::{eventually, eventually_or};
use primus_core::election::bully;
use primus_core::founding::ClusterId;
use primus_core::ledger::{Attempt, Held, JobId, Outcome, Report, Tail, TaskId, Verdict};
use primus_core::rank::Standing;
use primus_core::{Round, ServerId, Term, farm};
use primus_node::store::{Identity, Store};
use primus_replica::message::{Entry, HardState, Kind, Message as Raft, Record, Snapshot};
use primus_server::control::Message;
use primus_server::words::Words;
use primus_server::{any_election, groups};
use primus_wire::native::{Answer, Parcel, Purpose};
use primus_wire::work::{FromWorker, ToWorker};
use serde_json::Value;

const STORE: [u8; 16] = [9; 16];
/// So much memory a server may use while strangers send it what they can.
const RESIDENT_KIB_MAX: u64 = 200 * 1024;
const REFUSALS: usize = 3000;

/// Servers 1 and 3 of a cluster of three. Server 2 has been stopped for good once they were founded.
struct Pair<'a> {
    place: &'a Place,
    addresses: Vec<SocketAddr>,
    nodes: Vec<Child>,
    /// What server 2 knows and no stranger can guess: its disk, and the cluster.
    secrets: Option<([u8; 16], ClusterId)>,
}

impl<'a> Pair<'a> {
    fn start(place: &'a Place) -> Self {
        let ports: Vec<u16> = (0..3).map(|_| free_ports()).collect();
        let addresses = ports.iter().map(|port| local(*port)).collect();
        let server = |(place, port): (usize, &u16)| {
            format!("  {{ id = {}, address = \"{}\", api = \"{}\" }},\n", place + 1, local(*port), local(port + 1))
        };
        let servers: String = ports.iter().enumerate().map(server).collect();
        for id in [1, 2, 3] {
            let head = format!("[server]\nid = {id}\nfarm = \"pair\"\ndir = \"server-{id}\"\n");
            fs::write(place.dir.join(format!("{id}.toml")), format!("{head}[cluster]\nservers = [\n{servers}]\n"))
                .expect("a file can be written");
        }
        let mut pair = Self { place, addresses, nodes: Vec::new(), secrets: None };
        pair.start_these(&[2, 1, 3]);
        let second = pair.api_of(1);
        eventually("the founding", || {
            (place.primus(&format!("leader --api {second}")).code == Some(0)).then_some(())
        });
        let mut second = pair.nodes.remove(0);
        second.kill().and_then(|()| second.wait()).expect("it ends");
        let identity = Identity { cluster: "pair".to_owned(), server: ServerId(2) };
        let opened = Store::open(&place.dir.join("server-2"), &identity).expect("its store opens");
        pair.secrets = opened.origin.founded().map(|record| (opened.store_id.0, record.cluster));
        pair
    }

    /// One that has stolen what server 2 knows.
    fn as_second(&self, to: u64) -> Stranger {
        let (store, cluster) = self.secrets.expect("it is founded");
        let address = self.addresses[usize::try_from(to - 1).expect("it is small")];
        Stranger::as_member(address, ("pair", cluster), (2, to), store)
    }

    fn start_servers(&mut self) {
        self.start_these(&[1, 3]);
    }

    fn start_these(&mut self, ids: &[u64]) {
        for id in ids {
            let config = format!("{id}.toml");
            let parent = std::process::id().to_string();
            let mut command =
                self.place.command(&["server", "--insecure", "--config", &config, "--parent", &parent]);
            let log =
                fs::OpenOptions::new().append(true).create(true).open(self.place.dir.join(format!("{id}.log")));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.expect("a file can be made"));
            self.nodes.push(command.spawn().expect("primus starts"));
        }
    }

    fn stop_servers(&mut self) {
        for mut node in self.nodes.drain(..) {
            _ = node.kill();
            _ = node.wait();
        }
    }

    fn api(&self) -> String {
        self.api_of(0)
    }

    fn api_of(&self, place: usize) -> String {
        let address = self.addresses[place];
        format!("http://{}", SocketAddr::new(address.ip(), address.port() + 1))
    }

    fn primus(&self, line: &str) -> Ran {
        self.place.primus(&format!("{line} --api {}", self.api()))
    }

    /// A write is acknowledged, and read again.
    fn goes_on(&self, value: &str) {
        let ran = |line: &str| {
            let ran = self.primus(line);
            if ran.code == Some(0) { Ok(ran.stdout) } else { Err(format!("{ran:?}, {}", self.logs())) }
        };
        eventually_or("a write", || ran(&format!("kv put colour {value}")));
        let read = eventually_or("a read", || ran("kv get colour"));
        assert_eq!(read.trim(), value);
    }

    fn logs(&self) -> String {
        let log = |id| fs::read_to_string(self.place.dir.join(format!("{id}.log"))).unwrap_or_default();
        [1, 3].map(log).concat()
    }
}

impl Drop for Pair<'_> {
    fn drop(&mut self) {
        self.stop_servers();
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn raft(kind: Kind, term: u64) -> Raft {
    Raft {
        kind,
        term,
        log_term: 0,
        index: 0,
        entries: Vec::new(),
        commit: 0,
        commit_term: 0,
        snapshot: None,
        request_snapshot: 0,
        reject: false,
        reject_hint: 0,
        context: Bytes::new(),
    }
}

/// What no server says. Each of these ended a server of version 0.6.0, or stopped all of them for good.
fn hostile_words() -> Vec<Words> {
    let entry = |index, term| Entry { index, term, data: Bytes::new() };
    let beat = |term, commit| Raft { commit, ..raft(Kind::Heartbeat, term) };
    let append = |term, index, log_term, entries| Raft { index, log_term, entries, ..raft(Kind::Append, term) };
    let state = |index, data: &'static [u8]| {
        let snapshot = Some(Snapshot { index, term: 5, data: Bytes::from_static(data) });
        Raft { snapshot, ..raft(Kind::Snapshot, 5) }
    };
    let engine = [
        beat(u64::MAX, 0),
        beat(u64::MAX - 1, u64::MAX),
        beat(1 << 62, 0),
        beat(100, 1 << 40),
        append(100, 1 << 40, 0, vec![entry((1 << 40) + 1, 100)]),
        append(100, 0, 0, vec![entry(7, 100)]),
        append(0, 0, 0, vec![entry(1, 1)]),
        state(u64::MAX, &[0; 9]),
        state(1 << 20, b"garbage"),
        raft(Kind::ReadIndex, 0),
        raft(Kind::RequestVote, u64::MAX),
        raft(Kind::RequestPreVoteResponse, u64::MAX),
        Raft { index: u64::MAX, ..raft(Kind::AppendResponse, 1) },
        Raft { request_snapshot: 1 << 40, reject: true, ..raft(Kind::AppendResponse, 1) },
    ];
    let round = Round(u64::MAX);
    let kinds = [bully::Kind::Election, bully::Kind::Alive, bully::Kind::Coordinator];
    let rounds =
        kinds.map(|kind| any_election::Message::Bully(bully::Message { kind, round, standing: Standing::Id }));
    let claim = groups::Said::Here { score: <_>::default(), leads: Some(vec![("router".to_owned(), round)]) };
    let engine = engine.into_iter().map(|message| Words::Control(Message::Replica(message)));
    let rounds = rounds.into_iter().map(|message| Words::Control(Message::Election(message)));
    engine.chain(rounds).chain([Words::Groups(claim)]).collect()
}

#[test]
fn a_frame_of_28_bytes_ends_nothing() {
    let place = Place::new();
    let mut pair = Pair::start(&place);
    pair.goes_on("green");
    for to in [1, 3] {
        let mut stranger = pair.as_second(to);
        assert!(matches!(stranger.answer, Answer::Welcome(_)), "{:?}", stranger.answer);
        for words in hostile_words() {
            assert!(stranger.say(&Parcel::Message(words)), "{}", pair.logs());
        }
        pair.goes_on("blue");
    }
    eventually_or("a line about it", || {
        let logs = pair.logs();
        if logs.contains("refused words of server 2: ") { Ok(()) } else { Err(logs) }
    });
    pair.goes_on("red");
    let leader: Value = serde_json::from_str(&pair.primus("leader -o json").stdout).expect("it is JSON");
    assert!(leader["term"].as_u64().is_some_and(|term| term < 1000), "{leader}");
    pair.stop_servers();
    pair.start_servers();
    assert_eq!(
        eventually_or("what was written", || {
            let ran = pair.primus("kv get colour");
            if ran.code == Some(0) { Ok(ran.stdout.trim().to_owned()) } else { Err(pair.logs()) }
        }),
        "red"
    );
    pair.goes_on("yellow");
    assert!(!pair.logs().contains("panicked"), "{}", pair.logs());
}

/// What a follower asks of a leader passes no further doors. So a link for that is not opened for a process that is only able to
/// name a server.
#[test]
fn who_asks_in_the_name_of_a_server_is_refused_like_every_stranger() {
    let place = Place::new();
    let pair = Pair::start(&place);
    pair.goes_on("green");
    for purpose in [Purpose::Questions, Purpose::Requests] {
        for (own, cluster, reason) in [
            (2, "pair", "and server 2 to none yet"),
            (3, "pair", "and server 3 to none yet"),
            (9, "pair", "and server 9 to none yet"),
            (3, "other", "cluster 'pair' here, 'other' there"),
        ] {
            let mut stranger = Stranger::as_asker(pair.addresses[0], (own, 1), STORE, (cluster, purpose));
            assert!(
                matches!(&stranger.answer, Answer::Refused(said) if said.contains(reason)),
                "{:?}",
                stranger.answer
            );
            _ = stranger.stream.write_all(b"PUT /v1/kv/colour HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx");
            stranger.await_end();
        }
    }
    assert_eq!(pair.primus("kv get colour").stdout.trim(), "green");
    pair.goes_on("blue");
}

#[test]
fn of_each_peer_one_link_is_read_and_a_newer_one_closes_the_older() {
    let place = Place::new();
    let pair = Pair::start(&place);
    let (mut older, mut newer) = (pair.as_second(1), pair.as_second(1));
    older.await_end();
    assert!(
        newer
            .say(&Parcel::Message(Words::Control(Message::<any_election::Message>::Loads(Vec::new(), Vec::new()))))
    );
    // One that is refused closes nothing.
    let cluster = pair.secrets.expect("it is founded").1;
    let mut other = Stranger::as_member(pair.addresses[0], ("pair", cluster), (2, 1), [1; 16]);
    assert!(matches!(&other.answer, Answer::Refused(reason) if reason.contains("another disk")));
    other.await_end();
    pair.goes_on("green");
    assert!(
        newer
            .say(&Parcel::Message(Words::Control(Message::<any_election::Message>::Loads(Vec::new(), Vec::new()))))
    );
}

/// A directory of server 1 of `alone`, with this written into its log.
fn store_with(place: &Place, name: &str, records: &[Record]) -> PathBuf {
    let dir = place.dir.join(name);
    let identity = Identity { cluster: "alone".to_owned(), server: ServerId(1) };
    let mut opened = Store::open(&dir, &identity).expect("a store can be made");
    opened.store.write(records).expect("the disk works");
    dir
}

#[test]
fn a_server_that_must_not_go_on_says_so_in_one_line_and_ends_with_6() {
    let place = Place::new();
    let hard_state = |term| Record::HardState(HardState { term, vote: 0, commit: 0 });
    let state = |data: &'static [u8]| {
        let snapshot = Snapshot { index: 1, term: 1, data: Bytes::from_static(data) };
        [hard_state(1), Record::Snapshot(snapshot)]
    };
    let port = free_ports();
    for (name, records, words) in [
        ("forged-term", vec![hard_state(u64::MAX)], "a number that nobody can have reached"),
        ("forged-state", state(b"garbage").to_vec(), "cannot be read"),
        // A register without keys, and a ledger that is none.
        (
            "forged-ledger",
            state(&[0, 0, 0, 0, 0, 0, 0, 1, 0, 0xff]).to_vec(),
            "the state at entry 1 of the log cannot be read",
        ),
    ] {
        let dir = store_with(&place, name, &records);
        let config = format!(
            "[server]\nid = 1\nfarm = \"alone\"\ndir = {dir:?}\n[cluster]\n\
             servers = [{{ id = 1, address = \"{}\", api = \"{}\" }}]\n",
            local(port),
            local(port + 1)
        );
        fs::write(place.dir.join("alone.toml"), config).expect("a file can be written");
        let ran = place.primus("server --config alone.toml");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(6), ""), "{name}: {ran:?}");
        let complaints: Vec<&str> = ran.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        assert!(matches!(complaints[..], [line] if line.contains(words)), "{name}: {ran:?}");
        assert!(!ran.stderr.contains("panicked") && !ran.stderr.contains("backtrace"), "{name}: {ran:?}");
    }
}

#[test]
fn up_tells_that_a_server_must_not_go_on_and_does_not_start_it_again() {
    let place = Place::new();
    let farm = place.up("--insecure --dir data");
    place.json("kv put colour green");
    place.json("chaos kill 1");
    fs::write(place.dir.join("data/server-1/log.redb"), "garbage").expect("a file can be written");
    let ran = place.primus("chaos restart 1");
    assert_ne!(ran.code, Some(0), "{ran:?}");
    eventually_or("up to tell", || match farm.complaints() {
        said if said.contains("server 1 has ended (exit status: 6): error: the store in ") => Ok(()),
        said => Err(said),
    });
    let ran = place.primus("chaos restart 1");
    assert_eq!(ran.code, Some(6), "{ran:?}");
    assert!(ran.stderr.contains("server 1 must not be started again: "), "{ran:?}");
    let said = farm.end();
    assert!(
        !said.contains("chaos restart 1 starts it again") || said.matches("(exit status: 6)").count() == 1,
        "{said}"
    );
}

fn links(farm: &Farm<'_>) -> Vec<SocketAddr> {
    let servers = farm.ready["servers"].as_array().expect("servers are a list");
    let address = |server: &Value| server["address"].as_str().and_then(|address| address.parse().ok());
    servers.iter().map(|server| address(server).expect("a server has an address")).collect()
}

fn hello(name: &str, slots: u16, held: Vec<Held>, ended: Vec<Report>) -> farm::Hello {
    farm::Hello { name: name.to_owned(), term: Term(0), slots, loan: None, held, ended }
}

fn held(job: u64, term: u64, sequence: u64) -> Held {
    Held { task: TaskId { job: JobId(job), index: 1 }, attempt: Attempt { term: Term(term), sequence } }
}

fn forged(held: Held) -> Report {
    let stdout = Tail { total: 6, bytes: b"FORGED".to_vec() };
    let outcome = Outcome {
        attempt: held.attempt,
        worker: "w9".to_owned(),
        verdict: Verdict::Exited(0),
        started_us: u64::MAX,
        took_us: u64::MAX,
        stdout,
        stderr: Tail::default(),
    };
    Report { task: held.task, outcome }
}

#[test]
fn nobody_is_told_which_disk_a_server_has() {
    let place = Place::new();
    let farm = place.up("--insecure --servers 1 --farms 2");
    let address = links(&farm)[0];
    let worker = Stranger::as_worker(address, "north", "spy", 1, STORE);
    assert_eq!(worker.answer, Answer::Admitted);
    // Server 1 of south has a link already, or will call again.
    let envoy = Stranger::as_farm(address, "south", "north", 1, STORE);
    assert!(matches!(envoy.answer, Answer::Admitted | Answer::Refused(_)), "{:?}", envoy.answer);
    farm.end();
}

/// Submits this, and waits until it runs.
fn submit(place: &Place, script: &str) {
    let ran: Ran = place.command(&["submit", "--", "sh", "-c", script]).output().expect("primus starts").into();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    eventually("the task to run", || (place.json("task 1.1")["state"] == "running").then_some(()));
}

#[test]
fn a_stranger_takes_nothing_over_and_forges_no_result() {
    let place = Place::new();
    let farm = place.up("--insecure --servers 1 --workers 1");
    let address = links(&farm)[0];
    submit(&place, "sleep 2; echo true");
    let attempts = (1..=5).flat_map(|term| (1..=5).map(move |sequence| held(1, term, sequence)));
    let attempts: Vec<Held> = attempts.collect();
    let mut stranger = Stranger::as_worker(address, "local", "evil", 1, STORE);
    let ended: Vec<Report> = attempts.iter().copied().map(forged).collect();
    assert!(stranger.introduce(hello("evil", 0, attempts, ended.clone())));
    let heard: Vec<ToWorker> = std::iter::from_fn(|| stranger.hear())
        .take_while(|word| !matches!(word, ToWorker::Farm(farm::Message::Welcome(_))))
        .collect();
    assert!(heard.iter().any(|word| matches!(word, ToWorker::Farm(farm::Message::Forget(..)))), "{heard:?}");
    assert!(stranger.say_word(&FromWorker::Farm(farm::Message::Ended(ended))));
    assert_eq!(place.primus("wait 1").code, Some(0));
    let task = place.json("task 1.1");
    assert_eq!((&task["state"], &task["worker"]), (&"done".into(), &"w1".into()), "{task}");
    assert_eq!(place.primus("logs 1.1").stdout, "true\n");
    farm.end();
}

#[test]
fn only_the_worker_that_was_asked_tells_what_a_task_printed() {
    let place = Place::new();
    let farm = place.up("--insecure --servers 1 --workers 1");
    let address = links(&farm)[0];
    submit(&place, "yes truth | head -c 100000; sleep 20");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut liar = Stranger::as_worker(address, "local", "liar", 1, STORE);
            assert!(liar.introduce(hello("liar", 0, Vec::new(), Vec::new())));
            for number in (0..300).cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                assert!(liar.say_word(&FromWorker::Output(number, Some(Bytes::from_static(b"LIES")))));
            }
        });
        let _stop = StopAtEnd(&is_over);
        for _ in 0..30 {
            let ran = place.primus("logs 1.1");
            assert!(ran.code == Some(0) && !ran.stdout.contains("LIES"), "{ran:?}");
        }
    });
    farm.end();
}

#[test]
fn a_name_is_kept_for_the_worker_that_had_it() {
    let place = Place::new();
    let farm = place.up("--insecure --servers 1 --workers 1");
    let address = links(&farm)[0];
    let twin = Stranger::as_worker(address, "local", "w1", 1, STORE);
    assert!(
        matches!(&twin.answer, Answer::Refused(reason) if reason.contains("another worker")),
        "{:?}",
        twin.answer
    );
    place.json("chaos kill w1");
    let squatter = eventually("the true one to be missed", || {
        let squatter = Stranger::as_worker(address, "local", "w1", 1, STORE);
        matches!(&squatter.answer, Answer::Refused(reason) if reason.contains("a moment ago")).then_some(squatter)
    });
    drop(squatter);
    place.json("chaos restart w1");
    eventually("the true one to be back", || {
        let status = place.json("status");
        let workers = status["workers"].as_array()?;
        workers.iter().any(|worker| worker["name"] == "w1" && worker["registered"] == true).then_some(())
    });
    farm.end();
}

#[test]
fn words_without_end_do_not_fill_the_memory() {
    let place = Place::new();
    let farm = place.up("--insecure --servers 1 --workers 1");
    let (address, pid) = (links(&farm)[0], farm.pids()[0]);
    let frame = [&[0, 8, 0, 1, 1][..], &[b'x'; 512 << 10]].concat();
    thread::scope(|scope| {
        for number in 0..24 {
            let frame = &frame;
            scope.spawn(move || {
                let name = format!("x{number}");
                let mut stranger = Stranger::as_worker(address, "local", &name, 1, STORE);
                if number % 2 == 0 {
                    stranger.introduce(hello(&name, 0, Vec::new(), Vec::new()));
                    while !matches!(stranger.hear(), Some(ToWorker::Farm(farm::Message::Welcome(_))) | None) {}
                }
                // 60 MiB of a word that goes on.
                let is_ended = (0..120).any(|_| stranger.stream.write_all(frame).is_err());
                assert!(is_ended, "{name} was listened to");
            });
        }
    });
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the server runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the kernel counts it");
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().expect("it is a number");
    println!("at most {peak} KiB");
    assert!(peak < RESIDENT_KIB_MAX, "{peak} KiB");
    let ran = place.primus("run -- echo hello");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "hello\n"), "{ran:?}");
    farm.end();
}

#[test]
fn those_who_are_refused_fill_neither_log_nor_history() {
    let place = Place::new();
    let farm = place.up("--insecure --servers 1 --workers 1 --dir data");
    let address = links(&farm)[0];
    let log = place.dir.join("data/server-1.log");
    let before = fs::metadata(&log).expect("there is a log").len();
    let forged = "x\n2026-11-16T00:00:00.000Z info 1: leader 9 term 99 operator, forged\x1b[31m\u{202e}";
    for number in 0..REFUSALS {
        let stranger = match number % 4 {
            0 => Stranger::as_worker(address, "local", "w1", 1, STORE),
            1 => Stranger::as_worker(address, forged, "w7", 1, STORE),
            2 => Stranger::as_worker(address, "local", forged, 1, STORE),
            _ => Stranger::as_farm(address, forged, "local", 1, STORE),
        };
        assert!(matches!(stranger.answer, Answer::Refused(_)), "{:?}", stranger.answer);
    }
    let text = fs::read_to_string(&log).expect("the log is text");
    assert!(!text.contains("forged") && text.lines().all(|line| line.starts_with("20")), "{text}");
    let grown = text.len() as u64 - before;
    println!("the log grew by {grown} bytes");
    assert!(grown < 32 << 10, "{grown} bytes: {text}");
    let events = place.primus("events -o json").stdout;
    let refusals = events.lines().filter(|line| line.contains("\"link_refused\"")).count();
    assert!((1..=100).contains(&refusals), "{refusals}");
    assert!(events.contains("\"leader_changed\""), "{events}");
    // Whoever comes next is told how many were left out.
    eventually("a count", || {
        drop(Stranger::as_worker(address, "local", "w1", 1, STORE));
        let text = fs::read_to_string(&log).ok()?;
        text.contains(" more before it)").then_some(())
    });
    farm.end();
}
