//! What offices and workers do to each other, step by step, where runs of whole farms would only show that something went wrong.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::allegiance::{self, Allegiance, Place};
use super::office::{self, CannotLend, LOOK_MS, LendOrder, Office, Order, Rules, Situation};
use super::{Beat, Content, Lending, Message, Objection, Request, Word};
use crate::bounds;
use crate::farm::foreman::{self, Foreman};
use crate::farm::{Hello, worker};
use crate::ledger::loans::name_here;
use crate::ledger::{Batch, Borrow, Ending, Entry, Ledger, Lend, LoanId, Why};
use crate::planted::Planted;
use crate::{Delay, FarmId, Input, Machine, Moment, Outbox, Output, ServerId, Term, Token, WorkerId};

const SOUTH: FarmId = FarmId(1);
const EAST: FarmId = FarmId(2);
/// The server that leads the worker's own farm.
const HOME: ServerId = ServerId(1);
/// When everything begins, in milliseconds since 1970.
const BEGINNING_MS: u64 = 1_000_000;

/// The office of the leader of `north`, and the ledger that is agreed on there.
struct Farm {
    office: Office,
    ledger: Ledger,
    now_ms: u64,
    term: u64,
    queued: u64,
    idle: Vec<&'static str>,
    proposed: Vec<Entry>,
}

impl Farm {
    fn new(change: impl Fn(&mut Rules)) -> Self {
        let mut rules = Rules::default();
        change(&mut rules);
        let office = Office::new(rules, alloc::vec!["south".into(), "east".into()]);
        let (ledger, idle, proposed) = (Ledger::default(), Vec::new(), Vec::new());
        let mut farm = Self { office, ledger, now_ms: BEGINNING_MS, term: 7, queued: 0, idle, proposed };
        farm.lead(7);
        farm.hears_beats();
        farm.wait_ms(Rules::default().stay_ms + 2 * LOOK_MS);
        farm
    }

