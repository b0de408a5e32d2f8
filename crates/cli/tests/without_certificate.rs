//! End to end: a process at a port of encrypted links that has no certificate, or one that is not its own. It learns that TLS is
//! spoken there, is not taken for a server, a worker or a neighbour, and locks none of them out. These are C2, H2, H3 and M3 of the review of
//! version 0.6.0; what rules hold on plain links, `strangers.rs` tests.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use common::eventually_or;
use common::namespace::inside;
use common::network::{self, LINKS};
use common::place::Place;
use common::secured::{FARM, Secured, authority, certificate, connect, dialling, founded, greet, keep};
use primus_core::ServerId;
use primus_identity::UnixTime;
use primus_identity::authority::Authority;
use primus_identity::certificate::DAY;
use primus_identity::config::{self, LINK};
use primus_identity::keys::Keys;
use primus_identity::name::{Name, dial_any};
use primus_identity::rustls::{ClientConfig, ClientConnection};
use primus_identity::verify::{HostClock, Pin};
use primus_wire::native::{self, Answer, FarmHello, Hello, Purpose, WorkerHello};
use serde::Serialize;

const STORE: [u8; 16] = [9; 16];
/// Somebody who owns nothing here.
const OTHER: &str = "65534";
/// A server's certificate with the one of its authority is far longer.
const WITHOUT_CERTIFICATE_LEN_MAX: usize = 400;

fn framed(hello: &impl Serialize) -> Vec<u8> {
    let mut said = BytesMut::new();
    native::put(&mut said, hello).expect("it is short");
    said.to_vec()
}

fn as_server(own: u64, to: u64, purpose: Purpose) -> Hello {
    Hello::new(FARM.to_owned(), ServerId(own), ServerId(to), STORE, 7).with_purpose(purpose)
}

fn as_worker(name: &str) -> WorkerHello {
    WorkerHello::new(FARM.to_owned(), name.to_owned(), ServerId(1), STORE)
}

fn as_neighbour() -> FarmHello {
    FarmHello::new("south".to_owned(), FARM.to_owned(), ServerId(1), STORE)
}

/// The first words of handshakes, of callers that offer this.
fn openings() -> Vec<Vec<u8>> {
    let other = Authority::create(FARM, UnixTime::now()).expect("it is a name").certificate().hash().short();
    let offers = [vec![], vec![b"h2".to_vec()], vec![LINK.to_vec()], vec![config::protocol(LINK, other)]];
    let opening = |offers: Vec<Vec<u8>>| {
        let mut caller: ClientConfig = (*config::joining(Pin::Short(other), Arc::new(HostClock))).clone();
        caller.alpn_protocols = offers;
        let mut caller = ClientConnection::new(Arc::new(caller), dial_any()).expect("the name is one");
        let mut said = Vec::new();
        caller.write_tls(&mut said).expect("memory takes all");
        said
    };
    offers.into_iter().map(opening).collect()
}

/// Sends this as a stranger does, and hears everything until the end.
fn hear(address: SocketAddr, bytes: &[u8], stranger: &[&str]) -> Vec<u8> {
    if stranger.is_empty() {
        let (mut tcp, mut heard) = (connect(address), Vec::new());
        tcp.write_all(bytes).expect("it listens");
        _ = tcp.read_to_end(&mut heard);
        return heard;
    }
    let script = format!("exec 3<>/dev/tcp/{}/{}; cat >&3; cat <&3", address.ip(), address.port());
    let mut command = Command::new(stranger[0]);
    command.args(&stranger[1..]).args(["bash", "-c", &script]).current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("there is a setpriv");
    child.stdin.take().expect("stdin is a pipe").write_all(bytes).expect("it reads");
    child.wait_with_output().expect("it ends").stdout
}

