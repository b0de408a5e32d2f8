//! The replicated log: the Raft engine inside TiKV, wrapped as a machine.
//!
//! The engine is sans-IO, but it reads its log through a trait and hands out work in `Ready` batches. Here it becomes a
//! machine like any other: messages, ticks and commands in; sends, records to persist and notices out. What a message
//! promises (a vote, an acknowledgement) leaves only once the records behind it are durable.
//!
//! Start with [`replica`]; [`consensus`] is what servers see of it, [`log`] is what the engine reads, [`message`] what
//! travels. [`bounds`] is what the engine must never hear. [`model`] stands in for the engine where it must be explored, and [`specification`] is what both keep to.

pub mod bounds;
pub mod consensus;
pub mod log;
pub mod message;
pub mod model;
pub mod replica;
pub mod specification;

pub use consensus::Consensus;
pub use model::ModelReplica;
pub use replica::{Command, Notice, Replica, Role, Settings};
