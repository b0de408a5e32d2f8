//! What stands on the hosts of a run, and what belongs to each process: its machines, its threads and what waits
//! for them, its disk, and its clocks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;

use bytes::Bytes;
use primus_core::lease::{Candidacy, Guard};
use primus_core::ledger::loans::name_here;
use primus_core::ledger::{Entry, Held, JobId, LoanId};
use primus_core::loan::Placement;
use primus_core::machine::{Delay, Input, Machine, Moment, Outbox, Output, Token};
use primus_core::{FarmId, ServerId, SessionId, Term, WorkerId, farm};
use primus_server::farm::{Farm, Ticket};
use primus_server::gave_way::GaveWay;
use primus_server::leases::Leases;
use primus_server::relay::Relay;
use primus_server::worker::Worker;
use primus_server::{Reason, Server};

use super::clock::Clock;
use super::disk::{Disk, File};
use crate::chance::Chance;
use crate::node::NodeId;

/// A farm, by its place among all.
pub(crate) type FarmPlace = usize;

/// What servers say to each other.
pub(crate) type Words = <Server as Machine>::Message;

/// A machine in a process.
#[derive(Debug)]
pub(crate) struct Stand<M: Machine> {
    pub(crate) machine: M,
    outbox: Outbox<M>,
}

impl<M: Machine> Stand<M> {
    pub(crate) const fn new(machine: M) -> Self {
        Self { machine, outbox: Outbox::new() }
    }

    /// Everything that follows from this input.
    pub(crate) fn step(&mut self, now: Moment, input: Input<M>) -> Vec<Output<M>> {
        self.machine.step(now, input, &mut self.outbox);
        self.outbox.drain().collect()
    }
}

/// A farm.
#[derive(Debug, Default)]
pub(crate) struct FarmHost {
    pub(crate) name: String,
    pub(crate) server_ids: Vec<NodeId>,
    pub(crate) worker_ids: Vec<NodeId>,
    pub(crate) guard_ids: Vec<NodeId>,
    /// What clients want and have not got yet.
    pub(crate) wishes: Vec<Entry>,
}

/// A server's host.
#[derive(Debug)]
pub(crate) struct ServerHost {
    pub(crate) farm: FarmPlace,
    pub(crate) clock: Clock,
    pub(crate) disk: Disk,
    /// How long a sync takes, and until when none ends.
    pub(crate) sync: Delay,
    pub(crate) stalled_until_us: u64,
    pub(crate) lease_us: u64,
    /// None while it is dead.
    pub(crate) process: Option<Box<Process>>,
    /// Grows with every start, so that what belongs to a dead process is known.
    pub(crate) incarnation: u32,
}

/// A server's process: three threads with a machine each, and what they have for each other.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) control: Stand<Server>,
    pub(crate) farm: Stand<Farm>,
    pub(crate) leases: Stand<Leases>,
    /// Messages that wait for the disk.
    pub(crate) waiting: Vec<(Token, ServerId, Words)>,
    /// What control passes on to the farm, by its own rules.
    pub(crate) relay: Relay,
    /// Who leads, as control has said last.
    pub(crate) leader: (Option<ServerId>, Term),
    pub(crate) leads_because: Reason,
    /// In which term the log is led from here, and to whom it is being handed over.
    pub(crate) leading: Option<Term>,
    pub(crate) successor: Option<ServerId>,
    pub(crate) reads: Reads,
    /// Keys that clients write through control, which acknowledges them: the farm may apply them later.
    pub(crate) writes: BTreeMap<Bytes, u64>,
    /// What waits for the farm: what control says, and what all others say and ask.
    pub(crate) told: VecDeque<Told>,
    pub(crate) asked: VecDeque<Input<Farm>>,
    /// Looks of clients that wait for the farm.
    pub(crate) looks: BTreeMap<Ticket, Known>,
    pub(crate) for_leases: ForLeases,
    /// Sessions, each with the number of its question.
    pub(crate) polls: BTreeMap<SessionId, u64>,
    /// What waits for control.
    pub(crate) wishes: VecDeque<Wish>,
    /// Who is to lead as soon as nothing is held beside this server any more.
    pub(crate) heir: Option<NodeId>,
    /// Which threads are about to have a turn.
    awake: BTreeSet<Thread>,
    /// Links of workers, as far as this server knows.
    pub(crate) links: BTreeMap<WorkerId, NodeId>,
}

