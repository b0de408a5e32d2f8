//! A worker's own side: what it has, what it runs, and which results it keeps until they are recorded.
//!
//! It obeys the leader of the newest term that it has heard of. Leaders come and go; what runs goes on meanwhile, but without
//! a leader nothing new is begun, because a new one may give it to somebody else. A result is on the worker's disk before it
//! is told to anybody, and stays there until a leader says that it is recorded: so it survives the worker, too.

mod results;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use self::results::Results;
use super::{Assignment, Hello, Message};
use crate::ledger::{Held, LoanId, Report};
use crate::load::Load;
use crate::machine::{Delay, Input, Machine, Moment, Never, Outbox, Token};
use crate::{ServerId, Term};

/// One worker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Worker {
    name: String,
    slots: u32,
    relation: Relation,
    beat: Delay,
    load: Load,
    /// The server that it stands beside, on the same host.
    beside: Option<ServerId>,
    /// How many tasks others were last told of, and whether they will hear of another number soon.
    told: u32,
    is_telling: bool,
    /// The leader that is linked and has welcomed this worker, or is about to.
    leader: Option<ServerId>,
    /// The newest term heard of.
    term: Term,
    /// Has that leader welcomed it?
    is_welcome: bool,
    waiting: VecDeque<Assignment>,
    /// What runs, with the slots that it takes.
    running: BTreeMap<Held, u32>,
    busy: u32,
    /// Is there room for results on the disk?
    has_room: bool,
    /// Does it take anything new?
    is_open: bool,
    results: Results,
}

/// How a worker stands to the farm whose leader it speaks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Relation {
    /// It is one of its own.
    Own,
    /// It is lent to it.
    Lent(LoanId),
    /// It has worked for it, and has results to tell at most.
    Over,
}

/// What a worker keeps on disk.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Record {
    /// A result that nobody may lose.
    Ended(Report),
    /// It is recorded; this copy is not needed any more.
    Forgotten(Held),
}

/// What its owner tells a worker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// This server leads, and there is a new link to it.
    Serve(ServerId),
    /// An attempt has ended.
    Ended(Report),
    /// An attempt was ended before its time, or before it began, through no fault of its own, and has no result.
    Abandoned(Held),
    /// The host's load has been measured, or what runs here has changed, for whichever farm.
    Load(Load),
    /// There is room for results on the disk, or not: then nothing is begun. A worker that is with another farm says so in the same
    /// way.
    Room(bool),
    /// Take new work, or none. What has not begun then goes back at once, except what must not start twice: that would be lost,
    /// so it is begun, too.
    Open(bool),
    /// It stands otherwise to this farm from now on.
    Relation(Relation),
}

/// What a worker tells its owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Notice {
    /// Begin with this.
    Start(Assignment),
    /// End this at once; its result is not wanted.
    Kill(Held),
}

/// How many results one message tells of: each has up to some eight thousand bytes, and a leader that does not know a worker
/// yet reads no word of it that is longer than a mebibyte.
pub const REPORTS_MAX: usize = 100;

/// How long a number of running tasks must have changed before others hear of it: they need not know of those that last a
/// moment, and never hear of more than a hundred changes a second.
const SETTLED: Delay = Delay::exactly_ms(10);

/// Its timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// Time to show that one is alive.
    Beat,
    /// The disk shall have what was gathered.
    Gather,
    /// Others shall hear how many tasks run.
    Tell,
}

impl Worker {
    /// A worker that has just started, with what it had on disk.
    #[must_use]
    pub fn new(name: String, slots: u16, beat: Delay, records: impl IntoIterator<Item = Record>) -> Self {
        Self {
            name,
            slots: u32::from(slots),
            relation: Relation::Own,
            beat,
            load: Load::IDLE,
            beside: None,
            told: 0,
            is_telling: false,
            leader: None,
            term: Term(0),
            is_welcome: false,
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            busy: 0,
            has_room: true,
            is_open: true,
            results: Results::new(records),
        }
    }

    /// The same worker as another farm sees it.
    #[must_use]
    pub fn with_relation(self, relation: Relation) -> Self {
        Self { relation, ..self }
    }

    /// The same worker on the host of this server.
    #[must_use]
    pub fn beside(self, server: Option<ServerId>) -> Self {
        Self { beside: server, ..self }
    }

    /// How many tasks run here for this farm.
    #[must_use]
    pub fn running_len(&self) -> usize {
        self.running.len()
    }

