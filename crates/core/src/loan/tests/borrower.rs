//! What a farm does that has too much to do: whom it asks, whom it lets in, and when it gives workers back.

use alloc::string::String;
use alloc::vec::Vec;

use super::{EAST, Farm, SOUTH, lent_worker};
use crate::ledger::{Entry, LoanId, Why};
use crate::loan::lending::{self, LOOK_MS, Order};
use crate::loan::{Beat, Content, LentWorker, Objection};

#[test]
fn a_saturated_farm_asks_one_neighbour_after_the_other() {
    let mut farm = Farm::saturated();
    assert_eq!(farm.wait_ms(200), [""; 0], "not before it has lasted");
    assert_eq!(
        farm.wait_ms(LOOK_MS),
        ["saturated: 25 tasks wait and no slot is free", "send 1 ask 1 for 3", "asked south for 3 workers"]
    );
    let refusal = Content::Refusal { number: 1, objection: Objection::Busy };
    assert_eq!(
        farm.hears(SOUTH, refusal.clone()),
        ["south lends nothing: busy", "send 2 ask 2 for 3", "asked east for 3 workers"]
    );
    assert_eq!(farm.hears(SOUTH, refusal), [""; 0], "an answer to nothing");
    assert_eq!(farm.hears_offer(EAST, 2, 9), ["east lends 1 worker"]);
}

#[test]
fn a_neighbour_that_does_not_answer_is_not_waited_for() {
    let mut farm = Farm::saturated();
    farm.wait_ms(250);
    let said = farm.wait_ms(550);
    assert_eq!(said, ["south did not answer", "send 2 ask 2 for 3", "asked east for 3 workers"]);
    assert_eq!(farm.wait_ms(550), ["east did not answer"]);
    farm.hears_beats();
    assert_eq!(farm.wait_ms(1000), ["send 1 ask 3 for 3", "asked south for 3 workers"], "after a pause");
}

#[test]
fn a_silent_neighbour_is_not_asked() {
    let mut farm = Farm::saturated();
    farm.queued = 0;
    farm.wait_ms(2500);
    farm.hears_beat(EAST, &[], &[]);
    farm.queued = 25;
    let said = farm.wait_ms(300);
    assert!(said.contains(&"asked east for 3 workers".into()) && !said.iter().any(|words| words.contains("south")));
}

#[test]
fn the_one_with_most_free_slots_is_asked_first_if_that_is_the_order() {
    let mut farm = Farm::new(|rules| rules.order = Order::Idle);
    farm.hears(EAST, Content::Beat(Beat { idle: 3, ..Beat::default() }));
    farm.queued = 10;
    assert!(farm.wait_ms(300).contains(&"asked east for 1 worker".into()));
}

#[test]
fn whoever_is_here_or_on_its_way_is_not_asked_for_again() {
    let mut farm = Farm::saturated();
    farm.hears_beat(SOUTH, &[lent_worker(5, "w1"), lent_worker(6, "w2")], &[]);
    assert!(farm.wait_ms(300).contains(&"asked south for 1 worker".into()));
}

#[test]
fn a_worker_is_let_in_if_its_own_farm_has_lent_it() {
    let mut farm = Farm::new(|_| ());
    farm.hears_beat(SOUTH, &[lent_worker(5, "w1")], &[]);
    assert_eq!(farm.arrives("w1@south", 5), ["propose 2"]);
    farm.commit();
    assert_eq!(farm.ledger.workers()["w1@south"].slots, 1);
    assert_eq!(farm.ledger.loans().borrowed()["w1@south"].loan, LoanId(5));
}

#[test]
fn a_worker_that_comes_before_the_news_of_it_waits() {
    let mut farm = Farm::new(|_| ());
    farm.wait_ms(3000);
    assert_eq!(farm.arrives("w1@south", 5), [""; 0], "south has not been heard lately");
    assert_eq!(farm.hears_beat(SOUTH, &[lent_worker(5, "w1")], &[]), ["propose 2"]);
}

