//! Why a node is turned away, as one sentence with what to do, and as a code for scripts.
//!
//! The rules travel through rustls as its own errors, so that the other side hears a fitting alert; [`Refusal::of`] makes
//! sentences of them again.
//!
//! ```
//! use primus_identity::refusal::Refusal;
//!
//! let refusal = Refusal::NoCertificate;
//! assert_eq!(refusal.code(), "no_certificate");
//! assert!(refusal.to_string().contains("--join"));
//! ```

use std::sync::Arc;
use std::{fmt, io};

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error, OtherError};

use crate::name::Name;
use crate::token::Role;

/// A reason, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The caller shows no certificate, and does not ask to join.
    #[error("the caller has no certificate: start it once with --join and a token of this farm")]
    NoCertificate,
    /// The certificate cannot be read, or has no name, or several.
    #[error("the certificate cannot be used: {0}; let the node join again with --join")]
    BadCertificate(&'static str),
    /// The certificate is from an authority that this node does not believe, at least not for that farm.
    #[error(
        "no authority that is trusted here has issued the certificate: let the node join with a token of this farm, \
         or trust its farm as a neighbour"
    )]
    ForeignAuthority,
    /// The certificate was good once.
    #[error("the certificate ended at {until}, and now it is {now}: let the node join again, or set the clock")]
    Expired {
        /// Until when it was good.
        until: Time,
        /// The time by which it was judged.
        now: Time,
    },
    /// The certificate is from the future.
    #[error("the certificate begins at {from}, and now it is {now}: set the clock of this host")]
    NotYetValid {
        /// From when on it is good.
        from: Time,
        /// The time by which it was judged.
        now: Time,
    },
    /// The authority itself was good once.
    #[error("the authority of farm {farm} ended at {until}, and now it is {now}: see primus cert rotate")]
    AuthorityExpired {
        /// Whose authority it is.
        farm: String,
        /// Until when it was good.
        until: Time,
        /// The time by which it was judged.
        now: Time,
    },
    /// The certificate was good until it was revoked.
    #[error("the certificate of {name} (serial {serial}) was revoked: let the node join again, if it may")]
    Revoked {
        /// Whose it is.
        name: Name,
        /// Its serial number.
        serial: u64,
    },
    /// The number or the name is not in use any more.
    #[error("{0} was removed: it must join under a new number or name, with an empty directory")]
    Removed(Name),
    /// The ledger has bound the name to another key.
    #[error("{} is another worker: primus workers forget {}, or choose a name", called(.0), called(.0))]
    AnotherKey(Name),
    /// A node of this farm was expected.
    #[error("this is {name}, and a node of farm {wanted} was expected: correct the address or the farm's name")]
    OtherFarm {
        /// Who it is.
        name: Name,
        /// The farm that was expected.
        wanted: String,
    },
    /// A node of the other kind was expected.
    #[error("this is {name}, and a {wanted} was expected: correct the address, or use the node's own directory")]
    WrongRole {
        /// Who it is.
        name: Name,
        /// `server` or `worker`.
        wanted: &'static str,
    },
    /// Another server answers at the address.
    #[error("this is {name}, and {wanted} was dialled: correct its address")]
    OtherServer {
        /// Who it is.
        name: Name,
        /// What was dialled.
        wanted: String,
    },
    /// The certificate names one node, and the hello another one.
    #[error(
        "the certificate is of {certificate}, but the hello says {hello}: give each node a directory of its own"
    )]
    HelloDiffers {
        /// Who the certificate says it is.
        certificate: Name,
        /// Who it says it is.
        hello: Name,
    },
    /// The farm's name is the same, and the founding is another one.
    #[error(
        "this belongs to cluster {there}, and here is cluster {here}: an empty server joins with primus servers add"
    )]
    OtherCluster {
        /// The cluster of this node.
        here: String,
        /// The cluster of the other one.
        there: String,
    },
    /// The same node has a link already, from another process.
    #[error(
        "{0} is linked already, from another process: stop one of them; each node needs a directory of its own"
    )]
    Twin(Name),
    /// The caller speaks something else than links of primus.
    #[error("the caller does not speak primus over TLS: for the API, use the API's address")]
    Protocol,
    /// This node has a certificate, and the one that was dialled speaks without TLS.
    #[error("the other side speaks without TLS: start all nodes of a farm with the same founding file")]
    Plain,
    /// This node has no certificate, and the one that was dialled asks for one.
    #[error(
        "links of this farm are encrypted, and this node has no certificate: name the farm's founding file in \
         cluster.founding"
    )]
    Secured,
    /// The ledger knows no such token, or another secret.
    #[error("the token is unknown here: copy it whole, or make a new one with primus token create")]
    TokenUnknown,
    /// The token was good for so many nodes, and they have joined.
    #[error("the token is used up: make a new one with primus token create")]
    TokenUsedUp,
    /// The token was good for some time, and that is over.
    #[error("the token has expired: make a new one with primus token create")]
    TokenExpired,
    /// The token is for something else.
    #[error("the token is for a {role}, not for a {wanted}: make one with primus token create --role {wanted}")]
    TokenRole {
        /// What it is for.
        role: Role,
        /// What was asked.
        wanted: Role,
    },
    /// The server that answers a joiner cannot show the token's authority.
    #[error(
        "this server has another authority than the token says: somebody may be in between; \
         check the address, and make a new token if the farm was founded anew"
    )]
    OtherAuthority,
    /// The other side has refused this node's certificate, and has only said so in an alert.
    #[error("the other side refuses the certificate of this node: {0}")]
    RefusedThere(&'static str),
    /// The handshake failed for another reason.
    #[error("the handshake failed: {0}")]
    Handshake(String),
}

