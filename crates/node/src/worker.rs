//! A running worker: the loop in which its machine meets servers, a disk, an executor and a clock.
//!
//! It keeps a link to every server, so that whoever begins to lead can say so at once; it serves the leader of the newest
//! term. The same loop that does all this tells the executor that the worker is well: if it hangs, what runs is killed.

mod identity;
mod links;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use primus_core::NodeId;
use primus_core::farm::Message;
use primus_core::farm::worker::{Command, Notice, REPORTS_MAX, Timer, Worker};
use primus_core::load::Score;
use primus_core::machine::{Delay, Input, Machine, Outbox, Output};
use primus_wire::work::{self, FromWorker, Part, ToWorker};
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use self::links::{LinkEvent, Links};
use crate::disk::{self, Disk};
use crate::executor::{self, Ended, Executor, Kinds};
use crate::load::Meter;
use crate::meters::Meters;
use crate::outputs;
use crate::results::{OpenError, Results, WriteError};
use crate::timers::{Timers, drawn};

/// How often a worker shows that it is alive.
const BEAT: Delay = Delay::exactly_ms(500);
/// How often the executor is told that the worker is well.
const RENEW: Duration = Duration::from_millis(100);
/// A pause of its own after which a worker does not know what others think of it. Leaders wait a little longer.
const PAUSE: Duration = Duration::from_secs(1);
const COMPANIONS_MAX: usize = 4;
/// How many inputs are taken before timers are looked at, at most.
const INPUTS_MAX: usize = 1024;

/// What a worker is told when it starts.
#[derive(Debug)]
pub struct Config {
    /// The cluster that it works for.
    pub cluster: String,
    /// Its name, which no other worker of that cluster has.
    pub name: String,
    /// How much it can run at once.
    pub slots: u16,
    /// All servers, and where they listen.
    pub servers: BTreeMap<NodeId, SocketAddr>,
    /// How tasks run here. Its folder is where results and outputs are kept.
    pub executor: executor::Settings,
    /// What measures this host's load; without it the load counts as nothing.
    pub load: Option<Meter>,
}

/// What happens to a worker, for those who watch it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happening {
    /// It works for this server, in this term.
    Serves(NodeId, u64),
    /// The server that it worked for is not there any more.
    LostLeader(NodeId),
    /// This server does not want it, for this reason.
    Refused(NodeId, String),
}

/// Why a worker ended.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// Its results cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Its results cannot be kept.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Its folder cannot be used.
    #[error("{} cannot be used ({source}): give it to the user that runs this worker", dir.display())]
    Directory {
        /// The worker's directory.
        dir: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It cannot start the companion, which owns commands.
    #[error("the companion cannot be started ({0}): look whether this program can start itself")]
    Executor(io::Error),
    /// The companion died again and again.
    #[error("the companion died several times in a row: look at what kills it, then start this worker again")]
    NoCompanion,
}

/// Runs a worker until its process ends. To be called inside a tokio runtime with time and io; it should have a thread of
/// its own.
///
/// # Errors
/// If it must not go on: see [`WorkerError`].
pub async fn run(
    config: Config,
    kinds: Kinds,
    happenings: mpsc::UnboundedSender<Happening>,
) -> Result<(), WorkerError> {
    let directory = config.executor.directory.clone();
    let (results, records) = Results::open(&directory)?;
    let store =
        identity::of(&directory).map_err(|source| WorkerError::Directory { dir: directory.clone(), source })?;
    let mut settings = config.executor;
    settings.companions = companions_for(config.slots);
    let (executor, ended) = Executor::start(settings, kinds).map_err(WorkerError::Executor)?;
    let (loads, measured) = mpsc::unbounded_channel();
    if let Some(meter) = config.load {
        meter.watch(move |load| loads.send(load.score).is_ok());
    }
    let (links, link_events) = Links::start(config.cluster, &config.name, &config.servers, store);
    let meters = Arc::<Meters>::default();
    let running = Running {
        worker: Worker::new(config.name, config.slots, BEAT, records),
        outbox: Outbox::new(),
        executor,
        disk: disk::start(results, Arc::clone(&meters)),
        meters,
        is_full: false,
        outputs: directory.join(executor::Settings::OUTPUTS),
        links,
        leads: BTreeMap::new(),
        newest: 0,
        serves: None,
        timers: Timers::default(),
        awake: Instant::now(),
        said: BTreeMap::new(),
        happenings,
    };
    running.turn(Inputs { link_events, ended, measured }).await
}

/// One for each slot, but no more than there are cores to run them; a few are always enough.
fn companions_for(slots: u16) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    usize::from(slots).min(cores).clamp(1, COMPANIONS_MAX)
}

struct Inputs {
    link_events: mpsc::Receiver<LinkEvent>,
    ended: mpsc::UnboundedReceiver<Ended>,
    measured: mpsc::UnboundedReceiver<Score>,
}

/// What can wake a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    Machine(Timer),
    Renew,
}

