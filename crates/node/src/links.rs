//! Links to the other servers: TCP, one per direction. A server dials each peer and writes there; it reads what it accepts.
//!
//! A read stays pending on every dialled link, because only that shows at once that the peer is gone. Then the link is
//! dialled again without delay, because only a refusal says that the process is dead (`dialling.rs`). Every queue has a
//! bound; what does not fit is dropped, and Raft sends it again.
//!
//! Of each peer one accepted link is read: a newer one closes the older, which may be half-open. So what the links of all
//! peers can take of memory is known.
//!
//! Who calls is found out on another thread (`door.rs`), and hands are shaken there, too.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use primus_core::founding::Claim;
use primus_core::{Place, ServerId};
use primus_identity::refusal::Refusal;
use primus_wire::native::{self, Answer, FarmHello, Greeting, Hello, PIECE_LEN_MAX, Parcel, Purpose, WorkerHello};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::budget::{Budget, Weight};
use crate::credentials::Security;
use crate::dialling::{Dialler, HELLO_LEN_MAX, HELLO_TIME, Pace, REFUSED_TIME, UNHEARD_TIME, hear, say};
use crate::door::{Door, is_handshake};
use crate::events::History;
use crate::farm::CallingWorker;
use crate::introductions::{Introductions, Objection};
use crate::late::Late;
use crate::line::Line;
use crate::link_faults::{LinkFaults, LinkGate, PeerGate};
use crate::neighbours::{Envoy, Neighbourhood};
use crate::request_links::RequestLinks;
use crate::sockets::tend;
use crate::unidentified::Unidentified;

mod parcels;

/// How many messages may wait for one peer.
const QUEUE_LEN_MAX: usize = 8192;
const WRITE_TIME: Duration = Duration::from_secs(5);
/// How long a server that has no files left waits for some.
const FILES_TIME: Duration = Duration::from_millis(20);
/// How many events of all links may wait for the server. While so many wait, nothing more is read.
const EVENTS_MAX: usize = 512;
/// How many bytes of what one peer said may wait to be heard. Beyond that its link is not read, and it has to wait.
const UNHEARD_LEN_MAX: u32 = 8 << 20;
const WRITE_LEN_MAX: usize = 1 << 20;
/// What a caller hears that speaks TLS, if this server does not.
const SECURED: &str = "the caller speaks TLS, and links of this server are plain: start all nodes of a farm with the same founding file";

/// Who this server is, as it says in its hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's name.
    pub cluster: String,
    /// This server.
    pub server: ServerId,
    /// Its disk.
    pub store: [u8; 16],
    /// Its process.
    pub incarnation: u64,
}

/// What happens on links.
#[derive(Debug)]
pub enum LinkEvent<T> {
    /// A peer can be written to.
    Up(ServerId),
    /// The link to a peer is lost; it may be back soon.
    Down(ServerId),
    /// A peer's process is dead, or another one has taken its place.
    Gone(ServerId),
    /// A peer said this; while it waits to be heard, it weighs so much.
    Message(ServerId, T, Weight),
    /// The name of a peer does not resolve, with this sentence; nothing once it does again.
    Unresolved(ServerId, Option<String>),
    /// This peer cannot be linked to, because one of the two refuses the other's hello, with this sentence.
    Barred(ServerId, String),
}

/// What a server knows of its peers when it starts.
#[derive(Debug, Clone)]
pub struct Known {
    /// Where they are.
    pub peers: BTreeMap<ServerId, Place>,
    /// What is durable here of the founding of its cluster, and every change of that.
    pub claim: watch::Receiver<Claim>,
    /// How it knows that they are who they say.
    pub security: Security,
}

/// The links of a server.
#[derive(Debug)]
pub struct Links<T> {
    outgoing: BTreeMap<ServerId, mpsc::Sender<T>>,
    cuts: watch::Sender<LinkFaults>,
    /// Beside them, those for requests.
    pub(crate) requests: Arc<RequestLinks>,
    /// Who this server says it is, whatever a link is for.
    pub(crate) introductions: Arc<Introductions>,
}

