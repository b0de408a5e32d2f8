//! The roll: who is who in this farm, as agreed on. It knows the farm's authorities, the tokens with which others may join, which
//! key each worker's name belongs to, which certificates are trusted no more, and which neighbours are.
//!
//! It only compares fingerprints. Certificates are made and judged elsewhere; what a link needs to know afterwards is
//! answered by [`Roll::object_to`]. Like all of the ledger it reads no clock: times are those of batches.

mod words;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use self::words::{
    Authority, Binding, Change, Consume, Denial, Done, Fingerprint, List, Neighbour, NewToken, Node, Revocation,
    Role, SecretKey, Token, TokenId, Unwelcome, Use,
};
use crate::names::is_name;

/// How many authorities are trusted at once: the present one, and during a rotation the one before.
pub const AUTHORITIES_MAX: usize = 2;
/// How many authorities that are trusted no more are remembered.
const FORMER_MAX: usize = 8;
/// How many join tokens there may be.
pub const TOKENS_MAX: usize = 1000;
/// How often all of them together may be used.
pub const USES_MAX: u32 = 10_000;
/// The longest time for which a token is good: thirty days.
pub const TTL_MS_MAX: u64 = 30 * DAY_MS;
/// How many names of workers may have a key.
pub const KEYS_MAX: usize = 10_000;
/// How many revocations there may be: a thousandth of what a farm may issue in a year.
pub const REVOKED_MAX: usize = 10_000;
/// How many keys a name may have had that are remembered.
const BARRED_KEYS_MAX: usize = 16;
/// How many neighbours may be trusted.
pub const NEIGHBOURS_MAX: usize = 64;
/// How many servers of a neighbour may be known.
pub const SERVERS_MAX: usize = 16;
/// The longest certificate or private key, in bytes.
pub const DER_LEN_MAX: usize = 4096;
/// The longest address of a server: a host name of 253 letters, a colon and a port.
pub const PLACE_LEN_MAX: usize = 260;
/// The longest name of who made a token.
const BY_LEN_MAX: usize = 100;

const DAY_MS: u64 = 24 * 3600 * 1000;
/// A token that has expired is kept for a day, so that a joiner hears why it is refused.
const EXPIRED_KEPT_MS: u64 = DAY_MS;
/// Numbers from here on are given out by a founding file, at random: the ledger, which counts from 1, knows nothing of them.
pub const FOUNDING_SERIAL: u64 = 1 << 63;
/// No certificate of a node is good for longer, so no revocation is needed for longer.
pub const CERTIFICATE_MS_MAX: u64 = 367 * DAY_MS;

/// Who is who.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Roll {
    /// The newest first.
    authorities: Vec<Authority>,
    /// Those that are trusted no more, the last one first: neighbours that know only these ask for them.
    former: Vec<Fingerprint>,
    tokens: BTreeMap<TokenId, Token>,
    last_token: u64,
    workers: BTreeMap<String, Binding>,
    /// Numbers of certificates that are trusted no more, and until when that must be known.
    serials: BTreeMap<u64, u64>,
    /// Nodes of which all certificates up to a number are trusted no more.
    barred: BTreeMap<Node, Barred>,
    last_serial: u64,
    neighbours: BTreeMap<String, Neighbour>,
    /// When it changed for the last time.
    newest_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
struct Barred {
    /// The greatest number that was given out by then.
    serial: u64,
    until_ms: u64,
    /// The keys that the worker had: what a founding file gave to them is void, too. Those of servers are void with any key.
    keys: BTreeSet<Fingerprint>,
}

type Changed = Result<Done, Denial>;

