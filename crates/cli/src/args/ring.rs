//! The arguments of the commands about a ring of real nodes.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::guide;

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct RealRingArgs {
    #[command(subcommand)]
    pub(crate) what: RealRing,
}

#[derive(Debug, Clone, PartialEq, Subcommand)]
pub(crate) enum RealRing {
    /// Make exchange, queues and bindings, or take them down
    #[command(after_help = guide::RING_SETUP)]
    Setup(RingSetupArgs),
    /// Run one node of the ring
    #[command(after_help = guide::RING_NODE)]
    Node(RingNodeArgs),
    /// Run all nodes in one process, hold an election and judge it
    #[command(after_help = guide::RING_RUN)]
    Run(RingRunArgs),
    /// Show who leads, who is there and who is missing
    #[command(after_help = guide::RING_STATUS)]
    Status(RingFile),
    /// Let a node start an election
    #[command(after_help = guide::RING_START)]
    Start(RingStartArgs),
}

/// Which ring.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct RingFile {
    /// The ring's configuration, a YAML file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct RingSetupArgs {
    #[command(flatten)]
    pub(crate) file: RingFile,
    /// Take them down, with all messages that are still there
    #[arg(long)]
    pub(crate) delete: bool,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct RingNodeArgs {
    #[command(flatten)]
    pub(crate) file: RingFile,
    /// The node's position in the ring, from 1
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) index: String,
    /// End when this process ends
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) parent: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct RingStartArgs {
    #[command(flatten)]
    pub(crate) file: RingFile,
    /// The node's position in the ring, from 1
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) index: String,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct RingRunArgs {
    #[command(flatten)]
    pub(crate) file: RingFile,
    /// What carries the messages: a broker, or sockets of this host
    #[arg(long, value_enum, default_value_t, value_name = "WHICH")]
    pub(crate) transport: Transport,
    /// Who starts: positions in the ring from 1, or all [default: election.initiator_index]
    #[arg(long, value_name = "POSITION,…", allow_hyphen_values = true)]
    pub(crate) start: Vec<String>,
    /// Positions that stay empty: nobody plays them, or somebody else does
    #[arg(long, value_name = "POSITION,…", allow_hyphen_values = true)]
    pub(crate) without: Vec<String>,
    /// How many elections to hold in a row [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) elections: Option<String>,
    /// Give up after this long without a result
    #[arg(long, value_name = "TIME", default_value = "30s", allow_hyphen_values = true)]
    pub(crate) timeout: String,
}

/// What carries the messages of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Transport {
    #[default]
    Amqp,
    Tcp,
}

impl Transport {
    /// As people write it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Amqp => "amqp",
            Self::Tcp => "tcp",
        }
    }
}
