//! A server's configuration file, checked. A file of the load-aware document works unchanged: `[server] id, address`,
//! `[peers] peers`, `[election] …_secs`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use primus_core::NodeId;
use primus_core::rank::RankBy;
use primus_node::load::Source;
use primus_server::Plan;
use serde::Deserialize;

use crate::api::Places;
use crate::output::failure::Failure;

const HEARTBEAT: Duration = Duration::from_millis(25);

/// What a server must know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerSettings {
    pub(crate) farm: String,
    pub(crate) id: NodeId,
    pub(crate) address: SocketAddr,
    pub(crate) api: SocketAddr,
    pub(crate) servers: BTreeMap<NodeId, Places>,
    pub(crate) dir: PathBuf,
    pub(crate) rank: RankBy,
    pub(crate) heartbeat: Duration,
    pub(crate) silence: Duration,
    pub(crate) load: Source,
    pub(crate) chaos: bool,
}

/// The file, as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    server: ServerTable,
    #[serde(default)]
    peers: PeersTable,
    #[serde(default)]
    election: ElectionTable,
    #[serde(default)]
    load: LoadTable,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadTable {
    source: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerTable {
    id: u64,
    address: SocketAddr,
    api: Option<SocketAddr>,
    farm: Option<String>,
    dir: Option<PathBuf>,
    #[serde(default)]
    chaos: bool,
    /// Of the load-aware document; tasks come later.
    #[serde(rename = "cover_image")]
    _cover_image: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PeersTable {
    #[serde(default)]
    peers: Vec<PeerTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PeerTable {
    id: u64,
    address: SocketAddr,
    api: Option<SocketAddr>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ElectionTable {
    rank: Option<RankWord>,
    heartbeat_interval_secs: Option<f64>,
    failure_timeout_secs: Option<f64>,
    #[serde(rename = "election_timeout_secs")]
    _election_timeout_secs: Option<f64>,
    #[serde(rename = "monitor_interval_secs")]
    _monitor_interval_secs: Option<f64>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RankWord {
    Id,
    Address,
    Load,
}

impl ServerSettings {
    /// Reads and checks a file.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::usage(format!("cannot read {}: {error}", path.display()), "check --config")
        })?;
        Self::parse(&text).map_err(|(message, hint)| Failure::usage(format!("{}: {message}", path.display()), hint))
    }

    fn parse(text: &str) -> Result<Self, (String, &'static str)> {
        let file: File = toml::from_str(text).map_err(|error| (error.message().to_owned(), "mend the file"))?;
        let id = NodeId(file.server.id);
        if id.0 == 0 {
            return Err(("[server] id is 0".to_owned(), "ids are numbers from 1"));
        }
        let address = file.server.address;
        let api = file.server.api.unwrap_or_else(|| api_of(address));
        let mut servers = BTreeMap::from([(id, Places { address, api })]);
        for peer in file.peers.peers {
            let places = Places { address: peer.address, api: peer.api.unwrap_or_else(|| api_of(peer.address)) };
            let before = servers.insert(NodeId(peer.id), places);
            // A list that names the server itself is fine, if it says the same.
            if before.is_some_and(|before| before.address != places.address) {
                return Err((format!("two servers have the id {}", peer.id), "give each its own"));
            }
        }
        let duplicate =
            servers.iter().find(|(id, at)| servers.iter().any(|(o, p)| o != *id && p.address == at.address));
        if let Some((_, places)) = duplicate {
            return Err((format!("two servers listen on {}", places.address), "give each its own address"));
        }
        let farm = file.server.farm.unwrap_or_else(|| "primus".to_owned());
        let seconds = |seconds: Option<f64>, default: Duration| {
            seconds.filter(|s| s.is_finite() && *s > 0.0 && *s < 3600.0).map_or(default, Duration::from_secs_f64)
        };
        Ok(Self {
            id,
            address,
            api,
            dir: file.server.dir.unwrap_or_else(|| PathBuf::from("primus-data").join(format!("{farm}-{id}"))),
            farm,
            servers,
            rank: match file.election.rank {
                Some(RankWord::Id) => RankBy::Id,
                Some(RankWord::Address) => RankBy::Address,
                Some(RankWord::Load) | None => RankBy::Load,
            },
            heartbeat: seconds(file.election.heartbeat_interval_secs, HEARTBEAT),
            silence: seconds(file.election.failure_timeout_secs, crate::commands::SILENCE),
            load: load_source(file.load.source)?,
            chaos: file.server.chaos,
        })
    }

    /// How the server is put together.
    pub(crate) fn plan(&self) -> Plan {
        let servers = self.servers.iter().map(|(id, places)| (*id, places.address)).collect();
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let mut plan = Plan::new(self.id, servers);
        plan.rank = self.rank;
        plan.silence.heartbeat_us = us(self.heartbeat);
        plan.silence.floor_us = us(self.silence);
        plan
    }

    /// Nothing listens beyond loopback unless somebody says so.
    pub(crate) fn check_addresses(&self, insecure: bool) -> Result<(), Failure> {
        let open = [self.address, self.api].into_iter().find(|address| !address.ip().is_loopback());
        match open.filter(|_| !insecure) {
            None => Ok(()),
            Some(address) => Err(Failure::usage(
                format!("{address} can be reached from other hosts, and links are not encrypted yet"),
                "listen on 127.0.0.1, or add --insecure if you trust the network",
            )),
        }
    }
}

fn load_source(text: Option<String>) -> Result<Source, (String, &'static str)> {
    let source = text.map(|text| text.parse()).transpose();
    source.map(|source| source.unwrap_or(Source::System)).map_err(|message| (message, "mend [load] source"))
}

/// The API listens one port above the links, unless the file says otherwise.
fn api_of(mut address: SocketAddr) -> SocketAddr {
    address.set_port(address.port().saturating_add(1));
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_load_aware_document_works_unchanged() {
        let text = "[server]\nid = 1\naddress = \"127.0.0.1:8001\"\n[peers]\npeers = [{ id = 2, address = \"127.0.0.1:8002\" }]\n[election]\nheartbeat_interval_secs = 1\nelection_timeout_secs = 2\nfailure_timeout_secs = 3\nmonitor_interval_secs = 1\n";
        let settings = ServerSettings::parse(text).unwrap();
        assert_eq!(settings.servers.len(), 2);
        assert_eq!(settings.heartbeat, Duration::from_secs(1));
        assert_eq!(settings.silence, Duration::from_secs(3));
        assert_eq!(settings.api.port(), 8002);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in [
            ("", "server"),
            ("[server]\nid = 0\naddress = \"127.0.0.1:1\"", "id is 0"),
            ("[server]\nid = 1\naddress = \"nowhere\"", "address"),
            ("[server]\nid = 1\naddress = \"127.0.0.1:1\"\ncolour = 1", "colour"),
            (
                "[server]\nid = 1\naddress = \"127.0.0.1:1\"\n[peers]\npeers = [{id = 2, address = \"127.0.0.1:1\"}]",
                "listen on",
            ),
            (
                "[server]\nid = 1\naddress = \"127.0.0.1:1\"\n[peers]\npeers = [{id = 1, address = \"127.0.0.1:9\"}]",
                "id 1",
            ),
        ] {
            let (message, _) = ServerSettings::parse(text).unwrap_err();
            assert!(message.contains(word), "{message:?} does not say {word:?}");
        }
    }
}
