//! The guest: the worker that ships, and the link that it has to the borrower.

use primus_core::farm::{self, worker as work};
use primus_core::ledger::loans::name_here;
use primus_core::ledger::{Held, LoanId};
use primus_core::loan::{WorkerMessage, placement};
use primus_core::machine::{Input, Output};
use primus_core::planted::Planted;
use primus_core::{FarmId, ServerId, Term};
use primus_lab::tasks::report;
use primus_server::worker::{Command, Happening, Message, Notice, Timer, Worker};

use super::link::Link;
use super::scene::{Scene, TASK_US};
use super::{LENT_AGAIN, NOTHING_RUNS_AT_HOME, TOLD_FROM_HOME, WENT_BACK};
use crate::host::{ABROAD, Effects, HOME, Host, call, hears, meets};

/// Who leads its own farm, always.
const HOME_LEADER: ServerId = ServerId(1);
const HOME_TERM: Term = Term(1);
/// Nothing here has a length.
const ANY_MS: u64 = 1000;

/// A worker of the lender.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Guest {
    pub(super) host: Host,
    pub(super) link: Link,
}

impl Guest {
    pub(super) fn new(planted: Planted) -> Self {
        Self { host: Host::new("w1".to_owned(), 1, planted), link: Link::default() }
    }

    pub(super) fn name() -> String {
        name_here("w1", HOME)
    }

    /// The first thing that it runs for the borrower.
    pub(super) fn runs(&self) -> Option<Held> {
        self.host.work(true)?.running().next()
    }

    /// Its work for the borrower has set this timer.
    pub(super) fn timer(&self, timer: work::Timer) -> Option<Timer> {
        self.host.farm_abroad().map(|farm| Timer::Work(farm, timer))
    }

    pub(super) fn die(&mut self, is_synced: bool) {
        self.host.die(is_synced);
        self.link.cut();
        self.link.close();
    }
}

/// What it hears.
impl Scene {
    /// Its own leader is always there.
    pub(super) fn start_guest(&mut self) {
        let effects = self.guest.host.start();
        self.carry_out(effects);
        self.guest_turns(meets(Host::home(HOME_LEADER), HOME_TERM));
    }

    pub(super) fn call_abroad(&mut self) {
        self.loan = LoanId(self.loan.0 + 1);
        let (loan, farm) = (self.loan, ABROAD.to_owned());
        self.hear_home(WorkerMessage::Redirect { loan, farm, for_ms: ANY_MS, within_ms: ANY_MS });
    }

    pub(super) fn call_home(&mut self) {
        self.hear_home(WorkerMessage::Return { loan: self.loan, within_ms: ANY_MS });
    }

    fn hear_home(&mut self, word: WorkerMessage) {
        self.guest_turns([hears(Host::home(HOME_LEADER), call(word))]);
    }

    pub(super) fn release_guest(&mut self) {
        self.guest.link.tell_guest(call(WorkerMessage::Return { loan: self.loan, within_ms: ANY_MS }));
    }

    pub(super) fn on_told(&mut self) {
        let Some(message) = self.guest.link.to_guest.pop_front() else { return };
        let leader = self.guest.host.abroad(self.leader());
        leader.into_iter().for_each(|leader| self.guest_turns([hears(leader, message.clone())]));
    }

    /// A leader says at once that it leads.
    pub(super) fn dial(&mut self) {
        if self.guest.link.is_known {
            self.leader_notices();
        }
        self.guest.link = Link::to(self.leader());
        let Some(leader) = self.guest.host.abroad(self.leader()) else { return };
        self.guest_turns([Input::LinkUp(leader), hears(leader, Message::Leads(self.term()))]);
    }

    pub(super) fn guest_notices(&mut self) {
        self.guest.link.close();
        let leader = self.guest.link.leader.and_then(|leader| self.guest.host.abroad(leader));
        leader.into_iter().for_each(|leader| self.guest_turns([Input::LinkDown(leader)]));
    }

    pub(super) fn sync_guest(&mut self, is_epoch: bool) {
        let effects = self.guest.host.sync(is_epoch);
        self.carry_out(effects);
    }

    pub(super) fn fire_guests(&mut self, timer: Timer) {
        let effects = self.guest.host.fire(timer);
        self.carry_out(effects);
    }

    pub(super) fn pass_deadline(&mut self) {
        let unfinished = self.guest.host.work(true).into_iter().flat_map(work::Worker::unfinished);
        self.stopped.extend(unfinished.map(|held| held.task));
        self.fire_guests(Timer::Placement(placement::Timer::Deadline));
    }

    pub(super) fn end_guests_task(&mut self) {
        let ended = self.guest.runs().zip(self.guest.host.farm_abroad());
        let ended = ended.map(|(held, farm)| Command::Ended(farm, report(held, Guest::name(), 0, TASK_US)));
        ended.into_iter().for_each(|ended| self.guest_turns([Input::Command(ended)]));
    }

    fn guest_turns(&mut self, inputs: impl IntoIterator<Item = Input<Worker>>) {
        let effects = self.guest.host.turn(inputs);
        self.carry_out(effects);
    }
}

/// What it does.
impl Scene {
    fn carry_out(&mut self, effects: Effects) {
        let begins = effects.iter().any(|effect| matches!(effect, Output::Notify(Notice::Begin { .. })));
        for effect in effects {
            match effect {
                // It has results from there still.
                Output::Notify(Notice::Happened(Happening::Lent(..))) if !begins => self.course.pass(LENT_AGAIN),
                Output::Send { to, message: Message::Work(message) } if to.farm != FarmId::OWN => self.say(message),
                Output::Notify(notice) => self.on_guests_notice(notice),
                _ => {}
            }
        }
        let is_busy = self.guest.runs().is_some();
        self.course.must(NOTHING_RUNS_AT_HOME, !is_busy || self.guest.host.is_away());
    }

    fn on_guests_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Start(_, assignment) => self.on_start(assignment.held),
            Notice::Part(_) => self.guest.link.close(),
            _ => {}
        }
    }

    fn say(&mut self, message: farm::Message) {
        let tells = match &message {
            farm::Message::Hello(hello) => !hello.ended.is_empty(),
            farm::Message::Ended(reports) => !reports.is_empty(),
            _ => false,
        };
        if tells && self.guest.host.is_at_home() {
            self.course.pass(TOLD_FROM_HOME);
        }
        if let farm::Message::GaveBack(back) = &message
            && back.iter().any(|held| !self.has_begun(*held))
        {
            self.course.pass(WENT_BACK);
        }
        self.guest.link.tell_leader(message);
    }
}
