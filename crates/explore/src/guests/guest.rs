//! The guest: whom it works for, what it does for the borrower, and what its disk has.

use std::collections::BTreeSet;
use std::sync::Arc;

use primus_core::ServerId;
use primus_core::farm::Message;
use primus_core::farm::worker::{self, Record, Worker};
use primus_core::ledger::loans::name_here;
use primus_core::ledger::{Held, LoanId, Outcome, Report, Tail, Verdict};
use primus_core::loan::Word;
use primus_core::loan::allegiance::{self, Allegiance, Place};
use primus_core::machine::{Input, Machine, Moment, Outbox, Output, Token};
use primus_core::planted::Planted;

use super::link::{Link, Words};
use super::scene::{BEAT, BORROWER, LENDER, Scene, TASK_US};
use super::{LENT_AGAIN, NOTHING_RUNS_AT_HOME, TOLD_FROM_HOME, WENT_BACK};

/// Who leads its own farm, always.
const HOME_LEADER: ServerId = ServerId(1);
/// Nothing here has a length.
const ANY_MS: u64 = 1000;

/// A worker of the lender.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Guest {
    planted: Planted,
    /// Nothing while it is dead.
    pub(super) allegiance: Option<Arc<Allegiance>>,
    /// What it does for the borrower, or has to tell it.
    pub(super) service: Option<Arc<Worker>>,
    is_away: bool,
    is_idle: bool,
    pub(super) timers: BTreeSet<allegiance::Timer>,
    pub(super) is_gathering: bool,
    /// What its disk has, and what a death may destroy.
    records: Vec<Record>,
    pub(super) unsynced: Vec<(Token, Vec<Record>)>,
    epoch: LoanId,
    pub(super) unsynced_epoch: Option<(Token, LoanId)>,
    pub(super) link: Link,
}

impl Guest {
    pub(super) fn new(planted: Planted) -> Self {
        Self {
            planted,
            allegiance: Some(Arc::new(Allegiance::new(LoanId(0), planted))),
            service: None,
            is_away: false,
            is_idle: true,
            timers: BTreeSet::new(),
            is_gathering: false,
            records: Vec::new(),
            unsynced: Vec::new(),
            epoch: LoanId(0),
            unsynced_epoch: None,
            link: Link::default(),
        }
    }

    pub(super) fn name() -> String {
        name_here("w1", LENDER)
    }

    /// Is it with the borrower, and not about to go?
    pub(super) fn can_return(&self) -> bool {
        self.allegiance.as_ref().is_some_and(|allegiance| matches!(allegiance.place(), Place::Away { .. }))
    }

    pub(super) fn is_at_home(&self) -> bool {
        self.allegiance.as_ref().is_some_and(|allegiance| *allegiance.place() == Place::Home)
    }

    pub(super) fn is_written(&self) -> bool {
        self.unsynced.is_empty() && self.unsynced_epoch.is_none()
    }

    /// The first thing that it runs.
    pub(super) fn runs(&self) -> Option<Held> {
        self.service.as_ref()?.running().next()
    }

    fn begin(&mut self, standing: worker::Allegiance) {
        let worker = Worker::new(Self::name(), 1, BEAT, self.records.clone());
        self.service = Some(Arc::new(worker.standing(standing)));
    }

    pub(super) fn die(&mut self, is_synced: bool) {
        let unsynced = std::mem::take(&mut self.unsynced);
        self.records.extend(unsynced.into_iter().filter(|_| is_synced).flat_map(|(_, records)| records));
        if let Some((_, epoch)) = self.unsynced_epoch.take().filter(|_| is_synced) {
            self.epoch = epoch;
        }
        (self.allegiance, self.service) = (None, None);
        (self.is_away, self.is_idle, self.is_gathering) = (false, true, false);
        self.timers.clear();
        self.link.cut();
        self.link.close();
    }

    /// It is at home; for the borrower it only has results to tell, if any.
    fn start(&mut self) {
        self.allegiance = Some(Arc::new(Allegiance::new(self.epoch, self.planted)));
        self.begin(worker::Allegiance::Over);
        self.part();
    }

