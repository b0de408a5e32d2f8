//! The line that opens a story: which election, among whom, by which rules.
//!
//! ```text
//! cluster bully NAME… [rank=id|address|load] [scores=20,43,7] [known] [preempt=true|false]
//!                     [asking=one-by-one] [reminders] [leader=NAME]
//! cluster ring ID…    [winner=lowest|highest] [preempt=true|false] [reminders] [leader=ID]
//! cluster control ID… [algorithm=bully|ring] [rank=id|load] [scores=20,43,7] [preempt=true|false] [leader=ID]
//! cluster farm ID… wN… [slots=N] [leader=ID]
//! cluster farms FARM[:ID,…][:wN,…]… [slots=N] [leader=FARM.ID]
//! cluster founding ID…
//! ```
//!
//! Ranked by address, the names are addresses and the ids are 1, 2, … in the order given. `known` tells every
//! node the others' scores beforehand. `control` are whole servers, election and log together; there `leader` lets a
//! server win before the story begins, as it does in elections. `farm` is one farm with its servers and workers, `farms` are
//! several, and a farm without an ID has one server; `leader` leads its farm instead of the server that is named first.
//! `founding` are servers that have yet to found a cluster.
//! Explorations open with the same line, so that what they find can be told as a story.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use primus_core::election::{Command, Election, Reminders, bully, ring};
use primus_core::load::Score;
use primus_core::rank::Address;
use primus_core::{Delay, Input, Machine, Moment, Outbox, Round, ServerId};

use super::farms;
use super::founding;
use super::servers::ServerRecipe;

/// What a line describes.
#[derive(Debug, Clone)]
pub enum Cluster {
    /// A Bully election.
    Bully(Description<BullyRecipe>),
    /// A ring election.
    Ring(Description<RingRecipe>),
    /// Whole servers.
    Control(Description<ServerRecipe>),
    /// Farms with their servers and workers.
    Farms(farms::Description),
    /// Servers without a cluster.
    Founding(founding::Description),
}

/// Nodes, how to make them, and who leads when the story begins.
#[derive(Debug, Clone)]
pub struct Description<R> {
    /// How nodes are made.
    pub recipe: R,
    /// What nodes are called, besides their ids.
    pub names: BTreeMap<String, ServerId>,
    /// Who leads already.
    pub leader: Option<ServerId>,
}

/// How to make the nodes of one election, again after every crash.
pub trait Recipe: Clone {
    /// What a node runs.
    type Machine: Election;

    /// All nodes, in the order given.
    fn nodes(&self) -> Vec<ServerId>;

    /// A node as it starts, knowing nothing of what was before.
    fn make(&self, node: ServerId) -> Self::Machine;

    /// Of two nodes that take part in one election, does this one win?
    fn is_better(&self, one: ServerId, other: ServerId) -> bool;

    /// Does a better node take over from a live leader?
    fn preempts(&self) -> bool;

    /// The nodes are other ones from now on. False if this election cannot change its nodes.
    fn set_nodes(&mut self, nodes: Arc<[ServerId]>) -> bool;

    /// A node is loaded differently from now on.
    fn set_score(&mut self, node: ServerId, score: Score);

    /// A message of a foreign node, as a story words it.
    ///
    /// # Errors
    /// If there is no such message.
    fn foreign(&self, words: &[&str]) -> Result<<Self::Machine as Machine>::Message, String>;
}

/// How to make the nodes of a Bully election.
#[derive(Debug, Clone)]
pub struct BullyRecipe {
    nodes: Vec<ServerId>,
    rules: Arc<bully::Rules>,
    scores: BTreeMap<ServerId, Score>,
    /// Does everybody know the others' scores?
    known: bool,
}

/// How to make the members of a ring.
#[derive(Debug, Clone)]
pub struct RingRecipe {
    members: Arc<[ServerId]>,
    rules: Arc<ring::Rules>,
}

impl Cluster {
    /// Reads what follows the word `cluster`.
    ///
    /// # Errors
    /// If it makes no sense, in words for whoever wrote it.
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        let is_option = |word: &&str| word.contains('=') || ["reminders", "known"].contains(word);
        let split = words.iter().position(is_option).unwrap_or(words.len());
        match words.split_at(split) {
            (["bully", names @ ..], options) => BullyRecipe::describe(names, options).map(Self::Bully),
            (["ring", names @ ..], options) => RingRecipe::describe(names, options).map(Self::Ring),
            (["control", names @ ..], options) => ServerRecipe::describe(names, options).map(Self::Control),
            (["farm", names @ ..], options) => farms::Description::parse(names, options).map(Self::Farms),
            (["farms", farms @ ..], options) => farms::Description::parse_all(farms, options).map(Self::Farms),
            (["founding", ids @ ..], []) => founding::Description::parse(ids).map(Self::Founding),
            _ => Err("say which: cluster bully, ring, control, farm, farms or founding".to_owned()),
        }
    }
}

