//! Tells a worker's machine what arrives, and carries out what it wants.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use primus_core::FarmId;
use primus_core::ledger::LoanId;
use primus_core::load::Usage;
use primus_core::machine::{Input, Machine, Outbox, Output, Token};
use primus_identity::refusal::Refusal;
use primus_server::worker::{Command, FarmAddress, Happening, Message, Notice, Peer, Record, Timer, Worker, Write};
use primus_wire::work::{self, FromWorker, ToWorker};
use tokio::sync::{broadcast, mpsc};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use super::away_files::Opened;
use super::handle::Order;
use super::links::LinkEvent;
use super::session::{Arrival, Session, Setting};
use super::{WorkerError, away_files};
use crate::clock;
use crate::executor::Ended;
use crate::results::{OpenError, Results};
use crate::timers::{Timers, drawn};

/// How many inputs of a farm are taken before timers are looked at, at most.
const INPUTS_MAX: usize = 1024;
/// Of how many other farms it knows who names their nodes.
const AUTHORITIES_MAX: usize = 64;
/// How long it sleeps when no timer runs.
const SLEEP: Duration = Duration::from_millis(100);
/// How long a worker that is to stop waits until its results are recorded, and until everything is closed.
const STOP_TIME: Duration = Duration::from_secs(1);
const CLOSE_TIME: Duration = Duration::from_secs(10);
/// How often the links get the thread before they are closed.
const FAREWELLS: usize = 16;

/// What a slow disk has done for the worker.
pub(super) enum Prepared {
    /// The epoch is written.
    Written(Token, io::Result<()>),
    /// The folder of the farm of this name is open.
    Opened(String, Result<Opened, OpenError>),
}

/// A worker's machine, and everything that carries out what it wants.
pub(super) struct Driver {
    worker: Worker,
    outbox: Outbox<Worker>,
    started: Instant,
    timers: Timers<Timer>,
    setting: Setting,
    sessions: BTreeMap<FarmId, Session>,
    /// Results of farms that have no session yet, by their names.
    opened: BTreeMap<String, Results>,
    /// Farms that have a session with the machine, and cannot have one here.
    failed: Vec<(FarmId, WorkerError)>,
    /// What was said to servers in this turn.
    said: BTreeMap<Peer, BytesMut>,
    prepare: mpsc::UnboundedSender<Prepared>,
    happenings: broadcast::Sender<Happening>,
    /// Who names the nodes of other farms, as its own farm says.
    authorities: BTreeMap<String, Bytes>,
    /// Why no server of its own farm lets it in, nor can.
    pub(super) barred: Option<Refusal>,
    /// When a worker that is to stop ends, whatever it still has to tell.
    stop_by: Option<Instant>,
}

/// What arrives.
impl Driver {
    pub(super) fn new(
        worker: Worker,
        setting: Setting,
        home: Session,
        (prepare, happenings): (mpsc::UnboundedSender<Prepared>, broadcast::Sender<Happening>),
    ) -> Self {
        Self {
            worker,
            outbox: Outbox::new(),
            started: Instant::now(),
            timers: Timers::default(),
            setting,
            sessions: BTreeMap::from([(FarmId::OWN, home)]),
            opened: BTreeMap::new(),
            failed: Vec::new(),
            said: BTreeMap::new(),
            prepare,
            happenings,
            authorities: BTreeMap::new(),
            barred: None,
            stop_by: None,
        }
    }

