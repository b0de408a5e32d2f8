//! An election that an operator wants while somebody leads: the leader holds it, and the winner leads.
//!
//! The configured algorithm runs as it does without a leader, and nobody is deposed by it: no server campaigns while it knows
//! a leader. If the leader wins it is confirmed, in the same term, and everybody is told. If not, it hands over to the winner.

use primus_core::ServerId;
use primus_core::election::{self, Election};
use primus_core::machine::{Delay, Outbox};
use primus_replica::consensus::Consensus;

use super::{Control, Message, Notice, Reason, Timer};
use crate::control::words::Confirmed;

/// After this long the leader judges by what it knows: a ring may stand still because of a member that does.
const RESULT: Delay = Delay::exactly_ms(1500);

/// How often the algorithm runs again because a better-ranked server is there and did not answer in time.
const ROUNDS_MAX: u32 = 8;

/// An election under way that an operator wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Held {
    /// The server that was asked for it.
    asked: ServerId,
    /// How often the algorithm has run in vain.
    vain: u32,
}

impl<E: Election, R: Consensus> Control<E, R> {
    /// An operator asked that server for an election.
    pub(super) fn elect(&mut self, asked: ServerId, out: &mut Outbox<Self>) {
        match self.leader {
            Some(leader) if leader != self.id => return out.ignore("an election that only the leader can hold"),
            Some(_) if self.succession.successor.is_some() => {
                return out.ignore("an election while leadership is handed over");
            }
            Some(_) => {
                self.held = Some(Held { asked, vain: 0 });
                out.set(Timer::Held, RESULT);
            }
            None => self.change.reason = Reason::Elected,
        }
        self.tell_election(election::Command::Start, out);
        // A leader that has nobody to ask has won without ever losing the lead.
        if self.held.is_some() && self.election.leads() {
            self.on_named(self.id, out);
        }
    }

    /// The algorithm names somebody. A better-ranked server that answers the leader's signs of life, but was too late for the
    /// algorithm, is not passed over for that.
    pub(super) fn on_named(&mut self, winner: ServerId, out: &mut Outbox<Self>) {
        let Some(Held { asked, vain }) = self.held else { return };
        if winner == self.id && vain < ROUNDS_MAX && self.best_heard().is_some() {
            self.held = Some(Held { asked, vain: vain + 1 });
            return self.tell_election(election::Command::Start, out);
        }
        self.conclude(asked, if winner == self.id { self.best_heard().unwrap_or(winner) } else { winner }, out);
    }

    pub(super) fn on_held_time(&mut self, out: &mut Outbox<Self>) {
        if let Some(Held { asked, .. }) = self.held {
            self.conclude(asked, self.best_heard().unwrap_or(self.id), out);
        }
    }

    /// The best of those that rank better than this leader and are there.
    fn best_heard(&self) -> Option<ServerId> {
        self.election.better_among(&|peer| !self.hearing.is_silent(peer))
    }

    fn conclude(&mut self, asked: ServerId, winner: ServerId, out: &mut Outbox<Self>) {
        self.held = None;
        out.cancel(Timer::Held);
        self.yielded.pardon();
        if winner != self.id {
            return self.hand_over(winner, Reason::Elected, out);
        }
        let scores = self.loads.known.iter().map(|(id, load)| (*id, load.score)).collect();
        let confirmed = Confirmed { leader: self.id, term: self.term, asked, scores };
        self.tell_peers(&Message::Confirmed(confirmed.clone()), out);
        out.notify(Notice::Confirmed(confirmed));
    }

    pub(super) fn on_confirmed(&self, from: ServerId, mut confirmed: Confirmed, out: &mut Outbox<Self>) {
        confirmed.scores.truncate(self.replica.peers().len() + 1);
        if self.leader == Some(from) && confirmed.leader == from {
            out.notify(Notice::Confirmed(confirmed));
        } else {
            out.ignore("a leader that does not lead was confirmed");
        }
    }
}
