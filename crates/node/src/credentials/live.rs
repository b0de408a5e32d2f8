//! What a node shows of itself and whom it believes, as it is now. Both change while the node runs: its certificate is renewed,
//! authorities come and go, and the roll names those who are not welcome any more. Each handshake uses what there is when it begins;
//! links that are up stay, unless the one at the other end is not welcome any more.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::task::{Context, Poll};

use primus_core::ledger::Roll;
use primus_core::ledger::roll::{self, Fingerprint, Node, SecretKey, Unwelcome};
use primus_identity::CertificateDer;
use primus_identity::authority::{Authority, AuthorityCertificate, AuthorityError};
use primus_identity::certificate::{DAY, Present, RENEW_AFTER};
use primus_identity::config::{self, Credentials};
use primus_identity::hash::AuthorityHash;
use primus_identity::keys::Keys;
use primus_identity::name;
use primus_identity::peer::{self, Caller};
use primus_identity::refusal::Refusal;
use primus_identity::rustls::{ClientConfig, ServerConfig, ServerConnection};
use primus_identity::trust::{Identified, Trust};
use primus_identity::verify::Clock;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::farm_clock::FarmClock;
use super::folder::{DAYS, Folder, Trusted};

/// A node's name with its key, and those whom it believes.
#[derive(Debug)]
pub struct Tls {
    live: Arc<Live>,
    /// Those who name the nodes of other farms.
    neighbours: RwLock<Vec<AuthorityCertificate>>,
    shown: Mutex<Option<Arc<Shown>>>,
}

/// What changes while a node runs. Its links abroad have it in common with those at home.
pub(crate) struct Live {
    farm: String,
    /// Nothing if it can get no other certificate.
    keeping: Option<(Arc<Keys>, Folder)>,
    own: RwLock<Arc<Own>>,
    /// One change after the other: each may wait for the disk, and handshakes do not wait for that.
    changes: Mutex<()>,
    /// Those who are not welcome any more, once the node's ledger is there.
    roll: OnceLock<watch::Receiver<Arc<Roll>>>,
    clock: Arc<FarmClock>,
    /// The authority with which the farm began, as long as the ledger has none.
    founding: Mutex<Option<Authority>>,
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Live({:?})", self.own())
    }
}

/// What a node has of its own farm.
#[derive(Debug, Clone)]
struct Own {
    /// Each change has the next number.
    number: u64,
    credentials: Credentials,
    trusted: Trusted,
}

/// What a handshake needs.
#[derive(Debug)]
pub(crate) struct Shown {
    number: u64,
    credentials: Credentials,
    trust: Arc<Trust>,
    accepting: Arc<ServerConfig>,
    dialling: Arc<ClientConfig>,
    clock: Arc<FarmClock>,
}

/// A certificate that an authority has issued, with what is shown beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Issued {
    /// The certificate, as DER.
    pub(crate) certificate: Vec<u8>,
    /// That of the authority.
    pub(crate) authority: Vec<u8>,
    /// What vouches for the authority; empty for the first one of a farm.
    pub(crate) voucher: Vec<u8>,
}

impl Tls {
    /// A node that shows this certificate, and cannot renew it.
    #[cfg(test)]
    fn fixed(credentials: Credentials, farm: &str, own: AuthorityCertificate) -> Result<Self, AuthorityError> {
        let trusted = Trusted { authorities: vec![own], ..Trusted::default() };
        Self::of_live(Live::new(farm, credentials, trusted, None), Vec::new())
    }

    /// A node that keeps what it shows in this folder.
    pub(super) fn kept(
        farm: &str,
        (credentials, trusted): (Credentials, Trusted),
        keeping: (Arc<Keys>, Folder),
    ) -> Result<Self, AuthorityError> {
        Self::of_live(Live::new(farm, credentials, trusted, Some(keeping)), Vec::new())
    }

