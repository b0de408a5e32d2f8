//! A worker is believed about itself only: see `super::super::past`.

use super::*;

#[test]
fn what_one_worker_has_no_other_can_take_over() {
    let mut foreman = Bench::leader(1, &["w1"]);
    foreman.hears(W1, hello("w1", &[]));
    foreman.submit(|_| ());
    let has = |foreman: &Bench<Foreman>| {
        let place = foreman.0.assignment_of(held(1, 1, 1).task);
        place.map(|(worker, attempt)| (String::from(worker), attempt.sequence))
    };
    assert_eq!(has(&foreman), Some(("w1".into(), 1)));
    let forged = Report {
        task: held(1, 1, 1).task,
        outcome: Outcome { worker: "w9".into(), ..report(held(1, 1, 1)).outcome },
    };
    let liar = Hello {
        name: "liar".into(),
        term: Term(0),
        slots: 0,
        loan: None,
        held: Vec::new(),
        ended: alloc::vec![forged],
    };
    let said = foreman.hears(W2, Message::Hello(liar));
    assert!(!said.iter().any(|said| said.starts_with("propose")), "{said:?}");
    assert_eq!(has(&foreman), Some(("w1".into(), 1)));
}

#[test]
fn nobody_has_what_was_never_given() {
    let mut foreman = Bench::leader(1, &["w1"]);
    foreman.submit(|_| ());
    let said = foreman.hears(W2, hello("liar", &[held(1, 1, 9)]));
    assert!(said.contains(&"send 102 stop 1.1 (1-9)".into()), "{said:?}");
    assert_eq!(foreman.0.assignment_of(held(1, 1, 1).task), None);
}

/// Who has task 1.1 after this worker has said that it holds it under this attempt.
fn holder(foreman: &mut Bench<Foreman>, from: WorkerId, name: &str, claimed: Held) -> Option<String> {
    foreman.hears(from, hello(name, &[claimed]));
    foreman.0.assignment_of(claimed.task).map(|(worker, _)| worker.to_string())
}

#[test]
fn what_a_worker_had_that_is_given_up_is_kept_for_it_and_for_no_other() {
    let mut foreman = Bench::leader(1, &["w1", "liar"]);
    foreman.hears(W1, hello("w1", &[]));
    foreman.submit(|_| ());
    foreman.step(Input::Timer(Timer::Silence(W1)));
    foreman.apply(Entry::Leave { worker: "w1".into() });
    assert_eq!(foreman.0.assignment_of(held(1, 1, 1).task), None);
    // A liar without slots gets nothing else meanwhile.
    let empty = |name: &str| {
        let Message::Hello(hello) = hello(name, &[held(1, 1, 1)]) else { unreachable!() };
        Message::Hello(Hello { slots: 0, ..hello })
    };
    let said = foreman.hears(W2, empty("liar"));
    assert!(said.contains(&"send 102 stop 1.1 (1-1)".into()), "{said:?}");
    foreman.hears(WorkerId(103), empty("w1"));
    assert_eq!(foreman.0.assignment_of(held(1, 1, 1).task).map(|(worker, _)| worker), Some("w1"));
}

#[test]
fn a_worker_is_believed_about_older_leaders_once() {
    let mut foreman = Bench::leader(1, &["w1", "w2", "w3"]);
    foreman.submit(|_| ());
    foreman.lead(2);
    foreman.hears(W2, hello("w2", &[]));
    let claimed = holder(&mut foreman, W2, "w2", held(1, 1, 1));
    assert_eq!(claimed, None, "it has said before that it has nothing");
    assert_eq!(holder(&mut foreman, W1, "w1", held(1, 1, 1)), Some("w1".into()));
    assert_eq!(holder(&mut foreman, WorkerId(104), "w1", held(1, 1, 1)), Some("w1".into()), "over a new link");
    foreman.submit(|_| ());
    let newer = held(2, 1, 7);
    let said = foreman.hears(WorkerId(103), hello("w3", &[newer]));
    assert!(said.contains(&"send 103 stop 2.1 (1-7)".into()), "no older leader can have known that task: {said:?}");
}