/// What the ledger asks.
impl Roll {
    pub(super) fn apply(&mut self, change: Change, time_ms: u64) -> Changed {
        self.sweep(time_ms);
        self.newest_ms = time_ms;
        match change {
            Change::CreateToken(new) => self.create_token(new, time_ms),
            Change::RevokeToken(token) => {
                let gone = self.tokens.remove(&token);
                gone.map(|_| Done::TokenRevoked(token)).ok_or(Denial::NoSuchToken)
            }
            Change::Consume(consume) => self.consume(consume, time_ms),
            Change::BindWorker { name, key } => {
                self.bind(&name, key, time_ms)?;
                Ok(Done::Bound(name))
            }
            Change::ForgetWorker(name) => self.forget_worker(name, time_ms),
            Change::Revoke(revocation) => self.revoke(revocation, time_ms),
            Change::DrawSerial => Ok(Done::Serial(self.draw_serial())),
            Change::TrustNeighbour(neighbour) => self.trust(neighbour),
            Change::ForgetNeighbour(name) => match self.neighbours.remove(&name) {
                Some(_) => Ok(Done::NeighbourForgotten(name)),
                None => Err(Denial::NoSuchNeighbour(name)),
            },
            Change::AddAuthority(authority) => self.add_authority(authority),
            Change::FinishRotation => match self.authorities.len() {
                0 | 1 => Err(Denial::NoRotation),
                len => {
                    let over = self.authorities.split_off(1);
                    self.former.splice(..0, over.into_iter().map(|authority| authority.hash));
                    self.former.truncate(FORMER_MAX);
                    Ok(Done::RotationFinished(len - 1))
                }
            },
        }
    }

    /// What is over is forgotten: expired tokens after a day, revocations when no certificate can be good any more.
    fn sweep(&mut self, now_ms: u64) {
        self.tokens.retain(|_, token| now_ms < token.until_ms.saturating_add(EXPIRED_KEPT_MS));
        self.serials.retain(|_, until_ms| now_ms < *until_ms);
        self.barred.retain(|_, barred| now_ms < barred.until_ms);
    }

    fn create_token(&mut self, new: NewToken, time_ms: u64) -> Changed {
        let NewToken { role, secret, ttl_ms, uses, name, by } = new;
        let is_named_well = name.as_ref().is_none_or(|name| role == Role::Worker && uses == 1 && is_name(name));
        let is_short = by.len() <= BY_LEN_MAX && (1..=TTL_MS_MAX).contains(&ttl_ms);
        if uses == 0 || !is_named_well || !is_short {
            return Err(Denial::Malformed);
        }
        if self.tokens.len() >= TOKENS_MAX {
            return Err(Denial::Full(List::Tokens));
        }
        let promised = self.tokens.values().fold(uses, |sum, token| sum.saturating_add(token.uses));
        if promised > USES_MAX {
            return Err(Denial::Full(List::Uses));
        }
        self.last_token += 1;
        let (token, until_ms) = (TokenId(self.last_token), time_ms.saturating_add(ttl_ms));
        let used = BTreeMap::new();
        self.tokens.insert(token, Token { role, secret, since_ms: time_ms, until_ms, uses, name, by, used });
        Ok(Done::TokenCreated { token, until_ms })
    }

    /// Lets a joiner in. For one that asks again, whatever happened between, nothing is done twice.
    fn consume(&mut self, consume: Consume, time_ms: u64) -> Changed {
        if let Some(serial) = self.judge(&consume, time_ms)? {
            return Ok(Done::Consumed { serial, is_new: false });
        }
        let Consume { token, role, store, name, key, .. } = consume;
        if role == Role::Worker {
            self.bind(&name, key, time_ms)?;
        }
        let serial = self.draw_serial();
        let token = self.tokens.get_mut(&token).ok_or(Denial::NoSuchToken)?;
        token.used.insert(store, Use { serial, name, key });
        Ok(Done::Consumed { serial, is_new: true })
    }

    fn consumed_again(&self, used: &Use, consume: &Consume) -> Result<u64, Denial> {
        if used.key != consume.key || used.name != consume.name {
            return Err(Denial::UsedUp);
        }
        let node = Node::Worker(used.name.clone());
        if self.is_serial_revoked(used.serial)
            || consume.role == Role::Worker && self.object_to(&node, &consume.key, used.serial).is_err()
        {
            return Err(Denial::Revoked);
        }
        Ok(used.serial)
    }

    fn bind(&mut self, name: &str, key: Fingerprint, time_ms: u64) -> Result<(), Denial> {
        if !self.is_bound(name, &key)? {
            self.workers.insert(name.into(), Binding { key, since_ms: time_ms });
        }
        Ok(())
    }

    /// Does the name belong to this key? If not, it may, unless it is refused.
    fn is_bound(&self, name: &str, key: &Fingerprint) -> Result<bool, Denial> {
        match self.workers.get(name) {
            Some(known) if known.key == *key => Ok(true),
            Some(_) => Err(Denial::OtherKey(name.into())),
            None if !is_name(name) => Err(Denial::Malformed),
            None if self.workers.len() >= KEYS_MAX => Err(Denial::Full(List::Workers)),
            None => Ok(false),
        }
    }