    /// The node of this name, as this authority names it.
    #[cfg(test)]
    pub(crate) fn of(authority: &Authority, name: &name::Name) -> super::Security {
        use primus_identity::UnixTime;
        use primus_identity::authority::Request;
        use primus_identity::certificate::Validity;

        let keys = Keys::generate().expect("there is randomness");
        let request = Request { name, key: &keys.public_key(), api: &[], serial: 7 };
        let der = authority.issue(&request, Validity::since_yesterday(UnixTime::now(), 365));
        let credentials = Credentials::new(der.expect("it is its farm"), authority.certificate(), &keys);
        let credentials = credentials.expect("it was issued for it");
        let own = authority.certificate().clone();
        super::Security::Tls(Arc::new(Self::fixed(credentials, name.farm(), own).expect("it is its farm")))
    }

    /// The same node, that believes these authorities about their farms, beside its own.
    pub(crate) fn trusting(&self, neighbours: Vec<AuthorityCertificate>) -> Result<Self, AuthorityError> {
        Self::of_live(Arc::clone(&self.live), neighbours)
    }

    fn of_live(live: Arc<Live>, neighbours: Vec<AuthorityCertificate>) -> Result<Self, AuthorityError> {
        live.check(&neighbours)?;
        Ok(Self { live, neighbours: RwLock::new(neighbours), shown: Mutex::new(None) })
    }

    /// From now on it believes these authorities about their farms, beside its own.
    pub(super) fn set_neighbours(&self, neighbours: Vec<AuthorityCertificate>) -> Result<(), AuthorityError> {
        self.live.check(&neighbours)?;
        let mut shown = self.shown.lock().expect("nobody panics while holding this");
        *self.neighbours.write().expect("nobody panics while holding this") = neighbours;
        *shown = None;
        Ok(())
    }

    pub(crate) const fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// What a handshake that begins now needs.
    pub(crate) fn shown(&self) -> Arc<Shown> {
        let own = self.live.own();
        let mut shown = self.shown.lock().expect("nobody panics while holding this");
        match &*shown {
            Some(present) if present.number == own.number => Arc::clone(present),
            _ => {
                let present = Arc::new(self.shown_of(&own));
                *shown = Some(Arc::clone(&present));
                present
            }
        }
    }

    fn shown_of(&self, own: &Own) -> Shown {
        let neighbours = self.neighbours.read().expect("nobody panics while holding this").clone();
        let trust = Trust::new(&self.live.farm, own.trusted.authorities.clone(), neighbours);
        let former = self.live.roll.get().map(|roll| roll.borrow().former().to_vec()).unwrap_or_default();
        let former = former.into_iter().map(|hash| AuthorityHash::from_bytes(hash.0).short()).collect();
        let trust = Arc::new(trust.expect("their farms were looked at").after(former));
        let clock = || Arc::clone(&self.live.clock) as Arc<dyn Clock>;
        Shown {
            number: own.number,
            credentials: own.credentials.clone(),
            accepting: config::accepting(&own.credentials, &trust, clock()),
            dialling: config::dialling(&own.credentials, &trust, &self.live.farm, clock()),
            trust,
            clock: Arc::clone(&self.live.clock),
        }
    }

    /// Who calls.
    pub(crate) fn caller(&self, connection: &ServerConnection, shown: &Shown) -> Result<Caller, Refusal> {
        // What the roll says is looked at with the hello, so that the caller hears why it is refused.
        peer::caller(connection, &shown.trust, &|_: &Identified| Ok(()), shown.present())
    }
}

impl Shown {
    pub(crate) fn accepting(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.accepting)
    }

    /// How to dial servers of a farm.
    pub(crate) fn dialling(&self, farm: &str) -> Arc<ClientConfig> {
        if farm == self.trust.farm() {
            return Arc::clone(&self.dialling);
        }
        config::dialling(&self.credentials, &self.trust, farm, Arc::clone(&self.clock) as Arc<dyn Clock>)
    }

    #[cfg(test)]
    pub(super) fn certificate(&self) -> &primus_identity::certificate::Certificate {
        self.credentials.certificate()
    }

    pub(crate) const fn trust(&self) -> &Arc<Trust> {
        &self.trust
    }

    pub(crate) fn present(&self) -> Present {
        self.clock.present()
    }
}

impl Live {
    fn new(
        farm: &str,
        credentials: Credentials,
        trusted: Trusted,
        keeping: Option<(Arc<Keys>, Folder)>,
    ) -> Arc<Self> {
        let clock = Arc::<FarmClock>::default();
        clock.live_within(credentials.certificate().validity);
        clock.at_least(trusted.as_of_ms);
        let own = RwLock::new(Arc::new(Own { number: 0, credentials, trusted }));
        Arc::new(Self {
            farm: farm.to_owned(),
            keeping,
            own,
            changes: Mutex::new(()),
            roll: OnceLock::new(),
            clock,
            founding: Mutex::new(None),
        })
    }

