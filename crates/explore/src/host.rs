//! The host of a worker: the machine that ships, with its disk and its timers.
//!
//! A turn consists of what is given to it at once. Left out: the folder for the other farm is open as soon as it is wanted;
//! nobody hears how loaded the host is; and what the worker has to say to its own farm about tasks arrives nowhere, because
//! settings tell it directly what its own farm gives it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use primus_core::farm::{self, worker as work};
use primus_core::ledger::{Held, LoanId};
use primus_core::load::Weights;
use primus_core::loan::WorkerMessage;
use primus_core::loan::placement::Place;
use primus_core::machine::{Input, Machine, Moment, Outbox, Output};
use primus_core::planted::Planted;
use primus_core::{FarmId, ServerId, Term};
use primus_lab::tasks::address;
use primus_server::worker::{Command, Message, Notice, Peer, Record, Rules, Timer, Worker, Write};

/// The farm that has the worker, and the one that may borrow it.
pub(crate) const HOME: &str = "north";
pub(crate) const ABROAD: &str = "south";

/// A worker, its disk and its timers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Host {
    rules: Arc<Rules>,
    /// Nothing while it is dead.
    worker: Option<Arc<Worker>>,
    /// The other farm, as the worker counts them, while it has to do with it.
    abroad: Option<FarmId>,
    /// What its disk has: the newest call that it has followed, and what it keeps for the other farm;
    epoch: LoanId,
    records: Vec<work::Record>,
    /// and what a death may destroy.
    unsynced: VecDeque<(Write, Vec<Record>)>,
    /// What time it is, and when its timers run out, in ticks of this length.
    pub(crate) now: u64,
    tick_us: u64,
    timers: BTreeMap<Timer, u64>,
}

/// What a worker does that concerns others.
pub(crate) type Effects = Vec<Output<Worker>>;

