//! Points in time and scores, as answers show them.

use std::time::{Duration, SystemTime};

use primus_core::load::Score;
pub(crate) use primus_node::events::text_of;

/// A point in time as text, from milliseconds since 1970.
pub(crate) fn time_text(time_ms: u64) -> String {
    text_of(SystemTime::UNIX_EPOCH + Duration::from_millis(time_ms))
}

/// Now, in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// A score, from 0 to 100 with two digits.
pub(crate) fn score(score: Score) -> f64 {
    f64::from(score.hundredths()) / 100.0
}
