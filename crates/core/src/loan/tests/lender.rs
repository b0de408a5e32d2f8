//! What a farm does with workers of its own: whom it lends, and how it gets them back.

use alloc::vec::Vec;

use super::{EAST, Farm, SOUTH};
use crate::Input;
use crate::ledger::{Ending, Entry, Lend, LoanId, Why};
use crate::loan::WorkerMessage;
use crate::loan::lending::{self, CannotLend, LOOK_MS, Lending, Rules};

#[test]
fn an_idle_worker_is_lent_when_the_log_says_so() {
    let mut farm = Farm::with_workers(&["w1", "w2"], |_| ());
    assert_eq!(farm.hears_ask(1, 1), ["propose 1"]);
    assert_eq!(farm.hears_ask(1, 1), [""; 0], "a request that came before");
    assert_eq!(farm.commit(), ["send 1 offer 1: 1", "tell w1: redirect 1 to south"]);
    assert_eq!(farm.hears_ask(2, 9), ["propose 1"], "w1 is lent already");
}

#[test]
fn a_farm_that_has_work_waiting_lends_nothing() {
    let mut farm = Farm::with_workers(&["w1"], |_| ());
    farm.queued = 1;
    farm.wait_ms(LOOK_MS);
    assert_eq!(farm.hears_ask(1, 1), ["send 1 refusal 1: busy"]);
}

#[test]
fn a_reserve_stays_at_home_and_no_more_are_lent_than_may_be() {
    let mut farm = Farm::with_workers(&["w1", "w2", "w3"], |rules| rules.reserve = 2);
    farm.hears_ask(1, 3);
    assert_eq!(farm.proposed.len(), 1);
    let mut farm = Farm::with_workers(&["w1", "w2", "w3"], |rules| rules.lent_max = 1);
    farm.hears_ask(1, 3);
    assert_eq!(farm.proposed.len(), 1);
    assert_eq!(farm.hears_ask(2, 1), ["send 1 refusal 2: all_lent"], "one is as good as lent");
}

#[test]
fn an_operator_lends_no_more_than_may_be_lent_though_the_log_is_behind() {
    let mut farm = Farm::with_workers(&["w1", "w2", "w3"], |rules| (rules.lent_max, rules.reserve) = (2, 3));
    assert_eq!(farm.operator_lends("south", 1), Ok(alloc::vec!["w1".into()]), "that outweighs the reserve");
    assert_eq!(farm.operator_lends("south", 9), Ok(alloc::vec!["w2".into()]), "w1 is as good as lent");
    assert_eq!(farm.operator_lends("south", 1), Err(CannotLend::AllLent));
    assert_eq!(farm.hears_ask(1, 1), ["send 1 refusal 1: all_lent"]);
    let said = farm.commit();
    assert!(said.contains(&"tell w2: redirect 2 to south".into()), "{said:?}");
    assert!(!said.iter().any(|words| words.contains("offer")), "nobody has asked: {said:?}");
    assert_eq!(farm.operator_lends("south", 1), Err(CannotLend::AllLent));
    assert_eq!(farm.operator_lends("west", 1), Err(CannotLend::NoNeighbour));
    let mut farm = Farm::with_workers(&[], |_| ());
    assert_eq!(farm.operator_lends("south", 1), Err(CannotLend::NoneIdle));
    farm.lead(8);
    assert_eq!(farm.operator_lends("south", 1), Err(CannotLend::NotHeard), "a new leader has heard nobody yet");
}

#[test]
fn a_worker_that_has_just_come_home_is_not_lent_again_at_once() {
    let mut farm = Farm::lends(|_| ());
    farm.said("w1", 1, false);
    farm.commit();
    farm.idle.push("w1");
    farm.wait_ms(500);
    assert_eq!(farm.hears_ask(2, 1), ["send 1 refusal 2: none_idle"]);
    farm.wait_ms(600);
    assert_eq!(farm.hears_ask(3, 1), ["propose 1"]);
}

