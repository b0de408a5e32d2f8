//! The arguments of `primus simulate day`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct DayArgs {
    /// How many farms, each the neighbour of all others [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) farms: Option<String>,
    /// How many workers each has [default: 4]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) workers: Option<String>,
    /// How many tasks a worker runs at once [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) slots: Option<String>,
    /// How the load is spread over farms and time
    #[arg(long, value_enum, default_value_t, value_name = "SHAPE")]
    pub(crate) load: Shape,
    /// With bursts: how long it is one farm's turn [default: 10min]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) turn: Option<String>,
    /// How much of all slots the tasks take over the day, in percent [default: 50]
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    pub(crate) busy: Option<String>,
    /// How long a task takes on average [default: 5s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) task: Option<String>,
    /// How long the day is [default: 24h]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) day: Option<String>,
    /// A server's configuration, a TOML file, of which the section lending counts [default: $PRIMUS_CONFIG, if set]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A key of the section lending, such as lending.stay=5s
    #[arg(long, value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub(crate) set: Vec<String>,
    /// Where all chance comes from; the same seed gives the same tasks [default: a fresh one]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) seed: Option<String>,
}

/// How the load is spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Shape {
    /// A rise and a fall a day, at each farm later than at the one before it
    #[default]
    Curve,
    /// Nearly everything goes to one farm, then to the next one, round and round
    Bursts,
    /// Nearly everything goes to the first farm, all day
    One,
    /// The same everywhere, at any time
    Even,
}
