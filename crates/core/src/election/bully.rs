//! Bully: the best-ranked live node leads.
//!
//! Whoever misses the leader *asks* the nodes that rank better; a better one *answers* and asks in its turn;
//! whoever gets no answer *wins* and announces itself. Three messages: `election`, `alive`, `coordinator`.
//!
//! From election theory: undefined / defined, T, the three messages, recovery, resignation. From Bully by
//! address: the order by address and the one-by-one mode. From load-aware Bully: the score in the messages, the
//! start-up delay, repeated announcements. The load-aware document contradicts itself about who answers; here
//! only a better-ranked node does.
//!
//! What the documents leave open and this file decides:
//! - Every election has a *round* number. A late message of an old round does not start a new election, and a
//!   node that fell behind learns the number from whoever answers.
//! - A rank is fixed when its node enters a round, so that no load can change the result half-way.
//! - A loser has a timer. Whoever answered but does not lead in time is *skipped* until somebody leads.
//! - Of two leaders that hear each other, the worse yields.

mod rules;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use core::fmt;

use serde::{Deserialize, Serialize};

pub use self::rules::{Asking, Rules, answer_time};
use super::{Armed, Command, Election, MessageKind, Notice, Timer};
use crate::bounds;
use crate::ids::{Round, ServerId};
use crate::load::Score;
use crate::machine::{Delay, Input, Machine, Moment, Never, Outbox};
use crate::planted::Bug;
use crate::rank::{Rank, RankBy, Standing};

/// One node of a Bully election.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Bully {
    id: ServerId,
    rules: Arc<Rules>,
    /// The own load as last measured; it counts from the next round on.
    score: Score,
    /// What is known of the peers' loads. A peer of unknown load may be better, so it is asked.
    peer_scores: BTreeMap<ServerId, Score>,
    suspected: BTreeSet<ServerId>,
    /// Out of the running until somebody leads: they answered and did not lead, or they resigned.
    skipped: BTreeSet<ServerId>,
    round: Round,
    /// Fixed when the round was entered.
    rank: Rank,
    role: Role,
    armed: Armed,
    /// By how many microseconds a round trip to the slowest live peer is longer than on a local network.
    slower_us: u64,
}

/// What a node does in the election.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Role {
    /// Nothing yet.
    Idle,
    /// It asked better-ranked peers: all of them, or just this one.
    Asking(Option<ServerId>),
    /// Somebody better is there and should lead soon.
    Waiting {
        winner: Rank,
    },
    Leading,
    /// It heard this leader announce itself in that round.
    Following {
        leader: Rank,
        since: Round,
    },
}

/// What nodes say to each other. Everything carries the sender's round and its standing in that round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Message {
    /// What is said.
    pub kind: Kind,
    /// The sender's round.
    pub round: Round,
    /// The sender's standing, fixed for that round.
    pub standing: Standing,
}

/// The three things that nodes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// I want to lead; is anybody better there?
    Election,
    /// I am there, and I rank better than you.
    Alive,
    /// I lead.
    Coordinator,
}

impl Machine for Bully {
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
            Input::Message { from, message } => self.on_message(from, message, out),
            Input::Timer(timer) => self.on_timer(timer, out),
            Input::Command(command) => self.on_command(command, out),
            Input::LinkUp(_) | Input::LinkDown(_) => out.ignore("what no election needs"),
        }
    }
}

impl Election for Bully {
    fn id(&self) -> ServerId {
        self.id
    }

    fn leader(&self) -> Option<ServerId> {
        match self.role {
            Role::Leading => Some(self.id),
            Role::Following { leader, .. } => Some(leader.id),
            Role::Idle | Role::Asking(_) | Role::Waiting { .. } => None,
        }
    }

    fn is_electing(&self) -> bool {
        match self.role {
            Role::Asking(_) | Role::Waiting { .. } => true,
            Role::Idle => self.armed != Armed::default(),
            Role::Leading | Role::Following { .. } => false,
        }
    }

    /// Only a rank that is known counts: whoever might be better is no reason to give way. And the present load counts, not
    /// that of the round: a leader may grow busy long after it won.
    fn better(&self) -> Option<ServerId> {
        self.better_among(&|_| true)
    }

