//! Why a farm did not do what it was asked.

use std::borrow::Cow;
use std::fmt;

/// What went wrong, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    code: Cow<'static, str>,
    message: String,
    hint: String,
}

/// Whose fault it is, and so what may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The request makes no sense; it will never be carried out.
    Usage,
    /// No server can be reached.
    Unreachable,
    /// Not at the moment: a leader is missing, or a queue is full.
    NotNow,
    /// The server does not allow it.
    NotAllowed,
    /// It was tried and failed, or its outcome is unknown.
    Failed,
}

impl Error {
    /// An error of this kind; `code` is for programs, the rest for people.
    pub fn new(
        kind: Kind,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { kind, code: code.into(), message: message.into(), hint: hint.into() }
    }

    /// The request makes no sense.
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Kind::Usage, "usage", message, hint)
    }

    /// No server can be reached.
    pub(crate) fn unreachable(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Kind::Unreachable, "unreachable", message, hint)
    }

    /// It was tried and failed.
    pub(crate) fn failed(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Kind::Failed, code, message, hint)
    }

    /// What a server refused with this HTTP status, in its own words.
    #[must_use]
    pub fn refused(code: String, status: u16, message: &str, hint: &str) -> Self {
        let kind = match (status, code.as_str()) {
            (400 | 413 | 415 | 422, _) => Kind::Usage,
            (401 | 403 | 421, _) => Kind::NotAllowed,
            // Too much is queued, or it does not fit to how things are at the moment.
            (409 | 429, _) => Kind::NotNow,
            // To repeat this blindly may do it twice, so it must not look like "not now".
            (503, "unknown_outcome" | "not_transferred" | "dead") => Kind::Failed,
            (503, _) => Kind::NotNow,
            _ => Kind::Failed,
        };
        Self::new(kind, code, message, hint)
    }

    /// Whose fault it is.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// What kind of error it is, for programs: `no_leader`, `unknown_outcome` and others.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// What is wrong.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do.
    #[must_use]
    pub fn hint(&self) -> &str {
        &self.hint
    }

    /// True if it may work in a moment.
    #[must_use]
    pub fn is_not_now(&self) -> bool {
        self.kind == Kind::NotNow
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.hint)
    }
}

impl std::error::Error for Error {}
