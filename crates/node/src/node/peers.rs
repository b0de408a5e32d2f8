//! How peers are, for people who ask: what links and control tell of them.

use std::sync::Arc;
use std::time::SystemTime;

use primus_core::ServerId;
use primus_server::peers::{Peers, Sign, State};

use super::Running;
use crate::heard::Heard;

/// What is known of the peers.
pub(super) struct Acquaintances {
    peers: Peers,
    heard: Arc<Heard>,
}

impl Acquaintances {
    pub(super) fn new(peers: impl Iterator<Item = ServerId> + Clone) -> Self {
        Self { heard: Arc::new(Heard::new(peers.clone())), peers: Peers::new(peers) }
    }

    /// When each was heard, for others.
    pub(super) fn heard(&self) -> Arc<Heard> {
        Arc::clone(&self.heard)
    }
}

impl Running {
    pub(super) fn see(&mut self, peer: ServerId, sign: Sign) {
        let Some(now) = self.shown.acquaintances.peers.see(peer, sign) else { return };
        if let Some(view) = self.shown.state.peers.get_mut(&peer) {
            if view.state != now.state {
                view.since = SystemTime::now();
            }
            (view.state, view.why) = (now.state, now.why.clone());
        }
    }

    /// A peer said something, whatever it was.
    pub(super) fn hear(&mut self, peer: ServerId) {
        self.shown.acquaintances.heard.hear(peer);
        if self.shown.state.peers.get(&peer).is_some_and(|view| view.state != State::Up) {
            self.see(peer, Sign::Heard);
        }
    }

    /// Looks for peers that have been silent for long, and for those that are not any more.
    pub(super) fn look_for_missing(&mut self) {
        let leads = self.leads();
        let has_changed = |(peer, state): (ServerId, State)| {
            let is_missing = self.server.is_missing(peer);
            let sign = match (is_missing, leads) {
                (true, true) => Sign::Silent,
                (true, false) => Sign::MissedByLeader,
                (false, _) => Sign::FoundByLeader,
            };
            (is_missing == (state == State::Up)).then_some((peer, sign))
        };
        let states = self.shown.state.peers.iter().map(|(peer, view)| (*peer, view.state));
        let changed: Vec<(ServerId, Sign)> = states.filter_map(has_changed).collect();
        changed.into_iter().for_each(|(peer, sign)| self.see(peer, sign));
    }
}
