//! Who a server says it is, and whom it takes a caller for. Everything that depends on who is at the other end of a link,
//! whatever the link is for, asks [`Introductions`] and nothing else.
//!
//! On a link that is encrypted a certificate has proved who is there, and the hello must say the same. On a plain one there is only
//! the hello.

use std::collections::BTreeSet;
use std::time::Duration;

use primus_core::ServerId;
use primus_core::founding::{Claim, Record, StoreId};
use primus_core::ledger::loans::home_of;
use primus_identity::name::{Name, NameError};
use primus_identity::trust::Identified;
use primus_wire::native::{Answer, FarmHello, Hello, Purpose, WorkerHello};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::credentials::Security;
use crate::dialling::{HELLO_TIME, say};
use crate::events::History;
use crate::founding::Founders;
use crate::line::Line;
use crate::links::Identity;

/// How long a caller waits for a founding that is under way.
const FOUNDING_TIME: Duration = Duration::from_secs(1);

/// A server, and what it knows of its peers.
#[derive(Debug)]
pub(crate) struct Introductions {
    identity: Identity,
    peers: BTreeSet<ServerId>,
    /// What is durable here of the founding of its cluster: which one it is, and the disks of its members.
    claim: watch::Receiver<Claim>,
    /// Those who want to hear how far that is.
    pub(crate) founders: Founders,
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
        claim: watch::Receiver<Claim>,
    ) -> Self {
        let founders = Founders::default();
        Self { identity, peers: peers.collect(), claim, founders, security: Security::None }
    }

    /// The same where links are secured like this.
    pub(crate) fn on(self, security: Security) -> Self {
        Self { security, ..self }
    }

    /// How far its founding is, and every change of that.
    pub(crate) fn claim(&self) -> watch::Receiver<Claim> {
        self.claim.clone()
    }

    /// Serves the link of a server that wants to hear how far the founding is, until its end.
    ///
    /// # Errors
    /// Why it is not heard, in a sentence.
    pub(crate) async fn receive_founder(&self, line: &mut Line, hello: &Hello) -> Result<(), String> {
        self.founders.receive(line, hello, self).await
    }

    /// Waits until it belongs to a cluster.
    pub(crate) async fn founded(&self) {
        // Whatever says so ends only with the server.
        _ = self.claim().wait_for(|claim| claim.phase.founded().is_some()).await;
    }

    /// Its cluster is about to be founded with this server: it will be able to say more in a moment.
    pub(crate) async fn may_be_founded_with(&self, hello: &Hello) {
        let will_be = || {
            let claim = self.claim.borrow();
            let is_agreed = claim.phase.agreed().is_some_and(|record| Some(record.cluster) == hello.founded);
            is_agreed || claim.phase.founded().is_none() && claim.remembers.is_some()
        };
        if will_be() {
            _ = timeout(FOUNDING_TIME, self.founded()).await;
        }
    }

    /// This server.
    pub(crate) const fn own(&self) -> &Identity {
        &self.identity
    }

    /// What this server says to a peer, first of all.
    pub(crate) fn hello(&self, to: ServerId, purpose: Purpose) -> Hello {
        let Identity { cluster, server, store, incarnation } = self.identity.clone();
        let founded = self.claim.borrow().phase.founded().map(|record| record.cluster);
        Hello::new(cluster, server, to, store, incarnation).of(founded).with_purpose(purpose)
    }

    /// A server of this farm that wants to hear how far the founding is, whatever its own configuration says.
    ///
    /// # Errors
    /// Why it is not one, in a sentence.
    pub(crate) fn check_founder(&self, hello: &Hello, who: Option<&Identified>) -> Result<ServerId, String> {
        if let Some(objection) = hello.objection(&self.identity.cluster, self.identity.server) {
            return Err(objection);
        }
        self.check(who, || Name::server(&hello.cluster, hello.server)).map_err(|objection| objection.reason)?;
        Ok(hello.server)
    }

    /// The peer that says this, and proves it on a link that is encrypted.
    ///
    /// # Errors
    /// Why it is not a peer of this server, in a sentence.
    pub(crate) fn identify(&self, hello: &Hello, who: Option<&Identified>) -> Result<ServerId, String> {
        let (me, peer) = (self.identity.server, self.check_founder(hello, who)?);
        let claim = self.claim.borrow();
        let Some(record) = claim.phase.founded() else {
            return Err(format!("server {me} does not belong to a cluster yet: its diagnostics say why"));
        };
        check_cluster(me, record, hello)?;
        if !self.peers.contains(&peer) || !record.members.contains_key(&peer) {
            return Err(format!("server {peer} is not among the peers of server {me}"));
        }
        if record.names(peer, StoreId(hello.store)) { Ok(peer) } else { Err(other_disk(peer)) }
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
}

