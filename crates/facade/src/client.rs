//! A client: what any program can ask a farm, over HTTP or through a server of its own.

mod http;
mod links;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use primus_client::Attempts;
use primus_client::farms::founding_of;
use primus_core::Place;
use primus_core::ledger::JobId;
use primus_core::retry::{Fate, Retry};
use primus_node::handle::Handle;

use self::http::Http;
use crate::handle::{JobHandle, JobReport, TaskReport};
use crate::job::{Job, SubmitError};
use crate::trouble::Trouble;
use crate::worker::WorkerBuilder;

/// How long a farm may have no server that answers.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

/// A way to ask a farm: for jobs, and for the small values on which its servers agree.
///
/// A program that is not a server finds the farm with [`Client::find`] or [`Client::at`], and asks over HTTP. A program with a
/// server has [`Server::client`](crate::Server::client). All calls are the same, and any server can be asked. They must be made
/// inside a tokio runtime.
#[derive(Debug, Clone)]
pub struct Client(Way);

#[derive(Debug, Clone)]
enum Way {
    /// Over the links of a server in this process.
    Links(Arc<Own>),
    /// Over the API of any server.
    Http(Http),
}

/// A server in this process, and its farm.
#[derive(Debug, Clone)]
struct Own {
    handle: Handle,
    farm: String,
    founding: Option<PathBuf>,
    servers: Vec<(u64, Place)>,
}

/// Why a farm cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Your program's or its user's mistake: an address, a farm's name or a secret that makes no sense.
    #[error("{0}")]
    Settings(String),
    /// The farm is not there, or does not answer.
    #[error("{0}")]
    Unreachable(String),
    /// The servers ask for a secret that was not given.
    #[error("{0}")]
    NotAllowed(String),
}

/// Why a value was not written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Your program's mistake: a key or a value that is too long, or, over HTTP, a value that is not text.
    #[error("{0}")]
    Value(String),
    /// The farm has no room: on its disks, or because it may hold no more.
    #[error("{0}")]
    Full(String),
    /// The server does not allow it.
    #[error("{0}")]
    NotAllowed(String),
    /// The farm's fault: no server leads. Nothing was written.
    #[error("{0}")]
    Unavailable(String),
    /// The farm's fault, and a write may have taken place: read before you write again, or write the same.
    #[error("{0}")]
    Unknown(String),
}

impl Client {
    pub(crate) fn of(
        handle: Handle,
        (farm, founding): (String, Option<PathBuf>),
        servers: Vec<(u64, Place)>,
    ) -> Self {
        Self(Way::Links(Arc::new(Own { handle, farm, founding, servers })))
    }

    /// The farm that the commands would find: at `PRIMUS_API`, else the only one that `primus up` runs for this user, else at
    /// `http://127.0.0.1:7461`. The secret is the one in `PRIMUS_TOKEN`, or that of the farm.
    ///
    /// # Errors
    /// If several farms run here, or an address makes no sense. Whether a server answers shows later.
    pub fn find() -> Result<Self, ConnectError> {
        Ok(Self(Way::Http(Http::find(None)?)))
    }

    /// The farm whose servers have their API at these addresses, separated by commas: `http://10.0.0.1:7461,http://10.0.0.2:7461`.
    ///
    /// # Errors
    /// If an address makes no sense.
    pub fn at(api: &str) -> Result<Self, ConnectError> {
        Ok(Self(Way::Http(Http::find(Some(api))?)))
    }

