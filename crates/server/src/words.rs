//! Everything that servers say to each other on their links.

use bytes::Bytes;

use crate::{any_election, control, groups};

/// What one server says to another.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Words {
    /// From one control part to the other: who leads the cluster, and what is agreed on.
    Control(control::Message<any_election::Message>),
    /// About further groups that elect a leader each.
    Groups(groups::Said),
    /// A question for whoever leads, under a number that the asker knows it by. Links carry it unread.
    Question(u64, Bytes),
    /// The answer to the question of this number.
    Answer(u64, Bytes),
}
