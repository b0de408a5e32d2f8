//! Frames: a length of four bytes, most significant first, then that many bytes.
//!
//! The length is a promise of a stranger. It is checked against the limit, and nothing is allocated for it: the buffer
//! grows as bytes arrive, so a peer that promises much and sends little costs little.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

/// No frame is longer.
pub const FRAME_LEN_MAX: usize = 1 << 20;
const PREFIX_LEN: usize = 4;

/// Why a stream is not worth reading on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// It promises too much.
    #[error("a frame of {0} bytes is longer than {FRAME_LEN_MAX}")]
    TooLong(usize),
}

/// Takes the next whole frame out of what has arrived, if there is one.
///
/// # Errors
/// If the next frame can never be whole.
pub fn take(arrived: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
    let Some(prefix) = arrived.first_chunk::<PREFIX_LEN>() else { return Ok(None) };
    let length = u32::from_be_bytes(*prefix) as usize;
    if length > FRAME_LEN_MAX {
        return Err(FrameError::TooLong(length));
    }
    if arrived.len() < PREFIX_LEN + length {
        return Ok(None);
    }
    arrived.advance(PREFIX_LEN);
    Ok(Some(arrived.split_to(length).freeze()))
}

/// Appends a frame that `write` fills.
///
/// # Errors
/// If it would be too long; then nothing is appended.
pub fn put(buffer: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) -> Result<(), FrameError> {
    let start = buffer.len();
    buffer.put_u32(0);
    write(buffer);
    let length = buffer.len() - start - PREFIX_LEN;
    if length > FRAME_LEN_MAX {
        buffer.truncate(start);
        return Err(FrameError::TooLong(length));
    }
    let prefix = u32::try_from(length).expect("the limit fits").to_be_bytes();
    buffer[start..start + PREFIX_LEN].copy_from_slice(&prefix);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in_however_the_stream_is_cut(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
            pieces in prop::collection::vec(1usize..70, 1..200),
        ) {
            let mut stream = BytesMut::new();
            for frame in &frames {
                put(&mut stream, |buffer| buffer.put_slice(frame)).unwrap();
            }
            let (mut arrived, mut found) = (BytesMut::new(), Vec::new());
            let mut pieces = pieces.into_iter().cycle();
            while stream.has_remaining() {
                let piece = pieces.next().unwrap().min(stream.len());
                arrived.put(stream.split_to(piece));
                while let Some(frame) = take(&mut arrived).unwrap() {
                    found.push(frame.to_vec());
                }
            }
            prop_assert_eq!(found, frames);
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut arrived = BytesMut::from(&bytes[..]);
            while let Ok(Some(frame)) = take(&mut arrived) {
                prop_assert!(frame.len() <= bytes.len());
            }
        }
    }

    #[test]
    fn a_promise_of_four_gigabytes_is_refused_and_costs_nothing() {
        let mut arrived = BytesMut::from(&[0xff, 0xff, 0xff, 0xff, 1][..]);
        assert_eq!(take(&mut arrived), Err(FrameError::TooLong(u32::MAX as usize)));
        assert!(arrived.capacity() < 1024);
    }

    #[test]
    fn what_is_too_long_is_not_written() {
        let mut buffer = BytesMut::new();
        assert!(put(&mut buffer, |buffer| buffer.put_bytes(0, FRAME_LEN_MAX + 1)).is_err());
        assert!(buffer.is_empty());
        assert!(put(&mut buffer, |buffer| buffer.put_bytes(0, FRAME_LEN_MAX)).is_ok());
    }
}
