//! What a node's certificate says: its name, its serial number, its key, and when it is good.
//!
//! Reading believes nothing: a certificate says what it likes until an authority vouches for it, see
//! [`Trust::judge`](crate::trust::Trust::judge).
//!
//! ```
//! use primus_identity::certificate::Certificate;
//! use primus_identity::CertificateDer;
//!
//! assert!(Certificate::read(&CertificateDer::from(&b"not a certificate"[..])).is_err());
//! ```

use std::time::Duration;

use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use crate::keys::PublicKey;
use crate::name::Name;
use crate::refusal::{Refusal, Time, UNREADABLE};

/// One day.
pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// A node asks for a new certificate when its own is this old.
pub const RENEW_AFTER: Duration = DAY.saturating_mul(30);

/// A node's certificate, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Who it is for.
    pub name: Name,
    /// Its number, by which it is revoked.
    pub serial: u64,
    /// The key that it is for.
    pub key: PublicKey,
    /// When it is good.
    pub validity: Validity,
}

impl Certificate {
    /// Reads a certificate. Whether it is true is another question.
    pub fn read(der: &CertificateDer<'_>) -> Result<Self, Refusal> {
        let parsed = parse(der)?;
        let uri = only_uri(&parsed).ok_or(Refusal::BadCertificate("it does not have exactly one name"))?;
        Ok(Self {
            name: Name::from_uri(uri).map_err(|_| Refusal::BadCertificate("its name is not the name of a node"))?,
            serial: serial(parsed.serial())
                .ok_or(Refusal::BadCertificate("its serial number is not one of primus"))?,
            key: key(&parsed.subject_public_key_info())?,
            validity: Validity::of(&parsed)?,
        })
    }
}

/// What is known of the present: it is not before one time and not after another. By a clock that is right both are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Present {
    /// It is not earlier.
    pub earliest: UnixTime,
    /// It is not later.
    pub latest: UnixTime,
}

impl From<UnixTime> for Present {
    fn from(now: UnixTime) -> Self {
        Self { earliest: now, latest: now }
    }
}

/// When a certificate is good: from one second to another, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub from: UnixTime,
    /// The last second.
    pub until: UnixTime,
}

impl Validity {
    /// So many days, the first of which is yesterday: the clocks of two hosts differ.
    #[must_use]
    pub fn since_yesterday(now: UnixTime, days: u32) -> Self {
        let from = now.as_secs().saturating_sub(DAY.as_secs());
        let until = from.saturating_add(DAY.as_secs() * u64::from(days));
        Self { from: at(from), until: at(until) }
    }

    /// Nothing if it is good now, as far as that is known.
    pub fn judge(&self, now: impl Into<Present>) -> Result<(), Refusal> {
        let Present { earliest, latest } = now.into();
        if latest < self.from {
            return Err(Refusal::NotYetValid { from: Time(self.from), now: Time(latest) });
        }
        if earliest > self.until {
            return Err(Refusal::Expired { until: Time(self.until), now: Time(earliest) });
        }
        Ok(())
    }

    /// True if it is time to ask for a new certificate.
    #[must_use]
    pub fn is_renewal_due(&self, now: UnixTime) -> bool {
        now.as_secs() >= self.from.as_secs().saturating_add((DAY + RENEW_AFTER).as_secs())
    }

    /// The library checks both limits before anything else, and names them in its errors; it has no other way to ask.
    pub(crate) fn of(certificate: &EndEntityCert<'_>) -> Result<Self, Refusal> {
        let judged = |now| {
            let usage = KeyUsage::client_auth();
            certificate.verify_for_usage(&[], &[], &[], at(now), usage, None, None).err()
        };
        let until = match judged(u64::MAX) {
            Some(webpki::Error::CertExpired { not_after, .. }) => not_after,
            _ => return Err(Refusal::BadCertificate(UNREADABLE)),
        };
        match judged(0) {
            Some(webpki::Error::CertNotValidYet { not_before, .. }) => Ok(Self { from: not_before, until }),
            _ => Ok(Self { from: at(0), until }),
        }
    }
}

fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

pub(crate) fn parse<'a>(der: &'a CertificateDer<'_>) -> Result<EndEntityCert<'a>, Refusal> {
    EndEntityCert::try_from(der).map_err(|_| Refusal::BadCertificate(UNREADABLE))
}

/// With two names, two readers could believe two different ones.
pub(crate) fn only_uri<'a>(certificate: &EndEntityCert<'a>) -> Option<&'a str> {
    let mut names = certificate.valid_uri_names();
    names.next().filter(|_| names.next().is_none())
}

pub(crate) fn key(spki: &SubjectPublicKeyInfoDer<'_>) -> Result<PublicKey, Refusal> {
    PublicKey::from_der(spki).map_err(|_| Refusal::BadCertificate("its key is not an ECDSA P-256 key"))
}

/// A positive integer as DER writes it: with a zero first if the number would look negative.
fn serial(bytes: &[u8]) -> Option<u64> {
    let digits = match bytes {
        [0, digits @ ..] => digits,
        [first, ..] if *first < 0x80 => bytes,
        _ => return None,
    };
    let mut number = [0; 8];
    number.get_mut(8_usize.checked_sub(digits.len())?..)?.copy_from_slice(digits);
    Some(u64::from_be_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_number_is_a_positive_integer_of_64_bits() {
        for (bytes, number) in [
            (&[1][..], Some(1)),
            (&[0x7f], Some(127)),
            (&[0, 0x80], Some(128)),
            (&[1, 0], Some(256)),
            (&[0], Some(0)),
            (&[0, 255, 255, 255, 255, 255, 255, 255, 255], Some(u64::MAX)),
            (&[], None),
            (&[0x80], None),
            (&[1, 0, 0, 0, 0, 0, 0, 0, 0], None),
        ] {
            assert_eq!(serial(bytes), number, "{bytes:?}");
        }
    }

    #[test]
    fn a_certificate_is_good_from_its_first_to_its_last_second() {
        let validity = Validity::since_yesterday(at(1_000_000), 365);
        assert_eq!(validity.from.as_secs(), 1_000_000 - 86_400);
        assert_eq!(validity.until.as_secs(), 1_000_000 + 364 * 86_400);
        for (seconds, code) in [
            (validity.from.as_secs() - 1, "not_yet_valid"),
            (validity.from.as_secs(), ""),
            (validity.until.as_secs(), ""),
            (validity.until.as_secs() + 1, "expired"),
        ] {
            let refusal = validity.judge(at(seconds)).err();
            assert_eq!(refusal.map_or("", |refusal| refusal.code()), code, "{seconds}");
        }
    }

    #[test]
    fn a_certificate_is_good_if_it_may_be_good_now() {
        let validity = Validity { from: at(100), until: at(200) };
        let judge = |earliest, latest| {
            let present = Present { earliest: at(earliest), latest: at(latest) };
            validity.judge(present).err().map_or("", |refusal| refusal.code())
        };
        for (earliest, latest, code) in
            [(0, 99, "not_yet_valid"), (0, 100, ""), (0, 300, ""), (200, 300, ""), (201, 300, "expired")]
        {
            assert_eq!(judge(earliest, latest), code, "{earliest} to {latest}");
        }
    }

    #[test]
    fn a_certificate_is_renewed_after_thirty_days() {
        let validity = Validity::since_yesterday(at(1_000_000), 365);
        let month = 30 * 86_400;
        assert!(!validity.is_renewal_due(at(1_000_000 + month - 1)));
        assert!(validity.is_renewal_due(at(1_000_000 + month)));
    }
}
