//! End to end: bad input on every port, from strangers, from clients and from whoever wrote the configuration. Each gets a
//! clear error or is sent away, and a cluster that serves meanwhile does not notice.

mod common;

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use common::clients::{StopAtEnd, seed};
use common::eventually;
use common::http::{ask, dressed, events, exchange};
use common::place::Place;
use common::unnoticed::{links, unnoticed};
use primus_core::ServerId;
use primus_lab::chance::Chance;
use primus_wire::native::{self, Answer, Hello};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

const IDLE: usize = 1000;
/// How long somebody who misbehaves is tolerated at most.
const TOLERANCE: Duration = Duration::from_secs(25);

/// What somebody does to a port.
#[derive(Debug, Clone)]
enum Attack {
    /// Sends this, then waits.
    Sends(Vec<u8>),
    /// Sends the first, then the second again and again.
    Repeats(Vec<u8>, Vec<u8>),
    /// Sends this a byte at a time.
    Drips(Vec<u8>),
}

#[test]
fn garbage_on_every_port_is_not_noticed() {
    garbage_is_not_noticed("");
}

#[test]
fn garbage_on_plain_links_is_not_noticed() {
    garbage_is_not_noticed("--insecure");
}

fn garbage_is_not_noticed(words: &str) {
    unnoticed(words, |farm| {
        thread::scope(|scope| {
            let links = links(farm).into_iter().map(|address| (address, on_links()));
            let apis = farm.api.iter().map(|address| (*address, on_api(*address)));
            for (address, attacks) in links.chain(apis) {
                for attack in attacks {
                    scope.spawn(move || attack.run(address));
                }
            }
        });
    });
}

#[test]
fn a_thousand_idle_connections_to_every_port_are_not_noticed() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    unnoticed("", |farm| {
        let ports = links(farm).into_iter().chain(farm.api.clone());
        let idle = ports.flat_map(|address| (0..IDLE).map(move |_| connect(address)));
        let idle: Vec<TcpStream> = idle.collect();
        // Nobody is waited for longer than for the first one, because they all came together.
        let until = Instant::now() + TOLERANCE;
        idle.into_iter().for_each(|stream| await_end(stream, until));
    });
}

#[test]
fn a_crowd_of_silent_strangers_keeps_no_peer_out() {
    let place = Place::new();
    let farm = place.up("");
    let (stop, links) = (AtomicBool::new(false), links(&farm));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut here = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                // Each crowd is larger than a server has places, and leaves only when the next one has come.
                let crowd = links.iter().flat_map(|at| (0..300).map(move |_| TcpStream::connect(at)));
                drop(std::mem::replace(&mut here, crowd.collect()));
            }
        });
        let _stop = StopAtEnd(&stop);
        for server in 1..=3 {
            place.json(&format!("chaos kill {server}"));
            place.json(&format!("chaos restart {server}"));
            farm.wait_until_alive(3);
        }
    });
    farm.end();
}

#[test]
fn strangers_are_told_why_they_are_refused_and_so_is_the_history() {
    let place = Place::new();
    let farm = place.up("--insecure");
    let hello = |server, to| Hello::new("local".to_owned(), ServerId(server), ServerId(to), [1; 16], 7);
    let mut old = hello(2, 1);
    old.protocol = 99;
    let south = Hello::new("south".to_owned(), ServerId(2), ServerId(1), [1; 16], 7);
    for (hello, reason) in [
        (south, "cluster 'local' here, 'south' there"),
        (old, "run the same version on both"),
        (hello(2, 3), "server 1 here, server 3 was meant"),
        (hello(1, 1), "two servers have the id 1"),
        (hello(9, 1), "and server 9 to none yet"),
        (hello(2, 1), "and server 2 to none yet"),
    ] {
        // The history is told of some refusals only, so that nobody can fill it.
        eventually(reason, || {
            let Answer::Refused(said) = greet(links(&farm)[0], &hello) else { panic!("{hello:?} was welcome") };
            assert!(said.contains(reason), "{said}");
            has_refused(&events(farm.api[0]).ok()?, reason).then_some(())
        });
    }
    farm.end();
}

