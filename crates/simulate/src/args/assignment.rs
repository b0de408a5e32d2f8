//! The arguments of `primus simulate assignment`.

use clap::Args;

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct AssignmentArgs {
    /// How many workers [default: 10]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) workers: Option<String>,
    /// How many tasks a worker runs at once [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) slots: Option<String>,
    /// How many tasks are submitted [default: 20000]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) tasks: Option<String>,
    /// How long a task takes on average [default: 1s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) task: Option<String>,
    /// How much of all slots the tasks take, in percent [default: 75]
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    pub(crate) load: Option<String>,
    /// How often a worker says how loaded it is [default: 2s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) heartbeat: Option<String>,
    /// Where all chance comes from; the same seed gives the same tasks [default: a fresh one]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) seed: Option<String>,
}
