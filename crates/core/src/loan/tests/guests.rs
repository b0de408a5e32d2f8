//! What ledger and foreman make of workers that come and go.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::Farm;
use crate::farm::Hello;
use crate::farm::foreman::{self, Foreman};
use crate::ledger::loans::name_here;
use crate::ledger::{Batch, Borrow, Entry, Ledger, Lend, LoanId, Why};
use crate::{Input, Machine, Moment, Outbox, Output, Term, WorkerId};

/// The ledger's side of whoever comes and goes.
#[test]
fn a_guest_is_registered_only_while_it_is_borrowed() {
    let mut farm = Farm::new(|_| ());
    let (worker, from) = (name_here("w1", "south"), String::from("south"));
    let join = Entry::Join { worker: worker.clone(), slots: 1 };
    farm.apply(join.clone());
    assert!(farm.ledger.workers().is_empty(), "nobody has borrowed it");
    let (loan, for_ms, why) = (LoanId(5), 1000, Why::Asked);
    farm.apply(Entry::Borrow(Borrow { worker: worker.clone(), from, loan, for_ms, why }));
    farm.apply(join);
    farm.apply(Entry::GiveBack { worker: worker.clone(), loan });
    assert_eq!(farm.ledger.loans().borrowed().len(), 1, "it is here");
    farm.apply(Entry::Drain { worker: worker.clone(), is_draining: true });
    farm.apply(Entry::Leave { worker: worker.clone() });
    farm.apply(Entry::GiveBack { worker, loan });
    assert!(farm.ledger.loans().borrowed().is_empty() && farm.ledger.workers().is_empty());
}

/// A worker of south comes to north, is let in, works and leaves: what the foreman makes of it.
#[test]
fn a_guest_gets_work_while_it_is_borrowed() {
    let mut foreman = Foreman::new(foreman::Rules::default(), Ledger::default());
    let guest = WorkerId(11);
    let hello = |slots: u16, loan: Option<u64>| {
        let (name, loan) = ("w1@south".into(), loan.map(LoanId));
        Input::Message {
            from: guest,
            message: crate::farm::Message::Hello(Hello {
                name,
                term: Term(0),
                slots,
                loan,
                held: Vec::new(),
                ended: Vec::new(),
            }),
        }
    };
    let mut step = |input: Input<Foreman>| -> Vec<String> {
        let mut out = Outbox::new();
        foreman.step(Moment::START, input, &mut out);
        let said = out.drain().filter(|output| matches!(output, Output::Notify(_) | Output::Send { .. }));
        said.map(|output| output.to_string()).filter(|words| !words.starts_with("applied")).collect()
    };
    let apply =
        |entry: Entry| Input::Command(foreman::Command::Apply(Batch { time_ms: 0, entries: [entry].into() }));
    step(Input::Command(foreman::Command::Lead(Term(1))));
    assert_eq!(
        step(hello(1, Some(5))),
        ["w1@south has arrived under 5", "send 11 welcome to term 1"],
        "it is only heard"
    );
    let (worker, from) = (String::from("w1@south"), String::from("south"));
    let borrow = Borrow { worker: worker.clone(), from, loan: LoanId(5), for_ms: 1, why: Why::Asked };
    assert_eq!(step(apply(Entry::Borrow(borrow))), ["propose 1"], "it works here with what it has offered");
    step(apply(Entry::Join { worker: worker.clone(), slots: 1 }));
    assert_eq!(step(hello(0, None)), ["propose 1", "send 11 welcome to term 1"], "it has gone home");
    step(apply(Entry::Leave { worker: worker.clone() }));
    let give_back = Entry::GiveBack { worker, loan: LoanId(5) };
    assert_eq!(step(apply(give_back)), ["send 11 who are you, in term 1"]);
    assert_eq!(step(hello(1, Some(5)))[0], "w1@south has arrived under 5");
}

/// A worker that is lent and dies while the leader changes: nobody has ever seen its link break.
#[test]
fn a_new_leader_misses_whoever_is_lent_and_says_nothing() {
    let mut ledger = Ledger::default();
    let lend = Lend { worker: "w1".into(), to: "south".into(), for_ms: 1, why: Why::Asked };
    let entries = alloc::vec![Entry::Join { worker: "w1".into(), slots: 1 }, Entry::Lend(lend)];
    ledger.apply(Batch { time_ms: 0, entries });
    let mut foreman = Foreman::new(foreman::Rules::default(), ledger);
    let mut out = Outbox::new();
    foreman.step(Moment::START, Input::Command(foreman::Command::Lead(Term(2))), &mut out);
    assert_eq!(out.drain().count(), 1, "it waits");
    foreman.step(Moment::START, Input::Timer(foreman::Timer::Settle), &mut out);
    let leave = Entry::Leave { worker: "w1".into() };
    let says = |output: Output<Foreman>| matches!(output, Output::Notify(foreman::Notice::Propose(entries)) if entries == [leave.clone()]);
    assert!(out.drain().all(says));
}
