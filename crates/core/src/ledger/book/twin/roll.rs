//! The roll of the twin: lists in the order in which things came, looked through from the beginning whenever something is asked.

use alloc::string::String;
use alloc::vec::Vec;

use crate::ledger::roll::{
    AUTHORITIES_MAX, Authority, CERTIFICATE_MS_MAX, Change, Consume, Denial, Done, Fingerprint, Neighbour,
    NewToken, Node, Revocation, Role, TokenId,
};

const DAY_MS: u64 = 24 * 3600 * 1000;

#[derive(Debug, Default)]
pub(super) struct Roll {
    pub(super) authorities: Vec<Authority>,
    tokens: Vec<(TokenId, NewToken, u64)>,
    /// Who joined with which token: under which number.
    joined: Vec<(u64, Consume)>,
    pub(super) workers: Vec<(String, Fingerprint)>,
    /// What was revoked, up to which number, and when.
    revoked: Vec<(Revocation, u64, u64)>,
    pub(super) neighbours: Vec<Neighbour>,
    last_token: u64,
    last_serial: u64,
}

impl Roll {
    pub(super) fn apply(&mut self, change: Change, now_ms: u64) -> Result<Done, Denial> {
        self.tokens.retain(|(_, new, since_ms)| now_ms < since_ms + new.ttl_ms + DAY_MS);
        self.revoked.retain(|(_, _, since_ms)| now_ms < since_ms + CERTIFICATE_MS_MAX);
        match change {
            Change::CreateToken(new) => {
                self.last_token += 1;
                let (token, until_ms) = (TokenId(self.last_token), now_ms + new.ttl_ms);
                self.tokens.push((token, new, now_ms));
                Ok(Done::TokenCreated { token, until_ms })
            }
            Change::RevokeToken(token) => {
                let before = self.tokens.len();
                self.tokens.retain(|(id, ..)| *id != token);
                if self.tokens.len() < before { Ok(Done::TokenRevoked(token)) } else { Err(Denial::NoSuchToken) }
            }
            Change::Consume(consume) => self.consume(consume, now_ms),
            Change::BindWorker { name, key } => self.bind(&name, key).map(|()| Done::Bound(name)),
            Change::ForgetWorker(name) => {
                if self.key_of(&name).is_some() {
                    self.workers.retain(|(other, _)| *other != name);
                    self.revoked.push((Revocation::Node(Node::Worker(name.clone())), self.last_serial, now_ms));
                }
                Ok(Done::Forgotten(name))
            }
            Change::Revoke(Revocation::Node(Node::Worker(name))) if self.key_of(&name).is_none() => {
                Err(Denial::NoSuchWorker(name))
            }
            Change::Revoke(revocation) => {
                self.revoked.push((revocation.clone(), self.last_serial, now_ms));
                Ok(Done::Revoked(revocation))
            }
            Change::DrawSerial => {
                self.last_serial += 1;
                Ok(Done::Serial(self.last_serial))
            }
            other => self.trust(other),
        }
    }

    fn trust(&mut self, change: Change) -> Result<Done, Denial> {
        match change {
            Change::TrustNeighbour(neighbour) => {
                let name = neighbour.name.clone();
                self.neighbours.retain(|known| known.name != name);
                self.neighbours.push(neighbour);
                self.neighbours.sort_by(|one, other| one.name.cmp(&other.name));
                Ok(Done::Trusted(name))
            }
            Change::ForgetNeighbour(name) => {
                let before = self.neighbours.len();
                self.neighbours.retain(|known| known.name != name);
                let is_gone = self.neighbours.len() < before;
                if is_gone { Ok(Done::NeighbourForgotten(name)) } else { Err(Denial::NoSuchNeighbour(name)) }
            }
            Change::AddAuthority(authority) => {
                let hash = authority.hash;
                if self.authorities.iter().any(|known| known.hash == hash) {
                    return Ok(Done::AuthorityAdded(hash));
                }
                if self.authorities.len() == AUTHORITIES_MAX {
                    return Err(Denial::Rotating);
                }
                self.authorities.insert(0, authority);
                Ok(Done::AuthorityAdded(hash))
            }
            _ if self.authorities.len() < 2 => Err(Denial::NoRotation),
            _ => Ok(Done::RotationFinished(self.authorities.drain(1..).count())),
        }
    }

    fn consume(&mut self, consume: Consume, now_ms: u64) -> Result<Done, Denial> {
        let is_meant =
            |(id, new, _): &&(TokenId, NewToken, u64)| *id == consume.token && new.secret == consume.secret;
        let Some((_, new, since_ms)) = self.tokens.iter().find(is_meant) else { return Err(Denial::NoSuchToken) };
        if new.role != consume.role {
            return Err(Denial::OtherRole(new.role));
        }
        let (is_late, uses) = (since_ms + new.ttl_ms <= now_ms, new.uses as usize);
        let expected = new.name.clone();
        let before: Vec<&(u64, Consume)> =
            self.joined.iter().filter(|(_, one)| one.token == consume.token).collect();
        if let Some((serial, known)) = before.iter().find(|(_, one)| one.store == consume.store) {
            return match known == &consume {
                false => Err(Denial::UsedUp),
                true if !self.is_welcome(&consume, *serial) => Err(Denial::Revoked),
                true => Ok(Done::Consumed { serial: *serial, is_new: false }),
            };
        }
        match expected {
            _ if is_late => return Err(Denial::Expired),
            _ if before.len() >= uses => return Err(Denial::UsedUp),
            Some(expected) if expected != consume.name => return Err(Denial::OtherName(expected)),
            _ => {}
        }
        if consume.role == Role::Worker {
            self.bind(&consume.name, consume.key)?;
        }
        self.last_serial += 1;
        self.joined.push((self.last_serial, consume));
        Ok(Done::Consumed { serial: self.last_serial, is_new: true })
    }

    fn is_welcome(&self, joined: &Consume, serial: u64) -> bool {
        let node = Node::Worker(joined.name.clone());
        let is_worker = joined.role == Role::Worker;
        if is_worker && self.key_of(&joined.name) != Some(joined.key) {
            return false;
        }
        let is_void = |revocation: &Revocation, upto: u64| match revocation {
            Revocation::Serial(void) => *void == serial,
            Revocation::Node(void) => is_worker && *void == node && serial <= upto,
        };
        !self.revoked.iter().any(|(revocation, upto, _)| is_void(revocation, *upto))
    }

    fn bind(&mut self, name: &str, key: Fingerprint) -> Result<(), Denial> {
        match self.key_of(name) {
            Some(known) if known != key => Err(Denial::OtherKey(name.into())),
            Some(_) => Ok(()),
            None => {
                self.workers.push((name.into(), key));
                self.workers.sort();
                Ok(())
            }
        }
    }

    pub(super) fn key_of(&self, name: &str) -> Option<Fingerprint> {
        self.workers.iter().find(|(other, _)| other == name).map(|(_, key)| *key)
    }

    pub(super) fn is_revoked(&self, node: &Node, serial: u64) -> bool {
        self.revoked.iter().any(|(revocation, upto, _)| match revocation {
            Revocation::Serial(void) => *void == serial,
            Revocation::Node(void) => void == node && serial <= *upto,
        })
    }

    /// Tokens, and how often each was used.
    pub(super) fn uses(&self) -> Vec<(TokenId, usize)> {
        let uses = |id: TokenId| self.joined.iter().filter(|(_, one)| one.token == id).count();
        self.tokens.iter().map(|(id, ..)| (*id, uses(*id))).collect()
    }
}
