//! One thing as a page: a headline, facts under it, and what to type next.

use primus_terminal::failure::on_one_line;
use primus_terminal::values::{number, plain};
use serde_json::Value;

/// A headline and lines under it.
pub(super) struct Page {
    text: String,
}

impl Page {
    pub(super) fn new(headline: String) -> Self {
        Self { text: headline }
    }

    pub(super) fn fact(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value {
            self.text.push_str(&format!("  {name:<10} {value}\n"));
        }
    }

    /// The end of what a task printed, line by line.
    pub(super) fn tail(&mut self, stream: &str, task: &Value) {
        let Some(text) = task[stream].as_str().filter(|text| !text.is_empty()) else { return };
        let total = number(&task[&format!("{stream}_len")]);
        let shown = text.len() as u64;
        let of = if total > shown { format!(" (the last {shown} of {total} bytes)") } else { String::new() };
        self.text.push_str(&format!("\n{stream}{of}:\n"));
        for line in text.trim_end_matches('\n').split('\n') {
            self.text.push_str(&format!("  {}\n", on_one_line(line)));
        }
    }

    pub(super) fn hint(&mut self, text: &str) {
        self.text.push_str(&format!("\n{text}\n"));
    }

    pub(super) fn text(self) -> String {
        self.text
    }
}

/// A value, unless there is nothing to say.
pub(super) fn said(value: &Value) -> Option<String> {
    (!value.is_null() && value != "").then(|| plain(value))
}
