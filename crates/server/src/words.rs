//! Everything that servers say to each other on their links.

use bytes::Bytes;

use crate::{any_election, control, groups, record};

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
    /// What time the clock of a follower shows, in milliseconds since 1970.
    Clock(u64),
}

impl Words {
    /// Why no server says this; nothing if one may. What depends on who hears it, control and groups look at themselves.
    #[must_use]
    pub fn objection(&self) -> Option<&'static str> {
        let Self::Control(control::Message::Replica(message)) = self else { return None };
        let state = message.snapshot.as_ref()?;
        // What the engine has taken over is on the disk, and a server cannot go on with what it cannot read.
        record::split_state(&state.data).is_none().then_some("a state that cannot be read")
    }
}
