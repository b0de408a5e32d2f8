//! The arguments of the runs of what ships: whole servers, workers and guards under faults. All of them share their last flags.

use clap::{Args, Subcommand, ValueEnum};

use super::{SeedArgs, guide};

#[derive(Debug, Clone, PartialEq, Subcommand)]
pub(crate) enum Servers {
    /// Whole servers, ratified by a quorum: elections, replicated log and disks
    #[command(after_help = guide::CLUSTER)]
    Cluster(ClusterArgs),
    /// A whole farm: servers, workers, and jobs that must come to their end
    #[command(after_help = guide::FARM)]
    Farm(FarmArgs),
    /// Whole farms that lend each other workers
    #[command(after_help = guide::LENDING)]
    Lending(LendingArgs),
    /// Whole servers, and guards that run something under a lease
    #[command(after_help = guide::LEASES)]
    Leases(LeasesArgs),
}

#[derive(Debug, Clone, PartialEq, Default, Args)]
pub(crate) struct ClusterArgs {
    /// How many servers [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) servers: Option<String>,
    #[command(flatten)]
    pub(crate) runs: Runs,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct FarmArgs {
    /// How many servers [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) servers: Option<String>,
    /// How many workers [default: 4]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) workers: Option<String>,
    #[command(flatten)]
    pub(crate) runs: Runs,
}

#[derive(Debug, Clone, PartialEq, Default, Args)]
pub(crate) struct LendingArgs {
    /// How many farms, each the neighbour of all others [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) farms: Option<String>,
    /// How many servers each has [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) servers: Option<String>,
    /// How many workers each has [default: drawn from the seed]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) workers: Option<String>,
    #[command(flatten)]
    pub(crate) runs: Runs,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct LeasesArgs {
    /// How many servers [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) servers: Option<String>,
    /// How many guards: processes that want to hold groups [default: drawn from the seed]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) guards: Option<String>,
    /// How many groups, each held by as many guards as its rules allow [default: drawn from the seed]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) groups: Option<String>,
    #[command(flatten)]
    pub(crate) runs: Runs,
}

/// How often, with which seeds and under which faults.
#[derive(Debug, Clone, PartialEq, Default, Args)]
pub(crate) struct Runs {
    #[command(flatten)]
    pub(crate) seeds: SeedArgs,
    /// What goes wrong, drawn from the seed: these in every run, or all, each in about half of the runs [default: none]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHICH,…")]
    pub(crate) faults: Vec<ServerFault>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServerFault {
    None,
    All,
    /// Messages get lost
    Loss,
    /// Messages arrive twice
    Duplication,
    /// Messages arrive late and out of order
    Lateness,
    /// Links are cut: sides, one direction, some pairs, a bridge, the leader alone
    Partitions,
    /// Processes die and lose what was not synced
    Crashes,
    /// Processes stand still
    Pauses,
    /// Disks are slow
    Disks,
    /// Clocks run at different rates
    Clocks,
    /// Operators ask for elections and transfers, loads change, and guards give up groups
    Commands,
}
