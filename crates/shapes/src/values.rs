//! Values as people read them: what servers said, and lengths of time.

pub use primus_core::amounts::time;
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

/// People's own words are quoted in failures; line breaks and terminal commands in them are made visible.
pub fn on_one_line(text: &str) -> String {
    primus_core::text::escape(text).into_owned()
}
