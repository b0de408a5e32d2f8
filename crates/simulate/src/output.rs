//! What people and scripts see of a run: text, JSON and diagrams.

pub(crate) mod assignment;
pub mod bounded;
pub(crate) mod chronicle;
pub(crate) mod day;
pub(crate) mod diagram;
pub mod json;
pub(crate) mod names;
pub mod narration;
pub(crate) mod sequence;
pub(crate) mod servers;
pub mod text;