    /// The name is free again; certificates that were given to it are worth nothing.
    fn forget_worker(&mut self, name: String, time_ms: u64) -> Changed {
        if self.workers.contains_key(&name) {
            self.bar(Node::Worker(name.clone()), time_ms)?;
            self.workers.remove(&name);
        }
        Ok(Done::Forgotten(name))
    }

    fn revoke(&mut self, revocation: Revocation, time_ms: u64) -> Changed {
        match &revocation {
            Revocation::Serial(serial) => {
                if self.is_full_of_revocations() && !self.serials.contains_key(serial) {
                    return Err(Denial::Full(List::Revocations));
                }
                self.serials.insert(*serial, time_ms.saturating_add(CERTIFICATE_MS_MAX));
            }
            Revocation::Node(Node::Worker(name)) if !self.workers.contains_key(name) => {
                return Err(Denial::NoSuchWorker(name.clone()));
            }
            Revocation::Node(node) => self.bar(node.clone(), time_ms)?,
        }
        Ok(Done::Revoked(revocation))
    }

    fn bar(&mut self, node: Node, time_ms: u64) -> Result<(), Denial> {
        if self.is_full_of_revocations() && !self.barred.contains_key(&node) {
            return Err(Denial::Full(List::Revocations));
        }
        let (serial, until_ms) = (self.last_serial, time_ms.saturating_add(CERTIFICATE_MS_MAX));
        let mut keys = self.barred.remove(&node).map(|barred| barred.keys).unwrap_or_default();
        if let Node::Worker(name) = &node {
            keys.extend(self.workers.get(name).map(|known| known.key));
        }
        while keys.len() > BARRED_KEYS_MAX {
            keys.pop_first();
        }
        self.barred.insert(node, Barred { serial, until_ms, keys });
        Ok(())
    }

    fn is_full_of_revocations(&self) -> bool {
        self.serials.len() + self.barred.len() >= REVOKED_MAX
    }

    const fn draw_serial(&mut self) -> u64 {
        self.last_serial += 1;
        self.last_serial
    }

    fn trust(&mut self, neighbour: Neighbour) -> Changed {
        let Neighbour { name, certificate, servers, .. } = &neighbour;
        let is_short = certificate.len() <= DER_LEN_MAX && servers.len() <= SERVERS_MAX;
        if !is_name(name) || !is_short || servers.values().any(|place| place.len() > PLACE_LEN_MAX) {
            return Err(Denial::Malformed);
        }
        if self.neighbours.len() >= NEIGHBOURS_MAX && !self.neighbours.contains_key(name) {
            return Err(Denial::Full(List::Neighbours));
        }
        let name = name.clone();
        self.neighbours.insert(name.clone(), neighbour);
        Ok(Done::Trusted(name))
    }

    /// Twice the same is one: a leader may ask again for what its predecessor has asked for.
    fn add_authority(&mut self, authority: Authority) -> Changed {
        let hash = authority.hash;
        if self.authorities.iter().all(|known| known.hash != hash) {
            if authority.certificate.len().max(authority.key.0.len()).max(authority.voucher.len()) > DER_LEN_MAX {
                return Err(Denial::Malformed);
            }
            if self.authorities.len() >= AUTHORITIES_MAX {
                return Err(Denial::Rotating);
            }
            self.authorities.insert(0, authority);
        }
        Ok(Done::AuthorityAdded(hash))
    }
}

/// What others ask.
impl Roll {
    /// What would come of this joiner's request now: nothing for one that would be let in, and the number of its certificate for
    /// one that is in already. A request that is refused here need not be written down.
    ///
    /// # Errors
    /// Why it would be refused.
    pub fn judge(&self, consume: &Consume, time_ms: u64) -> Result<Option<u64>, Denial> {
        let Consume { token, secret, role, store, name, key } = consume;
        let known = self.tokens.get(token).filter(|token| token.secret == *secret);
        let token = known.ok_or(Denial::NoSuchToken)?;
        if token.role != *role {
            return Err(Denial::OtherRole(token.role));
        }
        if let Some(used) = token.used.get(store) {
            return self.consumed_again(used, consume).map(Some);
        }
        if token.until_ms <= time_ms {
            return Err(Denial::Expired);
        }
        if token.uses_left() == 0 {
            return Err(Denial::UsedUp);
        }
        if let Some(expected) = token.name.as_ref().filter(|expected| *expected != name) {
            return Err(Denial::OtherName(expected.clone()));
        }
        match role {
            Role::Worker => self.is_bound(name, key).map(|_| None),
            _ if !name.is_empty() => Err(Denial::Malformed),
            _ => Ok(None),
        }
    }

