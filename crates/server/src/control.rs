//! Election and replica as one machine: an election names who should lead, and a quorum ratifies it.
//!
//! Whoever misses the leader forgets it and asks the election. The winner campaigns, again and again while the others may
//! not have noticed yet, and leads only with a majority's votes in a new term. A winner that cannot win gives way, so that
//! the next one is named. Whatever the election thought, the term that the replicas agree on is the truth.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use primus_core::NodeId;
use primus_core::election::{self, Election};
use primus_core::load::Score;
use primus_core::machine::{Delay, Input, Machine, Outbox, Output};
use primus_replica::Term;
use primus_replica::message::{Entry, Record, Snapshot};
use primus_replica::replica::{self, Refusal, Replica, Role, Tick};

/// A server's control part.
#[derive(Debug)]
pub struct Control<E: Election> {
    id: NodeId,
    times: Times,
    election: E,
    replica: Replica,
    leader: Option<NodeId>,
    term: Term,
    /// Why there will be another leader.
    reason: Reason,
    /// The loads of all servers, as far as they are known.
    loads: BTreeMap<NodeId, Score>,
    /// How many ticks a leader still waits before it gives way to a better one.
    patience: u32,
    /// How often this server has asked for votes since it was named.
    campaigns: Option<u32>,
    for_election: Outbox<E>,
    for_replica: Outbox<Replica>,
}

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// How long a leader may be silent.
    pub silence: Delay,
    /// How soon votes are asked for again, at first.
    pub retry: Delay,
    /// How long there may be no leader before this server holds another election.
    pub leaderless: Delay,
    /// For how many ticks a leader stays before it gives way to a better-ranked one.
    pub tenure_ticks: u32,
}

impl Times {
    /// Votes are asked for this often in quick succession, because others may not have noticed yet.
    const QUICK_CAMPAIGNS: u32 = 10;
    /// Real votes have come, or will not come, after this many.
    const VOTING_CAMPAIGNS: u32 = 6;
    /// After this many a winner gives way.
    const CAMPAIGNS_MAX: u32 = 14;
}

/// Why a leader changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Reason {
    /// The cluster started.
    Start,
    /// Its process is gone.
    LinkLost,
    /// It was silent for too long.
    Silence,
    /// An operator wanted it.
    Operator,
    /// It gave leadership up.
    Resigned,
    /// A better-ranked server took over.
    Rank,
    /// It could no longer reach a majority.
    LostQuorum,
}

/// What servers say to each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Message<T> {
    /// Who should lead?
    Election(T),
    /// The replicated log.
    Replica(primus_replica::message::Message),
    /// How loaded these servers are: a follower tells the leader of itself, the leader tells everybody of all.
    Loads(Vec<(NodeId, Score)>),
    /// There will soon be another leader, for this reason.
    Change(Reason),
}

/// What a server's owner tells it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// The process has just started.
    Boot,
    /// This peer's process is gone: its link was reset and its port refuses.
    Gone(NodeId),
    /// The own load has been measured.
    Load(Score),
    /// Append this, if this server leads.
    Propose(Bytes),
    /// Find out up to where a read must wait.
    Read(u64),
    /// Let another server lead: that one, or the best.
    Transfer(Option<NodeId>, Reason),
    /// Hold an election now.
    Elect,
    /// The owner's state up to this index.
    Compact(u64, Bytes),
}

/// What a server's owner is told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Notice {
    /// Somebody leads, or nobody.
    Leader(Option<NodeId>, Term, Reason),
    /// These entries are agreed on.
    Committed(Vec<Entry>),
    /// A read is linearizable once this index has been applied.
    Readable(u64, u64),
    /// A read cannot be served here now.
    Unreadable(u64),
    /// The whole state came from the leader.
    Restored(Snapshot),
    /// A proposal was not taken.
    Refused(Refusal, Bytes),
    /// A peer is suspected, for this reason.
    Suspected(NodeId, Reason),
}

/// Its timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// The replica's clock.
    Tick,
    /// The leader has been silent for too long.
    Silence,
    /// Ask for votes again.
    Retry,
    /// There has been no leader for too long.
    Leaderless,
    /// The election's.
    Election(election::Timer),
}

impl<E: Election> Control<E> {
    /// A server that has just started.
    pub fn new(election: E, replica: Replica, times: Times) -> Self {
        Self {
            id: election.id(),
            times,
            election,
            replica,
            leader: None,
            term: Term(0),
            reason: Reason::Start,
            loads: BTreeMap::new(),
            patience: 0,
            campaigns: None,
            for_election: Outbox::new(),
            for_replica: Outbox::new(),
        }
    }

    /// The replica, to look at.
    pub const fn replica(&self) -> &Replica {
        &self.replica
    }

