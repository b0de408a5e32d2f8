//! End to end: farms that know nothing of each other in their files become neighbours by `primus neighbours trust`, lend each other
//! workers, and end that again. Their authorities differ, leaders are killed meanwhile, and no task is lost.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use common::broker::free_ports;
use common::neighbourhood::{Ledgers, text};
use common::place::{Farm, Place, Ran};
use common::secured::{Record, certificate};
use common::{eventually, eventually_or, send};
use primus_core::ServerId;
use primus_identity::UnixTime;
use primus_identity::authority::{Authority, AuthorityCertificate};
use primus_identity::config::{self, Credentials};
use primus_identity::name::{Name, dial_any};
use primus_identity::rustls::{ClientConnection, Stream};
use primus_identity::trust::Trust;
use primus_identity::verify::HostClock;
use primus_wire::native::{self, Answer, FarmHello, Hello, WorkerHello};
use rustix::process::Signal;
use serde_json::{Value, json};

/// What no one in between may read.
const SECRET: &str = "the-argument-that-is-a-secret";

/// A farm that was started alone.
fn up<'a>(place: &'a Place, farm: &str, words: &str) -> Farm<'a> {
    place.up(&format!("--farm {farm} {words}"))
}

/// The hash of a farm's own authority.
fn authority(place: &Place, farm: &str) -> String {
    let listed = place.json(&format!("neighbours list --farm {farm}"));
    let own = listed["items"].as_array().and_then(|all| all.iter().find(|one| one["origin"] == "itself").cloned());
    own.and_then(|own| own["authority"].as_str().map(str::to_owned))
        .unwrap_or_else(|| format!("sha256:{}", "0".repeat(64)))
}

/// Its servers, as the other farm is told them.
fn servers(farm: &Farm<'_>, found: impl Fn(SocketAddr) -> SocketAddr) -> String {
    let servers = farm.ready["servers"].as_array().expect("servers are a list");
    let place = |server: &Value| {
        let address = server["address"].as_str().and_then(|address| address.parse().ok()).expect("it listens");
        format!("{}={}", server["id"], found(address))
    };
    servers.iter().map(place).collect::<Vec<_>>().join(",")
}

/// This farm trusts the other one.
fn trust(place: &Place, farm: &str, other: &str, hash: &str, servers: &str) -> Ran {
    place.primus(&format!("neighbours trust {other} --authority {hash} --servers {servers} --farm {farm}"))
}

fn must_trust(place: &Place, farm: &str, (other, servers): (&str, &str)) {
    let hash = authority(place, other);
    eventually_or("a farm to be trusted", || {
        let ran = trust(place, farm, other, &hash, servers);
        // Between two leaders it has to be asked again.
        if ran.code == Some(0) { Ok(()) } else { Err(format!("{ran:?}")) }
    });
}

/// Kills the server that leads.
fn kill_leader(ledgers: &Ledgers, farm: &Farm<'_>) {
    let leader = ledgers.leader(&text(&farm.ready["farm"]));
    let servers = farm.ready["servers"].as_array().expect("servers are a list");
    let leader: u64 = leader.parse().expect("it is a number");
    let found = servers.iter().find(|server| server["id"] == leader).expect("it is one of them");
    send(Signal::KILL, &[found["pid"].as_u64().expect("it runs")]);
}

/// Lends workers to the other farm, and waits until they are there.
fn lend(place: &Place, ledgers: &Ledgers, (lender, borrower): (&str, &str), count: usize) {
    eventually_or("workers to be lent", || {
        let ran = place.primus(&format!("lend --to {borrower} {count} --for 60s --farm {lender}"));
        if ran.code == Some(0) { Ok(()) } else { Err(format!("{ran:?}")) }
    });
    eventually_or("the workers to arrive", || {
        let loans = ledgers.loans(borrower);
        let away = loans.iter().filter(|loan| loan["state"] == "away").count();
        if away == count { Ok(()) } else { Err(format!("{loans:?}")) }
    });
}

