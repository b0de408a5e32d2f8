//! A running server: the loop in which the control machine meets links, a disk and a clock.
//!
//! One thread runs the loop and the links, another one the disk, so that a slow fsync makes nobody late. The loop takes
//! everything that has arrived before it looks at its timers: after a pause of one's own the leader is not judged silent
//! before its messages have been read.

mod held;
mod peers;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use primus_core::ServerId;
use primus_core::Term;
use primus_core::load::{Load, Score, Usage};
use primus_core::machine::{Input, Machine, Outbox, Output, Token};
use primus_replica::message::{Entry, Record, Snapshot};
use primus_replica::replica::Refusal;
use primus_replica::{Consensus, Role};
use primus_server::control::{Command, Message, Notice, Reason, Timer};
use primus_server::peers::Sign;
use primus_server::record::{self, Content};
use primus_server::register::{Proposal, Register};
use primus_server::words::Words;
use primus_server::{Plan, Server, groups};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use self::peers::Acquaintances;
use crate::clock;
use crate::companion::wall_clock_us;
use crate::cuts::Cuts;
use crate::disk::{self, Disk};
use crate::elections::{self, Elections};
use crate::entering::Entering;
use crate::events::{History, Kind, milliseconds};
use crate::farm::{self, FarmHandle, Told, Wish};
use crate::handle::{Handle, Leadership, PeerView, Proposals, Reply, Request, Unable, View};
use crate::links::{self, LinkEvent, Links, Peer};
use crate::meters::Meters;
use crate::parked::{PARKING_TIME, PARKING_TRIPS, Parked, Write};
use crate::questions::Questions;
use crate::reads::{Applied, Read, Reads};
use crate::steps::Steps;
use crate::store::{Opened, Store, StoreId, WriteError};
use crate::timers::{Timers, drawn};
use crate::watched::{Broken, watch};

type ControlWords = <Server as Machine>::Message;

/// How many inputs are taken before timers are looked at, at most.
const INPUTS_MAX: usize = 1024;
/// After this long no further input is taken before timers are looked at.
const TURN_MAX: Duration = Duration::from_millis(5);
/// So many records go to the disk before the turn is over.
const RECORDS_MAX: usize = 256;
/// When the log has grown by this many bytes, it is cut, however few entries that are.
const GROWN_MAX: usize = 64 << 20;
/// How many messages may wait for the disk. Those that are lost are asked for again.
const WAITING_MAX: usize = 16 * 1024;
/// After a turn of this length others get the thread.
const YIELD_AFTER: Duration = Duration::from_micros(500);

/// How often the leader hears what a server's clock shows. The leader reads its own whenever it tells the time.
const CLOCK_EVERY: Duration = Duration::from_secs(4);

/// What a server is told when it starts.
#[derive(Debug, Clone)]
pub struct Config {
    /// The cluster's name.
    pub cluster: String,
    /// Who this server is, who the others are, and how they elect.
    pub plan: Plan,
}

/// Why a server ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// Its disk has failed: a server that cannot write must not go on.
    #[error(transparent)]
    Disk(#[from] WriteError),
    /// A part of it has failed.
    #[error("this server cannot go on, {0}")]
    Part(#[from] Broken),
    /// It has less than it acknowledged.
    #[error(
        "server {leader} knows that this one has acknowledged {index} entries of the log, and here are {last}: the data \
         directory is older than it was"
    )]
    Forgotten {
        /// Who leads.
        leader: ServerId,
        /// What was acknowledged.
        index: u64,
        /// What there is.
        last: u64,
    },
    /// It has taken over a state that it cannot read.
    #[error(
        "the state at entry {0} of the log cannot be read: another version of primus, or a stranger, has made it"
    )]
    Unreadable(u64),
}

impl EndError {
    /// True if starting the server again as it is can only end the same way, or worse.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        match self {
            Self::Disk(error) => matches!(error, WriteError::Damaged { .. } | WriteError::Failed(_)),
            Self::Part(_) | Self::Forgotten { .. } | Self::Unreadable(_) => true,
        }
    }
}

/// Runs a server until its process ends. `listener` is bound to its address already; `ready` gets a handle.
///
/// # Errors
/// If it cannot go on; see [`EndError`].
pub async fn run(
    config: Config,
    listener: TcpListener,
    opened: Opened,
    ready: oneshot::Sender<Handle>,
) -> Result<(), EndError> {
    watch("control", serve(config, listener, opened, ready)).await?
}

