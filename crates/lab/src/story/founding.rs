//! Stories of servers that have yet to found a cluster.
//!
//! | command | does |
//! |---|---|
//! | `list N ID,…` | the configuration of N is edited; its next process reads it |
//! | `old N…` | these disks have old data, and remember the disks of all servers |
//! | `start N…` | these processes start, and have links with all that run and that they list or that list them |
//! | `crash N` | a process dies, and its links with it |
//! | `wipe N` | what the crashed N had on its disk is lost |
//! | `alone N` | N founds by itself |
//! | `absent N M refuses` `absent N M silent` | N dials M in vain |
//! | `settle` | everything arrives and becomes durable |
//! | `table` | how far every disk has come |
//!
//! and everything about links, messages and disks that [`super::stage`] lists. At first every server lists all. Server 3 is at
//! 10.0.0.3:7460, and its second disk is `0003-0002`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use primus_core::ServerId;
use primus_core::founding::{Absence, Command, Digest, Disks, Founding, Phase, Rules, Server, StoreId};
use primus_core::planted::Planted;

use super::cluster;
use super::scenery::{Manner, NO_SUCH_COMMAND, Scenery};
use super::stage::Stage;
use crate::world::World;

/// What `cluster founding` describes.
#[derive(Debug, Clone)]
pub struct Description {
    ids: Vec<ServerId>,
    names: BTreeMap<String, ServerId>,
}

/// Servers without a cluster.
pub(super) struct Foundings {
    scenery: Scenery<Founding>,
    rules: Arc<Rules>,
    hosts: BTreeMap<ServerId, Host>,
}

/// What outlives the processes of a server.
struct Host {
    list: BTreeSet<ServerId>,
    /// How many disks it has had.
    disks: u8,
    remembers: Option<Disks>,
}

impl Description {
    /// Reads the ids.
    pub(super) fn parse(words: &[&str]) -> Result<Self, String> {
        let ids = cluster::parse_ids(words)?;
        let names = cluster::name_nodes(&ids, words)?;
        Ok(Self { ids, names })
    }
}

/// The disk of a server: so many have been there before.
#[must_use]
pub fn store(id: ServerId, number: u8) -> StoreId {
    let mut bytes = [0; 16];
    bytes[1] = id.0.to_le_bytes()[0];
    bytes[3] = number;
    StoreId(bytes)
}

/// The rules of farm north, with a hash function that is good enough to tell a few clusters apart.
#[must_use]
pub fn rules(planted: Planted) -> Rules {
    Rules { farm: "north".to_owned(), authority: Vec::new(), digest: Digest(digest), planted }
}

/// FNV-1a.
fn digest(bytes: &[u8]) -> [u8; 32] {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step).to_be_bytes();
    std::array::from_fn(|place| hash[place % hash.len()])
}

/// A server as it is configured.
#[must_use]
pub fn server(id: ServerId, store: StoreId, list: &BTreeSet<ServerId>, remembers: Option<Disks>) -> Server {
    let list = list.iter().map(|id| (*id, format!("10.0.0.{id}:7460"))).collect();
    Server { id, store, list, remembers }
}

impl Stage for Foundings {
    fn perform(&mut self, words: &[&str]) -> Result<(), String> {
        match words {
            ["list", node, ids] => self.edit(node, ids),
            ["old", nodes @ ..] if !nodes.is_empty() => nodes.iter().try_for_each(|node| self.age(node)),
            ["start", nodes @ ..] if !nodes.is_empty() => nodes.iter().try_for_each(|node| self.start(node)),
            ["crash", node] => self.crash(node),
            ["wipe", node] => self.wipe(node),
            ["alone", node] => self.command(node, Command::Alone),
            ["absent", node, peer, how] => self.miss(node, peer, how),
            ["settle"] => self.scenery.repeat(Scenery::deliver_next),
            ["table"] => self.print_table(),
            words => self.scenery.perform(words),
        }
    }

    fn lines(&mut self) -> &mut Vec<String> {
        &mut self.scenery.lines
    }
}

