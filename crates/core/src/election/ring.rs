//! Ring: a token travels from member to member, and the best id comes back to its owner.
//!
//! Two documents describe it. Election theory elects the *highest* id and marks who participates; ring over AMQP
//! elects the *lowest* and calls the states ASLEEP, CANDIDATE, LEADER and FOLLOWER (rules 1 to 6). They are one
//! algorithm with the order turned round: "participating" is CANDIDATE, and [`Winner`] says which way to compare.
//!
//! What the documents leave open and this file decides:
//! - Rule 3 as written sends one's own id again for every worse id that passes. Here a candidate passes on only
//!   what is better than all it has sent in this round; everything else is swallowed.
//! - There was no rule for a second election. Every election has a *round* number: a newer one puts a member back
//!   to ASLEEP, an older one is discarded. A foreign message without a round joins the election under way, or
//!   starts the next one.
//! - A dead successor is skipped; what was sent to it last is sent again to the next, so that the token lives on.
//! - A candidate has a timer: no result within it starts a new round.
//! - Each announcement has a *lap* number, so that it goes round once and a leader can repeat it.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::{Armed, Command, Election, MessageKind, Notice, Reminders, Timer};
use crate::bounds;
use crate::ids::{Round, ServerId};
use crate::machine::{Delay, Input, Machine, Moment, Never, Outbox};
use crate::planted::{Bug, Planted};

/// One member of a ring.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ring {
    id: ServerId,
    /// All members in ring order. They share one copy, so that a million of them fit into memory.
    members: Arc<[ServerId]>,
    /// Where in the ring this one is; `None` once it has left.
    position: Option<usize>,
    rules: Arc<Rules>,
    suspected: BTreeSet<ServerId>,
    round: Round,
    phase: Phase,
    /// False in the round in which this member gave leadership up.
    stands: bool,
    armed: Armed,
    /// By how many microseconds a round trip to the slowest live member is longer than on a local network.
    slower_us: u64,
}

/// The states of ring over AMQP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    /// Not taking part in this round (yet).
    Asleep,
    /// Taking part; `best` is the best id sent so far, nobody's if this member gave leadership up.
    Candidate { best: Option<ServerId> },
    /// It leads, and has announced that in this many laps before the present one.
    Leader { lap: u64 },
    /// It knows who leads, as of that lap.
    Follower { leader: ServerId, lap: u64 },
}

/// What the members of one ring have agreed on beforehand. They share one copy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rules {
    /// Which id wins?
    pub winner: Winner,
    /// Does a better member that was left out start a new round?
    pub preempt: bool,
    /// How long a member that has just started waits for a leader.
    pub startup: Delay,
    /// How long a round may take.
    pub round: Delay,
    /// Repeated announcements, if wanted.
    pub reminders: Option<Reminders>,
    /// A bug that the laboratory is to find.
    pub planted: Planted,
}

/// Which id wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Winner {
    /// The lowest (ring over AMQP).
    Lowest,
    /// The highest (election theory).
    Highest,
}

/// What members say to their successors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// The best id that this token has met; nobody's when a leader that resigned has just sent it off.
    Election {
        /// The election that the token belongs to; unknown if a foreign member sent it.
        round: Round,
        /// The candidate.
        candidate: Option<ServerId>,
    },
    /// This member leads.
    Elected {
        /// The election that it won; unknown if a foreign member sent it.
        round: Round,
        /// The winner.
        leader: ServerId,
        /// How often it has announced itself before.
        lap: u64,
    },
}

impl Machine for Ring {
    type Peer = ServerId;
    type Message = Message;
    type Command = Command;
    type Timer = Timer;
    type Record = Never;
    type Token = Never;
    type Barrier = Never;
    type Notice = Notice;

