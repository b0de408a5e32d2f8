//! What clients and servers say to each other over HTTP.
//!
//! - [`submission`]: jobs as they are submitted. [`session`]: what a candidate of a group asks and is told.
//! - [`refusal`]: errors. [`token`]: the secret that a server asks for.
//! - [`objects`]: JSON as requests hold it. [`path`]: text as a part of an address. [`values`]: values in words.
//! - [`schema`]: what such JSON looks like, described beside its types.

pub mod objects;
pub mod path;
pub mod refusal;
pub mod schema;
pub mod session;
pub mod submission;
pub mod token;
pub mod values;

/// Marks a request that no other server shall answer.
pub const HERE: &str = "x-primus-here";
