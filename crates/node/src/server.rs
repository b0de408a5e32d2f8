//! A server inside your program: [`Server::start`], and what its [`Handle`] can do on every server alike.
//!
//! The server has threads of its own, so whatever your program does, it is not late. What only the leader can do is passed on
//! to it over the servers' own links.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use primus_core::ledger::{JobId, Spec};
pub use primus_core::limits::{KEY_LEN_MAX, VALUE_LEN_MAX};
use primus_core::{Place, ServerId};
use primus_identity::name::Node;
use primus_server::Plan;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Builder;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::credentials::{CredentialsError, Security};
use crate::files;
use crate::handle::{Handle, Leadership, Request, Unable, View};
use crate::hooks::{self, Hook};
use crate::leader_search::Patience;
use crate::load::{Meter, Source, Unmeasurable};
use crate::node::{self, Config, EndError};
use crate::questions::{LeaderReply, LeaderRequest};
use crate::store::{Identity, OpenError, Opened, Store};

/// How many may have called before they are accepted; a crowd must not make the system drop a peer's call.
const CALLERS_MAX: u32 = 4096;
/// How long what is guarded may take to end, and another server to lead, before this one ends all the same.
pub const STOP_TIME: Duration = Duration::from_secs(10);

/// What a server is told when it starts.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The farm's name; servers of another one are refused.
    pub farm: String,
    /// Where this server keeps what must survive it: a directory of its own.
    pub dir: PathBuf,
    /// Where it listens. Without it, that is where others reach it, which must be a number then.
    pub listen: Option<SocketAddr>,
    /// What its load is.
    pub load: Source,
    /// The command that it runs whenever a server begins to lead.
    pub hook: Option<Hook>,
    /// True if the process may raise its limit of open files and make room for them: it then takes more connections.
    pub many_files: bool,
    /// The file that the farm began with; a server that has a certificate needs none.
    pub founding: Option<PathBuf>,
    /// The certificates of the authorities of neighbours, as files.
    pub authorities: BTreeMap<String, PathBuf>,
    /// Who it is, who the others are, how they elect, and everything else that can be chosen.
    pub plan: Plan,
}