    /// Shows the secret in this file to the servers of this client. Only its owner may be able to read the file.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub fn with_token_file(self, file: impl AsRef<Path>) -> Result<Self, ConnectError> {
        if let Way::Http(http) = &self.0 {
            http.show_token(file.as_ref())?;
        }
        Ok(self)
    }

    /// Submits a job, once: what is asked twice for want of an answer is taken once.
    ///
    /// # Errors
    /// See [`SubmitError`].
    pub async fn submit(&self, job: Job) -> Result<JobHandle, SubmitError> {
        let (submission, key) = job.into_parts()?;
        let mut attempts = Attempts::new(Retry::steady(PATIENCE, PAUSE));
        loop {
            let submitted = match &self.0 {
                Way::Links(server) => links::submit(&server.handle, submission.clone(), &key).await,
                Way::Http(http) => http.submit(submission.clone(), key.clone()).await,
            };
            let fate = submitted.as_ref().err().map_or(Fate::Taken, Trouble::fate);
            // Under its key it is taken once.
            if !attempts.go_on(fate, true).await {
                return Ok(self.job(submitted?));
            }
        }
    }

    /// A job by its number. Whether there is one shows when it is asked.
    #[must_use]
    pub fn job(&self, id: JobId) -> JobHandle {
        JobHandle::new(self.clone(), id)
    }

    /// Gives a key this value. When this returns, a majority has it on disk.
    ///
    /// # Errors
    /// See [`ValueError`].
    pub async fn put(&self, key: &str, value: impl Into<Vec<u8>>) -> Result<(), ValueError> {
        let value = value.into();
        Ok(match &self.0 {
            Way::Links(server) => server.handle.put(key, value).await.map(|_| ()).map_err(Trouble::from),
            Way::Http(http) => http.put(key, value).await,
        }?)
    }

    /// The value of a key: the last one that was acknowledged.
    ///
    /// # Errors
    /// See [`ValueError`].
    pub async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, ValueError> {
        Ok(match &self.0 {
            Way::Links(server) => {
                server.handle.get(key).await.map(|value| value.map(Vec::from)).map_err(Trouble::from)
            }
            Way::Http(http) => http.get(key).await,
        }?)
    }

    /// Forgets a key.
    ///
    /// # Errors
    /// See [`ValueError`].
    pub async fn delete(&self, key: &str) -> Result<(), ValueError> {
        Ok(match &self.0 {
            Way::Links(server) => server.handle.delete(key).await.map(|_| ()).map_err(Trouble::from),
            Way::Http(http) => http.delete(key).await,
        }?)
    }

    /// A worker for this farm, as its servers say where they are.
    ///
    /// # Errors
    /// If no server answers.
    pub async fn worker(
        &self,
        name: impl Into<String>,
        dir: impl Into<PathBuf>,
    ) -> Result<WorkerBuilder, ConnectError> {
        let (farm, servers, founding) = match &self.0 {
            Way::Links(server) => (server.farm.clone(), server.servers.clone(), server.founding.clone()),
            Way::Http(http) => {
                let (farm, servers) = http.servers().await?;
                let founding = founding_of(&farm, servers.iter().map(|(_, address)| address.clone()));
                (farm, servers, founding)
            }
        };
        Ok(WorkerBuilder::new(farm, name, servers, dir).founded_by(founding))
    }
}

/// What a [`JobHandle`] asks.
impl Client {
    pub(crate) async fn report(&self, id: JobId) -> Result<JobReport, Trouble> {
        match &self.0 {
            Way::Links(server) => links::report(&server.handle, id).await,
            Way::Http(http) => http.report(id).await,
        }
    }

    /// The job as it is when it has ended, or after a while.
    pub(crate) async fn wait(&self, id: JobId) -> Result<JobReport, Trouble> {
        match &self.0 {
            Way::Links(server) => links::wait(&server.handle, id).await,
            Way::Http(http) => http.wait(id).await,
        }
    }

    pub(crate) async fn results(&self, id: JobId) -> Result<Vec<TaskReport>, Trouble> {
        match &self.0 {
            Way::Links(server) => links::results(&server.handle, id).await,
            Way::Http(http) => http.results(id).await,
        }
    }

    pub(crate) async fn cancel(&self, id: JobId) -> Result<u64, Trouble> {
        match &self.0 {
            Way::Links(server) => links::cancel(&server.handle, id).await,
            Way::Http(http) => http.cancel(id).await,
        }
    }
}

impl From<Trouble> for ConnectError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Wrong(words) | Trouble::KeyTaken(words) => Self::Settings(words),
            Trouble::NotAllowed(words) => Self::NotAllowed(words),
            Trouble::NotFound => Self::Unreachable("the server does not know what was asked".to_owned()),
            Trouble::Full(words) | Trouble::Unavailable(words) | Trouble::Unknown(words) => {
                Self::Unreachable(words)
            }
        }
    }
}

impl From<Trouble> for ValueError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Wrong(words) | Trouble::KeyTaken(words) => Self::Value(words),
            Trouble::NotAllowed(words) => Self::NotAllowed(words),
            Trouble::Full(words) => Self::Full(words),
            Trouble::NotFound => Self::Unavailable("the server does not know what was asked".to_owned()),
            Trouble::Unavailable(words) => Self::Unavailable(words),
            Trouble::Unknown(words) => Self::Unknown(words),
        }
    }
}
