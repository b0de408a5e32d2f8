//! The HTTP API of a server.
//!
//! Every server answers. What only the leader can do, a follower passes on to it. `/livez` never depends on a quorum. Every
//! request passes the same doors first, whatever it asks for ([`doors`]).

mod answers;
mod bodies;
mod bulk;
mod connections;
mod doors;
mod elections;
mod events;
mod explain;
mod facts;
mod groups;
mod import;
mod jobs;
mod kv;
mod loan_facts;
mod loans;
mod metrics;
mod orders;
mod output;
mod pages;
mod phases;
mod proxy;
mod room;
mod routes;
mod serve;
mod sessions;
mod table;
mod tasks;
mod workers;

pub(crate) use doors::Doors;
pub(crate) use proxy::Proxy;
pub(crate) use routes::{Knowledge, Places};
pub(crate) use serve::serve;