impl Settings {
    /// Server `id` of those that are reached at these places, with everything else as usual.
    pub fn new(
        farm: impl Into<String>,
        id: u64,
        servers: impl IntoIterator<Item = (u64, impl Into<Place>)>,
        dir: impl Into<PathBuf>,
    ) -> Self {
        let plan = Plan::new(ServerId(id), servers.into_iter().map(|(id, at)| (ServerId(id), at)));
        Self {
            farm: farm.into(),
            dir: dir.into(),
            listen: None,
            load: Source::System,
            hook: None,
            many_files: false,
            founding: None,
            authorities: BTreeMap::new(),
            plan,
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It is not among the servers.
    #[error("server {0} has no address: name it among the servers")]
    NotAmongServers(ServerId),
    /// It is reached by a name, and nothing says where it listens.
    #[error("server {0} is reached at {1}, a name: say at which address it listens")]
    NoListen(ServerId, Place),
    /// Its load cannot be measured.
    #[error("its load cannot be measured: {0}")]
    Load(#[from] Unmeasurable),
    /// Its directory cannot be used.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// It cannot prove who it is.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// Its address cannot be used.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    /// It ended at once.
    #[error(transparent)]
    Ended(#[from] EndError),
}

/// Why a job was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// Too much waits already, or the job has too many tasks.
    #[error("the queue is full: try again when some tasks have ended")]
    Full,
    /// Another job was submitted under this key.
    #[error("job {0} was submitted under this key, and it is another one: use a new key")]
    OtherJob(JobId),
    /// The leader could not take it.
    #[error(transparent)]
    Unable(#[from] Unable),
}

/// A server whose disk and port are open, and that has not begun: [`Server::prepare`].
#[derive(Debug)]
pub struct Prepared {
    settings: Settings,
    listener: std::net::TcpListener,
    opened: Opened,
    meter: Meter,
    security: Security,
}

/// A server that runs in this process. Everything that its [`Handle`] can do, it can.
///
/// [`Server::stop`] ends it in good order. Dropping it ends it at once, as if its process had been killed: the others notice,
/// and nothing that was acknowledged is lost.
#[derive(Debug)]
pub struct Server {
    handle: Handle,
    /// Ends the server when it is used or dropped.
    stop: Option<oneshot::Sender<()>>,
    /// How it ended.
    ended: oneshot::Receiver<Result<(), EndError>>,
    /// The server's own thread, until it has been joined.
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server, on threads of its own.
    ///
    /// # Errors
    /// If its directory or its address cannot be used.
    ///
    /// # Panics
    /// If the system gives no thread.
    pub async fn start(settings: Settings) -> Result<Self, StartError> {
        // On its own thread, because disks can be slow.
        begin(move || Self::prepare(settings)).await
    }

    /// Opens the disk and the port of a server, and begins with nothing. To be called inside a tokio runtime with io.
    ///
    /// # Errors
    /// If its directory or its address cannot be used.
    pub fn prepare(settings: Settings) -> Result<Prepared, StartError> {
        let Plan { id, servers, .. } = &settings.plan;
        let place = servers.get(id).ok_or(StartError::NotAmongServers(*id))?;
        let address = settings.listen.or_else(|| place.number());
        let address = address.ok_or_else(|| StartError::NoListen(*id, place.clone()))?;
        let meter = Meter::open(&settings.load)?;
        if settings.many_files {
            files::raise_limit();
            files::make_room();
        }
        let identity = Identity { cluster: settings.farm.clone(), server: *id };
        let opened = Store::open(&settings.dir, &identity)?;
        let security = secure(&settings)?;
        let listener = listen(address).map_err(|error| StartError::Listen(address, error))?;
        Ok(Prepared { settings, listener, opened, meter, security })
    }

    /// A way to talk to it that can be cloned and taken elsewhere.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Waits until it ends, which it does only because it cannot go on.
    ///
    /// # Errors
    /// Why it cannot go on.
    ///
    /// # Panics
    /// If its thread did.
    pub async fn ended(&mut self) -> Result<(), EndError> {
        if self.thread.is_none() {
            return Ok(());
        }
        let ended = (&mut self.ended).await;
        self.join();
        ended.unwrap_or(Ok(()))
    }

    /// Ends it in good order: what is guarded through it ends, and another server leads, if one can. That takes [`STOP_TIME`] at
    /// most.
    ///
    /// # Errors
    /// If it could not go on, and so had ended by itself.
    pub async fn stop(self) -> Result<(), EndError> {
        self.stop_within(STOP_TIME).await
    }

    /// The same, where others may take this long at most.
    ///
    /// # Errors
    /// As [`Server::stop`].
    pub async fn stop_within(mut self, time: Duration) -> Result<(), EndError> {
        _ = timeout(time, self.handle.step_down()).await;
        self.end()
    }

    fn end(&mut self) -> Result<(), EndError> {
        // If it has ended by itself, nothing listens.
        drop(self.stop.take());
        self.join();
        self.ended.try_recv().unwrap_or(Ok(()))
    }

    fn join(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if let Err(panic) = thread.join()
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // `stop` says how it ended.
        _ = self.end();
    }
}

impl Deref for Server {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Prepared {
    /// Begins to serve, on threads of its own.
    ///
    /// # Errors
    /// If it ends at once.
    ///
    /// # Panics
    /// If the system gives no thread.
    pub async fn start(self) -> Result<Server, StartError> {
        begin(move || Ok(self)).await
    }

    async fn serve(self, ready: oneshot::Sender<Handle>, stop: oneshot::Receiver<()>) -> Result<(), EndError> {
        let Self { settings: Settings { farm, hook, plan, .. }, listener, opened, meter, security } = self;
        let id = plan.id;
        let listener = TcpListener::from_std(listener).expect("a listener stays one");
        let (tell, handle) = oneshot::channel();
        let config = Config { cluster: farm.clone(), plan, security };
        // A task of its own: whatever wakes the future that a runtime was started with costs a system call more.
        let serving = tokio::spawn(node::run(config, listener, opened, tell));
        if let Ok(handle) = handle.await {
            let measured = handle.clone();
            meter.watch(move |usage| measured.measured(usage));
            if let Some(hook) = hook {
                hooks::start(hook, farm, id, Arc::clone(&handle.history), Arc::clone(&handle.meters));
            }
            _ = ready.send(handle);
        }
        tokio::select! {
            ended = serving => ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())),
            // Sent or dropped, it means the same.
            _ = stop => Ok(()),
        }
    }
}

/// Proves who the server is, if its farm wants that.
fn secure(settings: &Settings) -> Result<Security, CredentialsError> {
    let Settings { farm, dir, founding, authorities, plan, .. } = settings;
    Security::open(dir, farm, &Node::Server(plan.id), founding.as_deref())?.with_neighbours(authorities)
}

/// Starts the server's own thread.
async fn begin(
    prepare: impl FnOnce() -> Result<Prepared, StartError> + Send + 'static,
) -> Result<Server, StartError> {
    let (started, has_started) = oneshot::channel();
    let (ready, handle) = oneshot::channel();
    let (stop, stopped) = oneshot::channel();
    let (tell, mut ended) = oneshot::channel();
    let running = move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("the system gives a runtime");
        let done = runtime.block_on(async {
            match prepare() {
                Ok(prepared) => {
                    _ = started.send(Ok(()));
                    prepared.serve(ready, stopped).await
                }
                Err(error) => {
                    _ = started.send(Err(error));
                    Ok(())
                }
            }
        });
        // Its links end before anybody hears that it has ended.
        drop(runtime);
        _ = tell.send(done);
    };
    let thread = thread::Builder::new().name("server".to_owned());
    let thread = thread.spawn(running).expect("the system gives a thread");
    has_started.await.expect("the thread says what came of it")?;
    match handle.await {
        Ok(handle) => Ok(Server { handle, stop: Some(stop), ended, thread: Some(thread) }),
        Err(_) => Err(match (&mut ended).await {
            Ok(Err(error)) => error.into(),
            _ => EndError::from(crate::watched::Broken::new("start", "it ended without a reason")).into(),
        }),
    }
}

/// Listens at an address of this host. To be called inside a tokio runtime with io.
///
/// # Errors
/// If the address cannot be used.
pub fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(CALLERS_MAX)?.into_std()
}

impl Handle {
    /// Who this server is.
    #[must_use]
    pub fn id(&self) -> ServerId {
        self.view.borrow().id
    }

