//! What others see of a server: its view, who leads, events, steps and figures.

use std::sync::Arc;

use primus_replica::Consensus;
use tokio::sync::watch;

use super::Running;
use super::peers::Acquaintances;
use crate::events::History;
use crate::handle::{Leadership, View};
use crate::meters::Meters;
use crate::steps::Steps;

/// What others see of this server.
pub(super) struct Shown {
    pub(super) state: View,
    pub(super) view: watch::Sender<View>,
    pub(super) leadership: watch::Sender<Leadership>,
    /// How the peers are, and when each was last heard.
    pub(super) acquaintances: Acquaintances,
    pub(super) history: Arc<History>,
    /// Has this turn added events that are not announced?
    pub(super) has_events: bool,
    /// The steps of the last elections.
    pub(super) steps: Arc<Steps>,
    pub(super) meters: Arc<Meters>,
}

impl Running {
    pub(super) fn publish(&mut self) {
        self.look_for_missing();
        let replica = self.server.replica();
        let (role, _, _) = replica.view();
        self.shown.state.role = role;
        self.shown.state.last = replica.extent().0;
        self.shown.state.longest_turn = self.turns.longest;
        if self.shown.state.gave_way != *self.server.gave_way().servers() {
            self.shown.state.gave_way.clone_from(self.server.gave_way().servers());
        }
        for (peer, view) in &mut self.shown.state.peers {
            view.matched = replica.matched(*peer);
            view.load = self.server.loads().get(peer).copied();
            view.round_trip_us = self.server.round_trip_us(*peer);
        }
        self.shown.state.silence_us = self.server.silence_us();
        if std::mem::take(&mut self.shown.has_events) {
            self.shown.history.announce();
        }
        self.shown.leadership.send_if_modified(|leadership| {
            let now = self.shown.state.leadership();
            std::mem::replace(leadership, now) != now
        });
        self.shown.view.send_if_modified(|view| {
            let is_new = *view != self.shown.state;
            if is_new {
                view.clone_from(&self.shown.state);
            }
            is_new
        });
    }
}
