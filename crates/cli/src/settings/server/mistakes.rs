//! Who says what, and all that is wrong with it.

use std::fmt;
use std::path::PathBuf;

use primus_shapes::refusal::Mistake;
use primus_terminal::amounts::quoted;
use primus_terminal::names::advice;

use super::slot::AnySlot;

/// What is wrong, and what to do.
pub(super) type Complaint = (String, String);

/// Who said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Flag(String),
    Environment(String),
    /// A file and a line in it.
    File(PathBuf, usize),
    Default,
    /// The key has no value and no default.
    Missing,
}

/// All mistakes, in the order in which they were found.
#[derive(Debug, Default)]
pub(crate) struct Mistakes(pub(crate) Vec<Mistake>);

impl Mistakes {
    pub(super) fn add(&mut self, origin: Option<&Origin>, key: &str, (message, hint): Complaint) {
        let (file, line) = match origin {
            Some(Origin::File(path, line)) => (Some(path.display().to_string()), Some(*line)),
            _ => (None, None),
        };
        let place = origin.and_then(Origin::place);
        self.0.push(Mistake { place, file, line, key: key.to_owned(), message, hint });
    }

    /// Adds one about a value that is right by itself.
    pub(super) fn about(&mut self, slot: &dyn AnySlot, message: String, hint: impl Into<String>) {
        self.add(slot.given().map(|given| &given.origin), slot.key().name, (message, hint.into()));
    }
}

/// The complaint that a key does not exist.
pub(super) fn unknown(name: &str, names: impl Iterator<Item = &'static str>) -> Complaint {
    (format!("key {} does not exist", quoted(name)), advice(name, names, "primus config show lists all"))
}

impl Origin {
    /// Where somebody wrote it.
    fn place(&self) -> Option<String> {
        match self {
            Self::Flag(name) | Self::Environment(name) => Some(name.clone()),
            Self::File(path, line) => Some(format!("{}:{line}", path.display())),
            Self::Default | Self::Missing => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::File(path, line) => write!(f, "file {}:{line}", path.display()),
            Self::Default => f.write_str("default"),
            Self::Missing => f.write_str("missing"),
        }
    }
}
