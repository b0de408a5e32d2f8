//! Who takes part, under the names that people gave them.
//!
//! The machines know ids only. In a ring people name positions when they point at a node and ids when they speak of
//! the winner; in a Bully election both is the name that they typed.

use std::collections::BTreeMap;

use primus_core::ServerId;
use primus_terminal::amounts::quoted;
use primus_terminal::failure::Failure;
use primus_terminal::values::listed;
use serde_json::Value;

use crate::args::RankedBy;

/// The nodes of an election, in the order in which they were typed.
#[derive(Debug, Clone)]
pub struct Cast {
    kind: Kind,
    nodes: Vec<(ServerId, String)>,
    places: BTreeMap<ServerId, usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ring,
    Bully,
}

impl Cast {
    /// The members of a ring: ids in ring order.
    pub fn ring(ids: &str, most: usize) -> Result<Self, Failure> {
        if ids.trim().is_empty() {
            return Err(Failure::usage("the ring is empty", "give at least one id: --ids 5,3,7"));
        }
        let names = names("--ids", ids, most)?;
        let nodes = integers("--ids", &names, "ids are whole numbers from 0, such as 5,3,7")?;
        Self::new(Kind::Ring, "--ids", nodes)
    }

    /// The nodes of a Bully election. Only where the id is the rank must it be the name; elsewhere it is the name if all
    /// names are integers, else the position.
    pub(crate) fn bully(nodes: &str, rank: RankedBy, most: usize) -> Result<Self, Failure> {
        if nodes.trim().is_empty() {
            return Err(Failure::usage("the list of nodes is empty", "give at least one name: --nodes 1,2,3"));
        }
        let names = names("--nodes", nodes, most)?;
        let hint = "ids are whole numbers from 0; other names need --rank load or --rank address";
        let nodes = match (rank, integers("--nodes", &names, hint)) {
            (RankedBy::Id, numbered) => numbered?,
            (RankedBy::Load, Ok(numbered)) => numbered,
            (RankedBy::Load, Err(_)) | (RankedBy::Address, _) => (1..).map(ServerId).zip(names).collect(),
        };
        Self::new(Kind::Bully, "--nodes", nodes)
    }

    fn new(kind: Kind, flag: &str, nodes: Vec<(ServerId, String)>) -> Result<Self, Failure> {
        let mut typed = BTreeMap::new();
        let mut places = BTreeMap::new();
        for (place, (id, name)) in nodes.iter().enumerate() {
            if places.insert(*id, place).is_some() || typed.insert(name, place).is_some() {
                let message = format!("{} appears twice in {flag}", quoted(name));
                return Err(Failure::usage(message, "every node needs a name of its own"));
            }
        }
        Ok(Self { kind, nodes, places })
    }

    /// All ids, in the order in which they were typed.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = ServerId> + '_ {
        self.nodes.iter().map(|(id, _)| *id)
    }

    /// Ids and names, in the order in which they were typed.
    pub(super) fn nodes(&self) -> &[(ServerId, String)] {
        &self.nodes
    }

    /// The node that somebody points at: by position in a ring, else by name.
    pub fn find(&self, flag: &str, word: &str) -> Result<ServerId, Failure> {
        let found = match self.kind {
            Kind::Ring => word.parse::<usize>().ok().and_then(|position| self.nodes.get(position.checked_sub(1)?)),
            Kind::Bully => self.find_name(word),
        };
        found.map(|(id, _)| *id).ok_or_else(|| self.nobody(flag, word))
    }

    /// `7` and `07` are one id.
    fn find_name(&self, word: &str) -> Option<&(ServerId, String)> {
        let by_name = self.nodes.iter().find(|(_, name)| name == word);
        let same_number = |name: &str| name.parse::<u64>().ok().filter(|number| word.parse() == Ok(*number));
        by_name.or_else(|| self.nodes.iter().find(|(_, name)| same_number(name).is_some()))
    }

    fn nobody(&self, flag: &str, word: &str) -> Failure {
        let message = format!("{flag} names {}, which is not there", quoted(word));
        Failure::usage(
            message,
            match self.kind {
                Kind::Ring => format!("positions in this ring go from 1 to {}", self.nodes.len()),
                Kind::Bully => format!("the nodes are {}", listed(self.nodes.iter().map(|(_, name)| name))),
            },
        )
    }

    /// How the machines' output speaks of a node: `4` is the position in a ring, else the name.
    pub fn short(&self, id: ServerId) -> String {
        match (self.kind, self.places.get(&id)) {
            (Kind::Ring, Some(place)) => (place + 1).to_string(),
            (Kind::Bully, Some(place)) => self.nodes[*place].1.clone(),
            (_, None) => id.to_string(),
        }
    }

    /// `node 4 (id 1)` in a ring, else `node 4`.
    pub fn full(&self, id: ServerId) -> String {
        match self.kind {
            Kind::Ring => format!("node {} (id {id})", self.short(id)),
            Kind::Bully => format!("node {}", self.short(id)),
        }
    }

    /// The name as people typed it: an id in a ring, else the name.
    pub fn name(&self, id: ServerId) -> String {
        self.places.get(&id).map_or_else(|| id.to_string(), |place| self.nodes[*place].1.clone())
    }

    /// The name for scripts: a number if it is an integer, else a string.
    pub fn json_name(&self, id: ServerId) -> Value {
        let name = self.name(id);
        let number = name.parse::<u64>().map(Value::from).or_else(|_| name.parse::<i64>().map(Value::from));
        number.unwrap_or(Value::String(name))
    }

    /// Where in the list it stands, from 0.
    pub fn place(&self, id: ServerId) -> usize {
        self.places.get(&id).copied().unwrap_or(0)
    }

    /// Is this a ring?
    pub fn is_ring(&self) -> bool {
        self.kind == Kind::Ring
    }
}

/// Splits a list of names at its commas and checks how they are spelt.
pub(super) fn names(flag: &str, text: &str, most: usize) -> Result<Vec<String>, Failure> {
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_string()).collect();
    if names.len() > most {
        let message = format!("{flag} lists {} nodes", names.len());
        return Err(Failure::usage(
            message,
            format!("at most {most} take part here; primus bench simulate runs larger rings"),
        ));
    }
    match names.iter().find(|name| !is_name(name)) {
        None => Ok(names),
        Some(name) if name.is_empty() => {
            Err(Failure::usage(format!("{flag} has an empty place between commas"), "write it like 1,2,3"))
        }
        Some(name) => {
            let hint = "names consist of letters, digits and the characters - _ . : [ ]";
            Err(Failure::usage(format!("{} is not a name", quoted(name)), hint))
        }
    }
}

/// `@`, `|` and `,` mean something where names are used; other signs would not survive shells and diagrams.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "-_.:[]".contains(c))
}

fn integers(flag: &str, names: &[String], hint: &str) -> Result<Vec<(ServerId, String)>, Failure> {
    let id = |name: &String| match name.parse() {
        Ok(number) => Ok((ServerId(number), name.clone())),
        Err(_) => Err(Failure::usage(format!("{} in {flag} is not an id", quoted(name)), hint)),
    };
    names.iter().map(id).collect()
}
