//! The disk's own thread: it takes everything that waits, writes it in one go, and says how far it is durable.
//!
//! A full disk is no failure: nobody has been told of what does not fit, so the thread tries the same again until there is
//! room. It looks ahead, too: a disk counts as full ([`Meters::disk_full`]) while there is still some room, which is kept
//! for votes and for the results of what runs. So new work is refused before anybody would have to wait for it.

use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError, mpsc as blocking};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use primus_core::machine::Token;
use primus_replica::message::Record;
use tokio::sync::{mpsc, oneshot};

use crate::meters::Meters;
use crate::store::{Origin, Store, WriteError};
use crate::watched::{self, Broken};

/// How long to wait for room on a full disk before trying again.
const FULL_PAUSE: Duration = Duration::from_millis(50);
/// How often to look how much room there is.
const LOOK: Duration = Duration::from_secs(1);
/// A disk with less room than this, in bytes, takes no new work.
const RESERVE: u64 = 16 << 20;

/// Something on disk to which records can be added.
pub trait Durable: Send + 'static {
    /// What is kept.
    type Record: Send;
    /// Why it is not known to be kept.
    type Error: Send + From<Broken>;

    /// Makes these records durable, in this order, and returns when they are.
    ///
    /// # Errors
    /// If they are not known to be durable.
    fn write(&mut self, records: &[Self::Record]) -> Result<(), Self::Error>;

    /// Was there only no room, so that the same can be written again?
    fn is_full(error: &Self::Error) -> bool;

    /// Where it lies, if somebody shall look whether there is room.
    fn place(&self) -> Option<&Path> {
        None
    }
}

/// A way to hand records to the disk and to hear that they are durable.
#[derive(Debug)]
pub struct Disk<S: Durable = Store> {
    work: blocking::Sender<Work<S>>,
    done: mpsc::UnboundedReceiver<Result<Token, S::Error>>,
}

enum Work<S: Durable> {
    Write(Token, Vec<S::Record>),
    /// Anything else, in its turn.
    Other(Other<S>),
}

type Other<S> = Box<dyn Fn(&mut S) -> Result<(), <S as Durable>::Error> + Send>;

/// Starts the thread.
///
/// # Panics
/// If the system gives no thread.
#[must_use]
pub fn start<S: Durable>(store: S, meters: Arc<Meters>) -> Disk<S> {
    let (work, queue) = blocking::channel();
    let (tell, done) = mpsc::unbounded_channel();
    let thread = thread::Builder::new().name("disk".to_owned());
    let running = move || {
        if let Err(broken) = watched::call("disk", || run(store, &queue, &tell, &meters)) {
            _ = tell.send(Err(broken.into()));
        }
    };
    thread.spawn(running).expect("the system gives a thread");
    Disk { work, done }
}

fn run<S: Durable>(
    mut store: S,
    queue: &blocking::Receiver<Work<S>>,
    tell: &mpsc::UnboundedSender<Result<Token, S::Error>>,
    meters: &Meters,
) {
    let mut looked = None;
    loop {
        look_for_room(&store, meters, &mut looked);
        let first = match queue.recv_timeout(LOOK) {
            Ok(first) => first,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let (mut newest, mut records) = (None, Vec::new());
        // Whatever came meanwhile shares the same fsync.
        for work in std::iter::once(first).chain(queue.try_iter()) {
            match work {
                Work::Write(token, more) => {
                    newest = newest.max(Some(token));
                    records.extend(more);
                }
                Work::Other(other) => {
                    if let Err(error) = when_there_is_room(&mut store, meters, &other) {
                        _ = tell.send(Err(error));
                    }
                }
            }
        }
        let Some(token) = newest else { continue };
        let began = Instant::now();
        let written = when_there_is_room(&mut store, meters, |store| store.write(&records)).map(|()| token);
        meters.syncs.add(began.elapsed());
        if tell.send(written).is_err() {
            return;
        }
    }
}

/// Looks how much room there is, unless it has just done so.
fn look_for_room<S: Durable>(store: &S, meters: &Meters, looked: &mut Option<Instant>) {
    if looked.is_some_and(|looked| looked.elapsed() < LOOK) {
        return;
    }
    *looked = Some(Instant::now());
    // Where the system does not say, a write that fails will.
    let room = store.place().and_then(|place| rustix::fs::statvfs(place).ok());
    meters.disk_full.set(room.is_some_and(|room| room.f_bavail.saturating_mul(room.f_frsize) < RESERVE));
}

/// Does this, again and again as long as the disk is full.
fn when_there_is_room<S: Durable>(
    store: &mut S,
    meters: &Meters,
    change: impl Fn(&mut S) -> Result<(), S::Error>,
) -> Result<(), S::Error> {
    loop {
        let changed = change(store);
        let is_stuck = changed.as_ref().is_err_and(S::is_full);
        meters.disk_stuck.set(is_stuck);
        if !is_stuck {
            return changed;
        }
        meters.disk_full.set(true);
        thread::sleep(FULL_PAUSE);
    }
}

impl Durable for Store {
    type Record = Record;
    type Error = WriteError;

    fn write(&mut self, records: &[Record]) -> Result<(), WriteError> {
        Self::write(self, records)
    }

    fn is_full(error: &WriteError) -> bool {
        matches!(error, WriteError::Full { .. })
    }

    fn place(&self) -> Option<&Path> {
        Some(self.directory())
    }
}

/// A way to keep how far the founding has come.
#[derive(Debug, Clone)]
pub(crate) struct Origins(blocking::Sender<Work<Store>>);

impl Origins {
    /// Keeps it; the answer comes when it is durable, and never if the disk has failed.
    pub(crate) fn keep(&self, origin: Origin) -> oneshot::Receiver<()> {
        let (kept, is_kept) = oneshot::channel();
        let kept = Mutex::new(Some(kept));
        let keep = move |store: &mut Store| {
            store.keep_origin(&origin)?;
            let kept = kept.lock().unwrap_or_else(PoisonError::into_inner).take();
            kept.into_iter().for_each(|kept| _ = kept.send(()));
            Ok(())
        };
        _ = self.0.send(Work::Other(Box::new(keep)));
        is_kept
    }
}

impl Disk<Store> {
    /// For the time of its founding.
    pub(crate) fn origins(&self) -> Origins {
        Origins(self.work.clone())
    }
}

impl<S: Durable> Disk<S> {
    /// Hands records over; they become durable in this order.
    pub fn write(&self, token: Token, records: Vec<S::Record>) {
        // The thread ends only with the server, or after a failure that the server has been told of.
        _ = self.work.send(Work::Write(token, records));
    }

    /// Writes what it has been given, and returns when what it writes to is closed.
    pub(crate) async fn close(self) {
        let Self { work, mut done } = self;
        drop(work);
        while done.recv().await.is_some() {}
    }

    /// Waits for the next word of the disk.
    ///
    /// # Errors
    /// If it failed. A server that cannot write must not go on.
    pub async fn done(&mut self) -> Result<Token, S::Error> {
        match self.done.recv().await {
            Some(done) => done,
            None => std::future::pending().await,
        }
    }

    /// The next word of the disk, for whoever waits for several things.
    pub(crate) fn poll_done(&mut self, context: &mut Context<'_>) -> Poll<Result<Token, S::Error>> {
        match self.done.poll_recv(context) {
            Poll::Ready(Some(done)) => Poll::Ready(done),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// The next word of the disk, if there is one already.
    pub fn try_done(&mut self) -> Option<Result<Token, S::Error>> {
        self.done.try_recv().ok()
    }
}
