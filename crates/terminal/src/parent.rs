//! A process that must not outlive the one that started it.

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::failure::Failure;

/// Ends this process when its parent ends, however that happens.
///
/// # Errors
/// If the system cannot do that, or the parent has ended already.
pub fn end_with(parent: i32, by: Signal) -> Result<(), Failure> {
    let failed = |_| Failure::server("the system cannot tell when the parent ends", "start without --parent");
    set_parent_process_death_signal(Some(by)).map_err(failed)?;
    // It may have ended before we asked.
    let is_orphan = getppid().is_none_or(|pid| pid.as_raw_nonzero().get() != parent);
    if is_orphan { Err(Failure::server("the parent has ended", "start it again")) } else { Ok(()) }
}
