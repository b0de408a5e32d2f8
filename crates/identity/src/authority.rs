//! A farm's authority: the key pair that gives the farm's nodes their names.
//!
//! Its certificate names its farm, and its hash is what people compare. Its private key is as good as the farm itself. A new
//! certificate needs the joiner's public key only.
//!
//! ```
//! use primus_core::ServerId;
//! use primus_identity::UnixTime;
//! use primus_identity::authority::{Authority, Request};
//! use primus_identity::certificate::{Certificate, Validity};
//! use primus_identity::keys::Keys;
//! use primus_identity::name::Name;
//!
//! let (now, keys) = (UnixTime::now(), Keys::generate().unwrap());
//! let north = Authority::create("north", now).unwrap();
//! let name = Name::server("north", ServerId(2)).unwrap();
//! let request = Request { name: &name, key: &keys.public_key(), api: &["10.0.0.2".try_into().unwrap()], serial: 7 };
//! let certificate = north.issue(&request, Validity::since_yesterday(now, 365)).unwrap();
//! assert_eq!(Certificate::read(&certificate).unwrap().name, name);
//! ```

use std::fmt;
use std::net::IpAddr;

use primus_core::names::is_name;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use time::OffsetDateTime;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use crate::certificate::{self, Validity};
use crate::hash::{AuthorityHash, hex};
use crate::keys::{self, KeyError, Keys, PublicKey};
use crate::name::{self, Name};

/// How many days a new authority is good.
const DAYS: u32 = 3652;
/// How many names and addresses of its API a node may have.
pub const API_NAMES_MAX: usize = 16;
/// The last second that a certificate can name.
const TIME_MAX: u64 = 253_402_300_799;
/// How many bytes of its key's fingerprint an authority has in its subject, so that two of one farm differ.
const MARK_LEN: usize = 8;

/// What is wrong with an authority, or with what it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// The key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The farm has no good name.
    #[error("the farm's name is 1 to 40 letters, digits, '-', '_' and '.', a letter or a digit first")]
    FarmName,
    /// Not the certificate of an authority of primus.
    #[error("this is not the certificate of a farm's authority")]
    NotAnAuthority,
    /// Key and certificate do not belong together.
    #[error("the private key is not the one of this authority's certificate")]
    OtherKey,
    /// An authority vouches for its own farm only.
    #[error("this is the authority of farm {there}, and farm {wanted} is asked for")]
    OtherFarm {
        /// Whose authority it is.
        there: String,
        /// The farm that it was asked for.
        wanted: String,
    },
    /// A neighbour's authority would name nodes of the own farm.
    #[error("this authority claims to be one of farm {0}, which is this farm: a neighbour has another name")]
    OwnFarm(String),
    /// Too many names.
    #[error("a node has at most {API_NAMES_MAX} names and addresses for its API")]
    Names,
    /// The time is beyond what a certificate can say.
    #[error("the time is after the year 9999: set the clock of this host")]
    Time,
    /// The library says no.
    #[error("the certificate cannot be made: {0}")]
    Library(String),
}

impl From<rcgen::Error> for AuthorityError {
    fn from(error: rcgen::Error) -> Self {
        Self::Library(error.to_string())
    }
}

/// What an authority is asked for: a certificate for one node.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Who the node is.
    pub name: &'a Name,
    /// Its public key.
    pub key: &'a PublicKey,
    /// Under which names and addresses its API is reached.
    pub api: &'a [ServerName<'static>],
    /// The number of the certificate; the ledger counts.
    pub serial: u64,
}

/// The public half of an authority: what others trust, and what a server shows to joiners.
#[derive(Clone)]
pub struct AuthorityCertificate {
    farm: String,
    der: CertificateDer<'static>,
    hash: AuthorityHash,
    key: PublicKey,
    anchor: TrustAnchor<'static>,
    validity: Validity,
}

impl AuthorityCertificate {
    /// Reads the certificate of an authority. Who trusts it must compare its [`hash`](Self::hash) first.
    pub fn from_der(der: &[u8]) -> Result<Self, AuthorityError> {
        let der = CertificateDer::from(der.to_vec());
        let no = AuthorityError::NotAnAuthority;
        let parsed = certificate::parse(&der).map_err(|_| no.clone())?;
        let farm = certificate::only_uri(&parsed).and_then(farm_of).ok_or_else(|| no.clone())?.to_owned();
        let key = certificate::key(&parsed.subject_public_key_info()).map_err(|_| no.clone())?;
        let validity = Validity::of(&parsed).map_err(|_| no.clone())?;
        let anchor = anchor_from_trusted_cert(&der).map_err(|_| no)?.to_owned();
        Ok(Self { farm, hash: AuthorityHash::of(&der), key, anchor, validity, der })
    }

