//! What a worker does for one farm: its machine meets servers, a disk and an executor.
//!
//! It keeps a link to every server, so that whoever begins to lead can say so at once; it serves the leader of the newest
//! term.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use primus_core::farm::Message;
use primus_core::farm::worker::{Allegiance, Command, Notice, REPORTS_MAX, Timer, Worker};
use primus_core::ledger::Held;
use primus_core::load::Load;
use primus_core::loan::Word;
use primus_core::machine::{Delay, Input, Machine, Outbox, Output, Token};
use primus_core::{ServerId, Term};
use primus_wire::work::{self, FromWorker, Part, ToWorker};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::abroad::Opened;
use super::links::{LinkEvent, Links};
use super::{Happening, WorkerError};
use crate::clock;
use crate::disk::{self, Disk};
use crate::executor::{self, Ended, Executor, Kinds};
use crate::meters::Meters;
use crate::outputs;
use crate::results::Results;
use crate::timers::{Timers, drawn};

/// How often a worker shows that it is alive.
const BEAT: Delay = Delay::exactly_ms(500);
/// A pause of its own after which a worker does not know what others think of it. Leaders wait a little longer.
const PAUSE: Duration = Duration::from_secs(1);
/// How many inputs are taken before timers are looked at, at most.
const INPUTS_MAX: usize = 1024;

/// For whom a worker works, and how.
pub(super) struct Setting {
    pub(super) farm: String,
    /// What it is called there.
    pub(super) name: String,
    pub(super) slots: u16,
    /// The server on the same host, if it is one of this farm.
    pub(super) beside: Option<ServerId>,
    pub(super) servers: BTreeMap<ServerId, SocketAddr>,
    pub(super) executor: executor::Settings,
    pub(super) kinds: Kinds,
    pub(super) store: [u8; 16],
    pub(super) allegiance: Allegiance,
    pub(super) happenings: mpsc::UnboundedSender<Happening>,
}

/// A worker's service to one farm.
pub(super) struct Service {
    /// The farm, if it is not the worker's own.
    abroad: Option<String>,
    worker: Worker,
    outbox: Outbox<Worker>,
    executor: Executor,
    ended: mpsc::UnboundedReceiver<Ended>,
    disk: Disk<Results>,
    meters: Arc<Meters>,
    /// Is the worker with another farm, so that nothing is begun here?
    is_left: bool,
    /// Could anything be begun when its machine was last told?
    has_room: bool,
    outputs: PathBuf,
    links: Links,
    link_events: mpsc::Receiver<LinkEvent>,
    /// The servers that lead, as they say themselves, and in which terms.
    leads: BTreeMap<ServerId, Term>,
    /// The newest term that any of them named.
    newest: Term,
    /// The leader that the worker was last told to serve.
    serves: Option<(ServerId, Term)>,
    timers: Timers<Timer>,
    /// When it last looked at the clock, which it does several times a second.
    awake: Instant,
    /// What was said to servers in this turn.
    said: BTreeMap<ServerId, Vec<FromWorker>>,
    /// What leaders have said about loans in this turn.
    heard: Vec<Call>,
    happenings: mpsc::UnboundedSender<Happening>,
}

/// What a leader says about loans, and where the servers of the farm are that it speaks of.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) from: ServerId,
    pub(super) word: Word,
    pub(super) servers: BTreeMap<ServerId, SocketAddr>,
}

/// What happens to a service.
#[derive(Debug)]
enum Arrival {
    Synced(Token),
    Ended(Ended),
    Link(LinkEvent),
}

impl Service {
    /// Begins to serve a farm, with what was kept for it. To be called inside a tokio runtime with time and io.
    pub(super) fn start(setting: Setting, (results, records): Opened) -> Result<Self, WorkerError> {
        let Setting { farm, name, slots, beside, servers, executor, kinds, store, allegiance, happenings } =
            setting;
        let outputs = executor.directory.join(executor::Settings::OUTPUTS);
        let (executor, ended) = Executor::start(executor, kinds).map_err(WorkerError::Executor)?;
        let abroad = (allegiance != Allegiance::Own).then(|| farm.clone());
        let (links, link_events) = Links::start(farm, &name, &servers, store);
        let meters = Arc::<Meters>::default();
        Ok(Self {
            abroad,
            worker: Worker::new(name, slots, BEAT, records).standing(allegiance).beside(beside),
            outbox: Outbox::new(),
            executor,
            ended,
            disk: disk::start(results, Arc::clone(&meters)),
            meters,
            is_left: false,
            has_room: true,
            outputs,
            links,
            link_events,
            leads: BTreeMap::new(),
            newest: Term(0),
            serves: None,
            timers: Timers::default(),
            awake: Instant::now(),
            said: BTreeMap::new(),
            heard: Vec::new(),
            happenings,
        })
    }

