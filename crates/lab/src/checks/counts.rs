//! Counts: how many tasks there are in each state is what one gets by counting them.

use primus_core::ledger::{Counts, JobId, Ledger, State};

use super::Judgement;

pub(super) fn check(ledger: &Ledger) -> Judgement {
    let mut counted = Counts::default();
    for state in ledger.jobs(JobId(0)).flat_map(|(_, job)| job.states()) {
        *match state {
            State::Waiting { .. } => &mut counted.waiting,
            State::Started => &mut counted.started,
            State::Done => &mut counted.done,
            State::Failed => &mut counted.failed,
            State::Lost => &mut counted.lost,
            State::Cancelled => &mut counted.cancelled,
        } += 1;
    }
    if counted == ledger.counts() {
        return Ok(());
    }
    Err(format!("the ledger says {:?}, and there are {counted:?}", ledger.counts()))
}