/// Where those who call and are no peers are passed on to: the farm.
#[derive(Debug)]
pub struct Doors {
    pub(crate) workers: mpsc::Sender<CallingWorker>,
    pub(crate) envoys: mpsc::Sender<Envoy>,
    /// The servers of the neighbours.
    pub(crate) neighbours: watch::Receiver<Arc<Neighbourhood>>,
}

/// What all tasks of a server's links share.
#[derive(Debug)]
struct Shared<T> {
    introductions: Arc<Introductions>,
    requests: Arc<RequestLinks>,
    events: mpsc::Sender<LinkEvent<T>>,
    cuts: watch::Receiver<LinkFaults>,
    /// A peer that dials us is there: time to dial it.
    wake: BTreeMap<ServerId, Notify>,
    strangers: Unidentified,
    door: Door,
    security: Security,
    /// Where links of peers are read.
    control: Handle,
    doors: Doors,
    /// The task that reads the link of each peer.
    accepted: Mutex<BTreeMap<ServerId, AbortHandle>>,
    /// Where refusals are told.
    history: Arc<History>,
}

/// What can be said on a link.
pub trait Words: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Takes out what may be too long for a frame; nothing if it fits.
    fn unload(&mut self) -> Option<Bytes>;
    /// Puts it back.
    fn load(&mut self, cargo: Bytes);
}

impl<T: Words> Links<T> {
    /// Starts dialling the peers and accepting them. Must be called inside a runtime.
    #[must_use]
    pub fn start(
        identity: Identity,
        listener: TcpListener,
        Known { peers, claim, security }: Known,
        doors: Doors,
        cuts: watch::Sender<LinkFaults>,
        history: Arc<History>,
    ) -> (Self, mpsc::Receiver<LinkEvent<T>>) {
        let (events, received) = mpsc::channel(EVENTS_MAX);
        let introductions = Introductions::new(identity, peers.keys().copied(), claim);
        let introductions = Arc::new(introductions.on(security.clone()));
        let requests =
            Arc::new(RequestLinks::new(Arc::clone(&introductions), &peers, cuts.subscribe(), security.clone()));
        let shared = Arc::new(Shared {
            introductions: Arc::clone(&introductions),
            requests: Arc::clone(&requests),
            events,
            cuts: cuts.subscribe(),
            wake: peers.keys().map(|peer| (*peer, Notify::new())).collect(),
            strangers: Unidentified::strangers(),
            door: Door::open(requests.joiners.clone()),
            security,
            control: Handle::current(),
            doors,
            accepted: Mutex::default(),
            history,
        });
        shared.door.spawn(accept(listener.into_std(), Arc::clone(&shared)));
        let dial = |(peer, address): (&ServerId, &Place)| {
            let (sender, queue) = mpsc::channel(QUEUE_LEN_MAX);
            let callee = shared.security.towards(&shared.introductions.own().cluster, *peer);
            let dialler = Dialler::new(address.clone(), callee, Pace::PEERS);
            let (shared, cargo) = (Arc::clone(&shared), VecDeque::new());
            tokio::spawn(PeerLink { peer: *peer, dialler, queue, shared, known: None, cargo }.run());
            (*peer, sender)
        };
        let outgoing = peers.iter().map(dial).collect();
        (Self { outgoing, cuts, requests, introductions }, received)
    }

    /// Sends, or drops what does not fit: whoever needs it will ask again.
    pub fn send(&self, to: ServerId, message: T) {
        if let Some(queue) = self.outgoing.get(&to) {
            _ = queue.try_send(message);
        }
    }

    /// From now on these links are cut, and no others. Those that are slow stay slow.
    pub fn cut(&self, cuts: LinkFaults) {
        self.cuts.send_modify(|now| {
            let delays = std::mem::take(&mut now.delays);
            *now = LinkFaults { delays, ..cuts };
        });
    }

