//! End to end: a worker joins with a token. It needs nothing else, it needs the token once, and what it sends is sent to a server
//! of the authority that the token names only. Each refusal is a sentence, and exit code 5.

mod common;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bytes::BytesMut;
use common::place::{Place, Ran};
use common::secured::{FARM, Record, Secured, authority, certificate, founded};
use common::{eventually, eventually_or};
use primus_core::ServerId;
use primus_identity::UnixTime;
use primus_identity::authority::Authority;
use primus_identity::config::{self, Credentials};
use primus_identity::keys::{Keys, PublicKey};
use primus_identity::name::{Name, dial_any};
use primus_identity::rustls::{ClientConnection, ServerConnection, Stream};
use primus_identity::token::JoinToken;
use primus_identity::trust::Trust;
use primus_identity::verify::{HostClock, Pin};
use primus_wire::join::{JoinAnswer, JoinRequest};
use primus_wire::native;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(10);

/// Three servers, and no worker.
fn farm(place: &Place) -> Secured<'_> {
    let founding = founded(place, "north.founding");
    let mut farm = Secured::new(place, Some(&founding), |address| address);
    (1..=3).for_each(|id| farm.start_server(id));
    farm
}

/// A token that was made with these words, and its number.
fn token(farm: &Secured<'_>, words: &str) -> (String, u64) {
    let made = farm.primus(&format!("token create --role worker{words} -o json"));
    let made: Value = serde_json::from_str(&made).expect("stdout is JSON");
    (made["token"].as_str().expect("it is there").to_owned(), made["id"].as_u64().expect("it has a number"))
}

/// How often a token can still be used.
fn left(farm: &Secured<'_>, id: u64) -> u64 {
    let tokens: Value = serde_json::from_str(&farm.primus("token list -o json")).expect("stdout is JSON");
    let tokens = tokens["items"].as_array().expect("it is a list");
    tokens.iter().find(|token| token["id"] == id).expect("it is known")["left"].as_u64().expect("it is a number")
}

/// The same token, to be shown elsewhere.
fn at(token: &str, places: &[SocketAddr]) -> String {
    let mut token = JoinToken::parse(token).expect("it is a token");
    token.places = places.iter().map(|place| place.to_string().parse().expect("it is a place")).collect();
    token.reveal()
}

fn is_joined(place: &Place, name: &str) -> bool {
    place.dir.join(name).join("tls/certificate.pem").exists()
}

/// Runs a worker that is refused.
fn refused(place: &Place, name: &str, token: &str) -> Ran {
    place.primus(&format!("worker --name {name} --dir {name} --join {token}"))
}

fn start<'a>(farm: &mut Secured<'a>, name: &str, token: &str) {
    farm.start_told(name, &["worker", "--name", name, "--dir", name, "--allow", "*", "--join", token], &[]);
}

#[test]
fn a_worker_joins_works_restarts_without_a_token_and_survives_its_leader() {
    let place = Place::new();
    let mut farm = farm(&place);
    let (token, id) = token(&farm, "");
    let words = ["worker", "--name", "w9", "--dir", "w9", "--slots", "2", "--allow", "*"];
    farm.start_told("w9", &words, &[("PRIMUS_JOIN", &token), ("PRIMUS_TOKEN", "another-secret")]);
    farm.runs("hello");
    assert_eq!(left(&farm, id), 0);
    let mode = |path: &str| fs::metadata(place.dir.join(path)).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode("w9/tls"), mode("w9/tls/key.pem"), mode("w9/farm.json")), (0o700, 0o600, 0o600));
    let seen = place.primus(&format!("run --api {} -- env", farm.api(1))).stdout;
    assert!(seen.contains("PATH=") && !seen.contains("PRIMUS_JOIN") && !seen.contains("another-secret"), "{seen}");
    // It has a name of its own now.
    farm.kill("w9");
    farm.start_told("w9", &words, &[]);
    farm.runs("again");
    let leader = farm.leader();
    farm.kill(&format!("server-{leader}"));
    farm.runs("for the third time");
    farm.kill("w9");
    start(&mut farm, "w9", &token);
    farm.runs("for the fourth time");
    assert!(farm.log("w9").contains("has joined already, so the token is not used"), "{}", farm.log("w9"));
}