/// What waits for the leases. Of who leads, only the newest counts.
#[derive(Debug, Default)]
pub(crate) struct ForLeases {
    pub(crate) inputs: VecDeque<Input<Leases>>,
    pub(crate) has_other_leader: bool,
}

/// The threads of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Thread {
    Control,
    Farm,
    Leases,
}

/// What control tells the farm, in the order of the log.
#[derive(Debug)]
pub(crate) enum Told {
    Committed(u64, Bytes),
    Leader(Option<ServerId>),
    Lead(Term),
    Clock(ServerId, u64),
    Snapshot(u64, GaveWay),
    Restored(u64, Bytes),
}

/// What farm and leases want of control.
#[derive(Debug)]
pub(crate) enum Wish {
    /// Append these records, if this server still leads in this term.
    Append(Term, Vec<Bytes>),
    /// This is the whole state up to this index.
    Compact(u64, Bytes),
    /// Does a majority say that this server leads?
    Confirm(u64),
    Guarded(bool),
    Transfer(ServerId, Reason),
}

/// Who wants to know how much of the log counts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Read {
    /// A client, which has seen this much, and must see it again. Everything up to this place had been acknowledged when it asked.
    Client(Known, u64),
    /// The leases, under this number.
    Leases(u64),
}

/// What clients have been told: the newest job, and the newest key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Known {
    pub(crate) job: JobId,
    pub(crate) key: u64,
}

/// Questions under way.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    pub(crate) asked: BTreeMap<u64, Read>,
    /// Those that wait until a new leader is ready.
    pub(crate) early: Vec<Read>,
    /// Those that wait until this much of the log is known here.
    pub(crate) late: BTreeMap<u64, Vec<Read>>,
}

impl Default for Known {
    fn default() -> Self {
        Self { job: JobId(0), key: 0 }
    }
}

impl ServerHost {
    pub(crate) fn new(farm: FarmPlace, clock: Clock, sync: Delay, lease_us: u64) -> Self {
        let (disk, process) = (Disk::default(), None);
        Self { farm, clock, disk, sync, stalled_until_us: 0, lease_us, process, incarnation: 0 }
    }
}

impl Reads {
    pub(crate) fn take_ready(&mut self, applied: u64) -> Vec<Read> {
        if self.late.first_key_value().is_none_or(|(first, _)| *first > applied) {
            return Vec::new();
        }
        let rest = self.late.split_off(&(applied + 1));
        mem::replace(&mut self.late, rest).into_values().flatten().collect()
    }
}

impl Process {
    pub(crate) fn new(control: Server, farm: Farm, leases: Leases, relay: Relay) -> Self {
        Self {
            control: Stand::new(control),
            farm: Stand::new(farm),
            leases: Stand::new(leases),
            waiting: Vec::new(),
            relay,
            leader: (None, Term(0)),
            leads_because: Reason::Start,
            leading: None,
            successor: None,
            reads: Reads::default(),
            writes: BTreeMap::new(),
            told: VecDeque::new(),
            asked: VecDeque::new(),
            looks: BTreeMap::new(),
            for_leases: ForLeases::default(),
            polls: BTreeMap::new(),
            wishes: VecDeque::new(),
            heir: None,
            awake: BTreeSet::new(),
            links: BTreeMap::new(),
        }
    }

    /// A thread will have a turn. False if it is about to have one anyway.
    pub(crate) fn wake(&mut self, thread: Thread) -> bool {
        self.awake.insert(thread)
    }

    pub(crate) fn is_awake(&self, thread: Thread) -> bool {
        self.awake.contains(&thread)
    }

    pub(crate) fn begin_turn(&mut self, thread: Thread) {
        self.awake.remove(&thread);
    }

    /// The newest job, the newest key: what is missing here of what is known?
    pub(crate) fn misses(&self, known: Known) -> Option<&'static str> {
        let farm = &self.farm.machine;
        // Jobs are numbered without gaps, and none is forgotten while a run lasts.
        let newest = farm.ledger().jobs(JobId(0)).next_back().map_or(JobId(0), |(job, _)| job);
        let value = farm
            .register()
            .get(&key_of(known.key))
            .and_then(|(value, _)| str::from_utf8(&value).ok()?.parse().ok());
        let has_key = known.key == 0 || value.is_some_and(|newest: u64| newest >= known.key);
        (newest < known.job).then_some("a job").or((!has_key).then_some("a key"))
    }
}