    /// Does nothing run or wait here?
    pub(super) fn is_idle(&self) -> bool {
        self.worker.is_idle()
    }

    /// Does the farm know all results?
    pub(super) fn is_settled(&self) -> bool {
        self.worker.unrecorded() == 0
    }

    /// The leader that has welcomed the worker.
    pub(super) fn leader(&self) -> Option<ServerId> {
        self.worker.serves().map(|(leader, _)| leader)
    }

    /// What leaders have said about loans.
    pub(super) fn take_heard(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.heard)
    }

    /// From now on the worker is with another farm and begins with nothing here, or it is back.
    pub(super) fn leave(&mut self, is_left: bool) {
        self.is_left = is_left;
        self.look_for_room();
    }

    /// From now on the worker takes new work from this farm, or it takes none and ends what it has.
    pub(super) fn set_open(&mut self, is_open: bool) {
        self.step(Input::Command(Command::Open(is_open)));
    }

    /// It stands otherwise to this farm from now on.
    pub(super) fn stand(&mut self, allegiance: Allegiance) {
        self.step(Input::Command(Command::Allegiance(allegiance)));
    }

    /// Ends all that has not ended. Others may have it.
    pub(super) fn abandon_all(&mut self) {
        let unfinished: Vec<Held> = self.worker.unfinished().collect();
        for held in unfinished {
            self.executor.kill(held);
            self.step(Input::Command(Command::Abandoned(held)));
        }
    }

    /// How many tasks run here for this farm.
    pub(super) fn running_len(&self) -> usize {
        self.worker.running_len()
    }

    pub(super) fn measure(&mut self, load: Load) {
        self.step(Input::Command(Command::Load(load)));
    }

    /// The worker is well.
    pub(super) fn renew(&self) {
        self.executor.renew();
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Takes the next thing that happens, if it has.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), WorkerError>> {
        let arrival = if let Poll::Ready(done) = self.disk.poll_done(context) {
            done.map(Arrival::Synced).map_err(WorkerError::Write)
        } else if let Poll::Ready(ended) = self.ended.poll_recv(context) {
            ended.map(Arrival::Ended).ok_or(WorkerError::NoCompanion)
        } else if let Poll::Ready(Some(event)) = self.link_events.poll_recv(context) {
            Ok(Arrival::Link(event))
        } else {
            return Poll::Pending;
        };
        Poll::Ready(arrival.map(|arrival| self.on_arrival(arrival)))
    }

    fn on_arrival(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Synced(token) => self.step(Input::Persisted(token)),
            Arrival::Ended(ended) => self.on_ended(ended),
            Arrival::Link(event) => self.on_link(event),
        }
    }

    /// Takes what else has arrived, but not for ever.
    pub(super) fn take_inputs(&mut self) -> Result<(), WorkerError> {
        self.look_at_clock();
        for _ in 0..INPUTS_MAX {
            if let Some(done) = self.disk.try_done() {
                self.on_arrival(Arrival::Synced(done?));
            } else if let Ok(ended) = self.ended.try_recv() {
                self.on_arrival(Arrival::Ended(ended));
            } else if let Ok(event) = self.link_events.try_recv() {
                self.on_arrival(Arrival::Link(event));
            } else {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn fire_timers(&mut self, now: Instant) {
        while let Some((_, timer)) = self.timers.take_due(now) {
            self.step(Input::Timer(timer));
        }
    }

    /// What would have no place for its result is not begun.
    pub(super) fn look_for_room(&mut self) {
        let has_room = !self.is_left && !self.meters.disk_full.get();
        if has_room != self.has_room {
            self.has_room = has_room;
            self.step(Input::Command(Command::Room(has_room)));
        }
    }

    /// Whoever was frozen for so long may have been given up: it begins with nothing before a leader has welcomed it again.
    fn look_at_clock(&mut self) {
        let now = Instant::now();
        if now - std::mem::replace(&mut self.awake, now) > PAUSE {
            self.links.give_up();
            let leaders = std::mem::take(&mut self.leads);
            leaders.into_keys().for_each(|leader| self.lose(leader));
        }
    }

    fn on_ended(&mut self, ended: Ended) {
        self.step(Input::Command(match ended {
            Ended::Finished(report) => Command::Ended(report),
            Ended::Abandoned(held) => Command::Abandoned(held),
        }));
    }

    fn on_link(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Up(server, outgoing) => {
                self.links.opened(server, outgoing);
                self.step(Input::LinkUp(server));
            }
            LinkEvent::Word(server, _) if self.links.is_given_up(server) => {}
            LinkEvent::Word(server, word) => self.on_word(server, word),
            LinkEvent::Down(server) => {
                self.links.closed(server);
                self.leads.remove(&server);
                self.lose(server);
            }
            LinkEvent::Refused(server, reason) => self.tell_refusal(server, reason),
        }
    }

    fn on_word(&mut self, server: ServerId, word: ToWorker) {
        match word {
            ToWorker::Farm(message) => self.step(Input::Message { from: server, message }),
            ToWorker::Leads(term) => {
                self.leads.insert(server, term);
                self.serve_newest();
            }
            ToWorker::Follows => {
                self.leads.remove(&server);
                self.lose(server);
            }
            ToWorker::Output(number, part) => self.read_output(server, number, part),
            ToWorker::Loan(word, servers) => self.heard.push(Call { from: server, word, servers }),
        }
    }

    /// The leader of the newest term is the one to serve. An older one has been deposed, and may not know it yet.
    fn serve_newest(&mut self) {
        let Some((server, term)) =
            self.leads.iter().map(|(server, term)| (*server, *term)).max_by_key(|(_, term)| *term)
        else {
            return;
        };
        if term < self.newest || self.serves == Some((server, term)) {
            return;
        }
        self.newest = term;
        self.serves = Some((server, term));
        self.step(Input::Command(Command::Serve(server)));
        self.tell(Happening::Serves(server, term));
    }

    fn lose(&mut self, server: ServerId) {
        if self.serves.take_if(|(leader, _)| *leader == server).is_some() {
            self.step(Input::LinkDown(server));
            self.tell(Happening::LostLeader(server));
        }
    }

    /// Who leads other farms is nothing to those who watch.
    fn tell(&self, happening: Happening) {
        if self.abroad.is_none() {
            // Nobody has to watch.
            _ = self.happenings.send(happening);
        }
    }

    fn tell_refusal(&self, server: ServerId, reason: String) {
        _ = self.happenings.send(match self.abroad.clone() {
            None => Happening::Refused(server, reason),
            Some(farm) => Happening::RefusedAbroad(farm, server, reason),
        });
    }

    /// Disks may be slow, so others read.
    fn read_output(&self, server: ServerId, number: u64, part: Part) {
        let Some(outgoing) = self.links.outgoing(server) else { return };
        let outputs = self.outputs.clone();
        tokio::task::spawn_blocking(move || {
            let len_max = part.len_max as usize;
            // Whatever the system says, there is no such file for whoever asks.
            let found = outputs::read(&outputs, part.held, part.stream, part.offset, len_max).unwrap_or(None);
            let mut buffer = BytesMut::new();
            work::put(&mut buffer, &FromWorker::Output(number, found.map(Bytes::from)));
            _ = outgoing.send(buffer.freeze());
        });
    }

    fn step(&mut self, input: Input<Worker>) {
        self.look_at_clock();
        let mut outbox = std::mem::take(&mut self.outbox);
        self.worker.step(clock::now(), input, &mut outbox);
        for output in outbox.drain() {
            self.carry_out(output);
        }
        self.outbox = outbox;
    }

    fn carry_out(&mut self, output: Output<Worker>) {
        match output {
            Output::Send { to, message } => self.say(to, message),
            Output::Persist { token, records } => self.disk.write(token, records),
            Output::Set { timer, delay } => self.timers.set(timer, Instant::now() + drawn(delay)),
            Output::Cancel(timer) => self.timers.cancel(timer),
            Output::Notify(Notice::Start(assignment)) => self.executor.run(assignment),
            Output::Notify(Notice::Kill(held)) => self.executor.kill(held),
            Output::Ignore(_) => {}
        }
    }

    /// What is said in a row in the same way is said in one go.
    fn say(&mut self, to: ServerId, message: Message) {
        let said = self.said.entry(to).or_default();
        match (said.last_mut(), message) {
            (Some(FromWorker::Farm(Message::Ended(all))), Message::Ended(more))
                if all.len() + more.len() <= REPORTS_MAX =>
            {
                all.extend(more);
            }
            (_, message) => said.push(FromWorker::Farm(message)),
        }
    }

    /// Says where the worker is.
    pub(super) fn say_where(&mut self, to: ServerId, word: Word) {
        self.said.entry(to).or_default().push(FromWorker::Loan(word));
    }

    pub(super) fn flush(&mut self) {
        while let Some((server, said)) = self.said.pop_first() {
            let mut buffer = BytesMut::new();
            said.iter().for_each(|word| work::put(&mut buffer, word));
            let is_read = self.links.outgoing(server).is_none_or(|outgoing| outgoing.send(buffer.freeze()));
            if !is_read {
                // Whoever does not read gets another link, and a new hello.
                self.links.closed(server);
            }
        }
    }
}
