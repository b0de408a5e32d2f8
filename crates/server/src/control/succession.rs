//! How leadership is handed over while somebody leads: to whom, when, and why not.

use primus_core::ServerId;
use primus_core::election::Election;
use primus_core::handover::{self, Handover};
use primus_core::machine::{Moment, Outbox};
use primus_replica::consensus::Consensus;
use primus_replica::replica;

use super::campaign::Candidacy;
use super::{Control, Message, Notice, Reason, Timer};
use crate::transfer::{Obstacle, TRANSFER};

/// What decides about the next leader while there is one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Succession {
    /// When a loaded leader hands over, if it does at all.
    pub(super) handover: Option<Handover>,
    /// How many ticks a leader still waits before it gives way to a better one.
    pub(super) patience: u32,
    /// Who is about to take over.
    pub(super) successor: Option<ServerId>,
    /// Is something guarded beside this server?
    pub(super) is_guarded: bool,
}

impl Succession {
    pub(super) fn new(rules: Option<handover::Rules>) -> Self {
        Self { handover: rules.map(Handover::new), patience: 0, successor: None, is_guarded: false }
    }

    pub(super) fn advance(&mut self, now: Moment) {
        if let Some(handover) = &mut self.handover {
            handover.advance(now);
        }
    }

    pub(super) const fn on_tick(&mut self) {
        self.patience = self.patience.saturating_sub(1);
    }

    /// Somebody leads from now on, for this reason. It stays for so many ticks.
    pub(super) fn on_leader(&mut self, reason: Reason, tenure_ticks: u32) {
        self.patience = tenure_ticks;
        if let Some(handover) = &mut self.handover {
            handover.on_leader(reason == Reason::Load);
        }
    }
}

impl<E: Election, R: Consensus> Control<E, R> {
    /// Is leadership being handed over? Until that has come about, or not, nobody takes proposals.
    #[must_use]
    pub const fn is_handing_over(&self) -> bool {
        self.succession.successor.is_some()
    }

    /// Whom leadership is being handed over to, and why.
    pub fn successor(&self) -> Option<(ServerId, Reason)> {
        self.succession.successor.map(|peer| (peer, self.change.reason))
    }

    /// A leader gives way to a better-ranked server that has everything: once it has led for a while if ranks decide, at
    /// once if it leads only because it jumped in, and rarely if it is too loaded.
    pub(super) fn consider_others(&mut self, out: &mut Outbox<Self>) {
        let (last, _) = self.replica.extent();
        let best = self.best();
        let better = best.filter(|peer| self.replica.matched(*peer) == Some(last));
        let is_correcting = self.campaign.candidacy == Candidacy::Correcting;
        let is_due = is_correcting || self.may_be_preempted() && self.succession.patience == 0;
        if let Some(better) = better.filter(|_| is_due) {
            self.campaign.candidacy = Candidacy::Named;
            self.succession.patience = self.times.tenure_ticks;
            return self.hand_over(better, Reason::Rank, out);
        }
        let score = |id: ServerId| self.loads.known.get(&id).map(|load| load.score);
        // While clients write, there is always something that a peer does not have yet; it is sent before it takes over.
        let (own, best_score) = (score(self.id).unwrap_or_default(), best.and_then(score));
        if self.succession.handover.as_mut().is_some_and(|handover| handover.is_due(own, best_score))
            && let Some(best) = best
        {
            self.hand_over(best, Reason::Load, out);
        }
    }

    /// What is guarded beside this server ends first; its owner sees to that, and then asks for the transfer.
    pub(super) fn hand_over(&mut self, to: ServerId, reason: Reason, out: &mut Outbox<Self>) {
        if self.succession.is_guarded {
            out.notify(Notice::HandOver(to, reason));
        } else {
            self.transfer(Some(to), reason, out);
        }
    }

    /// Lets another lead: the one that is wanted, or the one that is nearest to having everything.
    pub(super) fn transfer(&mut self, to: Option<ServerId>, reason: Reason, out: &mut Outbox<Self>) {
        match self.hearing.successor(&self.replica, to, self.yielded.agreed()) {
            Ok(peer) => {
                self.change.reason = reason;
                self.succession.successor = Some(peer);
                out.set(Timer::Transfer, self.stretched(TRANSFER, 4));
                self.tell_peers(&Message::Change(reason), out);
                self.tell_replica(replica::Command::Transfer(peer), out);
            }
            Err(obstacle) => out.notify(Notice::NotTransferred(obstacle)),
        }
    }

    /// Until the other one leads the engine takes no proposals, so it must not have long.
    pub(super) fn on_transfer_time(&mut self, out: &mut Outbox<Self>) {
        if let Some(peer) = self.succession.successor.take() {
            self.tell_replica(replica::Command::AbortTransfer, out);
            out.notify(Notice::NotTransferred(Obstacle::NoAnswer(peer)));
        }
    }
}
