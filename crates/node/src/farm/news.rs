//! What people are told of loans: events and figures.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

use primus_core::ledger::{Borrowed, Effect, Ending, Lent, LoanId, Loans, Why};
use primus_core::loan::lending::Happening;
use tokio::time::Instant;

use crate::events::{Guest, History, Kind, Loan};
use crate::meters::Meters;

/// How often a neighbour may make this server tell of its strange behaviour: it must not push everything else out of the history.
const STRANGE_EVERY: Duration = Duration::from_millis(500);

/// Tells them.
pub(super) struct News {
    /// When something strange of each kind was last told.
    strange_told: HashMap<Discriminant<Kind>, Instant>,
    history: Arc<History>,
    meters: Arc<Meters>,
}

impl News {
    pub(super) fn new(history: Arc<History>, meters: Arc<Meters>) -> Self {
        Self { strange_told: HashMap::new(), history, meters }
    }

    /// So many are lent and borrowed.
    pub(super) fn count(&self, loans: &Loans) {
        self.meters.lent.set(loans.lent().len());
        self.meters.borrowed.set(loans.borrowed().len());
    }

    /// Something became of a loan.
    pub(super) fn tell_effect(&self, effect: &Effect, loans: &Loans) {
        let lent = |loan: &LoanId| loans.lent().get(loan).map(|lent| loan_of(*loan, lent));
        // What has ended in the same batch is told when it ends.
        let told = match effect {
            Effect::Lent(loan) => lent(loan).map(|loan| ("lent", Kind::Lent(loan))),
            Effect::Recalled(loan) => lent(loan).map(|loan| ("recalled", Kind::Recalled(loan))),
            Effect::LoanEnded { loan, lent, ending: Ending::Home } => {
                Some(("home", Kind::LoanHome(loan_of(*loan, lent))))
            }
            Effect::LoanEnded { loan, lent, ending: Ending::Dead } => {
                Some(("dead", Kind::LoanDead(loan_of(*loan, lent))))
            }
            Effect::Borrowed(worker) => {
                let borrowed = loans.borrowed().get(worker);
                borrowed.map(|borrowed| ("borrowed", Kind::Borrowed(guest_of(worker, borrowed))))
            }
            Effect::GivenBack(worker, borrowed) => {
                Some(("given_back", Kind::GivenBack(guest_of(worker, borrowed))))
            }
            _ => None,
        };
        if let Some((step, kind)) = told {
            self.meters.loans.add(step);
            self.history.add(kind);
        }
    }

    /// Something about loans that the ledger does not say.
    pub(super) fn tell_happening(&mut self, happening: Happening, loans: &Loans) {
        let (step, kind) = match happening {
            Happening::Saturated { queued } => ("saturated", Kind::Saturated { queued }),
            Happening::Calm => ("calm", Kind::Calm),
            Happening::Asked(farm, count) => ("asked", Kind::LoanAsked { farm, count }),
            Happening::Promised(farm, count) => ("promised", Kind::LoanPromised { farm, count }),
            Happening::Refused(farm, objection) => {
                ("refused", Kind::LoanRefused { farm, reason: objection.name() })
            }
            Happening::NoAnswer(farm) => ("no_answer", Kind::NeighbourSilent { farm }),
            Happening::NotSent(farm, loan) => {
                self.meters.loans.add("not_sent");
                return self.tell_strange(Kind::LoanNotSent { farm, loan: loan.0 });
            }
            Happening::UnknownLoan(farm, loan) => {
                self.meters.loans.add("unknown_loan");
                return self.tell_strange(Kind::LoanUnknown { farm, loan: loan.0 });
            }
            Happening::UnknownWorker(farm, worker) => {
                self.meters.loans.add("unknown_worker");
                return self.tell_strange(Kind::WorkerUnknown { farm, worker });
            }
            Happening::CannotGo(farm, worker) => ("cannot_go", Kind::WorkerCannotGo { farm, worker }),
            Happening::Overdue(loan) => match loans.lent().get(&loan) {
                Some(lent) => ("overdue", Kind::Overdue(loan_of(loan, lent))),
                None => return,
            },
        };
        self.meters.loans.add(step);
        self.history.add(kind);
    }

    /// Tells what a neighbour does wrong, unless the last such thing was just now.
    fn tell_strange(&mut self, kind: Kind) {
        let told = self.strange_told.get(&discriminant(&kind));
        if told.is_none_or(|told| told.elapsed() >= STRANGE_EVERY) {
            self.strange_told.insert(discriminant(&kind), Instant::now());
            self.history.add(kind);
        }
    }
}

fn loan_of(loan: LoanId, lent: &Lent) -> Loan {
    let Lent { worker, to, for_ms, why, .. } = lent.clone();
    Loan { loan: loan.0, worker, to, for_ms, why: why_name(why) }
}

fn guest_of(worker: &str, borrowed: &Borrowed) -> Guest {
    let Borrowed { from, loan, for_ms, why, .. } = borrowed.clone();
    Guest { loan: loan.0, worker: worker.to_owned(), from, for_ms, why: why_name(why) }
}

const fn why_name(why: Why) -> &'static str {
    match why {
        Why::Asked => "asked",
        Why::Operator => "operator",
    }
}