fn tasks(ledgers: &Ledgers, farm: &str, job: &str) -> Vec<Value> {
    ledgers.items(farm, &format!("/v1/tasks?job={job}&limit=1000"))
}

fn of_south(tasks: &[Value]) -> usize {
    let is_done = |task: &&Value| task["state"] == "done";
    tasks.iter().filter(is_done).filter(|task| text(&task["worker"]).ends_with("@south")).count()
}

#[test]
fn farms_trust_each_other_lend_and_part_though_leaders_are_killed() {
    let place = Place::new();
    let (north, south) =
        (up(&place, "north", "--servers 3 --workers 1"), up(&place, "south", "--servers 3 --workers 2"));
    let ledgers = Ledgers::of(&[&north, &south]);
    must_trust(&place, "north", ("south", &servers(&south, |address| address)));
    kill_leader(&ledgers, &north);
    must_trust(&place, "south", ("north", &servers(&north, |address| address)));
    ledgers.await_start();
    lend(&place, &ledgers, ("south", "north"), 2);
    let lines: Vec<String> = (1..=60).map(|number| number.to_string()).collect();
    let command = ["sh", "-c", "sleep 0.2; echo {} >> ran"];
    let folder = place.dir.to_str().expect("a plain path");
    let job = ledgers.submit("north", "sixty", &json!({ "command": command, "lines": lines, "cwd": folder }));
    eventually("a task of north to run on a worker of south", || {
        (of_south(&tasks(&ledgers, "north", &job)) > 0).then_some(())
    });
    kill_leader(&ledgers, &south);
    eventually("south to have another leader", || (of_south(&tasks(&ledgers, "north", &job)) > 4).then_some(()));
    eventually("south to be forgotten", || {
        (place.primus("neighbours forget south --farm north").code == Some(0)).then_some(())
    });
    ledgers.await_all_home(&BTreeSet::new());
    eventually("the job to end", || (ledgers.get("north", &format!("/v1/jobs/{job}"))["open"] == 0).then_some(()));
    let ended = tasks(&ledgers, "north", &job);
    assert!(ended.len() == 60 && ended.iter().all(|task| task["state"] == "done"), "{ended:?}");
    let ran = fs::read_to_string(place.dir.join("ran")).expect("tasks have written it");
    let ran: BTreeSet<&str> = ran.lines().collect();
    assert_eq!(ran.len(), 60, "every task has run: {ran:?}");
    assert_eq!(ledgers.items("north", "/v1/farms").len(), 1, "north has no neighbour any more");
    eventually("south to be alone", || {
        let farms = ledgers.items("south", "/v1/farms");
        farms.iter().any(|farm| farm["farm"] == "north" && farm["heard"] == false).then_some(())
    });
    let again = place.primus("neighbours forget south --farm north");
    assert!(again.code == Some(1) && again.stderr.contains("farm 'south' is not trusted"), "{again:?}");
}

#[test]
fn an_authority_with_another_hash_is_refused_and_nothing_is_stored() {
    let place = Place::new();
    let (north, south) =
        (up(&place, "north", "--servers 1 --workers 0"), up(&place, "south", "--servers 1 --workers 0"));
    let (own, other) = (authority(&place, "north"), authority(&place, "south"));
    let there = servers(&south, |address| address);
    let wrong_number = there.replacen("1=", "2=", 1);
    for (hash, farm, servers, code, words) in [
        (&own, "south", there.as_str(), 5, "somebody may be in between"),
        (&other, "west", &there, 5, "is server 1 of farm south, not server 1 of farm west"),
        (&other, "south", &wrong_number, 5, "is server 1 of farm south, not server 2 of farm south"),
        (&other, "south", "1=127.0.0.1:1", 4, "no server of farm south answers"),
        (&other, "north", &there, 2, "north is this farm"),
        (&other, "south", "127.0.0.1:7460", 2, "write each server as ID=HOST:PORT"),
        (&"sha256:00".to_owned(), "south", &there, 2, "64 digits"),
    ] {
        let ran = trust(&place, "north", farm, hash, servers);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{words}: {ran:?}");
        assert!(ran.stderr.contains(words) && ran.stderr.matches('\n').count() == 1, "{words}: {ran:?}");
    }
    let listed = place.json("neighbours list --farm north");
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1), "{listed}");
    let ran = trust(&place, "north", "south", &other, &there);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let listed = place.json("neighbours list --farm north");
    let south_there = &listed["items"][1];
    assert_eq!(
        (&south_there["origin"], &south_there["authority"], &south_there["certified"], &south_there["servers"]),
        (&json!("trusted"), &json!(other), &json!(true), &json!([there])),
        "{listed}"
    );
    assert_eq!((north.end(), south.end()), (String::new(), String::new()));
}

