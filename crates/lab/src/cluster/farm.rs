//! The farm of a host: the machine that ships, beside the control machine that ships, each on a thread of its own.
//!
//! What control says comes in one queue and what clients ask in another, as in a real server. A farm may be busy: a turn takes some of
//! what it was told, and all that it is asked.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use primus_core::farm::foreman;
use primus_core::ledger::{Effect, JobId, Limits};
use primus_core::loan::office;
use primus_core::machine::{Input, Machine, Moment, Outbox, Output};
use primus_core::planted::Planted;
use primus_core::{ServerId, Term};
use primus_replica::message::{Entry, Snapshot};
use primus_server::farm::{Answer, Command, Farm, Notice, Rules, Ticket, Timer};
use primus_server::gave_way::GaveWay;
use primus_server::record::{Content, State};
use primus_server::relay::Relay;

use crate::chance::Chance;

/// When runs begin, in milliseconds since 1970.
const WALL_MS: u64 = 1_794_800_000_000;

/// A farm, and what waits for it.
#[derive(Debug)]
pub(super) struct FarmHost {
    farm: Farm,
    outbox: Outbox<Farm>,
    told: VecDeque<Told>,
    asked: VecDeque<Command>,
    /// What it wants of control, in order.
    wishes: VecDeque<Wish>,
    /// The number under which each timer was set last.
    timers: BTreeMap<Timer, u64>,
    /// Keys that clients write through control, which acknowledges them: the farm may apply them later.
    keys: BTreeMap<Bytes, u64>,
    /// Looks of clients, by the number under which the log was asked, and what they must see.
    reads: BTreeMap<u64, Known>,
    /// Those that wait until control knows this much of the log.
    late: BTreeMap<u64, Vec<Known>>,
    /// Those that wait for the farm.
    looks: BTreeMap<Ticket, Known>,
    /// What control passes on, by its own rules.
    relay: Relay,
}

/// What clients have been told: the newest job, and the newest key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Known {
    pub(super) job: JobId,
    pub(super) key: u64,
}

/// What control tells the farm, in the order of the log.
#[derive(Debug)]
enum Told {
    Committed(u64, Bytes),
    Leader(Option<ServerId>),
    Lead(Term),
    Snapshot(u64, GaveWay),
    Restored(u64, Bytes),
}

/// What the farm wants of control.
#[derive(Debug)]
pub(super) enum Wish {
    /// Append these records, if this server still leads in this term.
    Append(Term, Vec<Bytes>),
    /// This is the whole state up to this index.
    Compact(u64, Bytes),
}

/// What came of a turn, for the run.
#[derive(Debug, Default)]
pub(super) struct Came {
    /// Timers to be set or cancelled.
    pub(super) timers: Vec<(Timer, Option<primus_core::machine::Delay>)>,
    pub(super) answers: Vec<(Ticket, Option<Vec<Effect>>)>,
    /// What those who look miss, if they miss anything.
    pub(super) looks: Vec<Option<&'static str>>,
    /// Does more wait?
    pub(super) is_behind: bool,
    pub(super) has_wishes: bool,
}

impl FarmHost {
    /// A process starts with what is on its disk.
    pub(super) fn new(
        id: ServerId,
        incarnation: u32,
        (servers, planted): (usize, Planted),
        (snapshot, snapshot_every): (Option<&Snapshot>, u64),
    ) -> Self {
        let rules = Rules {
            work: foreman::Rules::default(),
            lending: office::Rules::default(),
            neighbours: Vec::new(),
            limits: Limits::default(),
            state_max: 1 << 30,
            servers,
            planted,
        };
        // Every process has an origin of its own.
        let origin = id.0 << 32 | u64::from(incarnation);
        let mut host = Self {
            farm: Farm::new(id, origin, rules),
            outbox: Outbox::new(),
            told: VecDeque::new(),
            asked: VecDeque::new(),
            wishes: VecDeque::new(),
            timers: BTreeMap::new(),
            keys: BTreeMap::new(),
            reads: BTreeMap::new(),
            late: BTreeMap::new(),
            looks: BTreeMap::new(),
            relay: Relay::new(snapshot.map_or(0, |snapshot| snapshot.index), snapshot_every),
        };
        if let Some(snapshot) = snapshot {
            host.restore(snapshot.index, &snapshot.data);
        }
        host
    }

