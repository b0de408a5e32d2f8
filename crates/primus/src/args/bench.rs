//! The arguments of the benches.

use clap::{Args, Subcommand, ValueEnum};

use super::guide;

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) what: Bench,
}

#[derive(Debug, Clone, PartialEq, Subcommand)]
pub(crate) enum Bench {
    /// The simulator: a ring of a million nodes, and a Bully election of a thousand
    #[command(after_help = guide::BENCH_SIMULATE)]
    Simulate(BenchSimulateArgs),
    /// From the leader's death, or its silence, to the first write that another one accepts
    #[command(after_help = guide::BENCH_FAILOVER)]
    Failover(BenchFailoverArgs),
    /// How long nobody accepts a write while leadership is handed over on request
    #[command(after_help = guide::BENCH_TRANSFER)]
    Transfer(BenchTransferArgs),
    /// What servers cost that have nothing to do: processor, memory, messages
    #[command(after_help = guide::BENCH_IDLE)]
    Idle(BenchIdleArgs),
    /// How many small records a farm acknowledges per second
    #[command(after_help = guide::BENCH_LOG)]
    Log(BenchLogArgs),
    /// Whether the leader stays where nothing happens, even on a busy host
    #[command(after_help = guide::BENCH_STABILITY)]
    Stability(BenchStabilityArgs),
    /// Keep one processor busy
    #[command(hide = true, after_help = guide::BENCH_BURN)]
    Burn(BurnArgs),
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct BenchTransferArgs {
    /// How many servers [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) servers: Option<String>,
    /// How often to measure [default: 20, fewer if they take too long]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) runs: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct BenchIdleArgs {
    /// How many servers [default: 5]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) servers: Option<String>,
    /// For how many seconds to measure the processor [default: 10]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) runs: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct BenchLogArgs {
    /// How many servers [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) servers: Option<String>,
    /// How many records each run writes in batches; one by one it writes a fifth of them [default: 500000]
    #[arg(short = 'n', long = "records", value_name = "N", allow_hyphen_values = true)]
    pub(crate) records: Option<String>,
    /// How many records are proposed together [default: 100]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) batch: Option<String>,
    /// How often to measure [default: 5, fewer if they take too long]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) runs: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct BenchStabilityArgs {
    /// How many servers [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) servers: Option<String>,
    /// For how long to watch [default: half a minute]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) minutes: Option<String>,
    /// Keep all processors busy meanwhile
    #[arg(long)]
    pub(crate) busy: bool,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct BurnArgs {
    /// End when this process ends
    #[arg(long, value_name = "PID")]
    pub(crate) parent: i32,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct BenchFailoverArgs {
    /// How many servers [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) servers: Option<String>,
    /// What happens to the leader: it dies, or it keeps its connections and says nothing
    #[arg(long, value_enum, default_value_t, value_name = "FAULT")]
    pub(crate) fault: Fault,
    /// How often to measure [default: 20, fewer if they take too long]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) runs: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Fault {
    #[default]
    Kill,
    Freeze,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct BenchSimulateArgs {
    /// Let every node of the ring start, not just one
    #[arg(long)]
    pub(crate) all_initiators: bool,
    /// How many nodes the ring has [default: 1000000]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) nodes: Option<String>,
    /// How often to measure [default: 3, fewer if they take too long]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) runs: Option<String>,
}
