//! Holders: no group is held by more at once than may hold it.
//!
//! It is enough to look when an interval begins or grows: whenever too many run at once, the last of these moments shows it.

use super::Judgement;
use super::tokens::{Interval, Leases};

pub(super) fn check(leases: &Leases, place: usize, now_us: u64) -> Judgement {
    let intervals = &leases.intervals;
    let new = &intervals[place];
    let rules = leases.groups[&new.group];
    if new.end_us <= now_us {
        return Ok(());
    }
    let is_other = |other: &&Interval| other.group == new.group && other.token != new.token;
    let others: Vec<&Interval> = intervals.iter().filter(is_other).filter(|other| other.end_us > now_us).collect();
    if others.len() < usize::from(rules.holders) {
        return Ok(());
    }
    let tokens: Vec<String> =
        others.iter().map(|other| format!("#{} until {} µs", other.token, other.end_us)).collect();
    Err(format!(
        "at {now_us} µs {} is held under #{} until {} µs, and still {}",
        new.group,
        new.token,
        new.end_us,
        tokens.join(", ")
    ))
}
