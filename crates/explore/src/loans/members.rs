//! The workers of an exploration of loans: whom each works for, and what it is told and tells.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use primus_core::ServerId;
use primus_core::ledger::LoanId;
use primus_core::loan::Word;
use primus_core::loan::allegiance::{self, Allegiance};
use primus_core::machine::{Input, Machine, Moment, Outbox, Output, Token};
use primus_core::planted::Planted;

use super::action::Action;
use super::scene::{Scene, TICK_MS};
use super::{LATE_CALL, LENDER};

/// A worker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Member {
    pub(super) name: String,
    planted: Planted,
    /// Nothing while it is dead.
    allegiance: Option<Arc<Allegiance>>,
    /// What its disk says, and what a death may destroy.
    epoch: LoanId,
    unsynced: Option<(Token, LoanId)>,
    /// When each timer runs out, in ticks.
    timers: BTreeMap<allegiance::Timer, u64>,
    /// Does it run something?
    is_busy: bool,
    pub(super) is_away: bool,
    /// Does it reach its own farm, and the other one?
    pub(super) links: [bool; 2],
    /// What its own leader has said,
    pub(super) down: VecDeque<Word>,
    /// what it has said itself,
    pub(super) up: VecDeque<Word>,
    /// and what the other leader has.
    pub(super) abroad: VecDeque<Word>,
    /// It is about to introduce itself abroad, under this loan.
    pub(super) greeting: Option<LoanId>,
}

/// Where a worker can be of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Home,
    Away,
    /// On its way, or about to stay: it takes nothing new.
    Neither,
}

impl Member {
    pub(super) fn new(worker: usize, planted: Planted) -> Self {
        Self {
            name: format!("w{}", worker + 1),
            planted,
            allegiance: Some(Arc::new(Allegiance::new(LoanId(0), planted))),
            epoch: LoanId(0),
            unsynced: None,
            timers: BTreeMap::new(),
            is_busy: false,
            is_away: false,
            links: [true; 2],
            down: VecDeque::new(),
            up: VecDeque::new(),
            abroad: VecDeque::new(),
            greeting: None,
        }
    }

    pub(super) const fn is_alive(&self) -> bool {
        self.allegiance.is_some()
    }

    pub(super) const fn has_unsynced(&self) -> bool {
        self.unsynced.is_some()
    }

    pub(super) fn place(&self) -> Option<Place> {
        self.allegiance.as_ref().map(|allegiance| match allegiance.place() {
            allegiance::Place::Home => Place::Home,
            allegiance::Place::Away { .. } => Place::Away,
            _ => Place::Neither,
        })
    }

    /// The loan under which it works for the other farm.
    pub(super) fn away_under(&self) -> Option<LoanId> {
        let allegiance = self.allegiance.as_ref()?;
        allegiance.farm().map(|_| allegiance.epoch())
    }

    /// Has it, or its disk, heard of this loan?
    pub(super) fn knows(&self, loan: LoanId) -> bool {
        self.allegiance.as_ref().map_or(self.epoch, |allegiance| allegiance.epoch()) >= loan
    }

    pub(super) const fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// It is away, and takes nothing new there.
    pub(super) fn is_returning(&self) -> bool {
        self.is_away && self.place() == Some(Place::Neither)
    }

    pub(super) fn deliveries(&self, worker: usize, actions: &mut Vec<Action>) {
        actions.extend((!self.down.is_empty()).then_some(Action::Call(worker)));
        actions.extend((!self.up.is_empty()).then_some(Action::Word(worker)));
        actions.extend((!self.abroad.is_empty()).then_some(Action::Abroad(worker)));
        actions.extend(self.greeting.map(|_| Action::Greeting(worker)));
        actions.extend(self.unsynced.map(|_| Action::Synced(worker)));
    }

    pub(super) fn call(&mut self, word: Word) {
        if self.is_alive() && self.links[LENDER] && self.down.back() != Some(&word) {
            self.down.push_back(word);
        }
    }

    pub(super) fn call_from_abroad(&mut self, word: Word) {
        if self.is_away && self.links[super::BORROWER] && self.abroad.back() != Some(&word) {
            self.abroad.push_back(word);
        }
    }

