//! A server inside your program.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use primus_core::election::Algorithm;
use primus_core::load::Weights;
use primus_core::{Place, ServerId};
use primus_node::hooks::Hook;
use primus_node::node::EndError;
use primus_node::server::{self, Settings};

use crate::client::Client;
use crate::election::{Adapted, Election};
use crate::group::Group;
use crate::leadership::Leadership;
use crate::settings::{LoadSource, Network, Rank};
use crate::worker::WorkerBuilder;

/// A server that runs in this process, on threads of its own: whatever your program does, the server is not late.
///
/// [`Server::stop`] ends it in good order. Dropping it ends it at once, as if its process had been killed: the others notice,
/// and nothing that was acknowledged is lost.
#[derive(Debug)]
pub struct Server {
    inner: server::Server,
    farm: String,
    servers: Vec<(u64, Place)>,
    founding: Option<PathBuf>,
}

/// What a server is told when it starts: from [`Server::builder`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is started"]
pub struct ServerBuilder {
    settings: Settings,
    weights: Option<[u32; 4]>,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Your program's mistake: settings that make no sense.
    #[error("{0}")]
    Settings(String),
    /// The directory's fault: another process uses it, other users can write there, or its content is damaged.
    #[error("{0}")]
    Directory(String),
    /// The server cannot prove who it is: its founding file or its certificate is another node's or another farm's.
    #[error("{0}")]
    Credentials(String),
    /// The network's fault: the address belongs to another process, or to another host.
    #[error("cannot listen on {0}: {1}")]
    Address(SocketAddr, #[source] std::io::Error),
    /// The host's fault: its load cannot be measured.
    #[error("{0}")]
    Load(String),
    /// The server ended at once.
    #[error(transparent)]
    Ended(#[from] StopError),
}

/// Why a server ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// The disk's fault: make room or mend it, and start the server again.
    #[error("{0}")]
    Disk(String),
    /// The server must not be started again as it is: keep a copy of its directory and report this.
    #[error("{0}")]
    Final(String),
}

impl Server {
    /// Server `id` of the farm with this name, whose servers reach each other at these places. The directory is its own,
    /// and keeps what must survive it.
    pub fn builder(
        farm: impl Into<String>,
        id: u64,
        servers: impl IntoIterator<Item = (u64, impl Into<Place>)>,
        dir: impl Into<PathBuf>,
    ) -> ServerBuilder {
        ServerBuilder { settings: Settings::new(farm, id, servers, dir), weights: None }
    }

    /// The number of this server.
    #[must_use]
    pub fn id(&self) -> ServerId {
        self.inner.id()
    }

    /// Who leads, and every change of that.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        Leadership(self.inner.leadership())
    }

    /// A client of this farm: what this server cannot answer itself travels to the leader over the servers' own links.
    #[must_use]
    pub fn client(&self) -> Client {
        let farm = (self.farm.clone(), self.founding.clone());
        Client::of(self.inner.handle().clone(), farm, self.servers.clone())
    }

    /// A group by its name, for one holder at a time; the candidate on the least loaded host comes first.
    pub fn group(&self, name: impl Into<String>) -> Group {
        Group(self.inner.group(name))
    }

    /// A worker beside this server: what it runs counts in the server's load.
    pub fn worker(&self, name: impl Into<String>, dir: impl Into<PathBuf>) -> WorkerBuilder {
        let worker = WorkerBuilder::new(self.farm.clone(), name, self.servers.iter().cloned(), dir);
        worker.beside(self.id().0).founded_by(self.founding.clone())
    }

    /// Waits until the server ends by itself, which it does only because it cannot go on.
    ///
    /// # Errors
    /// Why it cannot go on.
    pub async fn ended(&mut self) -> Result<(), StopError> {
        self.inner.ended().await.map_err(StopError::of)
    }

    /// Ends the server in good order: what is guarded through it ends, and another server leads, if one can. That takes ten
    /// seconds at most.
    ///
    /// # Errors
    /// If it could not go on, and so had ended by itself.
    pub async fn stop(self) -> Result<(), StopError> {
        self.inner.stop().await.map_err(StopError::of)
    }
}

impl ServerBuilder {
    /// Sets all times for servers that are this far away from each other. Times that are set one by one come after this.
    pub const fn network(mut self, network: Network) -> Self {
        network.apply(&mut self.settings.plan);
        self
    }

    /// Sets which server should lead. All servers must agree.
    pub fn rank(mut self, rank: Rank) -> Self {
        self.settings.plan.election.rank = rank.rank_by();
        self
    }

    /// Elects by a token that goes round the servers instead of Bully. All servers must agree.
    pub const fn ring(mut self) -> Self {
        self.settings.plan.election.algorithm = Algorithm::Ring;
        self
    }

    /// Elects with an algorithm of your own: `make` gets the number of a server. All servers must agree. A quorum still ratifies
    /// the winner, so whatever the algorithm does wrong, there are never two leaders in one term.
    pub fn elect_with<E: Election>(mut self, make: impl Fn(ServerId) -> E + Send + Sync + 'static) -> Self {
        self.settings.plan.elect_with(move |plan| Adapted::new(plan.id, make(plan.id)));
        self
    }