    /// Reads what [`pem`](Self::pem) writes.
    pub fn from_pem(text: &str) -> Result<Self, AuthorityError> {
        let der = CertificateDer::from_pem_slice(text.as_bytes()).map_err(|_| AuthorityError::NotAnAuthority)?;
        Self::from_der(&der)
    }

    /// The certificate's DER.
    #[must_use]
    pub const fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// The certificate as text, for files and for browsers that shall trust the API.
    #[must_use]
    pub fn pem(&self) -> String {
        pem_of(&self.der)
    }

    /// The farm that it vouches for.
    #[must_use]
    pub fn farm(&self) -> &str {
        &self.farm
    }

    /// What it is recognised by.
    #[must_use]
    pub const fn hash(&self) -> AuthorityHash {
        self.hash
    }

    /// When it is good.
    #[must_use]
    pub const fn validity(&self) -> Validity {
        self.validity
    }

    /// True if this authority has signed the certificate, whatever the time is now. Nothing stands between the two, so no
    /// other certificate of the peer is looked at.
    /// With vouchers, it may also have signed one for the authority that has signed the certificate.
    pub(crate) fn has_signed(
        &self,
        leaf: &EndEntityCert<'_>,
        vouchers: &[CertificateDer<'_>],
        validity: Validity,
    ) -> bool {
        let (algorithms, anchors) = ([webpki::ring::ECDSA_P256_SHA256], [self.anchor.clone()]);
        let usage = KeyUsage::client_auth();
        leaf.verify_for_usage(&algorithms, &anchors, vouchers, validity.from, usage, None, None).is_ok()
    }
}

impl fmt::Debug for AuthorityCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AuthorityCertificate({}, {})", self.farm, self.hash)
    }
}

/// An authority with its private key. `{:?}` shows its certificate's hash only.
pub struct Authority {
    certificate: AuthorityCertificate,
    keys: Keys,
}

impl Authority {
    /// A new authority, for ten years from yesterday.
    pub fn create(farm: &str, now: UnixTime) -> Result<Self, AuthorityError> {
        if !is_name(farm) {
            return Err(AuthorityError::FarmName);
        }
        let keys = Keys::generate()?;
        let params = authority_params(farm, &keys.public_key(), Validity::since_yesterday(now, DAYS))?;
        let der = params.self_signed(keys.pair())?;
        Ok(Self { certificate: AuthorityCertificate::from_der(der.der())?, keys })
    }

    /// The authority of these two, which belong together.
    pub fn new(certificate: AuthorityCertificate, keys: Keys) -> Result<Self, AuthorityError> {
        if certificate.key == keys.public_key() {
            Ok(Self { certificate, keys })
        } else {
            Err(AuthorityError::OtherKey)
        }
    }

    /// Its public half.
    #[must_use]
    pub const fn certificate(&self) -> &AuthorityCertificate {
        &self.certificate
    }

    /// Its key pair: the ledger and the founding file keep it. It is a secret.
    #[must_use]
    pub const fn keys(&self) -> &Keys {
        &self.keys
    }

    /// A certificate for a node of this farm.
    pub fn issue(
        &self,
        request: &Request<'_>,
        validity: Validity,
    ) -> Result<CertificateDer<'static>, AuthorityError> {
        let (there, wanted) = (self.certificate.farm(), request.name.farm());
        if there != wanted {
            return Err(AuthorityError::OtherFarm { there: there.to_owned(), wanted: wanted.to_owned() });
        }
        let mut params = params(validity)?;
        params.distinguished_name.push(DnType::CommonName, request.name.node().to_string());
        params.serial_number = Some(SerialNumber::from(request.serial));
        params.subject_alt_names = names(request)?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages(request.name);
        params.use_authority_key_identifier_extension = true;
        Ok(params.signed_by(request.key, &self.issuer())?.into())
    }

    /// That the other authority is one of this farm, too, for those who know only this one. It is good for as long as this one.
    pub fn vouch_for(&self, other: &AuthorityCertificate) -> Result<CertificateDer<'static>, AuthorityError> {
        let (there, wanted) = (self.certificate.farm(), other.farm());
        if there != wanted {
            return Err(AuthorityError::OtherFarm { there: there.to_owned(), wanted: wanted.to_owned() });
        }
        let params = authority_params(there, &other.key, self.certificate.validity)?;
        Ok(params.signed_by(&other.key, &self.issuer())?.into())
    }

    fn issuer(&self) -> Issuer<'_, &rcgen::KeyPair> {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(self.certificate.farm(), &self.certificate.key);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Issuer::new(params, self.keys.pair())
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authority({}, {})", self.certificate.farm, self.certificate.hash)
    }
}

