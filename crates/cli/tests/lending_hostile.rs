//! End to end: a neighbour that is no farm at all. Whatever it says, promises or sends, it costs a moment and a line in the
//! history; the next neighbour is asked, nothing changes hands, and the farm goes on.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use bytes::BytesMut;
use common::broker::free_ports;
use common::clients::StopAtEnd;
use common::eventually_or;
use common::flood::Flood;
use common::neighbourhood::{Ledgers, Member, text};
use common::place::Place;
use common::stranger::Stranger;
use primus_core::farm;
use primus_core::ledger::{LoanId, Why};
use primus_core::loan::{Beat, Content, LentWorker, Message, Objection, Request};
use primus_core::{ServerId, Term};
use primus_wire::native::{self, Answer, FarmHello, Greeting, WorkerHello};
use primus_wire::work::{self, FromWorker, Reader, ToWorker};
use serde_json::Value;

const FLOOD: (usize, &str) = (120, "0.1");
const STORE: [u8; 16] = [7; 16];
const TERM: u64 = 1;
/// A loan that nobody has made.
const LOAN: LoanId = LoanId(7);
/// How often the other farm shows that it is there.
const PAUSE: Duration = Duration::from_millis(100);
const GARBAGE: [u8; 64] = [0xa5; 64];
/// However often it does the same, it must not fill the history.
const LINES_MAX: usize = 40;

/// What is wrong with the neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// It takes calls and says nothing.
    Mute,
    /// What it says means nothing.
    Garbage,
    /// It never answers a request.
    Silent,
    /// It lends nobody.
    Refuses,
    /// It promises everybody and sends nobody.
    Promises,
    /// It says that it has lent everybody, and sends nobody.
    Pretends,
    /// It says that it has borrowed whom nobody has lent.
    Claims,
    /// A worker comes from it that it has not lent.
    SendsStrangers,
}

impl Manner {
    fn beat(self) -> Content {
        let borrowed = if self == Self::Claims { vec![LOAN] } else { Vec::new() };
        let lending = |number: u64| LentWorker {
            loan: LoanId(number),
            worker: format!("w{number}"),
            for_ms: 60_000,
            why: Why::Asked,
            is_recalled: false,
        };
        let lent = if self == Self::Pretends { (1..=20).map(lending).collect() } else { Vec::new() };
        Content::Beat(Beat { idle: 5, queued: 0, lent, borrowed })
    }

    fn answer(self, Request { number, count, .. }: Request) -> Option<Content> {
        match self {
            Self::Promises => Some(Content::Offer { number, loans: (1..=u64::from(count)).map(LoanId).collect() }),
            Self::Silent => None,
            _ => Some(Content::Refusal { number, objection: Objection::NoneIdle }),
        }
    }

    /// The event that people see.
    const fn told(self) -> Option<&'static str> {
        match self {
            // Whoever has never been heard is never asked, so there is nothing to tell.
            Self::Mute => None,
            Self::Garbage => Some("link_refused"),
            Self::Silent => Some("neighbour_silent"),
            Self::Refuses => Some("loan_refused"),
            Self::Promises | Self::Pretends => Some("loan_not_sent"),
            Self::Claims => Some("loan_unknown"),
            Self::SendsStrangers => Some("worker_unknown"),
        }
    }
}

/// A farm that is none, and how it behaves.
struct Fake<'a> {
    manner: Manner,
    listener: &'a TcpListener,
    /// Where the farm listens that it is a neighbour of.
    north: SocketAddr,
    stop: AtomicBool,
}