/// Whatever it says, such a stranger hears that TLS is spoken, and nothing else.
fn learns_nothing(address: SocketAddr, stranger: &[&str]) {
    drop(connect(address));
    let hellos = [framed(&as_server(2, 1, Purpose::Control)), framed(&as_worker("w1")), framed(&as_neighbour())];
    let heard: Vec<Vec<u8>> = hellos.iter().map(|hello| hear(address, hello, stranger)).collect();
    // The same to all: records of alerts, or the end of the connection.
    assert!(heard.iter().flat_map(|heard| heard.chunks(7)).all(|record| record.starts_with(&[21, 3])), "{heard:?}");
    let different: BTreeSet<&Vec<u8>> = heard.iter().filter(|heard| !heard.is_empty()).collect();
    assert!(different.len() <= 1, "{different:?}");
    for opening in openings() {
        let heard = hear(address, &opening, stranger);
        // A first word of TLS, if that, and an alert.
        assert!(heard.len() < WITHOUT_CERTIFICATE_LEN_MAX, "{} bytes: {heard:?}", heard.len());
        let text = String::from_utf8_lossy(&heard);
        assert!(["north", "server", "primus"].iter().all(|word| !text.contains(word)), "{text}");
    }
}

#[test]
fn a_process_without_a_certificate_learns_that_tls_is_spoken_and_nothing_else() {
    let place = Place::new();
    let founding = founded(&place, "north.founding");
    let mut farm = Secured::new(&place, Some(&founding), |address| address);
    farm.start_server(1);
    learns_nothing(farm.links[0], &[]);
    // This process can only become somebody else if it may be anybody.
    if rustix::process::geteuid().is_root() {
        learns_nothing(farm.links[0], &["setpriv", "--reuid", OTHER, "--regid", OTHER, "--clear-groups"]);
    }
    eventually_or("a sentence about it", || match farm.log("server-1") {
        log if log.contains("the caller does not speak primus over TLS") => Ok(()),
        log => Err(log),
    });
}

#[test]
#[ignore = "needs network namespaces"]
fn a_process_in_another_network_namespace_learns_that_tls_is_spoken_and_nothing_else() {
    const TEST: &str = "a_process_in_another_network_namespace_learns_that_tls_is_spoken_and_nothing_else";
    inside("--net", TEST, || {
        let place = Place::new();
        founded(&place, "north.founding");
        network::lay_switch();
        let address = SocketAddr::new(network::address(1), LINKS);
        let list = format!("1@{address}/127.0.0.1:7461,2@{}:{LINKS}/127.0.0.1:7462", network::address(2));
        let words = ["server", "--farm", FARM, "--id", "1", "--dir", "1", "--cluster", &list];
        let mut server = network::start(&place, 1, &[&words[..], &["--founding", "north.founding"]].concat());
        learns_nothing(address, &[]);
        _ = server.kill();
        _ = server.wait();
    });
}

/// Refused, with these words.
fn refused(farm: &Secured<'_>, config: &Arc<ClientConfig>, hello: &impl Serialize, words: &str) {
    let answer = greet(connect(farm.links[0]), Arc::clone(config), hello);
    assert!(matches!(&answer, Ok(Answer::Refused(said)) if said.contains(words)), "{words}: {answer:?}");
}

#[test]
fn a_worker_is_no_server_and_no_neighbour_and_keeps_none_of_them_out() {
    let place = Place::new();
    let founding = founded(&place, "north.founding");
    let mut farm = Secured::new(&place, Some(&founding), |address| address);
    (1..=2).for_each(|id| farm.start_server(id));
    let worker = dialling(&authority(&founding), &Name::worker(FARM, "w9").expect("it is a name"));
    // C2: it is not told which disk a server has, and would not be a server if it knew.
    let admitted = greet(connect(farm.links[0]), Arc::clone(&worker), &as_worker("w9"));
    assert_eq!(admitted.expect("it answers"), Answer::Admitted);
    let is_worker = "this is worker w9 of farm north, and a server was expected";
    for purpose in [Purpose::Control, Purpose::Questions, Purpose::Requests] {
        refused(&farm, &worker, &as_server(2, 1, purpose), is_worker);
        // H3: it greets as server 3, which has never been there.
        refused(&farm, &worker, &as_server(3, 1, purpose), is_worker);
    }
    // H2: it is not another worker.
    refused(&farm, &worker, &as_worker("w1"), "but the hello says worker w1 of farm north");
    // M3: nor does it speak for another farm.
    refused(
        &farm,
        &worker,
        &as_neighbour(),
        "this is worker w9 of farm north, and a node of farm south was expected",
    );
    // A server's certificate is not one of another farm either, nor of another server.
    let server = dialling(&authority(&founding), &Name::server(FARM, ServerId(2)).expect("it is a name"));
    refused(&farm, &server, &as_neighbour(), "a node of farm south was expected");
    refused(&farm, &server, &as_server(3, 1, Purpose::Control), "but the hello says server 3 of farm north");
    farm.start_server(3);
    farm.start_worker("w1");
    farm.runs("hello");
    eventually_or("server 3 to be there", || match farm.primus("status -o json") {
        status if status.matches("\"alive\":true").count() >= 3 => Ok(()),
        status => Err(format!("{status} {}", farm.logs_of_servers())),
    });
}

