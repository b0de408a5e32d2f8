//! The HTTP API of a server.
//!
//! Every server answers. What only the leader can do, a follower passes on to it. `/livez` never depends on a quorum.

mod answers;
mod bodies;
mod bulk;
mod explain;
mod facts;
mod groups;
mod import;
mod jobs;
mod loan_facts;
mod loans;
mod metrics;
mod output;
mod proxy;
mod routes;
mod serve;
mod sessions;
mod tasks;
mod workers;

pub(crate) use answers::text_of;
pub(crate) use proxy::{HERE, Proxy};
pub(crate) use routes::{Context, Places};
pub(crate) use serve::serve;
pub(crate) use sessions::{AnswerBody, QuestionBody, objection_to_name};
