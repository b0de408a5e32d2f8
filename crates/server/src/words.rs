//! Everything that control parts of servers say to each other on their links. Requests for the leader have links of their own.

use crate::{any_election, control, groups, record};

/// What one server says to another.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Words {
    /// From one control part to the other: who leads the cluster, and what is agreed on.
    Control(control::Message<any_election::Message>),
    /// About further groups that elect a leader each.
    Groups(groups::Said),
    /// What time the clock of a follower shows, in milliseconds since 1970.
    Clock(u64),
}

impl Words {
    /// For those who measure what takes how long.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Control(control::Message::Replica(message)) if message.snapshot.is_some() => "a state of a peer",
            Self::Control(control::Message::Replica(_)) => "a peer's word about the log",
            Self::Control(_) => "a peer's word about who leads",
            Self::Groups(_) => "a peer's word about a group",
            Self::Clock(_) => "a peer's clock",
        }
    }

    /// Why no server says this; nothing if one may. What depends on who hears it, control and groups look at themselves.
    #[must_use]
    pub fn objection(&self) -> Option<&'static str> {
        let Self::Control(control::Message::Replica(message)) = self else { return None };
        let state = message.snapshot.as_ref()?;
        // What the engine has taken over is on the disk, and a server cannot go on with what it cannot read.
        record::split_state(&state.data).is_none().then_some("a state that cannot be read")
    }
}