#[test]
fn two_clusters_that_are_mixed_up_say_so_in_both_histories() {
    let place = Place::new();
    let farm = place.up("--insecure --farm north");
    let peers = links(&farm);
    let server = Server::start(&place, 1, "south", &[(2, peers[1]), (3, peers[2])]);
    let url = format!("http://{}", server.api);
    eventually("south to be told", || {
        let told = place.primus(&format!("events --api {url}"));
        // Both peers refuse at the same time, and of these refusals one is told.
        told.stdout.contains(" refuses: cluster 'north' here, 'south' there").then_some(())
    });
    eventually("north to tell", || {
        let told = place.primus(&format!("events --api http://{}", farm.api[1]));
        told.stdout.contains("refused a link: cluster 'north' here, 'south' there").then_some(())
    });
    assert_eq!(place.primus(&format!("leader --api {url}")).code, Some(4));
    assert_eq!(place.primus("kv put colour blue --farm north").code, Some(0));
    farm.end();
}

#[test]
fn a_configuration_that_cannot_work_is_refused_in_one_line() {
    let place = Place::new();
    let listener = TcpListener::bind((own_address(1), 0)).unwrap();
    let taken = listener.local_addr().unwrap();
    let free = SocketAddr::new(own_address(1), 7460);
    let twice = "[server]\nid = 1\naddress = \"127.0.0.1:1\"\n[peers]\npeers = [\n";
    let cases: [(Vec<u8>, i32, &str); 7] = [
        (b"[server".to_vec(), 2, "config.toml"),
        (vec![0xff, 0xfe, 0, 1], 2, "UTF-8"),
        (b"[server]\nid = 1\ncolour = 1\n".to_vec(), 2, "colour"),
        (configuration(&place, 1, "x", taken, free, &[]).into_bytes(), 2, "Address already in use"),
        (configuration(&place, 1, "x", free, taken, &[]).into_bytes(), 2, "choose another server.api"),
        (format!("{twice}{{id = 1, address = \"127.0.0.1:2\"}}]").into_bytes(), 2, "two servers have the id 1"),
        (format!("{twice}{{id = 2, address = \"127.0.0.1:1\"}}]").into_bytes(), 2, "is taken twice"),
    ];
    for (text, code, words) in cases {
        fs::write(place.dir.join("config.toml"), text).unwrap();
        let ran = place.primus("server --config config.toml");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{words}: {ran:?}");
        assert!(ran.stderr.contains(words) && ran.stderr.matches('\n').count() == 1, "{words}: {ran:?}");
    }
    for missing in ["server --config nowhere.toml", "server --config run"] {
        let ran = place.primus(missing);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("cannot read"), "{ran:?}");
    }
}

#[test]
fn bad_requests_get_the_right_status_and_the_usual_body() {
    let place = Place::new();
    let farm = place.up("");
    let (long, key) = ("x".repeat(2 << 20), "k".repeat(2000));
    for api in &farm.api {
        for (method, path, body, status, code) in [
            ("GET", "/", "", 404, "not_found"),
            ("GET", "/v1/nothing", "", 404, "not_found"),
            ("DELETE", "/v1/leader", "", 405, "method_not_allowed"),
            ("POST", "/v1/status", "", 405, "method_not_allowed"),
            ("GET", "/v1/kv/nothing", "", 404, "not_found"),
            ("GET", "/v1/kv/%ff", "", 400, "usage"),
            ("GET", "/v1/events?after=x", "", 400, "usage"),
            ("PUT", &format!("/v1/kv/{key}"), "x", 400, "usage"),
            ("PUT", "/v1/kv/long", &long, 413, "too_long"),
            ("POST", "/v1/leader/transfer", "", 400, "usage"),
            ("POST", "/v1/leader/transfer", "{\"to\":-1}", 400, "usage"),
            ("POST", "/v1/leader/transfer", "{\"to\":9}", 404, "not_found"),
            ("POST", "/v1/leader/transfer", &long, 413, "too_long"),
            ("POST", "/v1/chaos/cut", "[[[[", 400, "usage"),
            ("POST", "/v1/chaos/load", &long, 413, "too_long"),
            ("POST", "/v1/chaos/load", "{\"score\":\"much\"}", 400, "usage"),
        ] {
            let (said, answer) = patiently_ask(*api, method, path, body);
            let error = &answer["error"];
            assert_eq!((said, error["code"].as_str()), (status, Some(code)), "{method} {path}: {answer}");
            assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{method} {path}: {answer}");
        }
        let broken = [
            &b"PUT /v1/kv/x HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2\r\n\r\n"[..],
            b"\xff\xfe",
        ];
        let answer = exchange(*api, &broken.concat()).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("not UTF-8 text"), "{answer}");
    }
    farm.end();
}

