//! What is said about the roll: changes that the log asks for, what came of them, and why one is refused.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::{AUTHORITIES_MAX, KEYS_MAX, NEIGHBOURS_MAX, REVOKED_MAX, TOKENS_MAX, USES_MAX};
use crate::ServerId;
use crate::ledger::whole;

/// SHA-256 of a secret, a public key or a certificate. This crate only compares them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fingerprint(pub [u8; 32]);

/// The private key of an authority, in the form in which it stands in files. `{:?}` shows nothing of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SecretKey(#[serde(with = "whole")] pub Vec<u8>);

/// Names a join token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct TokenId(pub u64);

/// What a join token is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// To join as a server.
    Server,
    /// To join as a worker.
    Worker,
    /// To see.
    Viewer,
    /// To submit, and to see one's own.
    Client,
    /// To act on all jobs, loans and leaders.
    Operator,
    /// Everything.
    Admin,
}

/// A node of this farm.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Node {
    /// A server, by its number.
    Server(ServerId),
    /// A worker, by its name.
    Worker(String),
}

/// What an administrator takes back.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Revocation {
    /// One certificate, by its number.
    Serial(u64),
    /// All certificates that a node has now; it may get new ones.
    Node(Node),
}

/// Something that vouches for names: the farm's own, with its private key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Authority {
    /// Its certificate, as DER.
    #[serde(with = "whole")]
    pub certificate: Vec<u8>,
    /// SHA-256 of that.
    pub hash: Fingerprint,
    /// Its private key.
    pub key: SecretKey,
    /// What the authority before it has signed, as DER: that this one is the farm's, too. Those who know only that one believe it.
    /// Empty for the first.
    #[serde(with = "whole")]
    pub voucher: Vec<u8>,
}

/// Another farm that is trusted to name its own nodes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Neighbour {
    /// Its name.
    pub name: String,
    /// The certificate of its authority, as DER; empty until it was fetched.
    #[serde(with = "whole")]
    pub certificate: Vec<u8>,
    /// SHA-256 of that.
    pub hash: Fingerprint,
    /// Where its servers are, each as `HOST:PORT`.
    pub servers: BTreeMap<ServerId, String>,
}

/// A join token that is to be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NewToken {
    /// What it is good for.
    pub role: Role,
    /// SHA-256 of its secret.
    pub secret: Fingerprint,
    /// For how long it is good.
    pub ttl_ms: u64,
    /// How many may join with it.
    pub uses: u32,
    /// The only worker that may join with it.
    pub name: Option<String>,
    /// Who made it.
    pub by: String,
}

/// A join token.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Token {
    /// What it is good for.
    pub role: Role,
    pub(super) secret: Fingerprint,
    /// When it was made, in milliseconds since 1970.
    pub since_ms: u64,
    /// Until when it is good.
    pub until_ms: u64,
    /// How many may join with it altogether.
    pub uses: u32,
    /// The only worker that may join with it.
    pub name: Option<String>,
    /// Who made it.
    pub by: String,
    /// Which stores have joined with it.
    pub used: BTreeMap<[u8; 16], Use>,
}

/// A store has joined.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Use {
    /// The number of its first certificate.
    pub serial: u64,
    /// The name of the worker; empty for other roles.
    pub name: String,
    /// Its public key.
    pub key: Fingerprint,
}

/// A joiner shows a token.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Consume {
    /// Which one.
    pub token: TokenId,
    /// SHA-256 of the secret that it has sent.
    pub secret: Fingerprint,
    /// As what it wants to join.
    pub role: Role,
    /// Its disk, so that a repeated request is recognised.
    pub store: [u8; 16],
    /// The name of the worker; empty for other roles.
    pub name: String,
    /// Its public key.
    pub key: Fingerprint,
}

/// What a name is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Binding {
    /// The worker's public key.
    pub key: Fingerprint,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
}

/// One change of the roll.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Change {
    /// Make a join token.
    CreateToken(NewToken),
    /// Make one void.
    RevokeToken(TokenId),
    /// Let a joiner in.
    Consume(Consume),
    /// Bind a worker's name to its key.
    BindWorker {
        /// The worker's name.
        name: String,
        /// Its public key.
        key: Fingerprint,
    },
    /// Free a worker's name; what has the name now is trusted no more.
    ForgetWorker(String),
    /// Trust a certificate no more.
    Revoke(Revocation),
    /// Draw the number of a certificate.
    DrawSerial,
    /// Trust the authority of another farm, instead of the one known for it before.
    TrustNeighbour(Neighbour),
    /// Trust it no more.
    ForgetNeighbour(String),
    /// Sign with this authority from now on; the one before is still trusted.
    AddAuthority(Authority),
    /// Trust the newest authority only.
    FinishRotation,
}