#[test]
fn a_token_comes_from_stdin_too_and_only_where_it_is_wanted() {
    let place = Place::new();
    let mut farm = farm(&place);
    let (token, id) = token(&farm, " --uses 2");
    let mut command = place.command(&["worker", "--name", "w8", "--dir", "w8", "--join", "-"]);
    let parent = std::process::id().to_string();
    let worker = command.args(["--parent", &parent]).stdin(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut worker = worker.expect("primus starts");
    writeln!(worker.stdin.take().expect("it is a pipe"), "{token}").expect("it reads");
    eventually("a worker that joins", || is_joined(&place, "w8").then_some(()));
    worker.kill().expect("it runs");
    worker.wait().expect("it was started here");
    assert_eq!(left(&farm, id), 1);
    for (line, words) in [
        ("worker --name w7 --dir w7 --join nonsense", "the token cannot be used: the token has no place"),
        ("worker --name w7 --dir w7 --join -", "the token cannot be used"),
        ("worker --name w7 --dir w7 --insecure --join x", "they need no token"),
    ] {
        let ran = place.primus(line);
        assert!(ran.code == Some(2) && ran.stderr.contains(words), "{line}: {ran:?}");
    }
    assert!(!place.dir.join("w7").exists(), "nothing is made for what cannot be right");
    start(&mut farm, "w7", &token);
    farm.runs("hello");
}

#[test]
fn each_refusal_is_a_sentence() {
    let place = Place::new();
    let mut farm = farm(&place);
    let (good, id) = token(&farm, " --name w1");
    let (used, _) = token(&farm, "");
    let (short, _) = token(&farm, " --ttl 1ms");
    let (void, number) = token(&farm, "");
    farm.primus(&format!("token revoke {number}"));
    let is_refused = |name: &str, token: &str, words: &str| {
        let ran = refused(&place, name, token);
        assert!(ran.code == Some(5) && ran.stderr.contains(words), "{words}: {ran:?}");
        let json = place.primus(&format!("worker --name {name} --dir {name} --join {token} -o json"));
        let json: Value = serde_json::from_str(&json.stderr).expect("stderr is one line of JSON");
        assert_eq!(json["error"]["code"], "not_allowed", "{json}");
        assert!(!is_joined(&place, name) && !ran.stderr.contains("primus-worker-"), "{ran:?}");
    };
    is_refused("w2", &good, "the token is for worker w1");
    is_refused("w2", &short, "the token has expired");
    is_refused("w2", &void, "the token was revoked, or this farm never made it");
    is_refused("w2", &good.replace("primus-worker-", "primus-server-"), "the token is for servers");
    let mut guessed = JoinToken::parse(&good).expect("it is one");
    guessed.secret = primus_identity::token::Secret::from_bytes([7; 16]);
    is_refused("w2", &guessed.reveal(), "the token was revoked, or this farm never made it");
    let (head, tail) = good.split_at("primus-worker-".len());
    let digit = if tail.starts_with('0') { "1" } else { "0" };
    let other = format!("{head}{digit}{}", &tail[1..]);
    is_refused("w2", &other, "this server has another authority than the token says: somebody may be in between");
    assert_eq!(left(&farm, id), 1);
    start(&mut farm, "w1", &good);
    farm.runs("hello");
    is_refused("w2", &good, "the token is used up");
    // Another worker of that name, on another host.
    let ran = place.primus(&format!("worker --name w1 --dir elsewhere --join {used}"));
    let words = "w1 is another worker: primus workers forget w1, or choose a name";
    assert!(ran.code == Some(5) && ran.stderr.contains(words), "{ran:?}");
    let nowhere = at(&used, &["127.0.0.1:1".parse().expect("it is a place")]);
    let ran = refused(&place, "w2", &nowhere);
    assert!(ran.code == Some(3) && ran.stderr.contains("no server answers: 127.0.0.1:1"), "{ran:?}");
    let kept = eventually("the sentences", || {
        let log = farm.logs_of_servers();
        log.contains("refused to let worker").then_some(log)
    });
    assert!(!kept.contains("primus-worker-"), "{kept}");
}

#[test]
fn a_plain_farm_needs_no_token() {
    let place = Place::new();
    let founding = founded(&place, "north.founding");
    let mut farm = Secured::new(&place, None, |address| address);
    farm.start_server(1);
    eventually("a server", || TcpStream::connect(farm.links[0]).ok());
    let north = authority(&founding).certificate().hash().short();
    let token = format!("primus-worker-{north}-1-{}@{}", "ab".repeat(16), farm.links[0]);
    let ran = refused(&place, "w2", &token);
    assert!(ran.code == Some(5) && ran.stderr.contains("so its farm needs no token"), "{ran:?}");
}

#[test]
fn of_two_joiners_with_a_token_for_one_one_gets_in() {
    let place = Place::new();
    let mut farm = farm(&place);
    let (token, id) = token(&farm, " --uses 1");
    ["wa", "wb"].into_iter().for_each(|name| start(&mut farm, name, &token));
    let loser = eventually("one that is refused", || ["wa", "wb"].into_iter().find(|name| farm.has_ended(name)));
    assert!(farm.log(loser).contains("the token is used up"), "{}", farm.log(loser));
    farm.runs("hello");
    assert!(!is_joined(&place, loser) && left(&farm, id) == 0);
    let winner = if loser == "wa" { "wb" } else { "wa" };
    assert!(is_joined(&place, winner) && !farm.has_ended(winner));
}

/// A server of this authority, which writes down what is said to it, once hands are shaken.
fn trap(authority: &Authority, said: &Arc<Mutex<Vec<u8>>>) -> SocketAddr {
    let name = Name::server(FARM, ServerId(1)).expect("it is a name");
    let (keys, der) = certificate(authority, &name, UnixTime::now());
    let credentials = Credentials::new(der, authority.certificate(), &keys).expect("it was issued for it");
    let trust = Trust::new(FARM, vec![authority.certificate().clone()], Vec::new()).expect("it is its farm");
    let accepting = config::accepting(&credentials, &Arc::new(trust), Arc::new(HostClock));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (address, said) = (listener.local_addr().expect("it is bound"), Arc::clone(said));
    thread::spawn(move || {
        for mut caller in listener.incoming().flatten() {
            caller.set_read_timeout(Some(PATIENCE)).expect("it is open");
            let mut tls = ServerConnection::new(Arc::clone(&accepting)).expect("it can be made");
            let mut stream = Stream::new(&mut tls, &mut caller);
            let mut buffer = [0; 4096];
            while let Ok(len @ 1..) = stream.read(&mut buffer) {
                said.lock().expect("nobody panics here").extend_from_slice(&buffer[..len]);
            }
        }
    });
    address
}

#[test]
fn somebody_in_between_hears_nothing_of_the_secret() {
    let place = Place::new();
    let farm = farm(&place);
    let (token, id) = token(&farm, "");
    let secret = *JoinToken::parse(&token).expect("it is one").secret.reveal();
    let said = Arc::<Mutex<Vec<u8>>>::default();
    let hears = |said: &Mutex<Vec<u8>>| {
        said.lock().expect("nobody panics here").windows(secret.len()).any(|window| window == secret)
    };
    // The same name, and another key.
    let false_north = Authority::create(FARM, UnixTime::now()).expect("there is randomness");
    let record = Record::default();
    let relay = record.relay(trap(&false_north, &said));
    let ran = refused(&place, "w2", &at(&token, &[relay]));
    let words = "another authority than the token says: somebody may be in between";
    assert!(ran.code == Some(5) && ran.stderr.contains(words), "{ran:?}");
    assert!(record.len() > 100, "it has dialled there");
    assert_eq!(said.lock().expect("nobody panics here").len(), 0);
    // A server of the right authority hears it, so the test can see it.
    let north = authority(&place.dir.join("north.founding"));
    let right = trap(&north, &said);
    let mut worker = place.command(&["worker", "--name", "w2", "--dir", "w2", "--join", &at(&token, &[right])]);
    let mut worker = worker.stderr(Stdio::null()).spawn().expect("primus starts");
    eventually("the secret", || hears(&said).then_some(()));
    worker.kill().expect("it runs");
    worker.wait().expect("it was started here");
    assert_eq!(left(&farm, id), 1);
    // Where one place is false and another one is not, it joins at the other one.
    let mut farm = farm;
    let both = at(&token, &[relay, farm.links[1]]);
    start(&mut farm, "w2", &both);
    farm.runs("hello");
}

/// A relay to this place, and what callers said on it. A deaf one lets hands be shaken and a request through, and no answer.
fn relay(to: SocketAddr, is_deaf: bool) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (address, record) = (listener.local_addr().expect("it is bound"), Arc::<Mutex<Vec<u8>>>::default());
    let said = Arc::clone(&record);
    thread::spawn(move || {
        for caller in listener.incoming().flatten() {
            let Ok(callee) = TcpStream::connect(to) else { continue };
            let words = Arc::new(AtomicUsize::new(0));
            for is_caller in [true, false] {
                let ends = if is_caller { (&caller, &callee) } else { (&callee, &caller) };
                let (mut from, mut to) = (ends.0.try_clone().expect("open"), ends.1.try_clone().expect("open"));
                let (words, said) = (Arc::clone(&words), Arc::clone(&said));
                thread::spawn(move || {
                    let mut buffer = [0; 16 << 10];
                    while let Ok(len @ 1..) = from.read(&mut buffer) {
                        if is_caller {
                            // The first words of the caller are its hello; a request follows the end of the handshake.
                            words.fetch_add(1, Ordering::SeqCst);
                            said.lock().expect("nobody panics here").extend_from_slice(&buffer[..len]);
                        } else if is_deaf && words.load(Ordering::SeqCst) > 1 {
                            continue;
                        }
                        if to.write_all(&buffer[..len]).is_err() {
                            break;
                        }
                    }
                    _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    (address, record)
}

/// What a server answers to a request.
fn ask(place: SocketAddr, token: &JoinToken, said: &[u8]) -> std::io::Result<JoinAnswer> {
    let mut tcp = TcpStream::connect(place)?;
    tcp.set_read_timeout(Some(PATIENCE))?;
    let joining = config::joining(Pin::Short(token.authority), Arc::new(HostClock));
    let mut tls = ClientConnection::new(joining, dial_any()).expect("the name is one");
    let mut stream = Stream::new(&mut tls, &mut tcp);
    stream.write_all(said)?;
    let mut arrived = BytesMut::new();
    loop {
        if let Some(answer) = native::take(&mut arrived).expect("it is an answer") {
            return Ok(answer);
        }
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            len => arrived.extend_from_slice(&buffer[..len]),
        }
    }
}

#[test]
fn a_request_that_is_repeated_uses_its_token_once_and_another_one_is_not_heard() {
    let place = Place::new();
    let farm = farm(&place);
    let (text, id) = token(&farm, " --uses 3");
    let token = JoinToken::parse(&text).expect("it is one");
    let key = Keys::generate().expect("there is randomness").public_key();
    let request = |store: u8, name: &str, key: &PublicKey| {
        let mut said = BytesMut::new();
        let parts = ("worker", token.id, *token.secret.reveal());
        let request = JoinRequest::new(parts, [store; 16], key.der().to_vec(), name.to_owned());
        native::put(&mut said, &request).expect("it is short");
        said
    };
    let mut certificates = Vec::new();
    for link in &farm.links {
        match ask(*link, &token, &request(1, "w5", &key)).expect("it answers") {
            JoinAnswer::Joined(invitation) => certificates.push(invitation.certificate),
            other => panic!("it lets it join: {other:?}"),
        }
    }
    let serials: Vec<_> = certificates
        .into_iter()
        .map(|der| primus_identity::certificate::Certificate::read(&der.into()).expect("it is one").serial)
        .collect();
    assert!(serials.iter().all(|serial| *serial == serials[0]), "{serials:?}");
    assert_eq!(left(&farm, id), 2);
    // The bytes of a joiner, said again by somebody else.
    let (between, said) = relay(farm.links[0], false);
    let key = Keys::generate().expect("there is randomness").public_key();
    assert!(matches!(ask(between, &token, &request(2, "w6", &key)), Ok(JoinAnswer::Joined(_))));
    assert_eq!(left(&farm, id), 1);
    let mut again = TcpStream::connect(farm.links[0]).expect("it listens");
    again.set_read_timeout(Some(PATIENCE)).expect("it is open");
    let said = said.lock().expect("nobody panics here").clone();
    assert!(said.len() > 300, "a hello and a request");
    _ = again.write_all(&said);
    let mut heard = Vec::new();
    _ = again.read_to_end(&mut heard);
    assert_eq!(left(&farm, id), 1);
    // Bytes that are not a request, or are too long for one, get no answer.
    for said in [&[0, 0, 0, 3, 1, 2, 3][..], &[0, 1, 0, 0], &[b'x'; 4096]] {
        assert!(ask(farm.links[0], &token, said).is_err());
    }
}

#[test]
fn a_joiner_that_dies_before_it_hears_the_answer_joins_again_with_the_same_token() {
    let place = Place::new();
    let mut farm = farm(&place);
    let (token, id) = token(&farm, "");
    let deaf = at(&token, &[relay(farm.links[0], true).0]);
    start(&mut farm, "w9", &deaf);
    eventually("a token that is used", || (left(&farm, id) == 0).then_some(()));
    farm.kill("w9");
    assert!(!is_joined(&place, "w9"));
    // Another one does not get in with it.
    assert_eq!(refused(&place, "w8", &token).code, Some(5));
    start(&mut farm, "w9", &token);
    farm.runs("hello");
    assert!(is_joined(&place, "w9"));
}

#[test]
fn a_joiner_whose_leader_dies_before_it_answers_joins_with_the_next_one() {
    let place = Place::new();
    let mut farm = farm(&place);
    let (token, id) = token(&farm, "");
    let leader = farm.leader();
    let follower = farm.links[leader % 3];
    let places = [relay(farm.links[leader - 1], true).0, follower];
    start(&mut farm, "w9", &at(&token, &places));
    eventually("a token that is used", || (left(&farm, id) == 0).then_some(()));
    farm.kill(&format!("server-{leader}"));
    let attempt = || if is_joined(&place, "w9") { Ok(()) } else { Err(farm.log("w9")) };
    eventually_or("a worker that joins", attempt);
    farm.runs("hello");
    assert_ne!(farm.leader(), leader);
}

#[test]
fn a_worker_inside_a_program_joins_with_a_token_and_needs_it_once() {
    let place = Place::new();
    let farm = farm(&place);
    let (token, id) = token(&farm, "");
    let dir = place.dir.join("own");
    let run = |token: &str| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("the system gives a runtime");
        let started = runtime.block_on(primus_farm::Worker::join(token, "own", &dir).start());
        let worker = started.map_err(|error| error.to_string())?;
        let is_there = || farm.primus("workers").contains("own").then_some(());
        eventually("the worker", is_there);
        runtime.block_on(worker.stop()).map_err(|error| error.to_string())
    };
    assert!(run("nonsense").unwrap_err().contains("the token cannot be used"));
    assert_eq!(run(&token), Ok(()));
    assert_eq!(left(&farm, id), 0);
    assert_eq!(run(&token.replace("primus-worker-", "primus-server-")), Ok(()), "it is not looked at any more");
    let other = dir.with_file_name("other");
    let refused = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let refused = refused.block_on(primus_farm::Worker::join(&token, "other", other).start());
    assert!(refused.expect_err("one only").to_string().contains("the token is used up"));
}
