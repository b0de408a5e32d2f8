//! A worker on a thread of its own, and how it is told to end.
//!
//! A worker that drains takes nothing new, ends what it has, and waits until its leaders have recorded the results. A worker that
//! stops ends at once what runs, and says so, that others may have it.

use std::thread::{self, JoinHandle};

use primus_core::planted::Planted;
use tokio::runtime::Builder;
use tokio::sync::{broadcast, oneshot, watch};

use super::{Config, Happening, WorkerError, begin, drive};
use crate::executor::Kinds;

/// What a worker is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Order {
    /// Go on.
    Work,
    /// Take nothing new, and end when everything has ended.
    Drain,
    /// End now, in good order.
    Stop,
}

/// A worker that runs in this process. Dropping it stops the worker in good order, too, but nothing waits for that.
#[derive(Debug)]
pub struct WorkerHandle {
    orders: watch::Sender<Order>,
    ended: oneshot::Receiver<Result<(), WorkerError>>,
    /// The worker's own thread, until it has been joined.
    thread: Option<JoinHandle<()>>,
}

impl WorkerHandle {
    pub(super) async fn start(
        config: Config,
        kinds: Kinds,
        happenings: broadcast::Sender<Happening>,
    ) -> Result<Self, WorkerError> {
        let (orders, ordered) = watch::channel(Order::Work);
        let (started, has_started) = oneshot::channel();
        let (tell, ended) = oneshot::channel();
        let running = move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("the system gives a runtime");
            let done = runtime.block_on(run(config, kinds, happenings, (started, ordered)));
            // Its links end before anybody hears that it has ended.
            drop(runtime);
            _ = tell.send(done);
        };
        let thread = thread::Builder::new().name("worker".to_owned());
        let thread = thread.spawn(running).expect("the system gives a thread");
        let mut worker = Self { orders, ended, thread: Some(thread) };
        match has_started.await {
            Ok(()) => Ok(worker),
            Err(_) => {
                worker.ended().await?;
                Ok(worker)
            }
        }
    }

    /// Has it take nothing new and come to an end with what it has. [`WorkerHandle::ended`] says when.
    pub fn drain(&self) {
        self.order(Order::Drain);
    }

    /// Has it end at once what runs, and then end itself. [`WorkerHandle::ended`] says when.
    pub fn stop(&self) {
        self.order(Order::Stop);
    }

    /// A worker that is to stop is not drained any more.
    fn order(&self, order: Order) {
        self.orders.send_if_modified(|current| {
            let is_more = order > *current;
            *current = order.max(*current);
            is_more
        });
    }

    /// Waits until it has ended. Without an order it ends only because it cannot go on.
    ///
    /// # Errors
    /// Why it cannot go on.
    ///
    /// # Panics
    /// If its thread did.
    pub async fn ended(&mut self) -> Result<(), WorkerError> {
        if self.thread.is_none() {
            return Ok(());
        }
        let ended = (&mut self.ended).await;
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
        ended.unwrap_or(Ok(()))
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn run(
    config: Config,
    kinds: Kinds,
    happenings: broadcast::Sender<Happening>,
    (started, orders): (oneshot::Sender<()>, watch::Receiver<Order>),
) -> Result<(), WorkerError> {
    let begun = begin(Planted::NONE, config, kinds, happenings)?;
    _ = started.send(());
    // A task of its own, because it wakes often.
    let driven = tokio::spawn(drive(begun, orders)).await;
    driven.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}