/// What a change came to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Done {
    /// There is a token.
    TokenCreated {
        /// Its number.
        token: TokenId,
        /// Until when it is good, in milliseconds since 1970.
        until_ms: u64,
    },
    /// It is void.
    TokenRevoked(TokenId),
    /// This joiner is in.
    Consumed {
        /// The number that its certificate gets.
        serial: u64,
        /// False if the same joiner has asked before.
        is_new: bool,
    },
    /// The name belongs to the key.
    Bound(String),
    /// The name is free, and the worker that had it is not trusted.
    Forgotten(String),
    /// Links that show such a certificate are to be closed.
    Revoked(Revocation),
    /// The number of a certificate.
    Serial(u64),
    /// This neighbour is trusted.
    Trusted(String),
    /// It is not trusted any more.
    NeighbourForgotten(String),
    /// This authority signs from now on.
    AuthorityAdded(Fingerprint),
    /// So many older authorities are trusted no more.
    RotationFinished(usize),
}

/// Why a change of the roll is refused. Nothing has changed then.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Denial {
    /// It was revoked, it never was, or its secret is another one.
    NoSuchToken,
    /// The token is good for something else.
    OtherRole(Role),
    /// Its time is over.
    Expired,
    /// All its uses are taken.
    UsedUp,
    /// It is for the worker of this name.
    OtherName(String),
    /// The name belongs to another key.
    OtherKey(String),
    /// Its bearer joined with it, and is not trusted any more.
    Revoked,
    /// The farm does not know this worker.
    NoSuchWorker(String),
    /// The farm does not trust this neighbour.
    NoSuchNeighbour(String),
    /// There is one authority only.
    NoRotation,
    /// There are two authorities already.
    Rotating,
    /// It is longer than anything of its kind, or has no good name.
    Malformed,
    /// No more fit on the list.
    Full(List),
}

/// The lists that have a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum List {
    /// Join tokens.
    Tokens,
    /// Uses of all tokens.
    Uses,
    /// Names of workers.
    Workers,
    /// Revocations.
    Revocations,
    /// Neighbours.
    Neighbours,
}

/// Why a node whose certificate is good is not welcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unwelcome {
    /// Its certificate was revoked.
    Revoked,
    /// Its name belongs to another key.
    OtherKey,
    /// Its name belongs to no key.
    Unbound,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Server, Self::Worker, Self::Viewer, Self::Client, Self::Operator, Self::Admin];

    /// The word in a token.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Worker => "worker",
            Self::Viewer => "viewer",
            Self::Client => "client",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// The role of this word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.word() == word)
    }
}

impl Token {
    /// How many may still join with it.
    #[must_use]
    pub fn uses_left(&self) -> u32 {
        self.uses.saturating_sub(u32::try_from(self.used.len()).unwrap_or(u32::MAX))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As people compare it: `sha256:1f3a…`, all 64 digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(…)")
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(id) => write!(f, "server {id}"),
            Self::Worker(name) => write!(f, "worker {name}"),
        }
    }
}

impl fmt::Display for Revocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serial(serial) => write!(f, "certificate {serial}"),
            Self::Node(node) => node.fmt(f),
        }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchToken => f.write_str("the token was revoked, or this farm never made it"),
            Self::OtherRole(Role::Admin | Role::Operator) => {
                f.write_str("the token is for people, not for joining")
            }
            Self::OtherRole(role) => write!(f, "the token is for {}s", role.word()),
            Self::Expired => f.write_str("the token has expired"),
            Self::UsedUp => f.write_str("the token is used up"),
            Self::OtherName(name) => write!(f, "the token is for worker {name}"),
            Self::OtherKey(name) => {
                write!(f, "{name} is another worker: primus workers forget {name}, or choose a name")
            }
            Self::Revoked => f.write_str("the worker that joined with this token was forgotten or revoked"),
            Self::NoSuchWorker(name) => write!(f, "worker '{name}' does not exist"),
            Self::NoSuchNeighbour(name) => write!(f, "farm '{name}' is not trusted"),
            Self::NoRotation => f.write_str("there is one authority only"),
            Self::Rotating => write!(f, "there are {AUTHORITIES_MAX} authorities already"),
            Self::Malformed => f.write_str("a name or a certificate is malformed, or too long"),
            Self::Full(list) => list.fmt(f),
        }
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tokens => write!(f, "there are {TOKENS_MAX} join tokens already"),
            Self::Uses => write!(f, "all join tokens together may be used {USES_MAX} times at most"),
            Self::Workers => write!(f, "there are {KEYS_MAX} workers with a key already"),
            Self::Revocations => write!(f, "there are {REVOKED_MAX} revocations already: rotate the authority"),
            Self::Neighbours => write!(f, "there are {NEIGHBOURS_MAX} neighbours already"),
        }
    }
}
