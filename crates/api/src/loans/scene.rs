//! What the tests of loans and farms are about: two farms that have lent each other a worker.

use primus_core::ledger::loans::name_here;
use primus_core::ledger::{Batch, Borrow, Entry, Ledger, Lend, LoanId, Why};
use primus_core::loan::lending::{Command, Rules};
use primus_core::loan::{Beat, Content, Lending, LentWorker, Message};
use primus_core::machine::{Input, Machine, Moment, Outbox};
use primus_core::{FarmId, Term};

/// North has lent n1 to south, and has borrowed s1 from it.
pub(crate) fn ledger(entries: Vec<Entry>) -> Ledger {
    let mut ledger = Ledger::default();
    let join = |worker: &str| Entry::Join { worker: worker.to_owned(), slots: 2 };
    let lend = Lend { worker: "n1".to_owned(), to: "south".to_owned(), for_ms: 60_000, why: Why::Asked };
    let (worker, from) = (name_here("s1", "south"), "south".to_owned());
    let borrow = Borrow { worker: worker.clone(), from, loan: LoanId(1), for_ms: 5_000, why: Why::Operator };
    let mut all = vec![join("n1"), Entry::Lend(lend), Entry::Borrow(borrow), join(&worker)];
    all.extend(entries);
    ledger.apply(Batch { time_ms: 1_000, entries: all });
    ledger
}

/// The lending side of north's leader, which has heard this from south.
pub(crate) fn lending(ledger: &Ledger, beats: &[Beat]) -> Lending {
    let mut lending = Lending::new(Rules::default(), vec!["south".to_owned()]);
    let mut outbox = Outbox::new();
    lending.step(Moment::START, Input::Command(Command::Lead(Term(1), ledger.loans().clone())), &mut outbox);
    for beat in beats {
        let message = Message { term: Term(1), content: Content::Beat(beat.clone()) };
        lending.step(Moment::START, Input::Message { from: FarmId(1), message }, &mut outbox);
    }
    lending
}

pub(crate) fn beat(borrowed: &[u64], is_recalled: bool) -> Beat {
    let (worker, why) = ("s1".to_owned(), Why::Operator);
    let lending = LentWorker { loan: LoanId(1), worker, for_ms: 5_000, why, is_recalled };
    let borrowed = borrowed.iter().copied().map(LoanId).collect();
    Beat { idle: 3, queued: 7, lent: vec![lending], borrowed }
}