impl<R> Description<R> {
    /// The node of this name; ids are names, too.
    ///
    /// # Errors
    /// If there is none.
    pub fn node(&self, name: &str) -> Result<ServerId, String> {
        find(&self.names, name)
    }
}

/// The node of this name.
pub(super) fn find<N: Copy>(names: &BTreeMap<String, N>, name: &str) -> Result<N, String> {
    names.get(name).copied().ok_or_else(|| format!("there is no node {name}"))
}

impl BullyRecipe {
    fn describe(names: &[&str], options: &[&str]) -> Result<Description<Self>, String> {
        let has = |option| options.contains(&option);
        let (nodes, rules) = match () {
            () if has("rank=address") => {
                let nodes: Vec<_> = (1..).map(ServerId).take(names.len()).collect();
                let addresses = names.iter().map(|name| parse_address(name)).collect::<Result<Vec<_>, _>>()?;
                (nodes.clone(), bully::Rules::by_address(nodes.into_iter().zip(addresses)))
            }
            () if has("rank=load") => parse_ids(names).map(|ids| (ids.clone(), bully::Rules::by_load(ids)))?,
            () => parse_ids(names).map(|ids| (ids.clone(), bully::Rules::by_id(ids)))?,
        };
        let recipe = Self { nodes, rules: Arc::new(rules), scores: BTreeMap::new(), known: has("known") };
        let names = name_nodes(&recipe.nodes, names)?;
        let mut description = Description { recipe, names, leader: None };
        options.iter().try_for_each(|option| description.set(option))?;
        Ok(description)
    }
}

impl Description<BullyRecipe> {
    fn set(&mut self, option: &str) -> Result<(), String> {
        let rules = self.recipe.rules_mut();
        match option.split_once('=').unwrap_or((option, "")) {
            ("rank", "id" | "address" | "load") | ("known", "") => {}
            ("preempt", value) => rules.preempt = parse_flag(value)?,
            ("asking", "one-by-one") => rules.asking = bully::Asking::OneByOne,
            ("reminders", "") => rules.reminders = Some(reminders()),
            ("scores", scores) => self.recipe.scores = parse_scores(&self.recipe.nodes, scores)?,
            ("leader", name) => self.leader = Some(self.node(name)?),
            _ => return Err(format!("there is no option {option} here")),
        }
        Ok(())
    }
}

impl Recipe for BullyRecipe {
    type Machine = bully::Bully;

    fn nodes(&self) -> Vec<ServerId> {
        self.nodes.clone()
    }

    fn make(&self, node: ServerId) -> bully::Bully {
        let mut machine = bully::Bully::new(node, Arc::clone(&self.rules));
        let own = Command::Score(self.score_of(node));
        let known = self.nodes.iter().filter(|_| self.known);
        let peers = known.map(|peer| Command::PeerScore(*peer, self.score_of(*peer)));
        let mut outbox = Outbox::new();
        for command in std::iter::once(own).chain(peers) {
            machine.step(Moment::START, Input::Command(command), &mut outbox);
        }
        machine
    }

    fn is_better(&self, one: ServerId, other: ServerId) -> bool {
        let rank = |node| self.rules.rank_of(node, self.score_of(node));
        rank(one) > rank(other)
    }

    fn preempts(&self) -> bool {
        self.rules.preempt
    }

    fn set_nodes(&mut self, _: Arc<[ServerId]>) -> bool {
        false
    }

    fn set_score(&mut self, node: ServerId, score: Score) {
        self.scores.insert(node, score);
    }

    fn foreign(&self, _: &[&str]) -> Result<bully::Message, String> {
        Err("a Bully has no foreign messages".to_owned())
    }
}

impl BullyRecipe {
    fn score_of(&self, node: ServerId) -> Score {
        self.scores.get(&node).copied().unwrap_or_default()
    }

    /// The rules, to change them before any node is made.
    pub fn rules_mut(&mut self) -> &mut bully::Rules {
        Arc::make_mut(&mut self.rules)
    }
}

impl RingRecipe {
    fn describe(names: &[&str], options: &[&str]) -> Result<Description<Self>, String> {
        let members = parse_ids(names)?;
        let names = name_nodes(&members, names)?;
        let rules = ring::Rules::new(ring::Winner::Lowest, members.len());
        let recipe = Self { members: members.into(), rules: Arc::new(rules) };
        let mut description = Description { recipe, names, leader: None };
        options.iter().try_for_each(|option| description.set(option))?;
        Ok(description)
    }
}

