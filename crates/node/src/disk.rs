//! The disk's own thread: it takes everything that waits, writes it in one go, and says how far it is durable.

use std::sync::{Arc, mpsc as blocking};
use std::thread;
use std::time::Instant;

use primus_core::NodeId;
use primus_core::machine::Token;
use primus_replica::message::Record;
use tokio::sync::mpsc;

use crate::meters::Meters;
use crate::store::{Store, StoreId, WriteError};

/// A way to hand records to the disk and to hear that they are durable.
#[derive(Debug)]
pub struct Disk {
    work: blocking::Sender<Work>,
    done: mpsc::UnboundedReceiver<Result<Token, WriteError>>,
}

#[derive(Debug)]
enum Work {
    Write(Token, Vec<Record>),
    Remember(NodeId, StoreId),
}

/// Starts the thread.
///
/// # Panics
/// If the system gives no thread.
#[must_use]
pub fn start(store: Store, meters: Arc<Meters>) -> Disk {
    let (work, queue) = blocking::channel();
    let (tell, done) = mpsc::unbounded_channel();
    let thread = thread::Builder::new().name("disk".to_owned());
    thread.spawn(move || run(store, &queue, &tell, &meters)).expect("the system gives a thread");
    Disk { work, done }
}

fn run(
    mut store: Store,
    queue: &blocking::Receiver<Work>,
    tell: &mpsc::UnboundedSender<Result<Token, WriteError>>,
    meters: &Meters,
) {
    while let Ok(first) = queue.recv() {
        let (mut newest, mut records) = (None, Vec::new());
        // Whatever came meanwhile shares the same fsync.
        for work in std::iter::once(first).chain(queue.try_iter()) {
            match work {
                Work::Write(token, more) => {
                    newest = newest.max(Some(token));
                    records.extend(more);
                }
                Work::Remember(peer, id) => {
                    if let Err(error) = store.remember_peer(peer, id) {
                        _ = tell.send(Err(error));
                    }
                }
            }
        }
        let Some(token) = newest else { continue };
        let began = Instant::now();
        let written = store.write(&records).map(|()| token);
        meters.syncs.add(began.elapsed());
        if tell.send(written).is_err() {
            return;
        }
    }
}

impl Disk {
    /// Hands records over; they become durable in this order.
    pub fn write(&self, token: Token, records: Vec<Record>) {
        // The thread ends only with the server, or after a failure that the server has been told of.
        _ = self.work.send(Work::Write(token, records));
    }

    /// Keeps a peer's disk in mind for ever.
    pub fn remember(&self, peer: NodeId, store: StoreId) {
        _ = self.work.send(Work::Remember(peer, store));
    }

    /// Waits for the next word of the disk.
    ///
    /// # Errors
    /// If it failed. A server that cannot write must not go on.
    pub async fn done(&mut self) -> Result<Token, WriteError> {
        match self.done.recv().await {
            Some(done) => done,
            None => std::future::pending().await,
        }
    }

    /// The next word of the disk, if there is one already.
    pub fn try_done(&mut self) -> Option<Result<Token, WriteError>> {
        self.done.try_recv().ok()
    }
}