impl Host {
    /// One that has yet to start.
    pub(crate) fn new(name: String, tick_us: u64, planted: Planted) -> Self {
        let (farm, weights) = (HOME.to_owned(), Weights::DEFAULT);
        Self {
            rules: Arc::new(Rules { farm, name, slots: 1, beside: None, weights, planted }),
            worker: None,
            abroad: None,
            epoch: LoanId(0),
            records: Vec::new(),
            unsynced: VecDeque::new(),
            now: 0,
            tick_us,
            timers: BTreeMap::new(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.rules.name
    }

    pub(crate) const fn is_alive(&self) -> bool {
        self.worker.is_some()
    }

    pub(crate) fn place(&self) -> Option<&Place> {
        self.worker.as_ref().map(|worker| worker.placement().place())
    }

    pub(crate) fn is_at_home(&self) -> bool {
        self.place() == Some(&Place::Home)
    }

    pub(crate) fn is_away(&self) -> bool {
        self.worker.as_ref().is_some_and(|worker| worker.away().is_some())
    }

    /// Is it with the other farm, and not about to go?
    pub(crate) fn can_return(&self) -> bool {
        matches!(self.place(), Some(Place::Away { .. }))
    }

    /// The loan under which it works for the other farm.
    pub(crate) fn away_under(&self) -> Option<LoanId> {
        let placement = self.worker.as_ref()?.placement();
        placement.farm().map(|_| placement.epoch())
    }

    /// Has it, or its disk, heard of this loan?
    pub(crate) fn knows(&self, loan: LoanId) -> bool {
        self.worker.as_ref().map_or(self.epoch, |worker| worker.placement().epoch()) >= loan
    }

    /// A server of its own farm, and of the other one.
    pub(crate) const fn home(server: ServerId) -> Peer {
        Peer { farm: FarmId::OWN, server }
    }

    pub(crate) fn abroad(&self, server: ServerId) -> Option<Peer> {
        self.abroad.map(|farm| Peer { farm, server })
    }

    /// The other farm, as the worker counts them.
    pub(crate) const fn farm_abroad(&self) -> Option<FarmId> {
        self.abroad
    }

    /// Does it work for the other farm, or have results for it?
    pub(crate) const fn serves_abroad(&self) -> bool {
        self.abroad.is_some()
    }

    /// What it does for its own farm, or for the other one.
    pub(crate) fn work(&self, is_abroad: bool) -> Option<&work::Worker> {
        let farm = if is_abroad { self.abroad? } else { FarmId::OWN };
        self.worker.as_ref()?.work(farm)
    }

    /// The first thing that it runs there.
    pub(crate) fn runs(&self, is_abroad: bool) -> Option<Held> {
        self.work(is_abroad)?.running().next()
    }

    /// Is something about its placement, or about results, on its way to the disk?
    pub(crate) fn writes(&self, is_epoch: bool) -> bool {
        self.unsynced.iter().any(|(write, _)| matches!(write, Write::Epoch(_)) == is_epoch)
    }

    pub(crate) fn has_timer(&self, timer: Timer) -> bool {
        self.timers.contains_key(&timer)
    }

    /// A timer that is due.
    pub(crate) fn due(&self) -> Option<Timer> {
        self.timers.iter().find(|(_, due)| **due <= self.now).map(|(timer, _)| *timer)
    }
}

/// What happens to it.
impl Host {
    /// It starts, at home; for the other farm it only has results to tell, if any.
    pub(crate) fn start(&mut self) -> Effects {
        let worker = Worker::new(Rules::clone(&self.rules), self.epoch, []);
        self.worker = Some(Arc::new(worker));
        let visited = (address(ABROAD, [ServerId(1)]), self.records.clone());
        self.turn([Input::Command(Command::Start(vec![visited]))])
    }

    pub(crate) fn die(&mut self, is_synced: bool) {
        let unsynced = std::mem::take(&mut self.unsynced);
        unsynced.into_iter().filter(|_| is_synced).for_each(|(_, records)| self.keep(records));
        (self.worker, self.abroad) = (None, None);
        self.timers.clear();
    }

    fn keep(&mut self, records: Vec<Record>) {
        for record in records {
            match record {
                Record::Epoch(epoch) => self.epoch = epoch,
                Record::Result(record) => self.records.push(record),
            }
        }
    }

    /// The oldest write of a kind is on its disk.
    pub(crate) fn sync(&mut self, is_epoch: bool) -> Effects {
        let is_of_kind = |(write, _): &(Write, _)| matches!(write, Write::Epoch(_)) == is_epoch;
        let place = self.unsynced.iter().position(is_of_kind);
        let Some((write, records)) = place.and_then(|place| self.unsynced.remove(place)) else { return Vec::new() };
        self.keep(records);
        self.turn([Input::Persisted(write)])
    }

    pub(crate) fn fire(&mut self, timer: Timer) -> Effects {
        self.timers.remove(&timer);
        self.turn([Input::Timer(timer)])
    }

    /// A turn in which this happens. The worker's own clock stands still, so that it never takes itself for one that paused.
    pub(crate) fn turn(&mut self, inputs: impl IntoIterator<Item = Input<Worker>>) -> Effects {
        let Some(mut worker) = self.worker.take() else { return Vec::new() };
        let mut inputs: VecDeque<_> = inputs.into_iter().chain([Input::Command(Command::Turn)]).collect();
        let (mut out, mut effects) = (Outbox::new(), Vec::new());
        while let Some(input) = inputs.pop_front() {
            Arc::make_mut(&mut worker).step(Moment::START, input, &mut out);
            for output in out.drain() {
                if let Output::Notify(Notice::Open(address)) = output {
                    let opened = Command::Opened(address.name, Ok(self.records.clone()));
                    inputs.push_front(Input::Command(opened));
                } else {
                    effects.extend(self.carry_out(output));
                }
            }
        }
        self.worker = Some(worker);
        effects
    }

    /// What others need not hear of.
    fn carry_out(&mut self, output: Output<Worker>) -> Option<Output<Worker>> {
        match output {
            Output::Persist { token, records } => self.unsynced.push_back((token, records)),
            Output::Set { timer: timer @ (Timer::Placement(_) | Timer::Work(_, work::Timer::Gather)), delay } => {
                self.timers.insert(timer, self.now + delay.min_us.div_ceil(self.tick_us));
            }
            Output::Cancel(timer) => _ = self.timers.remove(&timer),
            Output::Notify(Notice::Begin { farm, .. }) => {
                self.abroad = Some(farm);
                return Some(output);
            }
            Output::Notify(Notice::Part(_)) => {
                self.part();
                return Some(output);
            }
            effect => return Some(effect),
        }
        None
    }

    /// The other farm has recorded everything. What the disk was given last is there before it is opened again.
    fn part(&mut self) {
        self.abroad = None;
        let is_epoch = |(write, _): &(Write, Vec<Record>)| matches!(write, Write::Epoch(_));
        let (epochs, results) = std::mem::take(&mut self.unsynced).into_iter().partition(is_epoch);
        self.unsynced = epochs;
        VecDeque::into_iter(results).for_each(|(_, records)| self.keep(records));
    }
}

/// Somebody leads, and is linked and welcomes the worker at once.
pub(crate) fn meets(leader: Peer, term: Term) -> [Input<Worker>; 3] {
    let welcome = Message::Work(farm::Message::Welcome(term));
    [Input::LinkUp(leader), hears(leader, Message::Leads(term)), hears(leader, welcome)]
}

/// The worker hears something.
pub(crate) const fn hears(from: Peer, message: Message) -> Input<Worker> {
    Input::Message { from, message }
}

/// What a leader says about a loan.
pub(crate) fn call(word: WorkerMessage) -> Message {
    Message::Call(word, address("", [ServerId(1)]).servers)
}