/// Of one name there can be several clusters.
fn check_cluster(me: ServerId, record: &Record, hello: &Hello) -> Result<(), String> {
    let (here, server) = (record.cluster, hello.server);
    match hello.founded {
        Some(there) if there == here => Ok(()),
        Some(there) => Err(format!(
            "server {me} belongs to cluster {here}, and server {server} to cluster {there} of the same name: give each \
             cluster a farm's name of its own, and check the addresses of the peers"
        )),
        None => Err(format!("server {me} belongs to cluster {here}, and server {server} to none yet")),
    }
}

fn other_disk(server: ServerId) -> String {
    format!(
        "server {server} came back with another disk, so its votes are forgotten: bring back the data directory that it \
         had when its cluster was founded"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::founding::founded_with;

    fn identity(server: u64) -> Identity {
        Identity { cluster: "test".to_owned(), server: ServerId(server), store: [server as u8; 16], incarnation: 1 }
    }

    /// Server 1 or another one, in a cluster of these servers; each has the disk of its number.
    fn introductions(server: u64, cluster: &[u64]) -> Introductions {
        let disks = cluster.iter().map(|id| (ServerId(*id), [*id as u8; 16]));
        let peers = [1, 2, 3].map(ServerId).into_iter().filter(|id| id.0 != server);
        Introductions::new(identity(server), peers, founded_with(ServerId(server), disks))
    }

    #[test]
    fn only_a_member_of_the_same_cluster_with_the_disk_of_its_founding_is_let_in() {
        let me = introductions(1, &[1, 2, 3]);
        let hello =
            |server: u64, cluster: &[u64], purpose| introductions(server, cluster).hello(ServerId(1), purpose);
        let refused = |hello: Hello| me.identify(&hello, None).expect_err("it is not let in");
        for purpose in [Purpose::Control, Purpose::Questions, Purpose::Requests] {
            let member = hello(2, &[1, 2, 3], purpose);
            assert_eq!(me.identify(&member, None), Ok(ServerId(2)));
            let changed = |change: &dyn Fn(&mut Hello)| {
                let mut hello = member.clone();
                change(&mut hello);
                refused(hello)
            };
            assert!(changed(&|hello| hello.store = [7; 16]).contains("another disk"));
            assert!(changed(&|hello| hello.founded = None).contains("to none yet"));
            assert!(refused(hello(2, &[2], purpose)).contains("of the same name"));
            assert!(changed(&|hello| hello.server = ServerId(4)).contains("not among the peers"));
            assert!(changed(&|hello| hello.server = ServerId(1)).contains("two servers"));
        }
        // How far the founding is, every server of the farm may hear.
        let founder = hello(9, &[], Purpose::Founding);
        assert_eq!(me.check_founder(&founder, None), Ok(ServerId(9)));
        let empty = introductions(1, &[]);
        let member = hello(2, &[1, 2, 3], Purpose::Control);
        assert!(empty.identify(&member, None).is_err_and(|why| why.contains("does not belong to a cluster yet")));
    }
}
