//! Which servers there are, and where each listens.
//!
//! Two lists can say it. `cluster.servers` is ours: all servers, the same list everywhere. `peers.peers` is the load-aware
//! document's: the others. Where the API of a server is not given, all servers must come to the same port by themselves,
//! because each passes requests on to the leader's.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use primus_api::Places;
use primus_core::ServerId;

use super::layers::Layers;
use super::value::{Listed, Value};

/// Where a server listens, unless somebody says otherwise.
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7460);

/// All servers with their places; nothing if that cannot be known. Also settles where this one listens.
pub(super) fn servers(layers: &mut Layers) -> Option<BTreeMap<ServerId, Places>> {
    let list = if is_native(layers)? { of_cluster(layers)? } else { of_peers(layers)? };
    let id = ServerId(layers.number("server.id")?);
    check_places(layers, &list);
    let step = api_step(&list);
    let mut servers = BTreeMap::new();
    for server in list {
        let Some(api) = server.api.or_else(|| above(server.address, step?)) else {
            let message = format!("no port above {} is free for the API of server {}", server.address, server.id);
            layers.complain_about("server.api", message, "say where its api is");
            return None;
        };
        servers.insert(server.id, Places { address: server.address, api });
    }
    let own = servers.get(&id).copied()?;
    layers.fall_back("server.address", Value::Address(own.address));
    layers.fall_back("server.api", Value::Address(own.api));
    Some(servers)
}

/// Where a worker finds the servers, as far as somebody says it. The document lists the others only, so there a file that
/// says which server it is for says more.
pub(super) fn of_worker(layers: &mut Layers) -> Option<BTreeMap<ServerId, SocketAddr>> {
    let name = if is_native(layers)? { "cluster.servers" } else { "peers.peers" };
    let mut list = layers.servers(name)?.to_vec();
    check_ids(layers, name, &list)?;
    if let (false, Some(id), Some(address)) =
        (list.is_empty(), layers.number("server.id"), layers.address("server.address"))
        && !list.iter().any(|server| server.id.0 == id)
    {
        list.push(Listed { id: ServerId(id), address, api: None });
    }
    Some(list.into_iter().map(|server| (server.id, server.address)).collect())
}

/// Does our list count, or the document's?
fn is_native(layers: &mut Layers) -> Option<bool> {
    match (layers.is_written("cluster.servers"), layers.is_written("peers.peers")) {
        (true, true) => {
            let message = "cluster.servers and peers.peers both say which servers there are".to_owned();
            layers.complain_about("cluster.servers", message, "leave one out");
            None
        }
        (is_native, _) => Some(is_native),
    }
}

fn of_cluster(layers: &mut Layers) -> Option<Vec<Listed>> {
    let list = layers.servers("cluster.servers")?.to_vec();
    check_ids(layers, "cluster.servers", &list)?;
    let id = ServerId(layers.number("server.id")?);
    let Some(own) = list.iter().find(|server| server.id == id).copied() else {
        let ids: Vec<String> = list.iter().map(|server| server.id.to_string()).collect();
        let message = format!("cluster.servers names {} but not this server, {id}", ids.join(", "));
        layers.complain_about("cluster.servers", message, format!("add server {id}, or mend server.id"));
        return None;
    };
    check_own(layers, "server.address", Some(own.address));
    check_own(layers, "server.api", own.api);
    let api = own.api.or(layers.address("server.api"));
    Some(list.into_iter().map(|server| if server.id == id { Listed { api, ..server } } else { server }).collect())
}

/// A server may listen on all its addresses, as long as the port is the one that the others dial.
fn check_own(layers: &mut Layers, name: &'static str, listed: Option<SocketAddr>) {
    let (Some(own), Some(listed)) = (layers.address(name), listed) else { return };
    if own != listed && !(own.ip().is_unspecified() && own.port() == listed.port()) {
        let message = format!("{name} is {own}, but cluster.servers says {listed}");
        layers.complain_about(name, message, "make them the same, or leave the first out");
    }
}

fn of_peers(layers: &mut Layers) -> Option<Vec<Listed>> {
    layers.fall_back("server.address", Value::Address(ADDRESS));
    let peers = layers.servers("peers.peers")?.to_vec();
    check_ids(layers, "peers.peers", &peers)?;
    let id = ServerId(layers.number("server.id")?);
    let address = layers.address("server.address")?;
    let own = Listed { id, address, api: layers.address("server.api") };
    if let Some(other) = peers.iter().find(|peer| peer.id == id && peer.address != address) {
        let message =
            format!("two servers have the id {id}: this one at {address}, and a peer at {}", other.address);
        layers.complain_about("peers.peers", message, "give each its own");
        return None;
    }
    // A list that names the server itself is fine, if it says the same.
    Some(std::iter::once(own).chain(peers.into_iter().filter(|peer| peer.id != id)).collect())
}

fn check_ids(layers: &mut Layers, name: &'static str, list: &[Listed]) -> Option<()> {
    let twice =
        list.iter().enumerate().find(|(place, server)| list[..*place].iter().any(|other| other.id == server.id));
    let Some((_, server)) = twice else { return Some(()) };
    layers.complain_about(name, format!("two servers have the id {}", server.id), "give each its own");
    None
}

/// How far above its address each API without a place is: the least step that brings nobody into the way of another.
fn api_step(list: &[Listed]) -> Option<u16> {
    let taken: Vec<SocketAddr> =
        list.iter().flat_map(|server| [Some(server.address), server.api]).flatten().collect();
    let open: Vec<SocketAddr> =
        list.iter().filter(|server| server.api.is_none()).map(|server| server.address).collect();
    let is_free = |address: &SocketAddr, step| above(*address, step).is_some_and(|api| !taken.contains(&api));
    (1..=u16::MAX).find(|step| open.iter().all(|address| is_free(address, *step)))
}

fn above(mut address: SocketAddr, step: u16) -> Option<SocketAddr> {
    address.set_port(address.port().checked_add(step)?);
    Some(address)
}

/// Two listeners cannot share a place.
fn check_places(layers: &mut Layers, list: &[Listed]) {
    let mut seen: BTreeMap<SocketAddr, (ServerId, &str)> = BTreeMap::new();
    for server in list {
        let id = server.id;
        for (place, what) in [(Some(server.address), "links"), (server.api, "API")] {
            let Some(place) = place else { continue };
            let Some((other, its)) = seen.insert(place, (id, what)) else { continue };
            let message =
                format!("{place} is taken twice: for the {its} of server {other} and the {what} of server {id}");
            let is_own = layers.number("server.id") == Some(id.0);
            let name = if is_own { "server.address" } else { list_in_use(layers) };
            layers.complain_about(name, message, "give each its own port");
        }
    }
}

fn list_in_use(layers: &Layers) -> &'static str {
    if layers.is_written("cluster.servers") { "cluster.servers" } else { "peers.peers" }
}
