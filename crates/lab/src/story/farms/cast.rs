//! Who takes part in a story of farms. A server goes by its number, `2`; where there are several farms by `north.2`, or by
//! `north` if it is the only one there. A worker goes by `w1` wherever it works.

use std::collections::BTreeMap;
use std::fmt;

use primus_core::ServerId;
use primus_core::ledger::loans::name_here;

use crate::story::cluster;

/// A farm by its name, and whether it has one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Farm(pub(super) &'static str, bool);

/// A process. No two workers have the same number, whatever their farms are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Node {
    Server(Farm, ServerId),
    Worker(u64, Farm),
}

/// What the line says that opens a story.
#[derive(Debug, Clone)]
pub struct Description {
    pub(super) names: BTreeMap<String, Node>,
    /// In the order given, each with the server that leads it.
    pub(super) farms: Vec<(Farm, Node)>,
    pub(super) slots: u16,
}

/// What the only farm of a story is called by its workers.
const ONLY: &str = "farm";

impl Node {
    /// Whose it is.
    pub(super) const fn farm(self) -> Farm {
        match self {
            Self::Server(farm, _) | Self::Worker(_, farm) => farm,
        }
    }

    pub(super) const fn is_worker(self) -> bool {
        matches!(self, Self::Worker(..))
    }

    /// The number of a server among those of its farm, or of a worker among all.
    pub(super) const fn number(self) -> u64 {
        match self {
            Self::Server(_, ServerId(number)) | Self::Worker(number, _) => number,
        }
    }

    /// What a farm calls a worker: `w1@north`, if it is another farm's.
    pub(super) fn name_in(self, farm: Farm) -> String {
        if self.farm() == farm { self.to_string() } else { name_here(&self.to_string(), self.farm().0) }
    }
}

impl Description {
    /// Reads what follows `cluster farm`: servers and workers.
    pub(in crate::story) fn parse(members: &[&str], options: &[&str]) -> Result<Self, String> {
        Self::of_farms([(ONLY, members.to_vec())], options)
    }

    /// Reads what follows `cluster farms`: names, each with servers and workers.
    pub(in crate::story) fn parse_all(farms: &[&str], options: &[&str]) -> Result<Self, String> {
        let farms = farms.iter().map(|farm| {
            let (name, members) = farm.split_once(':').unwrap_or((farm, ""));
            (name, members.split([':', ',']).filter(|member| !member.is_empty()).collect())
        });
        Self::of_farms(farms, options)
    }

    fn of_farms<'a>(
        farms: impl IntoIterator<Item = (&'a str, Vec<&'a str>)>,
        options: &[&str],
    ) -> Result<Self, String> {
        let mut description = Self { names: BTreeMap::new(), farms: Vec::new(), slots: 1 };
        farms.into_iter().try_for_each(|(name, members)| description.add(name, &members))?;
        options.iter().try_for_each(|option| description.set(option)).map(|()| description)
    }

    /// The server that is named first leads.
    fn add(&mut self, name: &str, members: &[&str]) -> Result<(), String> {
        if worker_number(name).is_some() || !name.chars().all(char::is_alphabetic) {
            return Err(format!("{name} cannot be a farm"));
        }
        let (workers, ids): (Vec<&str>, Vec<&str>) =
            members.iter().copied().partition(|member| worker_number(member).is_some());
        // Machines want their peers to be copied, so a name lives as long as the process.
        let farm = Farm(name.to_owned().leak(), ids.is_empty());
        let ids = if farm.1 { vec![ServerId(1)] } else { cluster::parse_ids(&ids)? };
        self.farms.push((farm, Node::Server(farm, ids[0])));
        let workers = workers.into_iter().filter_map(worker_number).map(|number| Node::Worker(number, farm));
        let mut members = ids.into_iter().map(|id| Node::Server(farm, id)).chain(workers);
        members.try_for_each(|member| match self.names.insert(member.to_string(), member) {
            None => Ok(()),
            Some(_) => Err(format!("node {member} is named twice")),
        })
    }

    fn set(&mut self, option: &str) -> Result<(), String> {
        match option.split_once('=').unwrap_or((option, "")) {
            ("slots", slots) => self.slots = cluster::parse_number(slots)?,
            ("leader", name) => {
                let leader = cluster::find(&self.names, name)?;
                self.farms.iter_mut().filter(|(farm, _)| *farm == leader.farm()).for_each(|led| led.1 = leader);
            }
            _ => return Err(format!("there is no option {option} here")),
        }
        Ok(())
    }
}

fn worker_number(word: &str) -> Option<u64> {
    word.strip_prefix('w')?.parse().ok()
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(Farm(name, true), _) => f.write_str(name),
            Self::Server(Farm(ONLY, _), id) => id.fmt(f),
            Self::Server(Farm(name, _), id) => write!(f, "{name}.{id}"),
            Self::Worker(number, _) => write!(f, "w{number}"),
        }
    }
}
