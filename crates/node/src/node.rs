//! A running server: the loop in which the control machine meets links, a disk and a clock.
//!
//! One thread runs the loop and the links, another one the disk, so that a slow fsync makes nobody late. The loop takes
//! everything that has arrived before it looks at its timers: after a pause of one's own the leader is not judged silent
//! before its messages have been read.

mod changes;
mod held;
mod log;
mod own;
mod peers;
mod turn;
mod writes;
mod writing;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use primus_core::ServerId;
use primus_core::Term;
use primus_core::load::Load;
use primus_core::machine::{Input, Machine, Outbox, Output, Token};
use primus_replica::{Consensus, Role};
use primus_server::control::{Command, Message, Notice, Reason, Timer};
use primus_server::farm::Refusal;
use primus_server::peers::Sign;
use primus_server::record::State;
use primus_server::words::Words;
use primus_server::{Plan, Server, groups, leases};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use self::changes::Changes;
use self::log::Log;
use self::own::Own;
use self::peers::Acquaintances;
use self::turn::{Turn, Turns};
use self::writes::Writes;
use self::writing::Writing;
use crate::budget::Budget;
use crate::clock;
use crate::cuts::Cuts;
use crate::disk;
use crate::elections::{self, Elections};
use crate::entering::Entering;
use crate::events::{History, Kind};
use crate::farm::{self, FarmHandle, Told, Wish};
use crate::handle::{Handle, Leadership, PeerView, Request, UNWRITTEN_LEN_MAX, Unable, View};
use crate::leases::Teller;
use crate::links::{self, LinkEvent, Links, Peer};
use crate::meters::Meters;
use crate::questions::Questions;
use crate::reads::{Read, Reads};
use crate::requests::{Requested, Requests};
use crate::steps::Steps;
use crate::store::{Opened, Store, StoreId, WriteError};
use crate::timers::{Timers, drawn};
use crate::watched::{Broken, watch};

type ControlWords = <Server as Machine>::Message;

/// How many inputs are taken before timers are looked at, at most.
const INPUTS_MAX: usize = 1024;
/// After this long no further input is taken before timers are looked at.
const TURN_MAX: Duration = Duration::from_millis(5);
/// After a turn of this length others get the thread.
const YIELD_AFTER: Duration = Duration::from_micros(500);

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
    let (requests, received) = Requests::new();
    let incarnation = incarnation();
    let (mut running, farm, inputs) =
        Running::new(config, listener, opened, incarnation, (requests.clone(), received));
    let (history, steps) = (Arc::clone(&running.shown.history), Arc::clone(&running.shown.steps));
    let (numbers, meters) = (Arc::default(), Arc::clone(&running.shown.meters));
    let (view, elected) = (running.shown.view.subscribe(), running.threads.elections.elected());
    let leadership = running.shown.leadership.subscribe();
    let (asker, heard) = (running.questions.asker(), running.shown.acquaintances.heard());
    let (origin, elections) = (incarnation, running.threads.elections.clone());
    let handle = Handle {
        requests,
        origin,
        numbers,
        unwritten: Budget::new(UNWRITTEN_LEN_MAX),
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
    running.writing.flush();
    running.run(inputs).await
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
    /// leads to: the order of writes depends on it. Nothing while it is not being told anything.
    inputs: Option<VecDeque<Input<Server>>>,
    links: Arc<Links<Words>>,
    /// Why this server must not go on.
    end: Option<EndError>,
    writing: Writing,
    timers: Timers<Timer>,
    threads: Threads,
    /// What the farm wants to write.
    entering: Entering,
    log: Log,
    turns: Turns,
    writes: Writes,
    reads: Reads,
    own: Own,
    changes: Changes,
    shown: Shown,
    /// Where questions for whoever leads, and answers to them, are passed on to.
    questions: Questions,
}

/// The other threads of this server, and how they are told what happens.
struct Threads {
    farm: mpsc::UnboundedSender<Told>,
    leases: Teller,
    elections: Elections,
}

/// What others see of this server.
struct Shown {
    state: View,
    view: watch::Sender<View>,
    leadership: watch::Sender<Leadership>,
    /// How the peers are, and when each was last heard.
    acquaintances: Acquaintances,
    history: Arc<History>,
    /// The steps of the last elections.
    steps: Arc<Steps>,
    meters: Arc<Meters>,
}

/// Where everything arrives but what the disk has done.
struct Inputs {
    links: mpsc::Receiver<LinkEvent<Words>>,
    wishes: mpsc::UnboundedReceiver<Wish>,
    requests: mpsc::UnboundedReceiver<Requested>,
    /// Which other part has failed.
    failures: mpsc::UnboundedReceiver<Broken>,
}