impl Fake<'_> {
    /// Behaves so while something is done.
    fn while_it_behaves<T>(&self, act: impl FnOnce() -> T) -> T {
        let (requests, asked) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || self.take_calls(&requests));
            scope.spawn(move || self.speak(&asked));
            if self.manner == Manner::SendsStrangers {
                scope.spawn(|| self.send_a_stranger());
            }
            let _stop = StopAtEnd(&self.stop);
            act()
        })
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Takes the calls of the other farm's leader, one after the other, and hears what it asks for.
    fn take_calls(&self, requests: &Sender<Request>) {
        while self.goes_on() {
            match self.listener.accept() {
                Ok((stream, _)) => _ = self.take_call(stream, requests),
                Err(_) => thread::sleep(PAUSE / 10),
            }
        }
    }

    fn take_call(&self, mut stream: TcpStream, requests: &Sender<Request>) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        let mut arrived = BytesMut::new();
        let greeting =
            self.await_word(&mut stream, &mut arrived, |arrived| Greeting::take(arrived).ok().flatten())?;
        let Greeting::Farm(hello) = greeting else { panic!("{greeting:?} is not a call of a farm") };
        assert_eq!((hello.farm.as_str(), hello.to.as_str()), ("north", "fake"));
        match self.manner {
            Manner::Mute => {}
            Manner::Garbage => stream.write_all(&GARBAGE)?,
            _ => say(&mut stream, &Answer::Admitted)?,
        }
        let mut reader = Reader::default();
        loop {
            let mut take = |arrived: &mut BytesMut| reader.take::<Message>(arrived).ok().flatten();
            let Message { content, .. } = self.await_word(&mut stream, &mut arrived, &mut take)?;
            if let Content::Ask(request) = content {
                _ = requests.send(request);
            }
        }
    }

    /// Calls the other farm and says what it has to say, again and again.
    fn speak(&self, asked: &Receiver<Request>) {
        while self.goes_on() && self.manner != Manner::Mute {
            _ = self.call(asked);
            thread::sleep(PAUSE);
        }
    }

    fn call(&self, asked: &Receiver<Request>) -> io::Result<()> {
        let mut stream = TcpStream::connect(self.north)?;
        say(&mut stream, &FarmHello::new("fake".to_owned(), "north".to_owned(), ServerId(1), STORE))?;
        let mut arrived = BytesMut::new();
        self.await_word(&mut stream, &mut arrived, |arrived| native::take::<Answer>(arrived).ok().flatten())?;
        if self.manner == Manner::Garbage {
            stream.write_all(&GARBAGE)?;
            return self.await_word(&mut stream, &mut arrived, |_| None);
        }
        while self.goes_on() {
            let mut buffer = BytesMut::new();
            let answers = asked.try_iter().filter_map(|request| self.manner.answer(request));
            for content in answers.chain([self.manner.beat()]) {
                work::put(&mut buffer, &Message { term: Term(TERM), content });
            }
            stream.write_all(&buffer)?;
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// A worker calls that nobody has sent. It must never get anything to do.
    fn send_a_stranger(&self) {
        while self.goes_on() {
            _ = self.send_one();
            thread::sleep(PAUSE);
        }
    }

    fn send_one(&self) -> io::Result<()> {
        let mut stream = TcpStream::connect(self.north)?;
        let name = "x@fake".to_owned();
        say(&mut stream, &WorkerHello::new("north".to_owned(), name.clone(), ServerId(1), STORE))?;
        let mut arrived = BytesMut::new();
        self.await_word(&mut stream, &mut arrived, |arrived| native::take::<Answer>(arrived).ok().flatten())?;
        let (held, ended) = (Vec::new(), Vec::new());
        let hello = farm::Hello { name, term: Term(0), slots: 8, loan: Some(LOAN), held, ended };
        let mut buffer = BytesMut::new();
        work::put(&mut buffer, &FromWorker::Farm(farm::Message::Hello(hello)));
        stream.write_all(&buffer)?;
        let mut reader = Reader::default();
        loop {
            let mut take = |arrived: &mut BytesMut| reader.take::<ToWorker>(arrived).ok().flatten();
            let word = self.await_word(&mut stream, &mut arrived, &mut take)?;
            assert!(!matches!(word, ToWorker::Farm(farm::Message::Run(..))), "a stranger got work: {word:?}");
        }
    }

    /// Reads until this finds something, the other side closes, or it is over.
    fn await_word<T>(
        &self,
        stream: &mut TcpStream,
        arrived: &mut BytesMut,
        mut take: impl FnMut(&mut BytesMut) -> Option<T>,
    ) -> io::Result<T> {
        stream.set_read_timeout(Some(PAUSE))?;
        let mut buffer = [0; 4096];
        while self.goes_on() {
            if let Some(word) = take(arrived) {
                return Ok(word);
            }
            match stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => arrived.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::Interrupted.into())
    }
}

fn say(stream: &mut TcpStream, hello: &impl serde::Serialize) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    native::put(&mut buffer, hello).map_err(io::Error::other)?;
    stream.write_all(&buffer)
}

/// Two real farms. North's first neighbour is the one that is none; its second one is south.
struct Street {
    ledgers: Ledgers,
    nodes: Vec<Child>,
    north: SocketAddr,
}

impl Street {
    fn start(place: &Place, fake: SocketAddr) -> Self {
        let [north, south] = [free_ports(), free_ports()];
        let mut street = Self { ledgers: Ledgers { farms: Vec::new() }, nodes: Vec::new(), north: local(north) };
        let (to_north, to_south) = (neighbour("north", local(north)), neighbour("south", local(south)));
        street.open(place, ("north", north), &["n1"], &(neighbour("fake", fake) + &to_south));
        street.open(place, ("south", south), &["s1", "s2"], &to_north);
        street.ledgers.await_start();
        street
    }

