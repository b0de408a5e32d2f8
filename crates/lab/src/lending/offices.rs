//! The leaders of the farms: their offices, and what is agreed on.

use primus_core::Term;
use primus_core::ids;
use primus_core::ledger::loans::{home_of, name_here};
use primus_core::ledger::{Batch, Effect, Entry};
use primus_core::loan::office::{self, Office, Situation};
use primus_core::loan::{self, Word};
use primus_core::machine::{Input, Machine, Moment, Outbox, Output};

use super::run::{COMMIT_US, Event, FarmId, Run, TRAVEL_US, WorkerId};

const TERM: u64 = 1;
/// The leaders do not all look around at the same moment.
const APART_US: u64 = 7_000;

impl Run<'_> {
    /// A farm's workers register, and its leader begins.
    pub(super) fn open(&mut self, farm: FarmId) {
        let slots = self.day.slots;
        let own = self.workers.iter().filter(|crew| crew.home == farm);
        let entries = own.map(|crew| Entry::Join { worker: crew.name.clone(), slots }).collect();
        self.farms[farm].ledger.apply(Batch { time_ms: 0, entries });
        self.time.now_us = farm as u64 * APART_US;
        let loans = self.farms[farm].ledger.loans().clone();
        self.step_office(farm, Input::Command(office::Command::Lead(Term(TERM), loans)));
        self.time.now_us = 0;
        self.refit();
    }

    pub(super) fn look(&mut self, farm: FarmId) {
        self.step_office(farm, Input::Timer(office::Timer::Look));
    }

    pub(super) fn step_office(&mut self, farm: FarmId, input: Input<Office>) {
        let mut outbox = Outbox::new();
        self.farms[farm].office.step(Moment(self.time.now_us), input, &mut outbox);
        for output in outbox.drain() {
            match output {
                Output::Send { to, message } => {
                    let to = self.neighbour_of(farm, to);
                    self.after(TRAVEL_US, Event::Between { from: farm, to, message: Box::new(message) });
                }
                Output::Set { delay, .. } => self.after(delay.min_us, Event::Look(farm)),
                Output::Notify(notice) => self.on_office_notice(farm, notice),
                Output::Cancel(_) | Output::Ignore(_) => {}
            }
        }
    }

    fn on_office_notice(&mut self, farm: FarmId, notice: office::Notice) {
        match notice {
            office::Notice::Propose(entries) => self.propose(farm, entries),
            office::Notice::LookAround => {
                let situation = self.situation(farm);
                self.step_office(farm, Input::Command(office::Command::Situation(situation)));
            }
            office::Notice::Tell(name, word) => {
                if let Some(worker) = self.worker_named(farm, &name) {
                    self.after(TRAVEL_US, Event::ToWorker { farm, worker, word });
                }
            }
            office::Notice::Happened(_) => {}
        }
    }

    /// What a foreman would say of its farm.
    fn situation(&self, farm: FarmId) -> Situation {
        let Self { farms, workers, day, .. } = self;
        let crew = &farms[farm].crew;
        let is_idle = |worker: &&WorkerId| workers[**worker].home == farm && workers[**worker].running.is_empty();
        let idle = crew.iter().filter(is_idle).map(|worker| (workers[*worker].name.clone(), day.slots));
        Situation {
            now_ms: self.time.now_us / 1000,
            queued: farms[farm].queued(),
            free: crew.iter().map(|worker| self.room(*worker)).sum(),
            idle: idle.collect(),
            guests: farms[farm].guests.clone(),
        }
    }

    pub(super) fn hear(&mut self, from: FarmId, to: FarmId, message: loan::Message) {
        let from = self.number_of(to, from);
        self.step_office(to, Input::Message { from, message });
    }

    pub(super) fn propose(&mut self, farm: FarmId, entries: Vec<Entry>) {
        self.after(COMMIT_US, Event::Commit(farm, entries));
    }

    pub(super) fn commit(&mut self, farm: FarmId, entries: Vec<Entry>) {
        let batch = Batch { time_ms: self.time.now_us / 1000, entries };
        let host = &mut self.farms[farm];
        let effects = host.ledger.apply(batch);
        host.guests = host.ledger.workers().keys().filter(|name| home_of(name).is_some()).cloned().collect();
        let loans = host.ledger.loans().clone();
        self.loans += effects.iter().filter(|effect| matches!(effect, Effect::Lent(_))).count() as u64;
        for effect in effects {
            if let Effect::Borrowed(name) = effect {
                self.let_in(farm, name);
            }
        }
        self.refit();
        self.step_office(farm, Input::Command(office::Command::Agreed(loans)));
    }

    /// The foreman asks a worker that may work here now who it is, and it registers.
    fn let_in(&mut self, farm: FarmId, name: String) {
        let worker = self.worker_named(farm, &name);
        if worker.is_some_and(|worker| self.workers[worker].away == Some(farm)) {
            let join = Entry::Join { worker: name, slots: self.day.slots };
            self.after(2 * TRAVEL_US + COMMIT_US, Event::Commit(farm, vec![join]));
        }
    }

    /// Who is given something where may have changed.
    pub(super) fn refit(&mut self) {
        for farm in 0..self.farms.len() {
            let crew = (0..self.workers.len()).filter(|worker| self.is_open(farm, *worker)).collect();
            self.farms[farm].crew = crew;
            self.hand_out(farm);
        }
    }

    fn is_open(&self, farm: FarmId, worker: WorkerId) -> bool {
        let crew = &self.workers[worker];
        let ledger = &self.farms[farm].ledger;
        if crew.current() != farm || crew.is_finishing {
            return false;
        }
        match crew.away {
            None => !ledger.loans().is_lent(&crew.name),
            Some(_) => ledger.workers().contains_key(&name_here(&crew.name, &self.farms[crew.home].name)),
        }
    }

    pub(super) fn tell_leader(&mut self, worker: WorkerId, word: Word) {
        let (home, name) = (self.workers[worker].home, self.workers[worker].name.clone());
        self.step_office(home, Input::Command(office::Command::Said(name, word)));
    }

    /// Who is called so in this farm.
    fn worker_named(&self, farm: FarmId, name: &str) -> Option<WorkerId> {
        let (name, home) = match home_of(name) {
            None => (name, farm),
            Some((name, home)) => (name, self.farms.iter().position(|farm| farm.name == home)?),
        };
        self.workers.iter().position(|crew| crew.home == home && crew.name == name)
    }

    /// Neighbours are counted from 1, beginning with the next farm.
    fn neighbour_of(&self, farm: FarmId, number: ids::FarmId) -> FarmId {
        (farm + usize::try_from(number.0).expect("there are few farms")) % self.farms.len()
    }

    fn number_of(&self, farm: FarmId, neighbour: FarmId) -> ids::FarmId {
        ids::FarmId(((neighbour + self.farms.len() - farm) % self.farms.len()) as u64)
    }
}
