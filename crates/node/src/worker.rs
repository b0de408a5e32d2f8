//! A running worker: the loop in which its machines meet servers, disks, executors and a clock.
//!
//! A worker serves its own farm (`service.rs`) and, while it is lent, another one in the same way; whom it takes work from is
//! for its allegiance to say. It keeps its links to its own farm meanwhile, and those to the other one until that has recorded
//! all results. The same loop that does all this tells the executors that the worker is well: if it hangs, what runs is
//! killed.

mod abroad;
mod files;
mod identity;
mod links;
mod service;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::iter;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::task::Poll;
use std::time::Duration;

use primus_core::farm::worker;
use primus_core::ledger::LoanId;
use primus_core::ledger::loans::name_here;
use primus_core::load::{Usage, Weights};
use primus_core::loan::allegiance::{Command, Notice, Place, Record, Timer};
use primus_core::loan::{Allegiance, Word};
use primus_core::machine::{Input, Machine, Outbox, Output, Token};
use primus_core::planted::Planted;
use primus_core::{ServerId, Term};
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use self::abroad::{Farm, Opened};
use self::service::{Call, Service, Setting};
use crate::clock;
use crate::executor::{self, Kinds};
use crate::load::Meter;
use crate::results::{OpenError, Results, WriteError};
use crate::timers::{Timers, drawn};

/// How often the executors are told that the worker is well.
const RENEW: Duration = Duration::from_millis(100);
const COMPANIONS_MAX: usize = 4;
/// With how many farms a worker may have to do at once: for one it works, others may not have recorded its results yet.
const FARMS_MAX: usize = 16;

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
    pub servers: BTreeMap<ServerId, SocketAddr>,
    /// How tasks run here. Its folder is where results and outputs are kept.
    pub executor: executor::Settings,
    /// What measures this host; without it only the tasks that run here count in its load.
    pub load: Option<Meter>,
    /// How much each part of a load counts.
    pub weights: Weights,
    /// The server on the same host, in whose load it counts what runs here.
    pub beside: Option<ServerId>,
}

/// What happens to a worker, for those who watch it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happening {
    /// It works for this server, in this term.
    Serves(ServerId, Term),
    /// The server that it worked for is not there any more.
    LostLeader(ServerId),
    /// This server does not want it, for this reason.
    Refused(ServerId, String),
    /// It is lent to this farm, under this loan, and works for it from now on.
    Lent(String, LoanId),
    /// It is with its own farm again, after this loan.
    Home(LoanId),
    /// It cannot work for this farm, for this reason.
    CannotGo(String, String),
    /// This server of another farm does not want it, for this reason.
    RefusedAbroad(String, ServerId, String),
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
    let own = Results::open(&directory)?;
    let unusable = |source| WorkerError::Directory { dir: directory.clone(), source };
    let store = identity::of(&directory).map_err(unusable)?;
    let epoch = abroad::epoch(&directory).map_err(unusable)?;
    let visited = abroad::visited(&directory).map_err(unusable)?;
    let (loads, measured) = mpsc::unbounded_channel();
    if let Some(meter) = config.load {
        meter.watch(move |usage| loads.send(usage).is_ok());
    }
    let mut executor = config.executor;
    executor.companions = companions_for(config.slots);
    let (name, slots) = (config.name, config.slots);
    let own_farm = Farm { name: config.cluster, servers: config.servers };
    let beside = config.beside;
    let trade = Trade { own_farm, name, slots, beside, executor, kinds, store, happenings };
    let mut running = Running::new(trade, own, epoch, (measured, config.weights))?;
    running.take_up_visited(visited)?;
    running.turn().await
}

/// One for each slot, but no more than there are cores to run them; a few are always enough.
fn companions_for(slots: u16) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    usize::from(slots).min(cores).clamp(1, COMPANIONS_MAX)
}

/// What is the same whomever a worker works for.
struct Trade {
    own_farm: Farm,
    name: String,
    slots: u16,
    beside: Option<ServerId>,
    executor: executor::Settings,
    kinds: Kinds,
    store: [u8; 16],
    happenings: mpsc::UnboundedSender<Happening>,
}

impl Trade {
    fn at_home(&self) -> Setting {
        self.setting(&self.own_farm, self.name.clone(), self.executor.clone(), worker::Allegiance::Own)
    }

    /// Another farm knows the worker under another name, and what is done for it has a folder of its own.
    fn abroad(&self, farm: &Farm, allegiance: worker::Allegiance) -> Setting {
        let name = name_here(&self.name, &self.own_farm.name);
        let mut executor = self.executor.clone();
        executor.worker.clone_from(&name);
        executor.directory = abroad::folder(&self.executor.directory, &farm.name);
        self.setting(farm, name, executor, allegiance)
    }

