//! Waiting for conditions, never for durations, and never for ever.
#![allow(dead_code, reason = "every test program uses its part of this")]

use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up. Far more than it should, because the host may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(2);

/// Waits until the attempt finds something.
pub(crate) fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(Instant::now() < until, "waited in vain for {what}");
        thread::sleep(PAUSE);
    }
}

/// The same, while the other tasks of this thread go on.
pub(crate) async fn eventually_async<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let attempts = async {
        loop {
            if let Some(found) = attempt().await {
                return found;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, attempts).await;
    found.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}
