//! A worker inside your program.

mod events;
mod kinds;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::mem;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use primus_core::load::Weights;
use primus_core::{Place, ServerId};
use primus_node::executor::{Kinds, Settings};
use primus_node::load::Meter;
use primus_node::private;
use primus_node::worker::{self, Config, Happening, WorkerHandle};
use tokio::runtime;
use tokio::sync::broadcast;

pub use self::events::{WorkerEvent, WorkerEvents};
pub use self::kinds::Task;
use crate::companion;
use crate::settings::LoadSource;

/// The folder in which commands run that name no other.
const HOME: &str = "home";

/// A worker that runs in this process, on a thread of its own: however long a handler takes, the worker is not late.
///
/// [`Worker::drain`] and [`Worker::stop`] end it in good order. Dropping it stops it, too, and nothing waits for that.
#[derive(Debug)]
pub struct Worker {
    inner: WorkerHandle,
    heard: broadcast::Receiver<Happening>,
}

/// What a worker is told when it starts: from [`Worker::builder`], [`Server::worker`](crate::Server::worker) or
/// [`Client::worker`](crate::Client::worker).
#[must_use = "a builder does nothing until it is started"]
pub struct WorkerBuilder {
    farm: String,
    name: String,
    servers: BTreeMap<ServerId, Place>,
    dir: PathBuf,
    slots: u16,
    beside: Option<ServerId>,
    founding: Option<PathBuf>,
    load: Option<LoadSource>,
    allow: Vec<String>,
    pass: Vec<String>,
    companion: Option<(PathBuf, Vec<OsString>)>,
    kinds: Vec<kinds::Register>,
}

/// Why a worker did not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// Your program's mistake: settings that make no sense.
    #[error("{0}")]
    Settings(String),
    /// The directory's fault: another process uses it, other users can write there, or its content is damaged.
    #[error("{0}")]
    Directory(String),
    /// The host's fault: its load cannot be measured.
    #[error("{0}")]
    Load(String),
    /// The worker cannot prove who it is, or all servers refuse it for that.
    #[error("{0}")]
    Credentials(String),
    /// The host's fault, or your program's: the companion, which owns commands, does not start or does not live.
    #[error("{0}")]
    Companion(String),
}

impl Worker {
    /// A worker with this name, which no other worker of the farm has, for the farm with these servers. The directory is its own,
    /// and keeps results until the farm has recorded them.
    pub fn builder(
        farm: impl Into<String>,
        name: impl Into<String>,
        servers: impl IntoIterator<Item = (u64, impl Into<Place>)>,
        dir: impl Into<PathBuf>,
    ) -> WorkerBuilder {
        WorkerBuilder::new(farm, name, servers, dir)
    }

    /// What happens to the worker: from its start on, or since this was called the last time.
    pub fn events(&mut self) -> WorkerEvents {
        let later = self.heard.resubscribe();
        WorkerEvents::new(mem::replace(&mut self.heard, later))
    }

    /// Takes nothing new, ends what it has, waits until the farm has recorded the results, and ends the worker. That can take as
    /// long as a task: who drops the future before stops the worker.
    ///
    /// # Errors
    /// If it could not go on meanwhile, or had ended by itself.
    pub async fn drain(mut self) -> Result<(), WorkerError> {
        self.inner.drain();
        self.ended().await
    }

    /// Ends at once what runs, gives it back to the farm, and ends the worker. An async handler is dropped where it awaits something
    /// next; one that blocks goes on to its end, and its result is not used.
    ///
    /// # Errors
    /// If it could not go on, and so had ended by itself.
    pub async fn stop(mut self) -> Result<(), WorkerError> {
        self.inner.stop();
        self.ended().await
    }

    /// Waits until the worker ends by itself, which it does only because it cannot go on.
    ///
    /// # Errors
    /// Why it cannot go on.
    pub async fn ended(&mut self) -> Result<(), WorkerError> {
        self.inner.ended().await.map_err(WorkerError::of)
    }
}

