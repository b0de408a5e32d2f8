//! The workers: whom each works for.

use std::collections::{BTreeMap, VecDeque};

use primus_core::ServerId;
use primus_core::ledger::loans::name_here;
use primus_core::ledger::{Entry, LoanId};
use primus_core::loan::allegiance::{self, Allegiance};
use primus_core::loan::{Word, office};
use primus_core::machine::{Input, Machine, Moment, Outbox, Output, Token};
use primus_core::planted::Planted;

use super::run::{COMMIT_US, Crew, Event, FarmId, Run, SYNC_US, TRAVEL_US, WorkerId};

/// Every farm is led by the same server all day.
const LEADER: ServerId = ServerId(1);

impl Run<'_> {
    /// A worker has found its own leader.
    pub(super) fn bring_home(&mut self, worker: WorkerId) {
        self.step_allegiance(worker, Input::Command(allegiance::Command::Home(Some(LEADER))));
    }

    pub(super) fn tell_worker(&mut self, farm: FarmId, worker: WorkerId, word: Word) {
        let crew = &self.workers[worker];
        if crew.home == farm {
            self.step_allegiance(worker, Input::Message { from: LEADER, message: word });
        } else if crew.away == Some(farm) {
            self.step_allegiance(worker, Input::Command(allegiance::Command::Abroad(word)));
        }
    }

    pub(super) fn synced(&mut self, worker: WorkerId, token: Token) {
        self.step_allegiance(worker, Input::Persisted(token));
    }

    pub(super) fn on_allegiance_timer(&mut self, worker: WorkerId, timer: allegiance::Timer, number: u64) {
        if self.workers[worker].timers.get(&timer) == Some(&number) {
            self.workers[worker].timers.remove(&timer);
            self.step_allegiance(worker, Input::Timer(timer));
        }
    }

    fn step_allegiance(&mut self, worker: WorkerId, input: Input<Allegiance>) {
        let mut outbox = Outbox::new();
        self.workers[worker].allegiance.step(Moment(self.time.now_us), input, &mut outbox);
        for output in outbox.drain() {
            match output {
                Output::Send { message, .. } => self.after(TRAVEL_US, Event::ToLeader(worker, message)),
                Output::Persist { token, .. } => self.after(SYNC_US, Event::Synced(worker, token)),
                Output::Set { timer, delay } => {
                    let number = self.number();
                    self.workers[worker].timers.insert(timer, number);
                    self.after(delay.min_us, Event::AllegianceTimer(worker, timer, number));
                }
                Output::Cancel(timer) => _ = self.workers[worker].timers.remove(&timer),
                Output::Notify(notice) => self.obey(worker, notice),
                Output::Ignore(_) => {}
            }
        }
    }

    fn obey(&mut self, worker: WorkerId, notice: allegiance::Notice) {
        match notice {
            allegiance::Notice::Go { farm, loan } => self.go(worker, &farm, loan),
            allegiance::Notice::Finish => {
                self.workers[worker].is_finishing = true;
                self.refit();
            }
            allegiance::Notice::Stop => self.stop(worker),
            allegiance::Notice::ComeHome => self.come_home(worker),
        }
    }

    fn go(&mut self, worker: WorkerId, farm: &str, loan: LoanId) {
        let farm = self.farms.iter().position(|host| host.name == farm).expect("only neighbours borrow");
        self.workers[worker].away = Some(farm);
        self.note_change(worker);
        self.refit();
        // It has to find the leader first.
        self.after(2 * TRAVEL_US, Event::Arrive { farm, worker, loan });
    }

    pub(super) fn arrive(&mut self, farm: FarmId, worker: WorkerId, loan: LoanId) {
        let name = self.guest_name(worker);
        self.step_office(farm, Input::Command(office::Command::Arrived(name, loan)));
    }

    fn come_home(&mut self, worker: WorkerId) {
        let name = self.guest_name(worker);
        let crew = &mut self.workers[worker];
        crew.is_finishing = false;
        if let Some(farm) = crew.away.take() {
            let leave = Entry::Leave { worker: name };
            self.after(TRAVEL_US + COMMIT_US, Event::Commit(farm, vec![leave]));
        }
        self.note_change(worker);
        self.refit();
    }

    fn guest_name(&self, worker: WorkerId) -> String {
        let crew = &self.workers[worker];
        name_here(&crew.name, &self.farms[crew.home].name)
    }

    /// Its allegiance hears whether it has anything to do.
    pub(super) fn tell_idle(&mut self, worker: WorkerId) {
        let crew = &mut self.workers[worker];
        let is_idle = crew.running.is_empty();
        if crew.told_idle != is_idle {
            crew.told_idle = is_idle;
            self.step_allegiance(worker, Input::Command(allegiance::Command::Idle(is_idle)));
        }
    }

    /// A worker changes farms: how often has it done so within the time that it should stay?
    fn note_change(&mut self, worker: WorkerId) {
        let (now_us, stay_us) = (self.time.now_us, self.day.rules.stay_ms.saturating_mul(1000));
        let changes = &mut self.workers[worker].changes;
        while changes.front().is_some_and(|change_us| change_us.saturating_add(stay_us) <= now_us) {
            changes.pop_front();
        }
        changes.push_back(now_us);
        self.thrash_max = self.thrash_max.max(changes.len());
    }
}

impl Crew {
    pub(super) fn new(home: FarmId, number: u64) -> Self {
        Self {
            home,
            name: format!("w{number}"),
            allegiance: Allegiance::new(LoanId(0), Planted::NONE),
            away: None,
            is_finishing: false,
            told_idle: true,
            timers: BTreeMap::new(),
            running: BTreeMap::new(),
            changes: VecDeque::new(),
        }
    }

    /// The farm that it works for.
    pub(super) fn current(&self) -> FarmId {
        self.away.unwrap_or(self.home)
    }
}