    /// One that has these workers, all idle.
    fn with_workers(workers: &[&'static str], change: impl Fn(&mut Rules)) -> Self {
        let mut farm = Self::new(change);
        farm.idle = workers.to_vec();
        for worker in workers {
            farm.apply(Entry::Join { worker: worker.to_string(), slots: 1 });
        }
        farm.wait_ms(LOOK_MS);
        farm
    }

    /// One that has too much to do.
    fn saturated() -> Self {
        let mut farm = Self::new(|_| ());
        farm.queued = 25;
        farm
    }

    fn lead(&mut self, term: u64) {
        self.term = term;
        self.step(Input::Command(office::Command::Follow));
        self.step(Input::Command(office::Command::Lead(Term(term), self.ledger.loans().clone())));
    }

    fn step(&mut self, input: Input<Office>) -> Vec<String> {
        let mut out = Outbox::new();
        self.office.step(Moment::START, input, &mut out);
        let mut words = Vec::new();
        for output in out.drain() {
            if let Output::Notify(office::Notice::Propose(entries)) = &output {
                self.proposed.extend(entries.iter().cloned());
            }
            words.push(output.to_string());
        }
        words.retain(|words| !words.contains("look") && !words.contains(" beat ") && !words.starts_with("ignore"));
        words
    }

    /// Looks around for so long; what was said in the end, each once.
    fn wait_ms(&mut self, length_ms: u64) -> Vec<String> {
        let mut said: Vec<String> = Vec::new();
        for _ in 0..length_ms.div_ceil(LOOK_MS) {
            self.now_ms += LOOK_MS;
            let guests = self.ledger.workers().keys().filter(|name| name.contains('@')).cloned().collect();
            let idle = self.idle.iter().map(|worker| (worker.to_string(), 1)).collect();
            let free = u32::try_from(self.idle.len()).unwrap();
            let situation = Situation { now_ms: self.now_ms, queued: self.queued, free, idle, guests };
            for words in self.step(Input::Command(office::Command::Situation(situation))) {
                if !said.contains(&words) {
                    said.push(words);
                }
            }
        }
        said
    }

    /// Which workers go.
    fn operator_lends(&mut self, to: &str, count: u32) -> Result<Vec<String>, CannotLend> {
        let idle = self.idle.iter().map(|worker| (worker.to_string(), 1)).collect();
        let situation = Situation { idle, ..Situation::default() };
        let entries = self.office.lend(&LendOrder { to: to.into(), count, for_ms: 60_000 }, &situation)?;
        let worker = |entry: &Entry| match entry {
            Entry::Lend(lend) => lend.worker.clone(),
            other => alloc::format!("{other:?}"),
        };
        let workers = entries.iter().map(worker).collect();
        self.proposed.extend(entries);
        Ok(workers)
    }

    fn apply(&mut self, entry: Entry) -> Vec<String> {
        self.ledger.apply(Batch { time_ms: self.now_ms, entries: alloc::vec![entry] });
        self.step(Input::Command(office::Command::Agreed(self.ledger.loans().clone())))
    }

    /// What was proposed is agreed on.
    fn commit(&mut self) -> Vec<String> {
        let proposed = core::mem::take(&mut self.proposed);
        proposed.into_iter().flat_map(|entry| self.apply(entry)).collect()
    }

    fn hears(&mut self, from: FarmId, content: Content) -> Vec<String> {
        self.hears_in_term(1, from, content)
    }

    fn hears_in_term(&mut self, term: u64, from: FarmId, content: Content) -> Vec<String> {
        self.step(Input::Message { from, message: Message { term: Term(term), content } })
    }

    fn hears_beat(&mut self, from: FarmId, lent: &[Lending], borrowed: &[u64]) -> Vec<String> {
        let borrowed = borrowed.iter().copied().map(LoanId).collect();
        self.hears(from, Content::Beat(Beat { lent: lent.to_vec(), borrowed, ..Beat::default() }))
    }

    /// Both neighbours are there.
    fn hears_beats(&mut self) {
        self.hears_beat(SOUTH, &[], &[]);
        self.hears_beat(EAST, &[], &[]);
    }

    fn hears_ask(&mut self, number: u64, count: u32) -> Vec<String> {
        self.hears(SOUTH, Content::Ask(Request { number, count, for_ms: 60_000 }))
    }

    fn hears_offer(&mut self, from: FarmId, number: u64, loan: u64) -> Vec<String> {
        self.hears(from, Content::Offer { number, loans: alloc::vec![LoanId(loan)] })
    }

    fn said(&mut self, worker: &str, epoch: u64, is_away: bool) -> Vec<String> {
        let word = Word::At { epoch: LoanId(epoch), is_away };
        self.step(Input::Command(office::Command::Said(worker.into(), word)))
    }

    fn arrives(&mut self, worker: &str, loan: u64) -> Vec<String> {
        self.step(Input::Command(office::Command::Arrived(worker.into(), LoanId(loan))))
    }

    /// Lends `w1` to south under loan 1, and it has gone there.
    fn lends(change: impl Fn(&mut Rules)) -> Self {
        let mut farm = Self::with_workers(&["w1"], change);
        farm.hears_ask(1, 1);
        farm.commit();
        farm.idle.clear();
        farm.said("w1", 1, true);
        farm
    }

    /// Has `w1` of south under loan 5.
    fn borrows(why: Why) -> Self {
        let mut farm = Self::new(|_| ());
        farm.hears_beat(SOUTH, &[Lending { why, ..lending(5, "w1") }], &[]);
        farm.arrives("w1@south", 5);
        farm.commit();
        farm.apply(Entry::Join { worker: "w1@south".into(), slots: 1 });
        farm
    }

    fn lent(&self) -> usize {
        self.ledger.loans().lent().len()
    }
}

fn lending(loan: u64, worker: &str) -> Lending {
    Lending { loan: LoanId(loan), worker: worker.into(), for_ms: 60_000, why: Why::Asked, is_recalled: false }
}

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
    assert_eq!(farm.hears_offer(EAST, 2, 9), ["east lends 1 workers"]);
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
    assert!(farm.wait_ms(300).contains(&"asked east for 1 workers".into()));
}

#[test]
fn whoever_is_here_or_on_its_way_is_not_asked_for_again() {
    let mut farm = Farm::saturated();
    farm.hears_beat(SOUTH, &[lending(5, "w1"), lending(6, "w2")], &[]);
    assert!(farm.wait_ms(300).contains(&"asked south for 1 workers".into()));
}

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
    let cannot_go = |loan| office::Command::Said("w1".into(), Word::CannotGo { loan: LoanId(loan) });
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
    assert_eq!((farm.proposed.len(), farm.office.overdue().count()), (0, 1));
    farm.said("w1", 1, false);
    farm.commit();
    assert_eq!((farm.lent(), farm.office.overdue().count()), (0, 0));
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
    farm.office = Office::new(Rules::default(), Vec::new());
    farm.lead(8);
    assert_eq!(farm.wait_ms(500), ["tell w1: return 1"]);
    farm.said("w1", 1, false);
    assert_eq!(farm.proposed, [Entry::EndLoan(LoanId(1), Ending::Home)]);
    farm.commit();
    assert_eq!((farm.lent(), farm.wait_ms(500)), (0, Vec::new()), "nothing is left to look after");
    let mut farm = Farm::borrows(Why::Operator);
    farm.office = Office::new(Rules::default(), Vec::new());
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

