//! Stories of loans: the offices of several farms and the allegiances of their workers, as they run in reality. What a farm's
//! leader proposes is agreed on, unless another server leads before; foremen and tasks are only told of.
//!
//! | command | does |
//! |---|---|
//! | `queue FARM N` | so many tasks wait in FARM; if any do, nobody there is idle |
//! | `lend W FARM` `recall LOAN FARM` | an operator's wish goes to the log of W's farm, or to that of FARM |
//! | `lead FARM` | another server leads FARM; what its farm had proposed, and what was on its way to and from it, is gone |
//! | `begin W` `end W` | W has something to do for the farm that it works for, or nothing any more |
//! | `reach W` `lose W` | W has found the leader of its own farm, and registers; or it has lost it |
//! | `miss FARM W` | FARM has lost sight of W |
//! | `restart W` | W starts again, with what is on its disk |
//! | `pass N [quietly]` | so many milliseconds pass: looks, deadlines, and all that follows |
//! | `settle` `settle quietly` | messages arrive, writes become durable, farms agree, until nothing is left to do |
//! | `table` | what is agreed about each loan, and where each worker is |
//!
//! and everything about links, disks and processes that [`super::stage`] lists. Beats are not told of, nor are looks from which
//! nothing follows.

mod hand;
mod host;
mod member;

use std::collections::BTreeMap;

use primus_core::ledger::{Entry, Lend, LoanId, Loans, Why};
use primus_core::loan::allegiance::{self, Place};

use self::hand::Hand;
use self::host::Host;
use self::member::{Command, Member, is_told, name_of, node_of, tell};
use super::scenery::{Manner, Scenery};
use super::stage::Stage;
use crate::node::NodeId;
use crate::world::World;

/// A story that takes longer than this will not end.
const STEPS_MAX: usize = 100_000;
/// For how long an operator lends.
const LOAN_MS: u64 = 60_000;
/// After so long every farm has heard of every other, and knows that its workers have been at home for a while.
const OPENING_MS: u64 = 2000;

/// What the line says that opens a story.
#[derive(Debug, Clone)]
pub struct Description {
    names: BTreeMap<String, NodeId>,
    /// The farms in the order given.
    farms: Vec<NodeId>,
    /// The workers, with the farm that each belongs to.
    workers: BTreeMap<NodeId, NodeId>,
}

/// The farms and workers of a story.
pub(super) struct Lending {
    scenery: Scenery<Member>,
    farms: Vec<NodeId>,
    workers: BTreeMap<NodeId, NodeId>,
}

impl Description {
    /// Reads what follows `cluster loan`: farms, each with its workers.
    pub(super) fn parse(words: &[&str]) -> Result<Self, String> {
        let mut description = Self { names: BTreeMap::new(), farms: Vec::new(), workers: BTreeMap::new() };
        for word in words {
            let (farm, workers) = word.split_once(':').unwrap_or((word, ""));
            let home = description.add(farm)?;
            description.farms.push(home);
            for worker in workers.split(',').filter(|worker| !worker.is_empty()) {
                let node = description.add(worker)?;
                description.workers.insert(node, home);
            }
        }
        Ok(description)
    }

    fn add(&mut self, name: &str) -> Result<NodeId, String> {
        let node = node_of(name).ok_or_else(|| format!("{name} is neither a farm nor a worker"))?;
        match self.names.insert(name.to_owned(), node) {
            None => Ok(node),
            Some(_) => Err(format!("there are two of {name}")),
        }
    }
}

impl Stage for Lending {
    fn perform(&mut self, words: &[&str], printed: &mut Vec<String>) -> Result<(), String> {
        match words {
            ["queue", farm, tasks] => self.command(farm, Command::Queue(parse(tasks)?), printed),
            ["lend", worker, farm] => self.lend(worker, farm),
            ["recall", loan, farm] => self.wish(self.farm(farm)?, Entry::Recall(LoanId(parse(loan)?))),
            ["lead", farm] => self.lead(self.farm(farm)?, printed),
            ["begin", worker] => self.set_idle(worker, false, printed),
            ["end", worker] => self.set_idle(worker, true, printed),
            ["reach", worker] => self.reach(self.scenery.alive(worker)?, printed),
            ["lose", worker] => self.command(worker, Command::Worker(allegiance::Command::Home(None)), printed),
            ["miss", farm, worker] => self.miss(farm, worker),
            ["restart", worker] => self.restart(worker, printed),
            ["pass", milliseconds] => self.pass(parse(milliseconds)?, printed),
            ["pass", milliseconds, "quietly"] => self.pass(parse(milliseconds)?, &mut Vec::new()),
            ["settle"] => self.pass(0, printed),
            ["settle", "quietly"] => self.pass(0, &mut Vec::new()),
            ["table"] => self.print_table(printed),
            words => self.scenery.perform(words, printed),
        }
    }
}

