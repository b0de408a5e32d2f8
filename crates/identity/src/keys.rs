//! The key pair of a node: ECDSA P-256, which browsers take, too.
//!
//! The private key is made here and stays here: the issuer of a certificate gets the [`PublicKey`] only.
//!
//! ```
//! use primus_identity::keys::Keys;
//!
//! let keys = Keys::generate()?;
//! let kept = keys.secret_pem();
//! assert_eq!(Keys::from_pem(&kept)?.public_key(), keys.public_key());
//! # Ok::<(), primus_identity::keys::KeyError>(())
//! ```

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm};
use rustls::crypto::ring::sign::any_ecdsa_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::SigningKey;

use crate::hash::Fingerprint;

/// How long a line of PEM is (RFC 7468).
const PEM_LINE_LEN: usize = 64;
/// What stands before the point in the DER of every P-256 public key (RFC 5480).
const SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48,
    0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// An uncompressed point: one byte that says so, and two numbers of 32 bytes.
const POINT_LEN: usize = 65;
const UNCOMPRESSED: u8 = 4;

/// What is wrong with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The host gives no randomness.
    #[error("this host gives no random numbers, so no key can be made")]
    NoRandomness,
    /// Not a private key, or of another kind.
    #[error("this is not an ECDSA P-256 private key in PKCS #8")]
    NotPrivate,
    /// Not a public key, or of another kind.
    #[error("this is not an ECDSA P-256 public key")]
    NotPublic,
}

/// A private key and its public key. `{:?}` shows the public key's fingerprint only.
pub struct Keys(KeyPair);

impl Keys {
    /// A new pair, that cannot be guessed.
    pub fn generate() -> Result<Self, KeyError> {
        KeyPair::generate().map(Self).map_err(|_| KeyError::NoRandomness)
    }

    /// The pair that [`secret_der`](Self::secret_der) gave.
    pub fn from_der(pkcs8: &[u8]) -> Result<Self, KeyError> {
        let pair = KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(pkcs8), &PKCS_ECDSA_P256_SHA256);
        pair.map(Self).map_err(|_| KeyError::NotPrivate)
    }

    /// The pair that [`secret_pem`](Self::secret_pem) gave.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).map_err(|_| KeyError::NotPrivate)?;
        Self::from_der(der.secret_pkcs8_der())
    }

    /// The private key in PKCS #8. It is a secret.
    #[must_use]
    pub fn secret_der(&self) -> &[u8] {
        self.0.serialized_der()
    }

    /// The private key in PKCS #8, as text for a file. It is a secret.
    #[must_use]
    pub fn secret_pem(&self) -> String {
        pem("PRIVATE KEY", self.secret_der())
    }

    /// The public half, which a certificate names.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        PublicKey(self.0.subject_public_key_info())
    }

    pub(crate) const fn pair(&self) -> &KeyPair {
        &self.0
    }

    pub(crate) fn signing_key(&self) -> Arc<dyn SigningKey> {
        let secret = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.secret_der()));
        any_ecdsa_type(&secret).expect("this pair was read by the same library")
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.public_key().fingerprint())
    }
}

/// A P-256 public key, as it stands in a certificate: its `SubjectPublicKeyInfo` in DER.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey(Vec<u8>);

impl PublicKey {
    /// Reads a public key that came over a link.
    pub fn from_der(spki: &[u8]) -> Result<Self, KeyError> {
        match spki.strip_prefix(&SPKI_PREFIX) {
            Some([UNCOMPRESSED, rest @ ..]) if rest.len() == POINT_LEN - 1 => Ok(Self(spki.to_vec())),
            _ => Err(KeyError::NotPublic),
        }
    }

    /// Its DER.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.0
    }

    /// What the ledger remembers a worker by.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.0)
    }
}

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0[SPKI_PREFIX.len()..]
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// DER as text between two lines that say what it is.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in STANDARD.encode(der).as_bytes().chunks(PEM_LINE_LEN) {
        text.extend(line.iter().copied().map(char::from));
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_survives_der_and_pem() {
        let keys = Keys::generate().unwrap();
        let again = [Keys::from_der(keys.secret_der()), Keys::from_pem(&keys.secret_pem())];
        for copy in again {
            assert_eq!(copy.unwrap().public_key(), keys.public_key());
        }
        assert_ne!(Keys::generate().unwrap().public_key(), keys.public_key());
    }

    #[test]
    fn a_public_key_is_read_as_the_library_writes_it() {
        let key = Keys::generate().unwrap().public_key();
        assert_eq!(PublicKey::from_der(key.der()), Ok(key.clone()));
        assert_eq!(key.der().len(), SPKI_PREFIX.len() + POINT_LEN);
        let mut compressed = key.der().to_vec();
        compressed[SPKI_PREFIX.len()] = 2;
        let longer = [key.der(), &[0]].concat();
        for wrong in [&[][..], &key.der()[1..], &key.der()[..90], &compressed, &longer] {
            assert_eq!(PublicKey::from_der(wrong), Err(KeyError::NotPublic));
        }
    }

    #[test]
    fn what_is_not_a_private_key_is_refused() {
        let keys = Keys::generate().unwrap();
        let other = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().serialize_der();
        for wrong in [&[][..], b"key", keys.public_key().der(), &other] {
            assert_eq!(Keys::from_der(wrong).unwrap_err(), KeyError::NotPrivate);
        }
        let renamed = keys.secret_pem().replace("PRIVATE KEY", "CERTIFICATE");
        for wrong in ["", "-----BEGIN", &renamed] {
            assert_eq!(Keys::from_pem(wrong).unwrap_err(), KeyError::NotPrivate);
        }
    }

    #[test]
    fn the_private_key_is_shown_nowhere() {
        let keys = Keys::generate().unwrap();
        assert_eq!(format!("{keys:?}"), format!("Keys({})", keys.public_key().fingerprint()));
    }
}
