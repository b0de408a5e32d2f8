//! The arguments of the commands about other farms, and about workers that are away from home.

use clap::Args;

use primus_terminal::Place;

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct LendArgs {
    /// The neighbour that gets them
    #[arg(long, value_name = "FARM")]
    pub(crate) to: String,
    /// How many workers; if fewer are idle, those
    #[arg(value_name = "N", default_value = "1", allow_negative_numbers = true)]
    pub(crate) count: String,
    /// For how long [default: as lending.loan says]
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) for_time: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Clone, PartialEq, Args)]
#[group(id = "which", multiple = false, args = ["loan", "worker", "from", "all"])]
pub(crate) struct RecallArgs {
    /// A loan, such as 3
    #[arg(value_name = "LOAN", allow_negative_numbers = true)]
    pub(crate) loan: Option<String>,
    /// The worker of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) worker: Option<String>,
    /// All workers that this neighbour has
    #[arg(long, value_name = "FARM")]
    pub(crate) from: Option<String>,
    /// All workers that are lent
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}
