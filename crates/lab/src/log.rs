//! A model of the replicated log: one agreed sequence, written by the leader of the newest term.
//!
//! What the leader proposes is under way until it is committed, in order. Whoever leads next finds any prefix of it, and the
//! rest is gone. A deposed leader's proposals go nowhere.

use std::collections::VecDeque;

use primus_core::ledger::Batch;

use crate::chance::Chance;
use crate::node::NodeId;

/// The log of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// What is agreed on.
    pub(crate) committed: Vec<Batch>,
    under_way: VecDeque<Batch>,
    /// Who can commit, unless it is dead.
    leader: Option<NodeId>,
    pub(crate) term: u64,
}

impl Log {
    /// Does this server lead in this term, and not only believe it?
    pub(crate) fn is_led_by(&self, server: NodeId, term: u64) -> bool {
        self.leader == Some(server) && self.term == term
    }

    pub(crate) const fn leader(&self) -> Option<NodeId> {
        self.leader
    }

    /// False if this server does not lead any more.
    pub(crate) fn propose(&mut self, server: NodeId, term: u64, batch: Batch) -> bool {
        let leads = self.is_led_by(server, term);
        if leads {
            self.under_way.push_back(batch);
        }
        leads
    }

    /// The next of what is under way is committed.
    pub(crate) fn commit(&mut self) -> Option<&Batch> {
        self.committed.push(self.under_way.pop_front()?);
        self.committed.last()
    }

    /// A new leader; how much of what was under way it has found.
    pub(crate) fn elect(&mut self, server: NodeId, chance: &mut Chance) -> u64 {
        let kept = chance.between(0, self.under_way.len() as u64);
        self.under_way.truncate(usize::try_from(kept).expect("a length fits"));
        self.leader = Some(server);
        self.term += 1;
        kept
    }

    /// This server is dead, and cannot commit anything.
    pub(crate) fn on_crash(&mut self, server: NodeId) {
        self.leader = self.leader.filter(|leader| *leader != server);
    }
}
