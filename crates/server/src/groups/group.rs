//! One group: its election, and what is known of its leader.

use primus_core::bounds;
use primus_core::election::{self, Algorithm, Election, MessageKind};
use primus_core::machine::{Input, Machine, Moment, Outbox, Output};
use primus_core::rank::RankBy;
use primus_core::{Round, ServerId, election::ring};

use super::words::{Notice, Said, Timer};
use super::{GroupPlan, Groups};
use crate::any_election::{self, AnyElection};
use crate::control::Reason;

/// A group as one server sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Group {
    id: ServerId,
    now: Moment,
    number: usize,
    plan: GroupPlan,
    /// None if this server is no member and only hears who leads.
    election: Option<AnyElection>,
    leader: Option<ServerId>,
    round: Round,
    /// What the owner was told last.
    told: (Option<ServerId>, Round),
    /// Who led last.
    last: Option<ServerId>,
    /// Why there is, or will be, another leader.
    reason: Reason,
    /// An election that an operator wants is under way.
    held: Option<Held>,
}

/// What was so before an election that an operator wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Held {
    leader: Option<ServerId>,
    round: Round,
    reason: Reason,
}

impl Group {
    pub(super) const fn new(id: ServerId, number: usize, plan: GroupPlan, election: Option<AnyElection>) -> Self {
        Self {
            id,
            now: Moment::START,
            number,
            plan,
            election,
            leader: None,
            round: Round::UNKNOWN,
            told: (None, Round::UNKNOWN),
            last: None,
            reason: Reason::Start,
            held: None,
        }
    }

    pub(super) const fn plan(&self) -> &GroupPlan {
        &self.plan
    }

    pub(super) const fn leader(&self) -> Option<ServerId> {
        self.leader
    }

    pub(super) const fn round(&self) -> Round {
        self.round
    }

    /// Is this server a member?
    pub(super) const fn is_own(&self) -> bool {
        self.election.is_some()
    }

    /// Is that one a member?
    pub(super) fn has(&self, server: ServerId) -> bool {
        self.plan.members.contains(&server)
    }

    pub(super) fn is_by_load(&self) -> bool {
        self.plan.algorithm == Algorithm::Bully && self.plan.rank == RankBy::Load
    }

    pub(super) const fn advance(&mut self, now: Moment) {
        self.now = now;
    }

    pub(super) fn command(&mut self, command: election::Command, out: &mut Outbox<Groups>) {
        self.step(Input::Command(command), None, out);
    }

    /// An operator wants an election. If another member ranks better than the leader it takes over; if not, nobody is deposed.
    pub(super) fn elect(&mut self, out: &mut Outbox<Groups>) {
        let held = Held { leader: self.leader, round: self.round, reason: self.reason };
        self.held.get_or_insert(held);
        self.reason = Reason::Elected;
        self.command(election::Command::Start, out);
    }

    pub(super) fn on_timer(&mut self, timer: election::Timer, out: &mut Outbox<Groups>) {
        if timer == election::Timer::Silence {
            self.reason = Reason::Silence;
        }
        self.step(Input::Timer(timer), None, out);
    }

    pub(super) fn on_message(
        &mut self,
        from: ServerId,
        message: any_election::Message,
        reason: Reason,
        out: &mut Outbox<Groups>,
    ) {
        if !self.has(from) || !self.is_about_members(&message) {
            return out.ignore("what no member would say");
        }
        if self.election.as_ref().is_some_and(|election| !election.is_credible(&message)) {
            return out.ignore(bounds::ABSURD);
        }
        let kind = AnyElection::kind_of(&message);
        self.step(Input::Message { from, message }, Some((kind, reason)), out);
    }

    /// Nobody can be elected whom others configured and this server did not. Bully looks for itself.
    fn is_about_members(&self, message: &any_election::Message) -> bool {
        match message {
            any_election::Message::Bully(_) => true,
            any_election::Message::Ring(ring::Message::Election { candidate, .. }) => {
                candidate.is_none_or(|candidate| self.has(candidate))
            }
            any_election::Message::Ring(ring::Message::Elected { leader, .. }) => self.has(*leader),
            // Groups have no such elections.
            any_election::Message::Own(_) => false,
        }
    }

    /// A peer is missed, for this reason.
    pub(super) fn miss(&mut self, peer: ServerId, reason: Reason, out: &mut Outbox<Groups>) {
        if !self.has(peer) {
            return;
        }
        if self.leader == Some(peer) {
            self.reason = reason;
        }
        if self.is_own() {
            self.command(election::Command::Suspect(peer), out);
        } else if self.leader == Some(peer) {
            self.leader = None;
            self.tell(out);
        }
    }

