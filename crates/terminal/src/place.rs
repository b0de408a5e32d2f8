//! Which farm a command talks to, as it is typed.

use clap::Args;
use primus_client::Client;
use primus_client::tasks::TaskClient;

use crate::failure::Failure;

/// Where the farm is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
pub struct Place {
    /// A server's API, with the secret in $PRIMUS_TOKEN [default: $PRIMUS_API, else the farm that runs here, else
    /// http://127.0.0.1:7461]
    #[arg(long, value_name = "URL", display_order = 800)]
    pub api: Option<String>,
    /// The name of the farm, if primus up runs several here
    #[arg(long, value_name = "NAME", display_order = 801)]
    pub farm: Option<String>,
}

impl Place {
    /// A client of its servers.
    ///
    /// # Errors
    /// If the address makes no sense, or it is not certain which farm is meant.
    pub fn client(&self) -> Result<Client, Failure> {
        Ok(Client::find(self.api.as_deref(), self.farm.as_deref())?)
    }

    /// The same, to ask about tasks.
    ///
    /// # Errors
    /// As for [`Self::client`].
    pub fn caller(&self) -> Result<TaskClient, Failure> {
        Ok(TaskClient::new(self.client()?))
    }
}