    /// Whoever has recorded everything is not needed any more; and what its disk was given last is there before it is opened
    /// again.
    fn part(&mut self) {
        let is_settled = self.service.as_ref().is_some_and(|service| service.unrecorded() == 0);
        let is_going =
            self.allegiance.as_ref().is_some_and(|allegiance| matches!(allegiance.place(), Place::Going { .. }));
        if is_settled && !self.is_away && !is_going {
            self.service = None;
            self.is_gathering = false;
            let unsynced = std::mem::take(&mut self.unsynced);
            self.records.extend(unsynced.into_iter().flat_map(|(_, records)| records));
            self.link.close();
        }
    }
}

impl Scene {
    /// Its own leader is always there.
    pub(super) fn start_guest(&mut self) {
        self.guest.start();
        self.meet_home();
    }

    pub(super) fn meet_home(&mut self) {
        self.step_allegiance(Input::Command(allegiance::Command::Home(Some(HOME_LEADER))));
    }

    pub(super) fn call_abroad(&mut self) {
        self.loan = LoanId(self.loan.0 + 1);
        let (loan, farm) = (self.loan, BORROWER.to_owned());
        self.hear_home(Word::Redirect { loan, farm, for_ms: ANY_MS, within_ms: ANY_MS });
    }

    pub(super) fn call_home(&mut self) {
        self.hear_home(Word::Return { loan: self.loan, within_ms: ANY_MS });
    }

    fn hear_home(&mut self, message: Word) {
        self.step_allegiance(Input::Message { from: HOME_LEADER, message });
    }

    pub(super) fn release_guest(&mut self) {
        self.guest.link.tell_guest(Words::Loan(Word::Return { loan: self.loan, within_ms: ANY_MS }));
    }

    /// What the leader says of loans counts only from one that has welcomed it.
    pub(super) fn on_told(&mut self) {
        match self.guest.link.to_guest.pop_front() {
            Some(Words::Work(message)) => self.step_service(Input::Message { from: self.leader(), message }),
            Some(Words::Loan(word)) => {
                let serves = self.guest.service.as_ref().and_then(|service| service.serves());
                if serves.is_some() && self.guest.is_away {
                    self.step_allegiance(Input::Command(allegiance::Command::Abroad(word)));
                }
            }
            None => {}
        }
    }

    pub(super) fn dial(&mut self) {
        if self.guest.link.is_known {
            self.leader_notices();
        }
        self.guest.link = Link::to(self.leader());
        self.step_service(Input::Command(worker::Command::Serve(self.leader())));
    }

    pub(super) fn guest_notices(&mut self) {
        self.guest.link.close();
        let leader = self.guest.link.leader;
        leader.into_iter().for_each(|leader| self.step_service(Input::LinkDown(leader)));
    }

    pub(super) fn on_synced(&mut self) {
        if self.guest.unsynced.is_empty() {
            return;
        }
        let (token, records) = self.guest.unsynced.remove(0);
        self.guest.records.extend(records);
        self.step_service(Input::Persisted(token));
    }

    pub(super) fn on_epoch_synced(&mut self) {
        let Some((token, epoch)) = self.guest.unsynced_epoch.take() else { return };
        self.guest.epoch = epoch;
        self.step_allegiance(Input::Persisted(token));
    }

    pub(super) fn fire(&mut self, timer: allegiance::Timer) {
        self.guest.timers.remove(&timer);
        self.step_allegiance(Input::Timer(timer));
    }

    pub(super) fn end_guests_task(&mut self) {
        let ended = self.guest.runs().map(|held| worker::Command::Ended(report(held, Guest::name())));
        ended.into_iter().for_each(|ended| self.step_service(Input::Command(ended)));
    }

    pub(super) fn step_service(&mut self, input: Input<Worker>) {
        let Some(service) = &mut self.guest.service else { return };
        let mut out = Outbox::new();
        Arc::make_mut(service).step(Moment::START, input, &mut out);
        out.drain().for_each(|output| self.carry_out(output));
        self.note_idle();
        let is_busy = self.guest.runs().is_some();
        self.course.must(NOTHING_RUNS_AT_HOME, !is_busy || self.guest.is_away);
        self.guest.part();
    }