#[test]
fn an_unknown_worker_is_not_let_in() {
    let mut farm = Farm::new(|_| ());
    farm.hears_beat(SOUTH, &[lent_worker(5, "w1")], &[]);
    assert_eq!(farm.arrives("w2@south", 6), [""; 0], "south may be about to say it");
    let strange = ["w2@south has come from south, which has not lent it"];
    assert_eq!(farm.wait_ms(600), strange);
    assert_eq!(farm.arrives("w2@south", 6), [""; 0]);
    assert_eq!(farm.wait_ms(600), [""; 0], "said once");
    farm.arrives("w2@south", 5);
    farm.hears_beat(SOUTH, &[lent_worker(5, "w1")], &[]);
    assert_eq!(farm.wait_ms(600), strange, "the loan of another one");
    assert_eq!(farm.arrives("w1@west", 5), [""; 0], "of no neighbour");
    farm.hears_beat(SOUTH, &[LentWorker { is_recalled: true, ..lent_worker(5, "w1") }], &[]);
    assert_eq!(farm.arrives("w1@south", 5), [""; 0], "wanted back already");
    assert_eq!(farm.proposed, []);
}

#[test]
fn strangers_are_known_as_such_when_their_farm_is_heard() {
    let mut farm = Farm::new(|_| ());
    farm.wait_ms(3000);
    farm.arrives("w2@south", 6);
    assert_eq!(farm.wait_ms(3000), [""; 0], "nobody knows better");
    farm.hears_beat(SOUTH, &[], &[]);
    assert_eq!(farm.wait_ms(600), ["w2@south has come from south, which has not lent it"]);
}

#[test]
fn strangers_do_not_keep_others_from_being_let_in() {
    let mut farm = Farm::new(|_| ());
    for number in 0..lending::ARRIVALS_MAX as u64 {
        farm.arrives(&alloc::format!("x{number}@south"), number);
    }
    for _ in 0..6 {
        farm.hears_beat(SOUTH, &[lent_worker(5000, "w1")], &[]);
        farm.wait_ms(1000);
    }
    farm.hears_beat(SOUTH, &[lent_worker(5000, "w1")], &[]);
    assert_eq!(farm.arrives("w1@south", 5000), ["propose 2"]);
}

#[test]
fn a_promised_worker_that_does_not_come_is_reported_and_others_are_asked() {
    let mut farm = Farm::saturated();
    farm.wait_ms(250);
    farm.hears_offer(SOUTH, 1, 5);
    farm.hears_beats();
    let said = farm.wait_ms(5100);
    assert!(said.contains(&"south promised a worker under loan 5 that did not come".into()), "{said:?}");
    farm.hears_beats();
    assert!(farm.wait_ms(2000).contains(&"asked east for 3 workers".into()));
}

#[test]
fn promises_do_not_keep_others_from_being_asked() {
    let mut farm = Farm::saturated();
    farm.wait_ms(250);
    let all = [5, 6, 7].map(LoanId).to_vec();
    assert_eq!(farm.hears(SOUTH, Content::Offer { number: 1, loans: all }), ["south lends 3 workers"]);
    farm.hears_beats();
    assert!(farm.wait_ms(1050).contains(&"asked east for 3 workers".into()), "south owes us somebody");
    farm.queued = 0;
    for (seconds, asked) in [(5, "asked east for 3 workers"), (30, "asked south for 3 workers")] {
        for _ in 0..seconds {
            farm.hears_beats();
            farm.wait_ms(1000);
        }
        farm.queued = 25;
        assert_eq!(farm.wait_ms(250).last().map(String::as_str), Some(asked), "{seconds} s later");
        farm.queued = 0;
    }
}

