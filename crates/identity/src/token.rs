//! What a joiner brings: `primus-ROLE-AUTHORITY-ID-SECRET@HOST:PORT`.
//!
//! A token says for what it is good, which authority must answer, and where. The ledger keeps the [`SecretHash`] only, with
//! how often and how long the token is good. The secret is shown by [`JoinToken::reveal`] alone.
//!
//! ```
//! use primus_identity::hash::AuthorityHash;
//! use primus_identity::token::{JoinToken, Role, Secret};
//!
//! let (secret, authority) = (Secret::fresh().unwrap(), AuthorityHash::from_bytes([7; 32]).short());
//! let places = vec!["10.0.0.1:7460".parse().unwrap(), "[fd00::2]:7460".parse().unwrap()];
//! let token = JoinToken { role: Role::Server, authority, id: 12, secret, places };
//! let text = token.reveal();
//! assert!(text.starts_with("primus-server-07") && text.ends_with("@10.0.0.1:7460,[fd00::2]:7460"));
//! assert_eq!(JoinToken::parse(&text), Ok(token));
//! ```

use std::fmt;
use std::str::FromStr;

pub use primus_core::place::Place;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::hash::{ShortHash, hex, unhex};

const PREFIX: &str = "primus-";
const SECRET_LEN: usize = 16;
/// The longest token that is looked at, in bytes.
pub const TOKEN_LEN_MAX: usize = 4096;
/// How many places a token may name.
pub const PLACES_MAX: usize = 16;

/// What a token is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// To join as a server.
    Server,
    /// To join as a worker.
    Worker,
    /// To see.
    Viewer,
    /// To submit, and to see one's own.
    Client,
    /// To act on all jobs, loans and leaders.
    Operator,
    /// Everything.
    Admin,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Server, Self::Worker, Self::Viewer, Self::Client, Self::Operator, Self::Admin];

    /// The word in a token.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Worker => "worker",
            Self::Viewer => "viewer",
            Self::Client => "client",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Role {
    type Err = TokenError;

    fn from_str(word: &str) -> Result<Self, TokenError> {
        Self::ALL.into_iter().find(|role| role.word() == word).ok_or(TokenError::Role)
    }
}

/// 128 random bits. They are never shown by `{:?}`, and compared in a time that tells nothing about them.
#[derive(Clone)]
pub struct Secret([u8; SECRET_LEN]);

impl Secret {
    /// A new one, that cannot be guessed.
    pub fn fresh() -> Result<Self, TokenError> {
        let mut bytes = [0; SECRET_LEN];
        getrandom::fill(&mut bytes).map_err(|_| TokenError::NoRandomness)?;
        Ok(Self(bytes))
    }

    /// The secret that a joiner has sent.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; SECRET_LEN]) -> Self {
        Self(bytes)
    }

    /// What a joiner sends, once it knows the authority that answers.
    #[must_use]
    pub const fn reveal(&self) -> &[u8; SECRET_LEN] {
        &self.0
    }

    /// What the ledger keeps.
    #[must_use]
    pub fn hash(&self) -> SecretHash {
        SecretHash(Sha256::digest(self.0).into())
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// SHA-256 of a secret: enough to recognise it, and useless to a joiner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretHash([u8; 32]);

impl SecretHash {
    /// The hash that a ledger kept.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes, for a ledger.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// True for the secret itself. How long that takes tells nothing about it.
    #[must_use]
    pub fn accepts(&self, secret: &Secret) -> bool {
        self.0.ct_eq(&secret.hash().0).into()
    }
}

/// A token, read. `{:?}` hides its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// What it is good for.
    pub role: Role,
    /// The authority that must answer.
    pub authority: ShortHash,
    /// Under which number the ledger keeps it.
    pub id: u64,
    /// What proves that its bearer was given it.
    pub secret: Secret,
    /// Where to ask, one at least.
    pub places: Vec<Place>,
}

impl JoinToken {
    /// Reads what [`reveal`](Self::reveal) writes. Errors never repeat any part of the text.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if text.len() > TOKEN_LEN_MAX {
            return Err(TokenError::Long);
        }
        let (token, places) = text.split_once('@').ok_or(TokenError::NoPlace)?;
        let mut parts = token.strip_prefix(PREFIX).ok_or(TokenError::Prefix)?.split('-');
        let mut next = || parts.next().ok_or(TokenError::Parts);
        let (role, authority, id, secret) = (next()?, next()?, next()?, next()?);
        if parts.next().is_some() {
            return Err(TokenError::Parts);
        }
        Ok(Self {
            role: role.parse()?,
            authority: ShortHash::parse(authority).ok_or(TokenError::Authority)?,
            id: id.parse().ok().filter(|number: &u64| number.to_string() == id).ok_or(TokenError::Id)?,
            secret: unhex(secret).map(Secret).ok_or(TokenError::Secret)?,
            places: read_places(places)?,
        })
    }

    /// The whole text, with the secret.
    #[must_use]
    pub fn reveal(&self) -> String {
        let places: Vec<_> = self.places.iter().map(Place::to_string).collect();
        let secret = hex(&self.secret.0);
        format!("{PREFIX}{}-{}-{}-{secret}@{}", self.role, self.authority, self.id, places.join(","))
    }
}

fn read_places(text: &str) -> Result<Vec<Place>, TokenError> {
    let places = text.split(',').take(PLACES_MAX + 1).map(str::parse).collect::<Result<Vec<Place>, _>>();
    let places = places.map_err(|_| TokenError::Place)?;
    if places.len() > PLACES_MAX { Err(TokenError::Places) } else { Ok(places) }
}

