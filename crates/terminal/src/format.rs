//! How a command prints, and what it says of drawings that it cannot make.

use clap::ValueEnum;
use serde::Serialize;

use crate::failure::Failure;
use crate::{json, screen};

/// How output is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For scripts: one object on one line.
    Json,
    /// A diagram, where there is something to draw.
    Mermaid,
}

impl Format {
    /// Prints what was found, for people or for scripts. Is anybody still reading?
    ///
    /// # Errors
    /// If it was to be drawn, or stdout cannot be written.
    pub fn show(self, text: impl FnOnce() -> String, object: &impl Serialize) -> Result<bool, Failure> {
        match self {
            Self::Text => screen::stream(&text()),
            Self::Json => screen::stream(&json::line(object)),
            Self::Mermaid => Err(nothing_to_draw("this")),
        }
    }

    /// Nothing must happen that cannot be shown in the end.
    ///
    /// # Errors
    /// If a drawing is wanted.
    pub fn refuse_to_draw(self) -> Result<(), Failure> {
        if self == Self::Mermaid { Err(nothing_to_draw("this")) } else { Ok(()) }
    }
}

/// The failure of a command whose answer is not a drawing.
#[must_use]
pub fn nothing_to_draw(what: &str) -> Failure {
    Failure::usage(format!("{what} cannot be drawn as mermaid"), "choose -o text or -o json")
}
