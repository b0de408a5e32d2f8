//! The farms of a run, their processes, and what belongs to those: clocks, timers, links, disks and what a worker runs.

use std::collections::{BTreeMap, BTreeSet};

use primus_core::farm::Message;
use primus_core::farm::foreman::{self, Foreman};
use primus_core::farm::worker::Record;
use primus_core::ledger::loans::name_here;
use primus_core::ledger::{Entry, Held, LoanId};
use primus_core::loan::{Allegiance, Office, Word, office};
use primus_core::machine::{Delay, Token};
use primus_core::{Term, ids};
use primus_server::worker::{Timer, Worker};

use crate::chance::Chance;
use crate::log::Log;
use crate::node::NodeId;

/// A farm, by its place among all.
pub(super) type FarmId = usize;

/// What a farm is.
#[derive(Debug)]
pub(super) struct FarmHost {
    pub(super) name: &'static str,
    pub(super) server_ids: Vec<NodeId>,
    pub(super) worker_ids: Vec<NodeId>,
    pub(super) log: Log,
    /// What clients want and have not got yet.
    pub(super) wishes: Vec<Entry>,
}

/// A host's clock: it shows another time than the others do, and runs too fast or too slow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    pub(super) ahead_ms: u64,
    /// In parts per million.
    pub(super) slower_ppm: i64,
}

/// A server's host.
#[derive(Debug)]
pub(super) struct ServerHost {
    pub(super) farm: FarmId,
    pub(super) clock: Clock,
    /// None while it is dead.
    pub(super) process: Option<Process>,
    /// The term in which it leads, as far as it knows.
    pub(super) leads: Option<u64>,
    /// How much of the log it has applied.
    pub(super) applied: usize,
    /// The number under which each timer was set last.
    pub(super) timers: BTreeMap<ServerTimer, u64>,
    /// The link to each worker, as far as it knows.
    pub(super) links: BTreeMap<NodeId, u64>,
}

/// What a server is made of here.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) foreman: Foreman,
    pub(super) office: Office,
}

/// The timers of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ServerTimer {
    Foreman(foreman::Timer),
    Office(office::Timer),
}

/// A worker's host.
#[derive(Debug)]
pub(super) struct WorkerHost {
    pub(super) home: FarmId,
    pub(super) name: String,
    pub(super) slots: u16,
    pub(super) clock: Clock,
    /// None while it is dead.
    pub(super) worker: Option<Worker>,
    /// The other farm that it works for.
    pub(super) away: Option<FarmId>,
    pub(super) incarnation: u32,
    /// The number under which each timer was set last.
    pub(super) timers: BTreeMap<Timer, u64>,
    /// What its disk says, and what a crash may destroy.
    pub(super) epoch: LoanId,
    pub(super) unsynced: Vec<(Token, LoanId)>,
    pub(super) duties: BTreeMap<FarmId, Duty>,
    pub(super) disks: BTreeMap<FarmId, Disk>,
}

/// What a worker does for one farm.
#[derive(Debug)]
pub(super) struct Duty {
    /// No two bear the same.
    pub(super) number: u64,
    /// What the worker calls the farm.
    pub(super) id: ids::FarmId,
    pub(super) link: Option<Link>,
    /// What runs now.
    pub(super) running: BTreeSet<Held>,
    /// Is only left what has to be told?
    pub(super) is_over: bool,
}

/// Where a worker keeps results of one farm.
#[derive(Debug, Default)]
pub(super) struct Disk {
    pub(super) records: Vec<Record>,
    /// What a crash may destroy.
    pub(super) unsynced: Vec<(Token, Vec<Record>)>,
}

/// One worker as one farm knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Member {
    pub(super) worker: NodeId,
    pub(super) farm: FarmId,
}

/// A worker's link to a server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    pub(super) number: u64,
    pub(super) server: NodeId,
    /// Nothing passes any more, though nobody may have noticed yet.
    pub(super) is_broken: bool,
    /// When the last message in each direction arrives: none overtakes another.
    pub(super) to_worker_us: u64,
    pub(super) to_server_us: u64,
}

/// What a worker and a server say to each other.
#[derive(Debug, Clone)]
pub(super) enum Words {
    Work(Message),
    Loan(Word),
    Leads(Term),
    Follows,
}

/// The way from a server to one of another farm.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lane {
    /// What was said under another number is lost.
    pub(super) number: u64,
    /// When the last message arrives.
    pub(super) last_us: u64,
    /// Until when nothing passes.
    pub(super) down_until_us: u64,
}

impl Clock {
    pub(super) fn now_ms(self, now_us: u64) -> u64 {
        self.ahead_ms + now_us / 1000
    }

    /// How long a timer really takes.
    pub(super) fn real(self, delay: Delay) -> Delay {
        delay.skewed(self.slower_ppm)
    }
}

impl ServerHost {
    pub(super) fn new(farm: FarmId, clock: Clock) -> Self {
        let (timers, links) = (BTreeMap::new(), BTreeMap::new());
        Self { farm, clock, process: None, leads: None, applied: 0, timers, links }
    }

    /// What died with the process.
    pub(super) fn forget(&mut self) {
        *self = Self::new(self.farm, self.clock);
    }
}

impl WorkerHost {
    pub(super) const fn new(home: FarmId, name: String, slots: u16, clock: Clock) -> Self {
        Self {
            home,
            name,
            slots,
            clock,
            worker: None,
            away: None,
            incarnation: 0,
            timers: BTreeMap::new(),
            epoch: LoanId(0),
            unsynced: Vec::new(),
            duties: BTreeMap::new(),
            disks: BTreeMap::new(),
        }
    }

    /// Where it is, as it thinks itself; nothing while it is dead.
    pub(super) fn placement(&self) -> Option<&Allegiance> {
        self.worker.as_ref().map(Worker::placement)
    }

    /// The farm that it works for.
    pub(super) fn current(&self) -> FarmId {
        self.away.unwrap_or(self.home)
    }

    /// What another farm calls it, if it is another one's.
    pub(super) fn name_in(&self, farm: FarmId, home: &str) -> String {
        if farm == self.home { self.name.clone() } else { name_here(&self.name, home) }
    }

    /// What died with the process; its companions end what ran. Of what was not synced, the beginning may be there.
    pub(super) fn forget(&mut self, chance: &mut Chance) {
        for (_, epoch) in keep_some(&mut self.unsynced, chance) {
            self.epoch = epoch;
        }
        for disk in self.disks.values_mut() {
            let kept = keep_some(&mut disk.unsynced, chance);
            disk.records.extend(kept.into_iter().flat_map(|(_, records)| records));
        }
        self.worker = None;
        self.away = None;
        self.timers.clear();
        self.duties.clear();
    }
}

fn keep_some<T>(unsynced: &mut Vec<T>, chance: &mut Chance) -> Vec<T> {
    let kept = usize::try_from(chance.between(0, unsynced.len() as u64)).expect("a length fits");
    unsynced.drain(..).take(kept).collect()
}

impl Disk {
    /// Everything up to this token is on disk.
    pub(super) fn sync(&mut self, token: Token) {
        let count = self.unsynced.iter().take_while(|(written, _)| *written <= token).count();
        self.records.extend(self.unsynced.drain(..count).flat_map(|(_, records)| records));
    }
}
