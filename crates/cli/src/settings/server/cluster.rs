//! Which servers there are, and where each listens.
//!
//! Two lists can say it. `cluster.servers` is ours: all servers, the same list everywhere. `peers.peers` is the load-aware
//! document's: the others. Where the API of a server is not given, all servers must come to the same port by themselves,
//! because each passes requests on to the leader's.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use primus_api::Places;
use primus_core::ServerId;

use super::keys::{Peers, Values};
use super::kind::{Address, Listed, Servers};
use super::layers::Layers;
use super::mistakes::Mistakes;
use super::slot::{AnySlot, Gathered, Slot};

/// Where a server listens, unless somebody says otherwise.
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7460);

/// All servers with their places; nothing if that cannot be known. Also settles where this one listens.
pub(super) fn servers(layers: &mut Layers) -> Option<BTreeMap<ServerId, Places>> {
    let list = if is_native(layers)? { of_cluster(layers)? } else { of_peers(layers)? };
    let Layers { values, mistakes, .. } = layers;
    let own = values.server.id.get()?;
    check_places(values, mistakes, &list);
    let step = api_step(&list);
    let mut servers = BTreeMap::new();
    for server in list {
        let Some(api) = server.api.or_else(|| above(server.address, step?)) else {
            let message = format!("no port above {} is free for the API of server {}", server.address, server.id);
            mistakes.about(&values.server.api, message, "say where its api is");
            return None;
        };
        servers.insert(server.id, Places { address: server.address, api });
    }
    let own = servers.get(&own).copied()?;
    values.server.address.fall_back(own.address);
    values.server.api.fall_back(own.api);
    Some(servers)
}

/// Where a worker finds the servers, as far as somebody says it. The document lists the others only, so there a file that
/// says which server it is for says more.
pub(super) fn of_worker(layers: &mut Layers) -> Option<BTreeMap<ServerId, SocketAddr>> {
    let is_native = is_native(layers)?;
    let Layers { values, mistakes, .. } = layers;
    let slot = if is_native { &values.cluster.servers } else { &values.peers.peers };
    let mut list = slot.get()?;
    check_ids(slot, &list, mistakes)?;
    if let (false, Some(id), Some(address)) = (list.is_empty(), values.server.id.get(), values.server.address.get())
        && !list.iter().any(|server| server.id == id)
    {
        list.push(Listed { id, address, api: None });
    }
    Some(list.into_iter().map(|server| (server.id, server.address)).collect())
}

/// Does our list count, or the document's?
fn is_native(layers: &mut Layers) -> Option<bool> {
    let Values { cluster, peers, .. } = &layers.values;
    if cluster.servers.is_written() && peers.peers.is_written() {
        let message = "cluster.servers and peers.peers both say which servers there are".to_owned();
        layers.mistakes.about(&cluster.servers, message, "leave one out");
        return None;
    }
    Some(cluster.servers.is_written())
}

fn of_cluster(layers: &mut Layers) -> Option<Vec<Listed>> {
    let Layers { values: Values { cluster, server: this, .. }, mistakes, .. } = layers;
    let list = cluster.servers.get()?;
    check_ids(&cluster.servers, &list, mistakes)?;
    let id = this.id.get()?;
    let Some(own) = list.iter().find(|server| server.id == id).copied() else {
        let ids: Vec<String> = list.iter().map(|server| server.id.to_string()).collect();
        let message = format!("cluster.servers names {} but not this server, {id}", ids.join(", "));
        mistakes.about(&cluster.servers, message, format!("add server {id}, or mend server.id"));
        return None;
    };
    check_own(&this.address, Some(own.address), mistakes);
    check_own(&this.api, own.api, mistakes);
    let api = own.api.or(this.api.get());
    Some(list.into_iter().map(|server| if server.id == id { Listed { api, ..server } } else { server }).collect())
}

/// A server may listen on all its addresses, as long as the port is the one that the others dial.
fn check_own(slot: &Slot<Address>, listed: Option<SocketAddr>, mistakes: &mut Mistakes) {
    let (Some(own), Some(listed)) = (slot.get(), listed) else { return };
    if own != listed && !(own.ip().is_unspecified() && own.port() == listed.port()) {
        let message = format!("{} is {own}, but cluster.servers says {listed}", slot.key.name);
        mistakes.about(slot, message, "make them the same, or leave the first out");
    }
}

fn of_peers(layers: &mut Layers) -> Option<Vec<Listed>> {
    let Layers { values: Values { peers: Peers { peers }, server: this, .. }, mistakes, .. } = layers;
    this.address.fall_back(ADDRESS);
    let list = peers.get()?;
    check_ids(peers, &list, mistakes)?;
    let own = Listed { id: this.id.get()?, address: this.address.get()?, api: this.api.get() };
    let Listed { id, address, .. } = own;
    if let Some(other) = list.iter().find(|peer| peer.id == id && peer.address != address) {
        let message =
            format!("two servers have the id {id}: this one at {address}, and a peer at {}", other.address);
        mistakes.about(peers, message, "give each its own");
        return None;
    }
    // A list that names the server itself is fine, if it says the same.
    Some(std::iter::once(own).chain(list.into_iter().filter(|peer| peer.id != id)).collect())
}

fn check_ids(slot: &Slot<Servers>, list: &[Listed], mistakes: &mut Mistakes) -> Option<()> {
    let twice =
        list.iter().enumerate().find(|(place, server)| list[..*place].iter().any(|other| other.id == server.id));
    let Some((_, server)) = twice else { return Some(()) };
    mistakes.about(slot, format!("two servers have the id {}", server.id), "give each its own");
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
fn check_places(values: &Values<Gathered>, mistakes: &mut Mistakes, list: &[Listed]) {
    let Values { server: this, cluster, peers, .. } = values;
    let in_use = if cluster.servers.is_written() { &cluster.servers } else { &peers.peers };
    let mut seen: BTreeMap<SocketAddr, (ServerId, &str)> = BTreeMap::new();
    for server in list {
        let id = server.id;
        for (place, what) in [(Some(server.address), "links"), (server.api, "API")] {
            let Some(place) = place else { continue };
            let Some((other, its)) = seen.insert(place, (id, what)) else { continue };
            let message =
                format!("{place} is taken twice: for the {its} of server {other} and the {what} of server {id}");
            let slot: &dyn AnySlot = if this.id.get() == Some(id) { &this.address } else { in_use };
            mistakes.about(slot, message, "give each its own port");
        }
    }
}
