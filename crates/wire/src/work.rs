//! What servers and workers say to each other once they have met. Leaders of two farms talk in the same frames; what they say is
//! [`primus_core::loan::Message`].
//!
//! A word takes one frame, or several if it is long (a worker that was away may have many results to tell): the first byte
//! of a frame says whether its word goes on in the next.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use primus_core::farm::Message;
use primus_core::ledger::Held;
use primus_core::loan::WorkerMessage;
use primus_core::{Place, ServerId, Term};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::frame;
use crate::native::NotUnderstood;

/// No word is longer: whoever sends one must not fill the memory of whoever reads it.
pub const WORD_LEN_MAX: usize = 64 << 20;
/// No word of another farm is longer.
pub const FARM_WORD_LEN_MAX: usize = 1 << 20;
/// How much of a word is in one frame.
const PIECE_LEN_MAX: usize = 512 << 10;
const LAST: u8 = 0;
const GOES_ON: u8 = 1;

/// What a server says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToWorker {
    /// What its foreman says.
    Farm(Message),
    /// This server leads, in this term.
    Leads(Term),
    /// It does not any more.
    Follows,
    /// Give me a part of an output; the answer carries this number.
    Output(u64, Part),
    /// What its lending says, and where the servers of the farm are that it speaks of.
    Loan(WorkerMessage, BTreeMap<ServerId, Place>),
    /// The servers of this farm are named by the authority with this certificate, in DER.
    Authority(String, Bytes),
    /// Believe these authorities about its own farm.
    Authorities {
        /// How old this is, by the ledger's time.
        as_of_ms: u64,
        /// What time it is for the ledger; 0 if that is not sure.
        now_ms: u64,
        /// Their certificates as DER, the newest first.
        authorities: Vec<Bytes>,
    },
    /// Show this certificate from now on.
    Certificate {
        /// The certificate, as DER.
        certificate: Bytes,
        /// That of the authority that has issued it.
        authority: Bytes,
        /// What vouches for that authority; empty for the first one of a farm.
        voucher: Bytes,
    },
}

/// What a worker says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromWorker {
    /// What its machine says.
    Farm(Message),
    /// The part of an output that was asked for under this number, if there is such a file.
    Output(u64, Option<Bytes>),
    /// Where it is.
    Loan(WorkerMessage),
    /// A new certificate, please, for this public key, as DER.
    Renew(Bytes),
    /// Its certificate is from the authority with this hash.
    Shows([u8; 32]),
}

/// A part of an attempt's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Which attempt at which task.
    pub held: Held,
    /// Which of its streams.
    pub stream: Stream,
    /// From where on.
    pub offset: u64,
    /// How much, at most.
    pub len_max: u32,
}

/// One of the two streams of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stream {
    /// What it prints.
    Stdout,
    /// Its complaints.
    Stderr,
}

/// Appends a word, in as many frames as it takes. What is longer than [`WORD_LEN_MAX`] is left out.
pub fn put<T: Serialize>(buffer: &mut BytesMut, word: &T) {
    let bytes = postcard::to_stdvec(word).unwrap_or_default();
    if bytes.len() > WORD_LEN_MAX {
        return;
    }
    let mut pieces = bytes.chunks(PIECE_LEN_MAX).peekable();
    while let Some(piece) = pieces.next() {
        let mark = if pieces.peek().is_some() { GOES_ON } else { LAST };
        let fits = frame::put(buffer, |buffer| {
            buffer.put_u8(mark);
            buffer.put_slice(piece);
        });
        fits.expect("a piece fits into a frame");
    }
}

/// Takes words out of what arrives.
#[derive(Debug)]
pub struct Reader {
    /// The beginning of a long word.
    hold: BytesMut,
    len_max: usize,
}

impl Default for Reader {
    fn default() -> Self {
        Self::up_to(WORD_LEN_MAX)
    }
}