async fn serve(
    config: Config,
    listener: TcpListener,
    opened: Opened,
    ready: oneshot::Sender<Handle>,
) -> Result<(), EndError> {
    let (requests, received) = mpsc::unbounded_channel();
    let incarnation = incarnation();
    let (mut running, farm) = Running::new(config, listener, opened, incarnation, requests.clone());
    let (history, steps) = (Arc::clone(&running.history), Arc::clone(&running.steps));
    let (numbers, meters) = (Arc::default(), Arc::clone(&running.meters));
    let (view, elected) = (running.view.subscribe(), running.elections.elected());
    let leadership = running.leadership.subscribe();
    let (asker, heard) = (running.questions.asker(), running.acquaintances.heard());
    let (origin, elections) = (incarnation, running.elections.clone());
    let handle = Handle {
        requests,
        origin,
        numbers,
        view,
        leadership,
        asker,
        history,
        steps,
        meters,
        farm,
        elected,
        heard,
        elections,
    };
    running.questions.start(handle.clone(), Arc::clone(&running.links));
    _ = ready.send(handle);
    running.step(Input::Command(Command::Boot));
    running.flush();
    running.turn(received).await
}

fn incarnation() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    u64::from_be_bytes(bytes)
}

/// The loop's state.
struct Running {
    config: Config,
    started: Instant,
    server: Server,
    outbox: Outbox<Server>,
    /// What the server is to be told next. What it says to one thing is carried out before it hears of another, whatever that
    /// leads to: the order of writes depends on it.
    inputs: VecDeque<Input<Server>>,
    is_stepping: bool,
    links: Arc<Links<Words>>,
    link_events: mpsc::Receiver<LinkEvent<Words>>,
    /// Which other part has failed.
    failures: mpsc::UnboundedReceiver<Broken>,
    /// Why this server must not go on.
    end: Option<EndError>,
    disk: Disk,
    /// What this turn has for the disk, so that it shares one fsync.
    unwritten: Vec<Record>,
    unwritten_token: Option<Token>,
    /// Messages that wait for the disk.
    waiting: Vec<(Token, ServerId, ControlWords)>,
    timers: Timers<Timer>,
    register: Register,
    /// How the farm's thread is told what the log says, and what it wants.
    farm: mpsc::UnboundedSender<Told>,
    wishes: mpsc::UnboundedReceiver<Wish>,
    /// The thread of further elections.
    elections: Elections,
    /// What the farm wants to write.
    entering: Entering,
    /// The term in which this server leads, until it has applied its own first entry of that term.
    accession: Option<Term>,
    /// The term of the last entry that was applied, and whether that was in the middle of a batch.
    applied_term: Term,
    /// The place in the log of what the farm was last told.
    told: u64,
    is_within_batch: bool,
    snapshot_at: u64,
    /// How many bytes the log has grown since.
    grown: usize,
    origin: u64,
    /// Writes under way, by the number of the last proposal.
    writes: BTreeMap<u64, Proposed>,
    parked: Parked,
    reads: Reads,
    state: View,
    /// What was measured last, and how many tasks run here.
    usage: Usage,
    tasks: u32,
    overridden: Option<Score>,
    /// Was the leader told that there is no room here?
    is_full: bool,
    /// When it was told what the clock shows.
    clock_told: Instant,
    /// Who led last, and since when nobody does.
    last_leader: Option<ServerId>,
    leaderless: Option<Instant>,
    /// Who waits for another server to lead, or for the result of an election.
    transfer: Option<Reply<()>>,
    held: Vec<held::Waiting>,
    /// How the peers are, and when each was last heard.
    acquaintances: Acquaintances,
    view: watch::Sender<View>,
    leadership: watch::Sender<Leadership>,
    /// Where questions for whoever leads, and answers to them, are passed on to.
    questions: Questions,
    history: Arc<History>,
    /// The steps of the last elections.
    steps: Arc<Steps>,
    meters: Arc<Meters>,
}

/// A write under way.
struct Proposed {
    since: Instant,
    may_wait: bool,
    reply: Reply<u64>,
}