    /// Does nothing run here, nor wait for anything but room? What must not start twice is not left behind for want of it.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.iter().all(|waiting| !self.has_room && !waiting.is_once)
    }

    /// What runs now.
    pub fn running(&self) -> impl Iterator<Item = Held> + '_ {
        self.running.keys().copied()
    }

    /// What it has not come to an end with: what runs, and what waits.
    pub fn unfinished(&self) -> impl Iterator<Item = Held> + '_ {
        self.running().chain(self.waiting.iter().map(|assignment| assignment.held))
    }

    /// Everything that it has or keeps: what waits, what runs, and results that are not known to be recorded.
    pub fn has(&self) -> impl Iterator<Item = Held> + '_ {
        self.has_begun().chain(self.waiting.iter().map(|assignment| assignment.held))
    }

    /// What it has begun with and somebody might still want: what runs, and results that are not known to be recorded.
    pub fn has_begun(&self) -> impl Iterator<Item = Held> + '_ {
        self.running.keys().copied().chain(self.results.all())
    }

    /// The leader that has welcomed it, if one has, and its term.
    #[must_use]
    pub fn serves(&self) -> Option<(ServerId, Term)> {
        self.leader.filter(|_| self.is_welcome).map(|leader| (leader, self.term))
    }

    /// How many results are not known to be recorded.
    #[must_use]
    pub fn unrecorded(&self) -> usize {
        self.results.all().count()
    }

    fn on_command(&mut self, command: Command, out: &mut Outbox<Self>) {
        match command {
            Command::Serve(leader) => self.introduce(leader, out),
            Command::Ended(report) => self.on_ended(report, out),
            Command::Abandoned(held) => self.on_abandoned(held, out),
            Command::Load(load) => self.on_load(load, out),
            Command::Room(has_room) => self.on_room(has_room, out),
            Command::Open(is_open) => self.on_open(is_open, out),
            Command::Relation(relation) => {
                self.relation = relation;
                if relation == Relation::Over {
                    // Its leader will miss it in the hello.
                    self.waiting.clear();
                }
                self.leader.into_iter().for_each(|leader| self.introduce(leader, out));
            }
        }
    }

    fn on_load(&mut self, load: Load, out: &mut Outbox<Self>) {
        self.load = load;
        if load.tasks != self.told && !core::mem::replace(&mut self.is_telling, true) {
            out.set(Timer::Tell, SETTLED);
        }
    }

    /// The leader hears it because it gives tasks by score, the server beside because they count in its own load. The latter
    /// hears it again and again, like a sign of life: it forgets what is not said any more.
    fn tell(&mut self, out: &mut Outbox<Self>) {
        self.is_telling = false;
        let is_news = core::mem::replace(&mut self.told, self.load.tasks) != self.load.tasks;
        if let Some(leader) = self.leader.filter(|_| is_news) {
            out.send(leader, Message::Beat(self.load));
        }
        if is_news || self.told > 0 {
            self.tell_beside(out);
        }
    }

    fn tell_beside(&self, out: &mut Outbox<Self>) {
        let Some(server) = self.beside else { return };
        out.send(server, Message::Beside(self.told));
        if self.told > 0 && !self.is_telling {
            out.set(Timer::Tell, self.beat);
        }
    }

    fn introduce(&mut self, leader: ServerId, out: &mut Outbox<Self>) {
        self.leader = Some(leader);
        self.is_welcome = false;
        let waiting = self.waiting.iter().map(|assignment| assignment.held);
        let mut reports = self.results.written().cloned();
        let ended: Vec<Report> = reports.by_ref().take(REPORTS_MAX).collect();
        // What does not fit into the hello is told right after it, and until then counts as what still runs.
        let more: Vec<Report> = reports.collect();
        let later = more.iter().map(Report::held);
        let (slots, loan) = match self.relation {
            Relation::Own => (self.slots, None),
            Relation::Lent(loan) => (self.slots, Some(loan)),
            Relation::Over => (0, None),
        };
        let hello = Hello {
            name: self.name.clone(),
            term: self.term,
            slots: u16::try_from(slots).unwrap_or(u16::MAX),
            loan,
            held: self.running.keys().copied().chain(waiting).chain(self.results.untold()).chain(later).collect(),
            ended,
        };
        out.send(leader, Message::Hello(hello));
        more.chunks(REPORTS_MAX).for_each(|reports| out.send(leader, Message::Ended(reports.to_vec())));
        if !self.takes_more() {
            out.send(leader, Message::Room(false));
        }
        out.set(Timer::Beat, self.beat);
    }

    const fn takes_more(&self) -> bool {
        self.has_room && self.is_open
    }

    /// Whoever leads gives what waits here to others, as far as that is allowed.
    fn on_room(&mut self, has_room: bool, out: &mut Outbox<Self>) {
        self.has_room = has_room;
        self.tell_room(out);
    }

    /// Its leader hears that first, or it would give what comes back to this worker again.
    fn on_open(&mut self, is_open: bool, out: &mut Outbox<Self>) {
        self.is_open = is_open;
        self.tell_room(out);
        self.hand_back(out);
    }

    fn tell_room(&self, out: &mut Outbox<Self>) {
        if let Some(leader) = self.leader {
            out.send(leader, Message::Room(self.takes_more()));
        }
    }

    /// Whoever takes nothing new gives back what it has not begun with. A leader that is not told now will miss it in the next
    /// hello.
    fn hand_back(&mut self, out: &mut Outbox<Self>) {
        if self.is_open {
            return;
        }
        let (stays, back): (VecDeque<_>, VecDeque<_>) =
            core::mem::take(&mut self.waiting).into_iter().partition(|waiting| waiting.is_once);
        self.waiting = stays;
        if let Some(leader) = self.leader.filter(|_| !back.is_empty()) {
            out.send(leader, Message::GaveBack(back.iter().map(|assignment| assignment.held).collect()));
        }
    }

    /// Its room is free at once; that it has ended is told when it is on disk.
    fn on_ended(&mut self, report: Report, out: &mut Outbox<Self>) {
        let held = report.held();
        let Some(cpus) = self.running.remove(&held) else { return out.ignore("the end of what does not run") };
        self.busy -= cpus;
        self.results.gather(report);
    }

    /// Somebody else may have it. A leader that is not told now will miss it in the next hello.
    fn on_abandoned(&mut self, held: Held, out: &mut Outbox<Self>) {
        let waited = self.waiting.len();
        self.waiting.retain(|waiting| waiting.held != held);
        match self.running.remove(&held) {
            Some(cpus) => self.busy -= cpus,
            None if self.waiting.len() < waited => {}
            None => return out.ignore("the end of what does not run"),
        }
        if let Some(leader) = self.leader {
            out.send(leader, Message::GaveBack(alloc::vec![held]));
        }
    }

    /// The leader is told, or the next one in its hello.
    fn on_persisted(&mut self, token: Token, out: &mut Outbox<Self>) {
        let mut reports = self.results.on_persisted(token);
        let Some(leader) = self.leader else { return };
        while !reports.is_empty() {
            let more = reports.split_off(reports.len().min(REPORTS_MAX));
            out.send(leader, Message::Ended(core::mem::replace(&mut reports, more)));
        }
    }

    fn on_message(&mut self, from: ServerId, message: Message, out: &mut Outbox<Self>) {
        let Some(term) = term_of(&message) else { return out.ignore("what only workers say") };
        if term < self.term || self.leader != Some(from) {
            return out.ignore("what an older leader says");
        }
        self.term = term;
        match message {
            Message::WhoAreYou(_) => self.introduce(from, out),
            Message::Welcome(_) => self.is_welcome = true,
            Message::Run(_, assignments) => {
                assignments.into_iter().for_each(|assignment| self.accept(assignment, out));
                self.hand_back(out);
            }
            Message::GiveBack(_, held) => self.give_back(&held, from, out),
            Message::Stop(_, held) => held.into_iter().for_each(|held| self.stop(held, out)),
            Message::Forget(_, held) => held.into_iter().for_each(|held| self.results.forget(held)),
            _ => {}
        }
    }

    fn accept(&mut self, assignment: Assignment, out: &mut Outbox<Self>) {
        if self.relation == Relation::Over {
            return out.ignore("an assignment of a farm that it does not work for any more");
        }
        let held = assignment.held;
        let waits = self.waiting.iter().any(|waiting| waiting.held == held);
        if waits || self.running.contains_key(&held) || self.results.has(held) {
            return out.ignore("an assignment that came twice");
        }
        self.waiting.push_back(assignment);
    }

    fn give_back(&mut self, wanted: &[Held], leader: ServerId, out: &mut Outbox<Self>) {
        let (back, stays): (VecDeque<_>, VecDeque<_>) =
            core::mem::take(&mut self.waiting).into_iter().partition(|waiting| wanted.contains(&waiting.held));
        self.waiting = stays;
        out.send(leader, Message::GaveBack(back.iter().map(|assignment| assignment.held).collect()));
    }

    fn stop(&mut self, held: Held, out: &mut Outbox<Self>) {
        self.waiting.retain(|waiting| waiting.held != held);
        if let Some(cpus) = self.running.remove(&held) {
            self.busy -= cpus;
            out.notify(Notice::Kill(held));
        }
    }

    fn on_beat(&mut self, out: &mut Outbox<Self>) {
        if let Some(leader) = self.leader {
            out.send(leader, Message::Beat(self.load));
            out.set(Timer::Beat, self.beat);
        }
        self.results.on_beat(out);
    }

    /// Begins with what fits, in the order in which it came.
    fn begin(&mut self, out: &mut Outbox<Self>) {
        if !self.is_welcome || self.leader.is_none() || !self.has_room {
            return;
        }
        while let Some(first) = self.waiting.front() {
            let cpus = u32::from(first.cpus);
            if self.busy > 0 && self.busy + cpus > self.slots {
                return;
            }
            let Some(assignment) = self.waiting.pop_front() else { return };
            self.busy += cpus;
            self.running.insert(assignment.held, cpus);
            out.notify(Notice::Start(assignment));
        }
    }
}

