//! The laboratory: it runs the machines of primus unchanged, attacks them, and judges what they do.
//!
//! - A *story* is a text file of commands and the trace that must follow ([`story`]).
//! - A *run* is one simulation with a random seed, in virtual time, with faults ([`simulate`], [`faults`]).
//! - An *exploration* visits every state that a small setting can reach. Explorations are a package of their own,
//!   `primus-explore`, because the checker they need is of no use to anything else.
//!
//! Stories and explorations share one hand-driven [`world`]; properties live in [`invariants`], one file each.

pub mod assignment;
pub mod chance;
pub mod checks;
pub mod cluster;
mod driver;
pub mod experiment;
pub mod farm;
pub mod faults;
pub mod history;
pub mod index;
pub mod invariants;
pub mod leases;
pub mod lending;
pub mod loans;
pub mod network;
pub mod node;
pub mod observer;
pub mod oracle;
pub mod outcome;
mod properties;
pub mod queue;
pub mod setup;
pub mod simulate;
pub mod story;
pub mod tally;
pub mod tasks;
mod timeline;
pub mod world;
