//! What control makes of servers that gave way ([`crate::gave_way`]): who stands, whom leadership is handed to, and what a
//! leader writes down.
//!
//! The leader writes, because it alone knows why it leads: it is told before it takes over. What it has yet to write binds it
//! already. If it dies before, another one leads because of that, and then everybody stands anyway.

use primus_core::ServerId;
use primus_core::Term;
use primus_core::election::Election;
use primus_core::machine::Outbox;
use primus_replica::Role;
use primus_replica::consensus::Consensus;
use primus_replica::message::Entry;
use primus_replica::replica;

use super::campaign::Candidacy;
use super::{Control, Reason};
use crate::gave_way::{Fact, GaveWay};
use crate::record;

/// A server that gave way and is named all the same declines so often, and then runs: the others may be unable to win.
const DECLINED_MAX: u32 = 3;

/// Who gave way, as far as this server knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Yielded {
    /// As agreed.
    agreed: GaveWay,
    /// As the log says that this process began with. Up to where that is agreed is not known before somebody leads.
    presumed: Option<GaveWay>,
    /// What this leader has to write yet, and whether it has been proposed.
    wanted: Option<Fact>,
    is_proposed: bool,
    /// Has this leader applied everything that was agreed before it led?
    is_ready: bool,
    /// How often this server has declined since somebody led.
    declined: u32,
}

impl Yielded {
    pub(super) fn new(agreed: GaveWay) -> Self {
        Self { agreed, ..Self::default() }
    }

    pub(super) const fn agreed(&self) -> &GaveWay {
        &self.agreed
    }

    /// Must this server neither stand nor be handed leadership?
    pub(super) fn binds(&self, server: ServerId) -> bool {
        let is_wanted = matches!(self.wanted, Some(Fact::GaveWay { server: one, .. }) if one == server);
        let known = self.presumed.as_ref().unwrap_or(&self.agreed);
        is_wanted || known.contains(server) && self.wanted != Some(Fact::AllStand)
    }

    /// Somebody leads. If it is this server, it has to write down what follows from the reason, and what it has not written
    /// yet if it led before.
    pub(super) fn on_leader(&mut self, leads: bool, wanted: Option<Fact>) {
        let wanted = wanted.or(self.wanted.filter(|_| leads));
        *self = Self { wanted, ..Self::new(std::mem::take(&mut self.agreed)) };
    }

    /// These entries are agreed on. This server leads in that term, if it leads.
    pub(super) fn on_committed(&mut self, entries: &[Entry], leads_in: Option<Term>) {
        for fact in entries.iter().filter_map(|entry| record::fact(&entry.data)) {
            self.agreed.apply(fact);
            if self.wanted == Some(fact) {
                (self.wanted, self.is_proposed) = (None, false);
            }
        }
        self.is_ready |= entries.last().is_some_and(|last| leads_in == Some(Term(last.term)));
        // The usual case, in which there is nothing to write.
        if self.is_ready && self.wanted == Some(Fact::AllStand) && self.agreed.is_empty() {
            self.wanted = None;
        }
    }

    /// An operator had an election held: whoever gave way stands again.
    pub(super) fn pardon(&mut self) {
        if !self.agreed.is_empty() {
            (self.wanted, self.is_proposed) = (Some(Fact::AllStand), false);
        }
    }

    /// Is something on its way into the log by which the next leader must go?
    pub(super) fn is_unwritten(&self) -> bool {
        self.wanted.is_some_and(|wanted| wanted != Fact::AllStand || !self.agreed.is_empty())
    }

    /// What is to be proposed now.
    fn take_due(&mut self) -> Option<Fact> {
        let due = self.wanted.filter(|_| self.is_ready && !self.is_proposed)?;
        self.is_proposed = true;
        Some(due)
    }
}

