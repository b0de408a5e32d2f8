//! Who says what: flags before the environment, that before the file, that before defaults. All mistakes are collected, also
//! those in values that something else overrules.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use primus_shapes::refusal::Mistake;
use primus_terminal::amounts::quoted;

use super::file;
use super::groups::GroupEntry;
use super::keys::{self, Fallback, KEYS, Key};
use super::neighbours::NeighbourEntry;
use super::value::{Complaint, Listed, Value};

/// Where values come from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    pub(crate) file: Option<PathBuf>,
    /// All variables, ours and others.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) flags: Vec<Override>,
}

/// A value on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Override {
    /// With its dashes.
    pub(crate) flag: String,
    pub(crate) key: String,
    pub(crate) text: String,
}

/// Who said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Flag(String),
    Environment(String),
    /// A file and a line in it.
    File(PathBuf, usize),
    Default,
    /// Nobody, and there is no default.
    Missing,
}

/// A value as somebody gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    /// As it was written.
    pub(crate) text: String,
    /// None if it is wrong.
    pub(crate) value: Option<Value>,
    pub(crate) origin: Origin,
}

/// All values, as far as they are known, and all mistakes.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    given: BTreeMap<&'static str, Given>,
    pub(crate) mistakes: Vec<Mistake>,
    /// Is there a file of which not everything is known?
    pub(super) is_damaged: bool,
}

impl Layers {
    /// Reads everything that somebody said.
    pub(crate) fn read(sources: &Sources) -> Self {
        let mut layers = Self::default();
        if let Some(path) = &sources.file {
            layers.read_file(path);
        }
        for (variable, text) in &sources.environment {
            layers.read_variable(variable, text);
        }
        for flag in &sources.flags {
            layers.read_flag(flag);
        }
        layers
    }

    fn read_file(&mut self, path: &Path) {
        match std::fs::read_to_string(path) {
            Ok(text) => {
                file::read(path, &text, self);
                self.mistakes.sort_by_key(|mistake| mistake.line);
            }
            Err(error) => {
                self.is_damaged = true;
                let message = format!("cannot read {}: {error}", path.display());
                self.complain(None, "", (message, "check --config".to_owned()));
            }
        }
    }

    /// An empty variable says nothing. One that is only nearly ours is a mistake; others belong to somebody else.
    fn read_variable(&mut self, variable: &str, text: &str) {
        if text.is_empty() || !variable.starts_with("PRIMUS_") {
            return;
        }
        let origin = Origin::Environment(variable.to_owned());
        if let Some(key) = KEYS.iter().find(|key| key.variable() == variable) {
            return self.give(key, text, origin);
        }
        let near = KEYS.iter().map(Key::variable).find(|name| strsim::damerau_levenshtein(name, variable) <= 2);
        if let Some(near) = near {
            let message = "is not a variable of primus".to_owned();
            self.complain(Some(&origin), variable, (message, format!("did you mean {near}?")));
        }
    }

    fn read_flag(&mut self, flag: &Override) {
        let origin = Origin::Flag(flag.flag.clone());
        let Some(key) = keys::find(&flag.key) else {
            let complaint = unknown(&flag.key, KEYS.iter().map(|key| key.name));
            return self.complain(Some(&origin), &flag.key, complaint);
        };
        if let Some(Given { origin: Origin::Flag(other), .. }) = self.given.get(key.name) {
            let message = format!("{} is given twice, by {other} too", key.name);
            return self.complain(Some(&origin), key.name, (message, "leave one out".to_owned()));
        }
        self.give(key, &flag.text, origin);
    }

    /// Notes what somebody wrote as the value of a key.
    fn give(&mut self, key: &'static Key, text: &str, origin: Origin) {
        match key.kind.read(text) {
            Ok(value) => self.set(key.name, value, origin),
            Err(complaint) => self.give_wrong(key, text, complaint, origin),
        }
    }

    /// Notes a value that cannot be used, and why.
    pub(super) fn give_wrong(&mut self, key: &'static Key, text: &str, complaint: Complaint, origin: Origin) {
        let (what, hint) = complaint;
        self.complain(Some(&origin), key.name, (format!("{} {what}", key.name), hint));
        self.given.insert(key.name, Given { text: text.to_owned(), value: None, origin });
    }