impl Inputs {
    fn try_next(&mut self) -> Option<Arrived> {
        let link = self.links.try_recv().map(Arrived::Link);
        let link_or_wish = link.or_else(|_| self.wishes.try_recv().map(Arrived::Wish));
        link_or_wish.or_else(|_| self.requests.try_recv().map(|(request, _)| Arrived::Request(request))).ok()
    }
}

/// What has arrived.
enum Arrived {
    Synced(Token),
    Link(LinkEvent<Words>),
    Wish(Wish),
    Request(Request),
}

impl Arrived {
    const fn name(&self) -> &'static str {
        match self {
            Self::Synced(_) => "what the disk has written",
            Self::Link(LinkEvent::Message(_, words, _)) => words.name(),
            Self::Link(_) => "a link",
            Self::Wish(wish) => wish.name(),
            Self::Request(request) => request.name(),
        }
    }
}

impl Running {
    fn new(
        config: Config,
        listener: TcpListener,
        opened: Opened,
        incarnation: u64,
        (requests, received): (Requests, mpsc::UnboundedReceiver<Requested>),
    ) -> (Self, FarmHandle, Inputs) {
        let StoreId(store) = opened.store_id;
        let identity =
            links::Identity { cluster: config.cluster.clone(), server: config.plan.id, store, incarnation };
        let history = Arc::<History>::default();
        let steps = Arc::new(Steps::new(config.plan.id));
        let meters = Arc::<Meters>::default();
        let (cut, cuts) = watch::channel(Cuts::default());
        let witnesses = (Arc::clone(&history), Arc::clone(&meters));
        let (failed, failures) = mpsc::unbounded_channel();
        let (applied, state, end) = match log::restored(&opened.records) {
            Ok((applied, state)) => (applied, state, None),
            Err(end) => (0, State::default(), Some(end)),
        };
        let ends = (cuts, failed.clone());
        let farm = farm::start(identity.clone(), &config.plan, (applied, state), ends, requests, witnesses);
        let known = known(&config.plan, &opened.store);
        let (links, link_events) = Links::start(identity, listener, known, farm.doors, cut, Arc::clone(&history));
        let links = Arc::new(links);
        let told = (Arc::clone(&history), Arc::clone(&steps), Arc::clone(&meters));
        let elections = elections::start(&config.plan, Arc::clone(&links), told, failed);
        let questions = Questions::new(&config.plan, &links);
        let server = config.plan.server(opened.records);
        let state = first_view(&config.plan, &server, applied);
        let shown = Shown {
            view: watch::Sender::new(state.clone()),
            leadership: watch::Sender::new(state.leadership()),
            acquaintances: Acquaintances::new(state.peers.keys().copied()),
            state,
            history,
            steps,
            meters,
        };
        let running = Self {
            log: Log::new(applied, config.plan.snapshot_every),
            config,
            started: Instant::now(),
            server,
            outbox: Outbox::new(),
            inputs: None,
            links,
            end,
            writing: Writing::new(disk::start(opened.store, Arc::clone(&shown.meters))),
            timers: Timers::default(),
            threads: Threads { farm: farm.told, leases: farm.leases, elections },
            entering: Entering::default(),
            turns: Turns::default(),
            writes: Writes::new(incarnation),
            reads: Reads::default(),
            own: Own::new(),
            changes: Changes::new(),
            shown,
            questions,
        };
        let inputs = Inputs { links: link_events, wishes: farm.wishes, requests: received, failures };
        (running, farm.handle, inputs)
    }

    async fn run(&mut self, mut inputs: Inputs) -> Result<(), EndError> {
        loop {
            if let Some(end) = self.end.take() {
                return Err(end);
            }
            let due =
                self.timers.next().into_iter().chain(self.writes.parked.due()).chain(self.entering.due()).min();
            let due = due.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            let first = tokio::select! {
                biased;
                Some(broken) = inputs.failures.recv() => return Err(broken.into()),
                done = self.writing.disk.done() => Some(Arrived::Synced(done?)),
                Some(event) = inputs.links.recv() => Some(Arrived::Link(event)),
                Some(wish) = inputs.wishes.recv() => Some(Arrived::Wish(wish)),
                request = inputs.requests.recv() => match request {
                    Some((request, _)) => Some(Arrived::Request(request)),
                    None => return Ok(()),
                },
                () = sleep_until(due) => None,
            };
            // What was said in a long turn must leave before the next one: the links have this thread, too.
            if self.turn(first, &mut inputs)? > YIELD_AFTER {
                yield_now().await;
            }
        }
    }

    fn turn(&mut self, first: Option<Arrived>, inputs: &mut Inputs) -> Result<Duration, EndError> {
        let mut turn = Turn::begin();
        first.into_iter().for_each(|first| _ = self.take(first, &mut turn));
        let all_taken = self.take_more(inputs, &mut turn)?;
        self.propose_entering();
        turn.note("proposing records");
        self.fire_timers(all_taken);
        turn.note("a timer");
        self.look_for_room();
        self.writing.flush();
        let took = turn.note("giving records to the disk");
        self.publish();
        self.turns.end(turn).into_iter().for_each(|late| self.shown.history.add(late));
        Ok(took)
    }

