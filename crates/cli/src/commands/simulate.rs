//! `primus simulate`: what crates/simulate does, with the rules of lending of a server's configuration.

use primus_core::loan::lending::Rules;
use primus_simulate::Lending;
use primus_simulate::args::SimulateArgs;
use primus_terminal::amounts::quoted;
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict};

use super::config;
use crate::settings::server::Configuration;
use crate::settings::server::layers::Override;

/// Runs what the arguments ask for.
pub(super) fn run(args: &SimulateArgs, format: Format) -> Result<Verdict, Failure> {
    primus_simulate::run(args, lending, format)
}

/// By which rules farms lend. No server starts, so its doors do not matter.
fn lending(typed: Lending<'_>) -> Result<Rules, Failure> {
    let flags = typed.set.iter().map(|word| lending_override(word)).collect::<Result<_, _>>()?;
    let sources = config::sources(typed.config.map(Into::into), flags);
    Configuration::read(&sources, true).lending()
}

fn lending_override(word: &str) -> Result<Override, Failure> {
    let (key, text) = word.split_once('=').unwrap_or((word, ""));
    let (key, text) = (key.trim().to_owned(), text.trim().to_owned());
    if !key.starts_with("lending.") {
        let message = format!("--set {} has nothing to do with lending", quoted(&key));
        return Err(Failure::usage(message, "name a key such as lending.stay; primus config show lists all"));
    }
    Ok(Override { flag: "--set".to_owned(), key, text })
}