#[test]
fn a_worker_is_let_in_if_its_own_farm_has_lent_it() {
    let mut farm = Farm::new(|_| ());
    farm.hears_beat(SOUTH, &[lending(5, "w1")], &[]);
    assert_eq!(farm.arrives("w1@south", 5), ["propose 1"]);
    farm.commit();
    assert_eq!(farm.ledger.loans().borrowed()["w1@south"].loan, LoanId(5));
}

#[test]
fn a_worker_that_comes_before_the_news_of_it_waits() {
    let mut farm = Farm::new(|_| ());
    farm.wait_ms(3000);
    assert_eq!(farm.arrives("w1@south", 5), [""; 0], "south has not been heard lately");
    assert_eq!(farm.hears_beat(SOUTH, &[lending(5, "w1")], &[]), ["propose 1"]);
}

#[test]
fn an_unknown_worker_is_not_let_in() {
    let mut farm = Farm::new(|_| ());
    farm.hears_beat(SOUTH, &[lending(5, "w1")], &[]);
    assert_eq!(farm.arrives("w2@south", 6), [""; 0], "south may be about to say it");
    let strange = ["w2@south has come from south, which has not lent it"];
    assert_eq!(farm.wait_ms(600), strange);
    assert_eq!(farm.arrives("w2@south", 6), [""; 0]);
    assert_eq!(farm.wait_ms(600), [""; 0], "said once");
    farm.arrives("w2@south", 5);
    farm.hears_beat(SOUTH, &[lending(5, "w1")], &[]);
    assert_eq!(farm.wait_ms(600), strange, "the loan of another one");
    assert_eq!(farm.arrives("w1@west", 5), [""; 0], "of no neighbour");
    farm.hears_beat(SOUTH, &[Lending { is_recalled: true, ..lending(5, "w1") }], &[]);
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
    for number in 0..office::ARRIVALS_MAX as u64 {
        farm.arrives(&alloc::format!("x{number}@south"), number);
    }
    for _ in 0..6 {
        farm.hears_beat(SOUTH, &[lending(5000, "w1")], &[]);
        farm.wait_ms(1000);
    }
    farm.hears_beat(SOUTH, &[lending(5000, "w1")], &[]);
    assert_eq!(farm.arrives("w1@south", 5000), ["propose 1"]);
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
    let all = [lending(5, "w1"), lending(6, "w2"), lending(7, "w3")];
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
    farm.hears_beat(SOUTH, &[lending(5, "w1")], &[]);
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
    farm.hears_beat(SOUTH, &[lending(5, "w1")], &[]);
    assert_eq!(farm.wait_ms(500), [""; 0]);
    assert_eq!(farm.wait_ms(1100), ["calm: next to nothing waits", "tell w1@south: return 5"]);
}