#[test]
fn a_worker_that_cannot_go_is_called_home_and_not_lent_again_for_a_while() {
    let mut farm = Farm::with_workers(&["w1", "w2"], |_| ());
    farm.hears_ask(1, 1);
    farm.commit();
    let cannot_go = |loan| lending::Command::Said("w1".into(), WorkerMessage::CannotGo { loan: LoanId(loan) });
    assert_eq!(farm.step(Input::Command(cannot_go(1))), ["w1 cannot go to south"]);
    assert_eq!(farm.step(Input::Command(cannot_go(1))), [""; 0], "told once");
    assert_eq!(farm.step(Input::Command(cannot_go(7))), [""; 0], "another loan");
    assert_eq!(farm.wait_ms(500), ["tell w1: return 1"]);
    farm.said("w1", 1, false);
    farm.commit();
    farm.idle = alloc::vec!["w1"];
    farm.wait_ms(2000);
    assert_eq!(farm.hears_ask(2, 1), ["send 1 refusal 2: none_idle"]);
    let lend = Lend { worker: "w1".into(), to: "south".into(), for_ms: 60_000, why: Why::Operator };
    assert_eq!(farm.apply(Entry::Lend(lend)), ["tell w1: redirect 2 to south"], "an operator may know better");
    farm.said("w1", 2, false);
    farm.commit();
    farm.wait_ms(60_000);
    assert_eq!(farm.hears_ask(3, 1), ["propose 1"], "perhaps it can by now");
}

#[test]
fn a_new_leader_lets_everybody_stay_first() {
    let mut farm = Farm::with_workers(&["w1"], |_| ());
    farm.lead(8);
    farm.hears_beats();
    farm.wait_ms(LOOK_MS);
    assert_eq!(farm.hears_ask(1, 1), ["send 1 refusal 1: none_idle"]);
}

#[test]
fn a_new_leader_carries_every_loan_on() {
    let mut farm = Farm::lends(|_| ());
    farm.lead(8);
    assert!(farm.wait_ms(500).contains(&"tell w1: redirect 1 to south".into()));
    assert_eq!(farm.said("w1", 1, true), [""; 0]);
    farm.said("w1", 1, false);
    assert_eq!(farm.proposed, [Entry::EndLoan(LoanId(1), Ending::Home)]);
}

#[test]
fn a_worker_is_back_when_it_says_so_and_not_before() {
    let mut farm = Farm::with_workers(&["w1"], |rules| rules.loan_ms = 1000);
    farm.hears_ask(1, 1);
    farm.commit();
    assert_eq!(farm.said("w1", 0, false), [""; 0], "the call has not reached it");
    farm.idle.clear();
    farm.said("w1", 1, true);
    assert!(farm.wait_ms(60_000).contains(&"loan 1 is overdue".into()));
    assert_eq!((farm.proposed.len(), farm.lending.overdue().count()), (0, 1));
    farm.said("w1", 1, false);
    farm.commit();
    assert_eq!((farm.lent(), farm.lending.overdue().count()), (0, 0));
}

#[test]
fn a_worker_is_dead_only_if_neither_farm_sees_it() {
    let mut farm = Farm::lends(|_| ());
    farm.hears_beat(SOUTH, &[], &[1]);
    farm.apply(Entry::Leave { worker: "w1".into() });
    farm.wait_ms(1000);
    assert_eq!(farm.proposed, [], "the borrower has it");
    farm.wait_ms(3000);
    farm.hears_beat(EAST, &[], &[]);
    assert_eq!(farm.proposed, [], "nobody knows what the borrower has");
    farm.hears_beat(SOUTH, &[], &[]);
    farm.wait_ms(LOOK_MS);
    assert_eq!(farm.proposed, [Entry::EndLoan(LoanId(1), Ending::Dead)]);
}