/// What is wrong with a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The host gives no randomness.
    #[error("this host gives no random numbers, so no token can be made")]
    NoRandomness,
    /// It is longer than any token.
    #[error("a token has at most {TOKEN_LEN_MAX} characters: copy only the token")]
    Long,
    /// It begins with something else.
    #[error("a token begins with primus-: copy it whole")]
    Prefix,
    /// Nothing says where to ask.
    #[error("the token has no place: it ends with @HOST:PORT")]
    NoPlace,
    /// Parts are missing or too many.
    #[error("a token is primus-ROLE-AUTHORITY-ID-SECRET@HOST:PORT: copy it whole")]
    Parts,
    /// The role is not one of the six.
    #[error("the token's role is not one of server, worker, viewer, client, operator and admin")]
    Role,
    /// The authority is damaged.
    #[error("the token's authority is not 32 digits of 0-9 and a-f: copy it whole")]
    Authority,
    /// The number is damaged.
    #[error("the token's number is not an integer: copy it whole")]
    Id,
    /// The secret is damaged.
    #[error("the token's secret is not 32 digits of 0-9 and a-f: copy it whole")]
    Secret,
    /// A place is damaged.
    #[error("a place is HOST:PORT, with a port from 1 to 65535 and an address of version 6 in brackets")]
    Place,
    /// Too many places.
    #[error("a token names at most {PLACES_MAX} places")]
    Places,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hash::AuthorityHash;

    const SECRET: &str = "00112233445566778899aabbccddeeff";

    fn token() -> JoinToken {
        let places = vec!["north-1.example:7460".parse().unwrap()];
        let authority = AuthorityHash::from_bytes([0xab; 32]).short();
        JoinToken { role: Role::Worker, authority, id: 12, secret: Secret(unhex(SECRET).unwrap()), places }
    }

    #[test]
    fn a_token_is_shown_whole_only_on_demand() {
        let text = token().reveal();
        assert_eq!(text, format!("primus-worker-{}-12-{SECRET}@north-1.example:7460", "ab".repeat(16)));
        assert_eq!(JoinToken::parse(&format!(" {text}\n")), Ok(token()));
        let shown = format!("{:?}", token());
        assert!(!shown.contains(SECRET) && !shown.contains("17, 34") && shown.contains("Secret(…)"), "{shown}");
    }

    #[test]
    fn every_role_has_its_word() {
        for role in Role::ALL {
            assert_eq!(role.word().parse(), Ok(role));
            assert_eq!(JoinToken::parse(&JoinToken { role, ..token() }.reveal()).unwrap().role, role);
        }
        assert_eq!("Server".parse::<Role>(), Err(TokenError::Role));
    }

    #[test]
    fn a_damaged_token_is_refused_without_repeating_it() {
        let good = token().reveal();
        let many = format!("{good}{}", ",h:1".repeat(PLACES_MAX));
        for (text, reason) in [
            (String::new(), TokenError::NoPlace),
            (good.replace('@', " "), TokenError::NoPlace),
            (good.replace("primus-", ""), TokenError::Prefix),
            (good.replace("worker-", ""), TokenError::Parts),
            (good.replace('@', "-x@"), TokenError::Parts),
            (good.replace("worker", "boss"), TokenError::Role),
            (good.replace("abab-", "aba-"), TokenError::Authority),
            (good.replace("-12-", "-012-"), TokenError::Id),
            (good.replace("-12-", "--"), TokenError::Id),
            (good.replace("ff@", "f@"), TokenError::Secret),
            (good.replace("ff@", "fF@"), TokenError::Secret),
            (good.replace(":7460", ""), TokenError::Place),
            (good.clone() + ",", TokenError::Place),
            (good.clone() + "@x:1", TokenError::Place),
            (many, TokenError::Places),
            (good.clone() + &",h:1".repeat(TOKEN_LEN_MAX), TokenError::Long),
        ] {
            assert_eq!(JoinToken::parse(&text), Err(reason), "{text}");
            assert!(!reason.to_string().contains("0011"));
        }
    }

    #[test]
    fn a_place_is_a_host_and_a_port() {
        for text in ["localhost:1", "10.0.0.1:7460", "[::1]:65535", "a_b.example:80"] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        for text in
            ["", ":1", "h", "h:", "h:0", "h:+1", "h:65536", "::1:7460", "[::1]", "[h]:1", "a b:1", "-h:1", "h/:1"]
        {
            let token = format!("primus-worker-{}-12-{SECRET}@{text}", "ab".repeat(16));
            assert_eq!(JoinToken::parse(&token), Err(TokenError::Place), "{text}");
        }
    }

    #[test]
    fn the_ledger_recognises_a_secret_that_it_does_not_know() {
        let secret = Secret::fresh().unwrap();
        let kept = SecretHash::from_bytes(*secret.hash().bytes());
        assert!(kept.accepts(&Secret::from_bytes(*secret.reveal())));
        assert!(!kept.accepts(&Secret::fresh().unwrap()));
        assert_ne!(kept.bytes()[..SECRET_LEN], secret.0);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = JoinToken::parse(&text);
        }

        #[test]
        fn a_token_with_anything_put_into_it_is_refused_or_has_one_text(at in 0_usize..100, text in "\\PC{1,3}") {
            let mut damaged = token().reveal();
            damaged.insert_str(at.min(damaged.len()), &text);
            if let Ok(read) = JoinToken::parse(&damaged) {
                prop_assert_eq!(JoinToken::parse(&read.reveal()), Ok(read));
            }
        }
    }
}
