//! What the commands of a story do, and what they print, where the story is about an election alone.
//!
//! | command | does |
//! |---|---|
//! | `start N…` `boot N…` `resign N` | the owner's commands |
//! | `suspect N M` `trust N M` | N is told that M is dead, or alive again |
//! | `score N 25.3` `peer-score N M 25.3` | N learns its own load, or M's |
//! | `members ID…` | every member of a ring learns the new list; new ones are asleep |
//! | `crash N` `restart N` | a fresh machine boots |
//! | `cut A B` `partition 1,2\|3` `mend` | nothing that A sends arrives at B; all links work again |
//! | `hold A B` `release` | what A sends to B stays in flight; no longer |
//! | `deliver A B [TEXT]` `drop …` `duplicate …` | the first message in flight from A to B that begins so |
//! | `foreign A B election ID` | a message without a round is sent |
//! | `freeze N` `thaw N` `slow N` `fast N` | N stands still, or its disk does; no longer |
//! | `fire N TIMER` | one timer runs out |
//! | `deliver-all` | everything in flight arrives, and what follows from it, in the order of sending |
//! | `settle` | the same, then the timer that is due first fires, and so on, until nothing is left to do |
//! | `… quietly` | a command without a word of what it prints |
//! | `table` `leaders` `in-flight` `counts` | who follows whom; who leads; what is on its way; what was sent |
//!
//! Timers take their shortest delay on a clock that only `settle` and `fire` move. Timers of a finished election
//! (`remind`, `silence`) fire only by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use primus_core::ServerId;
use primus_core::election::{Command, Election, Timer};

use super::cluster::{self, Cluster, Description, Recipe};
use super::farms::Farms;
use super::founding::Foundings;
use super::scenery::{Manner, Scenery};
use super::servers::Servers;
use crate::world::{Envelope, World};

/// Where commands are carried out.
pub trait Stage {
    /// Carries out one command.
    ///
    /// # Errors
    /// If it makes no sense, in words for whoever wrote it.
    fn perform(&mut self, words: &[&str]) -> Result<(), String>;

    /// What was printed since somebody took it.
    fn lines(&mut self) -> &mut Vec<String>;
}

/// Makes the nodes of a cluster. Names that are not ids are printed as a legend.
///
/// # Errors
/// If the node that should lead already does not win.
pub fn set(cluster: Cluster) -> Result<Box<dyn Stage>, String> {
    match cluster {
        Cluster::Bully(description) => Ok(Box::new(Cast::new(description)?)),
        Cluster::Ring(description) => Ok(Box::new(Cast::new(description)?)),
        Cluster::Control(description) => Ok(Box::new(Servers::new(description)?)),
        Cluster::Farms(description) => Ok(Box::new(Farms::new(description)?)),
        Cluster::Founding(description) => Ok(Box::new(Foundings::new(description))),
    }
}

/// The nodes of a story.
struct Cast<R: Recipe> {
    recipe: R,
    scenery: Scenery<R::Machine>,
}

impl<R: Recipe> Stage for Cast<R> {
    fn perform(&mut self, words: &[&str]) -> Result<(), String> {
        match words {
            ["start", nodes @ ..] if !nodes.is_empty() => self.command_each(nodes, &Command::Start)?,
            ["boot", nodes @ ..] if !nodes.is_empty() => self.command_each(nodes, &Command::Boot)?,
            ["resign", node] => self.scenery.command(self.node(node)?, Command::Resign)?,
            ["suspect", node, peer] => {
                self.scenery.command(self.node(node)?, Command::Suspect(self.node(peer)?))?;
            }
            ["trust", node, peer] => self.scenery.command(self.node(node)?, Command::Trust(self.node(peer)?))?,
            ["score", node, score] => self.score(node, score)?,
            ["peer-score", node, peer, score] => {
                let command = Command::PeerScore(self.node(peer)?, cluster::parse_score(score)?);
                self.scenery.command(self.node(node)?, command)?;
            }
            ["members", members @ ..] => self.members(members)?,
            ["restart", node] => {
                let node = self.scenery.restart(node, |node, _| self.recipe.make(node))?;
                self.scenery.command(node, Command::Boot)?;
            }
            ["foreign", from, to, message @ ..] => {
                let message = self.recipe.foreign(message)?;
                self.scenery.world.inject(Envelope { from: self.node(from)?, to: self.node(to)?, message });
            }
            ["fire", node, timer] => self.fire(self.scenery.alive(node)?, timer)?,
            ["settle"] => self.settle()?,
            ["table"] => self.scenery.print_table(describe),
            ["leaders"] => {
                let leaders = list("leaders:", self.scenery.world.leaders().map(|node| node.to_string()));
                self.scenery.lines.push(leaders);
            }
            ["counts"] => self.print_counts(),
            words => self.scenery.perform(words)?,
        }
        Ok(())
    }