#[test]
fn nobody_between_two_farms_reads_what_a_borrowed_worker_is_given() {
    for words in ["", "--insecure"] {
        let (place, record) = (Place::new(), Record::default());
        let north = up(&place, "north", &format!("--servers 1 --workers 0 {words}"));
        let south = up(&place, "south", &format!("--servers 1 --workers 1 {words}"));
        let ledgers = Ledgers::of(&[&north, &south]);
        must_trust(&place, "north", ("south", &servers(&south, |address| record.relay(address))));
        must_trust(&place, "south", ("north", &servers(&north, |address| record.relay(address))));
        ledgers.await_start();
        lend(&place, &ledgers, ("south", "north"), 1);
        let ran: Ran =
            place.command(&["run", "--farm", "north", "--", "echo", SECRET]).output().expect("it starts").into();
        assert_eq!((ran.code, ran.stdout.trim()), (Some(0), SECRET), "{ran:?}");
        assert!(record.len() > 100, "nothing went over the relays");
        // Without encryption it is there, so the test can see it.
        let is_plain = !words.is_empty();
        assert_eq!(record.holds(SECRET), is_plain, "{words}");
        assert_eq!(record.holds("north"), is_plain, "{words}");
    }
}

/// What a server of north answers to this hello of a node that its own authority has named.
fn greet<H: serde::Serialize>(
    address: SocketAddr,
    north: &AuthorityCertificate,
    (authority, name): (&Authority, &Name),
    hello: &H,
) -> std::io::Result<Answer> {
    let (keys, der) = certificate(authority, name, UnixTime::now());
    let credentials = Credentials::new(der, authority.certificate(), &keys).expect("it was issued for it");
    let trust = Trust::new("north", vec![north.clone()], Vec::new()).expect("it is its farm");
    let config = config::dialling(&credentials, &Arc::new(trust), "north", Arc::new(HostClock));
    let mut tcp = TcpStream::connect(address)?;
    tcp.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut tls = ClientConnection::new(config, dial_any()).expect("the name is one");
    let mut stream = Stream::new(&mut tls, &mut tcp);
    let (mut said, mut arrived) = (BytesMut::new(), BytesMut::new());
    native::put(&mut said, hello).expect("it is short");
    stream.write_all(&said)?;
    loop {
        if let Some(answer) = native::take(&mut arrived).expect("it is an answer") {
            return Ok(answer);
        }
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            len => arrived.extend_from_slice(&buffer[..len]),
        }
    }
}