    /// From now on what these peers say takes this long, each way; the others are as they were.
    pub fn delay(&self, delays: &BTreeMap<ServerId, Duration>) {
        self.cuts.send_modify(|now| {
            now.delays.extend(delays);
            now.delays.retain(|_, delay| !delay.is_zero());
        });
    }

    /// By how much each peer's words are delayed on purpose.
    #[must_use]
    pub fn delays(&self) -> BTreeMap<ServerId, Duration> {
        self.cuts.borrow().delays.clone()
    }
}

impl<T> Shared<T> {
    async fn tell(&self, event: LinkEvent<T>) {
        // Nobody listens any more only when the server is about to end.
        _ = self.events.send(event).await;
    }

    /// From now on this task reads what the peer says. One that did so before ends.
    fn accept(&self, peer: ServerId, reading: AbortHandle) {
        let mut accepted = self.accepted.lock().expect("nobody panics while holding this");
        if let Some(older) = accepted.insert(peer, reading) {
            older.abort();
        }
    }

    fn is_cut(&self, peer: ServerId) -> bool {
        self.cuts.borrow().peers.contains(&peer)
    }

    /// Waits for as long as this many messages take that travel one after the other, if that link is slow on purpose.
    async fn travel(&self, peer: ServerId, messages: u32) {
        PeerGate::new(peer, self.cuts.clone()).travel(messages).await;
    }

    /// A message from this peer, now or later, unless the link is cut.
    async fn take(&self, peer: ServerId, message: (T, Weight), late: &mut Late<(T, Weight)>) {
        let (is_cut, delay) = {
            let cuts = self.cuts.borrow();
            (cuts.peers.contains(&peer), cuts.delay(peer))
        };
        if !is_cut && let Some((message, weight)) = late.keep(message, delay, Instant::now()) {
            self.tell(LinkEvent::Message(peer, message, weight)).await;
        }
    }
}

/// Keeps the link to one peer.
struct PeerLink<T> {
    peer: ServerId,
    dialler: Dialler,
    queue: mpsc::Receiver<T>,
    shared: Arc<Shared<T>>,
    /// The peer's process as far as we know: dead, or this one.
    known: Option<Result<u64, Dead>>,
    /// What is too long for a frame, on its way in pieces.
    cargo: VecDeque<(Bytes, T)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Dead;

impl<T: Words> PeerLink<T> {
    async fn run(mut self) {
        // Before that there is nothing to say to peers.
        self.shared.introductions.founded().await;
        loop {
            match self.dial().await {
                Ok(line) => {
                    self.shared.requests.reached(self.peer, line.tcp().peer_addr().ok());
                    if self.write(line).await.is_none() {
                        return;
                    }
                    self.shared.requests.reached(self.peer, None);
                    self.shared.travel(self.peer, 1).await;
                    self.shared.tell(LinkEvent::Down(self.peer)).await;
                    // Again at once: a refusal now is the fastest sign of death.
                    continue;
                }
                Err(error) => self.on_failure(&error).await,
            }
            let wake = self.shared.wake.get(&self.peer).expect("every peer can be woken");
            _ = timeout(self.dialler.next_pause(), wake.notified()).await;
        }
    }

    async fn on_failure(&mut self, error: &io::Error) {
        self.note_name(Some(error)).await;
        if error.kind() == io::ErrorKind::ConnectionRefused && self.known != Some(Err(Dead)) {
            self.known = Some(Err(Dead));
            self.shared.tell(LinkEvent::Gone(self.peer)).await;
        }
        // A process that dies says nothing of certificates.
        if let Some(refusal) = Refusal::of_io(error) {
            self.give_up(format!("no link to server {}: {refusal}", self.peer)).await;
        }
    }

