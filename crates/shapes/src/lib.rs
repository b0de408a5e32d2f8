//! What clients and servers say to each other over HTTP: jobs as they are submitted ([`submission`]), what a candidate of a
//! group asks and is told ([`session`]), refusals ([`refusal`]), the secret that a server asks for ([`token`]), and JSON as
//! requests hold it ([`objects`]).

pub mod objects;
pub mod refusal;
pub mod session;
pub mod submission;
pub mod token;

/// Marks a request that no other server shall answer.
pub const HERE: &str = "x-primus-here";
/// Shows that a server with the same secret has said something of a request that only servers say.
pub const PROOF: &str = "x-primus-proof";