    fn better_among(&self, may_lead: &dyn Fn(ServerId) -> bool) -> Option<ServerId> {
        let own = self.rules.rank_of(self.id, self.score);
        let is_known =
            |peer: &ServerId| self.rules.rank_by() != RankBy::Load || self.peer_scores.contains_key(peer);
        let is_candidate = |peer: &ServerId| self.is_in_the_running(*peer) && is_known(peer) && may_lead(*peer);
        let candidates = self.rules.ids().filter(is_candidate);
        let ranks = candidates.map(|peer| {
            let score = self.peer_scores.get(&peer).copied().unwrap_or_default();
            self.rules.rank_of(peer, score)
        });
        ranks.filter(|rank| self.is_better(*rank, own)).max().map(|best| best.id)
    }

    fn better_count(&self) -> usize {
        self.rules.ids().filter(|peer| self.is_to_be_asked(*peer)).count()
    }

    fn preempts(&self) -> bool {
        self.rules.preempt
    }

    fn kind_of(message: &Message) -> MessageKind {
        match message.kind {
            Kind::Election => MessageKind::Election,
            Kind::Alive => MessageKind::Alive,
            Kind::Coordinator => MessageKind::Coordinator,
        }
    }

    fn is_credible(&self, message: &Message) -> bool {
        bounds::is_credible(message.round.0, self.round.0)
    }
}

impl Bully {
    /// A node that has taken part in no election yet.
    #[must_use]
    pub fn new(id: ServerId, rules: Arc<Rules>) -> Self {
        let score = Score::default();
        Self {
            id,
            rank: rules.rank_of(id, score),
            rules,
            score,
            peer_scores: BTreeMap::new(),
            suspected: BTreeSet::new(),
            skipped: BTreeSet::new(),
            round: Round::UNKNOWN,
            role: Role::Idle,
            armed: Armed::default(),
            slower_us: 0,
        }
    }

    /// The latest election that this node knows of.
    #[must_use]
    pub const fn round(&self) -> Round {
        self.round
    }

    fn on_command(&mut self, command: Command, out: &mut Outbox<Self>) {
        match command {
            Command::Boot => self.armed.set(Timer::Startup, self.rules.startup, out),
            Command::Start => self.on_start(out),
            Command::Resign => self.on_resign(out),
            Command::Suspect(peer) => self.on_suspect(peer, out),
            Command::Trust(peer) => self.on_trust(peer, out),
            Command::Score(score) => self.score = score,
            Command::PeerScore(peer, score) => self.on_peer_score(peer, score, out),
            Command::Ratified(leader) => self.on_ratified(leader, out),
            Command::Slower(us) => self.slower_us = us,
            Command::Members(_) => out.ignore("members: a Bully's roster is fixed"),
        }
    }

    /// Any process may start an election at any time (election theory); one that takes part already goes on.
    fn on_start(&mut self, out: &mut Outbox<Self>) {
        match self.role {
            Role::Asking(_) | Role::Waiting { .. } => out.ignore("start: an election is under way"),
            Role::Idle | Role::Leading | Role::Following { .. } => self.begin(out),
        }
    }

    /// A leader that steps down enters the next round as the worst of all and asks everybody.
    fn on_resign(&mut self, out: &mut Outbox<Self>) {
        if self.role != Role::Leading {
            return out.ignore("resign: not leading");
        }
        self.enter(self.round.next());
        self.rank.standing = Standing::Resigned;
        self.ask(out);
    }

    /// The detection of a dead leader starts an election (all documents). A suspicion also cuts waiting short.
    fn on_suspect(&mut self, peer: ServerId, out: &mut Outbox<Self>) {
        self.suspected.insert(peer);
        match self.role {
            Role::Following { leader, .. } if leader.id == peer => self.begin(out),
            Role::Waiting { winner } if winner.id == peer => self.begin(out),
            Role::Asking(Some(asked)) if asked == peer => self.ask_next(out),
            Role::Asking(None) if self.best_to_ask().is_none() => self.win(out),
            _ => {}
        }
    }