impl WorkerBuilder {
    pub(crate) fn new(
        farm: impl Into<String>,
        name: impl Into<String>,
        servers: impl IntoIterator<Item = (u64, impl Into<Place>)>,
        dir: impl Into<PathBuf>,
    ) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self {
            farm: farm.into(),
            name: name.into(),
            servers: servers.into_iter().map(|(id, at)| (ServerId(id), at.into())).collect(),
            dir: dir.into(),
            slots: u16::try_from(processors).unwrap_or(u16::MAX),
            beside: None,
            founding: None,
            load: None,
            allow: Vec::new(),
            pass: Vec::new(),
            companion: None,
            kinds: Vec::new(),
        }
    }

    /// Sets how many tasks run at once: by default one for each processor.
    pub const fn slots(mut self, slots: u16) -> Self {
        self.slots = slots;
        self
    }

    /// Names the server on the same host, in whose load it counts what runs here.
    pub const fn beside(mut self, server: u64) -> Self {
        self.beside = Some(ServerId(server));
        self
    }

    /// Encrypts all links, with certificates on both sides: this file is what the farm began with, from `primus init`. The worker
    /// needs it when it starts for the first time.
    pub fn founding(self, file: impl Into<PathBuf>) -> Self {
        self.founded_by(Some(file.into()))
    }

    pub(crate) fn founded_by(mut self, file: Option<PathBuf>) -> Self {
        self.founding = file;
        self
    }

    /// Measures this host, so that the farm gives less to a host that is busy with other things.
    pub fn load(mut self, source: LoadSource) -> Self {
        self.load = Some(source);
        self
    }

    /// Adds a handler: tasks of this kind call it with the job's input and their own argument. What it gives back is the task's
    /// output; a complaint makes the task fail.
    ///
    /// Handlers run on the runtime that starts the worker. A handler is dropped, at a point where it awaits something, when its
    /// task is cancelled or takes too long.
    pub fn kind<T, F>(
        mut self,
        name: impl Into<String>,
        handler: impl Fn(Task) -> F + Send + Sync + 'static,
    ) -> Self
    where
        T: Into<Vec<u8>> + Send + 'static,
        F: Future<Output = Result<T, String>> + Send + 'static,
    {
        self.kinds.push(kinds::register(name.into(), handler));
        self
    }

    /// Adds a handler that may block and compute for as long as it likes. It goes on to its end even if its task is cancelled.
    pub fn blocking_kind<T>(
        mut self,
        name: impl Into<String>,
        handler: impl Fn(Task) -> Result<T, String> + Send + Sync + 'static,
    ) -> Self
    where
        T: Into<Vec<u8>> + Send + 'static,
    {
        self.kinds.push(kinds::register_blocking(name.into(), handler));
        self
    }

    /// Allows commands that run these programs; `*` stands for all. The program must call [`companion`](crate::companion()) first
    /// in `main`.
    pub fn allow(mut self, programs: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.allow.extend(programs.into_iter().map(Into::into));
        self
    }

    /// Passes these environment variables on to commands. A star at the end stands for anything.
    pub fn pass(mut self, variables: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.pass.extend(variables.into_iter().map(Into::into));
        self
    }

    /// Starts this as the companion of commands, instead of this program: something that calls
    /// [`companion`](crate::companion()).
    pub fn companion_command(
        mut self,
        program: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        self.companion = Some((program.into(), arguments.into_iter().map(Into::into).collect()));
        self
    }

    /// Starts the worker. It looks for the farm's leader at once, again and again.
    ///
    /// # Errors
    /// See [`WorkerError`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn start(self) -> Result<Worker, WorkerError> {
        self.check()?;
        let mut kinds = Kinds::default();
        let runtime = runtime::Handle::current();
        self.kinds.iter().for_each(|register| register(&mut kinds, &runtime));
        let (tell, heard) = worker::happenings();
        let inner = worker::start(self.into_config()?, kinds, tell).await.map_err(WorkerError::of)?;
        Ok(Worker { inner, heard })
    }

    fn check(&self) -> Result<(), WorkerError> {
        let wrong = |what: &str| Err(WorkerError::Settings(what.to_owned()));
        match () {
            () if self.name.is_empty() => wrong("the worker has no name"),
            () if self.slots == 0 => wrong("a worker without a slot would never run anything"),
            () if self.servers.is_empty() => wrong("the farm has no servers"),
            () => Ok(()),
        }
    }

    fn into_config(self) -> Result<Config, WorkerError> {
        let dir = own_folder(&self.dir)?;
        let load = self.load.map(|source| Meter::open(&source.source())).transpose();
        let companion = if self.allow.is_empty() { None } else { Some(owner_of_commands(self.companion)?) };
        let executor = Settings {
            home: dir.join(HOME),
            allow: self.allow,
            pass: self.pass,
            ..Settings::new(&self.name, dir, companion)
        };
        Ok(Config {
            cluster: self.farm,
            name: self.name,
            slots: self.slots,
            servers: self.servers,
            executor,
            load: load.map_err(|error| WorkerError::Load(error.to_string()))?,
            weights: Weights::DEFAULT,
            beside: self.beside,
            founding: self.founding,
        })
    }
}

/// Makes the worker's folder, for its owner alone.
fn own_folder(dir: &Path) -> Result<PathBuf, WorkerError> {
    let unusable = |error: io::Error| WorkerError::Directory(format!("{} cannot be used: {error}", dir.display()));
    private::folder(dir).map_err(unusable)?;
    private::check(dir).map_err(|exposed| WorkerError::Directory(exposed.to_string()))?;
    private::folder(&dir.join(HOME)).map_err(unusable)?;
    fs::canonicalize(dir).map_err(unusable)
}

fn owner_of_commands(chosen: Option<(PathBuf, Vec<OsString>)>) -> Result<(PathBuf, Vec<OsString>), WorkerError> {
    let own = companion::of_this_program().map_err(|error| WorkerError::Companion(error.to_string()))?;
    let missing = || "a worker that allows commands needs a companion: call primus_farm::companion() first in main";
    chosen.or(own).ok_or_else(|| WorkerError::Settings(missing().to_owned()))
}

impl WorkerError {
    fn of(error: worker::WorkerError) -> Self {
        let words = error.to_string();
        match error {
            worker::WorkerError::Open(_)
            | worker::WorkerError::Write(_)
            | worker::WorkerError::Directory { .. } => Self::Directory(words),
            worker::WorkerError::Credentials(_) | worker::WorkerError::Barred(_) => Self::Credentials(words),
            worker::WorkerError::Executor(_) | worker::WorkerError::NoCompanion => Self::Companion(words),
        }
    }
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerBuilder").field("farm", &self.farm).field("name", &self.name).finish_non_exhaustive()
    }
}