impl Refusal {
    /// One word for scripts and for `Refused` on links.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoCertificate => "no_certificate",
            Self::BadCertificate(_) => "bad_certificate",
            Self::ForeignAuthority => "foreign_authority",
            Self::Expired { .. } => "expired",
            Self::NotYetValid { .. } => "not_yet_valid",
            Self::AuthorityExpired { .. } => "authority_expired",
            Self::Revoked { .. } => "revoked",
            Self::Removed(_) => "removed",
            Self::AnotherKey(_) => "another_key",
            Self::OtherFarm { .. } => "other_farm",
            Self::WrongRole { .. } => "wrong_role",
            Self::OtherServer { .. } => "other_server",
            Self::HelloDiffers { .. } => "hello_differs",
            Self::OtherCluster { .. } => "other_cluster",
            Self::Twin(_) => "twin",
            Self::Protocol => "protocol",
            Self::Plain => "plain",
            Self::Secured => "secured",
            Self::TokenUnknown => "token_unknown",
            Self::TokenUsedUp => "token_used_up",
            Self::TokenExpired => "token_expired",
            Self::TokenRole { .. } => "token_role",
            Self::OtherAuthority => "other_authority",
            Self::RefusedThere(_) => "refused_there",
            Self::Handshake(_) => "handshake",
        }
    }

    /// What rustls says, as a sentence.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        match error {
            Error::InvalidCertificate(error) => Self::of_certificate(error),
            Error::NoCertificatesPresented => Self::NoCertificate,
            Error::AlertReceived(alert) => Self::of_alert(*alert),
            Error::PeerIncompatible(_) | Error::NoApplicationProtocol | Error::InvalidMessage(_) => Self::Protocol,
            error => Self::Handshake(error.to_string()),
        }
    }

    /// What rustls says through a stream, or these rules; nothing if the stream has failed for another reason.
    #[must_use]
    pub fn of_io(error: &io::Error) -> Option<Self> {
        let inner = error.get_ref()?;
        inner.downcast_ref().map(Self::of).or_else(|| inner.downcast_ref().cloned())
    }

    fn of_certificate(error: &CertificateError) -> Self {
        match error {
            CertificateError::ExpiredContext { time, not_after } => {
                Self::Expired { until: Time(*not_after), now: Time(*time) }
            }
            CertificateError::NotValidYetContext { time, not_before } => {
                Self::NotYetValid { from: Time(*not_before), now: Time(*time) }
            }
            CertificateError::UnknownIssuer => Self::ForeignAuthority,
            CertificateError::BadEncoding => Self::BadCertificate(UNREADABLE),
            CertificateError::Other(OtherError(inner)) if inner.is::<Self>() => {
                inner.downcast_ref().cloned().expect("the type was looked at")
            }
            error => Self::Handshake(error.to_string()),
        }
    }

    fn of_alert(alert: AlertDescription) -> Self {
        match alert {
            AlertDescription::CertificateExpired => {
                Self::RefusedThere("it is not valid now: compare the clocks, or join again")
            }
            AlertDescription::UnknownCA => {
                Self::RefusedThere("its authority is not trusted there: join with a token")
            }
            AlertDescription::CertificateRequired => Self::RefusedThere("there is none: join with a token"),
            AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::AccessDenied => Self::RefusedThere("see the log of the other side"),
            AlertDescription::NoApplicationProtocol | AlertDescription::ProtocolVersion => Self::Protocol,
            alert => Self::Handshake(format!("the other side ended it ({alert:?})")),
        }
    }
}