fn on_links() -> Vec<Attack> {
    let mut hello = BytesMut::new();
    native::put(&mut hello, &Hello::new("local".to_owned(), ServerId(2), ServerId(1), [0; 16], 7))
        .expect("it is short");
    let half = hello[..hello.len() / 2].to_vec();
    vec![
        Attack::Sends(garbage()),
        Attack::Sends([vec![0xff; 4], garbage()].concat()),
        // Records of handshakes: half of one, and one of nonsense.
        Attack::Sends(vec![22, 3, 1, 2, 0, 1, 0]),
        Attack::Repeats(vec![22, 3, 1], vec![22, 3, 1, 0, 5, 1, 0, 0, 1, 9]),
        Attack::Sends(vec![0, 16, 0, 0]),
        Attack::Repeats(vec![0, 16, 0, 0], garbage()),
        Attack::Sends([vec![0, 0, 0, 9], vec![0xff; 9]].concat()),
        Attack::Sends(half.clone()),
        Attack::Drips(half),
        Attack::Sends(b"GET /v1/leader HTTP/1.1\r\nhost: x\r\n\r\n".to_vec()),
    ]
}

/// By strangers, and by somebody who has the secret.
fn on_api(api: SocketAddr) -> Vec<Attack> {
    let head = b"GET /v1/leader HTTP/1.1\r\nhost: x\r\n".to_vec();
    let put = |length: u64| format!("PUT /v1/kv/slow HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    let chunked = b"PUT /v1/kv/slow HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let inside = |request: &[u8]| dressed(api, &[request, b"x"].concat());
    let more = [b"1000\r\n".to_vec(), vec![b'x'; 0x1000], b"\r\n".to_vec()].concat();
    vec![
        Attack::Sends(inside(put(1000).as_bytes())),
        Attack::Repeats(inside(put(1 << 40).as_bytes()), garbage()),
        Attack::Repeats(dressed(api, &chunked), more.clone()),
        Attack::Sends(garbage()),
        Attack::Sends([vec![0xff; 4], garbage()].concat()),
        Attack::Sends(b"GET / HTTP/9.9\r\n\r\n".to_vec()),
        Attack::Sends(b"\0\0\0\0".to_vec()),
        Attack::Sends(head.clone()),
        Attack::Drips(head.clone()),
        Attack::Repeats(head, b"x-more: and more\r\n".repeat(100)),
        Attack::Sends(format!("{}x", put(1000)).into_bytes()),
        Attack::Sends(put(u64::MAX).into_bytes()),
        Attack::Repeats(put(1 << 40).into_bytes(), garbage()),
        Attack::Repeats(chunked, more),
    ]
}

fn garbage() -> Vec<u8> {
    let mut chance = Chance::new(seed());
    (0..64 * 1024).map(|_| u8::try_from(chance.below(256)).expect("it is below")).collect()
}

impl Attack {
    /// Goes on until the other side ends it.
    fn run(self, address: SocketAddr) {
        let (mut stream, until) = (connect(address), Instant::now() + TOLERANCE);
        let what = format!("{:.60} at {address}", format!("{self:?}"));
        match self {
            Self::Sends(bytes) => _ = stream.write_all(&bytes),
            Self::Repeats(first, again) => {
                let mut sent = stream.write_all(&first);
                while sent.is_ok() {
                    assert!(Instant::now() < until, "{what} goes on");
                    sent = stream.write_all(&again);
                }
            }
            Self::Drips(bytes) => {
                for byte in bytes {
                    if stream.write_all(&[byte]).is_err() || has_ended(&mut stream, Duration::from_secs(1)) {
                        return;
                    }
                    assert!(Instant::now() < until, "{what} goes on");
                }
            }
        }
        await_end(stream, until);
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = eventually("a connection", || TcpStream::connect(address).ok());
    stream.set_write_timeout(Some(TOLERANCE)).expect("there is a time");
    stream
}

/// The other side must end this.
fn await_end(mut stream: TcpStream, until: Instant) {
    while !has_ended(&mut stream, until.saturating_duration_since(Instant::now())) {
        assert!(Instant::now() < until, "{:?} was tolerated for too long", stream.peer_addr());
    }
}

/// Has the other side ended it, at the latest after this time?
fn has_ended(stream: &mut TcpStream, within: Duration) -> bool {
    stream.set_read_timeout(Some(within.max(Duration::from_millis(1)))).expect("there is a time");
    match stream.read(&mut [0; 4096]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
    }
}

fn greet(address: SocketAddr, hello: &Hello) -> Answer {
    let (mut stream, mut said) = (connect(address), BytesMut::new());
    native::put(&mut said, hello).expect("it is short");
    stream.write_all(&said).expect("it listens");
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).expect("it answers and ends");
    native::take(&mut BytesMut::from(&heard[..])).expect("it is understood").expect("it is whole")
}

fn has_refused(events: &[Value], reason: &str) -> bool {
    let is_it = |event: &&Value| event["kind"] == "link_refused";
    events.iter().filter(is_it).any(|event| event["reason"].as_str().is_some_and(|said| said.contains(reason)))
}

/// A server that refuses a long body may close before it has read it all, and then its answer can be lost on the way.
fn patiently_ask(api: SocketAddr, method: &str, path: &str, body: &str) -> (u16, Value) {
    eventually(&format!("an answer to {method} {path}"), || ask(api, method, path, body).ok())
}

/// A server without `primus up`, for as long as it is needed.
struct Server {
    child: Child,
    api: SocketAddr,
}

impl Server {
    fn start(place: &Place, id: u64, farm: &str, peers: &[(u64, SocketAddr)]) -> Self {
        let (address, api) = (SocketAddr::new(own_address(2), 7460), SocketAddr::new(own_address(2), 7461));
        let config = place.dir.join("server.toml");
        fs::write(&config, configuration(place, id, farm, address, api, peers)).expect("a file can be written");
        let config = config.to_str().expect("the folder has a plain name");
        let parent = std::process::id().to_string();
        let mut command = place.command(&["server", "--insecure", "--config", config, "--parent", &parent]);
        let child = command.stdin(Stdio::null()).spawn().expect("primus starts");
        Self { child, api }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// On loopback, and of this test program only.
fn own_address(number: u8) -> IpAddr {
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high, low, number).into()
}

fn configuration(
    place: &Place,
    id: u64,
    farm: &str,
    address: SocketAddr,
    api: SocketAddr,
    peers: &[(u64, SocketAddr)],
) -> String {
    let peers = peers.iter().map(|(id, address)| format!("{{ id = {id}, address = \"{address}\" }}"));
    let peers = peers.collect::<Vec<_>>().join(", ");
    let dir = place.dir.join("data");
    format!(
        "[server]\nid = {id}\naddress = \"{address}\"\napi = \"{api}\"\nfarm = \"{farm}\"\ndir = \"{}\"\n\
         [peers]\npeers = [{peers}]\n",
        dir.display()
    )
}
