//! A worker's own side: when it goes, and when it comes home.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::farm::worker;
use crate::ledger::LoanId;
use crate::loan::WorkerMessage;
use crate::loan::placement::{self, Place, Placement};
use crate::planted::Planted;
use crate::{Delay, Input, Machine, Moment, Outbox, Output, ServerId, Term, Token};

/// The server that leads the worker's own farm.
const HOME: ServerId = ServerId(1);

/// A worker's placement, and what follows from each input.
struct Hand(Placement);

impl Hand {
    /// Has just started, is welcome at home, and has followed calls up to this one before.
    fn new(epoch: u64) -> Self {
        let mut hand = Self(Placement::new(LoanId(epoch), Planted::NONE));
        hand.tell(placement::Command::Home(Some(HOME)));
        hand
    }

    /// Is away under this loan.
    fn away(loan: u64) -> Self {
        let mut hand = Self::new(0);
        hand.called(loan);
        hand.written(1);
        hand
    }

    fn step(&mut self, input: Input<Placement>) -> Vec<String> {
        let mut out = Outbox::new();
        self.0.step(Moment::START, input, &mut out);
        out.drain().map(|output| output.to_string()).filter(|words| !words.starts_with("ignore")).collect()
    }

    fn tell(&mut self, command: placement::Command) -> Vec<String> {
        self.step(Input::Command(command))
    }

    fn hears(&mut self, message: WorkerMessage) -> Vec<String> {
        self.step(Input::Message { from: HOME, message })
    }

    fn called(&mut self, loan: u64) -> Vec<String> {
        self.hears(WorkerMessage::Redirect {
            loan: LoanId(loan),
            farm: "south".into(),
            for_ms: 60_000,
            within_ms: 10_000,
        })
    }

    fn called_home(&mut self, loan: u64) -> Vec<String> {
        self.hears(WorkerMessage::Return { loan: LoanId(loan), within_ms: 10_000 })
    }

    fn sent_home(&mut self, loan: u64) -> Vec<String> {
        self.tell(placement::Command::Abroad(WorkerMessage::Return { loan: LoanId(loan), within_ms: 10_000 }))
    }

    fn busy(&mut self, is_busy: bool) -> Vec<String> {
        self.tell(placement::Command::Idle(!is_busy))
    }

    fn written(&mut self, token: u64) -> Vec<String> {
        self.step(Input::Persisted(Token(token)))
    }
}

#[test]
fn a_call_is_on_disk_before_it_is_followed() {
    let mut hand = Hand::new(4);
    assert_eq!(hand.called(5), ["persist 1 epoch 5"]);
    assert_eq!(hand.called(5), [""; 0], "neither here nor there");
    assert_eq!(hand.tell(placement::Command::Home(Some(HOME))), [""; 0]);
    assert_eq!(hand.written(1), ["go to south under 5", "set lease", "send 1 away under 5"]);
    assert_eq!(hand.0.farm(), Some("south"));
}

#[test]
fn a_late_call_changes_nothing() {
    let mut hand = Hand::new(5);
    assert_eq!(hand.called(5), ["send 1 at home, last away under 5"]);
    assert_eq!(hand.called(4), ["send 1 at home, last away under 5"]);
    let mut hand = Hand::away(5);
    assert_eq!(hand.called(6), ["send 1 away under 5"], "first it comes home");
}

#[test]
fn only_its_own_leader_sends_a_worker_abroad() {
    let mut hand = Hand::new(0);
    let call = WorkerMessage::Redirect { loan: LoanId(9), farm: "south".into(), for_ms: 1, within_ms: 1 };
    assert_eq!(hand.step(Input::Message { from: ServerId(2), message: call.clone() }), [""; 0]);
    assert_eq!(hand.tell(placement::Command::Abroad(call)), [""; 0]);
    assert_eq!(hand.sent_home(9), [""; 0], "nor does another one's word keep it at home");
    assert_eq!(hand.0.epoch(), LoanId(0));
}

#[test]
fn a_worker_ends_what_it_has_before_it_goes() {
    let mut hand = Hand::new(0);
    hand.busy(true);
    assert_eq!(hand.called(5), [""; 0]);
    hand.busy(false);
    assert_eq!(hand.called(5), ["persist 1 epoch 5"]);
    // It was taken for dead meanwhile, came back and got something to do.
    assert_eq!(hand.busy(true), [""; 0]);
    assert_eq!(hand.written(1), ["send 1 at home, last away under 5"]);
}

