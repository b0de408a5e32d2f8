//! A model of a replica: terms, votes and a log, small enough to be explored.
//!
//! The engine is neither `Clone` nor `Hash`, so an exploration cannot use it. This is Raft as the paper tells it, behind the
//! same [`Consensus`] and with the engine's own words, so that a server cannot tell the two apart: pre-votes protect a leader
//! that is believed in, votes and acknowledgements wait for the disk, entries travel one by one, a leader commits by counting
//! only what it appended itself, and hands over by telling a peer to campaign at once.
//!
//! What it is not: it has no snapshots and forgets nothing, its clock never campaigns and never makes a leader step down,
//! and one message, the append, is also its heartbeat. That engine and model keep to the same rules is what
//! [`crate::specification`] checks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use primus_core::ServerId;
use primus_core::machine::{Delay, Input, Machine, Moment, Outbox, Token};
use primus_core::planted::{Bug, Planted};

use crate::consensus::Consensus;
use crate::log::Log;
use crate::message::{Entry, HardState, Kind, Message, Record};
use crate::replica::{Command, Notice, Refusal, Role, Tick};
use primus_core::Term;

/// One replica of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelReplica {
    id: ServerId,
    /// Everybody who votes, this one included.
    voters: Arc<[ServerId]>,
    planted: Planted,
    term: u64,
    vote: Option<ServerId>,
    /// Without a gap, from index 1 on.
    log: Vec<Entry>,
    commit: u64,
    /// How far the owner has been told of commits.
    told: u64,
    leader: Option<ServerId>,
    state: State,
    /// The last write, and the last one that is durable.
    written: Token,
    durable: Token,
    known: (Role, Option<ServerId>, Term),
}

/// What it is at the moment, and what belongs to that.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum State {
    Follower,
    /// It asks whether a campaign could be won; nobody promises anything.
    PreCandidate {
        answers: BTreeMap<ServerId, bool>,
    },
    /// It asks for votes.
    Candidate {
        answers: BTreeMap<ServerId, bool>,
    },
    Leader(Leadership),
}

/// What a leader knows of the others.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Leadership {
    /// How far everybody has the log on disk, this replica included.
    matched: BTreeMap<ServerId, u64>,
    /// What each peer is sent next.
    next: BTreeMap<ServerId, u64>,
    transferee: Option<ServerId>,
    /// Reads that wait for a majority: from where on they are linearizable, and who has answered.
    reads: BTreeMap<u64, (u64, BTreeSet<ServerId>)>,
}

/// What one step writes, and what it says once that is durable.
#[derive(Debug, Default)]
struct Turn {
    records: Vec<Record>,
    promises: Vec<(ServerId, Message)>,
}

/// How a campaign that is a transfer is marked: voters then need not have forgotten their leader.
const TRANSFER: &[u8] = b"CampaignTransfer";

impl ModelReplica {
    /// A replica with what it had on disk.
    ///
    /// # Panics
    /// If the replica does not vote.
    #[must_use]
    pub fn new(id: ServerId, voters: Arc<[ServerId]>, records: impl IntoIterator<Item = Record>) -> Self {
        assert!(voters.contains(&id), "a replica is one of the voters");
        let disk = Log::new(voters.iter().map(|voter| voter.0).collect(), records);
        let HardState { term, vote, commit } = disk.hard_state();
        Self {
            id,
            voters,
            planted: Planted::NONE,
            term,
            vote: Some(ServerId(vote)).filter(|vote| vote.0 != 0),
            log: disk.entries().collect(),
            commit,
            told: 0,
            leader: None,
            state: State::Follower,
            written: Token(0),
            durable: Token(0),
            known: (Role::Follower, None, Term(0)),
        }
    }

    /// The same with a bug that the laboratory is to find.
    #[must_use]
    pub fn with(self, planted: Planted) -> Self {
        Self { planted, ..self }
    }

    /// Term, vote and commit.
    #[must_use]
    pub fn hard_state(&self) -> HardState {
        HardState { term: self.term, vote: self.vote.map_or(0, |vote| vote.0), commit: self.commit }
    }

