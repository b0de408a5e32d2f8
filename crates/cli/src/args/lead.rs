//! The arguments of `primus lead`, and of the companion that it starts.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use primus_terminal::Place;

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct LeadArgs {
    /// Be a server, too: its configuration, a TOML file; the command then runs beside it while it leads
    #[arg(long, value_name = "FILE", conflicts_with_all = ["api", "farm"])]
    pub(crate) config: Option<PathBuf>,
    /// The group that wants to run the command; any number of hosts can take part [default: leader, which follows the leader]
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    /// Who of the group comes first [default: load; leader without --group]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) rank: Option<LeadRank>,
    /// How many may run it at once
    #[arg(long, value_name = "N", default_value = "1", allow_hyphen_values = true)]
    pub(crate) holders: String,
    /// What people call this candidate [default: host and process]
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,
    /// Its number, for --rank id; greater comes first [default: 0]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) id: Option<String>,
    /// Run the command again when it has ended by itself?
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) restart: Restart,
    /// How long the command may take to end in good order before it is killed
    #[arg(long, value_name = "TIME", default_value = "5s", allow_hyphen_values = true)]
    pub(crate) grace: String,
    #[command(flatten)]
    pub(crate) place: Place,
    /// The program and its arguments; no shell is involved
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LeadRank {
    /// The candidate beside the leader
    Leader,
    /// The least loaded
    Load,
    /// The greatest --id
    Id,
    /// The first --name
    Name,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Restart {
    /// Whatever its exit code
    Always,
    /// If its exit code is not 0
    OnFailure,
    #[default]
    /// End with its exit code
    Never,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct CompanionArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub(crate) words: Vec<OsString>,
}