    async fn dial(&mut self) -> io::Result<Line> {
        let connected = self.dialler.connect().await;
        self.shared.travel(self.peer, 2).await;
        let mut line = self.shared.door.shake_hands(connected?, self.dialler.callee()).await?;
        self.note_name(None).await;
        let hello = self.shared.introductions.hello(self.peer, Purpose::Control);
        let (answer, _) = self.dialler.greet(&mut line, &hello).await?;
        self.shared.travel(self.peer, 2).await;
        let objection = match answer {
            Answer::Welcome(hello) => match self.shared.introductions.identify(&hello, line.who()) {
                Ok(peer) if peer == self.peer => {
                    self.on_welcome(&hello).await;
                    return Ok(line);
                }
                Ok(other) => format!("server {other} answers for server {}", self.peer),
                Err(objection) => objection,
            },
            Answer::Refused(reason) | Answer::Barred(reason) => format!("server {} refuses: {reason}", self.peer),
            Answer::Admitted => format!("server {} takes this one for something else", self.peer),
        };
        self.give_up(objection.clone()).await;
        Err(io::Error::other(objection))
    }

    /// A name that does not resolve is tried again like a port that refuses. Meanwhile people see it.
    async fn note_name(&mut self, error: Option<&io::Error>) {
        let Some(news) = self.dialler.news_of_name(error) else { return };
        if let Some(sentence) = &news {
            self.shared.history.refused(format!("no link to server {}: {sentence}", self.peer));
        }
        self.shared.tell(LinkEvent::Unresolved(self.peer, news)).await;
    }

    /// Trying again soon would only fill the history.
    async fn give_up(&self, reason: String) {
        self.shared.tell(LinkEvent::Barred(self.peer, reason.clone())).await;
        self.shared.history.refused(&reason);
        sleep(REFUSED_TIME).await;
    }

    async fn on_welcome(&mut self, hello: &Hello) {
        // Another process in its place means that the one we knew is dead.
        if matches!(self.known, Some(Ok(before)) if before != hello.incarnation) {
            self.shared.tell(LinkEvent::Gone(self.peer)).await;
        }
        self.known = Some(Ok(hello.incarnation));
        self.shared.tell(LinkEvent::Up(self.peer)).await;
    }

    /// Writes until the link is lost; nothing if the server ends.
    async fn write(&mut self, line: Line) -> Option<()> {
        let (mut reader, mut writer) = tokio::io::split(line);
        let mut buffer = BytesMut::new();
        let mut ignored = [0; 64];
        // What had begun to travel on a link that was lost cannot be taken up again; Raft sends it anew.
        self.cargo.clear();
        loop {
            tokio::select! {
                biased;
                // Nothing comes on this link but its end.
                read = reader.read(&mut ignored) => if !matches!(read, Ok(1..)) { return Some(()) },
                message = self.queue.recv() => self.fill(message?, &mut buffer),
                () = std::future::ready(()), if !self.cargo.is_empty() => {}
            }
            self.add_piece(&mut buffer);
            let written = async {
                writer.write_all(&buffer).await?;
                writer.flush().await
            };
            if !matches!(timeout(WRITE_TIME, written).await, Ok(Ok(()))) {
                return Some(());
            }
            buffer.clear();
        }
    }

    /// Everything that waits goes out together.
    fn fill(&mut self, first: T, buffer: &mut BytesMut) {
        let mut next = Some(first);
        while let Some(mut message) = next {
            if !self.shared.is_cut(self.peer) {
                match message.unload() {
                    // A second state on the way would be as old as the first when it arrives.
                    Some(cargo) if self.cargo.is_empty() => self.cargo.push_back((cargo, message)),
                    Some(_) => {}
                    // What is too long for a frame cannot be sent; the sender sees to it that nothing is.
                    None => _ = native::put(buffer, &Parcel::Message(message)),
                }
            }
            next = if buffer.len() < WRITE_LEN_MAX { self.queue.try_recv().ok() } else { None };
        }
    }

