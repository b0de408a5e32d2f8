//! End to end: configurations, shown, checked and refused by the real binary, and servers that run by them.

mod common;

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use common::eventually;
use serde_json::Value;

/// A folder that is removed at the end.
struct Place {
    dir: PathBuf,
}

/// A server that is killed at the end.
struct Server(Child);

impl Place {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("primus-config-{}-{number}", std::process::id()));
        fs::create_dir_all(dir.join("run")).expect("a folder can be made");
        Self { dir }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.join(name), text).expect("a file can be written");
    }

    /// A line as one would type it in this folder.
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_primus"));
        command.args(line.split(' ')).current_dir(&self.dir).env("TMPDIR", &self.dir);
        command.env("XDG_DATA_HOME", self.dir.join("data-home"));
        command.env("XDG_RUNTIME_DIR", self.dir.join("run")).env_remove("PRIMUS_API").env_remove("PRIMUS_TOKEN");
        command
    }

    fn primus(&self, line: &str) -> (Option<i32>, String, String) {
        said(self.command(line).output().expect("primus starts"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.dir);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Exit code, stdout and stderr.
fn said(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn json(text: &str) -> Value {
    assert_eq!(text.matches('\n').count(), 1, "{text}");
    serde_json::from_str(text).expect("it is JSON")
}

/// The first of this many free ports in a row, below those that the kernel gives away.
fn free_ports(count: u16) -> u16 {
    let first = 12_000 + (std::process::id() % 1_000) as u16 * 16;
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let mut firsts = (0..200).map(|step| first + step * count);
    firsts.find(|first| (*first..first + count).all(is_free)).expect("some ports are free")
}

const GOOD: &str = "\
[server]
id = 2
[cluster]
servers = [{ id = 1, address = \"127.0.0.1:7460\" }, { id = 2, address = \"127.0.0.1:7470\" }]
[election]
heartbeat = \"30ms\"
answers = \"21ms\"
";

const BAD: &str = "\
[server]
id = 4
colour = \"red\"
[cluster]
servers = [{ id = 1, address = \"127.0.0.1:7460\" }, { id = 2, address = \"127.0.0.1:7470\" }]
[election]
hartbeat = \"30ms\"
";

const BAD_SAID: &str = "\
error: bad.toml:3: key 'server.colour' does not exist; the nearest is server.chaos; primus config show lists all
error: bad.toml:7: key 'election.hartbeat' does not exist; did you mean election.heartbeat?
error: bad.toml:5: cluster.servers names 1, 2 but not this server, 4; add server 4, or mend server.id
";

#[test]
fn every_value_is_shown_with_its_origin() {
    let place = Place::new();
    place.write("good.toml", GOOD);
    let mut command = place.command("config show --config good.toml --heartbeat 50ms --set load.weights.cpu=40");
    command.env("PRIMUS_ELECTION_ANSWERS", "22ms").env("PRIMUS_SERVER_FARM", "");
    let (code, stdout, stderr) = said(command.output().expect("primus starts"));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let rows: Vec<Vec<&str>> = stdout.lines().map(|line| line.split("  ").map(str::trim).collect()).collect();
    let rows: Vec<Vec<&str>> =
        rows.into_iter().map(|row| row.into_iter().filter(|cell| !cell.is_empty()).collect()).collect();
    assert_eq!(rows[0], ["KEY", "VALUE", "ORIGIN"]);
    for row in [
        ["server.id", "2", "file good.toml:2"],
        ["server.address", "127.0.0.1:7470", "default"],
        ["server.api", "127.0.0.1:7471", "default"],
        ["server.farm", "primus", "default"],
        ["server.dir", "primus-data/primus-2", "default"],
        ["cluster.servers", "1@127.0.0.1:7460,2@127.0.0.1:7470", "file good.toml:4"],
        ["election.heartbeat", "50ms", "flag --heartbeat"],
        ["election.silence_min", "150ms", "default"],
        ["election.answers", "22ms", "environment PRIMUS_ELECTION_ANSWERS"],
        ["load.weights.cpu", "40", "flag --set"],
    ] {
        assert!(rows.iter().any(|found| found == &row), "{row:?} is not in\n{stdout}");
    }
}

#[test]
fn scripts_get_every_value_even_before_there_is_a_file() {
    let place = Place::new();
    let (code, stdout, stderr) = place.primus("config show -o json");
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let shown = json(&stdout);
    assert_eq!(shown["next"], Value::Null);
    let items = shown["items"].as_array().expect("a list");
    let item = |key: &str| items.iter().find(|item| item["key"] == key).expect("every key is there");
    assert_eq!((&item("server.id")["value"], &item("server.id")["origin"]), (&Value::Null, &"missing".into()));
    assert_eq!(item("election.heartbeat")["value"], "25ms");
    assert_eq!(item("election.heartbeat")["variable"], "PRIMUS_ELECTION_HEARTBEAT");
    assert_eq!(item("load.weights.cpu")["value"], 50);
    assert_eq!(item("server.chaos")["value"], false);
}

#[test]
fn a_good_file_has_no_mistakes_and_a_bad_one_has_them_all() {
    let place = Place::new();
    place.write("good.toml", GOOD);
    place.write("bad.toml", BAD);
    let good = place.primus("config check --config good.toml");
    assert_eq!(good, (Some(0), "4 keys, no mistakes\n".to_owned(), String::new()));
    assert_eq!(json(&place.primus("config check --config good.toml -o json").1)["keys"], 4);
    assert_eq!(place.primus("config check --config bad.toml"), (Some(2), String::new(), BAD_SAID.to_owned()));
    let (code, stdout, stderr) = place.primus("config check --config bad.toml -o json");
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    let error = &json(&stderr)["error"];
    assert_eq!(error["code"], "configuration");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("3 mistakes")), "{error}");
    let second = &error["mistakes"][1];
    assert_eq!((&second["file"], &second["line"]), (&"bad.toml".into(), &7.into()));
    assert_eq!(
        (&second["key"], &second["hint"]),
        (&"election.hartbeat".into(), &"did you mean election.heartbeat?".into())
    );
}

#[test]
fn a_server_refuses_what_the_check_refuses() {
    let place = Place::new();
    place.write("bad.toml", BAD);
    assert_eq!(place.primus("server --config bad.toml"), (Some(2), String::new(), BAD_SAID.to_owned()));
    for (line, expected) in [
        ("server --config none.toml", "error: cannot read none.toml: "),
        ("server", "error: server.id is missing; write id = 1 under [server], or --id on the command line\n"),
        (
            "server --id 1 --address 0.0.0.0:7460 --api 127.0.0.1:7461",
            "error: --address: server.address is 0.0.0.0:7460, ",
        ),
        ("server --id 1 --peers 1@127.0.0.1:9", "error: --peers: two servers have the id 1: "),
        ("server --id 1 --peers 2", "error: --peers: peers.peers holds '2'; write it like 1@127.0.0.1:7460,"),
    ] {
        let (code, stdout, stderr) = place.primus(line);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{line}: {stderr}");
        assert!(stderr.starts_with(expected), "{line}: {stderr}");
        assert_eq!(stderr.matches('\n').count(), 1, "{line}: {stderr}");
    }
}

#[test]
fn a_port_in_use_is_named() {
    let place = Place::new();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = taken.local_addr().expect("it has an address");
    let (code, _, stderr) =
        place.primus(&format!("server --id 1 --address {address} --api 127.0.0.1:{}", free_ports(1)));
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.starts_with(&format!("error: cannot listen on {address}: ")), "{stderr}");
    assert!(stderr.contains("choose another server.address"), "{stderr}");
}

#[test]
fn up_writes_files_that_the_check_approves() {
    let place = Place::new();
    let mut command = place.command("up --algorithm ring --dir farm --for 10ms -o json");
    // Variables that name one server are not meant for all of a farm.
    command.env("PRIMUS_SERVER_ID", "9").env("PRIMUS_SERVER_ADDRESS", "127.0.0.1:9");
    let (code, stdout, stderr) = said(command.output().expect("primus starts"));
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    assert!(json(&stdout)["leader"].is_u64());
    let (code, stdout, stderr) = place.primus("config show --config farm/server-1.toml");
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let line = stdout.lines().find(|line| line.starts_with("election.algorithm")).expect("it is shown");
    assert!(line.contains("  ring  ") && line.contains("  file farm/server-1.toml:"), "{line}");
    assert_eq!(place.primus("config check --config farm/server-1.toml").0, Some(0));
    let (code, _, stderr) = place.primus("up --algorithm ring --rank load --for 10ms");
    assert_ne!(code, Some(0));
    assert!(stderr.contains("a ring compares ids and nothing else"), "{stderr}");
}

/// A server's file, as the load-aware document has it.
fn of_document(id: u16, first: u16) -> String {
    let peer = |peer: u16| format!("    {{ id = {peer}, address = \"127.0.0.1:{}\" }},\n", first + peer - 1);
    let peers: String = (1..=3).filter(|peer| *peer != id).map(peer).collect();
    format!(
        "[server]\nid = {id}\naddress = \"127.0.0.1:{}\"\n\n[peers]\npeers = [\n{peers}]\n\n[election]\n\
         heartbeat_interval_secs = 1\nelection_timeout_secs = 2\nfailure_timeout_secs = 3\nmonitor_interval_secs = 1\n",
        first + id - 1
    )
}

/// Three servers with ports in a row, as the load-aware document has them: they find each other's API, too.
#[test]
fn files_of_the_load_aware_document_make_a_cluster() {
    let place = Place::new();
    let first = free_ports(6);
    let servers: Vec<Server> = (1..=3)
        .map(|id| {
            let file = format!("server{id}.toml");
            place.write(&file, &of_document(id, first));
            let mut command = place.command(&format!("server --config {file}"));
            Server(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("primus starts"))
        })
        .collect();
    // Whichever leads: what is written through one is read through the others.
    let api = |id: u16| format!("http://127.0.0.1:{}", first + 2 + id);
    eventually("a leader", || (place.primus(&format!("leader --api {}", api(1))).0 == Some(0)).then_some(()));
    assert_eq!(place.primus(&format!("kv put colour blue --timeout 20s --api {}", api(2))).0, Some(0));
    assert_eq!(place.primus(&format!("kv get colour --timeout 20s --api {}", api(3))).1, "blue\n");
    eventually("the load of all servers", || {
        let (_, stdout, _) = place.primus(&format!("status -o json --api {}", api(1)));
        let status: Value = serde_json::from_str(&stdout).ok()?;
        let known =
            |server: &Value| server["cpu"].is_number() && server["memory"].is_number() && server["tasks"] == 0;
        status["servers"].as_array()?.iter().all(known).then_some(())
    });
    drop(servers);
}