    /// What is missing here of what is known.
    pub(super) fn misses(&self, known: Known) -> Option<&'static str> {
        // Jobs are numbered without gaps, and none is forgotten while a run lasts.
        let newest = self.farm.ledger().jobs(JobId(0)).next_back().map_or(JobId(0), |(job, _)| job);
        let has_key = known.key == 0 || self.farm.register().get(&key_of(known.key)).is_some();
        (newest < known.job).then_some("a job").or((!has_key).then_some("a key"))
    }

    fn restore(&mut self, index: u64, data: &Bytes) -> bool {
        let state = State::from_bytes(data);
        let is_readable = state.is_some();
        state.into_iter().for_each(|state| self.farm.restore(Moment::START, index, state));
        is_readable
    }
}

/// What control says and does.
impl FarmHost {
    pub(super) fn on_leader(&mut self, leader: Option<ServerId>, leads_in: Option<Term>) {
        self.wishes.retain(|wish| matches!(wish, Wish::Compact(..)));
        self.told.push_back(Told::Leader(leader));
        self.relay.on_leader(leads_in);
        if leads_in.is_none() {
            self.reads.clear();
            self.keys.clear();
        }
        self.accede();
    }

    fn accede(&mut self) {
        self.told.extend(self.relay.accede().map(Told::Lead));
    }

    /// A client writes this key, and hears of it when the log says so.
    pub(super) fn write(&mut self, record: Bytes, key: u64) {
        self.keys.insert(record, key);
    }

    /// An entry is agreed on. Says which key was written, if a client waits for it.
    pub(super) fn on_committed(&mut self, entry: &Entry) -> Option<u64> {
        if matches!(self.relay.on_committed(entry), Content::Register(_) | Content::Ledger { .. }) {
            self.told.push_back(Told::Committed(entry.index, entry.data.clone()));
        }
        self.accede();
        self.keys.remove(&entry.data)
    }

    /// The farm writes its state down, if it is time for that.
    pub(super) fn cut(&mut self, gave_way: &GaveWay) {
        if self.relay.take_cut() {
            self.told.push_back(Told::Snapshot(self.relay.applied(), gave_way.clone()));
        }
    }

    pub(super) const fn on_cut(&mut self, index: u64) {
        self.relay.on_cut(index);
    }

    pub(super) fn on_restored(&mut self, snapshot: &Snapshot) {
        self.told.push_back(Told::Restored(snapshot.index, snapshot.data.clone()));
        self.relay.on_restored(snapshot);
    }

    /// Somebody wants to look, and must see what is known.
    pub(super) fn read(&mut self, number: u64, known: Known) {
        self.reads.insert(number, known);
    }

    pub(super) fn on_readable(&mut self, number: u64, index: u64) {
        let known = self.reads.remove(&number);
        known.into_iter().for_each(|known| self.late.entry(index).or_default().push(known));
    }

    /// Those who read know how far the farm must be once control has applied that much.
    pub(super) fn take_ready(&mut self) -> Vec<Known> {
        let rest = self.late.split_off(&(self.relay.applied() + 1));
        std::mem::replace(&mut self.late, rest).into_values().flatten().collect()
    }

    pub(super) fn look(&mut self, ticket: Ticket, known: Known) {
        self.looks.insert(ticket, known);
        self.asked.push_back(Command::Look(ticket, self.relay.told()));
    }

    pub(super) fn ask(&mut self, question: Command) {
        self.asked.push_back(question);
    }

    pub(super) fn next_wish(&mut self) -> Option<Wish> {
        self.wishes.pop_front()
    }