    /// A peer says that it leads this group in that round, or that it does not. Members know better.
    pub(super) fn on_claim(&mut self, from: ServerId, claim: Option<Round>, out: &mut Outbox<Groups>) {
        if self.is_own() || !self.has(from) {
            return;
        }
        if claim.is_some_and(|round| !bounds::is_credible(round.0, self.round.0)) {
            return out.ignore(bounds::ABSURD);
        }
        match claim {
            // Of two that lead, the one of the later election will stay.
            Some(round) if self.leader.is_none_or(|leader| leader == from) || round > self.round => {
                if self.leader.is_some_and(|leader| leader != from) {
                    self.reason = self.merit();
                }
                (self.leader, self.round) = (Some(from), round);
            }
            None if self.leader == Some(from) => {
                self.leader = None;
                self.reason = self.merit();
            }
            Some(_) | None => {}
        }
        self.tell(out);
    }

    fn step(&mut self, input: Input<AnyElection>, heard: Option<(MessageKind, Reason)>, out: &mut Outbox<Groups>) {
        let before = (self.leader, self.round);
        let wanted = self.wanted(input);
        if let Some((kind, reason)) = heard {
            self.learn(before, kind, reason);
        }
        wanted.into_iter().for_each(|output| self.pass_on(output, out));
        self.tell(out);
    }

    /// What the election wants. What it says to itself, alone in its ring, it hears at once.
    fn wanted(&mut self, input: Input<AnyElection>) -> Vec<Output<AnyElection>> {
        let Some(election) = &mut self.election else { return Vec::new() };
        let (mut wanted, mut inputs, mut outbox) = (Vec::new(), vec![input], Outbox::new());
        while let Some(input) = inputs.pop() {
            election.step(self.now, input, &mut outbox);
            for output in outbox.drain() {
                match output {
                    Output::Send { to, message } if to == self.id => {
                        inputs.push(Input::Message { from: to, message });
                    }
                    output => wanted.push(output),
                }
            }
        }
        (self.leader, self.round) = (election.leader(), election.round());
        wanted
    }

    /// Why the leader changed, if it did: whoever told this server knows. But one that does not follow a leader that announces
    /// itself leads or runs in its place, and that is because of its rank.
    fn learn(&mut self, before: (Option<ServerId>, Round), kind: MessageKind, said: Reason) {
        if (self.leader, self.round) == before {
            return;
        }
        let is_announced = matches!(kind, MessageKind::Coordinator | MessageKind::Elected);
        let follows = self.leader.is_some_and(|leader| leader != self.id);
        if is_announced && !follows {
            self.reason = self.merit();
        } else if self.leader != before.0 {
            // For whoever has just started it is the start; for those who had a leader it is a better one.
            self.reason = if said == Reason::Start { self.merit() } else { said };
        }
    }

    /// The reason why the better one leads.
    fn merit(&self) -> Reason {
        if self.is_by_load() { Reason::Load } else { Reason::Rank }
    }

    fn pass_on(&self, output: Output<AnyElection>, out: &mut Outbox<Groups>) {
        match output {
            Output::Send { to, message } => {
                out.send(to, Said::Election { group: self.plan.name.clone(), message, reason: self.reason });
            }
            Output::Set { timer, delay } => out.set(Timer::Election(self.number, timer), delay),
            Output::Cancel(timer) => out.cancel(Timer::Election(self.number, timer)),
            Output::Ignore(reason) => out.ignore(reason),
            // Who leads is told in this group's own words.
            Output::Notify(_) => {}
        }
    }

    fn tell(&mut self, out: &mut Outbox<Groups>) {
        let now = (self.leader, self.round);
        // While an election goes on that was only asked for, nothing is known against the leader.
        if self.told == now || self.held.is_some() && self.leader.is_none() {
            return;
        }
        self.told = now;
        let is_result = self.conclude();
        let previous = self.last;
        if previous.is_none() {
            self.reason = Reason::Start;
        }
        self.last = self.leader.or(previous);
        let (group, reason) = (self.plan.name.clone(), self.reason);
        out.notify(Notice { group, leader: self.leader, round: self.round, previous, reason, is_result });
    }

    /// Does somebody lead because of an election that was asked for?
    fn conclude(&mut self) -> bool {
        let Some(held) = self.held.take_if(|held| {
            // One that was under way already ends in the round in which it began.
            self.leader.is_some() && (held.leader.is_none() || self.round > held.round)
        }) else {
            return false;
        };
        if self.leader == held.leader {
            self.reason = held.reason;
        }
        true
    }
}
