//! How tests tell `./x` what they did: stories told, runs made, states explored, planted bugs found.

use std::fs::OpenOptions;
use std::io::Write;

/// Adds `count` of `what` to the file that `PRIMUS_TALLY` names; without it, does nothing.
///
/// # Panics
/// If that file cannot be written: a count that gets lost would make a summary lie.
pub fn add(what: &str, count: usize) {
    if let Some(path) = std::env::var_os("PRIMUS_TALLY") {
        let mut file = OpenOptions::new().append(true).create(true).open(path).expect("PRIMUS_TALLY names a file");
        // One write, so that lines of parallel tests do not mix.
        file.write_all(format!("{what} {count}\n").as_bytes()).expect("the tally can be written");
    }
}
