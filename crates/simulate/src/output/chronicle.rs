//! What happens in a run of whole servers, as it is recorded: who led, what was said about it, what workers and guards did, and
//! what went wrong. Heartbeats, the replicated log and other routine are left out, and of a long run the middle.

mod guards;
mod servers;
mod workers;

use std::collections::{BTreeMap, BTreeSet};

use primus_core::SessionId;
use primus_lab::node::NodeId;
use primus_lab::simulate::Happening;

use super::bounded::Bounded;
use super::names::Names;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Beat {
    pub(crate) at_us: u64,
    pub(crate) event: Event,
}

/// What can happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A host does something, or something happens to it.
    Does { host: NodeId, what: String, weight: Weight },
    /// A message between two hosts.
    Says { from: NodeId, to: NodeId, what: String },
    /// The same, but it got lost.
    Loses { from: NodeId, to: NodeId, what: String },
    /// What the first of each pair says does not reach the second from now on; or it does again.
    Links { are_cut: bool, pairs: Vec<(NodeId, NodeId)> },
}

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    Plain,
    /// Somebody leads.
    Strong,
    /// Something goes wrong.
    Warning,
}

/// What is worth telling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interest {
    /// Messages between hosts.
    pub(crate) messages: bool,
    /// Jobs that are submitted, and loans.
    pub(crate) jobs: bool,
    /// Every single task.
    pub(crate) tasks: bool,
}

/// Listens to a run.
#[derive(Debug)]
pub(crate) struct Chronicle {
    pub(crate) names: Names,
    interest: Interest,
    pub(crate) beats: Bounded<Beat>,
    /// Servers that lead, as far as they know.
    leading: BTreeSet<NodeId>,
    /// The guard behind each session, and what it was granted or asked to give up.
    sessions: BTreeMap<SessionId, NodeId>,
    granted: BTreeSet<(String, u64)>,
    recalled: BTreeSet<(SessionId, String)>,
}

impl Chronicle {
    /// Keeps so much from the beginning.
    pub(crate) const fn new(names: Names, interest: Interest, most: usize) -> Self {
        Self {
            names,
            interest,
            beats: Bounded::new(most),
            leading: BTreeSet::new(),
            sessions: BTreeMap::new(),
            granted: BTreeSet::new(),
            recalled: BTreeSet::new(),
        }
    }

    fn does(&mut self, at_us: u64, host: NodeId, weight: Weight, what: impl Into<String>) {
        self.beats.push(Beat { at_us, event: Event::Does { host, what: what.into(), weight } });
    }

    fn says(&mut self, at_us: u64, from: NodeId, to: NodeId, what: String) {
        if self.interest.messages {
            self.beats.push(Beat { at_us, event: Event::Says { from, to, what } });
        }
    }

    fn loses(&mut self, at_us: u64, from: NodeId, to: NodeId, what: String) {
        if self.interest.messages {
            self.beats.push(Beat { at_us, event: Event::Loses { from, to, what } });
        }
    }

    fn happens(&mut self, at_us: u64, happening: &Happening) {
        match *happening {
            Happening::Crash(node) => self.does(at_us, node, Weight::Warning, "dies"),
            Happening::Restart(node) => self.does(at_us, node, Weight::Warning, "starts"),
            Happening::Pause(node) => self.does(at_us, node, Weight::Warning, "stands still"),
            Happening::Resume(node) => self.does(at_us, node, Weight::Warning, "goes on"),
            Happening::Cut(from, to) => self.link(at_us, (from, to), true),
            Happening::Mend(from, to) => self.link(at_us, (from, to), false),
            Happening::Command(..) => {}
        }
    }

    /// All links that change at one moment are told at once.
    fn link(&mut self, at_us: u64, pair: (NodeId, NodeId), is_cut: bool) {
        let newest = self.beats.newest().filter(|beat| beat.at_us == at_us).map(|beat| &mut beat.event);
        match newest {
            Some(Event::Links { are_cut, pairs }) if *are_cut == is_cut => pairs.push(pair),
            _ => self.beats.push(Beat { at_us, event: Event::Links { are_cut: is_cut, pairs: vec![pair] } }),
        }
    }
}