    /// Whoever turns out to rank worse will not answer, so there is no point in waiting for it.
    fn on_peer_score(&mut self, peer: ServerId, score: Score, out: &mut Outbox<Self>) {
        self.peer_scores.insert(peer, score);
        if self.role == Role::Asking(None) && self.best_to_ask().is_none() {
            self.win(out);
        }
    }

    /// A leader greets a peer that came back, so that it can join without an election.
    fn on_trust(&mut self, peer: ServerId, out: &mut Outbox<Self>) {
        self.suspected.remove(&peer);
        if self.role == Role::Leading {
            self.tell(peer, Kind::Coordinator, out);
        }
    }

    /// The quorum has the last word: whoever it chose leads, and the election is over.
    fn on_ratified(&mut self, leader: ServerId, out: &mut Outbox<Self>) {
        self.skipped.clear();
        self.armed.cancel(out);
        let score = self.peer_scores.get(&leader).copied().unwrap_or_default();
        let rank = self.rules.rank_of(leader, score);
        let role =
            if leader == self.id { Role::Leading } else { Role::Following { leader: rank, since: self.round } };
        self.become_role(role, out);
    }

    fn on_timer(&mut self, timer: Timer, out: &mut Outbox<Self>) {
        if !self.armed.fired(timer) {
            return out.ignore("a timer that was cancelled");
        }
        match self.role {
            Role::Idle => self.begin(out),
            Role::Asking(None) => self.win(out),
            Role::Asking(Some(asked)) => {
                self.suspected.insert(asked);
                self.ask_next(out);
            }
            Role::Waiting { winner } => self.on_no_victory(winner.id, out),
            Role::Leading => self.announce(out),
            Role::Following { leader, .. } => self.on_suspect(leader.id, out),
        }
    }

    /// Whoever answered did not lead in time: it may be dead, or unable to reach us. The next rank runs.
    fn on_no_victory(&mut self, winner: ServerId, out: &mut Outbox<Self>) {
        if !self.rules.planted.is(Bug::UnreachableWinnerNeverSkipped) {
            self.skipped.insert(winner);
        }
        self.begin(out);
    }

    fn on_message(&mut self, from: ServerId, message: Message, out: &mut Outbox<Self>) {
        if from == self.id || !self.rules.allow(from, message.standing) {
            return out.ignore("what no peer would say");
        }
        if !self.is_credible(&message) {
            return out.ignore(bounds::ABSURD);
        }
        // Whoever speaks is alive.
        self.suspected.remove(&from);
        let rank = Rank { standing: message.standing, id: from };
        match message.kind {
            Kind::Election => self.on_election(rank, message.round, out),
            Kind::Alive => self.on_alive(rank, message.round, out),
            Kind::Coordinator => self.on_coordinator(rank, message.round, out),
        }
    }

    /// A better-ranked node answers and starts its own election; a worse one defers (all documents).
    fn on_election(&mut self, asker: Rank, round: Round, out: &mut Outbox<Self>) {
        let is_news = round > self.round;
        if is_news {
            self.enter(round);
        }
        if asker.standing == Standing::Resigned {
            self.skipped.insert(asker.id);
        }
        if !self.is_better(self.rank(), asker) {
            return self.defer_to(asker, round, is_news, out);
        }
        if self.role == Role::Leading {
            // Leading already: that is the answer. In a new round everybody must hear it.
            return if is_news { self.announce(out) } else { self.tell(asker.id, Kind::Coordinator, out) };
        }
        self.tell(asker.id, Kind::Alive, out);
        // Within one round a node asks once, however often it is asked: late questions start nothing.
        if is_news || self.role == Role::Idle {
            self.ask(out);
        }
    }

    /// Even the one that defers keeps a timer: the better asker may die before it leads.
    fn defer_to(&mut self, asker: Rank, round: Round, is_news: bool, out: &mut Outbox<Self>) {
        match self.role {
            // The asker does not know the round: it has just started and never heard of this leader.
            Role::Leading if !is_news => self.tell(asker.id, Kind::Coordinator, out),
            Role::Following { .. } => {}
            _ if round < self.round => out.ignore("election of an older round"),
            _ if self.skipped.contains(&asker.id) => out.ignore("election of one that was waited for in vain"),
            // In a new round nobody waits any more for the winner of the old one.
            Role::Waiting { winner } if !is_news && self.is_better(winner, asker) => {}
            // Somebody better is there, whether its answer arrives or not.
            _ => self.wait_for(asker, out),
        }
    }