    fn setting(
        &self,
        farm: &Farm,
        name: String,
        executor: executor::Settings,
        allegiance: worker::Allegiance,
    ) -> Setting {
        Setting {
            farm: farm.name.clone(),
            name,
            slots: self.slots,
            // Servers of other farms are elsewhere, whatever their numbers are.
            beside: self.beside.filter(|_| allegiance == worker::Allegiance::Own),
            servers: farm.servers.clone(),
            executor,
            kinds: self.kinds.clone(),
            store: self.store,
            allegiance,
            happenings: self.happenings.clone(),
        }
    }
}

/// What can wake a worker, beside what happens at its services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    Allegiance(Timer),
    Renew,
}

/// It is written down that the worker follows a call, or that it will not.
struct Ready {
    token: Token,
    written: io::Result<()>,
    prepared: Option<Prepared>,
}

/// The farm that a worker is called to, and the folder for it.
type Prepared = (Farm, Result<Opened, OpenError>);

/// The loop's state.
struct Running {
    trade: Trade,
    home: Service,
    /// The other farm that it works for, and those that have not recorded all results yet.
    abroad: BTreeMap<String, Service>,
    /// The one that it works for.
    away: Option<String>,
    allegiance: Allegiance,
    outbox: Outbox<Allegiance>,
    timers: Timers<Alarm>,
    /// What the allegiance was told last.
    home_leader: Option<ServerId>,
    is_idle: bool,
    /// Where the farm is that the worker is being called to.
    called_to: BTreeMap<ServerId, SocketAddr>,
    /// What is ready for the farm that it goes to; nothing if it serves that farm already.
    prepared: Option<Prepared>,
    /// The loan under which it should work for a farm, and cannot.
    stranded: Option<LoanId>,
    readied: mpsc::UnboundedReceiver<Ready>,
    ready: mpsc::UnboundedSender<Ready>,
    measured: mpsc::UnboundedReceiver<Usage>,
    weights: Weights,
    /// What was measured last, and how many tasks run, for all farms.
    usage: Usage,
    tasks: u32,
}

impl Running {
    fn new(
        trade: Trade,
        own: Opened,
        epoch: LoanId,
        (measured, weights): (mpsc::UnboundedReceiver<Usage>, Weights),
    ) -> Result<Self, WorkerError> {
        let home = Service::start(trade.at_home(), own)?;
        let (ready, readied) = mpsc::unbounded_channel();
        Ok(Self {
            trade,
            home,
            abroad: BTreeMap::new(),
            away: None,
            allegiance: Allegiance::new(epoch, Planted::NONE),
            outbox: Outbox::new(),
            timers: Timers::default(),
            home_leader: None,
            is_idle: true,
            called_to: BTreeMap::new(),
            prepared: None,
            stranded: None,
            readied,
            ready,
            measured,
            weights,
            usage: Usage::Unknown,
            tasks: 0,
        })
    }

    /// Farms that have not got all results yet are told of them.
    fn take_up_visited(&mut self, visited: Vec<Farm>) -> Result<(), WorkerError> {
        for farm in visited {
            let opened = Results::open(&abroad::folder(&self.trade.executor.directory, &farm.name))?;
            if !opened.1.is_empty() {
                let service = Service::start(self.trade.abroad(&farm, worker::Allegiance::Over), opened)?;
                self.abroad.insert(farm.name, service);
            }
        }
        Ok(())
    }

    async fn turn(mut self) -> Result<(), WorkerError> {
        self.timers.set(Alarm::Renew, Instant::now() + RENEW);
        loop {
            let due = self.services().filter_map(|service| service.due()).min();
            let due = due.into_iter().chain(self.timers.next()).min();
            let due = due.unwrap_or_else(|| Instant::now() + RENEW);
            let Self { home, abroad, readied, measured, .. } = &mut self;
            tokio::select! {
                biased;
                taken = take_next(home, abroad) => taken?,
                Some(ready) = readied.recv() => self.on_ready(ready)?,
                Some(usage) = measured.recv() => {
                    self.usage = usage;
                    self.tell_load();
                }
                () = sleep_until(due) => {}
            }
            self.services().try_for_each(Service::take_inputs)?;
            self.fire_timers();
            self.services().for_each(Service::look_for_room);
            self.attend();
            self.count_tasks();
            self.services().for_each(Service::flush);
            self.part();
            // The links have this thread, too.
            yield_now().await;
        }
    }