    /// The whole log.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.log
    }

    fn on_command(&mut self, command: Command, turn: &mut Turn, out: &mut Outbox<Self>) {
        match command {
            // The length of a tick does not matter here.
            Command::Boot => out.set(Tick, Delay::exactly_ms(25)),
            Command::Campaign => self.ask_before(turn),
            Command::ForgetLeader => self.forget_leader(),
            Command::Propose(entries) => self.propose(entries, out, turn),
            Command::Read(number) => self.read(number, out),
            Command::Transfer(to) => self.transfer(to, out),
            Command::AbortTransfer => self.abort_transfer(),
            Command::Compact(..) => out.ignore("the model forgets nothing"),
            Command::Unreachable(_) => out.ignore("every tick sends again what may be missed"),
            Command::Slower(_) => out.ignore("the length of a tick does not matter here"),
        }
    }

    fn abort_transfer(&mut self) {
        if let State::Leader(leadership) = &mut self.state {
            leadership.transferee = None;
        }
    }

    fn forget_leader(&mut self) {
        if !self.leads() {
            self.leader = None;
        }
    }

    /// The pre-vote: a campaign that cannot be won should not cost a term.
    fn ask_before(&mut self, turn: &mut Turn) {
        if self.leads() {
            return;
        }
        self.leader = None;
        self.state = State::PreCandidate { answers: BTreeMap::from([(self.id, true)]) };
        if self.majority() == 1 {
            return self.campaign(Bytes::new(), turn);
        }
        self.ask(Kind::RequestPreVote, self.term + 1, &Bytes::new(), turn);
    }

    /// The own vote is as good as anybody's, and as durable before it counts.
    fn campaign(&mut self, context: Bytes, turn: &mut Turn) {
        self.enter(self.term + 1);
        self.vote = Some(self.id);
        self.state = State::Candidate { answers: BTreeMap::from([(self.id, true)]) };
        turn.records.push(Record::HardState(self.hard_state()));
        if self.majority() == 1 {
            return self.become_leader(turn);
        }
        self.ask(Kind::RequestVote, self.term, &context, turn);
    }

    fn ask(&self, kind: Kind, term: u64, context: &Bytes, turn: &mut Turn) {
        let (log_term, index) = self.freshness();
        for peer in self.peers() {
            let question = Message { log_term, index, context: context.clone(), ..words(kind, term) };
            turn.promises.push((peer, question));
        }
    }

    fn propose(&mut self, entries: Vec<Bytes>, out: &mut Outbox<Self>, turn: &mut Turn) {
        match &self.state {
            State::Leader(Leadership { transferee: None, .. }) => {
                entries.into_iter().for_each(|data| self.append_own(data, turn, out));
            }
            State::Leader(_) => out.notify(Notice::Refused(Refusal::Busy, entries)),
            _ => out.notify(Notice::Refused(Refusal::NotLeading, entries)),
        }
    }

    /// A leader only ever appends.
    fn append_own(&mut self, data: Bytes, turn: &mut Turn, out: &mut Outbox<Self>) {
        let entry = Entry { index: self.last() + 1, term: self.term, data };
        turn.records.push(Record::Append(entry.clone()));
        self.log.push(entry);
        let State::Leader(leadership) = &self.state else { return };
        let last = self.last();
        let waiting = leadership.next.iter().filter(|(_, next)| **next == last).map(|(peer, _)| *peer);
        waiting.for_each(|peer| self.send_append(peer, Bytes::new(), out));
    }

    fn read(&mut self, number: u64, out: &mut Outbox<Self>) {
        if !self.is_readable() {
            return out.ignore("a read that another one must answer");
        }
        let (commit, asker) = (self.commit, BTreeSet::from([self.id]));
        if let State::Leader(leadership) = &mut self.state {
            leadership.reads.insert(number, (commit, asker));
        }
        self.answer_reads(out);
        self.peers().into_iter().for_each(|peer| self.send_append(peer, number.to_be_bytes().to_vec().into(), out));
    }

    fn answer_reads(&mut self, out: &mut Outbox<Self>) {
        let majority = self.majority();
        let State::Leader(leadership) = &mut self.state else { return };
        leadership.reads.retain(|number, (index, answered)| {
            let is_open = answered.len() < majority;
            if !is_open {
                out.notify(Notice::Readable(*number, *index));
            }
            is_open
        });
    }

    fn transfer(&mut self, to: ServerId, out: &mut Outbox<Self>) {
        let State::Leader(leadership) = &mut self.state else { return out.ignore("a transfer by nobody") };
        if leadership.matched.contains_key(&to) && to != self.id {
            leadership.transferee = Some(to);
            self.order_campaign(out);
        }
    }

    /// Whoever is to take over must have everything first.
    fn order_campaign(&self, out: &mut Outbox<Self>) {
        let State::Leader(Leadership { transferee: Some(to), matched, .. }) = &self.state else { return };
        if matched.get(to) == Some(&self.last()) {
            out.send(*to, words(Kind::TimeoutNow, self.term));
        }
    }

    /// Everybody is sent what may be missing, or nothing at all: a sign of life. A transfer that took so long has failed.
    fn on_tick(&mut self, out: &mut Outbox<Self>) {
        out.set(Tick, Delay::exactly_ms(25));
        if let State::Leader(leadership) = &mut self.state {
            leadership.transferee = None;
            self.peers().into_iter().for_each(|peer| self.send_append(peer, Bytes::new(), out));
        }
    }

    /// The next entry for this peer, if there is one.
    fn send_append(&self, peer: ServerId, context: Bytes, out: &mut Outbox<Self>) {
        let State::Leader(Leadership { next, .. }) = &self.state else { return };
        let next = next[&peer];
        let before = next - 1;
        out.send(
            peer,
            Message {
                log_term: self.term_at(before).unwrap_or(0),
                index: before,
                entries: self.entry(next).cloned().into_iter().collect(),
                commit: self.commit,
                context,
                ..words(Kind::Append, self.term)
            },
        );
    }

    fn on_message(&mut self, from: ServerId, message: Message, turn: &mut Turn, out: &mut Outbox<Self>) {
        let asks_for_vote = matches!(message.kind, Kind::RequestVote | Kind::RequestPreVote);
        if !self.voters.contains(&from) || from == self.id {
            return out.ignore("a message that nobody may send");
        }
        if message.term < self.term {
            return self.on_old(from, &message, turn, out);
        }
        if message.term > self.term {
            if asks_for_vote && self.leader.is_some() && message.context != TRANSFER {
                return out.ignore("a vote is wanted of one that believes in a leader");
            }
            let is_granted = message.kind == Kind::RequestPreVoteResponse && !message.reject;
            if message.kind != Kind::RequestPreVote && !is_granted {
                self.enter(message.term);
                turn.records.push(Record::HardState(self.hard_state()));
            }
        }
        match message.kind {
            Kind::RequestVote | Kind::RequestPreVote => self.on_question(from, &message, turn),
            Kind::RequestVoteResponse | Kind::RequestPreVoteResponse => self.on_answer(from, &message, turn, out),
            Kind::Append => self.on_append(from, message, turn, out),
            Kind::AppendResponse => self.on_appended(from, &message, out),
            Kind::TimeoutNow if self.leader == Some(from) => self.campaign(TRANSFER.into(), turn),
            _ => out.ignore("a message that the model does not know, or that nobody may send"),
        }
    }

    /// Whoever is behind learns the term from the answer.
    fn on_old(&self, from: ServerId, message: &Message, turn: &mut Turn, out: &mut Outbox<Self>) {
        let kind = match message.kind {
            Kind::Append => Kind::AppendResponse,
            Kind::RequestPreVote => Kind::RequestPreVoteResponse,
            _ => return out.ignore("a message of an older term"),
        };
        turn.promises.push((from, Message { reject: true, ..words(kind, self.term) }));
    }

    fn on_question(&mut self, from: ServerId, message: &Message, turn: &mut Turn) {
        let is_real = message.kind == Kind::RequestVote;
        let is_free = self.vote.is_none() && self.leader.is_none() || self.planted.is(Bug::VotesTwice);
        let may_vote = self.vote == Some(from) || is_free || !is_real && message.term > self.term;
        let grants = may_vote && (message.log_term, message.index) >= self.freshness();
        if grants && is_real && self.vote != Some(from) {
            self.vote = Some(from);
            turn.records.push(Record::HardState(self.hard_state()));
        }
        let kind = if is_real { Kind::RequestVoteResponse } else { Kind::RequestPreVoteResponse };
        let term = if grants { message.term } else { self.term };
        turn.promises.push((from, Message { reject: !grants, ..words(kind, term) }));
    }

    fn on_answer(&mut self, from: ServerId, message: &Message, turn: &mut Turn, out: &mut Outbox<Self>) {
        let majority = self.majority();
        let answers = match (&mut self.state, message.kind) {
            (State::PreCandidate { answers }, Kind::RequestPreVoteResponse)
            | (State::Candidate { answers }, Kind::RequestVoteResponse) => answers,
            _ => return out.ignore("an answer that nobody waits for"),
        };
        answers.entry(from).or_insert(!message.reject);
        let granted = answers.values().filter(|is_granted| **is_granted).count();
        let refused = answers.len() - granted;
        match message.kind {
            _ if refused >= majority => self.state = State::Follower,
            Kind::RequestPreVoteResponse if granted >= majority => self.campaign(Bytes::new(), turn),
            Kind::RequestVoteResponse if granted >= majority => {
                self.become_leader(turn);
                self.peers().into_iter().for_each(|peer| self.send_append(peer, Bytes::new(), out));
            }
            _ => {}
        }
    }

    /// An entry without data marks the begin of the term; once it is committed, so is everything before it.
    fn become_leader(&mut self, turn: &mut Turn) {
        let next = self.last() + 1;
        self.leader = Some(self.id);
        self.state = State::Leader(Leadership {
            matched: self.voters.iter().map(|voter| (*voter, 0)).collect(),
            next: self.peers().into_iter().map(|peer| (peer, next)).collect(),
            ..Leadership::default()
        });
        let entry = Entry { index: next, term: self.term, data: Bytes::new() };
        turn.records.push(Record::Append(entry.clone()));
        self.log.push(entry);
    }

    fn on_append(&mut self, from: ServerId, message: Message, turn: &mut Turn, out: &mut Outbox<Self>) {
        if self.leads() {
            return out.ignore("an append of another leader of this term");
        }
        self.state = State::Follower;
        self.leader = Some(from);
        let answer = Message { context: message.context.clone(), ..words(Kind::AppendResponse, self.term) };
        if message.index > self.commit && self.term_at(message.index) != Some(message.log_term) {
            let hint = message.index.min(self.last() + 1).saturating_sub(1);
            let refusal = Message { index: message.index, reject: true, reject_hint: hint, ..answer };
            return turn.promises.push((from, refusal));
        }
        let known = message.index + message.entries.len() as u64;
        message.entries.into_iter().for_each(|entry| self.append(entry, turn));
        self.commit = self.commit.max(message.commit.min(known));
        turn.promises.push((from, Message { index: known.max(self.commit), commit: self.commit, ..answer }));
    }

    /// What the leader says replaces what only this replica had.
    fn append(&mut self, entry: Entry, turn: &mut Turn) {
        if self.term_at(entry.index) == Some(entry.term) {
            return;
        }
        let place = usize::try_from(entry.index - 1).unwrap_or(usize::MAX);
        self.log.truncate(place);
        self.log.push(entry.clone());
        turn.records.push(Record::Append(entry));
    }

    fn on_appended(&mut self, from: ServerId, message: &Message, out: &mut Outbox<Self>) {
        let last = self.last();
        let State::Leader(leadership) = &mut self.state else {
            return out.ignore("an acknowledgement to one that does not lead");
        };
        let (next, matched) = (leadership.next[&from], leadership.matched[&from]);
        if message.reject {
            // Only the answer to the last question tells anything.
            if message.index + 1 != next {
                return out.ignore("a refusal that came too late");
            }
            leadership.next.insert(from, message.reject_hint.max(matched) + 1);
            return self.send_append(from, Bytes::new(), out);
        }
        leadership.matched.insert(from, matched.max(message.index));
        leadership.next.insert(from, next.max(message.index + 1));
        if let Some(number) = message.context.first_chunk().map(|bytes| u64::from_be_bytes(*bytes)) {
            leadership.reads.entry(number).and_modify(|(_, answered)| _ = answered.insert(from));
        }
        let is_news = message.index > matched;
        self.answer_reads(out);
        self.count();
        if is_news && message.index < last {
            self.send_append(from, Bytes::new(), out);
        } else if is_news {
            self.order_campaign(out);
        }
    }

    /// A majority has it on disk, and it was appended in this term: counting says nothing about older ones (Raft, figure 8).
    fn count(&mut self) {
        let State::Leader(Leadership { matched, .. }) = &self.state else { return };
        let mut places: Vec<u64> = matched.values().copied().collect();
        places.sort_unstable();
        let agreed = places[places.len() - self.majority()];
        let is_own = self.term_at(agreed) == Some(self.term) || self.planted.is(Bug::CommitsByCountingOldTerms);
        if is_own && agreed > self.commit {
            self.commit = agreed;
        }
    }

    fn on_persisted(&mut self, token: Token) {
        self.durable = self.durable.max(token);
        let (id, last) = (self.id, self.last());
        if self.durable < self.written {
            return;
        }
        if let State::Leader(leadership) = &mut self.state {
            leadership.matched.insert(id, last);
        }
        self.count();
    }

    /// In a new term nobody has a vote, and no leader is known.
    fn enter(&mut self, term: u64) {
        self.term = term;
        self.vote = None;
        self.leader = None;
        self.state = State::Follower;
    }

    /// What a step promises leaves after what it writes, and after everything that was written before.
    fn finish(&mut self, turn: Turn, out: &mut Outbox<Self>) {
        if !turn.records.is_empty() {
            self.written = Token(self.written.0 + 1);
            out.persist(self.written, turn.records);
        }
        for (to, message) in turn.promises {
            if self.durable < self.written {
                out.send_after(self.written, to, message);
            } else {
                out.send(to, message);
            }
        }
        self.tell(out);
    }

    fn tell(&mut self, out: &mut Outbox<Self>) {
        let news: Vec<Entry> =
            (self.told + 1..=self.commit).filter_map(|index| self.entry(index).cloned()).collect();
        self.told = self.commit;
        if !news.is_empty() {
            out.notify(Notice::Committed(news));
        }
        let role = match self.state {
            State::Follower => Role::Follower,
            State::PreCandidate { .. } | State::Candidate { .. } => Role::Candidate,
            State::Leader(_) => Role::Leader,
        };
        let now = (role, self.leader, Term(self.term));
        if self.known != now {
            self.known = now;
            out.notify(Notice::Changed(now.0, now.1, now.2));
        }
    }

    const fn leads(&self) -> bool {
        matches!(self.state, State::Leader(_))
    }

    fn majority(&self) -> usize {
        self.voters.len() / 2 + 1
    }

    fn last(&self) -> u64 {
        self.log.len() as u64
    }

    fn entry(&self, index: u64) -> Option<&Entry> {
        self.log.get(usize::try_from(index.checked_sub(1)?).ok()?)
    }

    /// Before the first entry is the beginning, in term 0.
    fn term_at(&self, index: u64) -> Option<u64> {
        if index == 0 { Some(0) } else { self.entry(index).map(|entry| entry.term) }
    }
}

