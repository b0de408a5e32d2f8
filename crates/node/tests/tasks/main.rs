//! Tasks as real processes: how they run, how they end, and that none outlives its worker.

mod commands;
#[path = "../common/mod.rs"]
mod common;
mod confinement;
mod deaths;
mod kinds;
mod stage;

use std::path::PathBuf;

/// What plays the other processes: `tests/roles`.
fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_primus-node-roles").into()
}
