//! The commands: each takes arguments, prints what it found and says whether what was asked for held.

mod bench;
mod demo;
pub(crate) mod seeds;
mod simulate;

use std::process::ExitCode;

use serde::Serialize;

use crate::args::{self, Bench, Cli, Command, Format};
use crate::output::failure::Failure;
use crate::output::{json, screen};

/// Did what was asked for hold?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Held,
    Failed,
}

impl Verdict {
    fn of(holds: bool) -> Self {
        if holds { Self::Held } else { Self::Failed }
    }

    /// As output contracts say.
    pub(crate) fn exit_code(self) -> ExitCode {
        match self {
            Self::Held => ExitCode::SUCCESS,
            Self::Failed => ExitCode::FAILURE,
        }
    }
}

/// Carries out what was typed.
pub(crate) fn run(cli: &Cli) -> Result<Verdict, Failure> {
    match &cli.command {
        None => guide(cli.output),
        Some(Command::Demo) => demo::run(cli.output),
        Some(Command::Simulate(args)) => simulate::run(&args.algorithm, cli.output),
        Some(Command::Bench(args)) => match &args.what {
            Bench::Simulate(args) => bench::simulate(args, cli.output),
        },
    }
}

#[derive(Serialize)]
struct Guide {
    version: &'static str,
    guide: String,
}

fn guide(format: Format) -> Result<Verdict, Failure> {
    let guide = args::guide();
    let text = match format {
        Format::Text => guide,
        Format::Json => json::line(&Guide { version: env!("CARGO_PKG_VERSION"), guide }),
        Format::Mermaid => return Err(nothing_to_draw("the guide")),
    };
    screen::print(&text)?;
    Ok(Verdict::Held)
}

fn nothing_to_draw(what: &str) -> Failure {
    Failure::usage(format!("{what} cannot be drawn as mermaid"), "choose -o text or -o json")
}
