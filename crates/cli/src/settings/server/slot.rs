//! What is known of a key, and the place that holds its value: a [`Slot`] while values are gathered, and the plain value once
//! they are settled.

use primus_terminal::failure::Failure;
use serde_json::Value as Json;
use toml::de::DeValue;

use super::file::plain;
use super::kind::Kind;
use super::mistakes::{Complaint, Mistakes, Origin};

/// One value that can be configured.
#[derive(Debug)]
pub(crate) struct Key {
    /// Its section and name in a file: `election.heartbeat`.
    pub(crate) name: &'static str,
    pub(crate) fallback: Fallback,
    /// Its flag of `primus server`, without the dashes. `--set` reaches the others.
    pub(crate) flag: Option<&'static str>,
    pub(crate) about: &'static str,
    /// What stands for such a value in help texts.
    pub(crate) word: &'static str,
    /// How a good value looks in a file.
    pub(crate) example: fn() -> String,
}

/// What counts if nobody says anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fallback {
    /// Somebody must say something.
    Missing,
    /// This.
    Is(&'static str),
    /// It depends on other values, in this way.
    Depends(&'static str),
}

/// What a section holds for each of its keys.
pub(crate) trait State {
    type Of<K: Kind>;
}

/// Values are gathered: some are not known yet, and some are wrong.
pub(crate) enum Gathered {}

/// Every key has its value.
pub(crate) enum Settled {}

impl State for Gathered {
    type Of<K: Kind> = Slot<K>;
}

impl State for Settled {
    type Of<K: Kind> = K::Value;
}

/// A key, and its value as far as it is known.
pub(crate) struct Slot<K: Kind> {
    pub(crate) key: &'static Key,
    given: Option<Given>,
    /// None as well if what was given is wrong.
    value: Option<K::Value>,
}

/// A value as somebody gave it, right or wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    /// As people see it.
    pub(crate) text: String,
    /// As scripts see it.
    pub(crate) json: Json,
    pub(crate) origin: Origin,
}

/// A slot of any kind.
pub(crate) trait AnySlot {
    fn key(&self) -> &'static Key;

    /// What was given, right or wrong.
    fn given(&self) -> Option<&Given>;

    /// Notes what somebody wrote as the value.
    fn give_text(&mut self, text: &str, origin: Origin, mistakes: &mut Mistakes);

    /// Notes what a file says.
    fn give_toml(&mut self, value: &DeValue<'_>, origin: Origin, mistakes: &mut Mistakes);

    /// Takes the default that depends on nothing else, if there is one and nobody said anything.
    fn fall_back_plainly(&mut self);
}

impl Key {
    /// A key of this kind. There is at most one flag.
    pub(super) const fn new<K: Kind>(
        name: &'static str,
        fallback: Fallback,
        flags: &[&'static str],
        about: &'static str,
    ) -> Self {
        let about = about.trim_ascii();
        Self { name, fallback, flag: flags.first().copied(), about, word: K::WORD, example: K::example }
    }

    /// Its variable in the environment: `PRIMUS_ELECTION_HEARTBEAT`.
    pub(crate) fn variable(&self) -> String {
        format!("PRIMUS_{}", self.name.replace('.', "_").to_uppercase())
    }

    /// Its section, nothing for a key without one, and its name in there.
    pub(crate) fn parts(&self) -> (&'static str, &'static str) {
        self.name.rsplit_once('.').unwrap_or(("", self.name))
    }
}

impl<K: Kind> Slot<K> {
    pub(super) const fn new(key: &'static Key) -> Self {
        Self { key, given: None, value: None }
    }

    /// The value, if it is known and right.
    pub(super) fn get(&self) -> Option<K::Value> {
        self.value.clone()
    }

    /// Did somebody say it?
    pub(super) fn is_written(&self) -> bool {
        self.given.as_ref().is_some_and(|given| given.origin != Origin::Default)
    }

    /// The value, if somebody said it.
    pub(super) fn written(&self) -> Option<K::Value> {
        self.get().filter(|_| self.is_written())
    }

    /// What counts if nobody said anything.
    pub(super) fn fall_back(&mut self, value: K::Value) {
        if self.given.is_none() {
            self.set(value, Origin::Default);
        }
    }

    pub(super) fn set(&mut self, value: K::Value, origin: Origin) {
        self.given = Some(Given { text: K::show(&value), json: K::json(&value), origin });
        self.value = Some(value);
    }

    /// The value of a configuration without mistakes.
    pub(super) fn settled(&self) -> Result<K::Value, Failure> {
        self.get().ok_or_else(|| self.unknown())
    }

    /// Why nothing can begin.
    pub(super) fn unknown(&self) -> Failure {
        let mut mistakes = Mistakes::default();
        let hint = format!("give it one, such as {}", (self.key.example)());
        mistakes.about(self, format!("{} has no value", self.key.name), hint);
        Failure::configuration(mistakes.0)
    }

    fn give(&mut self, read: Result<K::Value, Complaint>, text: &str, origin: Origin, mistakes: &mut Mistakes) {
        let (what, hint) = match read {
            Ok(value) => return self.set(value, origin),
            Err(complaint) => complaint,
        };
        mistakes.add(Some(&origin), self.key.name, (format!("{} {what}", self.key.name), hint));
        let json = if text.is_empty() { Json::Null } else { Json::from(text) };
        self.given = Some(Given { text: text.to_owned(), json, origin });
        self.value = None;
    }
}

impl<K: Kind> AnySlot for Slot<K> {
    fn key(&self) -> &'static Key {
        self.key
    }

    fn given(&self) -> Option<&Given> {
        self.given.as_ref()
    }

    fn give_text(&mut self, text: &str, origin: Origin, mistakes: &mut Mistakes) {
        self.give(K::read(text), text, origin, mistakes);
    }

    fn give_toml(&mut self, value: &DeValue<'_>, origin: Origin, mistakes: &mut Mistakes) {
        self.give(K::of_toml(value, self.key.parts().1), &plain(value), origin, mistakes);
    }

    fn fall_back_plainly(&mut self) {
        if let Fallback::Is(text) = self.key.fallback
            && let Ok(value) = K::read(text)
        {
            self.fall_back(value);
        }
    }
}
