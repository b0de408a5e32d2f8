//! One day: farms, their queues and their workers in virtual time.
//!
//! Here are the loop and the tasks; offices and ledgers are in [`super::offices`], whom workers work for in [`super::crews`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use primus_core::ledger::{Entry, Ledger, LoanId};
use primus_core::loan::{self, Allegiance, Office, Word, allegiance};
use primus_core::machine::Token;

use super::gauge::Gauge;
use super::load::Source;
use super::{Day, Figures, Outcome};
use crate::chance::Chance;
use crate::timeline::{Scene, Timeline, play};

/// How long a message takes.
pub(super) const TRAVEL_US: u64 = 1_000;
/// How long it takes until something is in the log.
pub(super) const COMMIT_US: u64 = 3_000;
/// How long it takes until something is on a worker's disk.
pub(super) const SYNC_US: u64 = 3_000;

/// A farm, by its place among all.
pub(super) type FarmId = usize;
/// A worker, by its place among all.
pub(super) type WorkerId = usize;

/// A farm of this day.
#[derive(Debug)]
pub(super) struct Farm {
    pub(super) name: String,
    pub(super) office: Office,
    pub(super) ledger: Ledger,
    /// Workers of others that are registered here.
    pub(super) guests: BTreeSet<String>,
    /// Those that may be given something.
    pub(super) crew: Vec<WorkerId>,
    source: Source,
    waiting: VecDeque<Task>,
    queue: Gauge,
    tasks: u64,
    borrowed: u64,
    /// How long slots of its own workers were in use.
    used_us: u64,
}

/// A worker of this day.
#[derive(Debug)]
pub(super) struct Crew {
    pub(super) home: FarmId,
    pub(super) name: String,
    pub(super) allegiance: Allegiance,
    /// The other farm that it works for.
    pub(super) away: Option<FarmId>,
    /// It is to go home, and takes nothing new.
    pub(super) is_finishing: bool,
    pub(super) told_idle: bool,
    /// The number under which each timer was set last.
    pub(super) timers: BTreeMap<allegiance::Timer, u64>,
    /// What runs, by number.
    pub(super) running: BTreeMap<u64, Running>,
    /// When it changed farms, within the last stay time.
    pub(super) changes: VecDeque<u64>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    takes_us: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Running {
    pub(super) task: Task,
    pub(super) since_us: u64,
}

/// Something that will happen.
#[derive(Debug)]
pub(super) enum Event {
    Submit(FarmId, Task),
    End(WorkerId, u64),
    Look(FarmId),
    Between {
        from: FarmId,
        to: FarmId,
        message: Box<loan::Message>,
    },
    Commit(FarmId, Vec<Entry>),
    /// A leader says something to a worker.
    ToWorker {
        farm: FarmId,
        worker: WorkerId,
        word: Word,
    },
    /// A worker says something to its own leader.
    ToLeader(WorkerId, Word),
    /// A worker introduces itself to another farm.
    Arrive {
        farm: FarmId,
        worker: WorkerId,
        loan: LoanId,
    },
    Synced(WorkerId, Token),
    AllegianceTimer(WorkerId, allegiance::Timer, u64),
}

/// A day under way.
pub(super) struct Run<'a> {
    pub(super) day: &'a Day,
    pub(super) farms: Vec<Farm>,
    pub(super) workers: Vec<Crew>,
    pub(super) time: Timeline<Event>,
    next_number: u64,
    /// How much waits everywhere.
    waiting: Gauge,
    pub(super) loans: u64,
    pub(super) stopped: u64,
    pub(super) thrash_max: usize,
}

impl<'a> Run<'a> {
    pub(super) fn new(day: &'a Day, is_lending: bool, seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let sources = (0..day.farms).map(|farm| Source::new(farm, Chance::new(chance.below(u64::MAX))));
        let farms = sources.enumerate().map(|(farm, source)| Farm::new(day, farm, is_lending, source));
        let crew = |farm| (1..=day.workers).map(move |number| Crew::new(farm, number));
        let mut run = Self {
            day,
            farms: farms.collect(),
            workers: (0..day.farms).flat_map(crew).collect(),
            time: Timeline::new(chance),
            next_number: 0,
            waiting: Gauge::default(),
            loans: 0,
            stopped: 0,
            thrash_max: 0,
        };
        run.begin();
        run
    }

    fn begin(&mut self) {
        (0..self.workers.len()).for_each(|worker| self.bring_home(worker));
        (0..self.farms.len()).for_each(|farm| self.open(farm));
        (0..self.farms.len()).for_each(|farm| self.expect_task(farm));
    }

    pub(super) fn finish(mut self) -> Outcome {
        play(&mut self);
        self.time.now_us = self.day.day_us;
        self.close()
    }

    pub(super) fn after(&mut self, delay_us: u64, event: Event) {
        self.time.at(self.time.now_us.saturating_add(delay_us), event);
    }

    pub(super) const fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn expect_task(&mut self, farm: FarmId) {
        if let Some((at_us, takes_us)) = self.farms[farm].source.next(self.day) {
            self.time.at(at_us, Event::Submit(farm, Task { takes_us }));
        }
    }

    fn submit(&mut self, farm: FarmId, task: Task) {
        self.expect_task(farm);
        self.farms[farm].tasks += 1;
        self.farms[farm].waiting.push_back(task);
        self.hand_out(farm);
    }

