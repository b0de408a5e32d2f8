//! What the commands of primus have in common, whatever they are about.
//!
//! Amounts are read as people write them ([`amounts`]), output goes to stdout as text or as JSON ([`format`](mod@format),
//! [`json`], [`table`], [`values`]), which farm is meant is typed the same way everywhere ([`place`]), and what cannot be done is one line on stderr with an exit code ([`failure`]).

pub mod amounts;
pub mod failure;
pub mod format;
pub mod json;
pub mod names;
pub mod parent;
pub mod place;
pub mod screen;
pub mod table;
pub mod values;
pub mod verdict;

pub use failure::Failure;
pub use format::Format;
pub use place::Place;
pub use verdict::Verdict;
