//! Liveness: when the faults have ended and a majority lives, one server leads, all name it, and what is written then
//! reaches everybody.

use primus_core::ServerId;

use super::Judgement;

/// How a live server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) id: ServerId,
    pub(crate) leader: Option<ServerId>,
    pub(crate) applied: u64,
}

/// `wanted` is the place of a write that was asked for after the faults, if it was acknowledged.
pub(super) fn on_end(states: &[State], wanted: Option<u64>) -> Judgement {
    let leader = states.first().and_then(|state| state.leader);
    if leader.is_none() || states.iter().any(|state| state.leader != leader) {
        return Err(format!("the faults are over, and not all agree on a leader: {states:?}"));
    }
    let Some(wanted) = wanted else {
        return Err("the faults are over, and no write was acknowledged".to_owned());
    };
    match states.iter().find(|state| state.applied < wanted) {
        Some(State { id, applied, .. }) => {
            Err(format!("the faults are over, and server {id} has {applied} of {wanted} entries"))
        }
        None => Ok(()),
    }
}

/// Is there nothing left to wait for?
pub(crate) fn is_healed(states: &[State], wanted: Option<u64>) -> bool {
    on_end(states, wanted).is_ok()
}
