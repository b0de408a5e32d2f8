//! Servers in network namespaces of their own, joined by a switch that drops what it is told to drop.
//!
//! The test runs itself again in a new namespace, which holds the switch (a bridge) and the clients. Packets between two
//! servers are forwarded by the switch, and there nftables drops them by source and destination, silently, as a broken
//! network does; what goes between clients and servers is not forwarded, so it is never dropped. Nothing outside is
//! touched, and nothing needs to be tidied up: a namespace goes, with its links and rules, when its last process ends.

use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::place::Place;

/// Nobody sees these addresses outside.
const NETWORK: [u8; 3] = [10, 77, 0];
const CLIENTS: u8 = 254;
/// These tests ask who may lead, not how fast: nobody shall be suspected because the host is busy.
const SILENCE_SECS: f64 = 0.5;

/// Servers that see each other through the switch.
pub(crate) struct Network {
    servers: Vec<Child>,
    /// Where clients reach them, whatever is cut.
    pub(crate) api: Vec<SocketAddr>,
}

impl Network {
    /// Starts this many servers, each in a namespace of its own.
    pub(crate) fn up(place: &Place, count: u8) -> Self {
        lay_switch();
        let mut network = Self { servers: Vec::new(), api: Vec::new() };
        for id in 1..=count {
            let config = place.dir.join(format!("{id}.toml"));
            fs::write(&config, configuration(place, id, count)).expect("a file can be written");
            network.servers.push(start(place, id, &server_words(&config)));
            let api = SocketAddr::new(address(id), API);
            place.token_file(&[api]);
            network.api.push(api);
        }
        network
    }

    /// From now on exactly these packets are dropped: from the first server to the second.
    pub(crate) fn cut(&self, drops: impl IntoIterator<Item = (u64, u64)>) {
        cut(drops);
    }

    /// From now on nothing is dropped.
    pub(crate) fn heal(&self) {
        heal();
    }
}

/// The switch and the clients' place at it.
pub(crate) fn lay_switch() {
    let clients = address(CLIENTS);
    feed(
        Command::new("ip").args(["-batch", "-"]),
        &format!(
            "link set lo up\nlink add switch type bridge\naddress add {clients}/24 dev switch\nlink set switch up"
        ),
    );
}

/// From now on exactly the packets from the first host to the second are dropped.
pub(crate) fn cut(drops: impl IntoIterator<Item = (u64, u64)>) {
    let pairs = drops.into_iter().map(|(from, to)| format!("{} . {}", server(from), server(to)));
    let pairs = pairs.collect::<Vec<_>>().join(", ");
    let rule = format!("ip saddr . ip daddr {{ {pairs} }} drop");
    let chain = format!("chain forward {{\ntype filter hook forward priority 0\n{rule}\n}}");
    rules(&format!("table bridge primus\ndelete table bridge primus\ntable bridge primus {{\n{chain}\n}}"));
}

/// From now on nothing is dropped.
pub(crate) fn heal() {
    rules("table bridge primus\ndelete table bridge primus");
}

impl Drop for Network {
    fn drop(&mut self) {
        for server in &mut self.servers {
            _ = server.kill();
            _ = server.wait();
        }
    }
}

pub(crate) const LINKS: u16 = 7460;
pub(crate) const API: u16 = 7461;

pub(crate) const fn address(host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(NETWORK[0], NETWORK[1], NETWORK[2], host))
}

fn server(id: u64) -> IpAddr {
    address(u8::try_from(id).expect("ids are small"))
}

fn server_words(config: &Path) -> [&str; 4] {
    ["server", "--insecure", "--config", config.to_str().expect("folders of tests have plain names")]
}

/// Starts a node that waits for its network, gives it one, and lets it go.
pub(crate) fn start(place: &Place, id: u8, words: &[&str]) -> Child {
    let primus = env!("CARGO_BIN_EXE_primus");
    let mut command = Command::new("unshare");
    // If the test ends before the node runs, there is nothing to read, and nothing starts.
    command.args(["--net", "sh", "-c", r#"read -r go && exec "$@""#, "sh", primus]).args(words);
    command.args(["--parent", &std::process::id().to_string()]);
    let mut child = command.current_dir(&place.dir).stdin(Stdio::piped()).spawn().expect("there is an unshare");
    let pid = child.id();
    await_namespace(pid);
    let outside =
        format!("link add server{id} type veth peer name cable netns {pid}\nlink set server{id} master switch up");
    feed(Command::new("ip").args(["-batch", "-"]), &outside);
    let within = format!("link set lo up\naddress add {}/24 dev cable\nlink set cable up", address(id));
    feed(Command::new("nsenter").args(["--net", "--target", &pid.to_string(), "ip", "-batch", "-"]), &within);
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    stdin.write_all(b"go\n").expect("the node waits");
    child
}

/// Waits until this process is in a namespace of its own.
fn await_namespace(pid: u32) {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
    super::eventually("a network namespace", || {
        namespace(&pid.to_string()).is_some_and(|its| Some(its) != namespace("self")).then_some(())
    });
}

fn configuration(place: &Place, id: u8, count: u8) -> String {
    let (dir, token) = (place.dir.display(), place.token_file(&[]));
    let mut text = format!(
        "[server]\nid = {id}\naddress = \"{}:{LINKS}\"\nfarm = \"cut\"\ndir = \"{dir}/{id}\"\n\
         [api]\ntoken_file = \"{}\"\n\
         [load]\nsource = \"file:{dir}/load\"\n\
         [election]\nfailure_timeout_secs = {SILENCE_SECS}\n\
         [peers]\npeers = [\n",
        address(id),
        token.display()
    );
    for peer in (1..=count).filter(|peer| *peer != id) {
        writeln!(text, "{{ id = {peer}, address = \"{}:{LINKS}\" }},", address(peer)).expect("a text takes all");
    }
    text + "]\n"
}

fn rules(text: &str) {
    feed(Command::new("nft").args(["-f", "-"]), text);
}

/// Runs a command that reads this; it must succeed.
fn feed(command: &mut Command, text: &str) {
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tools are installed");
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    stdin.write_all(format!("{text}\n").as_bytes()).expect("it reads");
    drop(stdin);
    let ran = child.wait_with_output().expect("it ends");
    assert!(ran.status.success(), "{command:?} < {text}: {}", String::from_utf8_lossy(&ran.stderr));
}