    /// Somebody better is there: this node does not lead (all documents).
    fn on_alive(&mut self, answerer: Rank, round: Round, out: &mut Outbox<Self>) {
        if round < self.round {
            return out.ignore("alive of an older round");
        }
        let is_best_so_far = match self.role {
            _ if self.skipped.contains(&answerer.id) => false,
            Role::Asking(_) => self.is_better(answerer, self.rank()),
            Role::Waiting { winner } => self.is_better(answerer, winner),
            Role::Idle | Role::Leading | Role::Following { .. } => false,
        };
        if !is_best_so_far {
            return out.ignore("alive that answers nothing");
        }
        if round > self.round {
            self.enter(round);
        }
        self.wait_for(answerer, out);
    }

    /// The sender leads (all documents). Two leaders settle it between them: the worse yields.
    fn on_coordinator(&mut self, leader: Rank, round: Round, out: &mut Outbox<Self>) {
        if round < self.round {
            return match self.role {
                Role::Leading => self.tell(leader.id, Kind::Coordinator, out),
                _ => out.ignore("coordinator of an older round"),
            };
        }
        let is_news = round > self.round;
        if is_news {
            self.enter(round);
        }
        let is_better = self.is_better(leader, self.rank());
        match self.role {
            Role::Leading if !is_better => {
                self.enter(round.next());
                self.announce(out);
            }
            Role::Following { leader: current, since } if round == since && self.is_better(current, leader) => {
                out.ignore("coordinator that ranks worse than the leader of this round");
            }
            // Asking in this very round: the sender missed the answer. Otherwise it is a leader, to be left in peace or not.
            Role::Asking(_) if !is_better && !is_news => self.begin(out),
            _ if !is_better && self.rules.preempt => self.begin(out),
            _ => self.follow(leader, out),
        }
    }

    /// Starts an election of one's own.
    fn begin(&mut self, out: &mut Outbox<Self>) {
        self.enter(self.round.next());
        self.ask(out);
    }

    /// From here on this node's rank stays what it is now, until the next round.
    fn enter(&mut self, round: Round) {
        self.round = round;
        self.rank = self.rules.rank_of(self.id, self.score);
    }

    fn ask(&mut self, out: &mut Outbox<Self>) {
        if self.rules.asking == Asking::OneByOne {
            return self.ask_next(out);
        }
        let rules = Arc::clone(&self.rules);
        let mut is_alone = true;
        for peer in rules.ids().filter(|peer| self.is_to_be_asked(*peer)) {
            is_alone = false;
            self.tell(peer, Kind::Election, out);
        }
        if is_alone { self.win(out) } else { self.await_answers(None, out) }
    }

    /// From the highest down, one at a time (Bully by address).
    fn ask_next(&mut self, out: &mut Outbox<Self>) {
        let Some(peer) = self.best_to_ask() else { return self.win(out) };
        self.tell(peer, Kind::Election, out);
        self.await_answers(Some(peer), out);
    }

    fn await_answers(&mut self, asked: Option<ServerId>, out: &mut Outbox<Self>) {
        self.become_role(Role::Asking(asked), out);
        self.armed.set(Timer::Answers, self.answers(), out);
    }

    fn wait_for(&mut self, winner: Rank, out: &mut Outbox<Self>) {
        self.become_role(Role::Waiting { winner }, out);
        if self.rules.planted.is(Bug::LoserWithoutTimer) {
            return self.armed.cancel(out);
        }
        self.armed.set(Timer::Victory, self.victory(), out);
    }

    /// T, with what the links take: T = 2·t_max + t_process (election theory).
    fn answers(&self) -> Delay {
        let slower_us = if self.rules.is_answers_fixed { 0 } else { self.slower_us };
        self.rules.answers.longer_by(slower_us)
    }

