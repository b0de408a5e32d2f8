//! Arguments as typed. Nothing here is checked beyond its spelling: what the words mean is the business of
//! [`crate::settings`], which can also say better what is wrong with them.

mod cluster;
mod configuration;
mod guide;
mod lead;
mod loans;
mod manual;
mod mistakes;
mod roll;
mod tasks;

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Place};

pub(crate) use cluster::{Chaos, ChaosArgs, ElectArgs, EventsArgs, Kv, KvArgs, StatusArgs, TransferArgs, UpArgs};
pub(crate) use configuration::{Choices, ConfigArgs, ConfigWhat, InitArgs, LogFormat, ServerArgs, WorkerArgs};
pub(crate) use guide::guide;
pub(crate) use lead::{CompanionArgs, LeadArgs, LeadRank, Restart};
pub(crate) use loans::{LendArgs, RecallArgs};
pub(crate) use manual::{CompletionsArgs, ManArgs, Shell, program};
pub(crate) use primus_local::Algorithm as WhichAlgorithm;
pub(crate) use primus_ring::args::RealRingArgs;
pub(crate) use primus_simulate::args::SimulateArgs;
pub(crate) use roll::{
    CertArgs, CertWhat, CreateArgs, NeighboursArgs, NeighboursWhat, TokenArgs, TokenWhat, TrustArgs, WorkersWhat,
};
pub(crate) use tasks::{
    CountArgs, DrainArgs, ExplainArgs, IdsArgs, JobsArgs, ListArgs, LogsArgs, RetryArgs, RunArgs, SubmitArgs,
    TasksArgs, WaitArgs, WorkArgs, WorkersArgs,
};

/// Everything that was typed.
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(name = "primus", version, about = guide::ABOUT, help_template = guide::TEMPLATE, after_help = guide::COMMANDS)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// How to print: text for people, json for scripts, mermaid where there is something to draw
    #[arg(
        short = 'o',
        long = "output",
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        display_order = 900
    )]
    pub(crate) output: Format,
}

