//! Stories of whole servers: election, detector and the Raft engine, as they run in reality.
//!
//! | command | does |
//! |---|---|
//! | `boot N…` | these processes start |
//! | `gone N M` `link-up N M` | N finds that M's process is gone, or has a link to it again |
//! | `load N 25.3` | N measures its load |
//! | `propose N WORD` `read N NUMBER` | a client wants something of N |
//! | `transfer N [M]` `elect N` | an operator wants something of N |
//! | `leave N` | N is about to end, and lets another one lead |
//! | `snapshot N` | N cuts its log short |
//! | `restart N` | a new process starts with what is on the disk |
//! | `delay 75ms` | from now on messages take this long |
//! | `wait 100ms` | time passes: messages arrive, writes become durable, timers run out |
//! | `table` `leaders` | role, term and log of everybody, what is not committed in brackets; who leads |
//!
//! and everything about links, disks and processes that [`super::stage`] lists. A step is worth a line if its owner is told
//! something, or if it is about who should lead; heartbeats and appends are not shown. The log of a real server has the same lines.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use primus_core::Term;
use primus_core::election::Algorithm;
use primus_core::load::Score;
use primus_core::rank::RankBy;
use primus_core::{Machine, Output, ServerId};
use primus_replica::Role;
use primus_replica::consensus::Consensus;
use primus_replica::message::Record;
use primus_server::control::Command;
use primus_server::gave_way::Fact;
use primus_server::told::{Telling, Told, Topic};
use primus_server::{Plan, Reason, Server, record};

use super::cluster::{self, Description};
use super::scenery::{Manner, Scenery, parse_time};
use super::stage::{Stage, list};
use crate::world::{Taken, World};

type Words = <Server as Machine>::Message;

/// How to make the servers of a cluster, again after every crash.
#[derive(Debug, Clone)]
pub struct ServerRecipe {
    nodes: Vec<ServerId>,
    /// What they are told when they start, but for their own id.
    plan: Box<Plan>,
    scores: BTreeMap<ServerId, Score>,
}

impl ServerRecipe {
    /// Reads what follows `cluster control`.
    pub(super) fn describe(names: &[&str], options: &[&str]) -> Result<Description<Self>, String> {
        let nodes = cluster::parse_ids(names)?;
        let names = cluster::name_nodes(&nodes, names)?;
        let address = SocketAddr::from(([127, 0, 0, 1], 7460));
        let mut plan = Plan::new(nodes[0], nodes.iter().map(|node| (*node, address)));
        plan.election.rank = RankBy::Id;
        let recipe = Self { nodes, plan: Box::new(plan), scores: BTreeMap::new() };
        let mut description = Description { recipe, names, leader: None };
        options.iter().try_for_each(|option| description.set(option))?;
        Ok(description)
    }

    fn make(&self, node: ServerId, disk: Vec<Record>) -> Server {
        Plan { id: node, ..Plan::clone(&self.plan) }.server(disk)
    }
}

impl Description<ServerRecipe> {
    fn set(&mut self, option: &str) -> Result<(), String> {
        let plan = &mut self.recipe.plan;
        match option.split_once('=').unwrap_or((option, "")) {
            ("algorithm", "bully") => plan.election.algorithm = Algorithm::Bully,
            ("algorithm", "ring") => plan.election.algorithm = Algorithm::Ring,
            ("rank", "id") => plan.election.rank = RankBy::Id,
            ("rank", "load") => plan.election.rank = RankBy::Load,
            ("preempt", value) => plan.election.preempt = Some(cluster::parse_flag(value)?),
            ("scores", scores) => self.recipe.scores = cluster::parse_scores(&self.recipe.nodes, scores)?,
            ("leader", name) => self.leader = Some(self.node(name)?),
            _ => return Err(format!("there is no option {option} here")),
        }
        Ok(())
    }
}

/// The servers of a story.
pub(super) struct Servers {
    recipe: ServerRecipe,
    scenery: Scenery<Server>,
}

impl Stage for Servers {
    fn perform(&mut self, words: &[&str]) -> Result<(), String> {
        match words {
            ["boot", nodes @ ..] if !nodes.is_empty() => {
                nodes.iter().try_for_each(|node| self.boot(self.node(node)?))?;
            }
            ["gone", node, peer] => self.command(node, Command::Gone(self.node(peer)?))?,
            ["link-up", node, peer] => {
                let (node, peer) = (self.node(node)?, self.node(peer)?);
                self.scenery.act(node, |world| world.link_up(node, peer))?;
            }
            ["load", node, score] => self.command(node, Command::Load(cluster::parse_score(score)?.into()))?,
            ["propose", node, word] => {
                self.command(node, Command::Propose(vec![Bytes::copy_from_slice(word.as_bytes())]))?;
            }
            ["read", node, number] => self.command(node, Command::Read(cluster::parse_number(number)?))?,
            ["transfer", node] => self.command(node, Command::Transfer(None, Reason::Resigned))?,
            ["transfer", node, to] => {
                let to = Some(self.node(to)?);
                self.command(node, Command::Transfer(to, Reason::Operator))?;
            }
            ["leave", node] => self.command(node, Command::Leave)?,
            ["elect", node] => self.command(node, Command::Elect(self.node(node)?))?,
            ["snapshot", node] => self.snapshot(self.node(node)?)?,
            ["restart", node] => {
                let node = self.scenery.restart(node, |node, disk| self.recipe.make(node, disk.to_vec()))?;
                self.boot(node)?;
            }
            ["delay", time] => self.scenery.delay_us = parse_time(time)?,
            ["wait", time] => self.wait(parse_time(time)?)?,
            ["table"] => self.scenery.print_table(describe),
            ["leaders"] => self.print_leaders(),
            words => self.scenery.perform(words)?,
        }
        Ok(())
    }

