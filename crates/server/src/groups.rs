//! Further elections of a server: named groups of servers that elect a leader each, with no quorum behind it.
//!
//! Every group has an election of its own, as Bully by address has one per type of node. Its winner simply announces itself:
//! two sides of a partition have a leader each, and once it heals, the better-ranked of the two leads both.
//!
//! An election does not measure silence, so that is done here, once for all groups: whoever leads a group shows itself to its
//! members at every heartbeat, everybody else to everybody now and then, and a detector for each peer says when one has been
//! silent for too long. Whoever is no member of a group is told who leads it, so that any server can be asked.

mod group;
mod peer;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use primus_core::election::bully::Asking;
use primus_core::election::{self, Algorithm};
use primus_core::load::Score;
use primus_core::machine::{Delay, Input, Machine, Moment, Never, Outbox};
use primus_core::rank::RankBy;
use primus_core::{Round, ServerId, detector};

use self::group::Group;
use self::peer::Peer;
pub use self::words::{Command, Notice, Said, Timer};
use crate::any_election::{self, AnyElection};
use crate::control::Reason;

/// So many groups a server has at most.
pub const GROUPS_MAX: usize = 64;
/// At every so many-th heartbeat also those show themselves who lead nobody.
const SHOW_EVERY: u32 = 10;

/// What the members of a group have agreed on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GroupPlan {
    /// Its name.
    pub name: String,
    /// How it elects.
    pub algorithm: Algorithm,
    /// What Bully compares. A ring compares ids.
    pub rank: RankBy,
    /// In which order Bully asks better-ranked members; by default as the cluster's own election does.
    pub asking: Option<Asking>,
    /// The servers that take part.
    pub members: BTreeSet<ServerId>,
}

/// All groups, as one server sees them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Groups {
    id: ServerId,
    silence: detector::Rules,
    now: Moment,
    groups: Vec<Group>,
    peers: BTreeMap<ServerId, Peer>,
    score: Score,
    /// How many heartbeats there have been.
    beats: u32,
}

impl Machine for Groups {
    type Peer = ServerId;
    type Message = Said;
    type Command = Command;
    type Timer = Timer;
    type Record = Never;
    type Token = Never;
    type Barrier = Never;
    type Notice = Notice;

    fn step(&mut self, now: Moment, input: Input<Self>, out: &mut Outbox<Self>) {
        self.advance(now);
        match input {
            Input::Message { from, message } => self.on_message(from, message, out),
            Input::Timer(Timer::Beat) => self.on_beat(out),
            Input::Timer(Timer::Election(number, timer)) => self.on_timer(number, timer, out),
            Input::Command(Command::Boot) => self.on_boot(out),
            Input::Command(Command::Gone(peer)) => self.miss(peer, Reason::LinkLost, out),
            Input::Command(Command::Score(score)) => self.on_score(score, out),
            Input::Command(Command::Slower(us)) => self.on_slower(us, out),
            Input::Command(Command::Elect(group)) => self.on_elect(&group, out),
            Input::LinkUp(peer) => out.send(peer, self.here(peer, true)),
            Input::LinkDown(_) => out.ignore("what no group needs"),
        }
        self.watch_leaders();
    }
}

impl Groups {
    /// The groups of this server, with an election for each that it is a member of.
    pub fn new(
        id: ServerId,
        peers: impl IntoIterator<Item = ServerId>,
        silence: detector::Rules,
        groups: impl IntoIterator<Item = (GroupPlan, Option<AnyElection>)>,
    ) -> Self {
        let groups = groups.into_iter().enumerate();
        Self {
            id,
            silence,
            now: Moment::START,
            groups: groups.map(|(number, (plan, election))| Group::new(id, number, plan, election)).collect(),
            peers: peers.into_iter().map(|peer| (peer, Peer::new(silence))).collect(),
            score: Score::default(),
            beats: 0,
        }
    }

    fn advance(&mut self, now: Moment) {
        self.now = now;
        self.groups.iter_mut().for_each(|group| group.advance(now));
        self.peers.values_mut().for_each(|peer| peer.advance(now));
    }

    /// How loaded the members of a group are, as far as this server knows.
    #[must_use]
    pub fn scores(&self, group: &str) -> Vec<(ServerId, Score)> {
        let members = self.groups.iter().find(|one| one.plan().name == group).map(|one| &one.plan().members);
        let score = |id: &ServerId| match self.peers.get(id) {
            Some(peer) => peer.score,
            None => Some(self.score),
        };
        members.into_iter().flatten().filter_map(|id| Some((*id, score(id)?))).collect()
    }

    /// Every group, with its leader and the round in which that one was elected, as far as this server knows.
    pub fn views(&self) -> impl Iterator<Item = (&GroupPlan, Option<ServerId>, Round)> {
        self.groups.iter().map(|group| (group.plan(), group.leader(), group.round()))
    }

    fn on_boot(&mut self, out: &mut Outbox<Self>) {
        self.peers.values_mut().for_each(Peer::watch);
        self.groups.iter_mut().for_each(|group| group.command(election::Command::Boot, out));
        self.set_beat(out);
    }