impl Lending {
    /// Everybody is at home, and every farm has heard of every other.
    pub(super) fn new(description: Description) -> Result<Self, String> {
        let Description { names, farms, workers } = description;
        let hosts = farms.iter().map(|farm| {
            let neighbours = farms.iter().copied().filter(|other| other != farm).collect();
            (*farm, Member::Farm(Box::new(Host::new(neighbours))))
        });
        let hands = workers.iter().map(|(worker, home)| (*worker, make_worker(*worker, *home, LoanId(0))));
        let world = World::new(hosts.chain(hands));
        let manner = Manner { is_told, tell };
        let mut lending = Self { scenery: Scenery::new(names, world, manner), farms, workers };
        lending.open(&mut Vec::new())?;
        Ok(lending)
    }

    fn open(&mut self, unseen: &mut Vec<String>) -> Result<(), String> {
        self.farms.clone().into_iter().try_for_each(|farm| self.act(farm, Command::Lead, unseen))?;
        let workers: Vec<NodeId> = self.workers.keys().copied().collect();
        workers.into_iter().try_for_each(|worker| self.reach(worker, unseen))?;
        self.pass(OPENING_MS, unseen)
    }

    fn command(&mut self, node: &str, command: Command, printed: &mut Vec<String>) -> Result<(), String> {
        self.act(self.scenery.alive(node)?, command, printed)
    }

    fn act(&mut self, node: NodeId, command: Command, printed: &mut Vec<String>) -> Result<(), String> {
        self.scenery.act(node, printed, |world| world.command(node, command))
    }

    fn farm(&self, name: &str) -> Result<NodeId, String> {
        let node = self.scenery.alive(name)?;
        if self.farms.contains(&node) { Ok(node) } else { Err(format!("{name} is no farm")) }
    }

    fn home(&self, worker: NodeId) -> Result<NodeId, String> {
        self.workers.get(&worker).copied().ok_or_else(|| format!("{} is no worker", name_of(worker)))
    }

    /// This goes to the log of a farm.
    fn wish(&mut self, farm: NodeId, entry: Entry) -> Result<(), String> {
        match self.scenery.world.machine_mut(farm) {
            Some(Member::Farm(host)) => host.proposed.push_back(vec![entry]),
            _ => return Err(format!("{} is no farm", name_of(farm))),
        }
        Ok(())
    }

    fn lend(&mut self, worker: &str, farm: &str) -> Result<(), String> {
        let home = self.home(self.scenery.node(worker)?)?;
        let to = name_of(self.farm(farm)?);
        let lend = Lend { worker: worker.to_owned(), to, for_ms: LOAN_MS, why: Why::Operator };
        self.wish(home, Entry::Lend(lend))
    }

    fn lead(&mut self, farm: NodeId, printed: &mut Vec<String>) -> Result<(), String> {
        let others: Vec<NodeId> = self.scenery.world.nodes().collect();
        for other in others {
            self.scenery.lose(farm, other);
            self.scenery.lose(other, farm);
        }
        self.act(farm, Command::Lead, printed)
    }

    fn set_idle(&mut self, worker: &str, is_idle: bool, printed: &mut Vec<String>) -> Result<(), String> {
        self.command(worker, Command::Worker(allegiance::Command::Idle(is_idle)), printed)
    }

    fn reach(&mut self, worker: NodeId, printed: &mut Vec<String>) -> Result<(), String> {
        let home = self.home(worker)?;
        self.wish(home, Entry::Join { worker: name_of(worker), slots: 1 })?;
        self.act(worker, Command::Worker(allegiance::Command::Home(Some(home.server()))), printed)
    }

    fn miss(&mut self, farm: &str, worker: &str) -> Result<(), String> {
        let (farm, home) = (self.farm(farm)?, self.home(self.scenery.node(worker)?)?);
        let guest = format!("{worker}@{}", name_of(home));
        self.wish(farm, Entry::Leave { worker: if farm == home { worker.to_owned() } else { guest } })
    }