    /// Takes what has arrived, but not for ever. Is that all?
    fn take_more(&mut self, inputs: &mut Inputs, turn: &mut Turn) -> Result<bool, EndError> {
        for _ in 0..INPUTS_MAX {
            let next = match self.writing.disk.try_done() {
                Some(done) => Some(Arrived::Synced(done?)),
                None => inputs.try_next(),
            };
            let Some(next) = next else { return Ok(true) };
            if self.take(next, turn) > TURN_MAX {
                break;
            }
        }
        Ok(false)
    }

    /// Says for how long the turn has lasted.
    fn take(&mut self, arrived: Arrived, turn: &mut Turn) -> Duration {
        let name = arrived.name();
        match arrived {
            Arrived::Synced(token) => self.on_synced(token),
            Arrived::Link(event) => self.on_link(event),
            Arrived::Wish(wish) => self.on_wish(wish),
            Arrived::Request(request) => self.on_request(request),
        }
        turn.note(name)
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
        self.writes.parked.take_due(now).into_iter().for_each(|write| _ = write.reply.send(Err(unable)));
    }

    fn publish(&mut self) {
        self.look_for_missing();
        let replica = self.server.replica();
        let (role, _, _) = replica.view();
        self.shown.state.role = role;
        self.shown.state.last = replica.extent().0;
        self.shown.state.longest_turn = self.turns.longest;
        if self.shown.state.gave_way != *self.server.gave_way().servers() {
            self.shown.state.gave_way.clone_from(self.server.gave_way().servers());
        }
        for (peer, view) in &mut self.shown.state.peers {
            view.matched = replica.matched(*peer);
            view.load = self.server.loads().get(peer).copied();
            view.round_trip_us = self.server.round_trip_us(*peer);
        }
        self.shown.state.silence_us = self.server.silence_us();
        self.shown.view.send_if_modified(|view| {
            let is_new = *view != self.shown.state;
            if is_new {
                view.clone_from(&self.shown.state);
            }
            is_new
        });
    }

    fn on_link(&mut self, event: LinkEvent<Words>) {
        match event {
            LinkEvent::Message(from, words, _) => self.on_words(from, words),
            // On its way to the disk before any vote that this peer might ask for.
            LinkEvent::Met(peer, Peer { store, .. }) => self.writing.remember(peer, StoreId(store)),
            LinkEvent::Up(peer) => {
                self.mark(peer, true);
                self.see(peer, Sign::LinkUp);
                self.step(Input::LinkUp(peer));
                self.threads.elections.tell(Input::LinkUp(peer));
            }
            LinkEvent::Down(peer) => {
                self.mark(peer, false);
                self.see(peer, Sign::LinkDown);
                self.step(Input::LinkDown(peer));
                self.threads.elections.tell(Input::LinkDown(peer));
            }
            LinkEvent::Gone(peer) => {
                self.mark(peer, false);
                self.see(peer, Sign::Gone);
                self.step(Input::Command(Command::Gone(peer)));
                self.threads.elections.tell(Input::Command(groups::Command::Gone(peer)));
            }
            LinkEvent::Barred(peer, reason) => self.see(peer, Sign::Refused(reason)),
        }
    }

    fn on_words(&mut self, from: ServerId, words: Words) {
        self.shown.meters.received.add(1);
        if let Some(objection) = words.objection() {
            return self.on_strange(from, objection);
        }
        self.hear(from);
        match words {
            Words::Control(message) => {
                if message.brings_log() {
                    self.tell_room();
                }
                self.step(Input::Message { from, message });
            }
            Words::Groups(message) => self.threads.elections.tell(Input::Message { from, message }),
            Words::Question(number, body) => self.questions.on_question(from, number, body),
            Words::Answer(number, body) => self.questions.on_answer(from, number, body),
            Words::Clock(shows_ms) => self.pass_clock_on(from, shows_ms),
        }
    }

    /// A peer said what no server says; it was not heard.
    fn on_strange(&self, peer: ServerId, what: &str) {
        self.shown.meters.strange.add(1);
        self.shown.history.refused(format!("refused words of server {peer}: {what}"));
    }

    fn mark(&mut self, peer: ServerId, is_up: bool) {
        if let Some(view) = self.shown.state.peers.get_mut(&peer) {
            view.is_up = is_up;
        }
    }