impl<E: Election, R: Consensus> Control<E, R> {
    /// The same server, with what its disk says of those who gave way: a snapshot, and the facts of its log.
    #[must_use]
    pub fn after(mut self, gave_way: GaveWay, facts: impl IntoIterator<Item = Fact>) -> Self {
        let mut presumed = gave_way.clone();
        facts.into_iter().for_each(|fact| presumed.apply(fact));
        self.yielded = Yielded { presumed: Some(presumed), ..Yielded::new(gave_way) };
        self
    }

    /// Who gave way, as agreed.
    pub const fn gave_way(&self) -> &GaveWay {
        self.yielded.agreed()
    }

    /// What a new leader writes down, which leads for this reason after that one.
    pub(super) fn fact(&self, leader: ServerId, previous: Option<ServerId>, reason: Reason) -> Option<Fact> {
        let previous = previous.filter(|previous| *previous != leader);
        match (reason, previous) {
            _ if leader != self.id => None,
            (Reason::Operator | Reason::Resigned, Some(server)) => {
                Some(Fact::GaveWay { server, to: leader, is_chosen: reason == Reason::Operator })
            }
            (Reason::Elected, _) => Some(Fact::AllStand),
            (Reason::LinkLost | Reason::Silence | Reason::LostQuorum, Some(_)) => Some(Fact::AllStand),
            _ => None,
        }
    }

    /// Proposes what has to be written, again if it was refused; at every tick of a leader.
    pub(super) fn write_fact(&mut self, out: &mut Outbox<Self>) {
        if let Some(fact) = self.yielded.take_due() {
            self.tell_replica(replica::Command::Propose(vec![record::of_fact(fact)]), out);
        }
    }

    /// Was a fact refused? Nobody waits for it but this leader.
    pub(super) fn is_own_refusal(&mut self, data: &[bytes::Bytes]) -> bool {
        let is_fact = data.iter().any(|data| record::fact(data).is_some());
        self.yielded.is_proposed &= !is_fact;
        is_fact
    }

    /// The best of those to whom leadership may be handed. To a leader that gave way itself and leads for want of another,
    /// anybody who can take over is better.
    pub(super) fn best(&self) -> Option<ServerId> {
        let may_lead = |peer: ServerId| !self.yielded.binds(peer);
        let stand_in = || {
            let successor = self.hearing.successor(&self.replica, None, self.yielded.agreed()).ok();
            successor.filter(|peer| self.yielded.binds(self.id) && may_lead(*peer))
        };
        self.election.better_among(&may_lead).or_else(stand_in)
    }

    /// May a better-ranked server take over from this leader? Not if an operator chose it; always if it gave way itself.
    pub(super) fn may_be_preempted(&self) -> bool {
        self.yielded.binds(self.id) || self.election.preempts() && !self.is_chosen()
    }

    /// Did an operator choose this leader?
    pub(super) fn is_chosen(&self) -> bool {
        let wanted = self.yielded.wanted;
        let will_be = matches!(wanted, Some(Fact::GaveWay { to, is_chosen: true, .. }) if to == self.id);
        will_be || wanted.is_none() && self.gave_way().is_chosen(self.id)
    }

    /// Should this server, which was named, let another one run? Not if the leader that it gave way to is lost, nor if an
    /// operator wants an election, nor for ever.
    pub(super) fn declines(&mut self) -> bool {
        let is_free =
            matches!(self.change.reason, Reason::LinkLost | Reason::Silence | Reason::LostQuorum | Reason::Elected);
        let is_other = |peer: &ServerId| !self.yielded.binds(*peer) && !self.suspected.contains(peer);
        let must = self.yielded.binds(self.id)
            && !is_free
            && self.campaign.candidacy == Candidacy::Named
            && !self.campaign.is_under_way()
            && self.yielded.declined < DECLINED_MAX
            && self.replica.peers().iter().any(is_other);
        self.yielded.declined += u32::from(must);
        must
    }

    /// The term in which this server leads.
    pub(super) fn leads_in(&self) -> Option<Term> {
        let (role, _, term) = self.replica.view();
        (role == Role::Leader).then_some(term)
    }
}
