//! Help: a farm that has too much to do gets workers from others that have nothing to do and more than they keep in reserve.

use super::Judgement;
use crate::driver::host::FarmPlace;

pub(super) fn check(has_rested: bool, waiting_for_help: Option<FarmPlace>) -> Judgement {
    match waiting_for_help {
        None if !has_rested => Err("in the end there was no rest".to_owned()),
        None => Ok(()),
        Some(farm) => Err(format!("farm {farm} was flooded, and nobody helped")),
    }
}