    /// Why a node whose certificate is good is not welcome, if it is not. Asked after every handshake.
    ///
    /// # Errors
    /// If its certificate was revoked, or its name belongs to another key, or to none.
    pub fn object_to(&self, node: &Node, key: &Fingerprint, serial: u64) -> Result<(), Unwelcome> {
        if self.is_revoked(node, key, serial) {
            return Err(Unwelcome::Revoked);
        }
        let Node::Worker(name) = node else { return Ok(()) };
        match self.workers.get(name) {
            Some(known) if known.key == *key => Ok(()),
            Some(_) => Err(Unwelcome::OtherKey),
            None => Err(Unwelcome::Unbound),
        }
    }

    /// Is this certificate of this node, for this key, trusted no more?
    #[must_use]
    pub fn is_revoked(&self, node: &Node, key: &Fingerprint, serial: u64) -> bool {
        self.is_serial_revoked(serial) || self.barred.get(node).is_some_and(|barred| barred.has(node, key, serial))
    }

    fn is_serial_revoked(&self, serial: u64) -> bool {
        self.serials.contains_key(&serial)
    }

    /// Authorities that are trusted no more, the last one first.
    #[must_use]
    pub fn former(&self) -> &[Fingerprint] {
        &self.former
    }

    /// The authorities that are trusted, the one that signs first.
    #[must_use]
    pub fn authorities(&self) -> &[Authority] {
        &self.authorities
    }

    /// Join tokens, those that have expired lately among them.
    #[must_use]
    pub const fn tokens(&self) -> &BTreeMap<TokenId, Token> {
        &self.tokens
    }

    /// Which key each worker's name belongs to.
    #[must_use]
    pub const fn workers(&self) -> &BTreeMap<String, Binding> {
        &self.workers
    }

    /// What is revoked: single certificates, then nodes, each with the greatest number that is void.
    pub fn revocations(&self) -> impl Iterator<Item = (Revocation, u64)> {
        let serials = self.serials.keys().map(|serial| (Revocation::Serial(*serial), *serial));
        let nodes = self.barred.iter().map(|(node, barred)| (Revocation::Node(node.clone()), barred.serial));
        serials.chain(nodes)
    }

    /// Neighbours that are trusted, by name.
    #[must_use]
    pub const fn neighbours(&self) -> &BTreeMap<String, Neighbour> {
        &self.neighbours
    }

    /// When it changed for the last time, in milliseconds since 1970.
    #[must_use]
    pub const fn newest_ms(&self) -> u64 {
        self.newest_ms
    }

    pub(super) fn is_untouched(&self) -> bool {
        *self == Self::default()
    }
}

impl Barred {
    fn has(&self, node: &Node, key: &Fingerprint, serial: u64) -> bool {
        match node {
            _ if serial < FOUNDING_SERIAL => serial <= self.serial,
            Node::Server(_) => true,
            Node::Worker(_) => self.keys.contains(key),
        }
    }
}

/// Which form of a roll follows on disk.
const FORM: u8 = 1;

/// A roll stands behind the rest of a ledger. An untouched one is not written, and releases before the roll wrote none.
pub(super) fn serialize<S: Serializer>(roll: &Roll, serializer: S) -> Result<S::Ok, S::Error> {
    (FORM, roll).serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Roll, D::Error> {
    deserializer.deserialize_tuple(2, AtTheEnd)
}

struct AtTheEnd;

impl<'de> de::Visitor<'de> for AtTheEnd {
    type Value = Roll;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a roll, or the end")
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut parts: A) -> Result<Roll, A::Error> {
        // A byte can always be read, unless there is none.
        match parts.next_element::<u8>() {
            Err(_) | Ok(None) => Ok(Roll::default()),
            Ok(Some(FORM)) => parts.next_element()?.ok_or_else(|| de::Error::invalid_length(1, &self)),
            Ok(Some(_)) => Err(de::Error::custom("a roll of a later release")),
        }
    }
}

#[cfg(test)]
mod tests;
