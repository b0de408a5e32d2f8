//! What clients and servers say to each other over HTTP: jobs as they are submitted ([`submission`]), what a candidate of a
//! group asks and is told ([`session`]), refusals ([`refusal`]), the secret that a server asks for ([`token`]), JSON as
//! requests hold it ([`objects`]), text as a part of an address ([`path`]); and how both sides put values ([`values`]) and what

pub mod objects;
pub mod path;
pub mod refusal;
pub mod session;
pub mod submission;
pub mod token;
pub mod values;

/// Marks a request that no other server shall answer.
pub const HERE: &str = "x-primus-here";
/// Shows that a server with the same secret has said something of a request that only servers say.
pub const PROOF: &str = "x-primus-proof";
