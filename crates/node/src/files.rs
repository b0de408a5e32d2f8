//! How many files a process may have open: connections are files, too.

use std::fs::File;
use std::os::fd::RawFd;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More files than all connections that a server may have.
const FILES: RawFd = 8000;

/// Lets this process have as many files as the system allows: by default there are few, and unidentified connections must not
/// use up those that peers need.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Where the limit must not be raised, the process works with what it has.
    _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Makes room for many files at once. The system makes room step by step, and every step stops the thread that opens a file until
/// all processors know of it: for tens of milliseconds on a busy host.
pub fn make_room() {
    _ = File::open("/dev/null").map(|file| fcntl_dupfd_cloexec(&file, FILES));
}
