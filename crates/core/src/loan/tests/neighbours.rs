//! Whom a lending side believes: terms of other farms, and neighbours that say too much.

use super::{EAST, Farm, SOUTH, lent_worker};
use crate::ledger::{LoanId, Why};
use crate::loan::{Beat, Content, Request, WorkerMessage, lending};
use crate::{FarmId, Input, Machine, Moment, Outbox, Output, bounds};

#[test]
fn terms_of_two_farms_are_never_compared() {
    let mut farm = Farm::with_workers(&["w1"], |_| ());
    assert_eq!(farm.term, 7);
    let ask = |number| Content::Ask(Request { number, count: 1, for_ms: 1 });
    assert_eq!(farm.hears_in_term(3, SOUTH, ask(1)), ["propose 1"]);
    assert_eq!(farm.hears_in_term(2, SOUTH, ask(2)), [""; 0], "of a deposed leader");
    assert_eq!(farm.hears_in_term(2, EAST, ask(1)), ["send 2 refusal 1: none_idle"]);
}

#[test]
fn a_term_that_nobody_can_have_reached_silences_nobody() {
    let mut farm = Farm::with_workers(&["n1"], |_| ());
    for term in [u64::MAX, bounds::NUMBER_MAX, bounds::LEAP_MAX + 2] {
        farm.hears_in_term(term, SOUTH, Content::Beat(Beat::default()));
    }
    farm.hears_ask(1, 1);
    assert_eq!(farm.proposed.len(), 1, "the true leader is heard");
}

#[test]
fn a_leader_that_insists_is_heard_whatever_term_another_one_made_up() {
    let mut farm = Farm::with_workers(&["n1"], |_| ());
    let forged = |farm: &mut Farm| _ = farm.hears_in_term(1 << 20, SOUTH, Content::Beat(Beat::default()));
    forged(&mut farm);
    farm.hears_ask(1, 1);
    assert_eq!(farm.proposed, [], "for all that anybody knows, it is deposed");
    // A deposed leader would have noticed by now. This one goes on, and so does the other.
    for _ in 0..8 {
        farm.wait_ms(500);
        forged(&mut farm);
        farm.hears_beat(SOUTH, &[], &[]);
    }
    farm.hears_ask(2, 1);
    assert_eq!(farm.proposed.len(), 1);
    forged(&mut farm);
    assert!(farm.lending.neighbours().all(|(name, heard)| name != "south" || heard.is_some()));
}

#[test]
fn a_deposed_leader_that_wakes_up_late_is_not_heard() {
    let mut farm = Farm::with_workers(&["n1"], |_| ());
    for _ in 0..20 {
        farm.hears_in_term(2, SOUTH, Content::Beat(Beat::default()));
        farm.wait_ms(500);
    }
    farm.hears_beat(SOUTH, &[], &[]);
    farm.hears_ask(1, 1);
    for _ in 0..20 {
        farm.hears_in_term(2, SOUTH, Content::Beat(Beat::default()));
        farm.wait_ms(500);
    }
    farm.hears_ask(2, 1);
    assert_eq!(farm.proposed, [], "it says something once, and again much later, but does not insist");
}

#[test]
fn nobody_is_lent_to_whoever_asks_all_the_time() {
    let mut farm = Farm::with_workers(&["n1"], |_| ());
    let mut number = 0;
    let mut answers = |farm: &mut Farm| {
        let said = (0..1000).filter(|_| {
            number += 1;
            // Nobody is free, so every request that counts is answered at once.
            !farm.hears_ask(number, 0).is_empty()
        });
        said.count()
    };
    assert_eq!(answers(&mut farm), 10);
    assert_eq!(answers(&mut farm), 0);
    farm.wait_ms(3000);
    assert_eq!(answers(&mut farm), 3, "one a second");
}

/// South under this number, and east.
fn knows(farm: &mut Farm, south: Option<FarmId>) {
    let south = south.map(|number| (number, "south".into()));
    farm.lending.set_neighbours(south.into_iter().chain([(EAST, "east".into())]).collect());
}

#[test]
fn a_farm_becomes_a_neighbour_while_its_neighbour_leads() {
    let mut farm = Farm::with_workers(&["w1"], |_| ());
    let west = FarmId(3);
    let ask = Content::Ask(Request { number: 1, count: 1, for_ms: 1 });
    assert_eq!(farm.hears(west, ask.clone()), [""; 0]);
    farm.lending.set_neighbours([(west, "west".into())].into());
    assert_eq!(farm.hears(west, ask.clone()), ["propose 1"]);
    assert_eq!(farm.commit(), ["send 3 offer 1: 1", "tell w1: redirect 1 to west"]);
    assert_eq!(farm.hears(SOUTH, ask), [""; 0], "it is a neighbour no more");
}

#[test]
fn a_farm_that_is_forgotten_gets_its_workers_back_and_returns_ours() {
    let mut lender = Farm::lends(|_| ());
    knows(&mut lender, None);
    assert_eq!(lender.wait_ms(500), ["tell w1: return 1"]);
    lender.said("w1", 1, false);
    lender.commit();
    assert_eq!(lender.lent(), 0);
    let mut borrower = Farm::borrows(Why::Operator);
    knows(&mut borrower, None);
    assert_eq!(borrower.wait_ms(50), ["tell w1@south: return 5"], "at once");
    assert_eq!(borrower.hears_beat(SOUTH, &[lent_worker(6, "w2")], &[]), [""; 0]);
    knows(&mut borrower, Some(FarmId(3)));
    assert_eq!(borrower.hears_beat(SOUTH, &[lent_worker(6, "w2")], &[]), [""; 0], "from a link of before");
}

#[test]
fn a_farm_that_is_forgotten_while_it_is_asked_is_not_waited_for() {
    let mut farm = Farm::saturated();
    assert!(farm.wait_ms(300).contains(&"asked south for 3 workers".into()));
    knows(&mut farm, None);
    farm.hears_beat(EAST, &[], &[]);
    assert!(farm.wait_ms(100).contains(&"asked east for 3 workers".into()));
}

#[test]
fn nobody_fills_an_office_with_workers_that_are_away() {
    let mut farm = Farm::new(|_| ());
    for number in 0..10_000 {
        let word = WorkerMessage::At { epoch: LoanId(9), is_away: true };
        farm.step(Input::Command(lending::Command::Said(alloc::format!("x{number}"), word)));
    }
    let kept = |name: &str| {
        let mut farm = farm.lending.clone();
        let mut out = Outbox::new();
        let word = WorkerMessage::At { epoch: LoanId(9), is_away: true };
        farm.step(Moment::START, Input::Command(lending::Command::Said(name.into(), word)), &mut out);
        out.drain().any(|output| matches!(output, Output::Notify(_)))
    };
    assert!(kept("x4095") && !kept("x4096"));
}