    /// These were not taken, and come first.
    pub(super) fn put_back(&mut self, term: Term, records: Vec<Bytes>) {
        self.wishes.push_front(Wish::Append(term, records));
    }
}

/// Its turns.
impl FarmHost {
    /// It takes some of what it was told, all that it is asked, and says what that comes to.
    pub(super) fn turn(&mut self, now_us: u64, chance: &mut Chance) -> Came {
        let mut came = Came::default();
        let count = chance.between(0, self.told.len() as u64);
        for _ in 0..count {
            if let Some(told) = self.told.pop_front() {
                self.take(told, now_us, &mut came);
            }
        }
        for question in std::mem::take(&mut self.asked) {
            self.step(now_us, Input::Command(question), &mut came);
        }
        self.end_turn(now_us, &mut came);
        came.is_behind = !self.told.is_empty();
        came
    }

    /// It takes everything.
    pub(super) fn catch_up(&mut self, now_us: u64) {
        let mut came = Came::default();
        while let Some(told) = self.told.pop_front() {
            self.take(told, now_us, &mut came);
        }
    }

    pub(super) fn set_timer(&mut self, timer: Timer, number: u64) {
        self.timers.insert(timer, number);
    }

    pub(super) fn cancel_timer(&mut self, timer: Timer) {
        self.timers.remove(&timer);
    }

    pub(super) fn on_timer(&mut self, timer: Timer, number: u64, now_us: u64) -> Came {
        let mut came = Came::default();
        if self.timers.get(&timer) == Some(&number) {
            self.timers.remove(&timer);
            self.step(now_us, Input::Timer(timer), &mut came);
            self.end_turn(now_us, &mut came);
        }
        came.is_behind = !self.told.is_empty();
        came
    }

    fn take(&mut self, told: Told, now_us: u64, came: &mut Came) {
        let command = match told {
            Told::Committed(index, record) => Command::Committed(index, record),
            Told::Leader(leader) => Command::Leader(leader),
            Told::Lead(term) => Command::Lead(term),
            Told::Snapshot(index, gave_way) => {
                return self.wishes.push_back(Wish::Compact(index, self.farm.state().to_bytes(&gave_way)));
            }
            Told::Restored(index, data) => {
                assert!(self.restore(index, &data), "a state that was sent can be read");
                return;
            }
        };
        self.step(now_us, Input::Command(command), came);
    }

    fn end_turn(&mut self, now_us: u64, came: &mut Came) {
        self.step(now_us, Input::Command(Command::Turn(WALL_MS + now_us / 1000)), came);
        came.has_wishes = !self.wishes.is_empty();
    }

    fn step(&mut self, now_us: u64, input: Input<Farm>, came: &mut Came) {
        let mut outbox = std::mem::take(&mut self.outbox);
        self.farm.step(Moment(now_us), input, &mut outbox);
        for output in outbox.drain() {
            match output {
                Output::Set { timer, delay } => came.timers.push((timer, Some(delay))),
                Output::Cancel(timer) => came.timers.push((timer, None)),
                Output::Notify(Notice::Append(term, records)) => self.wishes.push_back(Wish::Append(term, records)),
                Output::Notify(Notice::Answer(ticket, Ok(Answer::Look))) => {
                    let known = self.looks.remove(&ticket);
                    came.looks.extend(known.map(|known| self.misses(known)));
                }
                Output::Notify(Notice::Answer(ticket, Ok(Answer::Entered(effects)))) => {
                    came.answers.push((ticket, Some(effects)));
                }
                Output::Notify(Notice::Answer(ticket, _)) => came.answers.push((ticket, None)),
                Output::Notify(_) | Output::Send { .. } | Output::Ignore(_) => {}
            }
        }
        self.outbox = outbox;
    }
}

/// How a key of clients is called.
pub(super) fn key_of(number: u64) -> String {
    format!("key {number}")
}
