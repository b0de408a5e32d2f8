//! The arguments of `primus ring`, as typed.

pub mod guide;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// `primus ring`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct RealRingArgs {
    /// Which of its commands
    #[command(subcommand)]
    pub what: RealRing,
}

/// The commands about a ring of real nodes.
#[derive(Debug, Clone, PartialEq, Subcommand)]
pub enum RealRing {
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
pub struct RingFile {
    /// The ring's configuration, a YAML file
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// `primus ring setup`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct RingSetupArgs {
    /// Which ring
    #[command(flatten)]
    pub file: RingFile,
    /// Take them down, with all messages that are still there
    #[arg(long)]
    pub delete: bool,
}

/// `primus ring node`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct RingNodeArgs {
    /// Which ring
    #[command(flatten)]
    pub file: RingFile,
    /// The node's position in the ring, from 1
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub index: String,
    /// End when this process ends
    #[arg(long, value_name = "PID", hide = true)]
    pub parent: Option<i32>,
}

/// `primus ring start`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct RingStartArgs {
    /// Which ring
    #[command(flatten)]
    pub file: RingFile,
    /// The node's position in the ring, from 1
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub index: String,
}

/// `primus ring run`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct RingRunArgs {
    /// Which ring
    #[command(flatten)]
    pub file: RingFile,
    /// What carries the messages: a broker, or sockets of this host
    #[arg(long, value_enum, default_value_t, value_name = "WHICH")]
    pub transport: Transport,
    /// Who starts: positions in the ring from 1, or all [default: election.initiator_index]
    #[arg(long, value_name = "POSITION,…", allow_hyphen_values = true)]
    pub start: Vec<String>,
    /// Positions that stay empty, or that another program plays
    #[arg(long, value_name = "POSITION,…", allow_hyphen_values = true)]
    pub without: Vec<String>,
    /// How many elections to hold in a row [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub elections: Option<String>,
    /// Give up after this long without a result
    #[arg(long, value_name = "TIME", default_value = "30s", allow_hyphen_values = true)]
    pub timeout: String,
}

/// What carries the messages of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Transport {
    /// A broker
    #[default]
    Amqp,
    /// Sockets of this host
    Tcp,
}

impl Transport {
    /// As people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Amqp => "amqp",
            Self::Tcp => "tcp",
        }
    }
}
