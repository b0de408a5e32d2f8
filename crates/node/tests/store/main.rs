//! The store against what disks, crashes and people do to it.

#![expect(clippy::unwrap_used, reason = "what fails in a test fails the test")]

mod crash;
mod damage;
mod refusal;
mod scratch;
mod twin;

/// What plays the other processes: `tests/roles`.
const PROGRAM: &str = env!("CARGO_BIN_EXE_primus-node-roles");