    /// The loads of all servers, as far as they are known here.
    pub const fn loads(&self) -> &BTreeMap<NodeId, Score> {
        &self.loads
    }

    /// Who leads, as far as this server knows.
    pub const fn leader(&self) -> Option<NodeId> {
        self.leader
    }

    fn on_command(&mut self, command: Command, out: &mut Outbox<Self>) {
        match command {
            Command::Boot => {
                self.tell_replica(replica::Command::Boot, out);
                out.set(Timer::Leaderless, self.times.leaderless);
                self.tell_election(election::Command::Boot, out);
            }
            Command::Gone(peer) => self.suspect(peer, Reason::LinkLost, out),
            Command::Load(score) => self.on_load(score, out),
            Command::Propose(data) => self.tell_replica(replica::Command::Propose(data), out),
            Command::Read(number) if self.replica.is_readable() => {
                self.tell_replica(replica::Command::Read(number), out);
            }
            Command::Read(number) => out.notify(Notice::Unreadable(number)),
            Command::Transfer(to, reason) => self.transfer(to, reason, out),
            Command::Elect => self.tell_election(election::Command::Start, out),
            Command::Compact(index, data) => self.tell_replica(replica::Command::Compact(index, data), out),
        }
    }

    /// A star, not a mesh: as many messages as servers, not as many as pairs.
    fn on_load(&mut self, score: Score, out: &mut Outbox<Self>) {
        self.loads.insert(self.id, score);
        self.tell_election(election::Command::Score(score), out);
        match self.leader {
            Some(leader) if leader == self.id => {
                let table: Vec<_> = self.loads.iter().map(|(id, score)| (*id, *score)).collect();
                self.tell_peers(&Message::Loads(table), out);
            }
            Some(leader) => out.send(leader, Message::Loads(vec![(self.id, score)])),
            None => {}
        }
    }

    fn on_loads(&mut self, from: NodeId, loads: Vec<(NodeId, Score)>, out: &mut Outbox<Self>) {
        // Of others only the leader speaks.
        let is_credible = |id: &NodeId| *id != self.id && (*id == from || self.leader == Some(from));
        let news: Vec<_> = loads.into_iter().filter(|(id, _)| is_credible(id)).collect();
        for (id, score) in news {
            self.loads.insert(id, score);
            self.tell_election(election::Command::PeerScore(id, score), out);
        }
    }

    fn tell_peers(&self, message: &Message<E::Message>, out: &mut Outbox<Self>) {
        self.replica.peers().for_each(|peer| out.send(peer, message.clone()));
    }

    /// A leader that has led for a while gives way to a better-ranked server that has everything.
    fn on_tick(&mut self, out: &mut Outbox<Self>) {
        self.step_replica(Input::Timer(Tick), out);
        self.patience = self.patience.saturating_sub(1);
        if self.leader != Some(self.id) || self.patience > 0 {
            return;
        }
        let (last, _) = self.replica.extent();
        let better = self.election.better_leader();
        if let Some(better) = better.filter(|peer| self.replica.matched(*peer) == Some(last)) {
            self.patience = self.times.tenure_ticks;
            self.transfer(Some(better), Reason::Rank, out);
        }
    }

    fn on_message(&mut self, from: NodeId, message: Message<E::Message>, out: &mut Outbox<Self>) {
        if self.leader == Some(from) {
            out.set(Timer::Silence, self.times.silence);
        }
        match message {
            Message::Election(message) => self.step_election(Input::Message { from, message }, out),
            Message::Replica(message) => self.step_replica(Input::Message { from, message }, out),
            Message::Loads(loads) => self.on_loads(from, loads, out),
            Message::Change(reason) if self.leader == Some(from) => self.reason = reason,
            Message::Change(_) => out.ignore("a change that no leader announced"),
        }
    }

    /// A leader that is missed is forgotten at once, so that this server votes for another; then the election decides.
    fn suspect(&mut self, peer: NodeId, reason: Reason, out: &mut Outbox<Self>) {
        out.notify(Notice::Suspected(peer, reason));
        if self.leader == Some(peer) {
            self.reason = reason;
            self.tell_replica(replica::Command::ForgetLeader, out);
            // The election may have had another one in mind; what counts is whom the quorum made the leader.
            self.tell_election(election::Command::Ratified(peer), out);
        }
        self.tell_election(election::Command::Suspect(peer), out);
    }

    /// Whatever went wrong in the last election, there will be another one; one that is under way goes on.
    fn on_leaderless(&mut self, out: &mut Outbox<Self>) {
        if self.leader.is_none() {
            out.set(Timer::Leaderless, self.times.leaderless);
            self.tell_election(election::Command::Start, out);
        }
    }

