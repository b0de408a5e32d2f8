//! A server's configuration: what it must know to start, and all that is wrong with it.
//!
//! Values come from flags, the environment, a TOML file and defaults, in that order ([`layers`]). A file of the load-aware
//! document works unchanged. What can be configured is one table ([`keys`]).

mod cluster;
mod file;
pub(crate) mod groups;
pub(crate) mod keys;
mod kind;
pub(crate) mod layers;
pub(crate) mod mistakes;
pub(crate) mod neighbours;
mod rules;
pub(crate) mod slot;
pub(crate) mod worker;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use keys::Values;
use layers::{Layers, Sources};
use mistakes::Origin;
use neighbours::NeighbourEntry;
use primus_api::Places;
use primus_core::loan::lending;
use primus_core::{Place, ServerId};
use primus_node::hooks::Hook;
use primus_node::load::Source;
use primus_server::Plan;
use primus_shapes::token::Token;
use primus_terminal::failure::Failure;
use serde_json::Value as Json;
use slot::{AnySlot, Fallback, Given, Key};
pub(crate) use worker::WorkerSettings;

/// What a server must know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerSettings {
    pub(crate) farm: String,
    pub(crate) id: ServerId,
    /// Where it listens, which need not be where others reach it.
    pub(crate) listen: SocketAddr,
    pub(crate) api_listen: SocketAddr,
    /// Where people and programs reach it.
    pub(crate) api: Place,
    /// What its API asks for, and under which further names it is reached.
    pub(crate) token: Option<Token>,
    pub(crate) names: Vec<String>,
    pub(crate) servers: BTreeMap<ServerId, Places>,
    pub(crate) dir: PathBuf,
    /// The file that the farm began with.
    pub(crate) founding: Option<PathBuf>,
    /// True if its links need not be encrypted.
    pub(crate) is_insecure: bool,
    /// The certificates of the authorities of neighbours, as files.
    pub(crate) authorities: BTreeMap<String, PathBuf>,
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
pub(crate) struct Configuration {
    layers: Layers,
    is_insecure: bool,
    servers: Option<BTreeMap<ServerId, Places>>,
    token: Option<Token>,
}

impl Configuration {
    /// Finds out what these sources mean. `insecure`: may it listen beyond loopback?
    pub(crate) fn read(sources: &Sources, insecure: bool) -> Self {
        let mut layers = Layers::with_plain_defaults(sources);
        rules::derive(&mut layers.values);
        worker::derive_beside_server(&mut layers);
        let servers = cluster::servers(&mut layers);
        rules::derive_victory(&mut layers.values, servers.as_ref().map_or(0, BTreeMap::len));
        groups::check(&mut layers, servers.as_ref());
        neighbours::check(&mut layers, servers.as_ref());
        cluster::check_ranks(&mut layers, servers.as_ref());
        rules::check(&mut layers, insecure);
        Self { layers, is_insecure: insecure, servers, token: None }
    }

    /// Every key with what was said of it.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'static Key, Given)> {
        // A default that depends on something missing is not known yet.
        let unsaid = |key: &Key| {
            let origin = if key.fallback == Fallback::Missing { Origin::Missing } else { Origin::Default };
            Given { text: String::new(), json: Json::Null, origin }
        };
        let slots = self.layers.slots().into_iter();
        slots.map(move |slot| (slot.key(), slot.given().cloned().unwrap_or_else(|| unsaid(slot.key()))))
    }

    /// The settings, if nothing is wrong.
    pub(crate) fn settle(mut self) -> Result<ServerSettings, Failure> {
        self.complain_of_missing();
        self.read_token();
        self.check()?;
        self.settings()
    }

    /// Is anything wrong, other than that something has not been said?
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.layers.check()
    }

    /// By which rules workers are lent, if nothing that was said is wrong.
    pub(crate) fn lending(&self) -> Result<lending::Rules, Failure> {
        self.check()?;
        Ok(rules::lending_rules(&self.layers.values.lending.settled()?))
    }

    /// Only who starts a server needs to be able to read its secret.
    fn read_token(&mut self) {
        let slot = &self.layers.values.api.token_file;
        let Some(file) = slot.get().flatten() else { return };
        match Token::read(&file) {
            Ok(token) => self.token = Some(token),
            Err((what, hint)) => self.layers.mistakes.about(slot, format!("{} {what}", slot.key.name), hint),
        }
    }

    fn complain_of_missing(&mut self) {
        let Layers { values, mistakes, is_damaged } = &mut self.layers;
        let unsaid = values.slots().into_iter().filter(|slot| slot.given().is_none()).map(AnySlot::key);
        for key in unsaid.filter(|key| key.fallback == Fallback::Missing && !*is_damaged) {
            let (section, name) = key.parts();
            let flag = key.flag.map(|flag| format!(", or --{flag} on the command line")).unwrap_or_default();
            let hint = format!("write {name} = {} under [{section}]{flag}", (key.example)());
            mistakes.add(None, key.name, (format!("{} is missing", key.name), hint));
        }
    }

    fn settings(self) -> Result<ServerSettings, Failure> {
        let gathered = &self.layers.values;
        let Values { server, api, hooks, load, .. } = gathered.settled()?;
        let servers = self.servers.ok_or_else(|| gathered.cluster.servers.unknown())?;
        let addresses: BTreeMap<ServerId, Place> =
            servers.iter().map(|(id, places)| (*id, places.address.clone())).collect();
        let hook = Hook { command: hooks.leader_changed, timeout: hooks.timeout };
        Ok(ServerSettings {
            farm: server.farm,
            id: server.id,
            listen: server.listen,
            api_listen: api.listen,
            api: server.api,
            token: self.token,
            names: api.names,
            servers,
            dir: server.dir,
            founding: gathered.cluster.founding.settled()?,
            is_insecure: self.is_insecure,
            authorities: gathered
                .neighbourhood
                .neighbours
                .settled()?
                .iter()
                .filter_map(NeighbourEntry::authority)
                .collect(),
            plan: rules::plan(gathered, Plan::new(server.id, addresses.clone()))?,
            load: load.source,
            chaos: server.chaos,
            hook: Some(hook).filter(|hook| !hook.command.is_empty()),
            worker: Some(WorkerSettings::new(gathered, addresses)?).filter(|worker| worker.slots > 0),
        })
    }
}

#[cfg(test)]
mod tests;