/// A connection that remembers what is said on it.
struct Recorded(TcpStream, Vec<u8>);

impl Read for &mut Recorded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for &mut Recorded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.0.write(bytes)?;
        self.1.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn what_was_said_on_one_connection_opens_no_other_one() {
    let place = Place::new();
    let founding = founded(&place, "north.founding");
    let mut farm = Secured::new(&place, Some(&founding), |address| address);
    farm.start_server(1);
    let worker = dialling(&authority(&founding), &Name::worker(FARM, "w9").expect("it is a name"));
    let mut recorded = Recorded(connect(farm.links[0]), Vec::new());
    assert_eq!(greet(&mut recorded, worker, &as_worker("w9")).expect("it answers"), Answer::Admitted);
    let words = "what the other side says cannot be decrypted: it repeats what was said on another connection";
    eventually_or(words, || {
        hear(farm.links[0], &recorded.1, &[]);
        if farm.log("server-1").contains(words) { Ok(()) } else { Err(farm.log("server-1")) }
    });
}

/// A worker with this certificate ends by itself, and says so.
fn ends(farm: &Secured<'_>, name: &str, words: &str) {
    let ran = farm.run_worker(name, &[]);
    assert!(ran.code == Some(5) && ran.stderr.contains(words), "{words}: {ran:?}");
}

#[test]
fn a_copied_certificate_and_one_from_the_future_are_refused() {
    let place = Place::new();
    let founding = founded(&place, "north.founding");
    let mut farm = Secured::new(&place, Some(&founding), |address| address);
    // A worker believes a refusal only if no server says otherwise.
    (1..=3).for_each(|id| farm.start_server(id));
    let north = authority(&founding);
    let give = |name: &str, now| {
        let name_in_full = Name::worker(FARM, name).expect("it is a name");
        let (keys, der) = certificate(&north, &name_in_full, now);
        keep(&place.dir.join(name), north.certificate(), &(keys, der.clone()));
        der
    };
    let in_three_years = UnixTime::since_unix_epoch(Duration::from_secs(UnixTime::now().as_secs()) + 1095 * DAY);
    give("early", in_three_years);
    ends(&farm, "early", "the other side refuses the certificate of this node: it is not valid now");
    let der = give("thief", UnixTime::now());
    keep(&place.dir.join("thief"), north.certificate(), &(Keys::generate().expect("there is randomness"), der));
    ends(&farm, "thief", "its private key is another one");
    // A key that lies elsewhere may be one that others can read.
    give("open", UnixTime::now());
    let elsewhere = place.dir.join("elsewhere");
    fs::rename(place.dir.join("open/tls/key.pem"), &elsewhere).expect("it is ours");
    plant(&elsewhere, &place.dir.join("open/tls/key.pem"));
    let ran = farm.run_worker("open", &[]);
    assert!(ran.code != Some(0) && ran.stderr.contains("links are not followed here"), "{ran:?}");
}

fn plant(target: &Path, link: &Path) {
    std::os::unix::fs::symlink(target, link).expect("a link can be made");
}