    fn step(&mut self, _: Moment, input: Input<Self>, out: &mut Outbox<Self>) {
        match input {
            Input::Message { message, .. } if !self.is_credible(&message) => out.ignore(bounds::ABSURD),
            Input::Message { from, message: Message::Election { round, candidate } } => {
                self.on_election(from, round, candidate, out);
            }
            Input::Message { from, message: Message::Elected { round, leader, lap } } => {
                self.on_elected(from, round, leader, lap, out);
            }
            Input::Timer(timer) => self.on_timer(timer, out),
            Input::Command(command) => self.on_command(command, out),
            Input::LinkUp(_) | Input::LinkDown(_) => out.ignore("what no election needs"),
        }
    }
}

impl Election for Ring {
    fn id(&self) -> ServerId {
        self.id
    }

    fn leader(&self) -> Option<ServerId> {
        match self.phase {
            Phase::Leader { .. } => Some(self.id),
            Phase::Follower { leader, .. } => Some(leader),
            Phase::Asleep | Phase::Candidate { .. } => None,
        }
    }

    fn is_electing(&self) -> bool {
        match self.phase {
            Phase::Candidate { .. } => true,
            Phase::Asleep => self.armed != Armed::default(),
            Phase::Leader { .. } | Phase::Follower { .. } => false,
        }
    }

    fn better(&self) -> Option<ServerId> {
        self.better_among(&|_| true)
    }

    fn better_among(&self, may_lead: &dyn Fn(ServerId) -> bool) -> Option<ServerId> {
        self.better_members()
            .filter(|member| may_lead(*member))
            .reduce(|best, member| if self.rules.winner.is_better(member, best) { member } else { best })
    }

    fn better_count(&self) -> usize {
        self.better_members().count()
    }

    fn preempts(&self) -> bool {
        self.rules.preempt
    }

    fn kind_of(message: &Message) -> MessageKind {
        match message {
            Message::Election { .. } => MessageKind::Election,
            Message::Elected { .. } => MessageKind::Elected,
        }
    }

    fn is_credible(&self, message: &Message) -> bool {
        match message {
            Message::Election { round, .. } => bounds::is_credible(round.0, self.round.0),
            Message::Elected { round, lap, .. } => {
                bounds::is_credible(round.0, self.round.0) && *lap <= bounds::NUMBER_MAX
            }
        }
    }
}

impl Ring {
    /// The member at this position (from 0), asleep.
    ///
    /// # Panics
    /// If there is no such position.
    #[must_use]
    pub fn new(position: usize, members: Arc<[ServerId]>, rules: Arc<Rules>) -> Self {
        Self {
            id: members[position],
            members,
            position: Some(position),
            rules,
            suspected: BTreeSet::new(),
            round: Round::UNKNOWN,
            phase: Phase::Asleep,
            stands: true,
            armed: Armed::default(),
            slower_us: 0,
        }
    }

    /// The latest election that this member knows of.
    #[must_use]
    pub const fn round(&self) -> Round {
        self.round
    }

