//! What people and scripts see: text, JSON and diagrams on stdout, failures on stderr.

pub(crate) mod groups;
pub(crate) mod loans;
mod page;
pub(crate) mod roll;
pub(crate) mod tasks;
pub(crate) mod workers;