/// A message that says nothing yet.
const fn words(kind: Kind, term: u64) -> Message {
    Message {
        kind,
        term,
        log_term: 0,
        index: 0,
        entries: Vec::new(),
        commit: 0,
        commit_term: 0,
        snapshot: None,
        request_snapshot: 0,
        reject: false,
        reject_hint: 0,
        context: Bytes::new(),
    }
}

impl Machine for ModelReplica {
    type Peer = ServerId;
    type Message = Message;
    type Command = Command;
    type Timer = Tick;
    type Record = Record;
    type Token = Token;
    type Barrier = Token;
    type Notice = Notice;

    fn step(&mut self, _: Moment, input: Input<Self>, out: &mut Outbox<Self>) {
        let mut turn = Turn::default();
        match input {
            Input::Message { from, message } => self.on_message(from, message, &mut turn, out),
            Input::Timer(Tick) => self.on_tick(out),
            Input::Command(command) => self.on_command(command, &mut turn, out),
            Input::LinkUp(_) | Input::LinkDown(_) => out.ignore("links: the owner says who is unreachable"),
            Input::Persisted(token) => self.on_persisted(token),
        }
        self.finish(turn, out);
    }
}

impl Consensus for ModelReplica {
    fn view(&self) -> (Role, Option<ServerId>, Term) {
        self.known
    }

    fn is_readable(&self) -> bool {
        self.leads() && self.term_at(self.commit) == Some(self.term)
    }

    fn peers(&self) -> Vec<ServerId> {
        self.voters.iter().copied().filter(|voter| *voter != self.id).collect()
    }

    fn is_voting(&self) -> bool {
        matches!(self.state, State::Candidate { .. })
    }

    fn matched(&self, peer: ServerId) -> Option<u64> {
        let State::Leader(Leadership { matched, .. }) = &self.state else { return None };
        matched.get(&peer).copied()
    }

    fn extent(&self) -> (u64, u64) {
        (self.last(), self.commit)
    }

    fn freshness(&self) -> (u64, u64) {
        (self.term_at(self.last()).unwrap_or(0), self.last())
    }
}