    fn on_silence(&mut self, out: &mut Outbox<Self>) {
        match self.leader {
            Some(leader) if leader != self.id => self.suspect(leader, Reason::Silence, out),
            _ => out.ignore("silence of nobody"),
        }
    }

    /// This server was named: it asks for votes until it leads, somebody else does, or it must give way.
    fn campaign(&mut self, out: &mut Outbox<Self>) {
        let (role, leader, _) = self.replica.view();
        if role == Role::Leader || leader.is_some_and(|leader| leader != self.id) && self.leader.is_some() {
            self.campaigns = None;
            return;
        }
        let tries = self.campaigns.unwrap_or(0) + 1;
        if tries > Times::CAMPAIGNS_MAX {
            self.campaigns = None;
            return self.tell_election(election::Command::Resign, out);
        }
        self.campaigns = Some(tries);
        let doublings = tries.saturating_sub(Times::QUICK_CAMPAIGNS);
        out.set(Timer::Retry, self.times.retry.times(1 << doublings));
        // Whoever waits for real votes has passed the pre-vote, and asking again would only start over; but votes can be
        // split, and then nobody would ever win this term.
        if !self.replica.is_voting() || tries.is_multiple_of(Times::VOTING_CAMPAIGNS) {
            self.tell_replica(replica::Command::Campaign, out);
        }
    }

    /// Lets another lead: the one that is wanted, or the one that is nearest to having everything.
    fn transfer(&mut self, to: Option<NodeId>, reason: Reason, out: &mut Outbox<Self>) {
        let (last, _) = self.replica.extent();
        let progress = |peer: &NodeId| self.replica.matched(*peer);
        let candidates = self.replica.peers().filter(|peer| to.is_none_or(|to| to == *peer));
        let best = candidates.max_by_key(|peer| (progress(peer), *peer));
        match best.filter(|peer| progress(peer).is_some_and(|matched| matched + 1000 >= last)) {
            Some(peer) => {
                self.reason = reason;
                self.tell_peers(&Message::Change(reason), out);
                self.tell_replica(replica::Command::Transfer(peer), out);
            }
            None => out.ignore("transfer: nobody who could take over"),
        }
    }

    fn tell_election(&mut self, command: election::Command, out: &mut Outbox<Self>) {
        self.step_election(Input::Command(command), out);
    }

    fn tell_replica(&mut self, command: replica::Command, out: &mut Outbox<Self>) {
        self.step_replica(Input::Command(command), out);
    }

    fn step_election(&mut self, input: Input<E>, out: &mut Outbox<Self>) {
        let mut outbox = std::mem::take(&mut self.for_election);
        self.election.step(input, &mut outbox);
        for output in outbox.drain() {
            match output {
                Output::Send { to, message } => out.send(to, Message::Election(message)),
                Output::Set { timer, delay } => out.set(Timer::Election(timer), delay),
                Output::Cancel(timer) => out.cancel(Timer::Election(timer)),
                Output::Notify(election::Notice::Lead) => self.campaign(out),
                Output::Notify(_) => {}
                Output::Ignore(reason) => out.ignore(reason),
                Output::Persist { .. } | Output::SendAfter { .. } => unreachable!("elections keep nothing on disk"),
            }
        }
        self.for_election = outbox;
    }

    fn step_replica(&mut self, input: Input<Replica>, out: &mut Outbox<Self>) {
        let mut outbox = std::mem::take(&mut self.for_replica);
        self.replica.step(input, &mut outbox);
        let outputs: Vec<_> = outbox.drain().collect();
        self.for_replica = outbox;
        for output in outputs {
            match output {
                Output::Send { to, message } => out.send(to, Message::Replica(message)),
                Output::SendAfter { token, to, message } => out.send_after(token, to, Message::Replica(message)),
                Output::Persist { token, records } => out.persist(token, records),
                Output::Set { timer: Tick, delay } => out.set(Timer::Tick, delay),
                Output::Cancel(Tick) => out.cancel(Timer::Tick),
                Output::Notify(notice) => self.on_replica_notice(notice, out),
                Output::Ignore(reason) => out.ignore(reason),
            }
        }
    }

    fn on_replica_notice(&mut self, notice: replica::Notice, out: &mut Outbox<Self>) {
        match notice {
            replica::Notice::Changed(_, leader, term) => self.on_changed(leader, term, out),
            replica::Notice::Committed(entries) => out.notify(Notice::Committed(entries)),
            replica::Notice::Readable(number, index) => out.notify(Notice::Readable(number, index)),
            replica::Notice::Restored(snapshot) => out.notify(Notice::Restored(snapshot)),
            replica::Notice::Refused(refusal, data) => out.notify(Notice::Refused(refusal, data)),
        }
    }