#[test]
fn whoever_is_lent_and_does_not_come_is_not_waited_for_without_end() {
    let mut farm = Farm::saturated();
    let all = [lent_worker(5, "w1"), lent_worker(6, "w2"), lent_worker(7, "w3")];
    let mut said = Vec::new();
    for _ in 0..6 {
        farm.hears_beat(SOUTH, &all, &[]);
        farm.hears_beat(EAST, &[], &[]);
        said.push(farm.wait_ms(1000));
    }
    assert!(!said[..5].concat().iter().any(|words| words.starts_with("asked")), "{said:?}");
    assert!(said[5].contains(&"south promised a worker under loan 5 that did not come".into()), "{said:?}");
    assert!(said[5].contains(&"asked east for 3 workers".into()), "{said:?}");
}

#[test]
fn whoever_is_lent_no_more_is_not_expected() {
    let mut farm = Farm::saturated();
    farm.hears_beat(SOUTH, &[lent_worker(5, "w1")], &[]);
    farm.hears_beats();
    let said = farm.wait_ms(300);
    assert!(said.contains(&"asked south for 3 workers".into()), "{said:?}");
    farm.queued = 0;
    assert!(!farm.wait_ms(6000).iter().any(|words| words.contains("did not come")));
}

#[test]
fn a_calm_farm_sends_home_what_it_has_borrowed() {
    let mut farm = Farm::borrows(Why::Asked);
    farm.queued = 9;
    farm.wait_ms(LOOK_MS);
    farm.queued = 0;
    farm.hears_beat(SOUTH, &[lent_worker(5, "w1")], &[]);
    assert_eq!(farm.wait_ms(500), [""; 0]);
    assert_eq!(farm.wait_ms(1100), ["calm: next to nothing waits", "tell w1@south: return 5"]);
}

#[test]
fn a_borrowed_worker_stays_for_a_while_even_if_nothing_waits() {
    let mut farm = Farm::borrows(Why::Asked);
    assert_eq!(farm.wait_ms(900), [""; 0]);
    farm.hears_beat(SOUTH, &[lent_worker(5, "w1")], &[]);
    assert_eq!(farm.wait_ms(600), ["tell w1@south: return 5"]);
}

#[test]
fn a_clock_that_is_set_sends_no_worker_home_early() {
    let mut farm = Farm::borrows(Why::Asked);
    farm.now_ms += 30_000;
    farm.hears_beat(SOUTH, &[lent_worker(5, "w1")], &[]);
    assert_eq!(farm.wait_ms(900), [""; 0]);
    farm.hears_beat(SOUTH, &[lent_worker(5, "w1")], &[]);
    assert_eq!(farm.wait_ms(600), ["tell w1@south: return 5"]);
}

#[test]
fn what_an_operator_has_lent_stays_although_the_borrower_is_calm() {
    let mut farm = Farm::borrows(Why::Operator);
    assert_eq!(farm.wait_ms(1900), [""; 0]);
}

#[test]
fn a_worker_that_is_wanted_back_or_not_lent_any_more_is_sent_home_at_once() {
    let mut farm = Farm::borrows(Why::Operator);
    let recalled = LentWorker { is_recalled: true, why: Why::Operator, ..lent_worker(5, "w1") };
    assert_eq!(farm.hears_beat(SOUTH, &[recalled], &[]), ["tell w1@south: return 5"]);
    let mut farm = Farm::borrows(Why::Operator);
    assert_eq!(farm.hears_beat(SOUTH, &[], &[]), ["tell w1@south: return 5"]);
}

#[test]
fn a_worker_that_has_left_is_given_back() {
    let mut farm = Farm::borrows(Why::Operator);
    farm.apply(Entry::Leave { worker: "w1@south".into() });
    farm.wait_ms(150);
    assert_eq!(farm.proposed, []);
    farm.wait_ms(100);
    let give_back = Entry::GiveBack { worker: "w1@south".into(), loan: LoanId(5) };
    assert_eq!(farm.proposed, [give_back]);
    farm.commit();
    assert!(farm.ledger.loans().borrowed().is_empty());
}
