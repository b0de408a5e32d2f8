//! The settings of rustls for links: TLS 1.3 only, nothing resumed, and every name checked.
//!
//! Settings are made anew, cheaply, when a certificate is renewed or an authority comes or goes; links that are up keep
//! theirs. Resumption would skip the look at the ledger, so there are neither tickets nor early data.
//!
//! ```
//! use std::sync::Arc;
//! use primus_core::ServerId;
//! use primus_identity::UnixTime;
//! use primus_identity::authority::{Authority, Request};
//! use primus_identity::certificate::Validity;
//! use primus_identity::config::{self, Credentials};
//! use primus_identity::{keys::Keys, name::Name, trust::Trust, verify::HostClock};
//!
//! let (now, keys) = (UnixTime::now(), Keys::generate().unwrap());
//! let north = Authority::create("north", now).unwrap();
//! let name = Name::server("north", ServerId(2)).unwrap();
//! let request = Request { name: &name, key: &keys.public_key(), api: &[], serial: 7 };
//! let certificate = north.issue(&request, Validity::since_yesterday(now, 365)).unwrap();
//! let credentials = Credentials::new(certificate, north.certificate(), &keys).unwrap();
//!
//! let trust = Arc::new(Trust::new("north", vec![north.certificate().clone()], vec![]).unwrap());
//! let accepting = config::accepting(&credentials, &trust, Arc::new(HostClock));
//! let dialling = config::dialling(&credentials, &trust, "north", Arc::new(HostClock));
//! # let _ = (accepting, dialling);
//! ```

use std::fmt;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};

use crate::authority::AuthorityCertificate;
use crate::certificate::{self, Certificate};
use crate::hash::AuthorityHash;
use crate::keys::Keys;
use crate::refusal::Refusal;
use crate::trust::Trust;
use crate::verify::{Clock, JudgeCaller, JudgeInviter, JudgeServer, Pin, RustlsClock};

/// The protocol of links between nodes that have names (ALPN).
pub const LINK: &[u8] = b"primus";
/// The protocol of joiners (ALPN).
pub const JOIN: &[u8] = b"primus-join";

/// A node's certificate with its private key, as it proves who it is. Clones are cheap.
#[derive(Clone)]
pub struct Credentials {
    certificate: Certificate,
    issuer: AuthorityHash,
    certified: Arc<CertifiedKey>,
}

impl Credentials {
    /// The certificate that this authority gave for this key. Whether now is its time is left to the peers.
    pub fn new(
        der: CertificateDer<'static>,
        authority: &AuthorityCertificate,
        keys: &Keys,
    ) -> Result<Self, Refusal> {
        let certificate = Certificate::read(&der)?;
        if certificate.key != keys.public_key() {
            return Err(Refusal::BadCertificate("its private key is another one"));
        }
        let is_its = certificate.name.farm() == authority.farm();
        if !is_its || !authority.has_signed(&certificate::parse(&der)?, &[], certificate.validity) {
            return Err(Refusal::ForeignAuthority);
        }
        // Joiners know the authority by its hash only, so a server shows them all of it.
        let chain = vec![der, authority.der().clone()];
        let issuer = authority.hash();
        Ok(Self { certificate, issuer, certified: Arc::new(CertifiedKey::new(chain, keys.signing_key())) })
    }

    /// The same, that shows with its authority what vouches for that one.
    #[must_use]
    pub fn with_voucher(&self, voucher: CertificateDer<'static>) -> Self {
        let chain = self.chain().iter().take(2).cloned().chain([voucher]).collect();
        let certified = CertifiedKey::new(chain, Arc::clone(&self.certified.key));
        Self { certified: Arc::new(certified), ..self.clone() }
    }

    /// What the certificate says.
    #[must_use]
    pub const fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// The authority that has issued the certificate.
    #[must_use]
    pub const fn issuer(&self) -> AuthorityHash {
        self.issuer
    }

    /// The certificate's DER, and that of its authority.
    #[must_use]
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.certified.cert
    }

    fn resolver(&self) -> Arc<SingleCertAndKey> {
        Arc::new(self.certified.clone().into())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({}, serial {})", self.certificate.name, self.certificate.serial)
    }
}

/// How a server accepts links. Joiners come without a certificate, so TLS does not insist on one:
/// [`peer::caller`](crate::peer::caller) does, and no byte of a caller may be read before it has spoken.
#[must_use]
pub fn accepting(credentials: &Credentials, trust: &Arc<Trust>, clock: Arc<dyn Clock>) -> Arc<ServerConfig> {
    let judge = JudgeCaller { trust: trust.clone(), clock: RustlsClock(Arc::clone(&clock)) };
    let builder = ServerConfig::builder_with_details(provider(), Arc::new(RustlsClock(clock)));
    let mut config = builder
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has TLS 1.3")
        .with_client_cert_verifier(Arc::new(judge))
        .with_cert_resolver(credentials.resolver());
    config.alpn_protocols = vec![LINK.to_vec(), JOIN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Arc::new(config)
}

/// How a node dials servers of this farm, its own or a neighbour: with [`name::dial`](crate::name::dial) or
/// [`name::dial_any`](crate::name::dial_any).
#[must_use]
pub fn dialling(
    credentials: &Credentials,
    trust: &Arc<Trust>,
    farm: &str,
    clock: Arc<dyn Clock>,
) -> Arc<ClientConfig> {
    let judge = JudgeServer { trust: trust.clone(), farm: farm.to_owned(), clock: RustlsClock(Arc::clone(&clock)) };
    let builder = client(clock).dangerous().with_custom_certificate_verifier(Arc::new(judge));
    Arc::new(plain(builder.with_client_cert_resolver(credentials.resolver()), LINK))
}

/// How a joiner dials: without a certificate, and only a server of the authority that it expects. After the handshake,
/// [`peer::inviter`](crate::peer::inviter) says who that is.
#[must_use]
pub fn joining(authority: Pin, clock: Arc<dyn Clock>) -> Arc<ClientConfig> {
    let builder = client(clock).dangerous().with_custom_certificate_verifier(Arc::new(JudgeInviter(authority)));
    Arc::new(plain(builder.with_no_client_auth(), JOIN))
}

fn client(clock: Arc<dyn Clock>) -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    let builder = ClientConfig::builder_with_details(provider(), Arc::new(RustlsClock(clock)));
    builder.with_protocol_versions(&[&TLS13]).expect("the provider has TLS 1.3")
}

fn plain(mut config: ClientConfig, protocol: &[u8]) -> ClientConfig {
    config.alpn_protocols = vec![protocol.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    config
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
