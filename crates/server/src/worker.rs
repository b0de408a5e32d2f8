//! A worker: its sessions with farms, and its placement, which says which of them it works for.
//!
//! A worker serves its own farm and, while it is lent, another one in the same way. It keeps its links to its own farm
//! meanwhile, and those to the other one until that has recorded all results. The owner tells what arrives, and at the end of
//! its turn ([`Command::Turn`]) gets what the worker has to say to servers.
//!
//! Here are the sessions and the clock; `worker/placement.rs` has going to another farm and coming home, `worker/session.rs`
//! what happens with one farm.

mod placement;
mod session;
mod words;

use std::collections::BTreeMap;

use primus_core::farm::worker::{self, Relation, Worker as Work};
use primus_core::ledger::LoanId;
use primus_core::ledger::loans::name_here;
use primus_core::load::{Usage, Weights};
use primus_core::loan::Placement;
use primus_core::machine::{Delay, Input, Machine, Moment, Never, Outbox};
use primus_core::planted::Planted;
use primus_core::{FarmId, ServerId};

use self::placement::Move;
use self::session::Session;
pub use self::words::{Command, FarmAddress, Happening, Message, Notice, Peer, Record, Servers, Timer, Write};

/// How often a worker shows its leaders that it is alive.
const BEAT: Delay = Delay::exactly_ms(500);
/// How often whatever runs its tasks is told that the worker is well.
const RENEW: Delay = Delay::exactly_ms(100);
/// A pause of its own after which a worker does not know what others think of it. Leaders wait a little longer.
const PAUSE_US: u64 = 1_000_000;

/// What a worker goes by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rules {
    /// Its own farm.
    pub farm: String,
    /// Its name, which no other worker of that farm has.
    pub name: String,
    /// How much it can run at once.
    pub slots: u16,
    /// The server on the same host, in whose load it counts what runs here.
    pub beside: Option<ServerId>,
    /// How much each part of a load counts.
    pub weights: Weights,
    /// A known bug, to see whether the laboratory finds it.
    pub planted: Planted,
}

/// One worker. A plain value: it can be copied, to remember it, and compared, to recognise it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Worker {
    rules: Rules,
    now: Moment,
    /// When it was last awake, once it has begun.
    awake: Option<Moment>,
    /// With its own farm, with another one that it works for, and with those that have not recorded all results yet.
    sessions: BTreeMap<FarmId, Session>,
    last_farm: FarmId,
    placement: Placement,
    outbox: Outbox<Placement>,
    /// The other farm that it works for.
    away: Option<FarmId>,
    /// What its placement was told last.
    home_leader: Option<ServerId>,
    is_idle: bool,
    /// Where the farm is that the worker is being called to.
    called_to: Servers,
    /// What must be on disk before its placement goes on.
    moving: Option<Move>,
    /// The loan under which it should work for a farm, and cannot.
    stranded: Option<LoanId>,
    /// True if it takes nothing new from any farm.
    is_draining: bool,
    /// What was measured last, and how many tasks run, for all farms.
    usage: Usage,
    tasks: u32,
}

impl Worker {
    /// A worker that has just started, with the newest call that it has followed and what it has kept for its own farm.
    #[must_use]
    pub fn new(rules: Rules, epoch: LoanId, records: impl IntoIterator<Item = worker::Record>) -> Self {
        let work = Work::new(rules.name.clone(), rules.slots, BEAT, records).beside(rules.beside);
        let home = Session::new(FarmId::OWN, rules.farm.clone(), work);
        Self {
            placement: Placement::new(epoch, rules.planted),
            rules,
            now: Moment::START,
            awake: None,
            sessions: BTreeMap::from([(FarmId::OWN, home)]),
            last_farm: FarmId::OWN,
            outbox: Outbox::new(),
            away: None,
            home_leader: None,
            is_idle: true,
            called_to: Servers::new(),
            moving: None,
            stranded: None,
            is_draining: false,
            usage: Usage::Unknown,
            tasks: 0,
        }
    }