    /// Takes up what was kept for farms that the worker has been with.
    pub(super) fn start(&mut self, visited: Vec<FarmAddress>) -> Result<(), WorkerError> {
        let mut kept = Vec::new();
        for farm in visited {
            let folder = away_files::folder(&self.setting.executor.directory, &farm.name);
            let (results, records) = Results::open(&folder)?;
            self.opened.insert(farm.name.clone(), results);
            kept.push((farm, records));
        }
        self.command(Command::Start(kept));
        // Those that have recorded everything are not served.
        self.opened.clear();
        self.failed.pop().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// When the next timer runs out.
    pub(super) fn due(&self) -> Instant {
        self.timers.next().unwrap_or_else(|| Instant::now() + SLEEP)
    }

    /// Waits for the next thing that happens at any farm.
    pub(super) async fn next(&mut self) -> Result<(FarmId, Arrival), WorkerError> {
        poll_fn(|context| {
            for (farm, session) in &mut self.sessions {
                if let Poll::Ready(arrival) = session.poll(context) {
                    return Poll::Ready(arrival.map(|arrival| (*farm, arrival)));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Takes what else has arrived, but not for ever.
    pub(super) fn take_more(&mut self) -> Result<(), WorkerError> {
        let farms: Vec<FarmId> = self.sessions.keys().copied().collect();
        for farm in farms {
            for _ in 0..INPUTS_MAX {
                let Some(session) = self.sessions.get_mut(&farm) else { break };
                let Some(arrival) = session.try_next()? else { break };
                self.take(farm, arrival);
            }
        }
        Ok(())
    }

    pub(super) fn take(&mut self, farm: FarmId, arrival: Arrival) {
        match arrival {
            Arrival::Synced(token) => self.step(Input::Persisted(Write::Results(farm, token))),
            Arrival::Ended(Ended::Finished(report)) => self.command(Command::Ended(farm, report)),
            Arrival::Ended(Ended::Abandoned(held)) => self.command(Command::Abandoned(farm, held)),
            Arrival::Link(event) => self.on_link(farm, event),
        }
    }

    fn on_link(&mut self, farm: FarmId, event: LinkEvent) {
        let Some(session) = self.sessions.get_mut(&farm) else { return };
        match event {
            LinkEvent::Up(server, outgoing) => {
                session.links.opened(server, outgoing);
                self.step(Input::LinkUp(Peer { farm, server }));
            }
            LinkEvent::WorkerMessage(server, ToWorker::Output(number, part)) => {
                session.read_output(server, number, part);
            }
            LinkEvent::WorkerMessage(_, ToWorker::Authority(name, der)) => {
                if farm == FarmId::OWN
                    && (self.authorities.len() < AUTHORITIES_MAX || self.authorities.contains_key(&name))
                {
                    self.authorities.insert(name, der);
                }
            }
            LinkEvent::WorkerMessage(server, word) => self.on_word(Peer { farm, server }, word),
            LinkEvent::Down(server) => {
                session.links.closed(server);
                self.step(Input::LinkDown(Peer { farm, server }));
            }
            LinkEvent::Refused(server, reason) => self.command(Command::Refused(Peer { farm, server }, reason)),
            LinkEvent::Unresolved(server, sentence) => {
                _ = self.happenings.send(Happening::Unresolved(server, sentence));
            }
            LinkEvent::Barred(server, refusal) => {
                if farm == FarmId::OWN && session.links.is_barred_everywhere(server) {
                    self.barred = Some(refusal.clone());
                }
                self.command(Command::Refused(Peer { farm, server }, refusal.to_string()));
            }
        }
    }

    fn on_word(&mut self, from: Peer, word: ToWorker) {
        let message = match word {
            ToWorker::Farm(message) => Message::Work(message),
            ToWorker::Leads(term) => Message::Leads(term),
            ToWorker::Follows => Message::Follows,
            ToWorker::Loan(word, servers) => Message::Call(word, servers),
            // They are not for the machine.
            ToWorker::Output(..) | ToWorker::Authority(..) => return,
        };
        self.step(Input::Message { from, message });
    }

    pub(super) fn on_measured(&mut self, usage: Usage) {
        self.command(Command::Measured(usage));
    }

    pub(super) fn on_prepared(&mut self, prepared: Prepared) -> Result<(), WorkerError> {
        match prepared {
            Prepared::Written(token, written) => {
                let dir = self.setting.executor.directory.clone();
                written.map_err(|source| WorkerError::Directory { dir, source })?;
                self.step(Input::Persisted(Write::Epoch(token)));
            }
            Prepared::Opened(farm, opened) => {
                let records = opened.map_err(|error| error.to_string()).map(|(results, records)| {
                    self.opened.insert(farm.clone(), results);
                    records
                });
                self.command(Command::Opened(farm, records));
            }
        }
        while let Some((farm, error)) = self.failed.pop() {
            self.command(Command::CannotBegin(farm, error.to_string()));
        }
        Ok(())
    }

    pub(super) fn fire_timers(&mut self) {
        let now = Instant::now();
        while let Some((_, timer)) = self.timers.take_due(now) {
            self.step(Input::Timer(timer));
        }
    }

    /// What this turn came to leaves in one go.
    pub(super) fn end_turn(&mut self) {
        let rooms: Vec<(FarmId, bool)> =
            self.sessions.iter().map(|(farm, session)| (*farm, session.has_room())).collect();
        rooms.into_iter().for_each(|(farm, has_room)| self.command(Command::Room(farm, has_room)));
        self.command(Command::Turn);
        while let Some((Peer { farm, server }, buffer)) = self.said.pop_first() {
            if let Some(session) = self.sessions.get_mut(&farm) {
                session.send(server, buffer.freeze());
            }
        }
    }
}

/// How it ends.
impl Driver {
    /// The owner wants it to end, in one way or the other.
    pub(super) fn on_order(&mut self, order: Order) {
        match order {
            Order::Work => {}
            Order::Drain => self.command(Command::Drain),
            Order::Stop => {
                self.command(Command::Abandon);
                self.stop_by = Some(Instant::now() + STOP_TIME);
            }
        }
    }

    /// True once there is nothing left to do; a worker that is to stop does not wait long for leaders that record its results.
    pub(super) fn is_over(&self) -> bool {
        self.worker.is_drained() || self.stop_by.is_some_and(|by| by <= Instant::now())
    }

    /// Closes everything. That takes a moment at most, unless what runs cannot be killed.
    pub(super) async fn close(self) {
        // What was said last leaves by tasks of its own.
        for _ in 0..FAREWELLS {
            yield_now().await;
        }
        let closed = async {
            for session in self.sessions.into_values() {
                session.close().await;
            }
        };
        _ = timeout(CLOSE_TIME, closed).await;
    }
}

/// What the machine wants.
impl Driver {
    fn command(&mut self, command: Command) {
        self.step(Input::Command(command));
    }

    fn step(&mut self, input: Input<Worker>) {
        let mut outbox = std::mem::take(&mut self.outbox);
        self.worker.step(clock::since(self.started), input, &mut outbox);
        for output in outbox.drain() {
            self.carry_out(output);
        }
        self.outbox = outbox;
    }

    fn carry_out(&mut self, output: Output<Worker>) {
        match output {
            Output::Send { to, message } => self.say(to, message),
            Output::Persist { token: Write::Epoch(token), records } => self.write_epoch(token, &records),
            Output::Persist { token: Write::Results(farm, token), records } => {
                self.write_results(farm, token, records);
            }
            Output::Set { timer, delay } => self.timers.set(timer, Instant::now() + drawn(delay)),
            Output::Cancel(timer) => self.timers.cancel(timer),
            Output::Notify(notice) => self.on_notice(notice),
            Output::Ignore(_) => {}
        }
    }

    fn say(&mut self, to: Peer, message: Message) {
        let word = match message {
            Message::Work(message) => FromWorker::Farm(message),
            Message::Placement(word) => FromWorker::Loan(word),
            // Only servers say that.
            Message::Leads(_) | Message::Follows | Message::Call(..) => return,
        };
        work::put(self.said.entry(to).or_default(), &word);
    }

    fn write_results(&self, farm: FarmId, token: Token, records: Vec<Record>) {
        let of_result = |record| match record {
            Record::Result(record) => Some(record),
            Record::Epoch(_) => None,
        };
        if let Some(session) = self.sessions.get(&farm) {
            session.write(token, records.into_iter().filter_map(of_result).collect());
        }
    }

    /// Disks may be slow, so others write.
    fn write_epoch(&self, token: Token, records: &[Record]) {
        let of_epoch = |record: &Record| match record {
            Record::Epoch(epoch) => Some(*epoch),
            Record::Result(_) => None,
        };
        let epoch: LoanId = records.iter().filter_map(of_epoch).max().unwrap_or_default();
        let (directory, prepare) = (self.setting.executor.directory.clone(), self.prepare.clone());
        tokio::task::spawn_blocking(move || {
            // Nobody listens when the worker has ended.
            _ = prepare.send(Prepared::Written(token, away_files::keep_epoch(&directory, epoch)));
        });
    }

    fn open(&self, farm: FarmAddress) {
        let authority = self.authorities.get(&farm.name).cloned();
        let (directory, prepare) = (self.setting.executor.directory.clone(), self.prepare.clone());
        tokio::task::spawn_blocking(move || {
            let opened = away_files::open(&directory, &farm, authority.as_deref());
            _ = prepare.send(Prepared::Opened(farm.name, opened));
        });
    }

    fn on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Start(farm, assignment) => {
                if let Some(session) = self.sessions.get(&farm) {
                    session.executor.run(assignment);
                }
            }
            Notice::Kill(farm, held) => {
                self.sessions.get(&farm).into_iter().for_each(|session| session.executor.kill(held));
            }
            Notice::Open(farm) => self.open(farm),
            Notice::Close(farm) => _ = self.opened.remove(&farm),
            Notice::Begin { farm, address, name } => self.begin(farm, &address, &name),
            Notice::Part(farm) => _ = self.sessions.remove(&farm),
            Notice::DropLinks => self.sessions.values_mut().for_each(|session| session.links.drop_all()),
            Notice::Renew => self.sessions.values().for_each(|session| session.executor.renew()),
            // Nobody has to watch.
            Notice::Happened(happening) => _ = self.happenings.send(happening),
        }
    }

    fn begin(&mut self, farm: FarmId, address: &FarmAddress, name: &str) {
        let Some(results) = self.opened.remove(&address.name) else { return };
        match self.setting.abroad(address, name, results) {
            Ok(session) => _ = self.sessions.insert(farm, session),
            Err(error) => self.failed.push((farm, error)),
        }
    }
}
