//! Another server leads: who is told, and who has waited for it.

use std::time::{Duration, SystemTime};

use primus_core::machine::Input;
use primus_core::{ServerId, Term};
use primus_server::control::{Command, Reason};
use tokio::time::Instant;

use super::{Running, held};
use crate::events::{Kind, milliseconds};
use crate::handle::{Reply, Unable};

/// Who led last, and who waits for another server to lead.
pub(super) struct Changes {
    pub(super) last_leader: Option<ServerId>,
    /// Since when nobody leads.
    pub(super) leaderless: Option<Instant>,
    pub(super) transfer: Option<Reply<()>>,
    /// Who waits for the result of an election.
    pub(super) held: Vec<held::Waiting>,
}

impl Changes {
    /// Nobody leads yet.
    pub(super) fn new() -> Self {
        Self { last_leader: None, leaderless: Some(Instant::now()), transfer: None, held: Vec::new() }
    }
}

impl Running {
    pub(super) fn on_transfer(&mut self, to: Option<ServerId>, reason: Reason, reply: Reply<()>) {
        self.begin_transfer(Command::Transfer(to, reason), reply);
    }

    pub(super) fn on_leave(&mut self, reply: Reply<()>) {
        self.begin_transfer(Command::Leave, reply);
    }

    pub(super) fn begin_transfer(&mut self, command: Command, reply: Reply<()>) {
        if self.changes.transfer.is_some() {
            _ = reply.send(Err(Unable::Busy));
        } else {
            self.changes.transfer = Some(reply);
            self.step(Input::Command(command));
        }
    }

    pub(super) fn end_transfer(&mut self, outcome: Result<(), Unable>) {
        if let Some(reply) = self.changes.transfer.take() {
            _ = reply.send(outcome);
        }
    }

    pub(super) fn on_leader(&mut self, leader: Option<ServerId>, term: Term, reason: Reason) {
        let was_leading = self.leads();
        self.tell_history(leader, term, reason);
        (self.shown.state.leader, self.shown.state.term, self.shown.state.reason) = (leader, term, reason);
        self.shown.state.since = SystemTime::now();
        // A new leader has to be told.
        self.own.is_full = false;
        self.proposals.clear();
        let is_mine = was_leading || self.leads();
        self.others.tell_leader(leader, term, is_mine);
        self.tell_clock();
        self.relay.on_leader(Some(term).filter(|term| self.leads_in(*term)));
        self.start_leading();
        if let Some(leader) = leader {
            self.end_transfer(Ok(()));
            self.on_elected(leader, term);
        }
        if was_leading && !self.leads() {
            self.writes.give_up();
            self.reads.refuse(self.unable());
        }
        if leader.is_some() {
            self.release_parked();
        }
    }

    pub(super) fn tell_history(&mut self, leader: Option<ServerId>, term: Term, reason: Reason) {
        let (term, reason) = (term.0, reason.name());
        let previous = self.changes.last_leader.map(|id| id.0);
        self.shown.has_events = true;
        match leader {
            Some(leader) => {
                let took = self.changes.leaderless.take().map_or(Duration::ZERO, |since| since.elapsed());
                let took_ms = milliseconds(took);
                self.shown.meters.changes.add(reason);
                self.shown.history.keep(Kind::LeaderChanged { leader: leader.0, previous, term, reason, took_ms });
                self.changes.last_leader = Some(leader);
            }
            None => {
                self.changes.leaderless = Some(Instant::now());
                self.shown.history.keep(Kind::LeaderLost { previous, term, reason });
            }
        }
    }
}