impl Foundings {
    pub(super) fn new(description: Description) -> Self {
        let Description { ids, names } = description;
        let list: BTreeSet<_> = ids.iter().copied().collect();
        let host = |id: &ServerId| (*id, Host { list: list.clone(), disks: 1, remembers: None });
        let (hosts, rules) = (ids.iter().map(host).collect(), Arc::new(rules(Planted::NONE)));
        let mut foundings = Self {
            scenery: Scenery::new(
                names,
                World::new([]),
                Manner { is_told: |_| true, tell: |taken| Some(taken.to_string()) },
            ),
            rules,
            hosts,
        };
        // They are known to the world, and do not run yet.
        for id in ids {
            let machine = foundings.make(id);
            foundings.scenery.world.restart(id, machine);
            foundings.scenery.world.crash(id);
        }
        foundings
    }

    fn make(&self, id: ServerId) -> Founding {
        let host = &self.hosts[&id];
        let phase = self.scenery.world.disk(id).last().cloned().unwrap_or_default();
        let server = server(id, store(id, host.disks), &host.list, host.remembers.clone());
        Founding::new(server, phase, Arc::clone(&self.rules))
    }

    fn edit(&mut self, node: &str, ids: &str) -> Result<(), String> {
        let id = self.scenery.node(node)?;
        let list: BTreeSet<_> = ids.split(',').map(cluster::parse_id).collect::<Result<_, _>>()?;
        if !list.contains(&id) {
            return Err(format!("server {id} must be on its own list"));
        }
        self.hosts.get_mut(&id).expect("every node has a host").list = list;
        Ok(())
    }

    fn age(&mut self, node: &str) -> Result<(), String> {
        let id = self.scenery.dead(node)?;
        let others = self.hosts.iter().filter(|(other, _)| **other != id);
        let remembers = others.map(|(other, host)| (*other, store(*other, host.disks))).collect();
        self.hosts.get_mut(&id).expect("every node has a host").remembers = Some(remembers);
        Ok(())
    }

    fn start(&mut self, node: &str) -> Result<(), String> {
        let id = self.scenery.dead(node)?;
        let machine = self.make(id);
        self.scenery.world.restart(id, machine);
        self.command(node, Command::Start)?;
        for peer in self.find_linked(id) {
            self.scenery.act(id, |world| world.link_up(id, peer))?;
            self.scenery.act(peer, |world| world.link_up(peer, id))?;
        }
        Ok(())
    }

    fn find_linked(&self, id: ServerId) -> Vec<ServerId> {
        let alive = self.scenery.world.alive().map(|(peer, _)| peer).filter(|peer| *peer != id);
        alive.filter(|peer| self.hosts[&id].list.contains(peer) || self.hosts[peer].list.contains(&id)).collect()
    }

    fn crash(&mut self, node: &str) -> Result<(), String> {
        let id = self.scenery.alive(node)?;
        let linked = self.find_linked(id);
        self.scenery.perform(&["crash", node])?;
        linked.into_iter().try_for_each(|peer| self.scenery.act(peer, |world| world.link_down(peer, id)))
    }

    fn wipe(&mut self, node: &str) -> Result<(), String> {
        let id = self.scenery.dead(node)?;
        self.scenery.world.wipe(id);
        let host = self.hosts.get_mut(&id).expect("every node has a host");
        host.disks += 1;
        host.remembers = None;
        Ok(())
    }

    fn miss(&mut self, node: &str, peer: &str, how: &str) -> Result<(), String> {
        let absence = match how {
            "refuses" => Absence::Refuses,
            "silent" => Absence::Silent,
            "nowhere" => Absence::Nowhere,
            _ => return Err(NO_SUCH_COMMAND.to_owned()),
        };
        let peer = self.scenery.node(peer)?;
        self.command(node, Command::Absent(peer, absence))
    }

    fn command(&mut self, node: &str, command: Command) -> Result<(), String> {
        let node = self.scenery.alive(node)?;
        self.scenery.act(node, |world| world.command(node, command))
    }

    fn print_table(&mut self) -> Result<(), String> {
        let lines = self.hosts.keys().map(|id| {
            let phase = self.scenery.world.disk(*id).last();
            let state = if self.scenery.world.machine(*id).is_some() { "" } else { ", crashed" };
            format!("{id} {}{state}", phase.unwrap_or(&Phase::Empty))
        });
        self.scenery.lines.extend(lines);
        Ok(())
    }
}
