//! What the commands of a story do, and what they print.
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
//! | `fire N TIMER` | one timer runs out |
//! | `deliver-all` | everything in flight arrives, and what follows from it, in the order of sending |
//! | `settle` | the same, then the timer that is due first fires, and so on, until nothing is left to do |
//! | `settle quietly` | the same without a word |
//! | `table` `leaders` `in-flight` `counts` | who follows whom; who leads; what is on its way; what was sent |
//!
//! Timers take their shortest delay on a clock that only `settle` and `fire` move. Timers of a finished election
//! (`remind`, `silence`) fire only by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use primus_core::election::{Command, Election, MessageKind, Timer};
use primus_core::{Machine, NodeId, Output};

use super::cluster::{self, Cluster, Description, Recipe};
use crate::world::{Delivery, Envelope, Taken, World};

/// An election that takes longer than this will not end; a hundred nodes need far less.
const SETTLE_STEPS_MAX: usize = 10_000;

const NO_SUCH_COMMAND: &str = "no such command";

/// Where commands are carried out.
pub trait Stage {
    /// Carries out one command and appends what it prints.
    ///
    /// # Errors
    /// If it makes no sense, in words for whoever wrote it.
    fn perform(&mut self, words: &[&str], printed: &mut Vec<String>) -> Result<(), String>;
}

/// Makes the nodes of a cluster. Names that are not ids are printed as a legend.
///
/// # Errors
/// If the node that should lead already does not win.
pub fn set(cluster: Cluster, printed: &mut Vec<String>) -> Result<Box<dyn Stage>, String> {
    match cluster {
        Cluster::Bully(description) => Ok(Box::new(Cast::new(description, printed)?)),
        Cluster::Ring(description) => Ok(Box::new(Cast::new(description, printed)?)),
    }
}

/// The nodes of a story.
struct Cast<R: Recipe> {
    recipe: R,
    names: BTreeMap<String, NodeId>,
    world: World<R::Machine>,
    clock_us: u64,
    /// In the order in which they were set.
    due: Vec<Due>,
    /// Links that deliver only by hand.
    held: BTreeSet<(NodeId, NodeId)>,
    sent: BTreeMap<MessageKind, usize>,
}

struct Due {
    node: NodeId,
    timer: Timer,
    at_us: u64,
}

impl<R: Recipe> Stage for Cast<R> {
    fn perform(&mut self, words: &[&str], printed: &mut Vec<String>) -> Result<(), String> {
        match words {
            ["start", nodes @ ..] if !nodes.is_empty() => self.command_each(nodes, &Command::Start, printed),
            ["boot", nodes @ ..] if !nodes.is_empty() => self.command_each(nodes, &Command::Boot, printed),
            ["resign", node] => self.command(self.node(node)?, Command::Resign, printed),
            ["suspect", node, peer] => self.command(self.node(node)?, Command::Suspect(self.node(peer)?), printed),
            ["trust", node, peer] => self.command(self.node(node)?, Command::Trust(self.node(peer)?), printed),
            ["score", node, score] => self.score(node, score, printed),
            ["peer-score", node, peer, score] => self.peer_score(node, peer, score, printed),
            ["members", members @ ..] => self.members(members, printed),
            ["crash", node] => self.crash(self.alive(node)?),
            ["restart", node] => self.restart(node, printed),
            ["cut", from, to] => self.cut(self.node(from)?, self.node(to)?),
            ["partition", sides] => self.partition(sides),
            ["mend"] => self.mend(),
            ["hold", from, to] => self.hold(self.node(from)?, self.node(to)?),
            ["release"] => self.release(),
            ["deliver", which @ ..] => self.deliver(self.find(which)?, printed),
            ["drop", which @ ..] => self.drop(self.find(which)?, printed),
            ["duplicate", which @ ..] => self.duplicate(self.find(which)?, printed),
            ["foreign", from, to, message @ ..] => self.foreign(from, to, message),
            ["fire", node, timer] => self.fire(self.alive(node)?, timer, printed),
            ["deliver-all"] => self.repeat(printed, Self::deliver_next),
            ["settle"] => self.settle(printed),
            ["settle", "quietly"] => self.settle(&mut Vec::new()),
            [what] => self.show(what, printed),
            _ => Err(NO_SUCH_COMMAND.to_owned()),
        }
    }
}