    /// Sets how often a leader shows itself, and how long its silence may last before another server takes over: at least, and
    /// at most. Between these the time is measured.
    pub fn silence(mut self, heartbeat: Duration, least: Duration, most: Duration) -> Self {
        let rules = &mut self.settings.plan.election.silence;
        (rules.heartbeat_us, rules.floor_us, rules.ceiling_us) = (micros(heartbeat), micros(least), micros(most));
        (rules.is_floor_fixed, rules.is_ceiling_fixed) = (true, true);
        self
    }

    /// Sets how long a holder of a group may go on without hearing from the leader: at least 300 ms, by default 1 s. The
    /// leader's value counts.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.plan.lease_us = micros(lease);
        self
    }

    /// Sets what the load of this server is: by default the use of the whole host.
    pub fn load(mut self, source: LoadSource) -> Self {
        self.settings.load = source.source();
        self
    }

    /// Sets how much processors, tasks and memory count in a load, in any unit, and how many tasks are full load: by default
    /// 50, 30, 20 and 10.
    pub const fn weights(mut self, cpu: u32, tasks: u32, memory: u32, tasks_full: u32) -> Self {
        self.weights = Some([cpu, tasks, memory, tasks_full]);
        self
    }

    /// Runs this command whenever a server begins to lead, as long as this server lives: for this long at most.
    pub fn on_leader_change(
        mut self,
        command: impl IntoIterator<Item = impl Into<String>>,
        timeout: Duration,
    ) -> Self {
        self.settings.hook = Some(Hook { command: command.into_iter().map(Into::into).collect(), timeout });
        self
    }

    /// Listens here, although others find the server at another address.
    pub const fn listen(mut self, address: SocketAddr) -> Self {
        self.settings.listen = Some(address);
        self
    }

    /// Encrypts all links, with certificates on both sides: this file is what the farm began with, from `primus init`. All servers
    /// and workers of the farm need it when they start for the first time.
    pub fn founding(mut self, file: impl Into<PathBuf>) -> Self {
        self.settings.founding = Some(file.into());
        self
    }

    /// Raises this process's limit of open files, for servers with many workers and clients.
    pub const fn many_files(mut self) -> Self {
        self.settings.many_files = true;
        self
    }

    /// Sets how many tasks may wait, once this server leads: by default four million.
    pub const fn queue(mut self, tasks_max: u64) -> Self {
        self.settings.plan.farm.limits.waiting = tasks_max;
        self
    }

    /// Starts the server. It begins to look for the others at once; [`Leadership::wait_for`] says when one of them leads.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(mut self) -> Result<Server, StartError> {
        self.check()?;
        let farm = self.settings.farm.clone();
        let servers = self.settings.plan.servers.iter().map(|(id, at)| (id.0, at.clone())).collect();
        let founding = self.settings.founding.clone();
        let inner = server::Server::start(self.settings).await.map_err(StartError::of)?;
        Ok(Server { inner, farm, servers, founding })
    }

    fn check(&mut self) -> Result<(), StartError> {
        let wrong = |what: &str| Err(StartError::Settings(what.to_owned()));
        let Settings { farm, plan, hook, .. } = &mut self.settings;
        if let Some([cpu, tasks, memory, tasks_full]) = self.weights {
            plan.farm.weights = Weights::new(cpu, tasks, memory, tasks_full)
                .map_err(|_| StartError::Settings("weights make no load: one of them must count".to_owned()))?;
        }
        let rules = plan.election.silence;
        let is_ordered =
            0 < rules.heartbeat_us && rules.heartbeat_us < rules.floor_us && rules.floor_us <= rules.ceiling_us;
        match () {
            () if farm.is_empty() => wrong("the farm has no name"),
            () if !is_ordered => {
                wrong("silence must last longer than a heartbeat, and at least no longer than at most")
            }
            () if plan.lease_us < primus_core::lease::LEASE_MIN_US => wrong("a lease lasts 300 ms at least"),
            () if hook.as_ref().is_some_and(|hook| hook.command.is_empty()) => wrong("the hook names no program"),
            () => Ok(()),
        }
    }
}

fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

impl StartError {
    fn of(error: server::StartError) -> Self {
        match error {
            server::StartError::NotAmongServers(_) | server::StartError::NoListen(..) => {
                Self::Settings(error.to_string())
            }
            server::StartError::Load(_) => Self::Load(error.to_string()),
            server::StartError::Store(error) => Self::Directory(error.to_string()),
            server::StartError::Credentials(error) => Self::Credentials(error.to_string()),
            server::StartError::Listen(address, error) => Self::Address(address, error),
            server::StartError::Ended(error) => Self::Ended(StopError::of(error)),
        }
    }
}

impl StopError {
    fn of(error: EndError) -> Self {
        if error.is_final() { Self::Final(error.to_string()) } else { Self::Disk(error.to_string()) }
    }
}
