//! Other farms that this one may lend workers to and borrow them from: one `[[neighbours]]` for each in a file, and
//! `NAME=ID@ADDRESS+ID@ADDRESS` where they have to fit into a line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use primus_api::Places;
use primus_core::ledger::roll::Fingerprint;
use primus_core::{Place, ServerId};
use primus_identity::hash::AuthorityHash;
use primus_server::plan::Neighbour;
use primus_terminal::amounts::quoted;
use primus_terminal::names::check_name;
use serde_json::{Value as Json, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::{Tables, kind_of, servers};
use super::kind::{Listed, kinds, listed, parts, with_commas};
use super::layers::Layers;
use super::mistakes::Complaint;

/// Where the hash of an authority is to be found.
const HASH: &str = "primus neighbours list says it, on the other farm";
/// No farm has more neighbours.
const NEIGHBOURS_MAX: usize = 64;
/// Neighbours as a file lists them.
const TABLES: Tables = Tables {
    what: "a farm",
    fields: &["name", "servers", "authority"],
    otherwise: "a neighbour has name, servers and authority",
    hint: "write [[neighbours]] above each of them",
};

/// A neighbour as somebody configured it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NeighbourEntry {
    name: String,
    servers: BTreeMap<ServerId, Place>,
    authority: Option<Authority>,
}

/// How the authority of a neighbour is known.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Authority {
    /// By the file with its certificate.
    File(PathBuf),
    /// By the hash of its certificate, which one of its servers has to show.
    Hash(AuthorityHash),
}

kinds! {
    /// A list of farms, with their servers.
    Neighbours(Vec<NeighbourEntry>), "NAME=ID@ADDRESS+ID@ADDRESS,…",
        r#"[{ name = "south", servers = [{ id = 1, address = "127.0.0.1:7560" }] }]"#,
        |text| distinct(parts(text, ',').map(of_text).collect::<Result<_, _>>()?), with_commas,
        json |all: &Vec<NeighbourEntry>| all.iter().map(NeighbourEntry::json).collect(),
        toml |value, _| distinct(TABLES.read(value, of_table)?);
}

fn of_text(part: &str) -> Result<NeighbourEntry, Complaint> {
    let hint = "write it like south=1@127.0.0.1:7560+2@127.0.0.1:7570";
    let wrong = || (format!("holds {}", quoted(part)), hint.to_owned());
    let (name, places) = part.split_once('=').ok_or_else(wrong)?;
    let servers =
        parts(places, '+').map(|place| listed(place).map_err(|_| wrong())).collect::<Result<Vec<_>, _>>()?;
    NeighbourEntry::new(name, &servers)
}

fn of_table(table: &DeTable<'_>) -> Result<NeighbourEntry, Complaint> {
    let field = |name: &str| table.get(name).map(Spanned::get_ref);
    let nameless = || ("holds a farm without a name".to_owned(), "write name = \"south\", for example".to_owned());
    let name = field("name").ok_or_else(nameless)?;
    let name = name.as_str().ok_or_else(|| wrong_name(kind_of(name), "write it as a text in quotes"))?;
    let listed = field("servers").map_or(Ok(Vec::new()), servers);
    let listed =
        listed.map_err(|(what, hint)| (format!("holds {}, whose list of servers {what}", quoted(name)), hint))?;
    let authority = match field("authority") {
        None => None,
        Some(DeValue::String(text)) if text.starts_with("sha256:") => {
            let wrong =
                |error| (format!("holds {}, whose authority is wrong: {error}", quoted(name)), HASH.to_owned());
            Some(Authority::Hash(text.parse().map_err(wrong)?))
        }
        Some(DeValue::String(path)) if !path.is_empty() => Some(Authority::File(PathBuf::from(&**path))),
        Some(_) => {
            let what = format!("holds {}, whose authority is neither a hash nor a path", quoted(name));
            let hint =
                "write its hash, as primus neighbours list says there, or name the file with its certificate";
            return Err((what, hint.to_owned()));
        }
    };
    Ok(NeighbourEntry { authority, ..NeighbourEntry::new(name, &listed)? })
}

fn wrong_name(found: &str, hint: &str) -> Complaint {
    (format!("holds a farm whose name is {found}"), hint.to_owned())
}