impl<R: Recipe> Cast<R> {
    fn new(description: Description<R>, printed: &mut Vec<String>) -> Result<Self, String> {
        let Description { recipe, names, leader } = description;
        let is_id = |name: &&String, id: &NodeId| **name == id.to_string();
        let legend = names.iter().filter(|(name, id)| !is_id(name, id));
        let mut legend: Vec<_> = legend.map(|(name, id)| (id, format!("{id} is {name}"))).collect();
        legend.sort();
        printed.extend(legend.into_iter().map(|(_, line)| line));
        let world = World::new(recipe.nodes().into_iter().map(|node| (node, recipe.make(node))));
        let (due, held, sent) = (Vec::new(), BTreeSet::new(), BTreeMap::new());
        let mut cast = Self { recipe, names, world, clock_us: 0, due, held, sent };
        leader.map_or(Ok(()), |leader| cast.crown(leader))?;
        Ok(cast)
    }

    /// Lets a node win, out of sight.
    fn crown(&mut self, leader: NodeId) -> Result<(), String> {
        let mut unseen = Vec::new();
        self.command(leader, Command::Start, &mut unseen)?;
        self.settle(&mut unseen)?;
        self.sent.clear();
        match self.world.alive().all(|(_, machine)| machine.leader() == Some(leader)) {
            true => Ok(()),
            false => Err(format!("node {leader} does not win an election here")),
        }
    }

    fn command_each(&mut self, nodes: &[&str], command: &Command, printed: &mut Vec<String>) -> Result<(), String> {
        nodes.iter().try_for_each(|node| self.command(self.node(node)?, command.clone(), printed))
    }

    fn command(&mut self, node: NodeId, command: Command, printed: &mut Vec<String>) -> Result<(), String> {
        let taken = self.world.command(node, command).ok_or_else(|| format!("node {node} is crashed"))?;
        self.print(&taken, printed);
        Ok(())
    }

    /// A score belongs to the host: a restarted node measures it again.
    fn score(&mut self, node: &str, score: &str, printed: &mut Vec<String>) -> Result<(), String> {
        let (node, score) = (self.node(node)?, cluster::parse_score(score)?);
        self.recipe.set_score(node, score);
        self.command(node, Command::Score(score), printed)
    }

    fn peer_score(&mut self, node: &str, peer: &str, score: &str, printed: &mut Vec<String>) -> Result<(), String> {
        let command = Command::PeerScore(self.node(peer)?, cluster::parse_score(score)?);
        self.command(self.node(node)?, command, printed)
    }

    fn members(&mut self, members: &[&str], printed: &mut Vec<String>) -> Result<(), String> {
        let members = members.iter().map(|id| cluster::parse_id(id)).collect::<Result<Arc<[_]>, _>>()?;
        if !self.recipe.set_nodes(Arc::clone(&members)) {
            return Err("the nodes of this election are fixed".to_owned());
        }
        let present: Vec<_> = self.world.alive().map(|(id, _)| id).collect();
        let known: BTreeSet<_> = self.world.nodes().collect();
        for node in present {
            self.command(node, Command::Members(Arc::clone(&members)), printed)?;
        }
        for &node in members.iter().filter(|node| !known.contains(node)) {
            self.names.insert(node.to_string(), node);
            self.world.restart(node, self.recipe.make(node));
        }
        Ok(())
    }

    fn crash(&mut self, node: NodeId) -> Result<(), String> {
        self.world.crash(node);
        self.due.retain(|due| due.node != node);
        Ok(())
    }

    fn restart(&mut self, node: &str, printed: &mut Vec<String>) -> Result<(), String> {
        let node = self.node(node)?;
        if self.world.machine(node).is_some() {
            return Err(format!("node {node} is alive"));
        }
        self.world.restart(node, self.recipe.make(node));
        self.command(node, Command::Boot, printed)
    }