#[derive(Debug, Clone, PartialEq, Subcommand)]
pub(crate) enum Command {
    /// A tour of elections that checks what it shows
    #[command(after_help = guide::DEMO)]
    Demo,
    /// Run elections, servers and farms in virtual time, and judge them
    #[command(after_help = primus_simulate::args::guide::SIMULATE)]
    Simulate(SimulateArgs),
    /// Start a farm of real processes on this host
    #[command(after_help = guide::UP)]
    Up(UpArgs),
    /// Run a command somewhere in the farm, and show what it prints
    #[command(after_help = guide::RUN)]
    Run(RunArgs),
    /// Submit a command, once or many times
    #[command(after_help = guide::SUBMIT)]
    Submit(SubmitArgs),
    /// List jobs
    #[command(after_help = guide::JOBS)]
    Jobs(JobsArgs),
    /// Show jobs
    #[command(after_help = guide::JOB)]
    Job(IdsArgs),
    /// List tasks
    #[command(after_help = guide::TASKS)]
    Tasks(TasksArgs),
    /// Show tasks
    #[command(after_help = guide::TASK)]
    Task(IdsArgs),
    /// Say why a task waits or how it ended, why a server leads, or where a lent worker is
    #[command(after_help = guide::EXPLAIN)]
    Explain(ExplainArgs),
    /// Show what tasks printed
    #[command(after_help = guide::LOGS)]
    Logs(LogsArgs),
    /// Wait until jobs or tasks have ended
    #[command(after_help = guide::WAIT)]
    Wait(WaitArgs),
    /// End jobs or tasks that are not wanted any more
    #[command(after_help = guide::CANCEL)]
    Cancel(IdsArgs),
    /// Run tasks again that ended badly
    #[command(after_help = guide::RETRY)]
    Retry(RetryArgs),
    /// List workers, or show some
    #[command(after_help = guide::WORKERS)]
    Workers(WorkersArgs),
    /// Give workers nothing new
    #[command(after_help = guide::DRAIN)]
    Drain(DrainArgs),
    /// Run a command on exactly one host at a time
    #[command(after_help = guide::LEAD)]
    Lead(LeadArgs),
    /// Show who leads, and how all servers are
    #[command(after_help = guide::STATUS)]
    Status(StatusArgs),
    /// Say who leads
    #[command(after_help = guide::LEADER)]
    Leader(Place),
    /// Show who leads further groups
    #[command(after_help = guide::GROUPS)]
    Groups(ListArgs),
    /// Show the farm and its neighbours
    #[command(after_help = guide::FARMS)]
    Farms(ListArgs),
    /// Show which workers are away from home
    #[command(after_help = guide::LOANS)]
    Loans(ListArgs),
    /// Lend idle workers to a neighbour
    #[command(after_help = guide::LEND)]
    Lend(LendArgs),
    /// Call workers home that are lent
    #[command(after_help = guide::RECALL)]
    Recall(RecallArgs),
    /// Make, list and revoke tokens with which others may join
    #[command(after_help = guide::TOKEN)]
    Token(TokenArgs),
    /// Show and rotate the farm's authority, and revoke certificates
    #[command(after_help = guide::CERT)]
    Cert(CertArgs),
    /// Trust other farms
    #[command(after_help = guide::NEIGHBOURS)]
    Neighbours(NeighboursArgs),
    /// Keep small values that all servers agree on
    #[command(after_help = guide::KV)]
    Kv(KvArgs),
    /// Show what has happened
    #[command(after_help = guide::EVENTS)]
    Events(EventsArgs),
    /// Hold an election
    #[command(after_help = guide::ELECT)]
    Elect(ElectArgs),
    /// Let the leader step down
    #[command(after_help = guide::RESIGN)]
    Resign(Place),
    /// Let another server lead
    #[command(after_help = guide::TRANSFER)]
    Transfer(TransferArgs),
    /// Kill, freeze, cut off and overload what primus up runs
    #[command(after_help = guide::CHAOS)]
    Chaos(ChaosArgs),
    /// Make the file with which a farm begins
    #[command(after_help = guide::INIT)]
    Init(InitArgs),
    /// Run one server of a cluster
    #[command(after_help = guide::SERVER)]
    Server(ServerArgs),
    /// Run one worker of a farm
    #[command(after_help = guide::WORKER)]
    Worker(WorkerArgs),
    /// Own the commands of the worker that started this; for workers only
    #[command(hide = true, after_help = guide::COMPANION)]
    Companion(CompanionArgs),
    /// Run a ring through RabbitMQ or over sockets
    #[command(after_help = primus_ring::args::guide::RING)]
    Ring(RealRingArgs),
    /// Show or check a server's configuration
    #[command(after_help = guide::CONFIG)]
    Config(ConfigArgs),
    /// Print a script that completes commands in your shell
    #[command(after_help = guide::COMPLETIONS)]
    Completions(CompletionsArgs),
    /// Write the manual pages
    #[command(after_help = guide::MAN)]
    Man(ManArgs),
    /// Measure how fast primus is here
    #[command(after_help = primus_bench::help::BENCH)]
    Bench(primus_bench::BenchArgs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum RankedBy {
    #[default]
    Id,
    Address,
    Load,
}

/// Why there is nothing to carry out.
pub(crate) enum Early {
    /// A help text or the version was asked for.
    Text(String),
    /// The words make no sense.
    Mistake(Failure),
}

/// Reads a command line, program name first.
pub(crate) fn parse(words: &[OsString]) -> Result<Cli, Early> {
    if let Some(words) = companion(words) {
        let command = Some(Command::Companion(CompanionArgs { words: words.to_vec() }));
        return Ok(Cli { command, output: Format::default() });
    }
    let parsed = program().try_get_matches_from(words).and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Early::Text(error.render().ansi().to_string()),
        _ => Early::Mistake(mistakes::explain(&error, words)),
    })
}

/// What a companion is given, by a program and in one form only. Tasks wait for it, and to read the commands that people type would
/// take most of its start.
fn companion(words: &[OsString]) -> Option<&[OsString]> {
    match words {
        [_, command, words @ ..] if command == "companion" => {
            let is_for_people = words.first().is_some_and(|word| word.as_encoded_bytes().starts_with(b"-"));
            (!is_for_people).then_some(words)
        }
        _ => None,
    }
}

/// Does this line run somebody else's program, whose exit codes must not be mixed up with ours?
pub(crate) fn is_run(words: &[OsString]) -> bool {
    let command = Cli::command();
    let mut names = words.iter().skip(1).filter_map(|word| word.to_str());
    matches!(names.find(|word| command.find_subcommand(word).is_some()), Some("run" | "lead"))
}

