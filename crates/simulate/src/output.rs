//! What people and scripts see of a run: text, JSON and diagrams.

pub(crate) mod cluster;
pub(crate) mod diagram;
pub(crate) mod farm;
pub mod json;
pub(crate) mod lending;
pub mod narration;
pub mod text;