    fn restart(&mut self, name: &str, printed: &mut Vec<String>) -> Result<(), String> {
        let worker = self.scenery.node(name)?;
        if self.scenery.world.machine(worker).is_some() {
            return Err(format!("node {name} is alive"));
        }
        let epoch = self.scenery.world.disk(worker).last().map_or(LoanId(0), |record| record.epoch);
        self.scenery.world.restart(worker, make_worker(worker, self.home(worker)?, epoch));
        self.reach(worker, printed)
    }

    fn pass(&mut self, milliseconds: u64, printed: &mut Vec<String>) -> Result<(), String> {
        let until_us = self.scenery.clock_us.saturating_add(milliseconds.saturating_mul(1000));
        for _ in 0..STEPS_MAX {
            let is_at_once = self.scenery.deliver_next(printed) || self.agree_next(printed)?;
            if !is_at_once && !self.scenery.fire_next(until_us, |_| milliseconds > 0, printed) {
                self.scenery.clock_us = until_us;
                return Ok(());
            }
        }
        Err(format!("nothing settled within {STEPS_MAX} steps"))
    }

    /// A farm agrees on the next thing. False if there is none.
    fn agree_next(&mut self, printed: &mut Vec<String>) -> Result<bool, String> {
        for farm in self.farms.clone() {
            let is_able = !self.scenery.is_frozen(farm);
            let Some(Member::Farm(host)) = self.scenery.world.machine_mut(farm).filter(|_| is_able) else {
                continue;
            };
            if let Some(entries) = host.proposed.pop_front() {
                self.act(farm, Command::Apply(entries), printed)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn print_table(&self, printed: &mut Vec<String>) -> Result<(), String> {
        for node in &self.farms {
            if let Some(Member::Farm(host)) = self.scenery.world.machine(*node) {
                printed.push(format!("{}: {}", name_of(*node), loans_words(host.ledger.loans())));
            }
        }
        printed.extend(self.workers.keys().map(|node| match self.scenery.world.machine(*node) {
            Some(Member::Worker(hand)) => format!("{}: {}", name_of(*node), place_words(hand)),
            _ => format!("{}: crashed", name_of(*node)),
        }));
        Ok(())
    }
}

fn make_worker(worker: NodeId, home: NodeId, epoch: LoanId) -> Member {
    Member::Worker(Box::new(Hand::new(worker, home, epoch)))
}

/// `has lent w1 to south under 1, has borrowed w3@east under 1`.
fn loans_words(loans: &Loans) -> String {
    let lent = loans.lent().iter().map(|(loan, lent)| {
        let missing = if lent.is_missing { ", out of sight" } else { "" };
        format!("has lent {} to {} under {loan}{missing}", lent.worker, lent.to)
    });
    let borrowed = loans.borrowed().iter();
    let borrowed = borrowed.map(|(name, borrowed)| format!("has borrowed {name} under {}", borrowed.loan));
    let words: Vec<String> = lent.chain(borrowed).collect();
    if words.is_empty() { "no loans".to_owned() } else { words.join(", ") }
}

fn place_words(hand: &Hand) -> String {
    let epoch = hand.allegiance.epoch();
    match hand.allegiance.place() {
        Place::Home => "at home".to_owned(),
        Place::Going { farm, .. } => format!("about to go to {farm} under {epoch}"),
        Place::Staying { .. } => "about to stay".to_owned(),
        Place::Away { farm, .. } => format!("with {farm} under {epoch}"),
        Place::Returning { farm } => format!("with {farm} under {epoch}, takes nothing new"),
    }
}

fn parse(number: &str) -> Result<u64, String> {
    number.parse().map_err(|_| format!("{number} is no number"))
}

#[cfg(test)]
mod tests {
    use crate::story::Story;

    #[test]
    fn a_bad_command_is_named() {
        for (command, reason) in [
            ("fly w1", "no such command"),
            ("lend w1 w1", "w1 is no farm"),
            ("lend south north", "south is no worker"),
            ("queue south many", "many is no number"),
            ("pass soon", "soon is no number"),
            ("restart w1", "node w1 is alive"),
            ("miss north w9", "there is no node w9"),
            ("cluster loan north:w1 heaven", "heaven is neither a farm nor a worker"),
            ("cluster loan north:w1 south:w1", "there are two of w1"),
        ] {
            let story = Story::parse("a.txt", &format!("cluster loan north:w1 south\n{command}\n----\n"));
            let error = story.play().unwrap_err().to_string();
            assert_eq!(error, format!("a.txt:2: {reason}\n    {command}"));
        }
    }
}
