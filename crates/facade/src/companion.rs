//! The companion: a second process of your program, which owns the commands of a worker and kills them when the worker dies.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a companion is started with.
const ARGUMENT: &str = "primus-companion";

static IS_CALLED: AtomicBool = AtomicBool::new(false);

/// Lets this program be its own companion. A program whose workers run commands calls this first in `main`; one whose workers
/// only have kinds need not.
///
/// A worker that allows commands starts the program again with one argument of its own. In that process this function does not
/// return; otherwise it does nothing.
pub fn companion() {
    IS_CALLED.store(true, Ordering::Relaxed);
    if std::env::args_os().nth(1).is_some_and(|argument| argument == ARGUMENT) {
        exit(i32::from(primus_node::companion::run().is_err()));
    }
}

/// How this program is started as a companion; nothing if it cannot be one.
pub(crate) fn of_this_program() -> io::Result<Option<(PathBuf, Vec<OsString>)>> {
    if !IS_CALLED.load(Ordering::Relaxed) {
        return Ok(None);
    }
    Ok(Some((std::env::current_exe()?, vec![ARGUMENT.into()])))
}