    /// One piece of the cargo, after what is urgent; its message follows the last one.
    fn add_piece(&mut self, buffer: &mut BytesMut) {
        let Some((mut cargo, message)) = self.cargo.pop_front() else { return };
        if cargo.is_empty() {
            _ = native::put(buffer, &Parcel::Laden(message));
            return;
        }
        let piece = cargo.split_to(cargo.len().min(PIECE_LEN_MAX));
        _ = native::put(buffer, &Parcel::<T>::Piece(piece));
        self.cargo.push_front((cargo, message));
    }
}

async fn accept<T: Words>(listener: io::Result<std::net::TcpListener>, shared: Arc<Shared<T>>) {
    let listener = listener.and_then(TcpListener::from_std).expect("a listener stays one");
    loop {
        // Until then callers wait in the system's queue.
        shared.strangers.room().await;
        match listener.accept().await {
            Ok((stream, _)) => _ = tokio::spawn(serve(stream, Arc::clone(&shared))),
            // Out of files, most likely: others may end meanwhile.
            Err(_) => sleep(FILES_TIME).await,
        }
    }
}

/// Finds out who calls, and passes the link on to whom it concerns.
async fn serve<T: Words>(stream: TcpStream, shared: Arc<Shared<T>>) {
    if tend(&stream, UNHEARD_TIME).is_err() {
        return;
    }
    let mut arrived = BytesMut::new();
    let Some((mut line, greeting)) = greeted(stream, &mut arrived, &shared).await else { return };
    let hello = match greeting {
        Greeting::Server(hello) => hello,
        Greeting::Worker(hello) => return pass_on(line, arrived, hello, &shared).await,
        Greeting::Farm(hello) => return pass_envoy_on(line, arrived, hello, &shared).await,
    };
    match hello.purpose() {
        Some(Purpose::Questions | Purpose::Requests) => return admit(line, &arrived, &hello, &shared).await,
        Some(Purpose::Founding) => {
            if let Err(reason) = shared.introductions.receive_founder(&mut line, &hello).await {
                refuse(&mut line, reason, &shared).await;
            }
            return;
        }
        Some(Purpose::Control) | None => shared.introductions.may_be_founded_with(&hello).await,
    }
    let Some(peer) = welcome(&mut line, &hello, &shared).await else { return };
    if let Ok(line) = line.part() {
        let (control, shared_by_all) = (shared.control.clone(), Arc::clone(&shared));
        let reading = control.spawn(async move {
            if let Ok(line) = line.join() {
                read(line, arrived, peer, shared_by_all).await;
            }
        });
        shared.accept(peer, reading.abort_handle());
    }
}

/// Reads the link of a peer until its end.
async fn read<T: Words>(mut line: Line, mut arrived: BytesMut, peer: ServerId, shared: Arc<Shared<T>>) {
    let (mut hold, mut late, unheard) = (BytesMut::new(), Late::default(), Budget::new(UNHEARD_LEN_MAX));
    loop {
        let heard = tokio::select! {
            biased;
            (message, weight) = late.next(), if !late.is_empty() => {
                shared.tell(LinkEvent::Message(peer, message, weight)).await;
                continue;
            }
            () = unheard.freed(), if unheard.is_spent() => continue,
            heard = hear(&mut line, &mut arrived), if late.has_room() && !unheard.is_spent() => heard,
        };
        let held = hold.len();
        match heard.and_then(|(parcel, len)| Ok((parcels::unpack(parcel, &mut hold)?, len))) {
            Ok((Some(message), len)) => shared.take(peer, (message, unheard.add(held + len)), &mut late).await,
            Ok((None, _)) => {}
            Err(error) => {
                while !late.is_empty() {
                    let (message, weight) = late.next().await;
                    shared.tell(LinkEvent::Message(peer, message, weight)).await;
                }
                if error.kind() == io::ErrorKind::Other {
                    shared.history.refused(format!("closed a link from server {peer}: {error}"));
                }
                return;
            }
        }
    }
}

/// Finds out who is there; nothing if nobody says it in time.
async fn greeted<T>(stream: TcpStream, arrived: &mut BytesMut, shared: &Shared<T>) -> Option<(Line, Greeting)> {
    let mut place = shared.strangers.enter().await;
    let greeting = async {
        let line = match shared.door.receive(stream, &shared.security).await {
            Ok(line) => line?,
            Err(refusal) => {
                shared.history.refused(format!("refused a link: {refusal}"));
                return None;
            }
        };
        let mut line = line.take(HELLO_LEN_MAX);
        loop {
            match Greeting::take(arrived) {
                Ok(Some(greeting)) => return Some((line.into_inner(), greeting)),
                Ok(None) => {}
                Err(_) if is_handshake(arrived, &shared.security) => {
                    refuse(line.get_mut(), SECURED.to_owned(), shared).await;
                    return None;
                }
                Err(_) => return None,
            }
            if line.read_buf(arrived).await.ok()? == 0 {
                return None;
            }
        }
    };
    tokio::select! {
        greeting = timeout(HELLO_TIME, greeting) => greeting.ok()?,
        () = place.lost() => None,
    }
}

/// Answers a server; nothing if it is nobody to talk to.
async fn welcome<T>(line: &mut Line, hello: &Hello, shared: &Shared<T>) -> Option<ServerId> {
    let peer = match shared.introductions.identify(hello, line.who()) {
        Ok(peer) => peer,
        Err(reason) => {
            refuse(line, reason, shared).await;
            return None;
        }
    };
    let answer = Answer::Welcome(shared.introductions.hello(peer, Purpose::Control));
    timeout(HELLO_TIME, say(line, &answer)).await.ok()?.ok()?;
    shared.wake.get(&peer)?.notify_one();
    Some(peer)
}

/// The requests of a peer belong to those who serve them.
async fn admit<T>(mut line: Line, arrived: &BytesMut, hello: &Hello, shared: &Shared<T>) {
    match shared.requests.admit(hello, line.who(), arrived) {
        Ok(admitted) => {
            let purpose = hello.purpose().unwrap_or(Purpose::Requests);
            let answer = Answer::Welcome(shared.introductions.hello(admitted.from, purpose));
            if matches!(timeout(HELLO_TIME, say(&mut line, &answer)).await, Ok(Ok(()))) {
                admitted.pass_on(line);
            }
        }
        Err(reason) => refuse(&mut line, reason, shared).await,
    }
}

async fn refuse<T>(line: &mut Line, why: impl Into<Objection>, shared: &Shared<T>) {
    why.into().tell(line, &shared.history).await;
}

/// A worker's link belongs to the farm.
async fn pass_on<T>(mut line: Line, arrived: BytesMut, hello: WorkerHello, shared: &Shared<T>) {
    if let Err(reason) = shared.introductions.check_worker(&hello, line.who()) {
        return refuse(&mut line, reason, shared).await;
    }
    let mut gate = LinkGate::new(hello.name.clone(), shared.cuts.clone());
    let flows = timeout(HELLO_TIME, gate.flows()).await.is_ok();
    if !flows || gate.must_close() {
        return;
    }
    if let Ok(line) = line.part() {
        // If too many call at once, this one will call again.
        _ = shared.doors.workers.try_send(CallingWorker { line, arrived, hello, gate });
    }
}

/// So does one of another farm.
async fn pass_envoy_on<T>(mut line: Line, arrived: BytesMut, hello: FarmHello, shared: &Shared<T>) {
    let farm = &shared.introductions.own().cluster;
    let strange = || match shared.doors.neighbours.borrow().farms.get(&hello.farm) {
        None => Some(format!("farm '{}' is not a neighbour of farm '{farm}'", hello.farm)),
        Some(known) if known.servers.contains_key(&hello.server) => None,
        Some(_) => Some(format!("farm '{}' has no server {} as far as '{farm}' knows", hello.farm, hello.server)),
    };
    let objection = shared.introductions.check_farm(&hello, line.who()).err();
    if let Some(reason) = objection.or_else(strange) {
        return refuse(&mut line, reason, shared).await;
    }
    if let Ok(line) = line.part() {
        // If too many call at once, this one will call again.
        _ = shared.doors.envoys.try_send(Envoy { line, arrived, hello });
    }
}

#[cfg(test)]
mod tests;
