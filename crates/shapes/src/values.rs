//! Values as people read them: what servers said, and lengths of time.

use std::time::Duration;

use serde_json::Value;

/// A number that a server gave.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// A value without quotes, on one line.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => on_one_line(text),
        Value::Array(list) => list.iter().map(plain).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

/// A length of time as people read it.
pub fn time(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        seconds if seconds < 120.0 => format!("{seconds:.1} s"),
        seconds if seconds < 7_200.0 => format!("{:.0} min", seconds / 60.0),
        seconds if seconds < 172_800.0 => format!("{:.1} h", seconds / 3_600.0),
        seconds => format!("{:.1} days", seconds / 86_400.0),
    }
}

/// People's own words are quoted in failures; line breaks and terminal commands in them are made visible.
pub fn on_one_line(text: &str) -> String {
    primus_core::text::escape(text).into_owned()
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