impl Reader {
    /// Reads words that are no longer than this.
    #[must_use]
    pub fn up_to(len_max: usize) -> Self {
        Self { hold: BytesMut::new(), len_max }
    }

    /// From now on words may be this long.
    pub const fn allow(&mut self, len_max: usize) {
        self.len_max = len_max;
    }

    /// How many bytes of a word that goes on it keeps.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hold.len()
    }

    /// Is it between two words?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hold.is_empty()
    }

    /// The next whole word of what has arrived, if there is one.
    ///
    /// # Errors
    /// If what comes next can never be one.
    pub fn take<T: DeserializeOwned>(&mut self, arrived: &mut BytesMut) -> Result<Option<T>, NotUnderstood> {
        while let Some(frame) = frame::take(arrived)? {
            let (mark, piece) = frame.split_first().ok_or(NotUnderstood::Message)?;
            if self.hold.len() + piece.len() > self.len_max {
                return Err(NotUnderstood::Message);
            }
            if *mark == LAST && self.hold.is_empty() {
                return parse(piece).map(Some);
            }
            self.hold.extend_from_slice(piece);
            if *mark == LAST {
                return parse(&std::mem::take(&mut self.hold)).map(Some);
            }
        }
        Ok(None)
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, NotUnderstood> {
    match postcard::take_from_bytes(bytes) {
        Ok((word, [])) => Ok(word),
        _ => Err(NotUnderstood::Message),
    }
}

#[cfg(test)]
mod tests {
    use primus_core::farm::HELD_MAX;
    use primus_core::ledger::{Attempt, JobId, TaskId};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_come_out_as_they_went_in_however_long_they_are() {
        let words = [10, PIECE_LEN_MAX, 3 << 20, 0].map(|len| FromWorker::Output(7, Some(vec![1; len].into())));
        let (mut buffer, mut reader) = (BytesMut::new(), Reader::default());
        words.iter().for_each(|word| put(&mut buffer, word));
        for word in words {
            assert_eq!(reader.take(&mut buffer), Ok(Some(word)));
        }
        assert_eq!(reader.take::<FromWorker>(&mut buffer), Ok(None));
    }

    #[test]
    fn a_list_of_a_worker_is_read_up_to_its_bound() {
        let held =
            Held { task: TaskId { job: JobId(1), index: 1 }, attempt: Attempt { term: Term(1), sequence: 1 } };
        let read = |count| {
            let mut buffer = BytesMut::new();
            put(&mut buffer, &FromWorker::Farm(Message::GaveBack(vec![held; count])));
            Reader::default().take::<FromWorker>(&mut buffer)
        };
        assert!(
            matches!(read(HELD_MAX), Ok(Some(FromWorker::Farm(Message::GaveBack(all)))) if all.len() == HELD_MAX)
        );
        assert_eq!(read(HELD_MAX + 1), Err(NotUnderstood::Message));
    }

    #[test]
    fn a_word_without_end_is_refused() {
        let (mut buffer, mut reader) = (BytesMut::new(), Reader::default());
        let is_refused = (0..200).any(|_| {
            frame::put(&mut buffer, |buffer| buffer.put_bytes(GOES_ON, PIECE_LEN_MAX)).unwrap();
            reader.take::<FromWorker>(&mut buffer).is_err()
        });
        assert!(is_refused && reader.hold.len() <= WORD_LEN_MAX);
    }

    #[test]
    fn a_reader_may_want_less() {
        let mut buffer = BytesMut::new();
        put(&mut buffer, &FromWorker::Output(7, Some(vec![1; 100].into())));
        assert!(Reader::up_to(200).take::<FromWorker>(&mut buffer.clone()).is_ok());
        assert!(Reader::up_to(100).take::<FromWorker>(&mut buffer).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut framed = BytesMut::new();
            frame::put(&mut framed, |buffer| buffer.put_slice(&bytes)).unwrap();
            _ = Reader::default().take::<ToWorker>(&mut framed.clone());
            _ = Reader::default().take::<FromWorker>(&mut framed);
        }
    }
}