/// There are so many keys; each is written again and again.
const KEYS: u64 = 50;

/// Which key a client writes this number to.
pub(crate) fn key_of(number: u64) -> String {
    format!("key {}", number % KEYS)
}

/// A worker's host.
#[derive(Debug, Default)]
pub(crate) struct WorkerHost {
    pub(crate) home: FarmPlace,
    pub(crate) name: String,
    pub(crate) slots: u16,
    pub(crate) clock: Clock,
    /// None while it is dead.
    pub(crate) process: Option<Box<Stand<Worker>>>,
    pub(crate) incarnation: u32,
    /// The other farm that it works for.
    pub(crate) away: Option<FarmPlace>,
    /// The newest call that it has followed.
    pub(crate) epoch: File<LoanId>,
    pub(crate) duties: BTreeMap<FarmPlace, Duty>,
    /// Where it keeps results of each farm.
    pub(crate) results: BTreeMap<FarmPlace, File<farm::worker::Record>>,
}

/// What a worker does for one farm.
#[derive(Debug)]
pub(crate) struct Duty {
    /// A number that no other duty has.
    pub(crate) number: u64,
    /// What the worker calls the farm.
    pub(crate) id: FarmId,
    /// Its links to that farm's servers, as far as it knows.
    pub(crate) links: BTreeMap<NodeId, WorkerId>,
    /// What runs now, and since when.
    pub(crate) running: BTreeMap<Held, u64>,
    /// True if only unreported results remain.
    pub(crate) is_over: bool,
}

/// One worker as one farm knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Member {
    pub(crate) worker: NodeId,
    pub(crate) farm: FarmPlace,
}

impl WorkerHost {
    pub(crate) fn new(home: FarmPlace, name: String, slots: u16, clock: Clock) -> Self {
        Self { home, name, slots, clock, ..Self::default() }
    }

    /// Where it is, as it thinks itself; nothing while it is dead.
    pub(crate) fn placement(&self) -> Option<&Placement> {
        self.process.as_ref().map(|process| process.machine.placement())
    }

    /// The farm that it works for.
    pub(crate) fn current(&self) -> FarmPlace {
        self.away.unwrap_or(self.home)
    }

    /// What another farm calls it, if it is another one's.
    pub(crate) fn name_in(&self, farm: FarmPlace, home: &str) -> String {
        if farm == self.home { self.name.clone() } else { name_here(&self.name, home) }
    }

    /// What died with the process; its companions end what ran.
    pub(crate) fn forget(&mut self, chance: &mut Chance) {
        self.epoch.crash(chance);
        self.results.values_mut().for_each(|file| file.crash(chance));
        self.process = None;
        self.away = None;
        self.duties.clear();
    }
}

/// A host with a guard.
#[derive(Debug)]
pub(crate) struct GuardHost {
    pub(crate) farm: FarmPlace,
    pub(crate) clock: Clock,
    /// The server that it speaks through.
    pub(crate) at: NodeId,
    /// Is it on the same host as that server?
    pub(crate) is_beside: bool,
    /// None while it is dead.
    pub(crate) process: Option<Stand<Guard>>,
    /// What it wants, unless it has left it for a while.
    pub(crate) wants: Vec<Candidacy>,
    pub(crate) has_left: BTreeSet<String>,
    /// What runs, and under which tokens.
    pub(crate) runs: BTreeMap<String, u64>,
    /// The term of the leader that spoke last.
    pub(crate) heard: Term,
}

impl GuardHost {
    pub(crate) const fn new(
        farm: FarmPlace,
        clock: Clock,
        (at, is_beside): (NodeId, bool),
        wants: Vec<Candidacy>,
    ) -> Self {
        Self {
            farm,
            clock,
            at,
            is_beside,
            process: None,
            wants,
            has_left: BTreeSet::new(),
            runs: BTreeMap::new(),
            heard: Term(0),
        }
    }

    pub(crate) fn session(&self) -> Option<SessionId> {
        self.process.as_ref().map(|process| process.machine.session())
    }

    /// Does it want this group now?
    pub(crate) fn is_candidate(&self, group: &str) -> bool {
        let is_wanted = self.wants.iter().any(|candidacy| candidacy.group == group);
        self.process.is_some() && is_wanted && !self.has_left.contains(group)
    }

    /// What died with the process; its companion ends what ran.
    pub(crate) fn forget(&mut self) {
        self.process = None;
        self.has_left.clear();
        self.runs.clear();
    }
}