impl Running {
    fn new(
        config: Config,
        listener: TcpListener,
        opened: Opened,
        incarnation: u64,
        requests: mpsc::UnboundedSender<Request>,
    ) -> (Self, FarmHandle) {
        let StoreId(store) = opened.store_id;
        let identity =
            links::Identity { cluster: config.cluster.clone(), server: config.plan.id, store, incarnation };
        let history = Arc::<History>::default();
        let steps = Arc::new(Steps::new(config.plan.id));
        let meters = Arc::<Meters>::default();
        let (cut, cuts) = watch::channel(Cuts::default());
        let witnesses = (Arc::clone(&history), Arc::clone(&meters));
        let (failed, failures) = mpsc::unbounded_channel();
        let farm = farm::start(identity.clone(), &config.plan, (cuts, failed.clone()), requests, witnesses.clone());
        let known = known(&config.plan, &opened.store);
        let (links, link_events) = Links::start(identity, listener, known, farm.doors, cut, Arc::clone(&history));
        let links = Arc::new(links);
        let told = (Arc::clone(&history), Arc::clone(&steps), Arc::clone(&meters));
        let elections = elections::start(&config.plan, Arc::clone(&links), told, failed);
        let questions = Questions::new(&config.plan, &links);
        let (register, applied) = restored(&opened.records, &farm.told);
        let end = register.is_none().then_some(EndError::Unreadable(applied));
        let server = config.plan.server(opened.records);
        let state = first_view(&config.plan, &server, applied);
        let running = Self {
            snapshot_at: applied + config.plan.snapshot_every,
            config,
            started: Instant::now(),
            server,
            outbox: Outbox::new(),
            inputs: VecDeque::new(),
            is_stepping: false,
            links,
            link_events,
            failures,
            end,
            disk: disk::start(opened.store, Arc::clone(&meters)),
            unwritten: Vec::new(),
            unwritten_token: None,
            waiting: Vec::new(),
            timers: Timers::default(),
            register: register.unwrap_or_default(),
            farm: farm.told,
            wishes: farm.wishes,
            elections,
            entering: Entering::default(),
            accession: None,
            applied_term: Term(0),
            told: applied,
            is_within_batch: false,
            grown: 0,
            origin: incarnation,
            writes: BTreeMap::new(),
            parked: Parked::default(),
            reads: Reads::default(),
            view: watch::Sender::new(state.clone()),
            leadership: watch::Sender::new(state.leadership()),
            questions,
            usage: Usage::Unknown,
            tasks: 0,
            overridden: None,
            is_full: false,
            clock_told: Instant::now(),
            last_leader: None,
            leaderless: Some(Instant::now()),
            transfer: None,
            held: Vec::new(),
            acquaintances: Acquaintances::new(state.peers.keys().copied()),
            state,
            history,
            steps,
            meters,
        };
        (running, farm.handle)
    }

    async fn turn(&mut self, mut requests: mpsc::UnboundedReceiver<Request>) -> Result<(), EndError> {
        loop {
            if let Some(end) = self.end.take() {
                return Err(end);
            }
            let due = self.timers.next().into_iter().chain(self.parked.due()).chain(self.entering.due()).min();
            let due = due.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            tokio::select! {
                biased;
                Some(broken) = self.failures.recv() => return Err(broken.into()),
                done = self.disk.done() => self.on_synced(done?),
                Some(event) = self.link_events.recv() => self.on_link(event),
                Some(wish) = self.wishes.recv() => self.on_wish(wish),
                request = requests.recv() => match request {
                    Some(request) => self.on_request(request),
                    None => return Ok(()),
                },
                () = sleep_until(due) => {}
            }
            let began = Instant::now();
            let all_taken = self.take_inputs(&mut requests, began)?;
            self.propose_entering();
            self.fire_timers(all_taken);
            self.look_for_room();
            self.flush();
            let turn = began.elapsed();
            self.publish(turn);
            // What was said in a long turn must leave before the next one: the links have this thread, too.
            if turn > YIELD_AFTER {
                yield_now().await;
            }
        }
    }

    /// Takes what has arrived, but not for ever. Is that all?
    fn take_inputs(
        &mut self,
        requests: &mut mpsc::UnboundedReceiver<Request>,
        began: Instant,
    ) -> Result<bool, EndError> {
        for _ in 0..INPUTS_MAX {
            if let Some(done) = self.disk.try_done() {
                self.on_synced(done?);
            } else if let Ok(event) = self.link_events.try_recv() {
                self.on_link(event);
            } else if let Ok(wish) = self.wishes.try_recv() {
                self.on_wish(wish);
            } else if let Ok(request) = requests.try_recv() {
                self.on_request(request);
            } else {
                return Ok(true);
            }
            if began.elapsed() > TURN_MAX {
                break;
            }
        }
        Ok(false)
    }

    fn propose_entering(&mut self) {
        let records = self.entering.take(Instant::now());
        if !records.is_empty() {
            self.step(Input::Command(Command::Propose(records)));
        }
    }

