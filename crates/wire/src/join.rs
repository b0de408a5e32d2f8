//! What a joiner and a server say to each other: one request, one answer.
//!
//! A joiner has no certificate yet. It has checked the server's authority before it says anything, and the server hears this one
//! request of it, in one frame, and nothing else.

use std::fmt;

use bytes::BytesMut;
use primus_core::ServerId;
use serde::{Deserialize, Serialize};

use crate::native::{self, NotUnderstood, PROTOCOL};

/// No request is longer, with its frame.
pub const REQUEST_LEN_MAX: u64 = 1024;
/// No answer is longer, with its frame: it has certificates and places of servers.
pub const ANSWER_LEN_MAX: u64 = 64 << 10;
/// How a request begins.
const MAGIC: [u8; 8] = *b"primus\0\x06";

/// What a joiner asks for.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    magic: [u8; 8],
    /// The protocol that it speaks.
    pub protocol: u32,
    /// As what it wants to join: the word in its token.
    pub role: String,
    /// The number of its token.
    pub token: u64,
    /// The secret of that.
    pub secret: [u8; 16],
    /// Its disk, so that a request that is repeated is recognised.
    pub store: [u8; 16],
    /// Its public key, as DER.
    pub key: Vec<u8>,
    /// The name that it wants to have, if it is a worker.
    pub name: String,
}

/// What a server says to that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinAnswer {
    /// It is in.
    Joined(Invitation),
    /// It does not get in, for this reason: a code and a sentence.
    Refused(String, String),
    /// Nothing is decided, for this reason: it may ask again.
    NotNow(String),
}

/// What a joiner needs to know from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// The farm that it belongs to.
    pub farm: String,
    /// Its certificate, as DER.
    pub certificate: Vec<u8>,
    /// What vouches for the authority that has issued it; empty for the first one of a farm.
    pub voucher: Vec<u8>,
    /// The certificates of the farm's authorities, as DER; the first one has issued the joiner's.
    pub authorities: Vec<Vec<u8>>,
    /// The farm's servers, each with the place where it is reached.
    pub servers: Vec<(ServerId, String)>,
}

impl JoinRequest {
    /// A request in the present protocol.
    #[must_use]
    pub fn new((role, token, secret): (&str, u64, [u8; 16]), store: [u8; 16], key: Vec<u8>, name: String) -> Self {
        Self { magic: MAGIC, protocol: PROTOCOL, role: role.to_owned(), token, secret, store, key, name }
    }

    /// Takes the request out of what has arrived, if it is there already.
    ///
    /// # Errors
    /// If what comes can never be one.
    pub fn take(arrived: &mut BytesMut) -> Result<Option<Self>, NotUnderstood> {
        let request: Option<Self> = native::take(arrived)?;
        match request {
            Some(request) if request.magic != MAGIC => Err(NotUnderstood::Message),
            request => Ok(request),
        }
    }

    /// Why it cannot be answered at all; nothing if it can.
    #[must_use]
    pub fn objection(&self) -> Option<String> {
        let there = self.protocol;
        (there != PROTOCOL)
            .then(|| format!("protocol {PROTOCOL} here, {there} there: run the same version on both"))
    }
}

impl fmt::Debug for JoinRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinRequest({} {} with token {})", self.role, self.name, self.token)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request() -> JoinRequest {
        JoinRequest::new(("worker", 7, [0xEE; 16]), [1; 16], vec![4; 91], "w1".to_owned())
    }

    #[test]
    fn a_request_comes_out_as_it_went_in_and_hides_its_secret() {
        let mut buffer = BytesMut::new();
        native::put(&mut buffer, &request()).unwrap();
        assert!((buffer.len() as u64) < REQUEST_LEN_MAX / 2);
        for len in 0..buffer.len() {
            assert_eq!(JoinRequest::take(&mut BytesMut::from(&buffer[..len])), Ok(None));
        }
        assert_eq!(JoinRequest::take(&mut buffer), Ok(Some(request())));
        let shown = format!("{:?}", request());
        assert_eq!(shown, "JoinRequest(worker w1 with token 7)");
    }

    #[test]
    fn another_protocol_is_named() {
        assert_eq!(request().objection(), None);
        let other = JoinRequest { protocol: 99, ..request() };
        assert!(other.objection().unwrap().contains("99 there"));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = JoinRequest::take(&mut BytesMut::from(&bytes[..]));
            let mut framed = BytesMut::new();
            native::put(&mut framed, &bytes).unwrap();
            prop_assert!(!matches!(JoinRequest::take(&mut framed), Ok(Some(_))));
        }
    }
}
