//! Authors: a result that is recorded is that of the worker that ran the attempt. A worker that lies must not speak for others.

use std::collections::BTreeMap;

use primus_core::ledger::{Held, Ledger, Verdict};

use super::Judgement;

/// Who began with what, by the name that the farm gives it.
#[derive(Debug, Default)]
pub(super) struct Watch {
    began: BTreeMap<Held, String>,
}

impl Watch {
    pub(super) fn on_start(&mut self, worker: &str, held: Held) {
        self.began.insert(held, worker.to_owned());
    }

    /// This attempt is recorded.
    pub(super) fn on_finished(&self, held: Held, ledger: &Ledger) -> Judgement {
        let Some(outcome) = ledger.outcome(held.task).filter(|outcome| outcome.verdict != Verdict::Lost) else {
            return Ok(());
        };
        match self.began.get(&held) {
            Some(worker) if *worker == outcome.worker => Ok(()),
            Some(worker) => {
                Err(format!("{held} ran on {worker}, and {} is recorded to have run it", outcome.worker))
            }
            None => Err(format!("{held} never began, and {} is recorded to have run it", outcome.worker)),
        }
    }

    /// Attempts of a term that others than this worker have, or had, and of which the ledger wants to know the end.
    pub(super) fn of_others<'a>(
        &'a self,
        worker: &'a str,
        term: u64,
        ledger: &'a Ledger,
    ) -> impl Iterator<Item = Held> + 'a {
        let others = self.began.iter().filter(move |(_, name)| *name != worker);
        others.map(|(held, _)| *held).filter(move |held| held.attempt.term.0 == term && ledger.is_wanted(*held))
    }
}