    /// Nobody is judged silent whose words may not have been read yet.
    fn fire_timers(&mut self, all_taken: bool) {
        let now = Instant::now();
        while let Some((_, timer)) = self.timers.take_due(now) {
            if timer == Timer::Silence && !all_taken {
                self.timers.set(timer, now + Duration::from_millis(1));
            } else {
                self.step(Input::Timer(timer));
            }
        }
        let unable = self.unable();
        self.parked.take_due(now).into_iter().for_each(|write| _ = write.reply.send(Err(unable)));
    }

    /// Hands everything of this turn to the disk at once.
    fn flush(&mut self) {
        if let Some(token) = self.unwritten_token.take() {
            self.disk.write(token, std::mem::take(&mut self.unwritten));
        }
    }

    fn publish(&mut self, turn: Duration) {
        self.look_for_missing();
        let replica = self.server.replica();
        let (role, _, _) = replica.view();
        self.state.role = role;
        self.state.last = replica.extent().0;
        self.state.longest_turn = self.state.longest_turn.max(turn);
        if self.state.gave_way != *self.server.gave_way().servers() {
            self.state.gave_way.clone_from(self.server.gave_way().servers());
        }
        for (peer, view) in &mut self.state.peers {
            view.matched = replica.matched(*peer);
            view.load = self.server.loads().get(peer).copied();
            view.round_trip_us = self.server.round_trip_us(*peer);
        }
        self.state.silence_us = self.server.silence_us();
        self.view.send_if_modified(|view| {
            let is_new = *view != self.state;
            if is_new {
                view.clone_from(&self.state);
            }
            is_new
        });
    }

    fn on_link(&mut self, event: LinkEvent<Words>) {
        match event {
            LinkEvent::Message(from, words) => self.on_words(from, words),
            // On its way to the disk before any vote that this peer might ask for.
            LinkEvent::Met(peer, Peer { store, .. }) => self.disk.remember(peer, StoreId(store)),
            LinkEvent::Up(peer) => {
                self.mark(peer, true);
                self.see(peer, Sign::LinkUp);
                self.step(Input::LinkUp(peer));
                self.elections.tell(Input::LinkUp(peer));
            }
            LinkEvent::Down(peer) => {
                self.mark(peer, false);
                self.see(peer, Sign::LinkDown);
                self.step(Input::LinkDown(peer));
                self.elections.tell(Input::LinkDown(peer));
            }
            LinkEvent::Gone(peer) => {
                self.mark(peer, false);
                self.see(peer, Sign::Gone);
                self.step(Input::Command(Command::Gone(peer)));
                self.elections.tell(Input::Command(groups::Command::Gone(peer)));
            }
            LinkEvent::Barred(peer, reason) => self.see(peer, Sign::Refused(reason)),
        }
    }

    fn on_words(&mut self, from: ServerId, words: Words) {
        self.meters.received.add(1);
        if let Some(objection) = words.objection() {
            return self.on_strange(from, objection);
        }
        self.hear(from);
        match words {
            Words::Control(message) => self.step(Input::Message { from, message }),
            Words::Groups(message) => self.elections.tell(Input::Message { from, message }),
            Words::Question(number, body) => self.questions.on_question(from, number, body),
            Words::Answer(number, body) => self.questions.on_answer(from, number, body),
            Words::Clock(shows_ms) => self.tell_farm(Told::Clock(from, shows_ms)),
        }
    }

    /// A peer said what no server says; it was not heard.
    fn on_strange(&self, peer: ServerId, what: &str) {
        self.meters.strange.add(1);
        self.history.refused(format!("refused words of server {peer}: {what}"));
    }

    fn mark(&mut self, peer: ServerId, is_up: bool) {
        if let Some(view) = self.state.peers.get_mut(&peer) {
            view.is_up = is_up;
        }
    }

    fn on_request(&mut self, request: Request) {
        match request {
            Request::Propose(proposals, reply) => self.on_proposals(proposals, reply),
            Request::Get(key, reply) => self.on_read(Read::Get(key, reply)),
            Request::List(listing, reply) => self.on_read(Read::List(listing, reply)),
            Request::Confirm(reply) => self.on_read(Read::Confirm(reply)),
            Request::Transfer(to, reason, reply) => self.on_transfer(to, reason, reply),
            Request::Outlook(reply) => {
                let outlook = if self.leads() { Ok(self.server.outlook()) } else { Err(self.unable()) };
                _ = reply.send(outlook);
            }
            Request::Leave(reply) => self.on_leave(reply),
            Request::Elect(asked, reply) => self.on_elect(asked, reply),
            Request::Cut(cuts) => self.links.cut(cuts),
            Request::Delay(delays) => self.on_delay(&delays),
            Request::Load(usage) => {
                self.usage = usage;
                self.on_load();
            }
            Request::OverrideLoad(score) => {
                self.overridden = score;
                self.on_load();
            }
        }
    }

