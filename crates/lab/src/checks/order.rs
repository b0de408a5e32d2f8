//! Order: what a client asks a farm for one after the other, without waiting, takes place one after the other.

use primus_core::ledger::JobId;

use super::Judgement;

/// How much was seen.
#[derive(Debug, Default)]
pub(super) struct Watch {
    pairs: u64,
}

impl Watch {
    /// Two jobs were submitted one right after the other.
    pub(super) fn on_both(&mut self, first: JobId, second: JobId) -> Judgement {
        self.pairs += 1;
        if first < second {
            return Ok(());
        }
        Err(format!("a job was submitted before another one, and has number {first} where that one has {second}"))
    }

    pub(super) const fn applies(&self) -> bool {
        self.pairs > 0
    }
}