    /// Starts a farm.
    fn open(&mut self, place: &Place, (farm, port): (&str, u16), workers: &[&str], neighbours: &str) {
        let (links, api) = (local(port), local(port + 1));
        let text = format!(
            "[server]\nid = 1\nfarm = \"{farm}\"\ndir = \"server-{farm}\"\n[cluster]\n\
             servers = [{{ id = 1, address = \"{links}\", api = \"{api}\" }}]\n{neighbours}"
        );
        let config = format!("{farm}.toml");
        fs::write(place.dir.join(&config), text).expect("a file can be written");
        self.spawn(place, &["server", "--insecure", "--config", &config]);
        for name in workers {
            let words = [
                "worker",
                "--insecure",
                "--config",
                &config,
                "--name",
                name,
                "--dir",
                name,
                "--slots",
                "1",
                "--allow",
                "*",
            ];
            self.spawn(place, &words);
        }
        let workers = workers.iter().map(|name| (*name).to_owned()).collect();
        self.ledgers.farms.push(Member { name: farm.to_owned(), api: vec![api], workers });
    }

    fn spawn(&mut self, place: &Place, words: &[&str]) {
        let mut command = place.command(words);
        command.args(["--parent", &std::process::id().to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.nodes.push(command.spawn().expect("primus starts"));
    }

    /// What north has told of the neighbour that is none, after so many events.
    fn told(&self, kind: &str, after: usize) -> Vec<Value> {
        let events = self.ledgers.events().into_iter().filter(|(farm, _)| farm == "north");
        let is_it = |event: &Value| event["kind"] == kind && event.to_string().contains("fake");
        events.map(|(_, event)| event).skip(after).filter(is_it).collect()
    }

    /// What a farm has told of this kind.
    fn told_by(&self, farm: &str, kind: &str) -> Vec<Value> {
        let events =
            self.ledgers.events().into_iter().filter(|(teller, event)| teller == farm && event["kind"] == kind);
        events.map(|(_, event)| event).collect()
    }

    fn events_len(&self) -> usize {
        self.ledgers.events().iter().filter(|(farm, _)| farm == "north").count()
    }
}

impl Drop for Street {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            _ = node.kill();
            _ = node.wait();
        }
    }
}

