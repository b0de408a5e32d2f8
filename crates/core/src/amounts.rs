//! Amounts as people read them.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

/// A length of time, in the unit that suits it.
#[must_use]
pub fn time(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        seconds if seconds < 120.0 => format!("{seconds:.1} s"),
        seconds if seconds < 7_200.0 => format!("{:.0} min", seconds / 60.0),
        seconds if seconds < 172_800.0 => format!("{:.1} h", seconds / 3_600.0),
        seconds => format!("{:.1} days", seconds / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_as_exact_as_anybody_cares() {
        for (ms, expected) in
            [(4, "4.0 ms"), (1_500, "1.5 s"), (150_000, "2 min"), (9_000_000, "2.5 h"), (216_000_000, "2.5 days")]
        {
            assert_eq!(time(Duration::from_millis(ms)), expected);
        }
    }
}