    /// What waits goes to whoever has the most room.
    pub(super) fn hand_out(&mut self, farm: FarmId) {
        while let Some(worker) = self.freest(farm)
            && let Some(task) = self.farms[farm].waiting.pop_front()
        {
            self.start(farm, worker, task);
        }
        let waiting = self.farms[farm].waiting.len() as u64;
        let before = self.farms[farm].queue.value();
        self.farms[farm].queue.set(waiting, self.time.now_us);
        self.waiting.set(self.waiting.value() + waiting - before, self.time.now_us);
    }

    fn freest(&self, farm: FarmId) -> Option<WorkerId> {
        let crew = self.farms[farm].crew.iter().copied();
        crew.filter(|worker| self.room(*worker) > 0).max_by_key(|worker| self.room(*worker))
    }

    pub(super) fn room(&self, worker: WorkerId) -> u32 {
        let running = u32::try_from(self.workers[worker].running.len()).unwrap_or(u32::MAX);
        u32::from(self.day.slots).saturating_sub(running)
    }

    fn start(&mut self, farm: FarmId, worker: WorkerId, task: Task) {
        let number = self.number();
        let since_us = self.time.now_us;
        self.workers[worker].running.insert(number, Running { task, since_us });
        self.farms[farm].borrowed += u64::from(self.workers[worker].home != farm);
        self.after(task.takes_us, Event::End(worker, number));
        self.tell_idle(worker);
    }

    fn end(&mut self, worker: WorkerId, number: u64) {
        let Some(running) = self.workers[worker].running.remove(&number) else { return };
        self.note_use(worker, running);
        let farm = self.workers[worker].current();
        self.tell_idle(worker);
        self.hand_out(farm);
    }

    /// What still runs goes back to where it came from, and is the first to run again.
    pub(super) fn stop(&mut self, worker: WorkerId) {
        let farm = self.workers[worker].current();
        for (_, running) in std::mem::take(&mut self.workers[worker].running) {
            self.note_use(worker, running);
            self.stopped += 1;
            self.farms[farm].waiting.push_front(running.task);
        }
        self.hand_out(farm);
        self.tell_idle(worker);
    }

    fn note_use(&mut self, worker: WorkerId, running: Running) {
        let home = self.workers[worker].home;
        self.farms[home].used_us += self.time.now_us - running.since_us;
    }

    fn close(mut self) -> Outcome {
        for worker in 0..self.workers.len() {
            let running: Vec<Running> = self.workers[worker].running.values().copied().collect();
            running.into_iter().for_each(|running| self.note_use(worker, running));
        }
        let farms: Vec<FarmId> = (0..self.farms.len()).collect();
        farms.iter().for_each(|farm| self.hand_out(*farm));
        let figures = farms.iter().map(|farm| self.figures(&[*farm], &self.farms[*farm].queue));
        Outcome {
            farms: figures.collect(),
            all: self.figures(&farms, &self.waiting),
            loans: self.loans,
            stopped: self.stopped,
            thrash_max: self.thrash_max,
        }
    }

    fn figures(&self, farms: &[FarmId], queue: &Gauge) -> Figures {
        let sum = |count: fn(&Farm) -> u64| farms.iter().map(|farm| count(&self.farms[*farm])).sum::<u64>();
        let tasks = sum(|farm| farm.tasks);
        let slots_us = (farms.len() as u64 * self.day.slots_each()) as f64 * self.day.day_us as f64;
        Figures {
            tasks,
            borrowed: sum(|farm| farm.borrowed),
            left: sum(|farm| farm.waiting.len() as u64),
            queue_mean: queue.mean(),
            queue_p95: queue.percentile(95),
            queue_max: queue.max(),
            wait_us: u64::try_from(queue.sum_us() / u128::from(tasks.max(1))).unwrap_or(u64::MAX),
            utilisation: sum(|farm| farm.used_us) as f64 / slots_us,
        }
    }
}

impl Scene for Run<'_> {
    type Event = Event;

    fn time(&mut self) -> &mut Timeline<Event> {
        &mut self.time
    }

    fn on_event(&mut self, event: Event) {
        if self.time.now_us >= self.day.day_us {
            return;
        }
        match event {
            Event::Submit(farm, task) => self.submit(farm, task),
            Event::End(worker, number) => self.end(worker, number),
            Event::Look(farm) => self.look(farm),
            Event::Between { from, to, message } => self.hear(from, to, *message),
            Event::Commit(farm, entries) => self.commit(farm, entries),
            Event::ToWorker { farm, worker, word } => self.tell_worker(farm, worker, word),
            Event::ToLeader(worker, word) => self.tell_leader(worker, word),
            Event::Arrive { farm, worker, loan } => self.arrive(farm, worker, loan),
            Event::Synced(worker, token) => self.synced(worker, token),
            Event::AllegianceTimer(worker, timer, number) => self.on_allegiance_timer(worker, timer, number),
        }
    }

    fn is_over(&mut self) -> bool {
        self.time.now_us >= self.day.day_us
    }
}

impl Farm {
    fn new(day: &Day, farm: FarmId, is_lending: bool, source: Source) -> Self {
        let others = (1..day.farms).map(|step| name((farm + step) % day.farms));
        Self {
            name: name(farm),
            office: Office::new(day.rules, others.filter(|_| is_lending).collect()),
            ledger: Ledger::default(),
            guests: BTreeSet::new(),
            crew: Vec::new(),
            source,
            waiting: VecDeque::new(),
            queue: Gauge::default(),
            tasks: 0,
            borrowed: 0,
            used_us: 0,
        }
    }

    /// How many tasks wait.
    pub(super) fn queued(&self) -> u64 {
        self.waiting.len() as u64
    }
}

/// What a farm is called.
fn name(farm: FarmId) -> String {
    format!("farm{}", farm + 1)
}