    fn on_delay(&mut self, delays: &BTreeMap<ServerId, Duration>) {
        self.links.delay(delays);
        let delays = self.links.delays();
        for (peer, view) in &mut self.state.peers {
            view.delay = delays.get(peer).copied();
        }
        self.step(Input::Command(Command::Measure));
    }

    fn on_wish(&mut self, wish: Wish) {
        match wish {
            // What a leader wanted that has been deposed meanwhile is void, and its farm knows or will know.
            Wish::Enter(term, records) if self.leads_in(term) => self.entering.add(records),
            Wish::Enter(..) => {}
            Wish::Guarded(is_guarded) => self.step(Input::Command(Command::Guarded(is_guarded))),
            Wish::Transfer(to, reason) => self.step(Input::Command(Command::Transfer(Some(to), reason))),
            Wish::Tasks(tasks) => {
                self.tasks = tasks;
                self.on_load();
            }
            Wish::Compact(index, state) => {
                self.step(Input::Command(Command::Compact(index, state)));
                self.snapshot_at = index + self.config.plan.snapshot_every;
            }
        }
    }

    fn leads(&self) -> bool {
        self.state.leader == Some(self.config.plan.id)
    }

    fn leads_in(&self, term: Term) -> bool {
        self.leads() && self.state.term == term
    }

    fn tell_farm(&self, told: Told) {
        // If the farm's thread has failed, this server is about to end.
        _ = self.farm.send(told);
    }

    fn on_load(&mut self) {
        let load = self.config.plan.weights.load(self.usage, self.tasks);
        // Whatever somebody pretends, the parts are as they were measured and counted.
        let score = self.overridden.unwrap_or(load.score);
        self.is_full = self.meters.disk_full.get();
        self.state.load = Load { score, is_disk_full: self.is_full, ..load };
        self.step(Input::Command(Command::Load(self.state.load)));
        self.elections.tell(Input::Command(groups::Command::Score(score)));
        if self.clock_told.elapsed() >= CLOCK_EVERY {
            self.tell_clock();
        }
    }

    /// The leader tells the time, and compares the clocks of all.
    fn tell_clock(&mut self) {
        self.clock_told = Instant::now();
        let shows_ms = wall_clock_us() / 1000;
        self.tell_farm(Told::Clock(self.config.plan.id, shows_ms));
        if let Some(leader) = self.state.leader.filter(|leader| *leader != self.config.plan.id) {
            self.links.send(leader, Words::Clock(shows_ms));
        }
    }

    /// A server whose disk is full says so at once, because the leader must know whether a majority can write. It takes
    /// nothing new while it would only wait.
    fn look_for_room(&mut self) {
        if self.meters.disk_full.get() != self.is_full {
            self.on_load();
        }
        let has_room = |(peer, view): (&ServerId, &PeerView)| {
            view.is_up && self.server.loads().get(peer).is_none_or(|load| !load.is_disk_full)
        };
        let with_room =
            || usize::from(!self.is_full) + self.state.peers.iter().filter(|peer| has_room(*peer)).count();
        // In most turns nobody has to be counted.
        let is_anyone_full = self.server.loads().values().any(|load| load.is_disk_full);
        self.meters.disks_full.set(is_anyone_full && with_room() <= self.config.plan.servers.len() / 2);
    }

    fn on_proposals(&mut self, proposals: Proposals, reply: Reply<u64>) {
        let Proposals { number, entries, may_wait } = proposals;
        let write = Write { number, entries, since: Instant::now(), reply };
        if write.entries.is_empty() {
            _ = write.reply.send(Ok(self.state.applied));
        } else if let Some(lack) = self.lack_of_room() {
            _ = write.reply.send(Err(lack));
        } else if self.state.leader.is_none() && may_wait {
            // Whoever has been without a leader for longer is cut off, and says so at once.
            let until = self.leaderless.map_or(write.since, |since| since + self.parking_time());
            self.park(write, until);
        } else {
            self.propose(write, may_wait);
        }
    }

    fn lack_of_room(&self) -> Option<Unable> {
        self.meters.lack_of_room().filter(|_| self.leads())
    }