/// The loop's state.
struct Running {
    worker: Worker,
    outbox: Outbox<Worker>,
    executor: Executor,
    disk: Disk<Results>,
    meters: Arc<Meters>,
    /// Was there no room on the disk when it was last looked at?
    is_full: bool,
    outputs: PathBuf,
    links: Links,
    /// The servers that lead, as they say themselves, and in which terms.
    leads: BTreeMap<NodeId, u64>,
    /// The newest term that any of them named.
    newest: u64,
    /// The leader that the worker was last told to serve.
    serves: Option<(NodeId, u64)>,
    timers: Timers<Alarm>,
    /// When it last looked at the clock, which it does several times a second.
    awake: Instant,
    /// What was said to servers in this turn.
    said: BTreeMap<NodeId, Vec<Message>>,
    happenings: mpsc::UnboundedSender<Happening>,
}

impl Running {
    async fn turn(mut self, mut inputs: Inputs) -> Result<(), WorkerError> {
        self.timers.set(Alarm::Renew, Instant::now() + RENEW);
        loop {
            let due = self.timers.next().unwrap_or_else(|| Instant::now() + RENEW);
            tokio::select! {
                biased;
                done = self.disk.done() => self.step(Input::Persisted(done?)),
                ended = inputs.ended.recv() => self.on_ended(ended.ok_or(WorkerError::NoCompanion)?),
                Some(event) = inputs.link_events.recv() => self.on_link(event),
                Some(score) = inputs.measured.recv() => self.step(Input::Command(Command::Load(score))),
                () = sleep_until(due) => {}
            }
            self.look_at_clock();
            self.take_inputs(&mut inputs)?;
            self.fire_timers();
            self.look_for_room();
            self.flush();
            // The links have this thread, too.
            yield_now().await;
        }
    }

    /// Takes what has arrived, but not for ever.
    fn take_inputs(&mut self, inputs: &mut Inputs) -> Result<(), WorkerError> {
        for _ in 0..INPUTS_MAX {
            if let Some(done) = self.disk.try_done() {
                self.step(Input::Persisted(done?));
            } else if let Ok(ended) = inputs.ended.try_recv() {
                self.on_ended(ended);
            } else if let Ok(event) = inputs.link_events.try_recv() {
                self.on_link(event);
            } else {
                break;
            }
        }
        Ok(())
    }

    fn fire_timers(&mut self) {
        let now = Instant::now();
        while let Some((_, alarm)) = self.timers.take_due(now) {
            match alarm {
                Alarm::Machine(timer) => self.step(Input::Timer(timer)),
                Alarm::Renew => {
                    self.executor.renew();
                    self.timers.set(Alarm::Renew, now + RENEW);
                }
            }
        }
    }

    /// What would have no place for its result is not begun.
    fn look_for_room(&mut self) {
        let is_full = self.meters.disk_full.get();
        if is_full != self.is_full {
            self.is_full = is_full;
            self.step(Input::Command(Command::Room(!is_full)));
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
            LinkEvent::Up(server, outgoing) => self.links.opened(server, outgoing),
            LinkEvent::Word(server, _) if self.links.is_given_up(server) => {}
            LinkEvent::Word(server, word) => self.on_word(server, word),
            LinkEvent::Down(server) => {
                self.links.closed(server);
                self.leads.remove(&server);
                self.lose(server);
            }
            LinkEvent::Refused(server, reason) => self.tell(Happening::Refused(server, reason)),
        }
    }

    fn on_word(&mut self, server: NodeId, word: ToWorker) {
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
            ToWorker::Loan(..) => {}
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

    fn lose(&mut self, server: NodeId) {
        if self.serves.take_if(|(leader, _)| *leader == server).is_some() {
            self.step(Input::LinkDown(server));
            self.tell(Happening::LostLeader(server));
        }
    }

    fn tell(&self, happening: Happening) {
        // Nobody has to watch.
        _ = self.happenings.send(happening);
    }

    /// Disks may be slow, so others read.
    fn read_output(&self, server: NodeId, number: u64, part: Part) {
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
        self.worker.step(input, &mut outbox);
        for output in outbox.drain() {
            self.carry_out(output);
        }
        self.outbox = outbox;
    }

    fn carry_out(&mut self, output: Output<Worker>) {
        match output {
            Output::Send { to, message } => self.say(to, message),
            Output::Persist { token, records } => self.disk.write(token, records),
            Output::Set { timer, delay } => self.timers.set(Alarm::Machine(timer), Instant::now() + drawn(delay)),
            Output::Cancel(timer) => self.timers.cancel(Alarm::Machine(timer)),
            Output::Notify(Notice::Start(assignment)) => self.executor.run(assignment),
            Output::Notify(Notice::Kill(held)) => self.executor.kill(held),
            Output::Ignore(_) => {}
            Output::SendAfter { .. } => unreachable!("a worker waits for its disk itself"),
        }
    }

    /// What is said in a row in the same way is said in one go.
    fn say(&mut self, to: NodeId, message: Message) {
        let said = self.said.entry(to).or_default();
        match (said.last_mut(), message) {
            (Some(Message::Ended(all)), Message::Ended(more)) if all.len() + more.len() <= REPORTS_MAX => {
                all.extend(more);
            }
            (_, message) => said.push(message),
        }
    }

    fn flush(&mut self) {
        while let Some((server, said)) = self.said.pop_first() {
            let mut buffer = BytesMut::new();
            said.into_iter().for_each(|message| work::put(&mut buffer, &FromWorker::Farm(message)));
            let is_read = self.links.outgoing(server).is_none_or(|outgoing| outgoing.send(buffer.freeze()));
            if !is_read {
                // Whoever does not read gets another link, and a new hello.
                self.links.closed(server);
            }
        }
    }
}
