//! What a worker must know: the same table of keys, read for a process that runs tasks and does not vote.
//!
//! A server with slots runs a worker beside itself, which takes what it needs from the server's own settings.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use primus_core::ServerId;
use primus_core::load::Weights;
use primus_node::executor::Limits;
use primus_node::load::Source;
use primus_terminal::failure::Failure;
use primus_terminal::names::check_name;

use super::layers::{Layers, Sources};
use super::value::Value;
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
    pub(crate) servers: BTreeMap<ServerId, SocketAddr>,
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
        let mut layers = Layers::read(sources);
        layers.plain_defaults();
        derive(&mut layers);
        let servers = cluster::of_worker(&mut layers).unwrap_or_default();
        rules::check_weights(&mut layers);
        if !layers.mistakes.is_empty() {
            return Err(Failure::configuration(layers.mistakes));
        }
        let settings = Self::new(&layers, servers).expect("without mistakes every key has a value");
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
    pub(super) fn new(layers: &Layers, servers: BTreeMap<ServerId, SocketAddr>) -> Option<Self> {
        Some(Self {
            farm: layers.text("server.farm")?.to_owned(),
            name: layers.text("worker.name")?.to_owned(),
            slots: u16::try_from(layers.number("worker.slots")?).ok()?,
            beside: layers.number("worker.beside").map(ServerId),
            dir: PathBuf::from(layers.text("worker.dir")?),
            servers,
            allow: layers.programs("worker.allow")?.to_vec(),
            allow_env: layers.programs("worker.allow_env")?.to_vec(),
            pass: layers.programs("worker.pass")?.to_vec(),
            user: Some(layers.text("worker.user")?.to_owned()).filter(|user| !user.is_empty()),
            limits: limits(layers)?,
            output_max: layers.size("worker.output_max")?,
            outputs_max: layers.size("worker.outputs_max")?,
            load: layers.source("load.source")?.clone(),
            weights: rules::weights(layers)?.ok()?,
        })
    }
}

/// What tasks may use; nothing stands for no limit.
fn limits(layers: &Layers) -> Option<Limits> {
    let some = |limit: u64| Some(limit).filter(|limit| *limit > 0);
    Some(Limits {
        memory: some(layers.size("worker.memory_max")?),
        processes: some(layers.number("worker.processes_max")?),
        file: some(layers.size("worker.file_max")?),
    })
}

/// Defaults of a worker that is a process of its own.
fn derive(layers: &mut Layers) {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    layers.fall_back("worker.slots", Value::Number(processors.min(4096)));
    layers.fall_back("worker.name", Value::Text(host_name()));
    if let Some(name) = layers.text("worker.name") {
        layers.fall_back("worker.dir", Value::Text(format!("primus-data/{name}")));
    }
    if layers.number("worker.slots") == Some(0) {
        let message = "worker.slots is 0, so this worker would never run anything".to_owned();
        layers.complain_about("worker.slots", message, "give it a slot");
    }
}

/// Defaults of a worker beside a server.
pub(super) fn derive_beside_server(layers: &mut Layers) {
    layers.fall_back("worker.slots", Value::Number(0));
    if let Some(id) = layers.number("server.id") {
        layers.fall_back("worker.name", Value::Text(format!("server-{id}")));
        layers.fall_back("worker.beside", Value::Number(id));
        if let Some(other) = layers.number("worker.beside").filter(|other| *other != id) {
            let message = format!("worker.beside is {other}, but the slots of a server are its own");
            layers.complain_about("worker.beside", message, "leave it out, or start primus worker --beside");
        }
    }
    if let Some(dir) = layers.text("server.dir") {
        let dir = Path::new(dir).join("worker").to_string_lossy().into_owned();
        layers.fall_back("worker.dir", Value::Text(dir));
    }
}

fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if check_name(&name).is_ok() { name } else { NAME.to_owned() }
}