/// The output format that was meant, as far as one can tell from words that make no sense otherwise.
pub(crate) fn wanted_output(words: &[OsString]) -> Format {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let asks_for_json = |pair: &[&str]| matches!(pair, ["-o" | "--output", "json"]);
    let is_json = words.windows(2).any(asks_for_json)
        || words.iter().any(|word| matches!(*word, "-ojson" | "-o=json" | "--output=json"));
    if is_json { Format::Json } else { Format::Text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_companion_understands_what_it_is_given_as_people_would_be_understood() {
        for line in ["companion", "companion guard", "companion limit -1 sh -c x", "companion exec a --help"] {
            let words = words(&format!("primus {line}"));
            let whole = program().try_get_matches_from(&words).and_then(|read| Cli::from_arg_matches(&read));
            assert_eq!(parse(&words).ok(), whole.ok(), "{line}");
            assert!(companion(&words).is_some(), "{line}");
        }
        assert!(matches!(parse(&words("primus companion --help")), Err(Early::Text(_))));
    }

    #[test]
    fn every_command_is_in_the_list_and_ends_its_help_with_an_example() {
        let mut open = vec![Cli::command()];
        while let Some(command) = open.pop() {
            for part in command.get_subcommands() {
                let name = part.get_name().to_string();
                let help = part.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("  primus "), "{name} has no example");
                open.push(part.clone());
            }
        }
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            assert!(guide::COMMANDS.contains(&format!("  {} ", command.get_name())));
        }
    }

    /// The words of an example, without what a shell does with them and its output; single quotes hold a word together.
    fn words_of(example: &str) -> Vec<OsString> {
        let line = example.split(" | ").next().and_then(|line| line.split(" > ").next()).unwrap_or_default();
        let line = line.split("   #").next().unwrap_or_default().replace("$$", "1");
        let pieces = line.split('\'').enumerate().flat_map(|(place, piece)| match place % 2 {
            0 => piece.split_whitespace().map(OsString::from).collect::<Vec<_>>(),
            _ => vec![piece.into()],
        });
        pieces.collect()
    }

    #[test]
    fn every_example_makes_sense() {
        let (mut open, mut count) = (vec![Cli::command()], 0);
        while let Some(command) = open.pop() {
            open.extend(command.get_subcommands().cloned());
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines().filter(|line| line.starts_with("  primus ")) {
                count += 1;
                if let Err(Early::Mistake(failure)) = parse(&words_of(line)) {
                    panic!("{line}: {failure:?}");
                }
            }
        }
        assert!(count > 150, "{count} examples");
    }

    #[test]
    fn a_mistyped_command_is_answered_with_the_nearest_one() {
        for (typed, near) in
            [("primus stauts", "status"), ("primus simulat ring", "simulate"), ("primus wokers", "workers")]
        {
            let Err(Early::Mistake(failure)) = parse(&words(typed)) else { panic!("{typed} is not a command") };
            let text = format!("{failure:?}");
            assert!(text.contains(&format!("did you mean {near}?")), "{typed}: {text}");
        }
    }

    #[test]
    fn words_of_other_tools_are_answered_with_ours() {
        for (typed, ours) in [
            ("primus ps", "primus jobs"),
            ("primus scancel 12", "primus cancel"),
            ("primus uncordon w1", "primus drain w1 --undo"),
            ("primus completion bash", "completions"),
            ("primus worker list", "primus workers lists"),
            ("primus worker w1", "primus workers w1"),
            ("primus jobs --quit", "--quiet"),
            ("primus logs 12 --folow", "--follow"),
        ] {
            let Err(Early::Mistake(failure)) = parse(&words(typed)) else { panic!("{typed} makes sense") };
            let text = format!("{failure:?}");
            assert!(text.contains(ours), "{typed}: {text}");
        }
    }

    #[test]
    fn a_line_that_runs_a_program_is_recognised() {
        assert!(is_run(&words("primus -o json run --nonsense")));
        assert!(!is_run(&words("primus submit run")) && !is_run(&words("primus")));
    }

    #[test]
    fn json_is_recognised_even_in_a_line_that_makes_no_sense() {
        for line in ["primus -o json nonsense", "primus x -ojson", "primus x --output=json", "primus --output json"]
        {
            assert_eq!(wanted_output(&words(line)), Format::Json, "{line}");
        }
        assert_eq!(wanted_output(&words("primus json -o text")), Format::Text);
    }
}
