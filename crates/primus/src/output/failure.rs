//! Failures as people and scripts see them: what is wrong, and what to do. One line on stderr.

use std::process::ExitCode;

use serde::Serialize;

use super::screen;
use crate::args::Format;

/// Something that was asked for and cannot be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    code: &'static str,
    exit: u8,
    message: String,
    hint: String,
}

#[derive(Serialize)]
struct Body<'a> {
    error: Inner<'a>,
}

#[derive(Serialize)]
struct Inner<'a> {
    code: &'a str,
    message: &'a str,
    hint: &'a str,
}

impl Failure {
    /// The command line makes no sense: exit code 2.
    pub(crate) fn usage(message: impl AsRef<str>, hint: impl AsRef<str>) -> Self {
        Self::new("usage", 2, message.as_ref(), hint.as_ref())
    }

    /// A bench could not measure: exit code 1.
    pub(crate) fn bench(message: impl AsRef<str>, hint: impl AsRef<str>) -> Self {
        Self::new("bench", 1, message.as_ref(), hint.as_ref())
    }

    /// The output could not be written: exit code 1.
    pub(crate) fn output(error: &std::io::Error) -> Self {
        Self::new("output", 1, &format!("the output could not be written: {error}"), "look at where stdout goes")
    }

    fn new(code: &'static str, exit: u8, message: &str, hint: &str) -> Self {
        Self { code, exit, message: on_one_line(message), hint: on_one_line(hint) }
    }

    /// Says so, in the format that was asked for.
    pub(crate) fn report(&self, format: Format) -> ExitCode {
        match format {
            Format::Json => screen::complain(&self.json()),
            Format::Text | Format::Mermaid => screen::complain(&self.text()),
        }
        ExitCode::from(self.exit)
    }

    fn text(&self) -> String {
        format!("{}: {}; {}", screen::styled(screen::BAD, "error"), self.message, self.hint)
    }

    fn json(&self) -> String {
        let error = Inner { code: self.code, message: &self.message, hint: &self.hint };
        serde_json::to_string(&Body { error }).expect("plain texts become JSON")
    }
}

/// People's own words are quoted in failures; line breaks and terminal commands in them are made visible.
fn on_one_line(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

#[cfg(test)]
impl Failure {
    /// What is wrong and what to do, for tests.
    pub(crate) fn words(&self) -> String {
        format!("{}; {}", self.message, self.hint)
    }
}
