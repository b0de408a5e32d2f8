//! Tokens: no two grants bear the same one, and whoever holds a group later than all others has a greater one.
//!
//! Where several may hold a group, two grants that were agreed on together may be heard of in any order.

use primus_core::ledger::GroupRules;

use super::{Interval, Judgement};

pub(super) fn check(before: &[Interval], new: &Interval, rules: GroupRules) -> Judgement {
    if let Some(same) = before.iter().find(|interval| interval.token == new.token) {
        return Err(format!("#{} is granted to {:?}, and was to {:?}", new.token, new.session, same.session));
    }
    let newest = before.iter().filter(|interval| interval.group == new.group).map(|interval| interval.token).max();
    match newest {
        Some(newest) if rules.holders == 1 && newest > new.token => {
            Err(format!("{} is held under #{}, and was under #{newest}", new.group, new.token))
        }
        _ => Ok(()),
    }
}
