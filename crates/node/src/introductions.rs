//! Who a server says it is, and whom it takes a caller for. Everything that depends on who is at the other end of a link,
//! whatever the link is for, asks [`Introductions`] and nothing else.
//!
//! On a link that is encrypted a certificate has proved who is there, and the hello must say the same. On a plain one there is only
//! the hello.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::RwLock;

use primus_core::ServerId;
use primus_core::ledger::loans::home_of;
use primus_identity::name::{Name, NameError};
use primus_identity::trust::Identified;
use primus_wire::native::{Answer, FarmHello, Hello, Purpose, WorkerHello};
use tokio::time::timeout;

use crate::credentials::Security;
use crate::dialling::{HELLO_TIME, say};
use crate::events::History;
use crate::line::Line;
use crate::links::Identity;

/// A server, and what it knows of its peers.
#[derive(Debug)]
pub(crate) struct Introductions {
    identity: Identity,
    peers: BTreeSet<ServerId>,
    /// The disks of the peers, as far as they are known.
    stores: RwLock<BTreeMap<ServerId, [u8; 16]>>,
    /// Who proves to be whom, and who is not welcome any more.
    security: Security,
}

/// Why a caller is turned away.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Objection {
    reason: String,
    /// True if trying again changes nothing.
    is_final: bool,
}

impl From<String> for Objection {
    fn from(reason: String) -> Self {
        Self { reason, is_final: false }
    }
}

impl Objection {
    /// The caller hears why, and so do the people here.
    pub(crate) async fn tell(self, line: &mut Line, history: &History) {
        history.refused(format!("refused a link: {}", self.reason));
        let answer = if self.is_final { Answer::Barred(self.reason) } else { Answer::Refused(self.reason) };
        _ = timeout(HELLO_TIME, say(line, &answer)).await;
    }
}

impl Introductions {
    pub(crate) fn new(
        identity: Identity,
        peers: impl Iterator<Item = ServerId>,
        stores: BTreeMap<ServerId, [u8; 16]>,
    ) -> Self {
        Self { identity, peers: peers.collect(), stores: RwLock::new(stores), security: Security::None }
    }

    /// The same where links are secured like this.
    pub(crate) fn on(self, security: Security) -> Self {
        Self { security, ..self }
    }

    /// This server.
    pub(crate) const fn own(&self) -> &Identity {
        &self.identity
    }

    /// What this server says to a peer, first of all.
    pub(crate) fn hello(&self, to: ServerId, purpose: Purpose) -> Hello {
        let Identity { cluster, server, store, incarnation } = self.identity.clone();
        Hello::new(cluster, server, to, store, incarnation).with_purpose(purpose)
    }

    /// The peer that says this, and proves it on a link that is encrypted.
    ///
    /// # Errors
    /// Why it is not a peer of this server, in a sentence.
    pub(crate) fn identify(&self, hello: &Hello, who: Option<&Identified>) -> Result<ServerId, String> {
        let me = self.identity.server;
        if let Some(objection) = hello.objection(&self.identity.cluster, me) {
            return Err(objection);
        }
        self.check(who, || Name::server(&hello.cluster, hello.server)).map_err(|objection| objection.reason)?;
        let Some(peer) = self.peers.get(&hello.server) else {
            return Err(format!("server {} is not among the peers of server {me}", hello.server));
        };
        match hello.purpose() {
            Some(Purpose::Control) => self.meet(*peer, hello.store)?,
            _ => self.recognise(*peer, hello.store)?,
        }
        Ok(*peer)
    }

    /// A worker, of this farm or a borrowed one, that says this.
    ///
    /// # Errors
    /// Why it is not heard, in a sentence.
    pub(crate) fn check_worker(&self, hello: &WorkerHello, who: Option<&Identified>) -> Result<(), Objection> {
        let Identity { cluster, server, .. } = &self.identity;
        hello.objection(cluster, *server).map_or(Ok(()), Err)?;
        let (name, home) = home_of(&hello.name).unwrap_or((&hello.name, cluster));
        self.check(who, || Name::worker(home, name))
    }

    /// A server of another farm that says this. Whether that farm is a neighbour is for others to say.
    ///
    /// # Errors
    /// Why it is not heard, in a sentence.
    pub(crate) fn check_farm(&self, hello: &FarmHello, who: Option<&Identified>) -> Result<(), String> {
        hello.objection(&self.identity.cluster).map_or(Ok(()), Err)?;
        self.check(who, || Name::server(&hello.farm, hello.server)).map_err(|objection| objection.reason)
    }

    /// A hello must say what the certificate says, and the roll must have nothing against it.
    fn check(
        &self,
        who: Option<&Identified>,
        said: impl FnOnce() -> Result<Name, NameError>,
    ) -> Result<(), Objection> {
        let Some(who) = who else { return Ok(()) };
        let said = said().map_err(|error| error.to_string())?;
        who.must_say(&said).map_err(|refusal| refusal.to_string())?;
        let looked = self.security.look_up(who);
        looked.map_err(|refusal| Objection { reason: refusal.to_string(), is_final: true })
    }

    /// A peer that control has never met may have any disk.
    fn meet(&self, peer: ServerId, store: [u8; 16]) -> Result<(), String> {
        let mut stores = self.stores.write().expect("nobody panics while holding this");
        if *stores.entry(peer).or_insert(store) == store { Ok(()) } else { Err(other_disk(peer)) }
    }

    /// For everything else a peer must have been met before.
    fn recognise(&self, peer: ServerId, store: [u8; 16]) -> Result<(), String> {
        let stores = self.stores.read().expect("nobody panics while holding this");
        match stores.get(&peer) {
            Some(known) if *known == store => Ok(()),
            Some(_) => Err(other_disk(peer)),
            None => Err(format!("server {peer} asks before control has met it")),
        }
    }
}

fn other_disk(server: ServerId) -> String {
    format!(
        "server {server} came back with another disk, so its votes are forgotten: restore its data directory, or give \
         the new server an id that was never used"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(server: u64) -> Identity {
        Identity { cluster: "test".to_owned(), server: ServerId(server), store: [server as u8; 16], incarnation: 1 }
    }

    #[test]
    fn only_a_peer_with_the_disk_that_control_has_met_may_ask() {
        let me = Introductions::new(identity(1), [2, 3].map(ServerId).into_iter(), BTreeMap::new());
        let hello = |server: u64, store: u8, purpose| {
            let caller = Identity { store: [store; 16], ..identity(server) };
            let peers = std::iter::once(ServerId(1));
            Introductions::new(caller, peers, BTreeMap::new()).hello(ServerId(1), purpose)
        };
        let refused = |hello: Hello| me.identify(&hello, None).expect_err("it is not let in");
        for purpose in [Purpose::Questions, Purpose::Requests] {
            assert!(refused(hello(2, 2, purpose)).contains("before control has met it"));
        }
        assert_eq!(me.identify(&hello(2, 2, Purpose::Control), None), Ok(ServerId(2)));
        for purpose in [Purpose::Control, Purpose::Questions, Purpose::Requests] {
            assert_eq!(me.identify(&hello(2, 2, purpose), None), Ok(ServerId(2)));
            assert!(refused(hello(2, 7, purpose)).contains("another disk"));
            assert!(refused(hello(4, 4, purpose)).contains("not among the peers"));
            assert!(refused(hello(1, 1, purpose)).contains("two servers"));
        }
        assert!(refused(hello(3, 3, Purpose::Requests)).contains("before control has met it"));
    }
}