/// A certificate as text.
#[must_use]
pub fn pem_of(certificate: &CertificateDer<'_>) -> String {
    keys::pem("CERTIFICATE", certificate)
}

fn farm_of(uri: &str) -> Option<&str> {
    uri.strip_prefix("primus://")?.strip_suffix("/authority").filter(|farm| is_name(farm))
}

fn authority_params(farm: &str, key: &PublicKey, validity: Validity) -> Result<CertificateParams, AuthorityError> {
    let mut params = params(validity)?;
    params.distinguished_name = subject(farm, key);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params.subject_alt_names = vec![SanType::URI(ia5(&format!("primus://{farm}/authority"))?)];
    Ok(params)
}

fn params(validity: Validity) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    (params.not_before, params.not_after) = (date(validity.from)?, date(validity.until)?);
    Ok(params)
}

fn date(time: UnixTime) -> Result<OffsetDateTime, AuthorityError> {
    let seconds = i64::try_from(time.as_secs()).ok().filter(|_| time.as_secs() <= TIME_MAX);
    OffsetDateTime::from_unix_timestamp(seconds.ok_or(AuthorityError::Time)?).map_err(|_| AuthorityError::Time)
}

/// The same at every start, because every certificate repeats it as its issuer.
fn subject(farm: &str, key: &PublicKey) -> DistinguishedName {
    let mark = hex(&key.fingerprint().bytes()[..MARK_LEN]);
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, format!("primus {farm} {mark}"));
    subject
}

fn names(request: &Request<'_>) -> Result<Vec<SanType>, AuthorityError> {
    if request.api.len() > API_NAMES_MAX {
        return Err(AuthorityError::Names);
    }
    let own = request.name.server_id().map(name::dial);
    let mut names = vec![SanType::URI(ia5(&request.name.uri())?)];
    for name in own.iter().chain(request.api) {
        names.push(match name {
            ServerName::IpAddress(address) => SanType::IpAddress(IpAddr::from(*address)),
            name => SanType::DnsName(ia5(&name.to_str())?),
        });
    }
    Ok(names)
}

/// Servers are dialled and dial; workers only dial.
fn usages(name: &Name) -> Vec<ExtendedKeyUsagePurpose> {
    let server = name.server_id().map(|_| ExtendedKeyUsagePurpose::ServerAuth);
    server.into_iter().chain([ExtendedKeyUsagePurpose::ClientAuth]).collect()
}