#[test]
fn a_worker_that_was_taken_for_dead_is_called_home() {
    let mut farm = Farm::lends(|_| ());
    farm.apply(Entry::Leave { worker: "w1".into() });
    farm.apply(Entry::EndLoan(LoanId(1), Ending::Dead));
    assert_eq!(farm.said("w1", 1, true), ["tell w1: return 1"]);
    farm.apply(Entry::Join { worker: "w1".into(), slots: 1 });
    farm.idle.push("w1");
    farm.wait_ms(2000);
    assert_eq!(farm.hears_ask(2, 1), ["send 1 refusal 2: none_idle"], "it is not there yet");
    farm.said("w1", 1, false);
    farm.wait_ms(500);
    assert_eq!(farm.hears_ask(3, 1), ["send 1 refusal 3: none_idle"], "it has just come");
    farm.wait_ms(600);
    assert_eq!(farm.hears_ask(4, 1), ["propose 1"]);
}

#[test]
fn a_worker_that_was_given_back_is_called_home() {
    let mut farm = Farm::lends(|_| ());
    farm.hears_beat(SOUTH, &[], &[1]);
    farm.hears_beat(SOUTH, &[], &[]);
    assert!(farm.wait_ms(500).contains(&"tell w1: return 1".into()));
}

#[test]
fn whoever_is_with_a_farm_that_is_no_neighbour_any_more_is_called_home() {
    let mut farm = Farm::lends(|_| ());
    farm.lending = Lending::new(Rules::default(), Vec::new());
    farm.lead(8);
    assert_eq!(farm.wait_ms(500), ["tell w1: return 1"]);
    farm.said("w1", 1, false);
    assert_eq!(farm.proposed, [Entry::EndLoan(LoanId(1), Ending::Home)]);
    farm.commit();
    assert_eq!((farm.lent(), farm.wait_ms(500)), (0, Vec::new()), "nothing is left to look after");
    let mut farm = Farm::borrows(Why::Operator);
    farm.lending = Lending::new(Rules::default(), Vec::new());
    farm.lead(8);
    assert_eq!(farm.wait_ms(500), ["tell w1@south: return 5"]);
}

#[test]
fn owner_first() {
    let mut farm = Farm::lends(|_| ());
    farm.queued = 25;
    let said = farm.wait_ms(300);
    assert!(
        said.contains(&"asked south for 2 workers".into()),
        "two are asked for, because one is to come: {said:?}"
    );
    assert_eq!(farm.proposed, [], "it stays for a while");
    farm.wait_ms(1000);
    assert!(farm.proposed.contains(&Entry::Recall(LoanId(1))));
    assert!(farm.commit().contains(&"tell w1: return 1".into()));
}

#[test]
fn nobody_is_sent_away_while_there_is_too_much_to_do() {
    let mut farm = Farm::with_workers(&["w1"], |_| ());
    farm.hears_ask(1, 1);
    farm.commit();
    farm.idle.clear();
    farm.queued = 10;
    assert!(!farm.wait_ms(500).iter().any(|words| words.starts_with("tell")), "it has not said that it has gone");
    farm.wait_ms(50);
    assert_eq!(farm.proposed, [Entry::Recall(LoanId(1))]);
    assert_eq!(farm.commit(), ["tell w1: return 1"]);
}

#[test]
fn a_loan_of_an_operator_is_not_taken_back_by_itself() {
    let mut farm = Farm::with_workers(&["w1"], |_| ());
    let lend = Lend { worker: "w1".into(), to: "south".into(), for_ms: 60_000, why: Why::Operator };
    farm.apply(Entry::Lend(lend));
    farm.idle.clear();
    farm.said("w1", 1, true);
    farm.queued = 25;
    farm.wait_ms(3000);
    assert_eq!(farm.proposed, []);
}

#[test]
fn a_loan_that_nobody_made_changes_nothing() {
    let mut farm = Farm::lends(|_| ());
    assert_eq!(farm.hears_beat(SOUTH, &[], &[1, 9]), ["south speaks of loan 9, which there is not"]);
    assert_eq!(farm.hears_beat(SOUTH, &[], &[1, 9]), [""; 0], "said once");
    assert_eq!(farm.hears_beat(EAST, &[], &[1]), ["east speaks of loan 1, which there is not"]);
    assert_eq!((farm.proposed.len(), farm.lent()), (0, 1));
}
