//! Held again: when all has been well for some leases, every group is held by as many as want it and may.

use super::Judgement;
use super::tokens::{Interval, Leases};

pub(super) fn check(leases: &Leases, now_us: u64, candidates: impl Fn(&str) -> usize) -> Judgement {
    for (group, rules) in &leases.groups {
        let wanted = candidates(group).min(usize::from(rules.holders));
        let is_held = |interval: &&Interval| interval.group == *group && interval.end_us > now_us;
        let held = leases.intervals.iter().filter(is_held).count();
        if held != wanted {
            return Err(format!("in the end {group} is held by {held}, and should be by {wanted}"));
        }
    }
    Ok(())
}
