//! What leaves on a link between a server and a worker: a queue that is written by a task of its own, and that says when too
//! much waits in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::WriteHalf;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::cuts::Line;

/// How long one write may take.
pub(crate) const WRITE_TIME: Duration = Duration::from_secs(5);
/// How much may wait.
const LEAVING_LEN_MAX: usize = 128 << 20;

/// Where to write. The link ends when nobody has this any more.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    queue: mpsc::UnboundedSender<Bytes>,
    /// How many bytes wait.
    leaving: Arc<AtomicUsize>,
}

/// The other end: what is to be written.
#[derive(Debug)]
pub(crate) struct Leaving {
    queue: mpsc::UnboundedReceiver<Bytes>,
    leaving: Arc<AtomicUsize>,
}

/// A queue for a new link.
pub(crate) fn queue() -> (Outgoing, Leaving) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let leaving = Arc::<AtomicUsize>::default();
    (Outgoing { queue: sender, leaving: Arc::clone(&leaving) }, Leaving { queue: receiver, leaving })
}

impl Outgoing {
    /// False if too much waits already.
    pub(crate) fn send(&self, bytes: Bytes) -> bool {
        let waiting = self.leaving.fetch_add(bytes.len(), Ordering::Relaxed);
        // If the link is lost, everything is said again on the next one.
        _ = self.queue.send(bytes);
        waiting <= LEAVING_LEN_MAX
    }
}

impl Leaving {
    /// Writes until the link is lost or nobody says anything any more, as long as the line lets it pass, where there is one
    /// that may be cut.
    pub(crate) async fn write_to(mut self, mut writing: WriteHalf<'_>, mut line: Option<Line>) {
        while let Some(bytes) = self.queue.recv().await {
            if let Some(line) = &mut line {
                line.flows().await;
            }
            if !matches!(timeout(WRITE_TIME, writing.write_all(&bytes)).await, Ok(Ok(()))) {
                return;
            }
            self.leaving.fetch_sub(bytes.len(), Ordering::Relaxed);
        }
    }
}
