//! Elections that somebody asks for: who waits for the result, and what it is.

use primus_core::ServerId;
use primus_core::Term;
use primus_core::load::Score;
use primus_core::machine::Input;
use primus_server::control::{Command, Confirmed};

use super::Running;
use crate::events::{Kind, ServerScore};
use crate::handle::{Election, Outcome, Reply, Unable};

/// Somebody who waits for the result of an election.
pub(super) struct Waiting {
    asked: ServerId,
    previous: Option<ServerId>,
    reply: Reply<Election>,
}

/// How many may wait.
const WAITING_MAX: usize = 64;

impl Running {
    /// Somebody asked that server for an election, and it asked this one. Whoever asks while one is under way waits for the
    /// same result.
    pub(super) fn on_elect(&mut self, asked: ServerId, reply: Reply<Election>) {
        let previous = self.shown.state.leader;
        let is_elsewhere = previous.is_some() && !self.leads();
        if is_elsewhere || self.changes.held.len() >= WAITING_MAX {
            _ = reply.send(Err(if is_elsewhere { self.unable() } else { Unable::Busy }));
            return;
        }
        self.changes.held.retain(|waiting| !waiting.reply.is_closed());
        let is_first = self.changes.held.is_empty() && !self.server.is_handing_over();
        self.changes.held.push(Waiting { asked, previous, reply });
        if is_first {
            self.step(Input::Command(Command::Elect(asked)));
        }
    }

    /// The leader won.
    pub(super) fn on_confirmed(&mut self, confirmed: Confirmed) {
        let Confirmed { leader, term, asked, scores } = confirmed;
        self.shown.history.add(Kind::LeaderConfirmed {
            leader: leader.0,
            term: term.0,
            asked: asked.0,
            held_by: leader.0,
            scores: scores.iter().map(|(id, score)| ServerScore::new(*id, *score)).collect(),
        });
        if self.leads() {
            self.end_election(leader, term, &scores);
        }
    }

    /// Somebody leads, whoever did before.
    pub(super) fn on_elected(&mut self, leader: ServerId, term: Term) {
        if !self.changes.held.is_empty() {
            let scores: Vec<_> = self.server.loads().iter().map(|(id, load)| (*id, load.score)).collect();
            self.end_election(leader, term, &scores);
        }
    }

    fn end_election(&mut self, leader: ServerId, term: Term, scores: &[(ServerId, Score)]) {
        for Waiting { asked, previous, reply } in std::mem::take(&mut self.changes.held) {
            let outcome = match previous {
                None => Outcome::Elected,
                Some(previous) if previous == leader => Outcome::Confirmed,
                Some(_) => Outcome::Transferred,
            };
            let (held_by, scores) = (previous.unwrap_or(self.config.plan.id), scores.to_vec());
            // Whoever asked may have gone away.
            _ = reply.send(Ok(Election { outcome, leader, term, previous, asked, held_by, scores }));
        }
    }

    /// Another server won, and did not take over.
    pub(super) fn give_up_election(&mut self, unable: Unable) {
        std::mem::take(&mut self.changes.held).into_iter().for_each(|waiting| _ = waiting.reply.send(Err(unable)));
    }
}
