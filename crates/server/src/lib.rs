//! What a server is made of, composed into machines: routing only, no protocol of its own.
//!
//! [`control`] is the part that must never be late: election, replica and suspicion.

pub mod control;
pub mod register;

pub use control::{Control, Reason};
