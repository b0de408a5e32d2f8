//! Tasks as real processes: how they run, how they end, and that none outlives its worker.

mod commands;
mod confinement;
mod deaths;
mod kinds;
mod stage;
