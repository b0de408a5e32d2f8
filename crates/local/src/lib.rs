//! Farms of real processes on this host.
//!
//! `primus up` runs them until it is interrupted ([`fleet`], [`running`]), `primus chaos` disturbs them ([`chaos`]), and the demo and the
//! benches start one for themselves and end it ([`temporary_farm`]). Every node is a process of the program that calls this crate: it is
//! started as `server` or `worker`, and a temporary farm as `up`.

pub mod answers;
pub mod chaos;
pub mod common_founding;
pub mod fleet;
mod founding;
pub mod home;
mod ports;
pub mod running;
pub mod several;
pub mod temporary_farm;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use clap::ValueEnum;

pub use temporary_farm::{Purpose, TemporaryFarm};

/// Which farms are wanted; what is absent is as the folder remembers, or as usual.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The number of farms.
    pub farms: Option<u64>,
    /// The number of servers of each.
    pub servers: Option<u64>,
    /// The number of workers of each.
    pub workers: Option<u64>,
    /// The number of tasks that each worker runs at once.
    pub slots: Option<u64>,
    /// The folder that keeps the data; absent, a temporary one is used.
    pub dir: Option<String>,
    /// The name of the farm, or of the first.
    pub farm: Option<String>,
}

/// How a leader is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
#[expect(missing_docs, reason = "a comment would become help text, and the names say it")]
pub enum Algorithm {
    #[default]
    Bully,
    Ring,
}

impl Algorithm {
    /// The name, as configurations have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bully => "bully",
            Self::Ring => "ring",
        }
    }
}

/// A text in TOML. JSON writes it the same way, but for one character.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A number that differs from process to process.
fn chance() -> u64 {
    // The standard library seeds its hash maps from the system; that is all the chance one number needs.
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_as_toml_wants_it() {
        assert_eq!(quoted("a\"b\\c\u{7f}\n"), r#""a\"b\\c\u007f\n""#);
    }
}
