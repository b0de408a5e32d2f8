//! Allegiance: a worker takes tasks of one farm at a time, and only of the one that it works for.

use primus_core::ledger::Held;

use super::Judgement;
use crate::driver::host::Member;

pub(super) fn check(member: Member, held: Held, is_allowed: bool, elsewhere: Option<&str>) -> Judgement {
    let Member { worker, farm } = member;
    match elsewhere {
        Some(other) => {
            Err(format!("worker {worker} begins with {held} of farm {farm} and still runs one of {other}"))
        }
        None if !is_allowed => {
            Err(format!("worker {worker} begins with {held} of farm {farm}, which it does not work for"))
        }
        None => Ok(()),
    }
}
