//! End to end: crowds at the ports of encrypted links that never become nodes. They are silent, send garbage, or begin a handshake and
//! leave it there. A cluster that serves meanwhile does not notice, and its own nodes get in.

mod common;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::clients::{StopAtEnd, seed};
use common::place::{Farm, Place};
use common::secured::hash;
use common::unnoticed::{links, unnoticed, unnoticed_in};
use primus_identity::config::{self, LINK};
use primus_identity::name::dial_any;
use primus_identity::rustls::{ClientConfig, ClientConnection};
use primus_identity::verify::{HostClock, Pin};
use primus_lab::chance::Chance;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const SILENT: usize = 5000;
/// So many openings of garbage by all threads together.
const GARBAGE: usize = 50_000;
const HALF_DONE: usize = 2000;
const THREADS: usize = 4;
const GARBAGE_LEN: u64 = 600;
/// How long a crowd is tolerated at most.
const TOLERANCE: Duration = Duration::from_secs(60);

fn allow_files() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("it is allowed that");
}

/// A connection; a listener with a full queue takes one a moment later.
fn connect(address: SocketAddr) -> TcpStream {
    let until = Instant::now() + TOLERANCE;
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < until, "{address}: {error}"),
        }
    }
}

/// Each must be ended by the other side, with nothing but what a handshake says.
fn await_ends(crowd: Vec<TcpStream>) {
    let until = Instant::now() + TOLERANCE;
    for mut stream in crowd {
        let mut heard = Vec::new();
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left)).expect("there is a time");
        if let Err(error) = stream.read_to_end(&mut heard) {
            assert!(error.kind() != std::io::ErrorKind::WouldBlock, "it was tolerated for too long");
        }
    }
}

/// What a caller says first that knows the farm's authority, and nothing else.
fn opening(farm: &Farm<'_>, dir: &Path) -> Vec<u8> {
    let name = farm.ready["farm"].as_str().expect("a farm has a name");
    let authority = hash(&dir.join("farm.founding"), name);
    let mut config: ClientConfig = (*config::joining(Pin::Short(authority), Arc::new(HostClock))).clone();
    config.alpn_protocols = vec![config::protocol(LINK, authority)];
    let mut caller = ClientConnection::new(Arc::new(config), dial_any()).expect("the name is one");
    let mut said = Vec::new();
    caller.write_tls(&mut said).expect("memory takes all");
    said
}

#[test]
fn thousands_that_say_nothing_are_not_noticed() {
    allow_files();
    unnoticed("", |farm| {
        let ports: Vec<SocketAddr> = links(farm);
        await_ends((0..SILENT).map(|number| connect(ports[number % ports.len()])).collect());
    });
}

#[test]
fn thousands_that_open_with_garbage_are_not_noticed() {
    unnoticed("", |farm| {
        let (ports, opened) = (links(farm), AtomicUsize::new(0));
        let began = Instant::now();
        thread::scope(|scope| {
            for number in 0..THREADS {
                let (ports, opened) = (&ports, &opened);
                scope.spawn(move || {
                    let mut chance = Chance::new(seed() ^ number as u64);
                    while opened.fetch_add(1, Ordering::Relaxed) < GARBAGE {
                        let len = usize::try_from(1 + chance.below(GARBAGE_LEN)).expect("it is short");
                        let mut bytes: Vec<u8> =
                            (0..len).map(|_| u8::try_from(chance.below(256)).expect("it is below")).collect();
                        if chance.below(2) == 0 {
                            // As a handshake begins.
                            bytes.splice(0..0, [22, 3, 1, 1, 0, 1, 0]);
                        }
                        _ = connect(ports[len % ports.len()]).write_all(&bytes);
                    }
                });
            }
        });
        println!("{GARBAGE} openings in {} ms", began.elapsed().as_millis());
    });
}

#[test]
fn thousands_of_handshakes_that_go_no_further_are_not_noticed() {
    allow_files();
    let place = Place::new();
    unnoticed_in(&place, "--dir data", |farm| {
        let (ports, opening) = (links(farm), opening(farm, &place.dir.join("data")));
        let begin = |number: usize| {
            let mut stream = connect(ports[number % ports.len()]);
            // Half of them say a part of the first word, the others all of it: they are shown who is there, and say no more.
            let len = if number.is_multiple_of(2) { opening.len() } else { opening.len() / 2 };
            _ = stream.write_all(&opening[..len]);
            stream
        };
        await_ends((0..HALF_DONE).map(begin).collect());
    });
}

/// A crowd is larger than a server has places for handshakes, and goes on. The nodes of the farm get in all the same.
#[test]
fn a_crowd_of_half_done_handshakes_keeps_no_node_out() {
    let place = Place::new();
    let farm = place.up("--dir data --workers 1");
    let (stop, ports) = (AtomicBool::new(false), links(&farm));
    let opening = opening(&farm, &place.dir.join("data"));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut here = VecDeque::new();
            for port in ports.iter().cycle() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let mut stream = connect(*port);
                _ = stream.write_all(&opening);
                here.push_back(stream);
                if here.len() > 600 {
                    here.pop_front();
                }
            }
        });
        let _stop = StopAtEnd(&stop);
        for node in ["1", "2", "3", "w1"] {
            place.json(&format!("chaos kill {node}"));
            place.json(&format!("chaos restart {node}"));
            farm.wait_until_alive(3);
        }
        let ran = place.primus("run -- echo hello");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "hello\n"), "{ran:?}");
    });
    farm.end();
}