    pub(super) fn greet(&mut self) {
        self.greeting = self.away_under().filter(|_| self.links[super::BORROWER]);
    }

    pub(super) fn forget_home(&mut self) {
        self.down.clear();
        self.up.clear();
    }

    pub(super) fn forget_abroad(&mut self) {
        self.abroad.clear();
        self.greeting = None;
    }

    pub(super) fn die(&mut self, is_synced: bool) {
        if let Some((_, epoch)) = self.unsynced.take().filter(|_| is_synced) {
            self.epoch = epoch;
        }
        self.allegiance = None;
        self.timers.clear();
        (self.is_busy, self.is_away) = (false, false);
        self.forget_home();
        self.forget_abroad();
    }

    pub(super) fn start(&mut self) {
        self.allegiance = Some(Arc::new(Allegiance::new(self.epoch, self.planted)));
    }
}

impl Scene {
    pub(super) fn on_call(&mut self, worker: usize) {
        let Some(message) = self.members[worker].down.pop_front() else { return };
        let knows = |loan: &LoanId| self.members[worker].knows(*loan);
        if matches!(&message, Word::Redirect { loan, .. } if knows(loan)) {
            self.course.pass(LATE_CALL);
        }
        let from = self.leader();
        self.step_allegiance(worker, Input::Message { from, message });
    }

    pub(super) fn on_abroad(&mut self, worker: usize) {
        let Some(word) = self.members[worker].abroad.pop_front() else { return };
        self.step_allegiance(worker, Input::Command(allegiance::Command::Abroad(word)));
    }

    pub(super) fn on_synced(&mut self, worker: usize) {
        let Some((token, epoch)) = self.members[worker].unsynced.take() else { return };
        self.members[worker].epoch = epoch;
        self.step_allegiance(worker, Input::Persisted(token));
    }

    pub(super) fn meet_leader(&mut self, worker: usize, leader: ServerId) {
        self.step_allegiance(worker, Input::Command(allegiance::Command::Home(Some(leader))));
    }

    pub(super) fn lose_home(&mut self, worker: usize) {
        self.step_allegiance(worker, Input::Command(allegiance::Command::Home(None)));
    }

    pub(super) fn set_idle(&mut self, worker: usize, is_idle: bool) {
        if self.members[worker].is_busy == is_idle {
            self.members[worker].is_busy = !is_idle;
            self.step_allegiance(worker, Input::Command(allegiance::Command::Idle(is_idle)));
        }
    }

    pub(super) fn fire_due(&mut self, worker: usize) {
        let now = self.now();
        let is_due = |_: &allegiance::Timer, due: &mut u64| *due <= now;
        let due: Vec<_> = self.members[worker].timers.extract_if(.., is_due).collect();
        due.into_iter().for_each(|(timer, _)| self.step_allegiance(worker, Input::Timer(timer)));
    }

    fn step_allegiance(&mut self, worker: usize, input: Input<Allegiance>) {
        let Some(allegiance) = &mut self.members[worker].allegiance else { return };
        let mut out = Outbox::new();
        Arc::make_mut(allegiance).step(Moment::START, input, &mut out);
        let now = self.now();
        for output in out.drain() {
            let member = &mut self.members[worker];
            match output {
                Output::Send { message, .. } if member.up.back() != Some(&message) => member.up.push_back(message),
                Output::Persist { token, records } => {
                    member.unsynced = records.last().map(|record| (token, record.epoch));
                }
                Output::Set { timer, delay } => {
                    _ = member.timers.insert(timer, now + delay.min_us.div_ceil(TICK_MS * 1000));
                }
                Output::Cancel(timer) => _ = member.timers.remove(&timer),
                Output::Notify(notice) => self.obey(worker, &notice),
                _ => {}
            }
        }
    }

    fn obey(&mut self, worker: usize, notice: &allegiance::Notice) {
        match notice {
            allegiance::Notice::Go { .. } => {
                self.members[worker].is_away = true;
                self.members[worker].greet();
            }
            allegiance::Notice::Finish => {}
            allegiance::Notice::Stop => self.set_idle(worker, true),
            allegiance::Notice::ComeHome => {
                self.members[worker].is_away = false;
                self.members[worker].forget_abroad();
            }
        }
    }
}
