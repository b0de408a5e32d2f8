//! A stage for any machine: enough for the stories of a protocol that is not an election, a server or a farm.
//!
//! | command | does |
//! |---|---|
//! | `COMMAND N …` | the owner of node N gives it this command, as the machine's own reader understands the words |
//! | `restart N` | a new process starts with what is on the disk of N |
//! | `settle` | everything arrives and becomes durable, then the timer that is due first fires, and so on, until nothing is left to do |
//!
//! Links, messages, disks and crashes are as in [`stage`](super::stage).

use std::collections::BTreeMap;

use primus_core::Machine;

use super::scenery::{Manner, NO_SUCH_COMMAND, Scenery};
use super::stage::Stage;
use crate::world::World;

/// Nodes of one machine.
pub struct Bare<M: Machine> {
    scenery: Scenery<M>,
    rules: Rules<M>,
}

/// How nodes are made, and how their commands are read.
pub struct Rules<M: Machine> {
    /// Makes a node from its id and what is on its disk.
    pub make: fn(M::Peer, &[M::Record]) -> M,
    /// Reads a command, without the node that gets it; `None` for words that are not a command.
    pub read: fn(&[&str]) -> Option<M::Command>,
}

impl<M: Machine> Bare<M> {
    /// These nodes, alive, with empty disks.
    #[must_use]
    pub fn new(nodes: &[M::Peer], rules: Rules<M>) -> Self {
        let names: BTreeMap<String, M::Peer> = nodes.iter().map(|node| (node.to_string(), *node)).collect();
        let world = World::new(nodes.iter().map(|node| (*node, (rules.make)(*node, &[]))));
        let manner = Manner { is_told: |_| true, tell: |taken| Some(taken.to_string()) };
        Self { scenery: Scenery::new(names, world, manner), rules }
    }

    fn command(&mut self, words: &[&str]) -> Result<(), String> {
        let [verb, node, arguments @ ..] = words else { return Err(NO_SUCH_COMMAND.to_owned()) };
        let command = (self.rules.read)(&[&[*verb], arguments].concat()).ok_or(NO_SUCH_COMMAND)?;
        let node = self.scenery.alive(node)?;
        self.scenery.command(node, command)
    }

    fn settle(&mut self) -> Result<(), String> {
        self.scenery.repeat(|scenery| scenery.deliver_next() || scenery.fire_next(u64::MAX, |_| true))
    }
}

impl<M: Machine> Stage for Bare<M> {
    fn perform(&mut self, words: &[&str]) -> Result<(), String> {
        match words {
            ["restart", node] => self.scenery.restart(node, self.rules.make).map(|_| ()),
            ["settle"] => self.settle(),
            words => match self.scenery.perform(words) {
                Err(reason) if reason == NO_SUCH_COMMAND => self.command(words),
                done => done,
            },
        }
    }

    fn lines(&mut self) -> &mut Vec<String> {
        &mut self.scenery.lines
    }
}