    fn services(&mut self) -> impl Iterator<Item = &mut Service> {
        iter::once(&mut self.home).chain(self.abroad.values_mut())
    }

    /// A load follows what runs at once; only what is measured comes now and then.
    fn count_tasks(&mut self) {
        let tasks: usize = self.services().map(|service| service.running_len()).sum();
        let tasks = u32::try_from(tasks).unwrap_or(u32::MAX);
        if std::mem::replace(&mut self.tasks, tasks) != tasks {
            self.tell_load();
        }
    }

    fn tell_load(&mut self) {
        let load = self.weights.load(self.usage, self.tasks);
        self.services().for_each(|service| service.measure(load));
    }

    fn fire_timers(&mut self) {
        let now = Instant::now();
        self.services().for_each(|service| service.fire_timers(now));
        while let Some((_, alarm)) = self.timers.take_due(now) {
            match alarm {
                Alarm::Allegiance(timer) => self.decide_now(Input::Timer(timer)),
                Alarm::Renew => {
                    self.services().for_each(|service| service.renew());
                    self.timers.set(Alarm::Renew, now + RENEW);
                }
            }
        }
    }

    /// Tells the allegiance what has changed, and what leaders say of loans.
    fn attend(&mut self) {
        let leader = self.home.leader();
        if leader != self.home_leader {
            self.home_leader = leader;
            self.decide_now(Input::Command(Command::Home(leader)));
        }
        for call in self.home.take_heard() {
            self.on_call(call);
        }
        for (farm, call) in self.take_heard_abroad() {
            let is_leader = |service: &Service| service.leader() == Some(call.from);
            if self.away.as_ref() == Some(&farm) && self.abroad.get(&farm).is_some_and(is_leader) {
                self.decide_now(Input::Command(Command::Abroad(call.word)));
            }
        }
        if let Some(loan) = self.stranded.take() {
            self.decide_now(Input::Command(Command::Abroad(Word::Return { loan, within_ms: 0 })));
        }
        self.note_idle();
    }

    fn take_heard_abroad(&mut self) -> Vec<(String, Call)> {
        let heard = |(farm, service): (&String, &mut Service)| {
            let farm = farm.clone();
            service.take_heard().into_iter().map(move |call| (farm.clone(), call))
        };
        self.abroad.iter_mut().flat_map(heard).collect()
    }

    /// A leader of its own farm says something.
    fn on_call(&mut self, call: Call) {
        let Call { from, word, servers } = call;
        if let Word::Redirect { farm, loan, .. } = &word {
            if let Some(reason) = self.objection_to(farm, &servers) {
                // Whoever has heard that does not call again.
                return self.cannot_go(farm.clone(), *loan, reason);
            }
            self.called_to = servers;
        }
        self.decide_now(Input::Message { from, message: word });
    }

    /// Why it cannot even try to work for a farm.
    fn objection_to(&self, farm: &str, servers: &BTreeMap<ServerId, SocketAddr>) -> Option<String> {
        let is_known = self.abroad.contains_key(farm);
        if servers.is_empty() {
            return Some("nobody has said where its servers are".to_owned());
        }
        let is_too_much = !is_known && self.abroad.len() >= FARMS_MAX;
        is_too_much.then(|| format!("{FARMS_MAX} farms have not recorded all its results yet"))
    }

    /// Whether something runs must be known before anything is decided.
    fn decide_now(&mut self, input: Input<Allegiance>) {
        self.note_idle();
        self.decide(input);
    }

    fn note_idle(&mut self) {
        let current = self.away.as_ref().map_or(Some(&self.home), |farm| self.abroad.get(farm));
        let is_idle = current.is_none_or(Service::is_idle);
        if std::mem::replace(&mut self.is_idle, is_idle) != is_idle {
            self.decide(Input::Command(Command::Idle(is_idle)));
        }
    }

    fn decide(&mut self, input: Input<Allegiance>) {
        let mut outbox = std::mem::take(&mut self.outbox);
        self.allegiance.step(clock::now(), input, &mut outbox);
        for output in outbox.drain() {
            self.carry_out(output);
        }
        self.outbox = outbox;
        let is_home = matches!(self.allegiance.place(), Place::Home | Place::Staying { .. });
        self.home.leave(!is_home);
    }

