//! How control is asked, and how much of that may wait for it.
//!
//! Writes weigh what they hold ([`crate::handle::Handle::change`]). A read weighs as much as the question that it belongs to,
//! from before control is asked until it is answered. Everything else is short and rare, and is counted.

use tokio::sync::mpsc;

use crate::budget::{Budget, Weight};
use crate::handle::{Request, Unable};

/// How many requests that are neither a write nor a read may wait.
const REQUESTS_MAX: u32 = 1024;

/// What arrives at control, with its place among those that are counted.
pub(crate) type Requested = (Request, Option<Weight>);

/// Where requests go.
#[derive(Debug, Clone)]
pub(crate) struct Requests {
    queue: mpsc::UnboundedSender<Requested>,
    room: Budget,
}

impl Requests {
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Requested>) {
        let (queue, received) = mpsc::unbounded_channel();
        (Self { queue, room: Budget::new(REQUESTS_MAX) }, received)
    }

    /// Asks for something. Without room it is refused: who waits for the answer hears that. False if it was not taken.
    pub(crate) fn ask(&self, request: Request) -> bool {
        let weight = match request {
            Request::Propose(..) | Request::Confirm(_) => None,
            _ => match self.room.take(1) {
                Some(weight) => Some(weight),
                None => {
                    request.refuse(Unable::Busy);
                    return false;
                }
            },
        };
        self.queue.send((request, weight)).is_ok()
    }

    /// Has the server ended?
    pub(crate) fn are_over(&self) -> bool {
        self.queue.is_closed()
    }
}
