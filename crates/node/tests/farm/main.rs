//! Whole farms in one process: three servers and two workers, each on a thread of its own, with real sockets, real disks and
//! real commands.

mod bounds;
mod changes;
#[path = "../common/mod.rs"]
mod common;
mod envoys;
mod loans;
mod planted;
mod roll;
mod stage;
mod work;

/// What plays the companion: `tests/roles`.
const PROGRAM: &str = env!("CARGO_BIN_EXE_primus-node-roles");
