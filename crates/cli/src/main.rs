//! The binary `primus`: it turns words on a command line into an exit code.
//!
//! Words are read as typed ([`args`]), checked into what they mean ([`settings`]), carried out ([`commands`]) and
//! shown ([`output`]). Data goes to stdout, everything else to stderr.

mod args;
mod commands;
mod output;
mod settings;

use std::ffi::OsString;
use std::process::ExitCode;

use args::Early;
use primus_terminal::screen;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    match args::parse(&words) {
        Ok(cli) => match commands::run(&cli) {
            Ok(verdict) => verdict.exit_code(),
            Err(failure) => failure.report(cli.output),
        },
        Err(Early::Text(text)) => match screen::print(&text) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.report(args::wanted_output(&words)),
        },
        Err(Early::Mistake(failure)) => {
            let failure = if args::is_run(&words) { failure.into_own() } else { failure };
            failure.report(args::wanted_output(&words))
        }
    }
}