impl RingRecipe {
    /// The rules, to change them before any member is made.
    pub fn rules_mut(&mut self) -> &mut ring::Rules {
        Arc::make_mut(&mut self.rules)
    }
}

impl Description<RingRecipe> {
    fn set(&mut self, option: &str) -> Result<(), String> {
        let rules = self.recipe.rules_mut();
        match option.split_once('=').unwrap_or((option, "")) {
            ("winner", "lowest") => rules.winner = ring::Winner::Lowest,
            ("winner", "highest") => rules.winner = ring::Winner::Highest,
            ("preempt", value) => rules.preempt = parse_flag(value)?,
            ("reminders", "") => rules.reminders = Some(reminders()),
            ("leader", name) => self.leader = Some(self.node(name)?),
            _ => return Err(format!("there is no option {option} here")),
        }
        Ok(())
    }
}

impl Recipe for RingRecipe {
    type Machine = ring::Ring;

    fn nodes(&self) -> Vec<ServerId> {
        self.members.to_vec()
    }

    fn make(&self, node: ServerId) -> ring::Ring {
        let position = self.members.iter().position(|member| *member == node);
        ring::Ring::new(
            position.expect("only members are made"),
            Arc::clone(&self.members),
            Arc::clone(&self.rules),
        )
    }

    fn is_better(&self, one: ServerId, other: ServerId) -> bool {
        self.rules.winner.is_better(one, other)
    }

    fn preempts(&self) -> bool {
        self.rules.preempt
    }

    fn set_nodes(&mut self, nodes: Arc<[ServerId]>) -> bool {
        self.members = nodes;
        true
    }

    fn set_score(&mut self, _: ServerId, _: Score) {}

    /// Only ours name a round.
    fn foreign(&self, words: &[&str]) -> Result<ring::Message, String> {
        let round = Round::UNKNOWN;
        match words {
            ["election", candidate] => Ok(ring::Message::Election { round, candidate: Some(parse_id(candidate)?) }),
            ["elected", leader] => Ok(ring::Message::Elected { round, leader: parse_id(leader)?, lap: 0 }),
            _ => Err("a foreign message is election ID or elected ID".to_owned()),
        }
    }
}

/// Often enough to repair, seldom enough to stay out of the way: a follower misses two before it worries.
const fn reminders() -> Reminders {
    Reminders { every: Delay::exactly_ms(100), silence: Delay::exactly_ms(350) }
}

/// Every node goes by its id; by the name that it was given, too.
pub(super) fn name_nodes<N: Copy + fmt::Display>(
    nodes: &[N],
    names: &[&str],
) -> Result<BTreeMap<String, N>, String> {
    let mut all = BTreeMap::new();
    for (node, name) in nodes.iter().zip(names) {
        if all.insert((*name).to_owned(), *node).is_some() {
            return Err(format!("node {name} is named twice"));
        }
    }
    all.extend(nodes.iter().map(|node| (node.to_string(), *node)));
    if nodes.is_empty() { Err("a cluster needs a node".to_owned()) } else { Ok(all) }
}

pub(super) fn parse_ids(words: &[&str]) -> Result<Vec<ServerId>, String> {
    words.iter().map(|word| parse_id(word)).collect()
}

/// Reads one id.
pub(super) fn parse_id(word: &str) -> Result<ServerId, String> {
    word.parse().map(ServerId).map_err(|_| format!("{word} is no id"))
}

fn parse_address(word: &str) -> Result<Address, String> {
    word.parse().map_err(|_| format!("{word} is no address"))
}

pub(super) fn parse_flag(word: &str) -> Result<bool, String> {
    word.parse().map_err(|_| format!("{word} is neither true nor false"))
}

/// Reads any number.
pub(super) fn parse_number<N: std::str::FromStr>(word: &str) -> Result<N, String> {
    word.parse().map_err(|_| format!("{word} is no number"))
}

/// Reads a load score.
pub(super) fn parse_score(word: &str) -> Result<Score, String> {
    word.parse().map(Score::from_percent).map_err(|_| format!("{word} is no number"))
}

pub(super) fn parse_scores(nodes: &[ServerId], words: &str) -> Result<BTreeMap<ServerId, Score>, String> {
    let scores = words.split(',').map(parse_score).collect::<Result<Vec<_>, _>>()?;
    if scores.len() != nodes.len() {
        return Err(format!("{} nodes, but {} scores", nodes.len(), scores.len()));
    }
    Ok(nodes.iter().copied().zip(scores).collect())
}