    /// The replicas agreed on a leader, or have none any more.
    fn on_changed(&mut self, leader: Option<NodeId>, term: Term, out: &mut Outbox<Self>) {
        let before = std::mem::replace(&mut self.leader, leader);
        let term_before = std::mem::replace(&mut self.term, term);
        match leader {
            _ if leader == before => {}
            Some(leader) => self.on_leader(leader, term, out),
            None => {
                // A leader that cannot reach a majority steps down by itself, in its own term; then an election may find
                // somebody who can.
                let stepped_down = before == Some(self.id) && term == term_before;
                if stepped_down {
                    self.reason = Reason::LostQuorum;
                }
                out.notify(Notice::Leader(None, term, self.reason));
                out.set(Timer::Leaderless, self.times.leaderless);
                if stepped_down {
                    self.tell_election(election::Command::Start, out);
                }
            }
        }
    }

    fn on_leader(&mut self, leader: NodeId, term: Term, out: &mut Outbox<Self>) {
        self.campaigns = None;
        self.patience = self.times.tenure_ticks;
        out.cancel(Timer::Retry);
        out.cancel(Timer::Leaderless);
        if leader == self.id {
            out.cancel(Timer::Silence);
        } else {
            out.set(Timer::Silence, self.times.silence);
        }
        self.tell_election(election::Command::Ratified(leader), out);
        // The next change without a suspicion of our own will have been arranged by somebody.
        let reason = std::mem::replace(&mut self.reason, Reason::Operator);
        out.notify(Notice::Leader(Some(leader), term, reason));
    }
}

impl<E: Election> Machine for Control<E> {
    type Message = Message<E::Message>;
    type Command = Command;
    type Timer = Timer;
    type Record = Record;
    type Notice = Notice;

    fn step(&mut self, input: Input<Self>, out: &mut Outbox<Self>) {
        match input {
            Input::Message { from, message } => self.on_message(from, message, out),
            Input::Timer(Timer::Tick) => self.on_tick(out),
            Input::Timer(Timer::Silence) => self.on_silence(out),
            Input::Timer(Timer::Retry) => self.campaign(out),
            Input::Timer(Timer::Leaderless) => self.on_leaderless(out),
            Input::Timer(Timer::Election(timer)) => self.step_election(Input::Timer(timer), out),
            Input::Command(command) => self.on_command(command, out),
            Input::LinkUp(peer) => self.tell_election(election::Command::Trust(peer), out),
            Input::LinkDown(peer) => self.tell_replica(replica::Command::Unreachable(peer), out),
            Input::Persisted(token) => self.step_replica(Input::Persisted(token), out),
        }
    }
}

impl<T: fmt::Display> fmt::Display for Message<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Election(message) => message.fmt(f),
            Self::Replica(message) => message.fmt(f),
            Self::Loads(loads) => loads.iter().try_for_each(|(id, score)| write!(f, "load of {id} {score} ")),
            Self::Change(reason) => write!(f, "change {reason}"),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boot => f.write_str("boot"),
            Self::Gone(peer) => write!(f, "gone {peer}"),
            Self::Load(score) => write!(f, "load {score}"),
            Self::Propose(data) => write!(f, "propose {} bytes", data.len()),
            Self::Read(number) => write!(f, "read {number}"),
            Self::Transfer(Some(to), _) => write!(f, "transfer to {to}"),
            Self::Transfer(None, _) => f.write_str("transfer"),
            Self::Elect => f.write_str("elect"),
            Self::Compact(index, _) => write!(f, "compact to {index}"),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leader(Some(leader), term, reason) => write!(f, "leader {leader} term {} {reason}", term.0),
            Self::Leader(None, term, reason) => write!(f, "no leader term {} {reason}", term.0),
            Self::Committed(entries) => write!(f, "committed {}", entries.last().map_or(0, |entry| entry.index)),
            Self::Readable(number, index) => write!(f, "read {number} at {index}"),
            Self::Unreadable(number) => write!(f, "read {number} not here"),
            Self::Restored(snapshot) => write!(f, "restored {}", snapshot.index),
            Self::Refused(refusal, _) => write!(f, "refused {refusal:?}"),
            Self::Suspected(peer, reason) => write!(f, "suspect {peer} {reason}"),
        }
    }
}

impl fmt::Display for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tick => f.write_str("tick"),
            Self::Silence => f.write_str("silence"),
            Self::Retry => f.write_str("retry"),
            Self::Leaderless => f.write_str("leaderless"),
            Self::Election(timer) => timer.fmt(f),
        }
    }
}

impl Reason {
    /// The reason's name, as output contracts spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::LinkLost => "link_lost",
            Self::Silence => "silence",
            Self::Operator => "operator",
            Self::Resigned => "resigned",
            Self::Rank => "rank",
            Self::LostQuorum => "lost_quorum",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