impl NeighbourEntry {
    /// Its name, and the file with the certificate of its authority, if one was named.
    pub(super) fn authority(&self) -> Option<(String, PathBuf)> {
        match &self.authority {
            Some(Authority::File(path)) => Some((self.name.clone(), path.clone())),
            Some(Authority::Hash(_)) | None => None,
        }
    }

    /// The neighbour, as a server needs to know it.
    pub(super) fn plan(self) -> Neighbour {
        let authority = match self.authority {
            Some(Authority::Hash(hash)) => Some(Fingerprint(*hash.bytes())),
            Some(Authority::File(_)) | None => None,
        };
        Neighbour { name: self.name, servers: self.servers, authority }
    }

    /// A farm of this name with these servers, if that makes sense.
    fn new(name: &str, listed: &[Listed]) -> Result<Self, Complaint> {
        let named = |what: String, hint: &str| (format!("holds {}, {what}", quoted(name)), hint.to_owned());
        let mut servers = BTreeMap::new();
        for Listed { id, address, .. } in listed {
            if servers.insert(*id, address.clone()).is_some() {
                return Err(named(format!("which has two servers with the id {id}"), "give each its own"));
            }
        }
        check_name(name).map_err(|hint| wrong_name(&quoted(name), &hint))?;
        if servers.is_empty() {
            return Err(named("which has no servers".to_owned(), "list all of them, as that farm itself does"));
        }
        Ok(Self { name: name.to_owned(), servers, authority: None })
    }

    /// As scripts see it.
    pub(super) fn json(&self) -> Json {
        let server = |(id, address): (&ServerId, &Place)| json!({ "id": id.0, "address": address.to_string() });
        json!({ "name": self.name, "servers": self.servers.iter().map(server).collect::<Json>() })
    }
}

/// Two farms have two names, and a server is in one of them only.
fn distinct(neighbours: Vec<NeighbourEntry>) -> Result<Vec<NeighbourEntry>, Complaint> {
    if neighbours.len() > NEIGHBOURS_MAX {
        return Err((format!("holds {} farms", neighbours.len()), format!("leave it at {NEIGHBOURS_MAX}")));
    }
    let mut names = BTreeSet::new();
    if let Some(other) = neighbours.iter().find(|neighbour| !names.insert(neighbour.name.as_str())) {
        let what = format!("holds two farms called {}", quoted(&other.name));
        return Err((what, "give each its own name".to_owned()));
    }
    let mut addresses = BTreeSet::new();
    let all = neighbours.iter().flat_map(|neighbour| neighbour.servers.values());
    match all.into_iter().find(|address| !addresses.insert(*address)) {
        Some(address) => Err((format!("names {address} twice"), "say of each server once where it is".to_owned())),
        None => Ok(neighbours),
    }
}

/// Is none of them this farm itself, by name or by place?
pub(super) fn check(layers: &mut Layers, servers: Option<&BTreeMap<ServerId, Places>>) {
    let slot = &layers.values.neighbourhood.neighbours;
    let (Some(neighbours), Some(farm)) = (slot.get(), layers.values.server.farm.get()) else { return };
    let own: BTreeSet<&Place> =
        servers.into_iter().flat_map(BTreeMap::values).map(|places| &places.address).collect();
    let is_own_place = |address: &&Place| own.contains(*address);
    let found = neighbours.iter().find_map(|neighbour| {
        let name = quoted(&neighbour.name);
        if neighbour.name == farm {
            let hint = "name other farms only, or mend server.farm";
            return Some((format!("neighbours holds {name}, which is this farm itself"), hint));
        }
        let address = neighbour.servers.values().find(is_own_place)?;
        let message = format!("neighbours holds {name}, with {address}, where a server of this farm is reached");
        Some((message, "say where that farm's own servers are"))
    });
    if let Some((message, hint)) = found {
        layers.mistakes.about(slot, message, hint);
    }
}

impl fmt::Display for NeighbourEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers = self.servers.iter().map(|(id, address)| format!("{id}@{address}"));
        write!(f, "{}={}", self.name, servers.collect::<Vec<_>>().join("+"))
    }
}
