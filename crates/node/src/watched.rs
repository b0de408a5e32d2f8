//! Parts of a server that must not die alone: control, the farm, further elections, the disk. When one of them panics (most
//! likely inside the Raft engine or the database), the server ends as a whole, with one sentence that says what happened,
//! instead of going on without that part.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::pin::pin;
use std::sync::Once;
use std::task::Poll;

/// A part of a server that has failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("its {part} has failed: {what}")]
pub struct Broken {
    part: &'static str,
    what: String,
}

thread_local! {
    /// How many that watch this thread are inside each other now.
    static WATCHED: Cell<u32> = const { Cell::new(0) };
    /// Where the last panic of a watched part happened.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

impl Broken {
    /// A part that noticed by itself that it cannot go on.
    #[must_use]
    pub fn new(part: &'static str, what: impl Into<String>) -> Self {
        Self { part, what: what.into() }
    }

    fn by_panic(part: &'static str, payload: &(dyn Any + Send)) -> Self {
        let said = payload.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
        match PLACE.take() {
            Some(place) => Self::new(part, format!("{said} ({place})")),
            None => Self::new(part, said),
        }
    }
}

/// From now on panics of watched parts are not written to stderr: whoever watches them says what happened. All others are
/// written there as before.
pub fn hush() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |panic: &PanicHookInfo<'_>| {
            if WATCHED.get() == 0 {
                return others(panic);
            }
            PLACE.set(panic.location().map(ToString::to_string));
        }));
    });
}

/// Does this, and says if it panicked.
pub(crate) fn call<T>(part: &'static str, work: impl FnOnce() -> T) -> Result<T, Broken> {
    WATCHED.set(WATCHED.get() + 1);
    let done = catch_unwind(AssertUnwindSafe(work));
    WATCHED.set(WATCHED.get() - 1);
    done.map_err(|payload| Broken::by_panic(part, payload.as_ref()))
}

/// Waits for this, and says if it panicked.
pub(crate) async fn watch<F: Future>(part: &'static str, future: F) -> Result<F::Output, Broken> {
    let mut future = pin!(future);
    std::future::poll_fn(move |context| match call(part, || future.as_mut().poll(context)) {
        Ok(poll) => poll.map(Ok),
        Err(broken) => Poll::Ready(Err(broken)),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_a_sentence() {
        assert_eq!(watch("farm", async { 7 }).await, Ok(7));
        let broken = watch("farm", async {
            tokio::task::yield_now().await;
            panic!("to_commit {} is out of range", 26)
        });
        assert_eq!(broken.await, Err::<(), _>(Broken::new("farm", "to_commit 26 is out of range")));
        assert_eq!(call("disk", || panic!("short")), Err::<(), _>(Broken::new("disk", "short")));
        assert_eq!(WATCHED.get(), 0);
    }
}
