//! The pure part of primus: every protocol is a [machine], a plain value that turns one input into
//! outputs. Nothing in this crate reads a clock, opens a socket, starts a thread, draws a random number or
//! writes a log, so the same inputs always give the same outputs, bit for bit. Stories, seeded runs,
//! exhaustive explorations and real servers drive the very same code.
//!
//! Start with [`machine`] for the contract, then read one election: [`election::bully`] or
//! [`election::ring`].
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod amounts;
pub mod bounds;
pub mod detector;
pub mod election;
pub mod farm;
pub mod founding;
pub mod handover;
pub mod ids;
pub mod lease;
pub mod ledger;
pub mod limits;
pub mod load;
pub mod loan;
pub mod machine;
pub mod names;
pub mod place;
pub mod planted;
pub mod rank;
pub mod retry;
pub mod text;
pub mod timers;
pub mod trace;

pub use ids::{FarmId, Fence, Round, ServerId, SessionId, Term, WorkerId};
pub use machine::{Delay, Input, Machine, Moment, Never, Outbox, Output, Token, WriteName};
pub use place::Place;