    fn on_request(&mut self, request: Request) {
        match request {
            Request::Propose(proposals, reply) => self.on_proposals(proposals, reply),
            Request::Confirm(read) => self.on_read(read),
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
                self.own.usage = usage;
                self.on_load();
            }
            Request::OverrideLoad(score) => {
                self.own.overridden = score;
                self.on_load();
            }
        }
    }

    fn on_delay(&mut self, delays: &BTreeMap<ServerId, Duration>) {
        self.links.delay(delays);
        let delays = self.links.delays();
        for (peer, view) in &mut self.shown.state.peers {
            view.delay = delays.get(peer).copied();
        }
        self.step(Input::Command(Command::Measure));
    }

    fn on_wish(&mut self, wish: Wish) {
        match wish {
            // What a leader wanted that has been deposed meanwhile is void, and its farm knows or will know.
            Wish::Enter(term, records) if self.leads_in(term) => self.entering.add(records),
            Wish::Enter(..) => {}
            Wish::Unreadable(index) => self.end = Some(EndError::Unreadable(index)),
            Wish::Guarded(is_guarded) => self.step(Input::Command(Command::Guarded(is_guarded))),
            Wish::Transfer(to, reason) => self.step(Input::Command(Command::Transfer(Some(to), reason))),
            Wish::Tasks(tasks) => {
                self.own.tasks = tasks;
                self.on_load();
            }
            Wish::Compact(index, state) => {
                self.step(Input::Command(Command::Compact(index, state)));
                self.log.snapshot_at = index + self.config.plan.snapshot_every;
            }
        }
    }

    fn leads(&self) -> bool {
        self.shown.state.leader == Some(self.config.plan.id)
    }

    fn leads_in(&self, term: Term) -> bool {
        self.leads() && self.shown.state.term == term
    }

    fn tell_leases(&self, command: leases::Command) {
        // If that thread has failed, this server is about to end.
        _ = self.threads.leases.send((crate::leases::Arrived::Told(command), None));
    }

    fn on_read(&mut self, read: Read) {
        let number = self.reads.ask(read);
        self.step(Input::Command(Command::Read(number)));
    }

    fn send(&self, to: ServerId, message: ControlWords) {
        self.shown.meters.sent.add(1);
        self.links.send(to, Words::Control(message));
    }

    fn on_synced(&mut self, token: Token) {
        let ready = self.writing.take_ready(token);
        ready.into_iter().for_each(|(_, to, message)| self.send(to, message));
        self.step(Input::Persisted(token));
    }

    fn step(&mut self, input: Input<Server>) {
        if let Some(inputs) = &mut self.inputs {
            return inputs.push_back(input);
        }
        self.inputs = Some(VecDeque::new());
        let (mut next, mut outbox) = (Some(input), std::mem::take(&mut self.outbox));
        while let Some(input) = next {
            let copy = Steps::copy_of(&self.server, &input);
            self.server.step(clock::since(self.started), input, &mut outbox);
            if let Some(input) = copy {
                self.shown.steps.add(&input, outbox.as_slice());
            }
            for output in outbox.drain() {
                self.carry_out(output);
            }
            next = self.inputs.as_mut().and_then(VecDeque::pop_front);
        }
        (self.outbox, self.inputs) = (outbox, None);
    }

    fn carry_out(&mut self, output: Output<Server>) {
        match output {
            Output::Send { to, message } => self.send(to, message),
            Output::SendAfter { token, to, message } => self.writing.wait((token, to, message)),
            Output::Persist { token, records } => self.writing.add(token, records),
            Output::Set { timer, delay } => self.timers.set(timer, Instant::now() + drawn(delay)),
            Output::Cancel(timer) => self.timers.cancel(timer),
            Output::Notify(notice) => self.on_notice(notice),
            Output::Ignore(_) => {}
        }
    }

    fn on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Leader(leader, term, reason) => self.on_leader(leader, term, reason),
            Notice::Committed(entries) => self.apply_all(entries),
            Notice::Readable(number, index) => self.reads.on_readable(number, index, self.applied()),
            Notice::Unreadable(number) => self.reads.on_unreadable(number, self.leads(), self.unable()),
            Notice::Restored(snapshot) => self.restore(&snapshot),
            Notice::Refused(refusal, entries) => self.on_refused(refusal, entries),
            Notice::NoRoom(refusal, entries) => self.on_no_room(refusal, &entries),
            Notice::HandOver(to, reason) => self.tell_leases(leases::Command::HandOver(to, reason)),
            Notice::NotTransferred(obstacle) => {
                self.tell_leases(leases::Command::Stay);
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
                self.shown.state.suspicions += 1;
                self.shown.history.add(Kind::Suspected { peer: peer.0, reason: reason.name() });
            }
            // The steps of elections tell it.
            Notice::Election(_) => {}
            Notice::Slower(us) => self.threads.elections.tell(Input::Command(groups::Command::Slower(us))),
        }
    }

    fn unable(&self) -> Unable {
        Refusal::of(self.config.plan.id, self.shown.state.leader).into()
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