    fn carry_out(&mut self, output: Output<Worker>) {
        match output {
            Output::Send { message, .. } => self.say(message),
            Output::Persist { token, records } => self.guest.unsynced.push((token, records)),
            Output::Set { timer: worker::Timer::Gather, .. } => self.guest.is_gathering = true,
            Output::Cancel(worker::Timer::Gather) => self.guest.is_gathering = false,
            Output::Notify(worker::Notice::Start(assignment)) => self.on_start(assignment.held),
            _ => {}
        }
    }

    fn say(&mut self, message: Message) {
        let tells = match &message {
            Message::Hello(hello) => !hello.ended.is_empty(),
            Message::Ended(reports) => !reports.is_empty(),
            _ => false,
        };
        if tells && self.guest.is_at_home() {
            self.course.pass(TOLD_FROM_HOME);
        }
        if let Message::GaveBack(back) = &message
            && back.iter().any(|held| !self.has_begun(*held))
        {
            self.course.pass(WENT_BACK);
        }
        self.guest.link.tell_leader(message);
    }

    /// Its allegiance hears whether it has anything to do.
    fn note_idle(&mut self) {
        let service = self.guest.service.as_ref().filter(|_| self.guest.is_away);
        let is_idle = service.is_none_or(|service| service.is_idle());
        if std::mem::replace(&mut self.guest.is_idle, is_idle) != is_idle {
            self.step_allegiance(Input::Command(allegiance::Command::Idle(is_idle)));
        }
    }

    fn step_allegiance(&mut self, input: Input<Allegiance>) {
        let Some(allegiance) = &mut self.guest.allegiance else { return };
        let mut out = Outbox::new();
        Arc::make_mut(allegiance).step(Moment::START, input, &mut out);
        for output in out.drain() {
            match output {
                Output::Persist { token, records } => {
                    self.guest.unsynced_epoch = records.last().map(|record| (token, record.epoch));
                }
                Output::Set { timer, .. } => _ = self.guest.timers.insert(timer),
                Output::Cancel(timer) => _ = self.guest.timers.remove(&timer),
                Output::Notify(notice) => self.obey(&notice),
                _ => {}
            }
        }
    }

    fn obey(&mut self, notice: &allegiance::Notice) {
        match notice {
            allegiance::Notice::Go { loan, .. } => self.go(worker::Allegiance::Lent(*loan)),
            allegiance::Notice::Finish => self.step_service(Input::Command(worker::Command::Open(false))),
            allegiance::Notice::Stop => self.stop(),
            allegiance::Notice::ComeHome => {
                self.guest.is_away = false;
                let over = worker::Command::Allegiance(worker::Allegiance::Over);
                self.step_service(Input::Command(over));
            }
        }
    }

    /// Perhaps it has results from there still.
    fn go(&mut self, lent: worker::Allegiance) {
        self.guest.is_away = true;
        if self.guest.service.is_none() {
            return self.guest.begin(lent);
        }
        self.course.pass(LENT_AGAIN);
        self.step_service(Input::Command(worker::Command::Open(true)));
        self.step_service(Input::Command(worker::Command::Allegiance(lent)));
    }

    fn stop(&mut self) {
        let service = self.guest.service.iter();
        let unfinished: Vec<Held> = service.flat_map(|service| service.unfinished().collect::<Vec<_>>()).collect();
        for held in unfinished {
            self.note_stopped(held);
            self.step_service(Input::Command(worker::Command::Abandoned(held)));
        }
    }
}

pub(super) fn report(held: Held, worker: String) -> Report {
    let outcome = Outcome {
        attempt: held.attempt,
        worker,
        verdict: Verdict::Exited(0),
        started_us: 0,
        took_us: TASK_US,
        stdout: Tail::default(),
        stderr: Tail::default(),
    };
    Report { task: held.task, outcome }
}
