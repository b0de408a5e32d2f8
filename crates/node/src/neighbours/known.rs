//! Which farms are neighbours, where their servers are, and who names their nodes. It stands in the configuration of a server, or
//! in the roll. If both name a farm, the roll counts: all servers have it, and it is newer.

use std::collections::BTreeMap;

use bytes::Bytes;
use primus_core::ledger::{Roll, roll};
use primus_core::{Place, ServerId};
use primus_identity::authority::AuthorityCertificate;
use primus_identity::hash::AuthorityHash;
use primus_server::plan;

/// The neighbours of a farm, as one of its servers knows them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Neighbourhood {
    /// The authority of the own farm; nothing if links are plain.
    pub own: Option<AuthorityHash>,
    /// The others, by name.
    pub farms: BTreeMap<String, Neighbour>,
}

/// Where it stands that a farm is a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// In the configuration of this server.
    File,
    /// In the roll: `primus neighbours trust` was said.
    Roll,
}

/// A neighbour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// Where that stands.
    pub origin: Origin,
    /// Where its servers are reached.
    pub servers: BTreeMap<ServerId, Place>,
    /// SHA-256 of the certificate of its authority, if that is known.
    pub hash: Option<AuthorityHash>,
    /// That certificate, as DER; nothing until it was fetched.
    pub certificate: Option<Bytes>,
}

impl Neighbour {
    /// A farm that the configuration names. It may have named the file with the certificate, too.
    pub(super) fn of_file(known: &plan::Neighbour, authority: Option<&AuthorityCertificate>) -> Self {
        let named = known.authority.map(|hash| AuthorityHash::from_bytes(hash.0));
        Self {
            origin: Origin::File,
            servers: known.servers.clone(),
            hash: authority.map(AuthorityCertificate::hash).or(named),
            certificate: authority.map(|authority| Bytes::copy_from_slice(authority.der())),
        }
    }

    fn of_roll(known: &roll::Neighbour) -> Self {
        let certificate = Some(&known.certificate).filter(|certificate| !certificate.is_empty());
        Self {
            origin: Origin::Roll,
            servers: known.servers.iter().filter_map(|(id, text)| Some((*id, text.parse().ok()?))).collect(),
            hash: Some(AuthorityHash::from_bytes(known.hash.0)),
            certificate: certificate.map(|certificate| Bytes::copy_from_slice(certificate)),
        }
    }

    /// Its authority, if the certificate is here.
    pub(super) fn authority(&self) -> Option<AuthorityCertificate> {
        AuthorityCertificate::from_der(self.certificate.as_deref()?).ok()
    }
}

/// All neighbours, with the certificates that were fetched since this server started.
pub(super) fn all(
    configured: &BTreeMap<String, Neighbour>,
    roll: &Roll,
    fetched: &BTreeMap<AuthorityHash, Bytes>,
) -> BTreeMap<String, Neighbour> {
    let trusted = roll.neighbours().iter().map(|(name, known)| (name.clone(), Neighbour::of_roll(known)));
    let mut farms: BTreeMap<String, Neighbour> = configured.clone().into_iter().chain(trusted).collect();
    for farm in farms.values_mut().filter(|farm| farm.certificate.is_none()) {
        farm.certificate = farm.hash.and_then(|hash| fetched.get(&hash).cloned());
    }
    farms
}
