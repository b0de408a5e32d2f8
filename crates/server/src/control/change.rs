//! What follows when the replicas agree on another leader, or have none any more.

use primus_core::election::{self, Election};
use primus_core::machine::Outbox;
use primus_core::{ServerId, Term};
use primus_replica::consensus::Consensus;

use super::campaign::{Campaign, Candidacy};
use super::{Control, Notice, Reason, Timer};

/// The next change of the leader.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Change {
    /// Why there will be another one.
    pub(super) reason: Reason,
    /// Who led last, while nobody does.
    lost: Option<ServerId>,
}

impl Change {
    pub(super) const fn new(reason: Reason) -> Self {
        Self { reason, lost: None }
    }
}

impl<E: Election, R: Consensus> Control<E, R> {
    /// The replicas agreed on a leader, or have none any more.
    pub(super) fn on_changed(&mut self, leader: Option<ServerId>, term: Term, out: &mut Outbox<Self>) {
        let before = std::mem::replace(&mut self.leader, leader);
        let term_before = std::mem::replace(&mut self.term, term);
        if leader.is_none() && term > term_before {
            self.campaign.on_term();
        }
        if leader != before {
            self.succession.successor = None;
            self.change.lost = before.or(self.change.lost);
            out.cancel(Timer::Transfer);
            if self.held.take().is_some() {
                out.cancel(Timer::Held);
            }
        }
        match leader {
            // The same one again, in a new term, is news, too: whoever is asked must not name an old term.
            Some(leader) if before != Some(leader) || term != term_before => self.on_leader(leader, term, out),
            None if before.is_some() => {
                // A leader that cannot reach a majority steps down by itself, in its own term; then an election may find
                // somebody who can.
                let stepped_down = before == Some(self.id) && term == term_before;
                if stepped_down {
                    self.change.reason = Reason::LostQuorum;
                }
                out.notify(Notice::Leader(None, term, self.change.reason));
                out.set(Timer::Leaderless, self.stretched(self.times.leaderless, 4));
                if stepped_down {
                    self.tell_election(election::Command::Start, out);
                }
            }
            _ => {}
        }
    }

    fn on_leader(&mut self, leader: ServerId, term: Term, out: &mut Outbox<Self>) {
        let jumped_in = leader == self.id && self.campaign.candidacy == Candidacy::JumpIn;
        let candidacy = if jumped_in { Candidacy::Correcting } else { Candidacy::Named };
        self.campaign = Campaign::of(candidacy);
        [Timer::Retry, Timer::Leaderless, Timer::JumpIn].into_iter().for_each(|timer| out.cancel(timer));
        if leader == self.id {
            // Those who were asked and did not answer may be well again later.
            let silent = self.replica.peers().into_iter().filter(|peer| self.hearing.is_silent(*peer));
            self.suspected.extend(silent);
            self.hearing.on_lead();
            out.cancel(Timer::Silence);
        } else {
            out.set(Timer::Silence, self.detector.watch());
        }
        self.succession.on_leader(self.change.reason, self.times.tenure_ticks);
        self.tell_election(election::Command::Ratified(leader), out);
        // A change that was neither announced nor caused by a suspicion of our own means that others missed the leader.
        let reason = std::mem::replace(&mut self.change.reason, Reason::Silence);
        let previous = self.change.lost.take();
        self.yielded.on_leader(leader == self.id, self.fact(leader, previous, reason));
        out.notify(Notice::Leader(Some(leader), term, reason));
    }
}