    pub(super) fn set(&mut self, name: &'static str, value: Value, origin: Origin) {
        self.given.insert(name, Given { text: value.to_string(), value: Some(value), origin });
    }

    /// What counts if nobody said anything.
    pub(super) fn fall_back(&mut self, name: &'static str, value: Value) {
        if !self.given.contains_key(name) {
            self.set(name, value, Origin::Default);
        }
    }

    /// The defaults that depend on nothing else.
    pub(super) fn plain_defaults(&mut self) {
        for key in KEYS {
            if let Fallback::Is(text) = key.fallback {
                self.fall_back(key.name, key.kind.read(text).expect("a test reads all defaults"));
            }
        }
    }

    pub(super) fn complain(&mut self, origin: Option<&Origin>, key: &str, (message, hint): Complaint) {
        let (file, line) = match origin {
            Some(Origin::File(path, line)) => (Some(path.display().to_string()), Some(*line)),
            _ => (None, None),
        };
        let place = origin.and_then(Origin::place);
        self.mistakes.push(Mistake { place, file, line, key: key.to_owned(), message, hint });
    }

    /// Complains about a value that is right by itself.
    pub(super) fn complain_about(&mut self, name: &'static str, message: String, hint: impl Into<String>) {
        let origin = self.given.get(name).map(|given| given.origin.clone());
        self.complain(origin.as_ref(), name, (message, hint.into()));
    }

    /// What was given for a key, right or wrong.
    pub(crate) fn given(&self, name: &str) -> Option<&Given> {
        self.given.get(name)
    }

    /// Did somebody say it?
    pub(super) fn is_written(&self, name: &str) -> bool {
        self.given.get(name).is_some_and(|given| given.origin != Origin::Default)
    }

    fn value(&self, name: &str) -> Option<&Value> {
        debug_assert!(keys::find(name).is_some(), "{name} is not in the table");
        self.given.get(name)?.value.as_ref()
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        if let Some(Value::Number(number)) = self.value(name) { Some(*number) } else { None }
    }

    pub(super) fn truth(&self, name: &str) -> Option<bool> {
        if let Some(Value::Truth(truth)) = self.value(name) { Some(*truth) } else { None }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        if let Some(Value::Text(text)) = self.value(name) { Some(text) } else { None }
    }

    pub(super) fn time(&self, name: &str) -> Option<Duration> {
        if let Some(Value::Time(time)) = self.value(name) { Some(*time) } else { None }
    }

    pub(super) fn time_range(&self, name: &str) -> Option<(Duration, Duration)> {
        if let Some(Value::TimeRange(least, most)) = self.value(name) { Some((*least, *most)) } else { None }
    }

    pub(super) fn address(&self, name: &str) -> Option<SocketAddr> {
        if let Some(Value::Address(address)) = self.value(name) { Some(*address) } else { None }
    }

    pub(super) fn source(&self, name: &str) -> Option<&primus_node::load::Source> {
        if let Some(Value::Source(source)) = self.value(name) { Some(source) } else { None }
    }

    pub(super) fn size(&self, name: &str) -> Option<u64> {
        if let Some(Value::Size(bytes)) = self.value(name) { Some(*bytes) } else { None }
    }

    pub(super) fn programs(&self, name: &str) -> Option<&[String]> {
        if let Some(Value::Programs(programs)) = self.value(name) { Some(programs) } else { None }
    }

    pub(super) fn command(&self, name: &str) -> Option<&[String]> {
        if let Some(Value::Command(words)) = self.value(name) { Some(words) } else { None }
    }

    pub(super) fn groups(&self, name: &str) -> Option<&[GroupEntry]> {
        if let Some(Value::Groups(groups)) = self.value(name) { Some(groups) } else { None }
    }

    pub(super) fn neighbours(&self, name: &str) -> Option<&[NeighbourEntry]> {
        if let Some(Value::Neighbours(neighbours)) = self.value(name) { Some(neighbours) } else { None }
    }

    pub(super) fn servers(&self, name: &str) -> Option<&[Listed]> {
        if let Some(Value::Servers(servers)) = self.value(name) { Some(servers) } else { None }
    }
}

/// There is no such key.
pub(super) fn unknown(name: &str, names: impl Iterator<Item = &'static str>) -> Complaint {
    (format!("there is no key {}", quoted(name)), keys::advice(name, names, "primus config show lists all"))
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