impl Machine for Worker {
    type Peer = ServerId;
    type Message = Message;
    type Command = Command;
    type Timer = Timer;
    type Record = Record;
    type Token = Token;
    type Barrier = Never;
    type Notice = Notice;

    fn step(&mut self, _: Moment, input: Input<Self>, out: &mut Outbox<Self>) {
        match input {
            Input::Message { from, message } => self.on_message(from, message, out),
            Input::Command(command) => self.on_command(command, out),
            Input::Timer(Timer::Beat) => self.on_beat(out),
            Input::Timer(Timer::Tell) => self.tell(out),
            Input::LinkUp(peer) if self.beside == Some(peer) && self.told > 0 => self.tell_beside(out),
            Input::Timer(Timer::Gather) => self.results.on_gather_time(out),
            Input::LinkDown(peer) if self.leader == Some(peer) => {
                self.leader = None;
                self.is_welcome = false;
                out.cancel(Timer::Beat);
            }
            Input::Persisted(token) => self.on_persisted(token, out),
            Input::LinkUp(_) | Input::LinkDown(_) => out.ignore("what no worker needs"),
        }
        self.begin(out);
        let has_more_to_do = !self.waiting.is_empty() && !self.running.is_empty();
        self.results.write_soon(has_more_to_do, out);
    }
}

