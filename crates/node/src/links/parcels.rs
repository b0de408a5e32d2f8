//! What is too long for a frame arrives in pieces, before the message that it belongs to.

use std::io;

use bytes::BytesMut;
use primus_wire::native::{CARGO_LEN_MAX, Parcel};

use super::Words;

/// The message of a parcel, its cargo restored; nothing if more has to come.
pub(super) fn unpack<T: Words>(parcel: Parcel<T>, hold: &mut BytesMut) -> io::Result<Option<T>> {
    match parcel {
        Parcel::Message(message) => Ok(Some(message)),
        Parcel::Piece(piece) if hold.len() + piece.len() > CARGO_LEN_MAX => {
            Err(io::Error::other(format!("more than {CARGO_LEN_MAX} bytes of cargo")))
        }
        Parcel::Piece(piece) => {
            hold.extend_from_slice(&piece);
            Ok(None)
        }
        Parcel::Laden(mut message) => {
            message.load(std::mem::take(hold).freeze());
            Ok(Some(message))
        }
    }
}