    /// Its state, as ring over AMQP calls it.
    #[must_use]
    pub const fn state(&self) -> &'static str {
        match self.phase {
            Phase::Asleep => "ASLEEP",
            Phase::Candidate { .. } => "CANDIDATE",
            Phase::Leader { .. } => "LEADER",
            Phase::Follower { .. } => "FOLLOWER",
        }
    }

    fn better_members(&self) -> impl Iterator<Item = ServerId> {
        let is_better =
            |member: &ServerId| !self.suspected.contains(member) && self.rules.winner.is_better(*member, self.id);
        self.members.iter().copied().filter(is_better)
    }

    fn on_command(&mut self, command: Command, out: &mut Outbox<Self>) {
        match command {
            Command::Boot => self.armed.set(Timer::Startup, self.rules.startup, out),
            Command::Start => self.on_start(out),
            Command::Resign => self.on_resign(out),
            Command::Suspect(peer) => self.on_suspect(peer, out),
            Command::Trust(peer) => self.on_trust(peer, out),
            Command::Members(members) => self.on_members(members, out),
            Command::Ratified(leader) => self.on_ratified(leader, out),
            Command::Slower(us) => self.slower_us = us,
            Command::Score(_) | Command::PeerScore(..) => out.ignore("scores: a ring compares ids"),
        }
    }

    /// Rule 1: whoever is asleep may start. A new round wakes the others again; a candidate has started already.
    fn on_start(&mut self, out: &mut Outbox<Self>) {
        match self.phase {
            _ if self.position.is_none() => out.ignore("start: not a member"),
            Phase::Candidate { .. } => out.ignore("start: an election is under way"),
            Phase::Asleep | Phase::Leader { .. } | Phase::Follower { .. } => self.begin(true, out),
        }
    }

    /// A leader that steps down starts a round for everybody but itself.
    fn on_resign(&mut self, out: &mut Outbox<Self>) {
        match self.phase {
            Phase::Leader { .. } => self.begin(false, out),
            _ => out.ignore("resign: not leading"),
        }
    }

    /// A dead leader, or a dead candidate whose token is awaited, means a new round. If the successor died, what it
    /// was sent last may have died with it: the next member gets it again.
    fn on_suspect(&mut self, peer: ServerId, out: &mut Outbox<Self>) {
        if peer == self.id {
            return out.ignore("suspect: oneself");
        }
        let was_successor = self.successor() == peer;
        self.suspected.insert(peer);
        match self.phase {
            Phase::Follower { leader, .. } if leader == peer => self.begin(true, out),
            Phase::Candidate { best: Some(best) } if best == peer => self.begin(true, out),
            _ if was_successor => self.pass_on(out),
            _ => {}
        }
    }

    /// A member that came back behind this one is told what it missed.
    fn on_trust(&mut self, peer: ServerId, out: &mut Outbox<Self>) {
        self.suspected.remove(&peer);
        if self.successor() == peer {
            self.pass_on(out);
        }
    }

    /// Members join and leave between elections; whoever lost its leader that way starts the next one.
    fn on_members(&mut self, members: Arc<[ServerId]>, out: &mut Outbox<Self>) {
        self.position = members.iter().position(|member| *member == self.id);
        self.members = members;
        let has_leader = self.leader().is_some_and(|leader| self.members.contains(&leader));
        match self.phase {
            _ if self.position.is_none() => {
                self.armed.cancel(out);
                self.become_phase(Phase::Asleep, out);
            }
            Phase::Candidate { .. } => self.begin(true, out),
            Phase::Leader { .. } | Phase::Follower { .. } if !has_leader => self.begin(true, out),
            // The own successor may be new.
            _ => self.pass_on(out),
        }
    }

    /// The quorum has the last word: whoever it chose leads, and the round is over.
    fn on_ratified(&mut self, leader: ServerId, out: &mut Outbox<Self>) {
        self.armed.cancel(out);
        let is_self = leader == self.id;
        self.become_phase(if is_self { Phase::Leader { lap: 0 } } else { Phase::Follower { leader, lap: 0 } }, out);
    }

    fn on_timer(&mut self, timer: Timer, out: &mut Outbox<Self>) {
        if !self.armed.fired(timer) {
            return out.ignore("a timer that was cancelled");
        }
        match self.phase {
            Phase::Asleep | Phase::Candidate { .. } => self.begin(true, out),
            Phase::Leader { lap } => {
                self.phase = Phase::Leader { lap: lap.saturating_add(1) };
                self.pass_on(out);
                self.arm_reminder(out);
            }
            // Silence is no reason to skip the leader: only its owner's word takes a member out of the ring.
            Phase::Follower { .. } => self.begin(true, out),
        }
    }

    /// Rules 2 to 4: pass on what is better than anything sent so far, oneself included; one's own id that comes
    /// back has beaten everybody. That the candidate is a member is checked where messages enter the process.
    fn on_election(&mut self, from: ServerId, round: Round, candidate: Option<ServerId>, out: &mut Outbox<Self>) {
        let round = self.known_round(round);
        if self.position.is_none() {
            return out.ignore("a token for a member that left");
        }
        if round < self.round {
            return self.bring_up_to_date(from, out);
        }
        if round > self.round {
            self.enter(round);
            self.become_phase(Phase::Asleep, out);
        }
        let is_own = candidate == Some(self.id);
        match self.phase {
            Phase::Asleep if is_own => self.become_leader(out),
            Phase::Asleep => {
                let best = if self.improves(candidate, Some(self.id)) { candidate } else { Some(self.id) };
                self.become_candidate(best, out);
                self.await_result(out);
            }
            // Nobody's token, back at the one that resigned: there is no other member.
            Phase::Candidate { best } if is_own || (candidate.is_none() && best.is_none()) => {
                self.become_leader(out);
            }
            Phase::Candidate { best } if self.improves(candidate, best) => self.become_candidate(candidate, out),
            Phase::Candidate { .. } if self.rules.planted.is(Bug::OwnIdSentAgain) => {
                self.become_candidate(Some(self.id), out);
            }
            Phase::Candidate { .. } => out.ignore("a token that cannot win"),
            Phase::Leader { .. } | Phase::Follower { .. } => out.ignore("a token of a round that is over"),
        }
    }

    /// Rules 5 and 6: take the leader, pass the news on; it stops where it started.
    fn on_elected(&mut self, from: ServerId, round: Round, leader: ServerId, lap: u64, out: &mut Outbox<Self>) {
        let round = if round == Round::UNKNOWN { self.round } else { round };
        if self.position.is_none() {
            return out.ignore("an announcement to a member that left");
        }
        if round < self.round {
            return self.bring_up_to_date(from, out);
        }
        let is_same_round = round == self.round;
        match self.phase {
            Phase::Leader { lap: mine } if is_same_round && leader == self.id && lap == mine => {
                out.notify(Notice::Complete);
            }
            Phase::Leader { .. } if is_same_round && !self.rules.winner.is_better(leader, self.id) => {
                out.ignore("an announcement that this leader outranks");
            }
            Phase::Follower { leader: mine, lap: last } if is_same_round && mine == leader && lap <= last => {
                out.ignore("an announcement that has passed before");
            }
            Phase::Follower { leader: mine, .. } if is_same_round && self.rules.winner.is_better(mine, leader) => {
                out.ignore("an announcement of a worse leader");
            }
            _ => self.on_new_leader(round, leader, lap, out),
        }
    }

    /// It was elected without this member, or even believes this member to lead: if that is wrong, start again.
    fn on_new_leader(&mut self, round: Round, leader: ServerId, lap: u64, out: &mut Outbox<Self>) {
        self.enter(round);
        let was_left_out = self.stands && self.rules.preempt && self.rules.winner.is_better(self.id, leader);
        if leader == self.id || was_left_out {
            return self.begin(true, out);
        }
        let is_news = self.leader() != Some(leader);
        self.phase = Phase::Follower { leader, lap };
        if is_news {
            out.notify(Notice::Follow(leader));
        }
        match self.rules.reminders {
            Some(reminders) => self.armed.set(Timer::Silence, reminders.silence, out),
            None => self.armed.cancel(out),
        }
        self.pass_on(out);
    }

    /// Starts the next round, standing in it or not.
    fn begin(&mut self, stands: bool, out: &mut Outbox<Self>) {
        self.enter(self.round.next());
        self.stands = stands;
        self.become_candidate(stands.then_some(self.id), out);
        self.await_result(out);
    }

    fn enter(&mut self, round: Round) {
        if round > self.round {
            self.round = round;
            self.stands = true;
        }
    }

    fn become_candidate(&mut self, best: Option<ServerId>, out: &mut Outbox<Self>) {
        self.become_phase(Phase::Candidate { best }, out);
        self.pass_on(out);
    }

    /// A token can be lost with the member that held it. Whoever took part notices.
    fn await_result(&mut self, out: &mut Outbox<Self>) {
        if !self.rules.planted.is(Bug::LostTokenNotReplaced) {
            // A message to the next member takes half a round trip.
            let slower_us = (self.slower_us / 2).saturating_mul(hops(self.members.len()));
            self.armed.set(Timer::Round, self.rules.round.longer_by(slower_us), out);
        }
    }

    fn become_leader(&mut self, out: &mut Outbox<Self>) {
        self.armed.cancel(out);
        self.become_phase(Phase::Leader { lap: 0 }, out);
        out.notify(Notice::Lead);
        self.pass_on(out);
        self.arm_reminder(out);
    }

    fn arm_reminder(&mut self, out: &mut Outbox<Self>) {
        if let Some(reminders) = self.rules.reminders {
            self.armed.set(Timer::Remind, reminders.every, out);
        }
    }

    fn become_phase(&mut self, phase: Phase, out: &mut Outbox<Self>) {
        let was_defined = self.leader().is_some();
        self.phase = phase;
        if was_defined && self.leader().is_none() {
            out.notify(Notice::Undefined);
        }
    }

    /// Sends the successor what this member knows best.
    fn pass_on(&self, out: &mut Outbox<Self>) {
        if let Some(message) = self.knowledge() {
            out.send(self.successor(), message);
        }
    }

    /// Whoever sends something of an older round has missed something.
    fn bring_up_to_date(&self, from: ServerId, out: &mut Outbox<Self>) {
        match self.knowledge() {
            Some(news @ Message::Elected { .. }) if self.members.contains(&from) => out.send(from, news),
            _ => out.ignore("what belongs to an older round"),
        }
    }

    fn knowledge(&self) -> Option<Message> {
        let round = self.round;
        match self.phase {
            Phase::Asleep => None,
            Phase::Candidate { best } => Some(Message::Election { round, candidate: best }),
            Phase::Leader { lap } => Some(Message::Elected { round, leader: self.id, lap }),
            Phase::Follower { leader, lap } => Some(Message::Elected { round, leader, lap }),
        }
    }

    /// The next member that is thought alive; alone, one's own successor is oneself.
    fn successor(&self) -> ServerId {
        let position = self.position.unwrap_or(0);
        let (before, after) = self.members.split_at((position + 1).min(self.members.len()));
        let mut others = after.iter().chain(before);
        others.find(|member| !self.suspected.contains(member)).copied().unwrap_or(self.id)
    }

    /// A foreign member names no round: its message belongs to the election under way, or starts the next one.
    fn known_round(&self, round: Round) -> Round {
        match self.phase {
            _ if round != Round::UNKNOWN => round,
            Phase::Candidate { .. } => self.round,
            Phase::Asleep => self.round.max(Round(1)),
            Phase::Leader { .. } | Phase::Follower { .. } => self.round.next(),
        }
    }

    /// Is this candidate better than the best so far? Anybody is better than nobody.
    fn improves(&self, candidate: Option<ServerId>, best: Option<ServerId>) -> bool {
        match (candidate, best) {
            (Some(candidate), Some(best)) => self.rules.winner.is_better(candidate, best),
            (candidate, best) => candidate.is_some() && best.is_none(),
        }
    }
}

impl Rules {
    /// Rules of a ring of this many members, with times for a local network: 20 ms from member to member.
    #[must_use]
    pub fn new(winner: Winner, members: usize) -> Self {
        Self {
            winner,
            preempt: true,
            startup: Delay::between_ms(0, 500),
            round: Delay::between_ms(20, 30).times(hops(members)),
            reminders: None,
            planted: Planted::NONE,
        }
    }
}

/// How many messages a round takes at most: the token travels at most twice round, the announcement once.
fn hops(members: usize) -> u64 {
    3 * members.max(1) as u64
}

impl Winner {
    /// Would `one` win against `other`?
    #[must_use]
    pub fn is_better(self, one: ServerId, other: ServerId) -> bool {
        match self {
            Self::Lowest => one < other,
            Self::Highest => one > other,
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Election { round, candidate: Some(candidate) } => write!(f, "election r{round} {candidate}"),
            Self::Election { round, candidate: None } => write!(f, "election r{round} nobody"),
            Self::Elected { round, leader, lap: 0 } => write!(f, "elected r{round} {leader}"),
            Self::Elected { round, leader, lap } => write!(f, "elected r{round} {leader} lap {lap}"),
        }
    }
}
