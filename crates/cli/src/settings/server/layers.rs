//! Who says what: flags before the environment, that before the file, that before defaults. All mistakes are collected, also
//! those in values that something else overrules.

use std::path::{Path, PathBuf};

use primus_terminal::failure::Failure;

use super::file;
use super::keys::{KEYS, Values};
use super::mistakes::{Mistakes, Origin, unknown};
use super::slot::{AnySlot, Gathered};

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

/// All values, as far as they are known, and all mistakes.
#[derive(Default)]
pub(crate) struct Layers {
    pub(super) values: Values<Gathered>,
    pub(super) mistakes: Mistakes,
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

    /// The same, with the defaults that depend on nothing else.
    pub(super) fn with_plain_defaults(sources: &Sources) -> Self {
        let mut layers = Self::read(sources);
        layers.values.slots_mut().into_iter().for_each(AnySlot::fall_back_plainly);
        layers
    }

    fn read_file(&mut self, path: &Path) {
        match std::fs::read_to_string(path) {
            Ok(text) => {
                file::read(path, &text, self);
                self.mistakes.0.sort_by_key(|mistake| mistake.line);
            }
            Err(error) => {
                self.is_damaged = true;
                let message = format!("cannot read {}: {error}", path.display());
                self.mistakes.add(None, "", (message, "check --config".to_owned()));
            }
        }
    }

    /// An empty variable says nothing. One that is only nearly ours is a mistake; others belong to somebody else.
    fn read_variable(&mut self, variable: &str, text: &str) {
        if text.is_empty() || !variable.starts_with("PRIMUS_") {
            return;
        }
        let origin = Origin::Environment(variable.to_owned());
        let mut slots = self.values.slots_mut().into_iter();
        if let Some(slot) = slots.find(|slot| slot.key().variable() == variable) {
            return slot.give_text(text, origin, &mut self.mistakes);
        }
        let mut variables = KEYS.iter().map(|key| key.variable());
        if let Some(near) = variables.find(|name| strsim::damerau_levenshtein(name, variable) <= 2) {
            let message = "is not a variable of primus".to_owned();
            self.mistakes.add(Some(&origin), variable, (message, format!("did you mean {near}?")));
        }
    }

    fn read_flag(&mut self, flag: &Override) {
        let origin = Origin::Flag(flag.flag.clone());
        let Some(slot) = self.values.slot(&flag.key) else {
            let complaint = unknown(&flag.key, KEYS.iter().map(|key| key.name));
            return self.mistakes.add(Some(&origin), &flag.key, complaint);
        };
        if let Some(Origin::Flag(other)) = slot.given().map(|given| &given.origin) {
            let message = format!("{} is given twice, by {other} too", flag.key);
            return self.mistakes.add(Some(&origin), &flag.key, (message, "leave one out".to_owned()));
        }
        slot.give_text(&flag.text, origin, &mut self.mistakes);
    }

    /// Every key with what was said of it, in the order of the table.
    pub(crate) fn slots(&self) -> Vec<&dyn AnySlot> {
        self.values.slots()
    }

    /// Is anything wrong?
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let mistakes = &self.mistakes.0;
        if mistakes.is_empty() { Ok(()) } else { Err(Failure::configuration(mistakes.clone())) }
    }
}
