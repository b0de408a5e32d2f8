//! What a run came to: who leads, what it took.

use primus_core::ServerId;
use primus_core::election::MessageKind;

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Did the election settle before the patience ran out?
    pub settled: bool,
    /// What every live node takes for the leader, in the order of the nodes.
    pub table: Vec<(ServerId, Option<ServerId>)>,
    /// How long the longest of those who know no leader has known none.
    pub undefined_us: u64,
    /// Messages sent, by kind.
    pub messages: Counts,
    /// Announcements that a leader repeated; they are not among the messages.
    pub reminders: u64,
    /// How many nodes led at the same time at most, and how often somebody began to lead.
    pub leaders: Leaders,
    /// When it ended.
    pub virtual_us: u64,
    /// Steps taken.
    pub events: u64,
    /// Were there crashes, cuts, pauses or lost, doubled or late messages?
    pub disturbed: bool,
}

/// Messages by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts([u64; MessageKind::ALL.len()]);

/// Leaders during a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leaders {
    /// At the same time, at most.
    pub most_at_once: u32,
    /// How often somebody began to lead.
    pub changes: u32,
}

impl Outcome {
    /// The one node that all take for the leader and that itself leads, if there is one.
    #[must_use]
    pub fn agreed_leader(&self) -> Option<ServerId> {
        let leader = self.table.first()?.1?;
        let all_agree = self.table.iter().all(|(_, view)| *view == Some(leader));
        let leads_itself = self.table.iter().any(|(node, _)| *node == leader);
        (all_agree && leads_itself).then_some(leader)
    }

    /// Who leads at the end, by their own belief.
    pub fn leaders_at_end(&self) -> impl Iterator<Item = ServerId> + '_ {
        self.table.iter().filter(|(node, view)| *view == Some(*node)).map(|(node, _)| *node)
    }
}

impl Counts {
    /// One more of this kind was sent.
    pub fn add(&mut self, kind: MessageKind) {
        self.0[kind as usize] += 1;
    }

    /// How many of this kind were sent.
    #[must_use]
    pub const fn of(&self, kind: MessageKind) -> u64 {
        self.0[kind as usize]
    }

    /// How many were sent in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}