    /// Who leads, as this server sees it, and every change of that.
    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Gives a key this value; when this returns, a majority has it on disk. Says where in the log it is.
    ///
    /// # Errors
    /// If key or value is too long, or no server leads for five seconds. [`Unable::Unknown`] means that it may have been written.
    pub async fn put(&self, key: &str, value: impl Into<Bytes>) -> Result<u64, Unable> {
        let value = value.into();
        if key.len() > KEY_LEN_MAX || value.len() > VALUE_LEN_MAX {
            return Err(Unable::TooLong);
        }
        self.write(key, Some(value), Patience::LONG).await
    }

    /// Forgets a key.
    ///
    /// # Errors
    /// As [`Handle::put`].
    pub async fn delete(&self, key: &str) -> Result<u64, Unable> {
        self.write(key, None, Patience::LONG).await
    }

    /// Gives a key this value, or forgets it, at the leader.
    ///
    /// # Errors
    /// As [`Handle::put`], but no later than this patience allows.
    pub async fn write(&self, key: &str, value: Option<Bytes>, patience: Patience) -> Result<u64, Unable> {
        match self.ask_patiently(LeaderRequest::Put(key.to_owned(), value), patience).await? {
            LeaderReply::Written(index) => Ok(index),
            _ => Err(Unable::Unknown),
        }
    }

    /// The value of a key: the last one that was acknowledged, whichever server is asked.
    ///
    /// # Errors
    /// If no server leads for five seconds.
    pub async fn get(&self, key: &str) -> Result<Option<Bytes>, Unable> {
        Ok(self.read(key, Patience::LONG).await?.map(|(value, _)| value))
    }

    /// The same with its place in the log.
    ///
    /// # Errors
    /// As [`Handle::get`], but no later than this patience allows.
    pub async fn read(&self, key: &str, patience: Patience) -> Result<Option<(Bytes, u64)>, Unable> {
        match self.ask_patiently(LeaderRequest::Get(key.to_owned()), patience).await? {
            LeaderReply::Value(value) => Ok(value),
            _ => Err(Unable::Unknown),
        }
    }

    /// Submits a job to the farm's workers. Under a key it is taken once, however often it is submitted: after
    /// [`Unable::Unknown`] it can be submitted again.
    ///
    /// # Errors
    /// If the queue is full, the job is too long, or no server leads for five seconds.
    pub async fn submit(&self, job: Spec, key: Option<&str>) -> Result<JobId, SubmitError> {
        let question = LeaderRequest::Submit(Box::new(job), key.map(str::to_owned));
        match self.ask_patiently(question, Patience::LONG).await? {
            LeaderReply::Job(job) => job.ok_or(SubmitError::Full),
            LeaderReply::OtherJob(job) => Err(SubmitError::OtherJob(job)),
            _ => Err(Unable::Unknown.into()),
        }
    }

    /// Ends what is guarded through this server and, if it leads, lets another one lead. If none can, so be it.
    pub async fn step_down(&self) {
        self.asker.is_ending.send_replace(true);
        self.asker.is_ending.closed().await;
        let leads = |view: &View| view.leader == Some(view.id);
        if !leads(&self.view.borrow()) || self.farm.vacate().await.is_err() {
            return;
        }
        let (reply, answer) = oneshot::channel();
        self.ask(Request::Leave(reply));
        if let Ok(Ok(())) = answer.await {
            _ = self.view.clone().wait_for(|view| !leads(view)).await;
        }
    }
}