#[test]
fn a_borrowed_worker_stays_for_a_while_even_if_nothing_waits() {
    let mut farm = Farm::borrows(Why::Asked);
    assert_eq!(farm.wait_ms(900), [""; 0]);
    farm.hears_beat(SOUTH, &[lending(5, "w1")], &[]);
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
    let recalled = Lending { is_recalled: true, why: Why::Operator, ..lending(5, "w1") };
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

#[test]
fn terms_of_two_farms_are_never_compared() {
    let mut farm = Farm::with_workers(&["w1"], |_| ());
    assert_eq!(farm.term, 7);
    let ask = |number| Content::Ask(Request { number, count: 1, for_ms: 1 });
    assert_eq!(farm.hears_in_term(3, SOUTH, ask(1)), ["propose 1"]);
    assert_eq!(farm.hears_in_term(2, SOUTH, ask(2)), [""; 0], "of a deposed leader");
    assert_eq!(farm.hears_in_term(2, EAST, ask(1)), ["send 2 refusal 1: none_idle"]);
}

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

/// A worker's allegiance, and what follows from each input.
struct Hand(Allegiance);

impl Hand {
    /// Has just started, is welcome at home, and has followed calls up to this one before.
    fn new(epoch: u64) -> Self {
        let mut hand = Self(Allegiance::new(LoanId(epoch), Planted::NONE));
        hand.tell(allegiance::Command::Home(Some(HOME)));
        hand
    }

    /// Is away under this loan.
    fn away(loan: u64) -> Self {
        let mut hand = Self::new(0);
        hand.called(loan);
        hand.written(1);
        hand
    }

    fn step(&mut self, input: Input<Allegiance>) -> Vec<String> {
        let mut out = Outbox::new();
        self.0.step(Moment::START, input, &mut out);
        out.drain().map(|output| output.to_string()).filter(|words| !words.starts_with("ignore")).collect()
    }

    fn tell(&mut self, command: allegiance::Command) -> Vec<String> {
        self.step(Input::Command(command))
    }

    fn hears(&mut self, message: Word) -> Vec<String> {
        self.step(Input::Message { from: HOME, message })
    }

    fn called(&mut self, loan: u64) -> Vec<String> {
        self.hears(Word::Redirect { loan: LoanId(loan), farm: "south".into(), for_ms: 60_000, within_ms: 10_000 })
    }

    fn called_home(&mut self, loan: u64) -> Vec<String> {
        self.hears(Word::Return { loan: LoanId(loan), within_ms: 10_000 })
    }

    fn sent_home(&mut self, loan: u64) -> Vec<String> {
        self.tell(allegiance::Command::Abroad(Word::Return { loan: LoanId(loan), within_ms: 10_000 }))
    }

    fn busy(&mut self, is_busy: bool) -> Vec<String> {
        self.tell(allegiance::Command::Idle(!is_busy))
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
    assert_eq!(hand.tell(allegiance::Command::Home(Some(HOME))), [""; 0]);
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
    let call = Word::Redirect { loan: LoanId(9), farm: "south".into(), for_ms: 1, within_ms: 1 };
    assert_eq!(hand.step(Input::Message { from: ServerId(2), message: call.clone() }), [""; 0]);
    assert_eq!(hand.tell(allegiance::Command::Abroad(call)), [""; 0]);
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
    assert_eq!(hand.step(Input::Timer(allegiance::Timer::Deadline)), ["stop"]);
    assert_eq!(hand.busy(false), ["cancel deadline", "come home", "send 1 at home, last away under 5"]);
}

#[test]
fn a_worker_whose_time_is_over_stays_while_its_home_is_out_of_reach() {
    let mut hand = Hand::away(5);
    hand.tell(allegiance::Command::Home(None));
    assert_eq!(hand.step(Input::Timer(allegiance::Timer::Lease)), ["set lease"]);
    assert_eq!(hand.tell(allegiance::Command::Home(Some(ServerId(3)))), ["send 3 away under 5"]);
    let said = hand.step(Input::Timer(allegiance::Timer::Lease));
    assert_eq!(said[2..], ["finish", "cancel deadline", "come home", "send 3 at home, last away under 5"]);
}

#[test]
fn a_worker_that_has_started_again_is_at_home() {
    let mut hand = Hand(Allegiance::new(LoanId(5), Planted::NONE));
    assert_eq!(hand.tell(allegiance::Command::Home(Some(HOME))), ["send 1 at home, last away under 5"]);
    assert_eq!(hand.called(5), ["send 1 at home, last away under 5"]);
    assert_eq!(hand.called(6), ["persist 1 epoch 6"]);
}

#[test]
fn nobody_makes_a_worker_wait_for_ever() {
    let mut hand = Hand::away(5);
    hand.busy(true);
    hand.tell(allegiance::Command::Abroad(Word::Return { loan: LoanId(5), within_ms: u64::MAX }));
    assert!(matches!(hand.0.place(), Place::Returning { .. }));
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
    assert_eq!(step(apply(Entry::Borrow(borrow))), ["send 11 who are you, in term 1"]);
    assert_eq!(step(hello(1, Some(5))), ["propose 1", "send 11 welcome to term 1"]);
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

/// A worker that works for another farm by now neither begins with what is late nor keeps what waits.
#[test]
fn a_worker_that_has_gone_home_takes_nothing() {
    let mut hand = worker::Worker::new("w1@south".into(), 1, Delay::exactly_ms(250), [])
        .standing(worker::Allegiance::Lent(LoanId(5)));
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
    step(Input::Command(worker::Command::Allegiance(worker::Allegiance::Over)));
    assert_eq!(step(run(2)), (0, true));
    step(Input::Message { from: leader, message: crate::farm::Message::Welcome(Term(1)) });
    assert_eq!(step(Input::Command(worker::Command::Open(true))), (0, true), "nothing is left");
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
    assert!(farm.office.neighbours().all(|(name, heard)| name != "south" || heard.is_some()));
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

#[test]
fn nobody_fills_an_office_with_workers_that_are_away() {
    let mut farm = Farm::new(|_| ());
    for number in 0..10_000 {
        let word = Word::At { epoch: LoanId(9), is_away: true };
        farm.step(Input::Command(office::Command::Said(alloc::format!("x{number}"), word)));
    }
    let kept = |name: &str| {
        let mut farm = farm.office.clone();
        let mut out = Outbox::new();
        let word = Word::At { epoch: LoanId(9), is_away: true };
        farm.step(Moment::START, Input::Command(office::Command::Said(name.into(), word)), &mut out);
        out.drain().any(|output| matches!(output, Output::Notify(_)))
    };
    assert!(kept("x4095") && !kept("x4096"));
}