    fn on_message(&mut self, from: ServerId, said: Said, out: &mut Outbox<Self>) {
        let Some(peer) = self.peers.get_mut(&from) else { return out.ignore("what no peer would say") };
        if peer.hear() {
            self.shared_with(from).for_each(|group| group.command(election::Command::Trust(from), out));
        }
        match said {
            Said::Here { score, leads } => self.on_here(from, score, leads, out),
            Said::Election { group, message, reason } => self.on_election(from, &group, message, reason, out),
        }
    }

    fn on_here(
        &mut self,
        from: ServerId,
        score: Score,
        leads: Option<Vec<(String, Round)>>,
        out: &mut Outbox<Self>,
    ) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.score = Some(score);
        }
        let by_load = self.shared_with(from).filter(|group| group.is_by_load());
        by_load.for_each(|group| group.command(election::Command::PeerScore(from, score), out));
        let Some(leads) = leads else { return };
        for group in &mut self.groups {
            let claim = leads.iter().find(|(name, _)| *name == group.plan().name);
            group.on_claim(from, claim.map(|(_, round)| *round), out);
        }
    }

    fn on_election(
        &mut self,
        from: ServerId,
        name: &str,
        message: any_election::Message,
        reason: Reason,
        out: &mut Outbox<Self>,
    ) {
        match self.groups.iter_mut().find(|group| group.plan().name == name) {
            Some(group) => group.on_message(from, message, reason, out),
            None => out.ignore("a group that nobody configured here"),
        }
    }

    fn on_timer(&mut self, number: usize, timer: election::Timer, out: &mut Outbox<Self>) {
        if let Some(group) = self.groups.get_mut(number) {
            group.on_timer(timer, out);
        }
    }

    fn on_elect(&mut self, name: &str, out: &mut Outbox<Self>) {
        match self.groups.iter_mut().find(|group| group.is_own() && group.plan().name == name) {
            Some(group) => group.elect(out),
            None => out.ignore("an election of a group that this server is not a member of"),
        }
    }

    fn on_score(&mut self, score: Score, out: &mut Outbox<Self>) {
        self.score = score;
        let by_load = self.groups.iter_mut().filter(|group| group.is_by_load());
        by_load.for_each(|group| group.command(election::Command::Score(score), out));
    }

    fn on_slower(&mut self, us: u64, out: &mut Outbox<Self>) {
        self.peers.values_mut().for_each(|peer| peer.slower(us));
        self.groups.iter_mut().for_each(|group| group.command(election::Command::Slower(us), out));
    }

    /// Shows this server to others, then looks who has not been seen for too long.
    fn on_beat(&mut self, out: &mut Outbox<Self>) {
        self.beats = self.beats.wrapping_add(1);
        let is_everybodys_turn = self.beats.is_multiple_of(SHOW_EVERY);
        for peer in self.peers.keys().filter(|peer| is_everybodys_turn || self.leads(**peer)) {
            out.send(*peer, self.here(*peer, is_everybodys_turn));
        }
        let silent = self.peers.iter().filter(|(_, peer)| peer.is_silent()).map(|(id, _)| *id);
        let silent: Vec<ServerId> = silent.collect();
        silent.into_iter().for_each(|peer| self.miss(peer, Reason::Silence, out));
        self.set_beat(out);
    }

    fn set_beat(&self, out: &mut Outbox<Self>) {
        let heartbeat_us = self.silence.heartbeat_us;
        out.set(Timer::Beat, Delay { min_us: heartbeat_us, max_us: heartbeat_us });
    }

    /// Does this server lead a group that this peer is a member of?
    fn leads(&self, peer: ServerId) -> bool {
        self.groups.iter().any(|group| group.leader() == Some(self.id) && group.has(peer))
    }

    /// A sign of life for this peer; in full, it also tells what the peer cannot know as a member.
    fn here(&self, peer: ServerId, in_full: bool) -> Said {
        let led = self.groups.iter().filter(|group| group.leader() == Some(self.id) && !group.has(peer));
        let claims = || led.map(|group| (group.plan().name.clone(), group.round())).collect();
        Said::Here { score: self.score, leads: in_full.then(claims) }
    }

    /// This peer is dead, frozen or cut off, as far as this server can tell.
    fn miss(&mut self, id: ServerId, reason: Reason, out: &mut Outbox<Self>) {
        if self.peers.get_mut(&id).is_some_and(Peer::miss) {
            self.groups.iter_mut().for_each(|group| group.miss(id, reason, out));
        }
    }

    /// The groups that this server and a peer are both members of.
    fn shared_with(&mut self, peer: ServerId) -> impl Iterator<Item = &mut Group> {
        self.groups.iter_mut().filter(move |group| group.is_own() && group.has(peer))
    }

    /// Whoever leads shows itself often, so it is missed soon.
    fn watch_leaders(&mut self) {
        let own = self.groups.iter().filter(|group| group.is_own());
        let leaders: BTreeSet<ServerId> = own.filter_map(Group::leader).collect();
        for (id, peer) in &mut self.peers {
            peer.expect(leaders.contains(id), self.now);
        }
    }
}
