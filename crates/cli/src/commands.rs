//! The commands: each takes arguments, prints what it found and says whether what was asked for held.

mod bench;
mod change_tasks;
mod chaos;
mod config;
mod demo;
mod diagnostics;
mod events;
mod explain;
mod groups;
mod init;
mod join;
mod kv;
mod lead;
mod leader;
mod leadership;
mod lists;
mod loans;
mod logs;
mod manual;
mod ring;
mod roll;
mod run;
mod select;
pub(crate) mod server;
mod simulate;
mod status;
mod submit;
mod tasks;
mod up;
mod wait;
mod worker;
mod workers;

use std::ffi::OsString;

use primus_node::credentials::CredentialsError;
use primus_node::private::Exposed;
use primus_terminal::failure::Failure;
use primus_terminal::format::nothing_to_draw;
use primus_terminal::{Format, Verdict, json, screen};
use serde::Serialize;

use crate::args::{self, Cli, Command};

/// Carries out what was typed.
pub(crate) fn run(cli: &Cli) -> Result<Verdict, Failure> {
    match &cli.command {
        None => guide(cli.output),
        Some(Command::Demo) => demo::run(cli.output),
        Some(Command::Simulate(args)) => simulate::run(args, cli.output),
        Some(Command::Up(args)) => up::run(args, cli.output),
        Some(Command::Run(args)) => run::run(args, cli.output).map_err(Failure::into_own),
        Some(Command::Submit(args)) => submit::run(args, cli.output),
        Some(Command::Jobs(args)) => tasks::jobs(args, cli.output),
        Some(Command::Job(args)) => tasks::job(args, cli.output),
        Some(Command::Tasks(args)) => tasks::tasks(args, cli.output),
        Some(Command::Task(args)) => tasks::task(args, cli.output),
        Some(Command::Workers(args)) => workers::run(args, cli.output),
        Some(Command::Explain(args)) => explain::run(args, cli.output),
        Some(Command::Logs(args)) => logs::run(args, cli.output),
        Some(Command::Wait(args)) => wait::run(args, cli.output),
        Some(Command::Cancel(args)) => change_tasks::cancel(args, cli.output),
        Some(Command::Retry(args)) => change_tasks::retry(args, cli.output),
        Some(Command::Drain(args)) => change_tasks::drain(args, cli.output),
        Some(Command::Status(args)) => status::run(args, cli.output),
        Some(Command::Leader(place)) => leader::run(place, cli.output),
        Some(Command::Groups(args)) => groups::run(args, cli.output),
        Some(Command::Farms(args)) => loans::farms(args, cli.output),
        Some(Command::Loans(args)) => loans::loans(args, cli.output),
        Some(Command::Lend(args)) => loans::lend(args, cli.output),
        Some(Command::Recall(args)) => loans::recall(args, cli.output),
        Some(Command::Token(args)) => roll::token(args, cli.output),
        Some(Command::Cert(args)) => roll::cert(args, cli.output),
        Some(Command::Neighbours(args)) => roll::neighbours(args, cli.output),
        Some(Command::Kv(args)) => kv::run(args, cli.output),
        Some(Command::Events(args)) => events::run(args, cli.output),
        Some(Command::Elect(args)) => leadership::elect(args, cli.output),
        Some(Command::Resign(place)) => leadership::resign(place, cli.output),
        Some(Command::Transfer(args)) => leadership::transfer(args, cli.output),
        Some(Command::Chaos(args)) => chaos::run(args, cli.output),
        Some(Command::Init(args)) => init::run(args, cli.output),
        Some(Command::Server(args)) => server::run(args),
        Some(Command::Worker(args)) => worker::run(args),
        Some(Command::Companion(args)) => companion(&args.words),
        Some(Command::Lead(args)) => lead::run(args, cli.output).map_err(Failure::into_own),
        Some(Command::Ring(args)) => ring::run(args, cli.output),
        Some(Command::Completions(args)) => manual::completions(args.shell, cli.output),
        Some(Command::Man(args)) => manual::pages(args.dir.as_deref(), cli.output),
        Some(Command::Config(args)) => config::run(&args.what, cli.output),
        Some(Command::Bench(args)) => bench::run(args, cli.output),
    }
}

/// A folder that other users could change is no place for data.
fn exposed(exposed: &Exposed, key: &str) -> Failure {
    Failure::usage(exposed.to_string(), format!("{key} says which folder is used"))
}

/// A node that cannot prove who it is.
fn not_believed(error: &CredentialsError) -> Failure {
    match error {
        CredentialsError::Folder { .. } => {
            Failure::server(error.to_string(), "give it to the user of this process")
        }
        error if error.is_refusal() => {
            Failure::not_allowed(error.to_string(), "cluster.founding names the founding file")
        }
        error => Failure::server(error.to_string(), "start it again"),
    }
}

/// What workers and `primus lead` start: nobody types this.
fn companion(words: &[OsString]) -> Result<Verdict, Failure> {
    let ended = match words.split_first() {
        None => primus_node::companion::run(),
        Some((word, [])) if word == "guard" => primus_node::companion::guarded::run(),
        Some((word, command)) if word == "limit" => {
            return Ok(Verdict::Code(primus_node::companion::limited::exec(command)));
        }
        Some((word, command)) if word == "exec" => {
            let error = primus_node::companion::guarded::exec(command);
            let message = format!(
                "{} could not be started: {error}",
                command.first().map_or_else(Default::default, |name| name.display().to_string())
            );
            return Err(Failure::failed("command", message, "look at the command behind --").into_own());
        }
        Some(_) => {
            return Err(Failure::usage("a companion takes no arguments", "workers start it; you need not"));
        }
    };
    ended.map(|()| Verdict::Held).map_err(|error| {
        Failure::failed(
            "companion",
            format!("it has not been started by a worker: {error}"),
            "workers start it; you need not",
        )
    })
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
