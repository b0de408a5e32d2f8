//! How an authority and a key are recognised: by SHA-256, as text like `sha256:1f3a…`.
//!
//! ```
//! use primus_identity::hash::AuthorityHash;
//!
//! let hash = AuthorityHash::from_bytes([0x1f; 32]);
//! assert_eq!(hash.to_string().parse(), Ok(hash));
//! assert!(hash.short().matches(&hash));
//! ```

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// What stands before the digits of a whole hash.
const PREFIX: &str = "sha256:";
/// How many bytes of a hash a token has: 128 bits, too many to find another authority for.
const SHORT_LEN: usize = 16;

/// Text that is not a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a hash is `sha256:` and 64 digits of 0-9 and a-f")]
pub struct NotAHash;

/// SHA-256, for names that follow from their content.
#[must_use]
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

macro_rules! hashes {
    ($($(#[$comment:meta])* $hash:ident),*) => {$(
        $(#[$comment])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $hash([u8; 32]);

        impl $hash {
            /// The hash with these bytes, as a ledger kept them.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            /// Its bytes, for a ledger.
            #[must_use]
            pub const fn bytes(&self) -> &[u8; 32] {
                &self.0
            }

            pub(crate) fn of(der: &[u8]) -> Self {
                Self(sha256(der))
            }
        }

        impl fmt::Display for $hash {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{PREFIX}{}", hex(&self.0))
            }
        }

        impl fmt::Debug for $hash {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $hash {
            type Err = NotAHash;

            fn from_str(text: &str) -> Result<Self, NotAHash> {
                text.strip_prefix(PREFIX).and_then(unhex).map(Self).ok_or(NotAHash)
            }
        }
    )*};
}

hashes!(
    /// An authority: SHA-256 of its certificate's DER.
    AuthorityHash,
    /// A node's key: SHA-256 of the public key's DER. The ledger binds a worker's name to it.
    Fingerprint
);

impl AuthorityHash {
    /// The first half, for tokens.
    #[must_use]
    pub fn short(&self) -> ShortHash {
        let mut half = [0; SHORT_LEN];
        half.copy_from_slice(&self.0[..SHORT_LEN]);
        ShortHash(half)
    }
}

/// The first half of an [`AuthorityHash`]: 32 digits in a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShortHash([u8; SHORT_LEN]);

impl ShortHash {
    /// True for the hash that this is the first half of.
    #[must_use]
    pub fn matches(&self, whole: &AuthorityHash) -> bool {
        whole.short() == *self
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        unhex(text).map(Self)
    }
}

impl fmt::Display for ShortHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for ShortHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Exactly as many bytes as asked for, in the one way that [`hex`] writes them.
pub(crate) fn unhex<const LEN: usize>(text: &str) -> Option<[u8; LEN]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; LEN];
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != LEN || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_has_one_text() {
        let hash = AuthorityHash::of(b"north");
        let text = hash.to_string();
        assert_eq!(text.len(), 71);
        assert_eq!(text.parse(), Ok(hash));
        assert_eq!(Fingerprint::from_bytes(*hash.bytes()).to_string(), text);
        let long = format!("{text}0");
        for wrong in ["", "sha256:", &text[7..], &text[..70], &long, &text.to_uppercase(), "sha256:é"] {
            assert_eq!(wrong.parse::<AuthorityHash>(), Err(NotAHash), "{wrong}");
        }
    }

    #[test]
    fn the_short_form_is_the_first_half() {
        let hash = AuthorityHash::of(b"north");
        assert_eq!(hash.to_string()[7..39], hash.short().to_string());
        assert_eq!(ShortHash::parse(&hash.short().to_string()), Some(hash.short()));
        assert!(!hash.short().matches(&AuthorityHash::of(b"south")));
    }
}