const fn term_of(message: &Message) -> Option<Term> {
    match message {
        Message::WhoAreYou(term)
        | Message::Welcome(term)
        | Message::Run(term, _)
        | Message::GiveBack(term, _)
        | Message::Stop(term, _)
        | Message::Forget(term, _) => Some(*term),
        Message::Hello(_)
        | Message::Ended(_)
        | Message::GaveBack(_)
        | Message::Beat(_)
        | Message::Room(_)
        | Message::Beside(_) => None,
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(report) => write!(f, "ended {}", report.task),
            Self::Forgotten(held) => write!(f, "forgotten {held}"),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serve(leader) => write!(f, "serve {leader}"),
            Self::Ended(report) => write!(f, "ended {}", report.task),
            Self::Abandoned(held) => write!(f, "abandoned {held}"),
            Self::Load(load) => write!(f, "load {}", load.score),
            Self::Room(has_room) => f.write_str(if *has_room { "room" } else { "no room" }),
            Self::Open(is_open) => f.write_str(if *is_open { "open" } else { "take nothing new" }),
            Self::Relation(Relation::Own) => f.write_str("one of its own"),
            Self::Relation(Relation::Lent(loan)) => write!(f, "lent under {loan}"),
            Self::Relation(Relation::Over) => f.write_str("lent no more"),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(assignment) => write!(f, "start {}", assignment.held),
            Self::Kill(held) => write!(f, "kill {held}"),
        }
    }
}

impl fmt::Display for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Beat => "beat",
            Self::Gather => "gather",
            Self::Tell => "tell",
        })
    }
}
