//! What lending sides and workers do to each other, step by step, where runs of whole farms would only show that something went wrong.

mod borrower;
mod guests;
mod lender;
mod neighbours;
mod placement;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::ledger::{Batch, Entry, Ledger, LoanId, Why};
use crate::loan::lending::{self, CannotLend, LOOK_MS, LendOrder, Lending, Rules, Situation};
use crate::loan::{Beat, Content, LentWorker, Message, Request, WorkerMessage};
use crate::{FarmId, Input, Machine, Moment, Outbox, Output, Term};

const SOUTH: FarmId = FarmId(1);
const EAST: FarmId = FarmId(2);
/// When everything begins, in milliseconds since 1970.
const BEGINNING_MS: u64 = 1_000_000;

/// The lending side of the leader of `north`, and the ledger that is agreed on there.
struct Farm {
    lending: Lending,
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
        let lending = Lending::new(rules, alloc::vec!["south".into(), "east".into()]);
        let (ledger, idle, proposed) = (Ledger::default(), Vec::new(), Vec::new());
        let mut farm = Self { lending, ledger, now_ms: BEGINNING_MS, term: 7, queued: 0, idle, proposed };
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
        self.step(Input::Command(lending::Command::Follow));
        self.step(Input::Command(lending::Command::Lead(Term(term), self.ledger.loans().clone())));
    }

    fn step(&mut self, input: Input<Lending>) -> Vec<String> {
        let mut out = Outbox::new();
        self.lending.step(Moment::START, input, &mut out);
        let mut words = Vec::new();
        for output in out.drain() {
            if let Output::Notify(lending::Notice::Propose(entries)) = &output {
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
            for words in self.step(Input::Command(lending::Command::Situation(situation))) {
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
        let entries = self.lending.lend(&LendOrder { to: to.into(), count, for_ms: 60_000 }, &situation)?;
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
        self.step(Input::Command(lending::Command::Agreed(self.ledger.loans().clone())))
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

    fn hears_beat(&mut self, from: FarmId, lent: &[LentWorker], borrowed: &[u64]) -> Vec<String> {
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
        let word = WorkerMessage::At { epoch: LoanId(epoch), is_away };
        self.step(Input::Command(lending::Command::Said(worker.into(), word)))
    }

    fn arrives(&mut self, worker: &str, loan: u64) -> Vec<String> {
        self.step(Input::Command(lending::Command::Arrived(worker.into(), LoanId(loan), 1)))
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
        farm.hears_beat(SOUTH, &[LentWorker { why, ..lent_worker(5, "w1") }], &[]);
        farm.arrives("w1@south", 5);
        farm.commit();
        farm.apply(Entry::Join { worker: "w1@south".into(), slots: 1 });
        farm
    }

    fn lent(&self) -> usize {
        self.ledger.loans().lent().len()
    }
}

fn lent_worker(loan: u64, worker: &str) -> LentWorker {
    LentWorker { loan: LoanId(loan), worker: worker.into(), for_ms: 60_000, why: Why::Asked, is_recalled: false }
}