    fn lines(&mut self) -> &mut Vec<String> {
        &mut self.scenery.lines
    }
}

impl<R: Recipe> Cast<R> {
    fn new(description: Description<R>) -> Result<Self, String> {
        let Description { recipe, names, leader } = description;
        let world = World::new(recipe.nodes().into_iter().map(|node| (node, recipe.make(node))));
        // Elections measure no time, and every step of theirs is worth a line.
        let manner = Manner { is_told: |_| true, tell: |taken| Some(taken.to_string()) };
        let mut cast = Self { recipe, scenery: Scenery::new(names, world, manner) };
        leader.map_or(Ok(()), |leader| cast.crown(leader))?;
        cast.print_legend();
        Ok(cast)
    }

    fn print_legend(&mut self) {
        let is_id = |name: &&String, id: &ServerId| **name == id.to_string();
        let legend = self.scenery.names.iter().filter(|(name, id)| !is_id(name, id));
        let mut legend: Vec<_> = legend.map(|(name, id)| (*id, format!("{id} is {name}"))).collect();
        legend.sort();
        self.scenery.lines.extend(legend.into_iter().map(|(_, line)| line));
    }

    /// Lets a node win, out of sight.
    fn crown(&mut self, leader: ServerId) -> Result<(), String> {
        self.scenery.command(leader, Command::Start)?;
        self.settle()?;
        self.scenery.lines.clear();
        self.scenery.sent.clear();
        match self.scenery.world.alive().all(|(_, machine)| machine.leader() == Some(leader)) {
            true => Ok(()),
            false => Err(format!("node {leader} does not win an election here")),
        }
    }

    fn command_each(&mut self, nodes: &[&str], command: &Command) -> Result<(), String> {
        nodes.iter().try_for_each(|node| self.scenery.command(self.node(node)?, command.clone()))
    }

    /// A score belongs to the host: a restarted node measures it again.
    fn score(&mut self, node: &str, score: &str) -> Result<(), String> {
        let (node, score) = (self.node(node)?, cluster::parse_score(score)?);
        self.recipe.set_score(node, score);
        self.scenery.command(node, Command::Score(score))
    }

    fn members(&mut self, members: &[&str]) -> Result<(), String> {
        let members = members.iter().map(|id| cluster::parse_id(id)).collect::<Result<Arc<[_]>, _>>()?;
        if !self.recipe.set_nodes(Arc::clone(&members)) {
            return Err("the nodes of this election are fixed".to_owned());
        }
        let present: Vec<_> = self.scenery.world.alive().map(|(id, _)| id).collect();
        let known: BTreeSet<_> = self.scenery.world.nodes().collect();
        for node in present {
            self.scenery.command(node, Command::Members(Arc::clone(&members)))?;
        }
        for &node in members.iter().filter(|node| !known.contains(node)) {
            self.scenery.names.insert(node.to_string(), node);
            self.scenery.world.restart(node, self.recipe.make(node));
        }
        Ok(())
    }

    fn fire(&mut self, node: ServerId, timer: &str) -> Result<(), String> {
        match Timer::ALL.iter().any(|known| known.to_string() == timer) {
            true => self.scenery.fire(node, timer),
            false => Err(format!("there is no timer {timer}")),
        }
    }

    /// Timers of a finished election watch over a leader for ever, so they run out only by hand.
    fn settle(&mut self) -> Result<(), String> {
        let elects = |timer| !matches!(timer, Timer::Remind | Timer::Silence);
        self.scenery.repeat(|scenery| scenery.deliver_next() || scenery.fire_next(u64::MAX, elects))
    }

    fn print_counts(&mut self) {
        let mut counts: BTreeMap<_, usize> = BTreeMap::new();
        for message in &self.scenery.sent {
            *counts.entry(R::Machine::kind_of(message)).or_default() += 1;
        }
        self.scenery
            .lines
            .push(list("sent:", counts.iter().map(|(kind, count)| format!("{count} {}", kind.name()))));
    }

    fn node(&self, name: &str) -> Result<ServerId, String> {
        self.scenery.node(name)
    }
}

fn describe(_: ServerId, machine: &impl Election) -> String {
    machine.leader().map_or_else(|| "undefined".to_owned(), |leader| format!("defined {leader}"))
}

pub(super) fn list(title: &str, items: impl Iterator<Item = String>) -> String {
    let items: Vec<_> = items.collect();
    format!("{title} {}", if items.is_empty() { "none".to_owned() } else { items.join(", ") })
}
