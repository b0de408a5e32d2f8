//! The arguments of the commands that submit tasks and look after them.

use clap::{Args, ValueEnum};

use primus_terminal::Place;

use super::WorkersWhat;

/// What `run` and `submit` share: a command and the conditions under which it runs.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct WorkArgs {
    /// How often a task that fails is tried again [default: 0]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) retries: Option<String>,
    /// How long a task may run; then it is ended [default: for ever]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) timeout: Option<String>,
    /// Never start it twice, even if its worker dies: then it is lost
    #[arg(long)]
    pub(crate) no_rerun: bool,
    /// Greater comes first [default: 0]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) priority: Option<String>,
    /// How many slots a task takes [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) cpus: Option<String>,
    /// How much it gives way to other programs, from 0 to 19 [default: 0]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) nice: Option<String>,
    /// What people call it
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,
    /// A variable for its environment, any number of times
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub(crate) environment: Vec<String>,
    /// The folder in which it runs [default: this one if the farm runs on this host, else the worker's own]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// What it reads, up to 1 MiB: a file, or - for what comes in
    #[arg(long, value_name = "FILE")]
    pub(crate) stdin: Option<String>,
    /// A job of this key exists once, however often it is submitted [default: a fresh one]
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) work: WorkArgs,
    /// The program and its arguments; no shell is involved
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct SubmitArgs {
    /// One task for each number; {} becomes the number
    #[arg(long, value_name = "FIRST-LAST", allow_hyphen_values = true)]
    pub(crate) array: Option<String>,
    /// One task for each line of a file, or of what comes in; {} becomes the line
    #[arg(long, value_name = "FILE|-")]
    pub(crate) each_line: Option<String>,
    /// Call what workers have under this name, instead of a program
    #[arg(long, value_name = "NAME")]
    pub(crate) kind: Option<String>,
    /// What that is given
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) input: Option<String>,
    /// Wait until all tasks have ended; with exit code 1 if one failed
    #[arg(long)]
    pub(crate) wait: bool,
    /// Print the job's number and nothing else
    #[arg(long, short = 'q')]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
    /// The program and its arguments; no shell is involved
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// Jobs and tasks by their numbers.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct IdsArgs {
    /// Jobs or tasks: 12, 12.7, the ranges 3-5 and 12.2-9, lists such as 1,4, or last
    #[arg(value_name = "ID", required = true, allow_negative_numbers = true)]
    pub(crate) ids: Vec<String>,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// How a list is shown.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct ListArgs {
    /// Print only ids or names, one on each line
    #[arg(long, short = 'q')]
    pub(crate) quiet: bool,
    /// Show it again every second
    #[arg(long, short = 'w')]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// How much of a long list is shown.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct CountArgs {
    /// How many, the newest jobs first [default: 20 jobs or 100 tasks]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) limit: Option<String>,
    /// All of them
    #[arg(long, short = 'a', conflicts_with = "limit")]
    pub(crate) all: bool,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct JobsArgs {
    /// Only jobs that have tasks in one of these states, such as queued,running
    #[arg(long, value_enum, value_name = "STATE", value_delimiter = ',')]
    pub(crate) state: Vec<WhichState>,
    /// Only jobs whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) count: CountArgs,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct TasksArgs {
    /// Only tasks of this job, such as 12 or last [default: of all jobs]
    #[arg(value_name = "JOB", conflicts_with = "job", allow_negative_numbers = true)]
    pub(crate) of: Option<String>,
    /// Only tasks in this state
    #[arg(long, value_enum, value_name = "STATE")]
    pub(crate) state: Option<WhichState>,
    /// The same as JOB
    #[arg(long, value_name = "JOB", hide = true)]
    pub(crate) job: Option<String>,
    #[command(flatten)]
    pub(crate) count: CountArgs,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WhichState {
    Queued,
    Running,
    Done,
    Failed,
    Lost,
    Cancelled,
}

impl WhichState {
    /// Its name in answers of the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Lost => "lost",
            Self::Cancelled => "cancelled",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct WorkersArgs {
    #[command(subcommand)]
    pub(crate) what: Option<WorkersWhat>,
    /// Show these workers, each on a page of its own [default: a table of all]
    #[arg(value_name = "WORKER")]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct ExplainArgs {
    /// A task, such as 12.7, last, leader, or loan
    #[arg(value_name = "WHAT", allow_negative_numbers = true)]
    pub(crate) id: String,
    /// The loan, such as 3
    #[arg(value_name = "LOAN", allow_negative_numbers = true)]
    pub(crate) loan: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct LogsArgs {
    /// Stay until it has ended, and show what it prints
    #[arg(long, short = 'f')]
    pub(crate) follow: bool,
    /// Show its complaints instead
    #[arg(long)]
    pub(crate) stderr: bool,
    /// Begin with the last lines, this many of each task [default: with the first line]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) tail: Option<String>,
    #[command(flatten)]
    pub(crate) which: IdsArgs,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct WaitArgs {
    /// Give up after this long, with exit code 124 [default: never]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) timeout: Option<String>,
    #[command(flatten)]
    pub(crate) which: IdsArgs,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct RetryArgs {
    /// Tasks that ended badly, or jobs, of which all such tasks run again: 12.7, 12, 3-5, last
    #[arg(value_name = "ID", required_unless_present = "failed", allow_negative_numbers = true)]
    pub(crate) ids: Vec<String>,
    /// All tasks of this job that failed or were lost, but not those that were cancelled
    #[arg(long, value_name = "JOB", conflicts_with = "ids")]
    pub(crate) failed: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct DrainArgs {
    /// The names of workers
    #[arg(value_name = "WORKER", required = true)]
    pub(crate) names: Vec<String>,
    /// Let them have work again
    #[arg(long)]
    pub(crate) undo: bool,
    /// Wait until they have ended what they run
    #[arg(long, conflicts_with = "undo")]
    pub(crate) wait: bool,
    /// With --wait: give up after this long, with exit code 124 [default: never]
    #[arg(long, value_name = "TIME", requires = "wait", allow_hyphen_values = true)]
    pub(crate) timeout: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
}
