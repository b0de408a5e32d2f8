//! What new files are closed to: everything but their owner for servers and workers, as before for what they start.
//!
//! A process has one umask for all its threads. What this crate makes has its mode anyway ([`private`](crate::private)), so
//! the moment in which the old umask counts again, while a command is started, exposes nothing.

use std::sync::{Mutex, OnceLock};

use rustix::fs::Mode;
use rustix::process::umask;

/// Whatever this process makes is for its owner alone.
const OWN: Mode = Mode::RWXG.union(Mode::RWXO);

static BEFORE: OnceLock<Mode> = OnceLock::new();
static CHANGING: Mutex<()> = Mutex::new(());

/// From now on new files of this process are for its owner alone. Commands that it starts are not restricted by that.
pub fn restrict() {
    let before = umask(OWN);
    _ = BEFORE.set(before);
}

/// Starts something with the umask that this process was started with.
pub fn as_before<T>(start: impl FnOnce() -> T) -> T {
    let Some(before) = BEFORE.get() else { return start() };
    let _changing = CHANGING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    umask(*before);
    let started = start();
    umask(OWN);
    started
}
