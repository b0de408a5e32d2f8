//! The name that a certificate gives to a node: server 2 of farm north, worker w1 of farm south.
//!
//! In a certificate it is a URI. A name says what a node is and where it belongs; which cluster it is in, and whether it is
//! still welcome there, is said elsewhere. A neighbour's server is nothing special: its name has another farm.
//!
//! ```
//! use primus_core::ServerId;
//! use primus_identity::name::Name;
//!
//! let name = Name::server("north", ServerId(2)).unwrap();
//! assert_eq!(name.uri(), "primus://north/server/2");
//! assert_eq!(Name::from_uri("primus://north/server/2"), Ok(name));
//! assert!(Name::from_uri("primus://north/server/02").is_err());
//! ```

use std::fmt;

use primus_core::ServerId;
use primus_core::names::is_name;
use rustls::pki_types::{DnsName, ServerName};

const SCHEME: &str = "primus://";
const SERVER: &str = "server";
const WORKER: &str = "worker";

/// A server or a worker, within its farm.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// A server, by its number.
    Server(ServerId),
    /// A worker, by its name.
    Worker(String),
}

/// A node of a farm. Every value of this type is a good name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    farm: String,
    node: Node,
}

/// Why something is not a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Another scheme, or none.
    #[error("a name begins with primus://")]
    Scheme,
    /// Too few or too many parts.
    #[error("a name is primus://FARM/server/NUMBER or primus://FARM/worker/NAME")]
    Parts,
    /// The farm has no good name.
    #[error("the farm's name is 1 to 40 letters, digits, '-', '_' and '.', a letter or a digit first")]
    Farm,
    /// The worker has no good name.
    #[error("the worker's name is 1 to 40 letters, digits, '-', '_' and '.', a letter or a digit first")]
    Worker,
    /// The server has no good number.
    #[error("a server's number is an integer from 1, without leading zeros")]
    Server,
}

impl Name {
    /// A server of a farm.
    pub fn server(farm: &str, id: ServerId) -> Result<Self, NameError> {
        match id.0 {
            0 => Err(NameError::Server),
            _ => Self::new(farm, Node::Server(id)),
        }
    }

    /// A worker of a farm.
    pub fn worker(farm: &str, worker: &str) -> Result<Self, NameError> {
        if !is_name(worker) {
            return Err(NameError::Worker);
        }
        Self::new(farm, Node::Worker(worker.to_owned()))
    }

    fn new(farm: &str, node: Node) -> Result<Self, NameError> {
        if !is_name(farm) {
            return Err(NameError::Farm);
        }
        Ok(Self { farm: farm.to_owned(), node })
    }

    /// Reads what [`uri`](Self::uri) writes, and nothing else.
    pub fn from_uri(uri: &str) -> Result<Self, NameError> {
        let rest = uri.strip_prefix(SCHEME).ok_or(NameError::Scheme)?;
        let mut parts = rest.split('/');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(farm), Some(SERVER), Some(number), None) => Self::server(farm, server_id(number)?),
            (Some(farm), Some(WORKER), Some(worker), None) => Self::worker(farm, worker),
            _ => Err(NameError::Parts),
        }
    }

    /// The name as a certificate has it.
    #[must_use]
    pub fn uri(&self) -> String {
        match &self.node {
            Node::Server(id) => format!("{SCHEME}{}/{SERVER}/{id}", self.farm),
            Node::Worker(worker) => format!("{SCHEME}{}/{WORKER}/{worker}", self.farm),
        }
    }

    /// The farm that the node belongs to.
    #[must_use]
    pub fn farm(&self) -> &str {
        &self.farm
    }

    /// The node within its farm.
    #[must_use]
    pub const fn node(&self) -> &Node {
        &self.node
    }

    /// The number of a server; nothing for a worker.
    #[must_use]
    pub const fn server_id(&self) -> Option<ServerId> {
        match self.node {
            Node::Server(id) => Some(id),
            Node::Worker(_) => None,
        }
    }

    /// The name of a worker; nothing for a server.
    #[must_use]
    pub fn worker_name(&self) -> Option<&str> {
        match &self.node {
            Node::Server(_) => None,
            Node::Worker(worker) => Some(worker),
        }
    }
}

/// In words: `server 2 of farm north`.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of farm {}", self.node, self.farm)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(id) => write!(f, "{SERVER} {id}"),
            Self::Worker(worker) => write!(f, "{WORKER} {worker}"),
        }
    }
}

fn server_id(text: &str) -> Result<ServerId, NameError> {
    let id = text.parse().map(ServerId).map_err(|_| NameError::Server)?;
    if id.to_string() == text { Ok(id) } else { Err(NameError::Server) }
}

/// What a dialler of this server passes to rustls: the handshake fails if another server answers.
#[must_use]
pub fn dial(id: ServerId) -> ServerName<'static> {
    dns(format!("{SERVER}-{id}"))
}

/// What a dialler passes to rustls if any server of the farm will do.
#[must_use]
pub fn dial_any() -> ServerName<'static> {
    dns(SERVER.to_owned())
}

fn dns(name: String) -> ServerName<'static> {
    ServerName::DnsName(DnsName::try_from(name).expect("letters, digits and a hyphen are a DNS name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_survives_its_uri() {
        for (name, uri, words) in [
            (Name::server("north", ServerId(2)), "primus://north/server/2", "server 2 of farm north"),
            (Name::worker("south.eu_1", "w1"), "primus://south.eu_1/worker/w1", "worker w1 of farm south.eu_1"),
            (
                Name::server("9", ServerId(u64::MAX)),
                "primus://9/server/18446744073709551615",
                "server 18446744073709551615 of farm 9",
            ),
        ] {
            let name = name.unwrap();
            assert_eq!(name.uri(), uri);
            assert_eq!(name.to_string(), words);
            assert_eq!(Name::from_uri(uri), Ok(name));
        }
    }

    #[test]
    fn nothing_else_is_a_name() {
        for (uri, reason) in [
            ("", NameError::Scheme),
            ("spiffe://north/server/1", NameError::Scheme),
            ("PRIMUS://north/server/1", NameError::Scheme),
            (" primus://north/server/1", NameError::Scheme),
            ("primus://north", NameError::Parts),
            ("primus://north/server", NameError::Parts),
            ("primus://north/server/1/", NameError::Parts),
            ("primus://north/server/1/2", NameError::Parts),
            ("primus://north/leader/1", NameError::Parts),
            ("primus://north/authority", NameError::Parts),
            ("primus:///server/1", NameError::Farm),
            ("primus://north:7460/server/1", NameError::Farm),
            ("primus://a@north/server/1", NameError::Farm),
            ("primus://n%6frth/server/1", NameError::Farm),
            ("primus://north/server/0", NameError::Server),
            ("primus://north/server/01", NameError::Server),
            ("primus://north/server/+1", NameError::Server),
            ("primus://north/server/w1", NameError::Server),
            ("primus://north/server/18446744073709551616", NameError::Server),
            ("primus://north/worker/", NameError::Worker),
            ("primus://north/worker/..", NameError::Worker),
            ("primus://north/worker/w1?x", NameError::Worker),
            ("primus://north/worker/w1\n", NameError::Worker),
        ] {
            assert_eq!(Name::from_uri(uri), Err(reason), "{uri:?}");
        }
    }

    #[test]
    fn a_server_is_dialled_by_its_number() {
        assert_eq!(dial(ServerId(2)).to_str(), "server-2");
        assert_eq!(dial_any().to_str(), "server");
    }
}