    fn propose(&mut self, write: Write, may_wait: bool) {
        let Write { number, entries, since, reply } = write;
        self.writes.insert(number, Proposed { since, may_wait, reply });
        self.step(Input::Command(Command::Propose(entries)));
    }

    fn park(&mut self, write: Write, until: Instant) {
        if let Err(write) = self.parked.keep(write, until, Instant::now()) {
            _ = write.reply.send(Err(self.unable()));
        }
    }

    /// On slow links another leader takes longer to be there.
    fn parking_time(&self) -> Duration {
        PARKING_TIME + Duration::from_micros(self.server.slower_us()) * PARKING_TRIPS
    }

    /// Whoever takes writes from now on, they need not wait any longer.
    fn release_parked(&mut self) {
        let is_mine = self.leads();
        let unable = self.unable();
        for write in self.parked.take() {
            match is_mine {
                true => self.propose(write, true),
                false => _ = write.reply.send(Err(unable)),
            }
        }
    }

    fn on_transfer(&mut self, to: Option<ServerId>, reason: Reason, reply: Reply<()>) {
        self.begin_transfer(Command::Transfer(to, reason), reply);
    }

    fn on_leave(&mut self, reply: Reply<()>) {
        self.begin_transfer(Command::Leave, reply);
    }

    fn begin_transfer(&mut self, command: Command, reply: Reply<()>) {
        if self.transfer.is_some() {
            _ = reply.send(Err(Unable::Busy));
        } else {
            self.transfer = Some(reply);
            self.step(Input::Command(command));
        }
    }

    fn end_transfer(&mut self, outcome: Result<(), Unable>) {
        if let Some(reply) = self.transfer.take() {
            _ = reply.send(outcome);
        }
    }

    fn on_read(&mut self, read: Read) {
        let number = self.reads.ask(read);
        self.step(Input::Command(Command::Read(number)));
    }

    fn send(&self, to: ServerId, message: ControlWords) {
        self.meters.sent.add(1);
        self.links.send(to, Words::Control(message));
    }

    fn write(&mut self, token: Token, records: Vec<Record>) {
        self.unwritten.extend(records);
        self.unwritten_token = self.unwritten_token.max(Some(token));
        if self.unwritten.len() >= RECORDS_MAX {
            self.flush();
        }
    }

    /// What waits already need not wait twice: a full disk keeps everything waiting for long.
    fn wait(&mut self, message: (Token, ServerId, ControlWords)) {
        if self.waiting.len() < WAITING_MAX && self.waiting.last() != Some(&message) {
            self.waiting.push(message);
        }
    }

    fn on_synced(&mut self, token: Token) {
        let (ready, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(after, ..)| *after <= token);
        self.waiting = waiting;
        ready.into_iter().for_each(|(_, to, message)| self.send(to, message));
        self.step(Input::Persisted(token));
    }

    fn step(&mut self, input: Input<Server>) {
        self.inputs.push_back(input);
        if std::mem::replace(&mut self.is_stepping, true) {
            return;
        }
        let mut outbox = std::mem::take(&mut self.outbox);
        while let Some(input) = self.inputs.pop_front() {
            let copy = Steps::copy_of(&self.server, &input);
            self.server.step(clock::since(self.started), input, &mut outbox);
            if let Some(input) = copy {
                self.steps.add(&input, outbox.as_slice());
            }
            for output in outbox.drain() {
                self.carry_out(output);
            }
        }
        self.outbox = outbox;
        self.is_stepping = false;
    }

    fn carry_out(&mut self, output: Output<Server>) {
        match output {
            Output::Send { to, message } => self.send(to, message),
            Output::SendAfter { token, to, message } => self.wait((token, to, message)),
            Output::Persist { token, records } => self.write(token, records),
            Output::Set { timer, delay } => self.timers.set(timer, Instant::now() + drawn(delay)),
            Output::Cancel(timer) => self.timers.cancel(timer),
            Output::Notify(notice) => self.on_notice(notice),
            Output::Ignore(_) => {}
        }
    }

