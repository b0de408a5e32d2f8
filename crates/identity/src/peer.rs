//! Who is at the other end, once a handshake has ended; and nothing may be read from a link before that is known.
//!
//! TLS has proved a name by then, and the time was right. What only the ledger knows is asked here: whether the certificate
//! was revoked, the server's number retired, the worker's name bound to another key.
//!
//! ```
//! use primus_identity::peer::Roll;
//! use primus_identity::refusal::Refusal;
//! use primus_identity::trust::Identified;
//!
//! let revoked = [7_u64];
//! let roll = move |who: &Identified| match revoked.contains(&who.serial) {
//!     true => Err(Refusal::Revoked { name: who.name.clone(), serial: who.serial }),
//!     false => Ok(()),
//! };
//! fn takes_a_roll(_: &dyn Roll) {}
//! takes_a_roll(&roll);
//! ```

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{ClientConnection, CommonState, ProtocolVersion, ServerConnection};

use crate::authority::AuthorityCertificate;
use crate::certificate::Present;
use crate::config::{JOIN, LINK};
use crate::refusal::Refusal;
use crate::trust::{Identified, Trust};
use crate::verify::Pin;

/// What the ledger says of those whom an authority has named. Closures are rolls.
pub trait Roll {
    /// Refuses revoked certificates, removed nodes, and names that are bound to another key.
    fn look_up(&self, who: &Identified) -> Result<(), Refusal>;
}

impl<F: Fn(&Identified) -> Result<(), Refusal>> Roll for F {
    fn look_up(&self, who: &Identified) -> Result<(), Refusal> {
        self(who)
    }
}

/// Who calls a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// A node with a name. Its hello follows: see [`Identified::must_say`].
    Known(Identified),
    /// A process without a name. A token follows, and nothing else is heard.
    Joiner,
}

/// Decides who calls. A server does this once for each connection, before it reads anything from it.
pub fn caller(
    connection: &ServerConnection,
    trust: &Trust,
    roll: &dyn Roll,
    now: impl Into<Present>,
) -> Result<Caller, Refusal> {
    match protocol(connection)? {
        JOIN => Ok(Caller::Joiner),
        _ => identify(connection, trust, roll, now).map(Caller::Known),
    }
}

/// Decides who answers a dialler: the server that the settings and the dialled name allow, if the ledger has nothing
/// against it.
pub fn callee(
    connection: &ClientConnection,
    trust: &Trust,
    roll: &dyn Roll,
    now: impl Into<Present>,
) -> Result<Identified, Refusal> {
    match protocol(connection)? {
        LINK => identify(connection, trust, roll, now),
        _ => Err(Refusal::Protocol),
    }
}

/// Decides who answers a joiner, and hands out the authority, which is now known in full.
pub fn inviter(
    connection: &ClientConnection,
    authority: Pin,
    now: UnixTime,
) -> Result<(Identified, AuthorityCertificate), Refusal> {
    match (protocol(connection)?, chain(connection)) {
        (JOIN, [leaf, shown @ ..]) => authority.judge(leaf, shown, now),
        _ => Err(Refusal::Protocol),
    }
}

/// The name that the other end has proved. The signature is looked at again, because those who are trusted may have
/// changed since the handshake began.
fn identify(
    connection: &CommonState,
    trust: &Trust,
    roll: &dyn Roll,
    now: impl Into<Present>,
) -> Result<Identified, Refusal> {
    let (leaf, shown) = chain(connection).split_first().ok_or(Refusal::NoCertificate)?;
    let who = trust.judge_with(leaf, shown, now)?;
    roll.look_up(&who)?;
    Ok(who)
}

fn chain(connection: &CommonState) -> &[CertificateDer<'static>] {
    connection.peer_certificates().unwrap_or_default()
}

/// One of ours, over TLS 1.3.
fn protocol(connection: &CommonState) -> Result<&'static [u8], Refusal> {
    if connection.is_handshaking() {
        return Err(Refusal::Handshake("it has not ended yet".to_owned()));
    }
    if connection.protocol_version() != Some(ProtocolVersion::TLSv1_3) {
        return Err(Refusal::Protocol);
    }
    [LINK, JOIN].into_iter().find(|ours| connection.alpn_protocol() == Some(ours)).ok_or(Refusal::Protocol)
}
