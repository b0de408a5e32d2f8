//! Why something was not done, as scripts read it: the commands and the API use the same body.

use serde::Serialize;

/// `{"error":{"code":"no_quorum","message":"…","hint":"…"}}`
#[derive(Debug, Serialize)]
pub struct Body<'a> {
    error: Refusal<'a>,
}

#[derive(Debug, Serialize)]
struct Refusal<'a> {
    code: &'a str,
    message: &'a str,
    hint: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    mistakes: &'a [Mistake],
}

/// One thing that is wrong in what somebody wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// Where it was written: `north.toml:12`, `--heartbeat`, `PRIMUS_ELECTION_HEARTBEAT`.
    #[serde(rename = "at")]
    pub place: Option<String>,
    /// The file, if it was written in one.
    pub file: Option<String>,
    /// And the line there, from 1.
    pub line: Option<usize>,
    /// The key that it is about.
    pub key: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: String,
}

impl<'a> Body<'a> {
    /// A refusal for one reason.
    #[must_use]
    pub const fn new(code: &'a str, message: &'a str, hint: &'a str) -> Self {
        Self { error: Refusal { code, message, hint, mistakes: &[] } }
    }

    /// The same, with all that is wrong.
    #[must_use]
    pub const fn with_mistakes(mut self, mistakes: &'a [Mistake]) -> Self {
        self.error.mistakes = mistakes;
        self
    }
}