const fn local(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

fn neighbour(name: &str, address: SocketAddr) -> String {
    // Its second server is never started, so its place is free for whoever takes it.
    let other = SocketAddr::new(address.ip(), address.port() + 2);
    format!(
        "[[neighbours]]\nname = \"{name}\"\n\
         servers = [{{ id = 1, address = \"{address}\" }}, {{ id = 2, address = \"{other}\" }}]\n"
    )
}

/// Floods north while its first neighbour behaves so.
fn endure(manner: Manner) {
    let place = Place::new();
    let listener = TcpListener::bind(local(0)).expect("there is a free port");
    listener.set_nonblocking(true).expect("a listener need not wait");
    let street = Street::start(&place, listener.local_addr().expect("it has an address"));
    let fake = Fake { manner, listener: &listener, north: street.north, stop: AtomicBool::new(false) };
    let before = street.events_len();
    fake.while_it_behaves(|| {
        if manner != Manner::Mute && manner != Manner::Garbage {
            await_heard(&street);
        }
        let flood = Flood::begin(&place, &street.ledgers, "north", FLOOD);
        flood.wait();
        if let Some(kind) = manner.told() {
            let lines = eventually_or(&format!("a line about {manner:?}"), || match street.told(kind, before) {
                lines if lines.is_empty() => Err(format!("{:?}", street.ledgers.events())),
                lines => Ok(lines),
            });
            assert!(lines.len() < LINES_MAX, "{lines:?}");
        }
        street.ledgers.await_all_home(&BTreeSet::new());
        let verdict = flood.judge();
        assert_eq!(verdict.guests, street.ledgers.member("south").workers, "{:?}", street.ledgers.events());
        assert_eq!(verdict.reruns, Vec::<String>::new());
    });
    nothing_has_changed_hands(&street);
}

fn await_heard(street: &Street) {
    eventually_or("the neighbour to be heard", || {
        let known = street.ledgers.items("north", "/v1/farms");
        let is_heard = known.iter().any(|farm| farm["farm"] == "fake" && farm["heard"] == true);
        if is_heard { Ok(()) } else { Err(format!("{known:?}")) }
    });
}

/// Only south has lent anybody, and nobody is known that nobody knows.
fn nothing_has_changed_hands(street: &Street) {
    let borrowed = street.ledgers.events().into_iter().filter(|(_, event)| event["kind"] == "borrowed");
    let lenders: BTreeSet<String> = borrowed.map(|(_, event)| text(&event["from"])).collect();
    assert_eq!(lenders, BTreeSet::from(["south".to_owned()]));
    let names: BTreeSet<String> =
        street.ledgers.workers("north").iter().map(|worker| text(&worker["name"])).collect();
    assert_eq!(names, street.ledgers.member("north").workers);
}

#[test]
fn a_neighbour_that_says_nothing_is_not_waited_for() {
    endure(Manner::Mute);
}

#[test]
fn a_neighbour_that_talks_nonsense_is_not_listened_to() {
    endure(Manner::Garbage);
}

#[test]
fn a_neighbour_that_does_not_answer_costs_half_a_second() {
    endure(Manner::Silent);
}

#[test]
fn a_neighbour_that_refuses_is_followed_by_the_next() {
    endure(Manner::Refuses);
}

#[test]
fn a_neighbour_that_promises_and_sends_nobody_does_not_keep_others_from_being_asked() {
    endure(Manner::Promises);
}

#[test]
fn a_neighbour_that_pretends_to_have_lent_is_not_waited_for_without_end() {
    endure(Manner::Pretends);
}

#[test]
fn a_loan_that_nobody_has_made_changes_nothing() {
    endure(Manner::Claims);
}

#[test]
fn a_worker_that_nobody_has_lent_gets_nothing_to_do() {
    endure(Manner::SendsStrangers);
}

#[test]
fn a_farm_that_is_no_neighbour_is_refused_with_a_reason() {
    let place = Place::new();
    let street = Street::start(&place, local(free_ports()));
    for (from, to, words) in [
        ("moon", "north", "farm 'moon' is not a neighbour of farm 'north'"),
        ("south", "south", "farm 'north' here, 'south' was meant"),
        ("north", "north", "two farms are called 'north'"),
    ] {
        let mut stream = TcpStream::connect(street.north).expect("north listens");
        say(&mut stream, &FarmHello::new(from.to_owned(), to.to_owned(), ServerId(1), STORE)).expect("north reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("north answers and closes");
        let answer = native::take::<Answer>(&mut BytesMut::from(&answer[..]));
        let Ok(Some(Answer::Refused(reason))) = answer else { panic!("{from} to {to}: {answer:?}") };
        assert!(reason.contains(words), "{reason}");
    }
}

/// Says this as server 2 of south, once it is welcome.
fn envoy(street: &Street) -> Stranger {
    let envoy = Stranger::as_farm(street.north, "south", "north", 2, STORE);
    assert_eq!(envoy.answer, Answer::Admitted);
    envoy
}

fn is_heard(street: &Street) -> bool {
    let known = street.ledgers.items("north", "/v1/farms");
    known.iter().any(|farm| farm["farm"] == "south" && farm["heard"] == true)
}

#[test]
fn a_term_that_somebody_made_up_silences_no_neighbour() {
    let place = Place::new();
    let street = Street::start(&place, local(free_ports()));
    // Each on a link of its own: a leader has one term.
    let terms = [u64::MAX, 1 << 62, 1 << 40, 1 << 31];
    let speak = |term| {
        let mut envoy = envoy(&street);
        assert!(envoy.say_word(&Message { term: Term(term), content: Content::Beat(Beat::default()) }));
        envoy
    };
    let envoys = terms.map(speak);
    let flood = Flood::begin(&place, &street.ledgers, "north", FLOOD);
    flood.wait();
    assert!(is_heard(&street));
    street.ledgers.await_all_home(&BTreeSet::new());
    assert_eq!(flood.judge().guests, street.ledgers.member("south").workers, "{:?}", street.ledgers.events());
    drop(envoys);
}

#[test]
fn a_link_that_speaks_for_two_leaders_is_closed() {
    let place = Place::new();
    let street = Street::start(&place, local(free_ports()));
    let mut envoy = envoy(&street);
    for term in [1, 2] {
        assert!(envoy.say_word(&Message { term: Term(term), content: Content::Beat(Beat::default()) }));
    }
    envoy.await_end();
    eventually_or("south to be heard", || if is_heard(&street) { Ok(()) } else { Err("it is not".to_owned()) });
}

#[test]
fn requests_that_nobody_made_do_not_lend_everybody_again_and_again() {
    let place = Place::new();
    let street = Street::start(&place, local(free_ports()));
    let mut envoy = envoy(&street);
    for number in 1..=10_000 {
        let content = Content::Ask(Request { number, count: 3, for_ms: 60_000 });
        assert!(envoy.say_word(&Message { term: Term(TERM), content }));
    }
    street.ledgers.await_all_home(&BTreeSet::new());
    let lent = street.told_by("north", "lent");
    assert!(lent.len() <= 12, "{lent:?}");
}