    /// Are these authorities of other farms?
    fn check(&self, neighbours: &[AuthorityCertificate]) -> Result<(), AuthorityError> {
        Trust::new(&self.farm, self.own().trusted.authorities.clone(), neighbours.to_vec()).map(|_| ())
    }

    fn own(&self) -> Arc<Own> {
        Arc::clone(&self.own.read().expect("nobody panics while holding this"))
    }

    fn set(&self, own: Own) {
        *self.own.write().expect("nobody panics while holding this") = Arc::new(own);
    }

    /// The farm began with this authority, if this node knows its key.
    pub(super) fn found(&self, authority: Option<Authority>) {
        *self.founding.lock().expect("nobody panics while holding this") = authority;
    }

    /// The authority that a ledger without one is to get, if this node knows its key.
    pub(crate) fn founding(&self) -> Option<roll::Authority> {
        let founding = self.founding.lock().expect("nobody panics while holding this");
        founding.as_ref().map(|authority| entry_of(authority, Vec::new()))
    }

    /// The ledger has an authority, so nothing of that need be kept here. It may have to wait for the disk.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub(crate) fn forget_founding(&self) -> io::Result<()> {
        let mut founding = self.founding.lock().expect("nobody panics while holding this");
        if let (Some(_), Some((_, folder))) = (&*founding, &self.keeping) {
            folder.forget_founding()?;
        }
        *founding = None;
        Ok(())
    }

    /// From now on this says who is not welcome.
    pub(crate) fn ask(&self, roll: watch::Receiver<Arc<Roll>>) {
        // There is one roll for each node.
        _ = self.roll.set(roll);
    }

    pub(crate) fn farm(&self) -> &str {
        &self.farm
    }

    pub(crate) const fn clock(&self) -> &Arc<FarmClock> {
        &self.clock
    }

    /// Who this node is.
    pub(crate) fn name(&self) -> name::Name {
        self.own().credentials.certificate().name.clone()
    }

    /// Its public key, if it can get another certificate.
    pub(crate) fn public_key(&self) -> Option<Vec<u8>> {
        self.keeping.as_ref().map(|(keys, _)| keys.public_key().der().to_vec())
    }

    /// The authority that has issued its certificate.
    pub(crate) fn issuer(&self) -> AuthorityHash {
        self.own().credentials.issuer()
    }

    /// Is its certificate old, or from an authority that is not the newest?
    pub(crate) fn is_renewal_due(&self) -> bool {
        let own = self.own();
        let newest = own.trusted.authorities.first().map(AuthorityCertificate::hash);
        let validity = own.credentials.certificate().validity;
        // What a founding file gave may be good for much longer than it should.
        let is_long = validity.until.as_secs() - validity.from.as_secs() > (DAY * DAYS + RENEW_AFTER).as_secs();
        let is_old = validity.is_renewal_due(self.clock.now());
        self.keeping.is_some()
            && (is_old || is_long || newest.is_some_and(|newest| newest != own.credentials.issuer()))
    }

    /// Believes these authorities of the own farm, the newest first, as they were at a time of the ledger; not what was known before
    /// already. It may have to wait for the disk.
    ///
    /// # Errors
    /// If that cannot be written down.
    pub(crate) fn believe(&self, as_of_ms: u64, authorities: Vec<AuthorityCertificate>) -> io::Result<()> {
        let _change = self.changes.lock().expect("nobody panics while holding this");
        let own = self.own();
        let known = &own.trusted;
        let is_of_farm = authorities.iter().all(|authority| authority.farm() == self.farm);
        if as_of_ms < known.as_of_ms || authorities.is_empty() || !is_of_farm {
            return Ok(());
        }
        let hashes = |all: &[AuthorityCertificate]| all.iter().map(AuthorityCertificate::hash).collect::<Vec<_>>();
        let is_same = hashes(&known.authorities) == hashes(&authorities);
        let trusted = known.followed_by(as_of_ms, authorities);
        if is_same {
            // Nothing changes for links.
            self.set(Own { trusted, ..Own::clone(&own) });
            return Ok(());
        }
        if let Some((_, folder)) = &self.keeping {
            folder.keep_trusted(&trusted)?;
        }
        self.set(Own { number: own.number + 1, trusted, credentials: own.credentials.clone() });
        Ok(())
    }

    /// Shows this certificate from now on. It may have to wait for the disk.
    ///
    /// # Errors
    /// If it is not for this node, or cannot be written down.
    pub(crate) fn renew(&self, issued: &Issued) -> io::Result<()> {
        let Some((keys, folder)) = &self.keeping else { return Ok(()) };
        let authority = AuthorityCertificate::from_der(&issued.authority).map_err(io::Error::other)?;
        let der = CertificateDer::from(issued.certificate.clone());
        let credentials = Credentials::new(der, &authority, keys).map_err(io::Error::other)?;
        let _change = self.changes.lock().expect("nobody panics while holding this");
        let own = self.own();
        let (before, certificate) = (own.credentials.certificate(), credentials.certificate());
        let is_believed = own.trusted.authorities.iter().any(|known| known.hash() == authority.hash());
        if certificate.name != before.name || !is_believed {
            return Err(io::Error::other("a certificate came that is not for this node"));
        }
        let validity = certificate.validity;
        folder.keep_certificate(&issued.certificate, &authority, &issued.voucher)?;
        self.clock.live_within(validity);
        let credentials = vouched(credentials, &issued.voucher);
        self.set(Own { number: own.number + 1, credentials, trusted: own.trusted.clone() });
        Ok(())
    }

    /// What the roll has against a node of this farm.
    pub(crate) fn look_up(&self, who: &Identified) -> Result<(), Refusal> {
        let Some(roll) = self.roll.get().filter(|_| who.name.farm() == self.farm) else { return Ok(()) };
        match roll.borrow().object_to(&node_of(&who.name), &Fingerprint(*who.key.bytes()), who.serial) {
            // A node that an authority of this farm has named may have its name.
            Ok(()) | Err(Unwelcome::Unbound) => Ok(()),
            Err(Unwelcome::Revoked) => Err(Refusal::Revoked { name: who.name.clone(), serial: who.serial }),
            Err(Unwelcome::OtherKey) => Err(Refusal::AnotherKey(who.name.clone())),
        }
    }

    /// For how long a node is welcome.
    pub(crate) fn welcome(self: &Arc<Self>, who: &Identified) -> Option<Welcome> {
        let mut roll = self.roll.get().filter(|_| who.name.farm() == self.farm)?.clone();
        roll.mark_unchanged();
        let (live, who) = (Arc::clone(self), who.clone());
        Some(Welcome(Box::pin(async move {
            loop {
                if roll.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                if let Err(refusal) = live.look_up(&who) {
                    return refusal;
                }
            }
        })))
    }
}

