//! What leaves on a link between a server and a worker: a queue that is written by a task of its own, and that says when too
//! much waits in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::link_faults::LinkGate;

/// How long one write may take.
pub(crate) const WRITE_TIME: Duration = Duration::from_secs(5);
/// How much may wait on one link. What is longer has room when nothing else waits.
const LINK_LEN_MAX: usize = 64 << 20;
/// How much may wait on all links of a process together. Beyond that those are lost on which more waits than honest words.
const ALL_LEN_MAX: usize = 128 << 20;
const HONEST_LEN: usize = 1 << 20;
/// How many words are taken from a queue at once, and how much of them leaves together.
const WORDS_MAX: usize = 64;
const TOGETHER_LEN_MAX: usize = 64 << 10;

/// How many bytes wait on all links of one kind.
#[derive(Debug, Clone, Default)]
pub(crate) struct All(Arc<AtomicUsize>);

/// Where to write. The link ends when nobody has this any more.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    queue: mpsc::UnboundedSender<Bytes>,
    waiting: Arc<Waiting>,
}

/// The other end: what is to be written.
#[derive(Debug)]
pub(crate) struct Leaving {
    queue: mpsc::UnboundedReceiver<Bytes>,
    waiting: Arc<Waiting>,
}

/// How many bytes wait: here, and on all links. Those of a link that is lost do not wait any more.
#[derive(Debug)]
struct Waiting {
    here: AtomicUsize,
    all: All,
}

/// A queue for a new link, one of all these.
pub(crate) fn queue(all: &All) -> (Outgoing, Leaving) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let waiting = Arc::new(Waiting { here: AtomicUsize::new(0), all: all.clone() });
    (Outgoing { queue: sender, waiting: Arc::clone(&waiting) }, Leaving { queue: receiver, waiting })
}

impl Waiting {
    /// False if too much waits already.
    fn add(&self, len: usize) -> bool {
        let here = self.here.fetch_add(len, Ordering::Relaxed);
        let all = self.all.0.fetch_add(len, Ordering::Relaxed);
        here <= LINK_LEN_MAX && (all <= ALL_LEN_MAX || here <= HONEST_LEN)
    }

    fn remove(&self, len: usize) {
        self.here.fetch_sub(len, Ordering::Relaxed);
        self.all.0.fetch_sub(len, Ordering::Relaxed);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let here = *self.here.get_mut();
        self.remove(here);
    }
}

impl Outgoing {
    /// False if too much waits already.
    pub(crate) fn send(&self, bytes: Bytes) -> bool {
        let has_room = self.waiting.add(bytes.len());
        // If the link is lost, everything is said again on the next one.
        _ = self.queue.send(bytes);
        has_room
    }
}

impl Leaving {
    /// Writes until the link is lost or nobody says anything any more, as long as the gate lets it pass, where there is one.
    pub(crate) async fn write_to(mut self, mut writing: impl AsyncWrite + Unpin, mut gate: Option<LinkGate>) {
        let mut words = Vec::new();
        while self.queue.recv_many(&mut words, WORDS_MAX).await > 0 {
            for bytes in together(&mut words) {
                if let Some(gate) = &mut gate {
                    gate.flows().await;
                }
                let written = async {
                    writing.write_all(&bytes).await?;
                    writing.flush().await
                };
                if !matches!(timeout(WRITE_TIME, written).await, Ok(Ok(()))) {
                    return;
                }
                self.waiting.remove(bytes.len());
            }
        }
    }
}

/// Short words that follow each other become one: each write is a system call, and a record where links are encrypted.
fn together(words: &mut Vec<Bytes>) -> Vec<Bytes> {
    if words.len() <= 1 {
        return std::mem::take(words);
    }
    let (mut pieces, mut piece) = (Vec::new(), BytesMut::new());
    for word in words.drain(..) {
        let is_long = word.len() > TOGETHER_LEN_MAX;
        if !piece.is_empty() && (is_long || piece.len() + word.len() > TOGETHER_LEN_MAX) {
            pieces.push(piece.split().freeze());
        }
        if is_long {
            pieces.push(word);
        } else {
            piece.extend_from_slice(&word);
        }
    }
    pieces.extend((!piece.is_empty()).then(|| piece.freeze()));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_words_leave_together_and_in_order() {
        let word = |byte: u8, len| Bytes::from(vec![byte; len]);
        let lens = [10, 20, TOGETHER_LEN_MAX + 1, 30, TOGETHER_LEN_MAX - 30, 1, 2];
        let mut words: Vec<Bytes> = (1..).zip(lens).map(|(byte, len)| word(byte, len)).collect();
        let all = words.concat();
        let pieces = together(&mut words);
        let found: Vec<usize> = pieces.iter().map(Bytes::len).collect();
        assert_eq!(found, [30, TOGETHER_LEN_MAX + 1, TOGETHER_LEN_MAX, 3]);
        assert!(words.is_empty() && pieces.concat() == all);
        assert_eq!(together(&mut vec![word(7, 5)]), [word(7, 5)]);
    }

    #[test]
    fn whoever_does_not_read_is_lost_and_the_others_are_not() {
        let all = All::default();
        let (fat, other) = (queue(&all), queue(&all));
        let piece = || Bytes::from(vec![0; 32 << 20]);
        assert!((0..3).all(|_| fat.0.send(piece())), "there was room when each came");
        assert!(!fat.0.send(piece()));
        assert!(other.0.send(piece()), "it has said nothing yet");
        assert!(!other.0.send(piece()), "all together have too much, and it is not little");
        drop(fat);
        assert!(other.0.send(Bytes::from_static(b"a word")));
        drop(other);
        assert_eq!(all.0.load(Ordering::Relaxed), 0);
    }
}