#[test]
fn a_worker_that_is_wanted_back_before_it_has_gone_stays() {
    let mut hand = Hand::new(4);
    hand.busy(true);
    assert_eq!(hand.called_home(5), ["persist 1 epoch 5"]);
    assert_eq!(hand.called_home(5), [""; 0]);
    assert_eq!(hand.written(1), ["send 1 at home, last away under 5"]);
    hand.busy(false);
    assert_eq!(hand.called(5), ["send 1 at home, last away under 5"], "the call comes too late");
    hand.called(6);
    assert_eq!(hand.called_home(6), [""; 0]);
    assert_eq!(hand.written(2), ["send 1 at home, last away under 6"]);
}

#[test]
fn a_worker_ends_what_runs_before_it_comes_home() {
    let mut hand = Hand::away(5);
    hand.busy(true);
    assert_eq!(hand.sent_home(4), [""; 0], "another loan");
    assert_eq!(hand.sent_home(5), ["cancel lease", "set deadline", "finish"]);
    assert_eq!(hand.called_home(5), [""; 0], "it has heard that");
    assert_eq!(hand.0.farm(), Some("south"));
    assert_eq!(hand.busy(false), ["cancel deadline", "come home", "send 1 at home, last away under 5"]);
    assert_eq!(hand.0.place(), &Place::Home);
}

#[test]
fn what_takes_too_long_is_stopped() {
    let mut hand = Hand::away(5);
    hand.busy(true);
    hand.called_home(5);
    assert_eq!(hand.step(Input::Timer(placement::Timer::Deadline)), ["stop"]);
    assert_eq!(hand.busy(false), ["cancel deadline", "come home", "send 1 at home, last away under 5"]);
}

#[test]
fn a_worker_whose_time_is_over_stays_while_its_home_is_out_of_reach() {
    let mut hand = Hand::away(5);
    hand.tell(placement::Command::Home(None));
    assert_eq!(hand.step(Input::Timer(placement::Timer::Lease)), ["set lease"]);
    assert_eq!(hand.tell(placement::Command::Home(Some(ServerId(3)))), ["send 3 away under 5"]);
    let said = hand.step(Input::Timer(placement::Timer::Lease));
    assert_eq!(said[2..], ["finish", "cancel deadline", "come home", "send 3 at home, last away under 5"]);
}

#[test]
fn a_worker_that_has_started_again_is_at_home() {
    let mut hand = Hand(Placement::new(LoanId(5), Planted::NONE));
    assert_eq!(hand.tell(placement::Command::Home(Some(HOME))), ["send 1 at home, last away under 5"]);
    assert_eq!(hand.called(5), ["send 1 at home, last away under 5"]);
    assert_eq!(hand.called(6), ["persist 1 epoch 6"]);
}

#[test]
fn nobody_makes_a_worker_wait_for_ever() {
    let mut hand = Hand::away(5);
    hand.busy(true);
    hand.tell(placement::Command::Abroad(WorkerMessage::Return { loan: LoanId(5), within_ms: u64::MAX }));
    assert!(matches!(hand.0.place(), Place::Returning { .. }));
}

/// A worker that works for another farm by now neither begins with what is late nor keeps what waits.
#[test]
fn a_worker_that_has_gone_home_takes_nothing() {
    let mut hand = worker::Worker::new("w1@south".into(), 1, Delay::exactly_ms(250), [])
        .with_relation(worker::Relation::Lent(LoanId(5)));
    let mut out = Outbox::new();
    let mut step = |input| {
        hand.step(Moment::START, input, &mut out);
        let starts = out.drain().filter(|output| matches!(output, Output::Notify(_))).count();
        (starts, hand.is_idle())
    };
    let leader = ServerId(1);
    let run = |sequence| {
        let task = crate::ledger::TaskId { job: crate::ledger::JobId(1), index: sequence };
        let held = crate::ledger::Held { task, attempt: crate::ledger::Attempt { term: Term(1), sequence } };
        let (work, argument) =
            (crate::ledger::Work::Kind { name: "noop".into(), input: Vec::new() }, String::new());
        let assignment =
            crate::farm::Assignment { held, work, argument, number: 1, timeout_ms: None, cpus: 1, is_once: false };
        Input::Message { from: leader, message: crate::farm::Message::Run(Term(1), alloc::vec![assignment]) }
    };
    step(Input::Command(worker::Command::Serve(leader)));
    step(Input::Message { from: leader, message: crate::farm::Message::Welcome(Term(1)) });
    step(Input::Command(worker::Command::Open(false)));
    assert_eq!(step(run(1)), (0, true), "it takes nothing new");
    step(Input::Command(worker::Command::Relation(worker::Relation::Over)));
    assert_eq!(step(run(2)), (0, true));
    step(Input::Message { from: leader, message: crate::farm::Message::Welcome(Term(1)) });
    assert_eq!(step(Input::Command(worker::Command::Open(true))), (0, true), "nothing is left");
}
