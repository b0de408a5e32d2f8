//! A server's configuration: what it must know to start, and all that is wrong with it.
//!
//! Values come from flags, the environment, a TOML file and defaults, in that order ([`layers`]). A file of the load-aware
//! document works unchanged. What can be configured is one table ([`keys`]).

mod cluster;
mod file;
pub(crate) mod groups;
pub(crate) mod keys;
pub(crate) mod layers;
pub(crate) mod neighbours;
mod rules;
mod value;
pub(crate) mod worker;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use keys::{Fallback, KEYS, Key};
use layers::{Given, Layers, Origin, Sources};
use primus_api::Places;
use primus_core::ServerId;
use primus_core::loan::lending;
use primus_node::hooks::Hook;
use primus_node::load::Source;
use primus_server::Plan;
use primus_shapes::token::Token;
use primus_terminal::failure::Failure;

pub(crate) use value::Value;
pub(crate) use worker::WorkerSettings;

/// The key that names the file with the secret of the API.
const TOKEN_FILE: &str = "api.token_file";

/// What a server must know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerSettings {
    pub(crate) farm: String,
    pub(crate) id: ServerId,
    /// Where it listens, which need not be where others find it.
    pub(crate) address: SocketAddr,
    pub(crate) api: SocketAddr,
    /// What its API asks for, and under which further names it is reached.
    pub(crate) token: Option<Token>,
    pub(crate) names: Vec<String>,
    pub(crate) servers: BTreeMap<ServerId, Places>,
    pub(crate) dir: PathBuf,
    /// How it elects.
    pub(crate) plan: Plan,
    pub(crate) load: Source,
    pub(crate) chaos: bool,
    /// What it runs when a server begins to lead.
    pub(crate) hook: Option<Hook>,
    /// The worker beside it, if it has slots.
    pub(crate) worker: Option<WorkerSettings>,
}

/// A configuration with every value that could be found out, right or wrong.
#[derive(Debug)]
pub(crate) struct Configuration {
    layers: Layers,
    servers: Option<BTreeMap<ServerId, Places>>,
    token: Option<Token>,
}

impl Configuration {
    /// Finds out what these sources mean. `insecure`: may it listen beyond loopback?
    pub(crate) fn read(sources: &Sources, insecure: bool) -> Self {
        let mut layers = Layers::read(sources);
        layers.plain_defaults();
        rules::derive(&mut layers);
        worker::derive_beside_server(&mut layers);
        let servers = cluster::servers(&mut layers);
        rules::derive_victory(&mut layers, servers.as_ref().map_or(0, BTreeMap::len));
        groups::check(&mut layers, servers.as_ref());
        neighbours::check(&mut layers, servers.as_ref());
        rules::check(&mut layers, insecure);
        Self { layers, servers, token: None }
    }

    /// Every key with what was said of it.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'static Key, Given)> {
        // A default that depends on something missing is not known yet.
        let unsaid = |key: &Key| {
            let origin = if key.fallback == Fallback::Missing { Origin::Missing } else { Origin::Default };
            Given { text: String::new(), value: None, origin }
        };
        KEYS.iter().map(move |key| (key, self.layers.given(key.name).cloned().unwrap_or_else(|| unsaid(key))))
    }

    /// The settings, if nothing is wrong.
    pub(crate) fn settle(mut self) -> Result<ServerSettings, Failure> {
        self.complain_of_missing();
        self.read_token();
        self.check()?;
        Ok(self.settings().expect("without mistakes every key has a value"))
    }

    /// Is anything wrong, other than that something has not been said?
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let mistakes = &self.layers.mistakes;
        if mistakes.is_empty() { Ok(()) } else { Err(Failure::configuration(mistakes.clone())) }
    }

    /// By which rules workers are lent, if nothing that was said is wrong.
    pub(crate) fn lending(&self) -> Result<lending::Rules, Failure> {
        self.check()?;
        Ok(rules::lending(&self.layers).expect("without mistakes every key of lending has a value"))
    }

    /// Only who starts a server needs to be able to read its secret.
    fn read_token(&mut self) {
        let Some(file) = self.layers.text(TOKEN_FILE).filter(|file| !file.is_empty()) else { return };
        match Token::read(Path::new(file)) {
            Ok(token) => self.token = Some(token),
            Err((what, hint)) => self.layers.complain_about(TOKEN_FILE, format!("{TOKEN_FILE} {what}"), hint),
        }
    }

    fn complain_of_missing(&mut self) {
        if self.layers.is_damaged {
            return;
        }
        for key in KEYS.iter().filter(|key| key.fallback == Fallback::Missing) {
            if self.layers.given(key.name).is_none() {
                let (section, name) = key.name.rsplit_once('.').unwrap_or_default();
                let flag = key.flag.map(|flag| format!(", or --{flag} on the command line")).unwrap_or_default();
                let hint = format!("write {name} = {} under [{section}]{flag}", key.kind.example());
                self.layers.complain(None, key.name, (format!("{} is missing", key.name), hint));
            }
        }
    }

    fn settings(&self) -> Option<ServerSettings> {
        let layers = &self.layers;
        let servers = self.servers.clone()?;
        let addresses: BTreeMap<ServerId, SocketAddr> =
            servers.iter().map(|(id, places)| (*id, places.address)).collect();
        let worker = WorkerSettings::new(layers, addresses.clone())?;
        let groups = groups::plans(layers, &addresses)?;
        let neighbours = neighbours::plans(layers)?;
        let plan = Plan { groups, neighbours, ..Plan::new(ServerId(layers.number("server.id")?), addresses) };
        let plan = rules::plan(layers, plan)?;
        let command = layers.command("hooks.leader_changed")?.to_vec();
        let hook = Hook { command, timeout: layers.time("hooks.timeout")? };
        Some(ServerSettings {
            farm: layers.text("server.farm")?.to_owned(),
            id: plan.id,
            address: layers.address("server.address")?,
            api: layers.address("server.api")?,
            token: self.token.clone(),
            names: layers.programs("api.names")?.to_vec(),
            servers,
            dir: PathBuf::from(layers.text("server.dir")?),
            plan,
            load: layers.source("load.source")?.clone(),
            chaos: layers.truth("server.chaos")?,
            hook: Some(hook).filter(|hook| !hook.command.is_empty()),
            worker: Some(worker).filter(|worker| worker.slots > 0),
        })
    }
}

#[cfg(test)]
mod tests;