/// Lasts until the roll has something against a node.
pub(crate) struct Welcome(Pin<Box<dyn Future<Output = Refusal> + Send + Sync>>);

impl fmt::Debug for Welcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Welcome")
    }
}

impl Welcome {
    /// Why it is over. It is not to be asked again.
    pub(crate) fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<Refusal> {
        self.0.as_mut().poll(context)
    }
}

/// An authority as the roll keeps it, with what vouches for it.
#[must_use]
pub fn entry_of(authority: &Authority, voucher: Vec<u8>) -> roll::Authority {
    let certificate = authority.certificate();
    roll::Authority {
        certificate: certificate.der().to_vec(),
        hash: Fingerprint(*certificate.hash().bytes()),
        key: SecretKey(authority.keys().secret_der().to_vec()),
        voucher,
    }
}

/// A node as the roll names it.
fn node_of(name: &name::Name) -> Node {
    match name.node() {
        name::Node::Server(id) => Node::Server(*id),
        name::Node::Worker(worker) => Node::Worker(worker.clone()),
    }
}

/// Shows what vouches for the authority, too, if anything does.
pub(super) fn vouched(credentials: Credentials, voucher: &[u8]) -> Credentials {
    match voucher {
        [] => credentials,
        voucher => credentials.with_voucher(CertificateDer::from(voucher.to_vec())),
    }
}
