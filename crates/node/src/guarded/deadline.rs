//! The supervisor's own hold on a guarded command's deadline.
//!
//! The companion kills the command in time, unless it is stopped itself. So a thread of the supervisor watches the same
//! deadline: the last one that the companion has said it knows. When that passes and the command has not ended, the thread
//! kills the companion and everything that the command has started. A companion that hears nothing, because it is stopped,
//! therefore costs its command's life after one lease, even while the lease itself goes on: otherwise a supervisor that is
//! stopped later would leave a command behind that nothing ends.
//!
//! It is a thread, not a part of the supervisor's loop, so that a loop that waits for something cannot make it late.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::clock::now_us;
use crate::companion::cage::Cage;
use crate::companion::guarded::KILL_BEFORE_US;
use crate::companion::kin;

/// So long before the deadline this thread acts: after the companion should have, and before the time is over.
const ACT_BEFORE_US: u64 = KILL_BEFORE_US / 2;
/// The timers of a process stand still while its host sleeps, but leases do not: so the clock is looked at this often.
const LOOK: Duration = Duration::from_secs(1);

/// The deadline of one companion's command. The thread ends with this.
#[derive(Debug)]
pub(super) struct Deadline(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    companion: Pid,
    /// What is in the environment of everything that the command starts.
    mark: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Nothing while no command runs.
    until_us: Option<u64>,
    is_over: bool,
}

impl Deadline {
    /// Watches over what this child of the process starts.
    pub(super) fn new(companion: Pid, mark: String) -> io::Result<Self> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { companion, mark, state, changed });
        let own = Arc::clone(&shared);
        thread::Builder::new().name("deadline".to_owned()).spawn(move || own.watch())?;
        Ok(Self(shared))
    }

    /// The command has been started, or may go on, until then at least.
    pub(super) fn extend(&self, until_us: u64) {
        let mut state = self.0.state();
        let later_us = until_us.max(state.until_us.unwrap_or(0));
        let before = state.until_us.replace(later_us);
        if before.is_none() {
            self.0.changed.notify_one();
        }
    }

    /// The command has ended.
    pub(super) fn lift(&self) {
        self.0.state().until_us = None;
    }

    /// From now on the owner kills what is to be killed. To be called before the companion is waited for: until then its
    /// number cannot become another process's.
    pub(super) fn leave(&self) {
        self.0.state().is_over = true;
        self.0.changed.notify_one();
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) {
        let mut state = self.state();
        while !state.is_over {
            state = match state.until_us {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(until_us) => {
                    let rest_us = until_us.saturating_sub(ACT_BEFORE_US).saturating_sub(now_us());
                    if rest_us == 0 {
                        // The lock is held meanwhile, so that the owner does not wait for the companion.
                        self.kill();
                        state.until_us = None;
                        continue;
                    }
                    let rest = Duration::from_micros(rest_us).min(LOOK);
                    self.changed.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Stopped processes can be killed, too. The system kills the command with its parent, the companion; the rest is found
    /// by its control group, by its session and by its mark.
    fn kill(&self) {
        _ = kill_process(self.companion, Signal::KILL);
        if let Some(cage) = Cage::of(self.companion) {
            cage.kill_and_bury();
        }
        kin::kill_session(self.companion);
        kin::kill_children_with(&self.mark);
    }
}
