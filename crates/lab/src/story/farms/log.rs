//! The log of a farm, as far as its servers see it: what is agreed on, in order, and how much of that each has applied.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use primus_core::Term;
use primus_server::farm::Command;

use super::cast::{Farm, Node};

/// The log of one farm.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) farm: Farm,
    /// Who leads, as far as the log knows.
    pub(super) leader: Node,
    term: Term,
    committed: Vec<Bytes>,
    under_way: VecDeque<Bytes>,
    applied: BTreeMap<Node, usize>,
}

impl Log {
    pub(super) fn new((farm, leader): (Farm, Node)) -> Self {
        let (committed, under_way, applied) = <_>::default();
        Self { farm, leader, term: Term(0), committed, under_way, applied }
    }

    /// This server leads in a new term. What was under way is gone.
    pub(super) fn lead(&mut self, leader: Node) -> Term {
        self.under_way.clear();
        (self.leader, self.term) = (leader, Term(self.term.0 + 1));
        self.term
    }

    /// Only the leader of this term is heard.
    pub(super) fn append(&mut self, server: Node, term: Term, records: Vec<Bytes>) {
        if (server, term) == (self.leader, self.term) {
            self.under_way.extend(records);
        }
    }

    /// One more thing is agreed on. False if there is none.
    pub(super) fn commit_next(&mut self) -> bool {
        let next = self.under_way.pop_front();
        self.committed.extend(next.clone());
        next.is_some()
    }

    /// What this server applies next.
    pub(super) fn next_for(&mut self, server: Node) -> Option<Command> {
        let applied = self.applied.entry(server).or_default();
        let record = self.committed.get(*applied)?.clone();
        *applied += 1;
        Some(Command::Committed(*applied as u64, record))
    }

    /// The process of this server has ended. What it had proposed is gone.
    pub(super) fn forget(&mut self, server: Node) {
        self.applied.remove(&server);
        if server == self.leader {
            self.under_way.clear();
        }
    }
}