    fn carry_out(&mut self, output: Output<Allegiance>) {
        match output {
            Output::Send { to, message } => self.home.say_where(to, message),
            Output::Persist { token, records } => self.keep(token, &records),
            Output::Set { timer, delay } => {
                self.timers.set(Alarm::Allegiance(timer), Instant::now() + drawn(delay));
            }
            Output::Cancel(timer) => self.timers.cancel(Alarm::Allegiance(timer)),
            Output::Notify(Notice::Go { farm, loan }) => self.go(farm, loan),
            Output::Notify(Notice::Finish) => self.service_away().into_iter().for_each(|away| away.set_open(false)),
            Output::Notify(Notice::Stop) => self.service_away().into_iter().for_each(Service::abandon_all),
            Output::Notify(Notice::ComeHome) => self.come_home(),
            Output::Ignore(_) => {}
        }
    }

    fn service_away(&mut self) -> Option<&mut Service> {
        self.abroad.get_mut(self.away.as_ref()?)
    }

    /// Writes down that a call is followed, or that it will not be. Disks may be slow, so others do that, and open what the farm
    /// needs meanwhile.
    fn keep(&mut self, token: Token, records: &[Record]) {
        let epoch = records.iter().map(|record| record.epoch).max().unwrap_or_default();
        let directory = self.trade.executor.directory.clone();
        let farm = self.farm_to_open();
        let ready = self.ready.clone();
        tokio::task::spawn_blocking(move || {
            let written = abroad::keep_epoch(&directory, epoch);
            let prepared = farm.map(|farm| {
                let opened = abroad::open(&directory, &farm);
                (farm, opened)
            });
            // Nobody listens when the worker has ended.
            _ = ready.send(Ready { token, written, prepared });
        });
    }

    /// The farm that the worker is called to, unless it serves it already.
    fn farm_to_open(&mut self) -> Option<Farm> {
        let Place::Going { farm, .. } = self.allegiance.place() else { return None };
        let farm = Farm { name: farm.clone(), servers: std::mem::take(&mut self.called_to) };
        (!self.abroad.contains_key(&farm.name)).then_some(farm)
    }

    fn on_ready(&mut self, ready: Ready) -> Result<(), WorkerError> {
        let Ready { token, written, prepared } = ready;
        let dir = self.trade.executor.directory.clone();
        written.map_err(|source| WorkerError::Directory { dir, source })?;
        self.prepared = prepared;
        self.decide_now(Input::Persisted(token));
        // If it stays after all, what was opened for the farm must not be in its own way the next time.
        self.prepared = None;
        Ok(())
    }

    fn go(&mut self, farm: String, loan: LoanId) {
        self.tell(Happening::Lent(farm.clone(), loan));
        self.away = Some(farm.clone());
        let lent = worker::Allegiance::Lent(loan);
        if let Some(service) = self.abroad.get_mut(&farm) {
            service.set_open(true);
            return service.stand(lent);
        }
        let Some((place, opened)) = self.prepared.take() else { return };
        let setting = self.trade.abroad(&place, lent);
        let started = opened.map_err(WorkerError::Open).and_then(|opened| Service::start(setting, opened));
        match started {
            Ok(service) => {
                self.abroad.insert(farm, service);
                self.tell_load();
            }
            Err(error) => {
                self.cannot_go(farm, loan, error.to_string());
                self.stranded = Some(loan);
            }
        }
    }

    /// Its own leader should not lend it again soon.
    fn cannot_go(&mut self, farm: String, loan: LoanId, reason: String) {
        let leader = self.home.leader();
        leader.into_iter().for_each(|leader| self.home.say_where(leader, Word::CannotGo { loan }));
        self.tell(Happening::CannotGo(farm, reason));
    }

    fn come_home(&mut self) {
        if let Some(service) = self.service_away() {
            service.stand(worker::Allegiance::Over);
        }
        self.away = None;
        self.tell(Happening::Home(self.allegiance.epoch()));
    }

    /// Whoever has recorded everything is not needed any more.
    fn part(&mut self) {
        let place = self.allegiance.place();
        let is_called_to = |name: &String| matches!(place, Place::Going { farm, .. } if farm == name);
        let away = self.away.as_ref();
        self.abroad.retain(|name, service| away == Some(name) || is_called_to(name) || !service.is_settled());
    }

    fn tell(&self, happening: Happening) {
        // Nobody has to watch.
        _ = self.trade.happenings.send(happening);
    }
}

/// Waits for the next thing that happens at any of them, and takes it.
async fn take_next(home: &mut Service, abroad: &mut BTreeMap<String, Service>) -> Result<(), WorkerError> {
    poll_fn(|context| {
        let mut services = iter::once(&mut *home).chain(abroad.values_mut());
        services
            .find_map(|service| match service.poll(context) {
                Poll::Ready(taken) => Some(Poll::Ready(taken)),
                Poll::Pending => None,
            })
            .unwrap_or(Poll::Pending)
    })
    .await
}