#[test]
fn a_worker_that_joined_since_then_has_nothing_of_older_leaders() {
    use crate::ledger::roll::{Change, Fingerprint};
    let bind = |name: &str, time_ms| {
        let change = Change::BindWorker { name: name.into(), key: Fingerprint([1; 32]) };
        let batch = Batch { time_ms, entries: alloc::vec![Entry::Roll(change)] };
        Input::Command(foreman::Command::Apply(batch))
    };
    let mut foreman = Bench::leader(1, &["w1", "w2"]);
    foreman.submit(|_| ());
    foreman.step(bind("w1", 5));
    foreman.lead(2);
    foreman.step(bind("w2", 6));
    assert_eq!(holder(&mut foreman, W2, "w2", held(1, 1, 1)), None);
    assert_eq!(holder(&mut foreman, W1, "w1", held(1, 1, 1)), Some("w1".into()));
}

#[test]
fn a_worker_of_another_farm_has_nothing_of_older_leaders_unless_it_is_borrowed() {
    use crate::ledger::{Borrow, LoanId, Why};
    let mut foreman = Bench::leader(1, &[]);
    foreman.submit(|_| ());
    let (worker, from) = ("w1@south".into(), "south".into());
    foreman.apply(Entry::Borrow(Borrow { worker, from, loan: LoanId(5), for_ms: 60_000, why: Why::Asked }));
    foreman.lead(2);
    assert_eq!(holder(&mut foreman, W2, "w2@south", held(1, 1, 1)), None);
    assert_eq!(holder(&mut foreman, W1, "w1@south", held(1, 1, 1)), Some("w1@south".into()));
}

#[test]
fn what_must_not_start_twice_is_believed_of_the_worker_that_the_ledger_names() {
    let mut foreman = Bench::leader(1, &["w1", "w2"]);
    foreman.submit(|spec| spec.is_once = true);
    foreman.starts(1, "w1", 1);
    foreman.lead(2);
    assert_eq!(holder(&mut foreman, W2, "w2", held(1, 1, 1)), None);
    assert_eq!(holder(&mut foreman, W1, "w1", held(1, 1, 1)), Some("w1".into()));
}

#[test]
fn what_a_forgotten_worker_had_runs_elsewhere_at_once() {
    let mut foreman = Bench::leader(1, &["w1", "w2"]);
    foreman.hears(W1, hello("w1", &[]));
    foreman.submit(|_| ());
    foreman.hears(W2, hello("w2", &[]));
    let said = foreman.apply(Entry::Roll(crate::ledger::roll::Change::ForgetWorker("w1".into())));
    assert!(said.contains(&"send 102 run 1.1 (1-2)".into()), "{said:?}");
    let ended = Message::Ended(alloc::vec![report(held(1, 1, 1))]);
    assert_eq!(foreman.hears(W1, ended), ["send 101 who are you, in term 1"]);
    assert!(!foreman.0.ledger().workers().contains_key("w1"));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_leader_that_believes_a_worker_about_another_gives_away_its_task() {
    let planted = crate::planted::Planted::the(crate::planted::Bug::BelievedAboutAnother);
    for (rules, expected) in [(Rules::default(), None), (Rules { planted, ..Rules::default() }, Some("w2".into()))]
    {
        let mut foreman = Bench(Foreman::new(rules, Ledger::default()));
        foreman.lead(1);
        foreman.hears(W1, hello("w1", &[]));
        foreman.apply(Entry::Join { worker: "w1".into(), slots: 1 });
        foreman.submit(|_| ());
        foreman.step(Input::Timer(Timer::Silence(W1)));
        foreman.apply(Entry::Leave { worker: "w1".into() });
        assert_eq!(holder(&mut foreman, W2, "w2", held(1, 1, 1)), expected);
    }
}