#[test]
fn the_authority_of_a_neighbour_vouches_for_its_own_nodes_and_for_none_here() {
    let place = Place::new();
    let north = up(&place, "north", "--servers 1 --workers 0");
    let address = north.ready["servers"][0]["address"].as_str().and_then(|at| at.parse().ok()).expect("it listens");
    let pem = fs::read_to_string(Path::new(&text(&north.ready["dir"])).join("authority.pem")).expect("it is there");
    let own = AuthorityCertificate::from_pem(&pem).expect("it is one");
    let south = Authority::create("south", UnixTime::now()).expect("there is randomness");
    let false_north = Authority::create("north", UnixTime::now()).expect("there is randomness");
    fs::write(place.dir.join("south.pem"), south.certificate().pem()).expect("there is room");
    let hash = south.certificate().hash();
    let words = format!(
        "neighbours trust south --authority {hash} --servers 1=127.0.0.1:1,2=127.0.0.1:2 --certificate south.pem"
    );
    let server = |farm: &str, id| Name::server(farm, ServerId(id)).expect("it is a name");
    let worker = |name: &str| Name::worker("south", name).expect("it is a name");
    let as_worker = |name: &str| WorkerHello::new("north".to_owned(), name.to_owned(), ServerId(1), [7; 16]);
    let as_farm = |farm: &str, id| FarmHello::new(farm.to_owned(), "north".to_owned(), ServerId(id), [7; 16]);
    let as_peer = |id| Hello::new("north".to_owned(), ServerId(id), ServerId(1), [7; 16], 1);
    let farm_link = || greet(address, &own, (&south, &server("south", 1)), &as_farm("south", 1));
    assert!(farm_link().is_err(), "south is not trusted yet");
    assert_eq!(place.primus(&words).code, Some(0));
    assert_eq!(farm_link().expect("it answers"), Answer::Admitted);
    let guest = greet(address, &own, (&south, &worker("w1")), &as_worker("w1@south")).expect("it answers");
    assert_eq!(guest, Answer::Admitted);
    let refused = |answer: std::io::Result<Answer>, words: &str| match answer {
        Ok(Answer::Refused(reason)) => assert!(reason.contains(words), "{words}: {reason}"),
        other => panic!("{words}: {other:?}"),
    };
    let (s1, w1) = (server("south", 1), worker("w1"));
    refused(greet(address, &own, (&south, &s1), &as_peer(2)), "a node of farm north was expected");
    refused(greet(address, &own, (&south, &w1), &as_worker("w1")), "a node of farm north was expected");
    refused(greet(address, &own, (&south, &w1), &as_worker("w2@south")), "the hello says");
    refused(greet(address, &own, (&south, &w1), &as_worker("w1@west")), "a node of farm west was expected");
    refused(greet(address, &own, (&south, &s1), &as_worker("w1@south")), "a worker was expected");
    refused(greet(address, &own, (&south, &w1), &as_farm("south", 1)), "a server was expected");
    refused(greet(address, &own, (&south, &s1), &as_farm("south", 2)), "the hello says");
    refused(greet(address, &own, (&south, &s1), &as_farm("west", 1)), "a node of farm west was expected");
    refused(greet(address, &own, (&south, &server("south", 3)), &as_farm("south", 3)), "has no server 3");
    // It is not heard at all.
    assert!(greet(address, &own, (&false_north, &server("north", 2)), &as_peer(2)).is_err());
    assert_eq!(place.primus("neighbours forget south").code, Some(0));
    assert!(farm_link().is_err(), "south is trusted no more");
    let again = greet(address, &own, (&south, &w1), &as_worker("w1@south"));
    assert!(again.is_err(), "{again:?}");
    let events = eventually("the refusals to be told", || {
        let events = place.primus("events").stdout;
        events.contains("no authority that is trusted here has issued the certificate").then_some(events)
    });
    assert!(!events.contains("w1@south works here"), "{events}");
}