fn ia5(text: &str) -> Result<Ia5String, AuthorityError> {
    Ok(Ia5String::try_from(text)?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use primus_core::ServerId;

    use super::*;
    use crate::certificate::Certificate;

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    fn now() -> UnixTime {
        at(1_800_000_000)
    }

    fn issued(authority: &Authority, name: &Name, serial: u64) -> Certificate {
        let key = Keys::generate().unwrap().public_key();
        let request = Request { name, key: &key, api: &[], serial };
        let certificate = authority.issue(&request, Validity::since_yesterday(now(), 365)).unwrap();
        let read = Certificate::read(&certificate).unwrap();
        assert_eq!(read.key, key);
        read
    }

    #[test]
    fn a_certificate_says_what_was_asked_for() {
        let north = Authority::create("north", now()).unwrap();
        let name = Name::worker("north", &"w".repeat(40)).unwrap();
        for serial in [0, 1, 127, 128, 255, 256, u64::MAX] {
            let read = issued(&north, &name, serial);
            assert_eq!((read.serial, &read.name), (serial, &name));
            assert_eq!(read.validity, Validity::since_yesterday(now(), 365));
        }
    }

    #[test]
    fn a_server_has_names_for_diallers_and_for_its_api() {
        let (north, keys) = (Authority::create("north", now()).unwrap(), Keys::generate().unwrap());
        let name = Name::server("north", ServerId(2)).unwrap();
        let api: Vec<ServerName<'static>> =
            ["10.0.0.2", "fd00::2", "north.example"].map(|text| text.try_into().unwrap()).into();
        let request = Request { name: &name, key: &keys.public_key(), api: &api, serial: 1 };
        let certificate = north.issue(&request, Validity::since_yesterday(now(), 365)).unwrap();
        let parsed = certificate::parse(&certificate).unwrap();
        for good in api.iter().chain([&name::dial(ServerId(2))]) {
            assert!(parsed.verify_is_valid_for_subject_name(good).is_ok(), "{good:?}");
        }
        assert!(parsed.verify_is_valid_for_subject_name(&name::dial(ServerId(3))).is_err());
        let many = vec![api[0].clone(); API_NAMES_MAX + 1];
        let refused = north.issue(&Request { api: &many, ..request }, Validity::since_yesterday(now(), 365));
        assert_eq!(refused, Err(AuthorityError::Names));
    }

    #[test]
    fn an_authority_names_nodes_of_its_own_farm_only() {
        let south = Authority::create("south", now()).unwrap();
        let key = Keys::generate().unwrap().public_key();
        let name = Name::server("north", ServerId(1)).unwrap();
        let request = Request { name: &name, key: &key, api: &[], serial: 1 };
        let refused = south.issue(&request, Validity::since_yesterday(now(), 365)).unwrap_err();
        assert_eq!(refused.to_string(), "this is the authority of farm south, and farm north is asked for");
    }

    #[test]
    fn an_authority_survives_its_files() {
        let north = Authority::create("north", now()).unwrap();
        let public = AuthorityCertificate::from_pem(&north.certificate().pem()).unwrap();
        assert_eq!((public.farm(), public.hash()), ("north", north.certificate().hash()));
        assert_eq!(public.validity(), Validity::since_yesterday(now(), DAYS));
        let again = Authority::new(public, Keys::from_pem(&north.keys().secret_pem()).unwrap()).unwrap();
        let name = Name::server("north", ServerId(2)).unwrap();
        let key = Keys::generate().unwrap().public_key();
        let request = Request { name: &name, key: &key, api: &[], serial: 1 };
        let validity = Validity::since_yesterday(now(), 365);
        let certificate = again.issue(&request, validity).unwrap();
        assert!(north.certificate().has_signed(&certificate::parse(&certificate).unwrap(), &[], validity));
        let other = Keys::generate().unwrap();
        assert_eq!(Authority::new(north.certificate().clone(), other).unwrap_err(), AuthorityError::OtherKey);
    }

    #[test]
    fn two_authorities_of_a_farm_differ() {
        let [one, two] = [(); 2].map(|()| Authority::create("north", now()).unwrap());
        assert_ne!(one.certificate().hash(), two.certificate().hash());
        assert_ne!(one.certificate().anchor.subject, two.certificate().anchor.subject);
    }

    #[test]
    fn a_nodes_certificate_is_not_an_authority() {
        let north = Authority::create("north", now()).unwrap();
        let (name, key) = (Name::server("north", ServerId(2)).unwrap(), Keys::generate().unwrap().public_key());
        let request = Request { name: &name, key: &key, api: &[], serial: 1 };
        let certificate = north.issue(&request, Validity::since_yesterday(now(), 365)).unwrap();
        for wrong in [&certificate[..], b"", b"no certificate"] {
            assert_eq!(AuthorityCertificate::from_der(wrong).unwrap_err(), AuthorityError::NotAnAuthority);
        }
        assert!(Certificate::read(north.certificate().der()).is_err());
    }

    #[test]
    fn strange_names_and_times_are_refused() {
        assert_eq!(Authority::create("a/b", now()).unwrap_err(), AuthorityError::FarmName);
        assert_eq!(Authority::create("north", at(u64::MAX)).unwrap_err(), AuthorityError::Time);
        assert_eq!(Authority::create("north", at(TIME_MAX)).unwrap_err(), AuthorityError::Time);
        let old = Authority::create("north", at(0)).unwrap();
        assert_eq!(old.certificate().validity().from, at(0));
        assert!(Authority::create(&"n".repeat(40), at(3_000_000_000)).is_ok());
    }

    #[test]
    fn the_private_key_is_shown_nowhere() {
        let north = Authority::create("north", now()).unwrap();
        assert_eq!(format!("{north:?}"), format!("Authority(north, {})", north.certificate().hash()));
    }
}