    fn on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Leader(leader, term, reason) => self.on_leader(leader, term, reason),
            Notice::Committed(entries) => entries.into_iter().for_each(|entry| self.apply(&entry)),
            Notice::Readable(number, index) => {
                self.reads.on_readable(number, index, self.applied(), &self.register);
            }
            Notice::Unreadable(number) => self.reads.on_unreadable(number, self.leads(), self.unable()),
            Notice::Restored(snapshot) => self.restore(&snapshot),
            Notice::Refused(refusal, entries) => self.on_refused(refusal, entries),
            Notice::HandOver(to, reason) => self.tell_farm(Told::HandOver(to, reason)),
            Notice::NotTransferred(obstacle) => {
                self.tell_farm(Told::Stay);
                self.end_transfer(Err(Unable::NotTransferred(obstacle)));
                self.give_up_election(Unable::NotTransferred(obstacle));
                self.release_parked();
            }
            Notice::Confirmed(confirmed) => self.on_confirmed(confirmed),
            Notice::Strange(peer, what) => self.on_strange(peer, what),
            Notice::Forgotten { leader, index, last } => {
                self.end = Some(EndError::Forgotten { leader, index, last });
            }
            Notice::Suspected(peer, reason) => {
                self.see(peer, Sign::Silent);
                self.state.suspicions += 1;
                self.history.add(Kind::Suspected { peer: peer.0, reason: reason.name() });
            }
            // The steps of elections tell it.
            Notice::Election(_) => {}
            Notice::Slower(us) => self.elections.tell(Input::Command(groups::Command::Slower(us))),
        }
    }

    fn on_leader(&mut self, leader: Option<ServerId>, term: Term, reason: Reason) {
        let was_leading = self.leads();
        self.tell_history(leader, term, reason);
        (self.state.leader, self.state.term, self.state.reason) = (leader, term, reason);
        self.state.since = SystemTime::now();
        self.leadership.send_replace(self.state.leadership());
        // A new leader has to be told.
        self.is_full = false;
        self.entering.clear();
        self.tell_farm(Told::Leader(leader));
        self.tell_clock();
        self.accession = Some(term).filter(|term| self.leads_in(*term));
        self.accede();
        if let Some(leader) = leader {
            self.end_transfer(Ok(()));
            self.on_elected(leader, term);
        }
        if was_leading && !self.leads() {
            let writes = std::mem::take(&mut self.writes);
            writes.into_values().for_each(|write| _ = write.reply.send(Err(Unable::Unknown)));
            self.reads.refuse(self.unable());
        }
        if leader.is_some() {
            self.release_parked();
        }
    }

    /// A new leader has applied everything that was agreed on before once it has applied an entry of its own term.
    fn accede(&mut self) {
        if let Some(term) = self.accession.take_if(|term| *term == self.applied_term) {
            self.tell_farm(Told::Lead(term));
            self.reads.take_early().into_iter().for_each(|read| self.on_read(read));
        }
    }

    fn tell_history(&mut self, leader: Option<ServerId>, term: Term, reason: Reason) {
        let (term, reason) = (term.0, reason.name());
        let previous = self.last_leader.map(|id| id.0);
        match leader {
            Some(leader) => {
                let took = self.leaderless.take().map_or(Duration::ZERO, |since| since.elapsed());
                let took_ms = milliseconds(took);
                self.meters.changes.add(reason);
                self.history.add(Kind::LeaderChanged { leader: leader.0, previous, term, reason, took_ms });
                self.last_leader = Some(leader);
            }
            None => {
                self.leaderless = Some(Instant::now());
                self.history.add(Kind::LeaderLost { previous, term, reason });
            }
        }
    }

    fn unable(&self) -> Unable {
        match self.state.leader {
            Some(leader) if leader != self.config.plan.id => Unable::NotLeading(leader),
            Some(_) => Unable::Busy,
            None => Unable::NoLeader,
        }
    }

    /// All of them are refused, so whoever waits for the last is told; unless it only has to wait until it is known who leads.
    fn on_refused(&mut self, refusal: Refusal, entries: Vec<Bytes>) {
        let number = match entries.last().map(|data| Content::of(data)) {
            Some(Content::Register(proposal)) => Proposal::from_bytes(proposal).map(|proposal| proposal.number),
            Some(Content::Ledger { .. }) if refusal == Refusal::Busy => {
                return self.entering.put_back(entries, Instant::now());
            }
            _ => None,
        };
        let Some(number) = number else { return };
        let Some(Proposed { since, may_wait, reply }) = self.writes.remove(&number) else { return };
        let is_busy = refusal == Refusal::Busy;
        if is_busy && may_wait && self.server.is_handing_over() {
            return self.park(Write { number, entries, since, reply }, Instant::now() + self.parking_time());
        }
        _ = reply.send(Err(if is_busy { Unable::Busy } else { self.unable() }));
    }

    const fn applied(&self) -> Applied {
        Applied { index: self.state.applied, told: self.told }
    }

    fn apply(&mut self, entry: &Entry) {
        self.state.applied = entry.index;
        // What a leader that was deposed did not bring to an end never gets one.
        self.is_within_batch &= self.applied_term == Term(entry.term);
        self.applied_term = Term(entry.term);
        self.grown += entry.data.len();
        match Content::of(&entry.data) {
            Content::Register(proposal) => self.apply_to_register(entry.index, proposal),
            Content::Ledger { goes_on } => {
                self.is_within_batch = goes_on;
                self.told = entry.index;
                self.tell_farm(Told::Committed(entry.index, entry.data.clone()));
            }
            Content::Fact | Content::Nothing => {}
        }
        self.accede();
        self.reads.answer(self.applied(), &self.register);
        let is_due = entry.index >= self.snapshot_at || self.snapshot_at < u64::MAX && self.grown > GROWN_MAX;
        if is_due && !self.is_within_batch {
            // The next one not before this one is done.
            (self.snapshot_at, self.grown) = (u64::MAX, 0);
            let front = record::front(&self.register.to_bytes(), self.server.gave_way());
            self.tell_farm(Told::Snapshot(entry.index, front));
        }
    }

    fn apply_to_register(&mut self, index: u64, proposal: &[u8]) {
        if let Some(proposal) = self.register.apply(index, proposal)
            && proposal.origin == self.origin
            && let Some(write) = self.writes.remove(&proposal.number)
        {
            self.meters.commits.add(write.since.elapsed());
            _ = write.reply.send(Ok(index));
        }
    }

    fn restore(&mut self, snapshot: &Snapshot) {
        let Some(register) = unpacked(snapshot, &self.farm) else {
            self.end = Some(EndError::Unreadable(snapshot.index));
            return;
        };
        self.register = register;
        (self.state.applied, self.told) = (snapshot.index, snapshot.index);
        self.applied_term = Term(snapshot.term);
        self.is_within_batch = false;
        self.reads.answer(self.applied(), &self.register);
    }
}