    fn lines(&mut self) -> &mut Vec<String> {
        &mut self.scenery.lines
    }
}

impl Servers {
    pub(super) fn new(description: Description<ServerRecipe>) -> Result<Self, String> {
        let Description { recipe, names, leader } = description;
        let servers = recipe.nodes.iter().map(|node| (*node, recipe.make(*node, Vec::new())));
        let manner = Manner { is_told, tell };
        let mut servers = Self { scenery: Scenery::new(names, World::new(servers), manner), recipe };
        leader.map_or(Ok(()), |leader| servers.crown(leader))?;
        Ok(servers)
    }

    /// Lets everybody start and a server win, out of sight.
    fn crown(&mut self, leader: ServerId) -> Result<(), String> {
        self.recipe.nodes.clone().into_iter().try_for_each(|node| self.boot(node))?;
        self.wait(START_US)?;
        self.scenery.lines.clear();
        match self.scenery.world.alive().all(|(_, server)| server.leader() == Some(leader)) {
            true => Ok(()),
            false => Err(format!("node {leader} does not win an election here")),
        }
    }

    fn boot(&mut self, node: ServerId) -> Result<(), String> {
        self.scenery.command(node, Command::Boot)?;
        match self.recipe.scores.get(&node).copied() {
            Some(score) => self.scenery.command(node, Command::Load(score.into())),
            None => Ok(()),
        }
    }

    fn command(&mut self, node: &str, command: Command) -> Result<(), String> {
        self.scenery.command(self.node(node)?, command)
    }

    fn snapshot(&mut self, node: ServerId) -> Result<(), String> {
        let server = self.scenery.world.machine(node).ok_or_else(|| format!("node {node} is crashed"))?;
        let (state, (_, committed)) = (record::front(b"", server.gave_way()), server.replica().extent());
        self.scenery.command(node, Command::Compact(committed, state))
    }

    /// Messages and disks are faster than any timer. Heartbeats never end, so the limit of steps is one for each second.
    fn wait(&mut self, us: u64) -> Result<(), String> {
        let end_us = self.scenery.clock_us + us;
        while self.scenery.clock_us < end_us {
            let until_us = end_us.min(self.scenery.clock_us + 1_000_000);
            self.scenery.repeat(|scenery| scenery.deliver_next() || scenery.go_on(until_us))?;
            self.scenery.clock_us = until_us;
        }
        Ok(())
    }

    fn print_leaders(&mut self) {
        let leads = |(node, server): (ServerId, &Server)| {
            let (role, _, Term(term)) = server.replica().view();
            (role == Role::Leader).then(|| format!("{node} in term {term}"))
        };
        self.scenery.lines.push(list("leaders:", self.scenery.world.alive().filter_map(leads)));
    }

    fn node(&self, name: &str) -> Result<ServerId, String> {
        self.scenery.node(name)
    }
}

/// Within this time everybody has started and somebody leads.
const START_US: u64 = 150_000;

/// `follows 3 in term 2: a b [c]`.
fn describe(node: ServerId, server: &Server) -> String {
    let (_, leader, Term(term)) = server.replica().view();
    let (_, committed) = server.replica().extent();
    let role = match leader {
        Some(leader) if leader == node => "leads".to_owned(),
        Some(leader) => format!("follows {leader}"),
        None => "has no leader".to_owned(),
    };
    let entries = server.replica().log().entries().filter(|entry| !entry.data.is_empty());
    let words = entries.map(|entry| {
        let word = word(&entry.data);
        if entry.index <= committed { format!(" {word}") } else { format!(" [{word}]") }
    });
    format!("{role} in term {term}:{}", words.collect::<String>())
}

/// What an entry says.
fn word(data: &[u8]) -> String {
    match record::fact(data) {
        Some(Fact::GaveWay { server, to, .. }) => format!("<{server} gave way to {to}>"),
        Some(Fact::AllStand) => "<all stand>".to_owned(),
        None => String::from_utf8_lossy(data).into_owned(),
    }
}

/// Is it about who should lead?
fn is_told(message: &Words) -> bool {
    Server::message(message) == Topic::Election
}

/// A step is worth a line if it is about who should lead, or if the owner is told something.
fn tell(taken: &Taken<Server>) -> Option<String> {
    let Taken { node, input, outputs } = taken;
    let told = Told { input, outputs };
    let is_noticed = outputs.iter().any(|output| matches!(output, Output::Notify(_)));
    (is_noticed || told.topic() == Topic::Election).then(|| format!("{node}: {told}"))
}