    fn partition(&mut self, sides: &str) -> Result<(), String> {
        let parse_side = |side: &str| side.split(',').map(|node| self.node(node)).collect::<Result<Vec<_>, _>>();
        let sides = sides.split('|').map(parse_side).collect::<Result<Vec<_>, _>>()?;
        if sides.len() < 2 {
            return Err("a partition has two sides or more: 1,2|3".to_owned());
        }
        for (here, side) in sides.iter().enumerate() {
            let others = sides.iter().enumerate().filter(|(there, _)| *there != here);
            for to in others.flat_map(|(_, nodes)| nodes) {
                side.iter().for_each(|from| self.world.cut(*from, *to));
            }
        }
        Ok(())
    }

    fn foreign(&mut self, from: &str, to: &str, message: &[&str]) -> Result<(), String> {
        let message = self.recipe.foreign(message)?;
        self.world.inject(Envelope { from: self.node(from)?, to: self.node(to)?, message });
        Ok(())
    }

    fn cut(&mut self, from: NodeId, to: NodeId) -> Result<(), String> {
        self.world.cut(from, to);
        Ok(())
    }

    fn mend(&mut self) -> Result<(), String> {
        self.world.mend();
        Ok(())
    }

    fn hold(&mut self, from: NodeId, to: NodeId) -> Result<(), String> {
        self.held.insert((from, to));
        Ok(())
    }

    fn release(&mut self) -> Result<(), String> {
        self.held.clear();
        Ok(())
    }

    fn deliver(&mut self, index: usize, printed: &mut Vec<String>) -> Result<(), String> {
        match self.world.deliver(index) {
            Delivery::Arrived(taken) => self.print(&taken, printed),
            Delivery::ToCrashed(envelope) => printed.push(format!("{envelope} lost: {} is crashed", envelope.to)),
            Delivery::Cut(envelope) => printed.push(format!("{envelope} lost: the link is cut")),
        }
        Ok(())
    }

    fn drop(&mut self, index: usize, printed: &mut Vec<String>) -> Result<(), String> {
        printed.push(format!("{} dropped", self.world.drop(index)));
        Ok(())
    }

    fn duplicate(&mut self, index: usize, printed: &mut Vec<String>) -> Result<(), String> {
        printed.push(format!("{} duplicated", self.world.duplicate(index)));
        Ok(())
    }

    fn fire(&mut self, node: NodeId, word: &str, printed: &mut Vec<String>) -> Result<(), String> {
        let timer = Timer::ALL.into_iter().find(|timer| timer.to_string() == word);
        let timer = timer.ok_or_else(|| format!("there is no timer {word}"))?;
        let place = self.due.iter().position(|due| due.node == node && due.timer == timer);
        self.fire_due(place.ok_or_else(|| format!("node {node} has not set its timer {timer}"))?, printed);
        Ok(())
    }

    fn settle(&mut self, printed: &mut Vec<String>) -> Result<(), String> {
        self.repeat(printed, |cast, printed| cast.deliver_next(printed) || cast.fire_next(printed))
    }

    fn repeat(
        &mut self,
        printed: &mut Vec<String>,
        step: impl Fn(&mut Self, &mut Vec<String>) -> bool,
    ) -> Result<(), String> {
        let settled = (0..SETTLE_STEPS_MAX).any(|_| !step(self, printed));
        if settled { Ok(()) } else { Err(format!("nothing settled within {SETTLE_STEPS_MAX} steps")) }
    }

    /// The oldest message that is not held back arrives. False if there is none.
    fn deliver_next(&mut self, printed: &mut Vec<String>) -> bool {
        let is_free = |envelope: &Envelope<_>| !self.held.contains(&(envelope.from, envelope.to));
        let next = self.world.in_flight().iter().position(is_free);
        next.is_some_and(|index| self.deliver(index, printed).is_ok())
    }

