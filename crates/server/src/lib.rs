//! What a server is made of, composed into machines: routing only, no protocol of its own.
//!
//! [`control`] is the part that must never be late: election, replica and suspicion. [`farm`] keeps the ledger and does the
//! leader's work: tasks, leases, loans. [`groups`] holds elections
//! beside it that no quorum ratifies, [`told`] writes both down as text. [`plan`] puts a server together from what people configure.
//! [`worker`] is what runs tasks: a process of its own, for its own farm or for another one.

pub mod any_election;
pub mod control;
pub mod farm;
pub mod gave_way;
pub mod groups;
pub mod leases;
pub mod own_election;
pub mod peers;
pub mod plan;
pub mod record;
pub mod register;
pub mod relay;
pub mod room;
pub mod told;
pub mod transfer;
pub mod words;
pub mod worker;

pub use control::{Control, Reason};
pub use plan::{Plan, Server};
pub use worker::Worker;
