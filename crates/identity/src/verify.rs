//! The rules of [`trust`](crate::trust) inside rustls, for both ends of a handshake, and the time by which they are judged.
//!
//! An authority signs its nodes' certificates itself; while a farm changes to another one, a voucher may stand between. A dialler judges before it shows its
//! own certificate. Signatures are ECDSA P-256 with SHA-256, like everything else here.
//!
//! ```
//! use primus_identity::UnixTime;
//! use primus_identity::verify::{Clock, HostClock};
//!
//! let agreed: Option<UnixTime> = None; // what the ledger says, if it says anything yet
//! let clock = move || agreed.unwrap_or_else(|| HostClock.now());
//! assert!(clock.now().as_secs() > 0);
//! ```

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::authority::AuthorityCertificate;
use crate::certificate::Present;
use crate::hash::{AuthorityHash, ShortHash};
use crate::name;
use crate::refusal::Refusal;
use crate::trust::{Identified, Trust};

const ALGORITHMS: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &[webpki::ring::ECDSA_P256_SHA256],
    mapping: &[(SignatureScheme::ECDSA_NISTP256_SHA256, &[webpki::ring::ECDSA_P256_SHA256])],
};

/// The time by which certificates are judged: the ledger's if it is known, else the host's. Closures are clocks.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> UnixTime;

    /// The same, where it is not known for sure.
    fn present(&self) -> Present {
        self.now().into()
    }
}

impl<F: Fn() -> UnixTime + Send + Sync> Clock for F {
    fn now(&self) -> UnixTime {
        self()
    }
}

/// The clock of this host, for nodes that know no better one yet.
#[derive(Debug, Clone, Copy)]
pub struct HostClock;

impl Clock for HostClock {
    fn now(&self) -> UnixTime {
        UnixTime::now()
    }
}

/// A clock as rustls wants it.
pub(crate) struct RustlsClock(pub(crate) Arc<dyn Clock>);

impl fmt::Debug for RustlsClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RustlsClock({})", self.0.now().as_secs())
    }
}

impl TimeProvider for RustlsClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(self.0.now())
    }
}

/// What a server thinks of callers. A caller without a certificate may want to join: see [`peer`](crate::peer).
#[derive(Debug)]
pub(crate) struct JudgeCaller {
    pub(crate) trust: Arc<Trust>,
    pub(crate) clock: RustlsClock,
}

/// What a dialler thinks of who answers: it must be a server of this farm, and the one that was dialled.
#[derive(Debug)]
pub(crate) struct JudgeServer {
    pub(crate) trust: Arc<Trust>,
    pub(crate) farm: String,
    pub(crate) clock: RustlsClock,
}

/// What a joiner thinks of who answers: it must be a server, named by the one authority that the token names.
#[derive(Debug)]
pub(crate) struct JudgeInviter(pub(crate) Pin);

/// The authority that a joiner expects.
#[derive(Debug, Clone, Copy)]
pub enum Pin {
    /// As a token says it.
    Short(ShortHash),
    /// As `primus neighbours trust` says it.
    Whole(AuthorityHash),
}

impl Pin {
    fn matches(self, hash: &AuthorityHash) -> bool {
        match self {
            Self::Short(short) => short.matches(hash),
            Self::Whole(whole) => whole == *hash,
        }
    }

    /// Who answers, and the authority that it shows. The name counts only if the authority is the expected one.
    pub(crate) fn judge(
        self,
        leaf: &CertificateDer<'_>,
        shown: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(Identified, AuthorityCertificate), Refusal> {
        let mut authorities = shown.iter().filter_map(|der| AuthorityCertificate::from_der(der).ok());
        let authority = authorities.find(|authority| self.matches(&authority.hash()));
        let authority = authority.ok_or(Refusal::OtherAuthority)?;
        let trust = Trust::new(authority.farm(), vec![authority.clone()], Vec::new());
        let trust = trust.expect("an authority is of its own farm");
        // An attacker in between can show the true authority beside its own certificate, too.
        let server = trust.judge(leaf, now).map_err(|refusal| match refusal {
            Refusal::ForeignAuthority => Refusal::OtherAuthority,
            other => other,
        })?;
        server.server_of(authority.farm())?;
        Ok((server, authority))
    }
}

fn judge_server(server: &Identified, farm: &str, dialled: &ServerName<'_>) -> Result<ServerCertVerified, Refusal> {
    let id = server.server_of(farm)?;
    if *dialled == name::dial_any() || *dialled == name::dial(id) {
        return Ok(ServerCertVerified::assertion());
    }
    Err(Refusal::OtherServer { name: server.name.clone(), wanted: dialled.to_str().into_owned() })
}

/// Both kinds of verifiers look at signatures in the same way, and never at those of TLS 1.2.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("only TLS 1.3 is spoken here".to_owned()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, certificate, signature, &ALGORITHMS)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            ALGORITHMS.supported_schemes()
        }
    };
}

impl ClientCertVerifier for JudgeCaller {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// None, so that unidentified callers do not hear which authorities are trusted here.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        shown: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.trust.judge_with(leaf, shown, self.clock.0.present())?;
        Ok(ClientCertVerified::assertion())
    }

    signatures!();
}

impl ServerCertVerifier for JudgeServer {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        shown: &[CertificateDer<'_>],
        dialled: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let server = self.trust.judge_with(leaf, shown, self.clock.0.present())?;
        Ok(judge_server(&server, &self.farm, dialled)?)
    }

    signatures!();
}

impl ServerCertVerifier for JudgeInviter {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        shown: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.0.judge(leaf, shown, now)?;
        Ok(ServerCertVerified::assertion())
    }

    signatures!();
}
