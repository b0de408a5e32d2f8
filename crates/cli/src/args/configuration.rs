//! The arguments that configure a server. Its flags are made from the table of keys.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, Subcommand, ValueEnum};

use super::guide;
use crate::settings::server::keys::{self, KEYS};
use crate::settings::server::layers::Override;
use crate::settings::server::slot::{Fallback, Key};

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    pub(crate) choices: Choices,
    /// How to write what happens to stderr; how much, $PRIMUS_LOG says: off, error, warn, info (the default), debug or trace
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
    /// End when this process ends
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) parent: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct InitArgs {
    /// The name of the farm
    #[arg(long, value_name = "NAME", default_value = "primus")]
    pub(crate) farm: String,
    /// Its first servers, for the record: ID=HOST:PORT,…
    #[arg(long, value_name = "SERVERS", default_value = "", hide_default_value = true)]
    pub(crate) servers: String,
    /// Where to write the file, which must not be there yet [default: FARM.founding]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Found a farm whose links are not encrypted: every process that reaches them can run commands. For laboratories
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Make no file: the server of this directory, which waits or has not been started yet, founds its farm without the others
    #[arg(long, value_name = "DIR", conflicts_with_all = ["farm", "servers", "out", "insecure", "secure"])]
    pub(crate) alone: Option<PathBuf>,
    /// Make no file: the server of this directory, whose links were not encrypted, starts with a founding file the next time
    #[arg(long, value_name = "DIR", conflicts_with_all = ["farm", "servers", "out", "insecure"])]
    pub(crate) secure: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct WorkerArgs {
    /// The configuration, a TOML file: a server's will do [default: $PRIMUS_CONFIG, if set]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A server that can say who the servers are, if nothing else does [default: $PRIMUS_API, else the farm that runs here]
    #[arg(long, value_name = "URL")]
    pub(crate) api: Option<String>,
    /// Work for servers whose links are not encrypted
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Join the farm with this token from primus token create; - reads it from stdin [default: $PRIMUS_JOIN, if set]
    #[arg(long, value_name = "TOKEN", hide_default_value = true)]
    pub(crate) join: Option<String>,
    #[command(flatten)]
    pub(crate) overrides: WorkerOverrides,
    /// How to write what happens to stderr; how much, $PRIMUS_LOG says: off, error, warn, info (the default), debug or trace
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
    /// End when this process ends
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) parent: Option<i32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) what: ConfigWhat,
}

#[derive(Debug, Clone, PartialEq, Subcommand)]
pub(crate) enum ConfigWhat {
    /// Show every value, and who says so
    #[command(after_help = guide::CONFIG_SHOW)]
    Show(Choices),
    /// Find all mistakes at once
    #[command(after_help = guide::CONFIG_CHECK)]
    Check(Choices),
}

/// What is said about a server on the command line.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct Choices {
    /// The server's configuration, a TOML file [default: $PRIMUS_CONFIG, if set]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Do not encrypt links, and listen beyond the loopback address all the same; an API beyond it also needs api.token_file
    #[arg(long)]
    pub(crate) insecure: bool,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
}

/// Values of single keys, as `primus server` and `primus config` take them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Overrides(pub(crate) Vec<Override>);

/// The same, as `primus worker` takes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkerOverrides(pub(crate) Vec<Override>);

const HEADING: &str = "Configuration (before PRIMUS_… variables, which come before the file)";
const SET: &str = "set";

/// The flags of a server, with the keys that they set.
fn server_flags() -> impl Iterator<Item = (&'static Key, &'static str)> {
    KEYS.iter().filter_map(|key| Some((*key, key.flag?)))
}

/// Those of a worker.
fn worker_flags() -> impl Iterator<Item = (&'static Key, &'static str)> {
    keys::worker_flags().into_iter()
}

fn augment(command: Command, flags: impl Iterator<Item = (&'static Key, &'static str)>) -> Command {
    let flags = flags.map(|(key, flag)| {
        Arg::new(key.name).long(flag).value_name(key.word).help(help(key)).allow_hyphen_values(true)
    });
    let set = Arg::new(SET).long(SET).value_name("KEY=VALUE").action(ArgAction::Append);
    let set = set.help("Any key of the configuration, such as load.weights.cpu=40");
    command.args(flags.chain([set]).map(|flag| flag.help_heading(HEADING)))
}

fn help(key: &Key) -> String {
    let default = match key.fallback {
        Fallback::Missing | Fallback::Is("") => String::new(),
        Fallback::Is(text) | Fallback::Depends(text) => format!(" [default: {text}]"),
    };
    let mut about: Vec<char> = key.about.chars().collect();
    about[0] = about[0].to_ascii_uppercase();
    format!("{}{default}", about.into_iter().collect::<String>())
}

fn typed(matches: &ArgMatches, flags: impl Iterator<Item = (&'static Key, &'static str)>) -> Vec<Override> {
    let flags = flags.filter_map(|(key, flag)| {
        let text = matches.get_one::<String>(key.name)?;
        Some(Override { flag: format!("--{flag}"), key: key.name.to_owned(), text: text.clone() })
    });
    let set = matches.get_many::<String>(SET).unwrap_or_default().map(|word| {
        let (key, text) = word.split_once('=').unwrap_or((word, ""));
        Override { flag: format!("--{SET}"), key: key.trim().to_owned(), text: text.trim().to_owned() }
    });
    flags.chain(set).collect()
}

impl Args for Overrides {
    fn augment_args(command: Command) -> Command {
        augment(command, server_flags())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Overrides {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(Self(typed(matches, server_flags())))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for WorkerOverrides {
    fn augment_args(command: Command) -> Command {
        augment(command, worker_flags())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for WorkerOverrides {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(Self(typed(matches, worker_flags())))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
