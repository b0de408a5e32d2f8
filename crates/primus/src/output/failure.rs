//! Failures as people and scripts see them: what is wrong, and what to do. One line on stderr.

use std::borrow::Cow;
use std::process::ExitCode;

use serde::Serialize;

use super::screen;
use crate::args::Format;

/// Something that was asked for and cannot be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    code: Cow<'static, str>,
    exit: u8,
    message: String,
    hint: String,
}

/// An error as scripts see it: the commands and the API use the same body.
#[derive(Serialize)]
pub(crate) struct Body<'a> {
    error: Inner<'a>,
}

impl<'a> Body<'a> {
    pub(crate) const fn new(code: &'a str, message: &'a str, hint: &'a str) -> Self {
        Self { error: Inner { code, message, hint } }
    }
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

    /// A server cannot start or go on: exit code 1.
    pub(crate) fn server(message: impl AsRef<str>, hint: impl AsRef<str>) -> Self {
        Self::new("server", 1, message.as_ref(), hint.as_ref())
    }

    /// A bench could not measure: exit code 1.
    pub(crate) fn bench(message: impl AsRef<str>, hint: impl AsRef<str>) -> Self {
        Self::new("bench", 1, message.as_ref(), hint.as_ref())
    }

    /// Whatever went wrong, it is why a bench could not measure: exit code 1.
    pub(crate) fn into_bench(self) -> Self {
        let message = format!("nothing could be measured: {}", self.message);
        Self { code: Cow::Borrowed("bench"), exit: 1, message, hint: self.hint }
    }

    /// What is wrong.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The output could not be written: exit code 1.
    pub(crate) fn output(error: &std::io::Error) -> Self {
        Self::new("output", 1, &format!("the output could not be written: {error}"), "look at where stdout goes")
    }

    /// What was asked for did not work: exit code 1.
    pub(crate) fn failed(code: &'static str, message: impl AsRef<str>, hint: impl AsRef<str>) -> Self {
        Self::new(code, 1, message.as_ref(), hint.as_ref())
    }

    /// No server can be reached: exit code 3.
    pub(crate) fn unreachable(message: impl AsRef<str>, hint: impl AsRef<str>) -> Self {
        Self::new("unreachable", 3, message.as_ref(), hint.as_ref())
    }

    /// Nobody leads, so not now: exit code 4.
    pub(crate) fn no_leader(message: impl AsRef<str>, hint: impl AsRef<str>) -> Self {
        Self::new("no_leader", 4, message.as_ref(), hint.as_ref())
    }

    /// It took too long: exit code 124.
    pub(crate) fn too_long(message: impl AsRef<str>, hint: impl AsRef<str>) -> Self {
        Self::new("timeout", 124, message.as_ref(), hint.as_ref())
    }

    /// It is not allowed: exit code 5.
    pub(crate) fn not_allowed(message: impl AsRef<str>, hint: impl AsRef<str>) -> Self {
        Self::new("not_allowed", 5, message.as_ref(), hint.as_ref())
    }

    /// What a server refused to do, in its own words.
    pub(crate) fn refused(code: String, status: u16, message: &str, hint: &str) -> Self {
        let exit = match (status, code.as_str()) {
            (400 | 413, _) => 2,
            (403, _) => 5,
            // Whoever repeats this blindly may do it twice, so it must not look like "not now".
            (503, "unknown_outcome" | "not_transferred") => 1,
            (503, _) => 4,
            _ => 1,
        };
        Self::new(code, exit, message, hint)
    }

    fn new(code: impl Into<Cow<'static, str>>, exit: u8, message: &str, hint: &str) -> Self {
        Self { code: code.into(), exit, message: on_one_line(message), hint: on_one_line(hint) }
    }

    /// Is it the caller's mistake?
    pub(crate) fn is_usage(&self) -> bool {
        self.exit == 2
    }

    /// Is it worth trying again in a moment?
    pub(crate) fn is_not_now(&self) -> bool {
        self.exit == 4
    }

    /// Says so, in the format that was asked for.
    pub(crate) fn report(&self, format: Format) -> ExitCode {
        self.complain(format);
        ExitCode::from(self.exit)
    }

    /// Says so and goes on.
    pub(crate) fn complain(&self, format: Format) {
        match format {
            Format::Json => screen::complain(&self.json()),
            Format::Text | Format::Mermaid => screen::complain(&self.text()),
        }
    }

    fn text(&self) -> String {
        format!("{}: {}; {}", screen::styled(screen::BAD, "error"), self.message, self.hint)
    }

    fn json(&self) -> String {
        serde_json::to_string(&Body::new(&self.code, &self.message, &self.hint)).expect("plain texts become JSON")
    }
}

/// People's own words are quoted in failures; line breaks and terminal commands in them are made visible.
pub(crate) fn on_one_line(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

#[cfg(test)]
impl Failure {
    /// What is wrong and what to do, for tests.
    pub(crate) fn words(&self) -> String {
        format!("{}; {}", self.message, self.hint)
    }
}
