//! What a worker must know: the same table of keys, read for a process that runs tasks and does not vote.
//!
//! A server with slots runs a worker beside itself, which takes what it needs from the server's own settings.

use std::collections::BTreeMap;
use std::path::PathBuf;

use primus_core::load::Weights;
use primus_core::{Place, ServerId};
use primus_node::executor::Limits;
use primus_node::load::Source;
use primus_terminal::failure::Failure;
use primus_terminal::names::check_name;

use super::keys::Values;
use super::layers::{Layers, Sources};
use super::slot::Gathered;
use super::{cluster, rules};

/// What hosts are called that do not say.
const NAME: &str = "worker";

/// What a worker must know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkerSettings {
    pub(crate) farm: String,
    pub(crate) name: String,
    pub(crate) slots: u16,
    /// The server on the same host, in whose load its tasks count.
    pub(crate) beside: Option<ServerId>,
    pub(crate) dir: PathBuf,
    /// Where the servers listen for it; nothing if a server has to be asked.
    pub(crate) servers: BTreeMap<ServerId, Place>,
    /// The file that the farm began with.
    pub(crate) founding: Option<PathBuf>,
    pub(crate) allow: Vec<String>,
    pub(crate) allow_env: Vec<String>,
    pub(crate) pass: Vec<String>,
    /// Who tasks run as, if not this worker's own user.
    pub(crate) user: Option<String>,
    pub(crate) limits: Limits,
    pub(crate) output_max: u64,
    pub(crate) outputs_max: u64,
    pub(crate) load: Source,
    pub(crate) weights: Weights,
}

impl WorkerSettings {
    /// The settings of a worker that is a process of its own.
    pub(crate) fn read(sources: &Sources) -> Result<Self, Failure> {
        let mut layers = Layers::with_plain_defaults(sources);
        derive(&mut layers);
        let servers = cluster::of_worker(&mut layers).unwrap_or_default();
        rules::check_weights(&layers.values, &mut layers.mistakes);
        layers.check()?;
        let settings = Self::new(&layers.values, servers)?;
        settings.check_beside().map(|()| settings)
    }

    /// Nothing would count what runs beside a server that does not exist. Without servers, it is not known yet which exist.
    pub(crate) fn check_beside(&self) -> Result<(), Failure> {
        let stranger = self.beside.filter(|id| !self.servers.is_empty() && !self.servers.contains_key(id));
        stranger.map_or(Ok(()), |ServerId(id)| {
            let known: Vec<String> = self.servers.keys().map(|ServerId(id)| id.to_string()).collect();
            let hint = format!("name the server on the same host: {}", known.join(", "));
            Err(Failure::usage(format!("worker.beside is {id}, but the farm has not got that server"), hint))
        })
    }

    /// What these values mean.
    pub(super) fn new(values: &Values<Gathered>, servers: BTreeMap<ServerId, Place>) -> Result<Self, Failure> {
        let worker = values.worker.settled()?;
        // Zero stands for no limit.
        let some = |limit: u64| Some(limit).filter(|limit| *limit > 0);
        Ok(Self {
            farm: values.server.farm.settled()?,
            name: worker.name,
            slots: worker.slots,
            beside: worker.beside,
            dir: worker.dir,
            servers,
            founding: values.cluster.founding.settled()?,
            allow: worker.allow,
            allow_env: worker.allow_env,
            pass: worker.pass,
            user: worker.user,
            limits: Limits {
                memory: some(worker.memory_max),
                processes: some(worker.processes_max),
                file: some(worker.file_max),
            },
            output_max: worker.output_max,
            outputs_max: worker.outputs_max,
            load: values.load.source.settled()?,
            weights: rules::weights(values)?,
        })
    }
}

/// Defaults of a worker that is a process of its own.
fn derive(layers: &mut Layers) {
    let worker = &mut layers.values.worker;
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get().min(4096) as u16);
    worker.slots.fall_back(processors);
    worker.name.fall_back(host_name());
    worker.beside.fall_back(None);
    if let Some(name) = worker.name.get() {
        worker.dir.fall_back(format!("primus-data/{name}").into());
    }
    if worker.slots.get() == Some(0) {
        let message = "worker.slots is 0, so this worker would never run anything".to_owned();
        layers.mistakes.about(&worker.slots, message, "give it a slot");
    }
}

/// Defaults of a worker beside a server.
pub(super) fn derive_beside_server(layers: &mut Layers) {
    let Values { worker, server, .. } = &mut layers.values;
    worker.slots.fall_back(0);
    if let Some(id) = server.id.get() {
        worker.name.fall_back(format!("server-{id}"));
        worker.beside.fall_back(Some(id));
        if let Some(other) = worker.beside.get().flatten().filter(|other| *other != id) {
            let message = format!("worker.beside is {other}, but the slots of a server are its own");
            layers.mistakes.about(&worker.beside, message, "leave it out, or start primus worker --beside");
        }
    }
    if let Some(dir) = server.dir.get() {
        worker.dir.fall_back(dir.join("worker"));
    }
}

fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if check_name(&name).is_ok() { name } else { NAME.to_owned() }
}
