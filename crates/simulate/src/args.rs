//! Arguments as typed. Nothing here is checked beyond its spelling: what the words mean is the business of
//! [`crate::settings`], which can also say better what is wrong with them.

mod assignment;
mod day;
pub mod guide;
mod mistakes;
mod replay;
mod servers;

use clap::{Args, FromArgMatches, Subcommand, ValueEnum};

pub(crate) use assignment::AssignmentArgs;
pub(crate) use day::{DayArgs, Shape};
pub use mistakes::moved;
pub(crate) use replay::Replay;
pub(crate) use servers::{ClusterArgs, FarmArgs, LeasesArgs, LendingArgs, ServerFault, Servers};

/// The words behind `primus simulate`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct SimulateArgs {
    /// It comes first, because the second field takes what was typed.
    #[command(flatten)]
    pub(crate) replay: Replay,
    #[command(subcommand)]
    pub(crate) what: Simulated,
}

impl SimulateArgs {
    /// What these words mean: `primus`, `simulate` and what follows.
    ///
    /// # Errors
    /// If they make no sense.
    pub fn read(words: &[&str]) -> Result<Self, clap::Error> {
        let command = Self::augment_args(clap::Command::new("primus simulate"));
        let matches = command.try_get_matches_from(words.iter().skip(1))?;
        Self::from_arg_matches(&matches)
    }
}

#[derive(Debug, Clone, PartialEq, Subcommand)]
pub(crate) enum Simulated {
    #[command(flatten)]
    Election(Algorithm),
    #[command(flatten)]
    Servers(Servers),
    /// The rules by which tasks find workers, compared while scores are stale
    #[command(after_help = guide::ASSIGNMENT)]
    Assignment(AssignmentArgs),
    /// A day of farms that lend each other workers, and the same day without lending
    #[command(after_help = guide::DAY)]
    Day(DayArgs),
}

#[derive(Debug, Clone, PartialEq, Subcommand)]
pub(crate) enum Algorithm {
    /// A token travels round a ring; the lowest or the highest id wins
    #[command(after_help = guide::RING)]
    Ring(RingArgs),
    /// The best-ranked live node wins: by id, address or load
    #[command(after_help = guide::BULLY)]
    Bully(BullyArgs),
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct RingArgs {
    /// The ids of the nodes, in ring order
    #[arg(long, value_name = "ID,ID,…", allow_hyphen_values = true)]
    pub(crate) ids: String,
    /// Which id wins
    #[arg(long, value_enum, default_value_t, value_name = "WHICH")]
    pub(crate) winner: WhichWins,
    /// Who starts: positions in the ring from 1, or all [default: all, cold, at random moments]
    #[arg(long, value_name = "POSITION,…", allow_hyphen_values = true)]
    pub(crate) start: Vec<String>,
    /// Who dies, by position in the ring, and when [default: at once]
    #[arg(long, value_name = "POSITION[@2s],…", allow_hyphen_values = true)]
    pub(crate) crash: Vec<String>,
    /// Groups of positions that cannot talk to each other, and when [default: always]
    #[arg(long, value_name = "1,2|3[@2s..5s]", allow_hyphen_values = true)]
    pub(crate) partition: Vec<String>,
    #[command(flatten)]
    pub(crate) conditions: Conditions,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct BullyArgs {
    /// The names of the nodes: integers for rank id, addresses for rank address, any names for rank load
    #[arg(long, value_name = "NAME,NAME,…", allow_hyphen_values = true)]
    pub(crate) nodes: String,
    /// What makes a node better: a higher id, a greater address or a lower load
    #[arg(long, value_enum, default_value_t, value_name = "RANK")]
    pub(crate) rank: RankedBy,
    /// Their loads from 0 to 100, in the order of --nodes [default: drawn from the seed]
    #[arg(long, value_name = "LOAD,LOAD,…", allow_hyphen_values = true)]
    pub(crate) loads: Option<String>,
    /// Who starts, by name, or all; after a crash, who notices first [default: all, cold, at random moments]
    #[arg(long, value_name = "NAME,…", allow_hyphen_values = true)]
    pub(crate) start: Vec<String>,
    /// Who leads first and then dies, and when [default: at once]; further ones just die
    #[arg(long, value_name = "NAME[@2s],…", allow_hyphen_values = true)]
    pub(crate) crash: Vec<String>,
    /// No node notices the death by itself: those who start ask the dead one, too, and wait in vain
    #[arg(long)]
    pub(crate) unnoticed: bool,
    /// Groups of names that cannot talk to each other, and when [default: always]
    #[arg(long, value_name = "1,2|3[@2s..5s]", allow_hyphen_values = true)]
    pub(crate) partition: Vec<String>,
    /// Does a better node take over from a live leader? [default: true, by load false]
    #[arg(long, value_name = "true|false", value_parser = clap::value_parser!(bool))]
    pub(crate) preempt: Option<bool>,
    /// Are better nodes asked all at once, or one by one from the best down?
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    pub(crate) asking: HowToAsk,
    #[command(flatten)]
    pub(crate) conditions: Conditions,
}

/// What both algorithms are subjected to.
#[derive(Debug, Clone, PartialEq, Default, Args)]
pub(crate) struct Conditions {
    #[command(flatten)]
    pub(crate) seeds: SeedArgs,
    /// The share of messages that get lost in the first 10 s, from 0 to 1
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    pub(crate) loss: Option<String>,
    /// How long messages take [default: 1..20ms]
    #[arg(long, value_name = "MIN..MAX", allow_hyphen_values = true)]
    pub(crate) delay: Option<String>,
    /// Faults of all kinds, drawn from the seed: loss, duplication, lateness, crashes, restarts, partitions, …
    #[arg(long, value_enum, default_value_t, value_name = "WHICH")]
    pub(crate) faults: WhichFaults,
}

/// One seed or many.
#[derive(Debug, Clone, PartialEq, Default, Args)]
pub(crate) struct SeedArgs {
    /// Where all chance comes from; the same seed gives the same run [default: a fresh one]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) seed: Option<String>,
    /// Run this many seeds, from --seed or 0 on, and find the first that violates a property
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) seeds: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum WhichWins {
    #[default]
    Lowest,
    Highest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum RankedBy {
    #[default]
    Id,
    Address,
    Load,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum HowToAsk {
    #[default]
    All,
    OneByOne,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum WhichFaults {
    #[default]
    None,
    All,
}