    /// Where it is, to look at.
    #[must_use]
    pub const fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The other farm that it works for, or goes home from.
    #[must_use]
    pub const fn away(&self) -> Option<FarmId> {
        self.away
    }

    /// What it does for a farm, to look at.
    #[must_use]
    pub fn work(&self, farm: FarmId) -> Option<&Work> {
        self.sessions.get(&farm).map(Session::work)
    }

    /// The farms that it has a session with, and what each is called: its own first.
    pub fn farms(&self) -> impl Iterator<Item = (FarmId, &str)> + '_ {
        self.sessions.iter().map(|(farm, session)| (*farm, session.name()))
    }

    /// True once a worker that takes nothing new has ended everything, and all farms have recorded the results.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let is_over = |session: &Session| session.is_settled() && session.work().unfinished().next().is_none();
        self.is_draining && self.sessions.values().all(is_over)
    }

    fn home(&mut self) -> &mut Session {
        self.sessions.get_mut(&FarmId::OWN).expect("a worker always has a session with its own farm")
    }

    fn on_command(&mut self, command: Command, out: &mut Outbox<Self>) {
        match command {
            Command::Start(visited) => self.on_start(visited, out),
            Command::Ended(farm, report) => self.tell(farm, worker::Command::Ended(report), out),
            Command::Abandoned(farm, held) => self.tell(farm, worker::Command::Abandoned(held), out),
            Command::Room(farm, has_room) => {
                let now = self.now;
                self.session(farm, out, |session, out| session.on_disk_room(now, has_room, out));
            }
            Command::Measured(usage) => {
                self.usage = usage;
                self.tell_load(out);
            }
            Command::Opened(name, opened) => self.on_opened(&name, opened, out),
            Command::CannotBegin(farm, reason) => self.on_cannot_begin(farm, reason, out),
            Command::Refused(Peer { farm, server }, reason) => {
                self.session(farm, out, |session, out| session.on_refused(server, reason, out));
            }
            Command::Drain => self.drain(out),
            Command::Abandon => {
                self.drain(out);
                let now = self.now;
                self.sessions.values_mut().for_each(|session| session.abandon_all(now, out));
            }
            Command::Turn => self.end_turn(out),
        }
    }

    /// Farms that have not got all results yet are told of them.
    fn on_start(&mut self, visited: Vec<(FarmAddress, Vec<worker::Record>)>, out: &mut Outbox<Self>) {
        out.set(Timer::Renew, RENEW);
        for (address, records) in visited {
            if !records.is_empty() {
                let farm = self.next_farm();
                self.begin(farm, address, records, Relation::Over, out);
            }
        }
    }

    fn drain(&mut self, out: &mut Outbox<Self>) {
        if !std::mem::replace(&mut self.is_draining, true) {
            let now = self.now;
            self.sessions.values_mut().for_each(|session| session.tell(now, worker::Command::Open(false), out));
        }
    }

    const fn next_farm(&mut self) -> FarmId {
        self.last_farm = FarmId(self.last_farm.0 + 1);
        self.last_farm
    }

    /// Begins to serve another farm, which knows the worker under another name.
    fn begin(
        &mut self,
        farm: FarmId,
        address: FarmAddress,
        records: Vec<worker::Record>,
        relation: Relation,
        out: &mut Outbox<Self>,
    ) {
        let name = name_here(&self.rules.name, &self.rules.farm);
        // Servers of other farms are elsewhere, whatever their numbers are: it stands beside none of them.
        let work = Work::new(name.clone(), self.rules.slots, BEAT, records).with_relation(relation);
        self.sessions.insert(farm, Session::new(farm, address.name.clone(), work));
        out.notify(Notice::Begin { farm, address, name });
    }

    /// What this turn came to leaves in one go.
    fn end_turn(&mut self, out: &mut Outbox<Self>) {
        self.attend(out);
        self.count_tasks(out);
        self.sessions.values_mut().for_each(|session| session.flush(out));
        self.part(out);
    }

    /// A load follows what runs at once; only what is measured comes now and then.
    fn count_tasks(&mut self, out: &mut Outbox<Self>) {
        let tasks: usize = self.sessions.values().map(|session| session.work().running_len()).sum();
        let tasks = u32::try_from(tasks).unwrap_or(u32::MAX);
        if std::mem::replace(&mut self.tasks, tasks) != tasks {
            self.tell_load(out);
        }
    }

    /// Every farm hears what runs for all of them.
    fn tell_load(&mut self, out: &mut Outbox<Self>) {
        let load = self.rules.weights.load(self.usage, self.tasks);
        for session in self.sessions.values_mut() {
            session.tell(self.now, worker::Command::Load(load), out);
        }
    }

    /// A worker that stood still may have been given up: it begins with nothing before a leader has welcomed it again.
    fn look_at_clock(&mut self, out: &mut Outbox<Self>) {
        let awake = self.awake.replace(self.now);
        if awake.is_some_and(|awake| self.now.0.saturating_sub(awake.0) > PAUSE_US) {
            out.notify(Notice::DropLinks);
            self.sessions.values_mut().for_each(|session| session.on_pause(self.now, out));
        }
    }

    fn on_timer(&mut self, timer: Timer, out: &mut Outbox<Self>) {
        match timer {
            Timer::Work(farm, timer) => self.step_session(farm, Input::Timer(timer), out),
            Timer::Placement(timer) => self.decide(Input::Timer(timer), out),
            Timer::Renew => {
                out.notify(Notice::Renew);
                out.set(Timer::Renew, RENEW);
            }
        }
    }

    fn on_persisted(&mut self, write: Write, out: &mut Outbox<Self>) {
        match write {
            Write::Epoch(token) => self.on_epoch_written(token, out),
            Write::Results(farm, token) => self.step_session(farm, Input::Persisted(token), out),
        }
    }

    fn tell(&mut self, farm: FarmId, command: worker::Command, out: &mut Outbox<Self>) {
        self.step_session(farm, Input::Command(command), out);
    }

    fn step_session(&mut self, farm: FarmId, input: Input<Work>, out: &mut Outbox<Self>) {
        let now = self.now;
        self.session(farm, out, |session, out| session.step(now, input, out));
    }

    /// What comes of a farm that the worker has parted with means nothing any more.
    fn session(&mut self, farm: FarmId, out: &mut Outbox<Self>, act: impl FnOnce(&mut Session, &mut Outbox<Self>)) {
        match self.sessions.get_mut(&farm) {
            Some(session) => act(session, out),
            None => out.ignore("what comes of a farm that it has parted with"),
        }
    }
}

impl Machine for Worker {
    type Peer = Peer;
    type Message = Message;
    type Command = Command;
    type Timer = Timer;
    type Record = Record;
    type Token = Write;
    type Barrier = Never;
    type Notice = Notice;

    fn step(&mut self, now: Moment, input: Input<Self>, out: &mut Outbox<Self>) {
        self.now = now;
        self.look_at_clock(out);
        match input {
            Input::Message { from: Peer { farm, server }, message } => {
                self.session(farm, out, |session, out| session.on_message(now, (server, message), out));
            }
            Input::Timer(timer) => self.on_timer(timer, out),
            Input::Command(command) => self.on_command(command, out),
            Input::LinkUp(Peer { farm, server }) => {
                self.session(farm, out, |session, out| session.on_link_up(now, server, out));
            }
            Input::LinkDown(Peer { farm, server }) => {
                self.session(farm, out, |session, out| session.on_link_down(now, server, out));
            }
            Input::Persisted(write) => self.on_persisted(write, out),
        }
    }
}