/// A process that is killed when the test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
fn a_worker_runs_abroad_what_its_own_configuration_allows_and_nothing_else() {
    let place = Place::new();
    let (north, south) =
        (up(&place, "north", "--servers 1 --workers 0"), up(&place, "south", "--servers 1 --workers 0"));
    let dir = text(&south.ready["dir"]);
    let founding = Path::new(&dir).join(primus_client::farms::FOUNDING);
    let list = servers(&south, |address| address).replace('=', "@");
    let own = ["worker", "--farm", "south", "--name", "x1", "--slots", "1", "--allow", "true", "--servers", &list];
    let mut command =
        place.command(&[&own[..], &["--founding", founding.to_str().expect("a plain path")]].concat());
    let _worker = Killed(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("primus starts"));
    let ledgers = Ledgers::of(&[&north, &south]);
    must_trust(&place, "north", ("south", &servers(&south, |address| address)));
    must_trust(&place, "south", ("north", &servers(&north, |address| address)));
    lend(&place, &ledgers, ("south", "north"), 1);
    let job = ledgers.submit("north", "forbidden", &json!({ "command": ["echo", "hello"], "cwd": "/" }));
    let task = eventually("the task to fail", || {
        let task = ledgers.get("north", &format!("/v1/tasks/{job}.1"));
        (task["state"] == "failed").then_some(task)
    });
    assert!(task.to_string().contains("worker x1@south does not allow \\\"echo\\\""), "{task}");
    let job = ledgers.submit("north", "allowed", &json!({ "command": ["true"], "cwd": "/" }));
    let task = eventually("the task to end", || {
        let task = ledgers.get("north", &format!("/v1/tasks/{job}.1"));
        (task["state"] == "done").then_some(task)
    });
    assert_eq!(task["worker"], "x1@south");
}

/// A server of north whose file names south by the hash of its authority.
fn server_of_north(place: &Place, (link, api): (u16, u16), hash: &str, south: &str) -> Killed {
    let token = place.token_file(&[SocketAddr::from(([127, 0, 0, 1], api))]);
    let text = format!(
        "[server]\nfarm = \"north\"\nid = 1\ndir = \"data\"\n[api]\ntoken_file = {token:?}\n[cluster]\n\
         servers = [{{ id = 1, address = \"127.0.0.1:{link}\", api = \"127.0.0.1:{api}\" }}]\n\
         [[neighbours]]\nname = \"south\"\nauthority = \"{hash}\"\nservers = [{{ id = 1, address = \"{south}\" }}]\n"
    );
    let file = place.dir.join("north.toml");
    fs::write(&file, text).expect("there is room");
    let mut command = place.command(&["server", "--config", file.to_str().expect("a plain path")]);
    Killed(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("primus starts"))
}

#[test]
fn a_file_may_name_the_hash_of_a_neighbours_authority_which_is_then_fetched() {
    let place = Place::new();
    let south = up(&place, "south", "--servers 1 --workers 0");
    let there = servers(&south, |address| address).replacen("1=", "", 1);
    let link = free_ports();
    let api = link + 1;
    let ask = |line: &str| {
        eventually(line, || {
            let ran = place.primus(&format!("{line} -o json --api http://127.0.0.1:{api}"));
            serde_json::from_str::<Value>(&ran.stdout).ok().filter(|_| ran.code == Some(0))
        })
    };
    let wrong = server_of_north(&place, (link, api), &format!("sha256:{}", "1".repeat(64)), &there);
    eventually("north to say that the authority is another one", || {
        let ran = place.primus(&format!("events --api http://127.0.0.1:{api}"));
        ran.stdout.contains("has another authority than sha256:1111").then_some(())
    });
    assert_eq!(ask("neighbours list")["items"][1]["certified"], false);
    drop(wrong);
    let _right = server_of_north(&place, (link, api), &authority(&place, "south"), &there);
    let known = eventually("the authority to be fetched", || {
        let listed = ask("neighbours list");
        (listed["items"][1]["certified"] == true).then_some(listed)
    });
    assert_eq!(known["items"][1]["origin"], "file", "{known}");
    let hash = known["items"][0]["authority"].as_str().expect("it has one").to_owned();
    let ran = trust(&place, "south", "north", &hash, &format!("1=127.0.0.1:{link}"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    eventually("the farms to hear each other", || {
        let farms = ask("farms");
        (farms["items"][1]["farm"] == "south" && farms["items"][1]["heard"] == true).then_some(())
    });
    let ran = place.primus(&format!("neighbours forget south --api http://127.0.0.1:{api}"));
    assert!(ran.code == Some(2) && ran.stderr.contains("because the configuration says so"), "{ran:?}");
}
