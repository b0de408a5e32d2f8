//! Which servers there are, where each is reached, and where this one listens.
//!
//! Two lists can say it. `cluster.servers` is ours: all servers, the same list everywhere. `peers.peers` is the load-aware
//! document's: the others. Where the API of a server is not given, all servers must come to the same port by themselves,
//! because each passes requests on to the leader's.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};

use primus_api::Places;
use primus_core::rank::RankBy;
use primus_core::{Place, ServerId};

use super::keys::{Peers, Values};
use super::kind::{Address, Listed, Reached, Servers};
use super::layers::Layers;
use super::mistakes::Mistakes;
use super::slot::{AnySlot, Gathered, Slot};

/// Where a server is reached and listens, unless somebody says otherwise.
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7460);

/// All servers with their places; nothing if that cannot be known. Also settles where this one is reached, and where it listens.
pub(super) fn servers(layers: &mut Layers) -> Option<BTreeMap<ServerId, Places>> {
    let list = if is_native(layers)? { of_cluster(layers)? } else { of_peers(layers)? };
    let Layers { values, mistakes, .. } = layers;
    let own = values.server.id.get()?;
    check_places(values, mistakes, &list);
    let step = api_step(&list);
    let mut servers = BTreeMap::new();
    for server in list {
        let Some(api) = server.api.or_else(|| above(&server.address, step?)) else {
            let message = format!("no port above {} is free for the API of server {}", server.address, server.id);
            mistakes.about(&values.server.api, message, "say where its api is");
            return None;
        };
        servers.insert(server.id, Places { address: server.address, api });
    }
    let own = servers.get(&own).cloned()?;
    values.server.address.fall_back(own.address.clone());
    values.server.api.fall_back(own.api.clone());
    let Values { server, api, .. } = values;
    settle_listening(&mut server.listen, &server.address, own.address, mistakes);
    settle_listening(&mut api.listen, &server.api, own.api, mistakes);
    Some(servers)
}

/// Where a worker finds the servers, as far as somebody says it. The document lists the others only, so there a file that
/// says which server it is for says more.
pub(super) fn of_worker(layers: &mut Layers) -> Option<BTreeMap<ServerId, Place>> {
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
    let Some(own) = list.iter().find(|server| server.id == id).cloned() else {
        let ids: Vec<String> = list.iter().map(|server| server.id.to_string()).collect();
        let message = format!("cluster.servers names {} but not this server, {id}", ids.join(", "));
        mistakes.about(&cluster.servers, message, format!("add server {id}, or mend server.id"));
        return None;
    };
    check_own(&this.address, Some(&own.address), mistakes);
    check_own(&this.api, own.api.as_ref(), mistakes);
    let api = own.api.or(this.api.get());
    let with_api = |server: Listed| if server.id == id { Listed { api: api.clone(), ..server } } else { server };
    Some(list.into_iter().map(with_api).collect())
}

/// Before there was a key for where it listens, a server could say here that it listens on all its addresses.
fn check_own(slot: &Slot<Reached>, listed: Option<&Place>, mistakes: &mut Mistakes) {
    let (Some(own), Some(listed)) = (slot.get(), listed) else { return };
    if own != *listed && !(is_any(&own) && own.port() == listed.port()) {
        let message = format!("{} is {own}, but cluster.servers says {listed}", slot.key.name);
        let listen = if slot.key.name == "server.api" { "api.listen" } else { "server.listen" };
        let hint = format!("make them the same, or say in {listen} where it listens");
        mistakes.about(slot, message, hint);
    }
}

fn of_peers(layers: &mut Layers) -> Option<Vec<Listed>> {
    let Layers { values: Values { peers: Peers { peers }, server: this, .. }, mistakes, .. } = layers;
    this.address.fall_back(ADDRESS.into());
    let list = peers.get()?;
    check_ids(peers, &list, mistakes)?;
    let own = Listed { id: this.id.get()?, address: this.address.get()?, api: this.api.get() };
    let Listed { id, address, .. } = own.clone();
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
    let taken: Vec<&Place> =
        list.iter().flat_map(|server| [Some(&server.address), server.api.as_ref()]).flatten().collect();
    let open: Vec<&Place> =
        list.iter().filter(|server| server.api.is_none()).map(|server| &server.address).collect();
    let is_free = |address: &Place, step| above(address, step).is_some_and(|api| !taken.contains(&&api));
    (1..=u16::MAX).find(|step| open.iter().all(|address| is_free(address, *step)))
}

fn above(address: &Place, step: u16) -> Option<Place> {
    Some(address.with_port(address.port().checked_add(step)?))
}

/// Where it listens, unless that was said: where others reach it, if that can only be here.
fn settle_listening(listen: &mut Slot<Address>, own: &Slot<Reached>, listed: Place, mistakes: &mut Mistakes) {
    let place = own.get().unwrap_or(listed);
    if listen.is_written() {
        return;
    }
    match here(&place) {
        Some(address) => listen.fall_back(address),
        None => {
            let message = format!("{} is {place}, a name that does not lead to loopback alone", own.key.name);
            let (key, port) = (listen.key.name, place.port());
            mistakes.about(own, message, format!("say in {key} where it listens, such as 0.0.0.0:{port}"));
        }
    }
}

/// The address of this host where others reach it, as far as its place tells.
fn here(place: &Place) -> Option<SocketAddr> {
    if place.number().is_some() {
        return place.number();
    }
    let addresses: Vec<SocketAddr> = (place.host(), place.port()).to_socket_addrs().ok()?.collect();
    let is_loopback = addresses.iter().all(|address| address.ip().is_loopback());
    // Others try all addresses, and the one of version 4 exists on every host.
    addresses.iter().find(|address| address.is_ipv4()).or(addresses.first()).copied().filter(|_| is_loopback)
}

/// All addresses of a host.
fn is_any(place: &Place) -> bool {
    place.number().is_some_and(|address| address.ip().is_unspecified())
}

/// Names are not compared: two hosts could come to different ends.
pub(super) fn check_ranks(layers: &mut Layers, servers: Option<&BTreeMap<ServerId, Places>>) {
    let Layers { values, mistakes, .. } = layers;
    let rank = &values.election.rank;
    let named = servers.into_iter().flatten().find(|(_, places)| places.address.name().is_some());
    if let (Some((id, places)), Some(RankBy::Address)) = (named, rank.get()) {
        let place = &places.address;
        let message = format!("election.rank is address, but server {id} is reached at {place}, a name");
        mistakes.about(rank, message, "give all servers numbers in cluster.servers, or rank by id");
    }
}

/// Two listeners cannot share a place.
fn check_places(values: &Values<Gathered>, mistakes: &mut Mistakes, list: &[Listed]) {
    let Values { server: this, cluster, peers, .. } = values;
    let in_use = if cluster.servers.is_written() { &cluster.servers } else { &peers.peers };
    let mut seen: BTreeMap<&Place, (ServerId, &str)> = BTreeMap::new();
    for server in list {
        let id = server.id;
        for (place, what) in [(Some(&server.address), "links"), (server.api.as_ref(), "API")] {
            let Some(place) = place else { continue };
            let Some((other, its)) = seen.insert(place, (id, what)) else { continue };
            let message =
                format!("{place} is taken twice: for the {its} of server {other} and the {what} of server {id}");
            let slot: &dyn AnySlot = if this.id.get() == Some(id) { &this.address } else { in_use };
            mistakes.about(slot, message, "give each its own port");
        }
    }
}
