//! Everything that servers say to each other on their links.

use crate::{any_election, control, groups};

/// What one server says to another.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Words {
    /// From one control part to the other: who leads the cluster, and what is agreed on.
    Control(control::Message<any_election::Message>),
    /// About further groups that elect a leader each.
    Groups(groups::Said),
}
