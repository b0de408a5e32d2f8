//! The arguments of the commands that start a farm or talk to one.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use primus_terminal::Place;

use super::{RankedBy, WhichAlgorithm, guide};

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct UpArgs {
    /// How many farms, each with its own servers and workers: neighbours that lend each other workers [default: 1, or as
    /// many as --dir holds]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) farms: Option<String>,
    /// How many servers [default: 3, or as many as --dir holds]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) servers: Option<String>,
    /// How many workers [default: 2, or as many as --dir remembers]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) workers: Option<String>,
    /// How many tasks each worker runs at once [default: 1, or as many as --dir remembers]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) slots: Option<String>,
    /// Where to keep the data; the next start with it resumes [default: a temporary folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<String>,
    /// How a leader is named
    #[arg(long, value_enum, default_value_t, value_name = "WHICH")]
    pub(crate) algorithm: WhichAlgorithm,
    /// Which server should lead: the least loaded, the highest id or the greatest address [default: load; id for a ring]
    #[arg(long, value_enum, value_name = "RANK")]
    pub(crate) rank: Option<RankedBy>,
    /// How the servers elect, lend, assign and measure: a file of a server's configuration, such as those in docs/presets
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A further group in which the servers, all or those after @, elect a leader without a quorum; may be repeated
    #[arg(long = "group", value_name = "NAME[=ALGORITHM[:RANK[:ASKING]]][@ID+ID]", allow_hyphen_values = true)]
    pub(crate) groups: Vec<String>,
    /// The name of the farm, or of the first [default: local, north if there are several, or as --dir says]
    #[arg(long, value_name = "NAME")]
    pub(crate) farm: Option<String>,
    /// Do not encrypt links: every user of this host who reaches them can run commands. For laboratories
    #[arg(long)]
    pub(crate) insecure: bool,
    /// End after this long [default: when interrupted]
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) for_time: Option<String>,
    /// End when this process ends
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) parent: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct StatusArgs {
    /// Show it again and again
    #[arg(long, short = 'w')]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct ElectArgs {
    /// Hold the election of this further group instead
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct TransferArgs {
    /// The server that should lead
    #[arg(value_name = "ID", allow_negative_numbers = true)]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct EventsArgs {
    /// Stay, and show what happens
    #[arg(long, short = 'f')]
    pub(crate) follow: bool,
    /// Show the steps of the last elections: what each server heard, and what it did then
    #[arg(long)]
    pub(crate) steps: bool,
    /// Show only what came after the event of this number
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) after: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct KvArgs {
    #[command(subcommand)]
    pub(crate) what: Kv,
    /// How long to wait for a leader
    #[arg(long, global = true, value_name = "TIME", default_value = "5s", allow_hyphen_values = true)]
    pub(crate) timeout: String,
    /// A server's API [default: $PRIMUS_API, else the farm that runs here, else http://127.0.0.1:7461]
    #[arg(long, global = true, value_name = "URL", display_order = 800)]
    pub(crate) api: Option<String>,
    /// The name of the farm, if primus up runs several here
    #[arg(long, global = true, value_name = "NAME", display_order = 801)]
    pub(crate) farm: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Subcommand)]
pub(crate) enum Kv {
    /// Put a value under a key
    #[command(after_help = guide::KV_PUT)]
    Put {
        /// Where to put it
        key: String,
        /// What to put there
        #[arg(allow_negative_numbers = true)]
        value: String,
    },
    /// Print the value under a key
    #[command(after_help = guide::KV_GET)]
    Get {
        /// Where it is
        key: String,
    },
    /// Remove a key
    #[command(after_help = guide::KV_DELETE)]
    Delete {
        /// Which one
        key: String,
    },
    /// Write many values: a file of lines like {"key":"colour","value":"blue"}, or - for what comes in
    #[command(after_help = guide::KV_IMPORT)]
    Import {
        /// The file, or -
        file: String,
        /// How many lines are written at once, or not at all [default: 1]
        #[arg(long, value_name = "N", allow_hyphen_values = true)]
        batch: Option<String>,
    },
    /// List all keys, or those that begin with a prefix
    #[command(after_help = guide::KV_LIST)]
    List {
        /// How they begin
        prefix: Option<String>,
    },
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct ChaosArgs {
    #[command(subcommand)]
    pub(crate) what: Chaos,
    /// The name of the farm, if primus up runs several here
    #[arg(long, global = true, value_name = "NAME", display_order = 801)]
    pub(crate) farm: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Subcommand)]
pub(crate) enum Chaos {
    /// Kill a server or a worker, as kill -9 does
    #[command(after_help = guide::CHAOS_KILL)]
    Kill {
        /// A server's id, leader, or a worker's name
        target: String,
    },
    /// Freeze a server or a worker: it keeps its connections and says nothing
    #[command(after_help = guide::CHAOS_FREEZE)]
    Freeze {
        /// A server's id, leader, or a worker's name
        target: String,
    },
    /// Let a frozen one go on
    #[command(after_help = guide::CHAOS_THAW)]
    Thaw {
        /// A server's id, leader, or a worker's name
        target: String,
    },
    /// Start a dead one again, or kill a live one first
    #[command(after_help = guide::CHAOS_RESTART)]
    Restart {
        /// A server's id, leader, or a worker's name
        target: String,
    },
    /// Cut the links between groups of servers and workers, and those between farms
    #[command(after_help = guide::CHAOS_PARTITION)]
    Partition {
        /// The groups, such as '1,2|3' or 'w1|1,2,3'
        #[arg(required_unless_present = "from_farm")]
        groups: Option<String>,
        /// Cut the servers off from those of this neighbour, too; may be repeated
        #[arg(long, value_name = "NAME")]
        from_farm: Vec<String>,
        /// Close the workers' links and turn them away, instead of letting nothing pass
        #[arg(long)]
        close: bool,
    },
    /// Make the links between servers slow: what they say arrives this much later, each way
    #[command(after_help = guide::CHAOS_DELAY)]
    Delay {
        /// Servers' ids, such as 1,2, or all
        servers: String,
        /// How much later, from 0ms, which ends it, to 5s
        #[arg(value_name = "TIME", allow_hyphen_values = true)]
        time: String,
    },
    /// Mend all links
    #[command(after_help = guide::CHAOS_HEAL)]
    Heal,
    /// Pretend that a server has this load
    #[command(after_help = guide::CHAOS_LOAD)]
    Load {
        /// A server's id, or leader
        target: String,
        /// From 0 to 100, or none to measure again
        #[arg(allow_negative_numbers = true)]
        score: String,
    },
}