/// A node's name without what it is.
fn called(name: &Name) -> String {
    name.worker_name().map_or_else(|| name.node().to_string(), str::to_owned)
}

/// What stands in [`Refusal::BadCertificate`] if it is not a certificate at all.
pub(crate) const UNREADABLE: &str = "it cannot be read";

/// So that the other side hears an alert that says as much as an alert can.
impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::InvalidCertificate(match refusal {
            Refusal::Expired { until, now } => CertificateError::ExpiredContext { time: now.0, not_after: until.0 },
            Refusal::NotYetValid { from, now } => {
                CertificateError::NotValidYetContext { time: now.0, not_before: from.0 }
            }
            Refusal::ForeignAuthority => CertificateError::UnknownIssuer,
            other => CertificateError::Other(OtherError(Arc::new(other))),
        })
    }
}

/// A point in time, shown as `2027-11-18T14:40:58Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub UnixTime);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match i64::try_from(seconds)
            .ok()
            .and_then(|seconds| time::OffsetDateTime::from_unix_timestamp(seconds).ok())
        {
            Some(time) => {
                let (year, month, day) = (time.year(), u8::from(time.month()), time.day());
                let (hour, minute, second) = time.to_hms();
                write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
            }
            None => write!(f, "second {seconds} after 1970"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use primus_core::ServerId;

    use super::*;

    fn all() -> Vec<Refusal> {
        let time = |seconds| Time(UnixTime::since_unix_epoch(Duration::from_secs(seconds)));
        let (name, text) = (|| Name::server("north", ServerId(2)).unwrap(), || "text".to_owned());
        vec![
            Refusal::NoCertificate,
            Refusal::BadCertificate(UNREADABLE),
            Refusal::ForeignAuthority,
            Refusal::Expired { until: time(1), now: time(2) },
            Refusal::NotYetValid { from: time(2), now: time(1) },
            Refusal::AuthorityExpired { farm: text(), until: time(1), now: time(2) },
            Refusal::Revoked { name: name(), serial: 7 },
            Refusal::Removed(name()),
            Refusal::AnotherKey(name()),
            Refusal::OtherFarm { name: name(), wanted: text() },
            Refusal::WrongRole { name: name(), wanted: "worker" },
            Refusal::OtherServer { name: name(), wanted: text() },
            Refusal::HelloDiffers { certificate: name(), hello: name() },
            Refusal::OtherCluster { here: text(), there: text() },
            Refusal::Twin(name()),
            Refusal::Protocol,
            Refusal::Plain,
            Refusal::Secured,
            Refusal::TokenUnknown,
            Refusal::TokenUsedUp,
            Refusal::TokenExpired,
            Refusal::TokenRole { role: Role::Worker, wanted: Role::Server },
            Refusal::OtherAuthority,
        ]
    }

    #[test]
    fn every_refusal_comes_through_rustls_and_a_stream_as_it_was() {
        for refusal in all() {
            let error = Error::from(refusal.clone());
            assert_eq!(Refusal::of(&error), refusal);
            assert_eq!(Refusal::of_io(&io::Error::other(error)), Some(refusal.clone()));
            assert_eq!(Refusal::of_io(&io::Error::other(refusal.clone())), Some(refusal));
        }
        assert_eq!(Refusal::of_io(&io::ErrorKind::ConnectionReset.into()), None);
    }

    #[test]
    fn every_refusal_has_a_code_of_its_own_and_says_what_to_do() {
        let mut codes: Vec<_> = all().iter().map(Refusal::code).collect();
        let count = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), count);
        for refusal in all() {
            let text = refusal.to_string();
            assert!(text.contains(": ") || text.contains("; "), "{text}");
            assert!(!text.contains('\n') && !text.ends_with('.'), "{text}");
        }
    }

    #[test]
    fn a_time_is_shown_as_people_write_it() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_795_099_258, "2026-11-19T14:40:58Z"),
            (u64::MAX, "second 18446744073709551615 after 1970"),
        ] {
            assert_eq!(Time(UnixTime::since_unix_epoch(Duration::from_secs(seconds))).to_string(), text);
        }
    }

    #[test]
    fn an_alert_of_the_other_side_is_a_sentence() {
        let alerts = [
            (AlertDescription::CertificateExpired, "compare the clocks"),
            (AlertDescription::UnknownCA, "not trusted there"),
            (AlertDescription::CertificateUnknown, "log of the other side"),
            (AlertDescription::InternalError, "InternalError"),
        ];
        for (alert, words) in alerts {
            let text = Refusal::of(&Error::AlertReceived(alert)).to_string();
            assert!(text.contains(words), "{text}");
        }
    }
}
