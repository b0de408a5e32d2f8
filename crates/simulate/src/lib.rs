//! `primus simulate`: elections, servers and farms in virtual time, told and judged for people and scripts.
//!
//! Words are read as typed ([`args`]), checked into what they mean ([`settings`]), run in the laboratory, once or with many
//! seeds ([`survey`]), and shown ([`output`]). What is simulated and what must hold is in `primus-lab`; nothing here opens a
//! socket or starts a process.

pub mod args;
mod comparisons;
mod elections;
pub mod output;
mod runs;
pub mod settings;
pub mod survey;

use std::path::Path;

use primus_core::loan::lending::Rules;
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict};

use crate::args::{SimulateArgs, Simulated};
pub use crate::elections::{Told, tell};

/// What was typed about the rules by which farms lend: the caller knows how a server is configured.
#[derive(Debug, Clone, Copy)]
pub struct Lending<'a> {
    /// A server's configuration.
    pub config: Option<&'a Path>,
    /// Keys and their values, `lending.stay=5s`.
    pub set: &'a [String],
}

/// Runs what the arguments ask for, and shows what it came to.
///
/// # Errors
/// If the arguments make no sense, or nothing can be printed.
pub fn run(
    args: &SimulateArgs,
    rules: impl FnOnce(Lending<'_>) -> Result<Rules, Failure>,
    format: Format,
) -> Result<Verdict, Failure> {
    match &args.what {
        Simulated::Election(algorithm) => elections::run(algorithm, &args.replay, format),
        Simulated::Servers(what) => runs::run(what, &args.replay, format),
        Simulated::Assignment(args) => comparisons::run_assignment(args, format),
        Simulated::Day(args) => {
            let typed = Lending { config: args.config.as_deref(), set: &args.set };
            comparisons::run_day(args, rules(typed)?, format)
        }
    }
}