    /// The timer that is due first runs out. False if none but those of a finished election is set.
    fn fire_next(&mut self, printed: &mut Vec<String>) -> bool {
        let elects = |due: &Due| !matches!(due.timer, Timer::Remind | Timer::Silence);
        let electing = self.due.iter().enumerate().filter(|(_, due)| elects(due));
        let next = electing.min_by_key(|(_, due)| due.at_us).map(|(place, _)| place);
        next.map(|place| self.fire_due(place, printed)).is_some()
    }

    fn fire_due(&mut self, place: usize, printed: &mut Vec<String>) {
        let due = self.due.remove(place);
        self.clock_us = self.clock_us.max(due.at_us);
        let taken = self.world.fire(due.node, due.timer).expect("what is due is set in the world");
        self.print(&taken, printed);
    }

    /// Writes a step down, counts what was sent and notes when timers are due.
    fn print(&mut self, taken: &Taken<R::Machine>, printed: &mut Vec<String>) {
        printed.push(taken.to_string());
        let node = taken.node;
        for output in &taken.outputs {
            match output {
                Output::Send { message, .. } => *self.sent.entry(R::Machine::kind_of(message)).or_default() += 1,
                Output::Set { timer, delay } => {
                    self.forget(node, *timer);
                    self.due.push(Due { node, timer: *timer, at_us: self.clock_us + delay.min_us });
                }
                Output::Cancel(timer) => self.forget(node, *timer),
                _ => {}
            }
        }
    }

    fn forget(&mut self, node: NodeId, timer: Timer) {
        self.due.retain(|due| due.node != node || due.timer != timer);
    }

    fn show(&self, what: &str, printed: &mut Vec<String>) -> Result<(), String> {
        match what {
            "table" => self.print_table(printed),
            "leaders" => self.print_leaders(printed),
            "in-flight" => self.print_in_flight(printed),
            "counts" => self.print_counts(printed),
            _ => return Err(NO_SUCH_COMMAND.to_owned()),
        }
        Ok(())
    }

    fn print_table(&self, printed: &mut Vec<String>) {
        printed.extend(self.world.nodes().map(|node| match self.world.machine(node).map(Election::leader) {
            Some(Some(leader)) => format!("{node} defined {leader}"),
            Some(None) => format!("{node} undefined"),
            None => format!("{node} crashed"),
        }));
    }

    fn print_leaders(&self, printed: &mut Vec<String>) {
        printed.push(list("leaders:", self.world.leaders().map(|node| node.to_string())));
    }

    fn print_in_flight(&self, printed: &mut Vec<String>) {
        printed.extend(self.world.in_flight().iter().map(ToString::to_string));
        if self.world.in_flight().is_empty() {
            printed.push("nothing in flight".to_owned());
        }
    }

    fn print_counts(&self, printed: &mut Vec<String>) {
        let counts = self.sent.iter().map(|(kind, count)| format!("{count} {}", kind.name()));
        printed.push(list("sent:", counts));
    }

    fn node(&self, name: &str) -> Result<NodeId, String> {
        cluster::find(&self.names, name)
    }

    fn alive(&self, name: &str) -> Result<NodeId, String> {
        let node = self.node(name)?;
        self.world.machine(node).map(|_| node).ok_or_else(|| format!("node {node} is crashed"))
    }

    /// The place of the first message in flight from one node to another that begins with these words.
    fn find(&self, which: &[&str]) -> Result<usize, String> {
        let [from, to, words @ ..] = which else { return Err("say from whom and to whom".to_owned()) };
        let (from, to) = (self.node(from)?, self.node(to)?);
        let text = words.concat();
        let says_so = |message: &Message<R>| message.to_string().replace(' ', "").starts_with(&text);
        let is_it =
            |envelope: &Envelope<_>| (envelope.from, envelope.to) == (from, to) && says_so(&envelope.message);
        let place = self.world.in_flight().iter().position(is_it);
        place.ok_or_else(|| format!("no such message is in flight from {from} to {to}"))
    }
}

type Message<R> = <<R as Recipe>::Machine as Machine>::Message;

fn list(title: &str, items: impl Iterator<Item = String>) -> String {
    let items: Vec<_> = items.collect();
    format!("{title} {}", if items.is_empty() { "none".to_owned() } else { items.join(", ") })
}
