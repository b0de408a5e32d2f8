//! The arguments of the commands about who is who: join tokens, certificates, neighbours that are trusted.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use primus_terminal::Place;

use super::{ListArgs, guide};

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) what: TokenWhat,
}

#[derive(Debug, Clone, PartialEq, Subcommand)]
pub(crate) enum TokenWhat {
    /// Make a join token, and print it once
    #[command(after_help = guide::TOKEN_CREATE)]
    Create(CreateArgs),
    /// List join tokens, without their secrets
    #[command(after_help = guide::TOKEN_LIST)]
    List(ListArgs),
    /// Make a join token void
    #[command(after_help = guide::TOKEN_REVOKE)]
    Revoke {
        /// The token's number
        #[arg(value_name = "ID", allow_negative_numbers = true)]
        id: String,
        #[command(flatten)]
        place: Place,
    },
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct CreateArgs {
    /// What it is good for: worker, to join as a worker
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: String,
    /// For how long it is good
    #[arg(long, value_name = "TIME", default_value = "1h", allow_hyphen_values = true)]
    pub(crate) ttl: String,
    /// How many may join with it
    #[arg(long, value_name = "N", default_value = "1", allow_hyphen_values = true)]
    pub(crate) uses: String,
    /// The only worker that may join with it [default: any]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct CertArgs {
    #[command(subcommand)]
    pub(crate) what: CertWhat,
}

#[derive(Debug, Clone, PartialEq, Subcommand)]
pub(crate) enum CertWhat {
    /// Show the farm's authorities, and what is trusted no more
    #[command(after_help = guide::CERT_SHOW)]
    Show(Place),
    /// Let another authority sign from now on
    #[command(after_help = guide::CERT_ROTATE)]
    Rotate(Place),
    /// Trust the newest authority only
    #[command(after_help = guide::CERT_FINISH)]
    Finish(Place),
    /// Trust a certificate, or all that a node has now, no more
    #[command(after_help = guide::CERT_REVOKE)]
    Revoke {
        /// The number of a certificate, the name of a worker, worker/NAME, or server/NUMBER
        #[arg(value_name = "SERIAL|NAME", allow_negative_numbers = true)]
        what: String,
        #[command(flatten)]
        place: Place,
    },
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct NeighboursArgs {
    #[command(subcommand)]
    pub(crate) what: NeighboursWhat,
}

#[derive(Debug, Clone, PartialEq, Subcommand)]
pub(crate) enum NeighboursWhat {
    /// Trust another farm to name its own servers and workers
    #[command(after_help = guide::NEIGHBOURS_TRUST)]
    Trust(TrustArgs),
    /// List this farm and those that it trusts, with the hashes of their authorities
    #[command(after_help = guide::NEIGHBOURS_LIST)]
    List(ListArgs),
    /// Trust a farm no more
    #[command(after_help = guide::NEIGHBOURS_FORGET)]
    Forget {
        /// The farm's name
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        place: Place,
    },
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct TrustArgs {
    /// The farm's name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The hash of its authority, as primus neighbours list says there
    #[arg(long, value_name = "HASH")]
    pub(crate) authority: String,
    /// Its servers and where they listen for links, such as 1=10.0.1.1:7460,2=10.0.1.2:7460
    #[arg(long, value_name = "PLACES", value_delimiter = ',', required = true)]
    pub(crate) servers: Vec<String>,
    /// A file with its authority's certificate [default: one of its servers shows it]
    #[arg(long, value_name = "FILE")]
    pub(crate) certificate: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Clone, PartialEq, Subcommand)]
pub(crate) enum WorkersWhat {
    /// Free a worker's name, and trust that worker no more
    #[command(after_help = guide::WORKERS_FORGET)]
    Forget {
        /// The worker's name
        #[arg(value_name = "WORKER")]
        name: String,
        #[command(flatten)]
        place: Place,
    },
}
