//! What people and scripts see: text, JSON and diagrams on stdout, failures on stderr.

pub(crate) mod cluster;
pub(crate) mod diagram;
pub(crate) mod farm;
pub(crate) mod groups;
pub(crate) mod json;
pub(crate) mod lending;
pub(crate) mod loans;
pub(crate) mod narration;
pub(crate) mod neighbours;
pub(crate) mod ring;
pub(crate) mod tasks;
pub(crate) mod text;
pub(crate) mod workers;