/// Only a whole state can be too long for a frame.
impl links::Words for Words {
    fn unload(&mut self) -> Option<Bytes> {
        match self {
            Self::Control(Message::Replica(message)) => {
                message.snapshot.as_mut().map(|snapshot| std::mem::take(&mut snapshot.data))
            }
            _ => None,
        }
    }

    fn load(&mut self, cargo: Bytes) {
        if let Self::Control(Message::Replica(message)) = self
            && let Some(snapshot) = &mut message.snapshot
        {
            snapshot.data = cargo;
        }
    }
}

/// What a server knows of its peers when it starts.
fn known(plan: &Plan, store: &Store) -> links::Known {
    let peers = plan.servers.iter().filter(|(id, _)| **id != plan.id).map(|(id, at)| (*id, *at));
    let stores = store.peers().into_iter().map(|(peer, StoreId(store))| (peer, store));
    links::Known { peers: peers.collect(), stores: stores.collect() }
}

/// What a server looks like that has just started.
fn first_view(plan: &Plan, server: &Server, applied: u64) -> View {
    let (_, _, term) = server.replica().view();
    let peers = plan.servers.keys().filter(|peer| **peer != plan.id);
    View {
        id: plan.id,
        role: Role::Follower,
        leader: None,
        term,
        since: SystemTime::now(),
        reason: Reason::Start,
        applied,
        last: server.replica().extent().0,
        load: Load::default(),
        peers: peers.map(|peer| (*peer, PeerView::default())).collect(),
        gave_way: server.gave_way().servers().clone(),
        suspicions: 0,
        silence_us: server.silence_us(),
        longest_turn: Duration::ZERO,
    }
}

/// The register that the last snapshot on disk holds, nothing if it cannot be read, and its place in the log; the ledger
/// goes to the farm.
fn restored(records: &[Record], farm: &mpsc::UnboundedSender<Told>) -> (Option<Register>, u64) {
    let snapshot = records.iter().rev().find_map(|record| match record {
        Record::Snapshot(snapshot) => Some(snapshot),
        _ => None,
    });
    let register = snapshot.map_or_else(|| Some(Register::default()), |snapshot| unpacked(snapshot, farm));
    (register, snapshot.map_or(0, |snapshot| snapshot.index))
}

fn unpacked(snapshot: &Snapshot, farm: &mpsc::UnboundedSender<Told>) -> Option<Register> {
    let (register, ledger) = record::split_state(&snapshot.data)?;
    let register = Register::from_bytes(&register)?;
    // Either both go on with the new state, or neither.
    _ = farm.send(Told::Restored(snapshot.index, ledger));
    Some(register)
}