    /// The server that answered may have to wait for answers itself, and then announces itself.
    fn victory(&self) -> Delay {
        let slower_us = if self.rules.is_victory_fixed { 0 } else { self.slower_us };
        self.rules.victory.longer_by(slower_us.saturating_mul(3))
    }

    /// Nobody better answered, or nobody better is there (all documents).
    fn win(&mut self, out: &mut Outbox<Self>) {
        self.skipped.clear();
        self.armed.cancel(out);
        if self.role != Role::Leading {
            self.become_role(Role::Leading, out);
            out.notify(Notice::Lead);
        }
        self.announce(out);
    }

    fn follow(&mut self, leader: Rank, out: &mut Outbox<Self>) {
        self.skipped.clear();
        let is_news = self.leader() != Some(leader.id);
        self.role = Role::Following { leader, since: self.round };
        match self.rules.reminders {
            Some(reminders) => self.armed.set(Timer::Silence, reminders.silence, out),
            None => self.armed.cancel(out),
        }
        if is_news {
            out.notify(Notice::Follow(leader.id));
        }
    }

    fn announce(&mut self, out: &mut Outbox<Self>) {
        let rules = Arc::clone(&self.rules);
        for peer in rules.ids().filter(|peer| *peer != self.id) {
            self.tell(peer, Kind::Coordinator, out);
        }
        if let Some(reminders) = rules.reminders {
            self.armed.set(Timer::Remind, reminders.every, out);
        }
    }

    fn tell(&self, peer: ServerId, kind: Kind, out: &mut Outbox<Self>) {
        out.send(peer, Message { kind, round: self.round, standing: self.rank().standing });
    }

    fn become_role(&mut self, role: Role, out: &mut Outbox<Self>) {
        let was_defined = self.leader().is_some();
        self.role = role;
        if was_defined && self.leader().is_none() {
            out.notify(Notice::Undefined);
        }
    }

    fn rank(&self) -> Rank {
        if self.rules.planted.is(Bug::ScoreChangesInRound) {
            return self.rules.rank_of(self.id, self.score);
        }
        self.rank
    }

    /// The best-ranked peer that should be asked; of those whose rank is unknown, the highest id.
    fn best_to_ask(&self) -> Option<ServerId> {
        let to_ask = self.rules.ids().filter(|peer| self.is_to_be_asked(*peer));
        let ranks = to_ask.map(|id| self.rules.rank_of(id, self.peer_scores.get(&id).copied().unwrap_or_default()));
        ranks.max().map(|best| best.id)
    }

    /// Only peers that are thought alive, still in the running, and better or of unknown rank.
    fn is_to_be_asked(&self, peer: ServerId) -> bool {
        self.is_in_the_running(peer) && self.may_be_better(peer)
    }

    fn is_in_the_running(&self, peer: ServerId) -> bool {
        peer != self.id && !self.suspected.contains(&peer) && !self.skipped.contains(&peer)
    }

    fn may_be_better(&self, peer: ServerId) -> bool {
        let score = self.peer_scores.get(&peer);
        match (self.rules.rank_by(), score) {
            (RankBy::Load, None) => true,
            (_, score) => self.is_better(self.rules.rank_of(peer, score.copied().unwrap_or_default()), self.rank()),
        }
    }

    fn is_better(&self, one: Rank, other: Rank) -> bool {
        match (one.standing, other.standing) {
            (Standing::Address(one), Standing::Address(other)) if self.rules.planted.is(Bug::AddressesAsText) => {
                alloc::format!("{one}") > alloc::format!("{other}")
            }
            (Standing::Load(one), Standing::Load(other)) if self.rules.planted.is(Bug::TieElectsNobody) => {
                one.bucket() <= other.bucket()
            }
            _ => one > other,
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Election => "election",
            Kind::Alive => "alive",
            Kind::Coordinator => "coordinator",
        };
        write!(f, "{kind} r{}", self.round)?;
        match self.standing {
            // Everybody knows these two from the roster.
            Standing::Id | Standing::Address(_) => Ok(()),
            standing => write!(f, " {standing}"),
        }
    }
}
