//! One replica: the engine as a machine.
//!
//! It decides nothing about *who should* lead. Its owner tells it to campaign, because an election named it, and to forget
//! a leader that is suspected, because voters refuse everybody while they believe in one. The engine's own clock is only
//! the backstop. Pre-vote still protects a leader that is alive for a majority.

mod words;

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use primus_core::machine::{Delay, Input, Machine, Moment, Outbox, Token};
use primus_core::{ServerId, Term};
use raft::eraftpb::MessageType;
use raft::{Config, ProgressState, RawNode, ReadOnlyOption, Ready, SnapshotStatus, StateRole};
use slog::{Discard, Logger, o};

pub use self::words::{Command, Notice, Refusal, Role, Tick};
use crate::consensus::Consensus;
use crate::log::Log;
use crate::message::{self, Entry, HardState, Kind, Message, Record, Snapshot};

/// How a replica behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Who this is.
    pub id: ServerId,
    /// Everybody who votes, this one included.
    pub voters: Vec<ServerId>,
    /// How often the engine's clock ticks. A leader that is told to also sends its heartbeats then.
    pub tick: Delay,
    /// After how many ticks without a leader the engine campaigns by itself. It should be different for every replica.
    pub backstop_ticks: usize,
    /// How many entries behind a snapshot stay in memory for followers that are a little late.
    pub keep_entries: u64,
}

/// Before a campaign the engine looks at all entries that it does not know to be applied. Those that a new state stands for
/// are gone, and until that state is durable it does not count as applied.
const RESTORING: &str = "no campaign before the new state is durable";

/// How many signs of life in a row an idle follower leaves unanswered.
const UNANSWERED_MAX: u32 = 2;
/// The engine's own clock gives an election this many round trips.
const BACKSTOP_TRIPS: u64 = 8;
/// So many proposals of a new leader do not wait until somebody has answered it.
const EARLY_MAX: u32 = 8;
/// A state that has not arrived after this many ticks is sent again.
const STATE_TICKS_MAX: u32 = 80;

/// One replica.
pub struct Replica {
    settings: Settings,
    voters: Vec<u64>,
    node: RawNode<Log>,
    /// The last write that is not known to be durable.
    writing: Option<u64>,
    /// The last write that is.
    durable: u64,
    /// The last write with a new term or vote, as long as it is not known to be durable.
    swearing: Option<u64>,
    /// The last thing that the engine wanted, whether there was anything to write or not.
    last_ready: u64,
    /// The write that holds a state from elsewhere; until it is durable nothing counts as applied.
    restoring: Option<u64>,
    /// For how many ticks each peer has been sent a whole state without saying that it has it.
    fetching: BTreeMap<u64, u32>,
    /// Votes that came before the own one was durable; at most one of each voter.
    votes: BTreeMap<ServerId, Message>,
    /// How many signs of life of the leader have been left unanswered.
    unanswered: u32,
    /// The engine's clock moves at every so many-th tick, more rarely if links are slow.
    ticks_per_move: u64,
    ticks: u64,
    /// Are links slower than those of a local network?
    is_slow: bool,
    /// How many more proposals need not wait.
    early: u32,
    known: (Role, Option<ServerId>, Term),
}

impl Replica {
    /// A replica with what it had on disk.
    ///
    /// # Panics
    /// If the settings make no sense: a replica that does not vote, or a backstop of no ticks.
    #[must_use]
    pub fn new(settings: Settings, records: impl IntoIterator<Item = Record>) -> Self {
        assert!(settings.voters.contains(&settings.id), "a replica is one of the voters");
        let voters: Vec<u64> = settings.voters.iter().map(|id| id.0).collect();
        let log = Log::new(voters.clone(), records);
        let config = config(&settings, log.snapshot().map_or(0, |snapshot| snapshot.index));
        let node =
            RawNode::new(&config, log, &Logger::root(Discard, o!())).expect("the settings have been checked");
        Self {
            settings,
            voters,
            node,
            writing: None,
            durable: 0,
            swearing: None,
            last_ready: 0,
            restoring: None,
            fetching: BTreeMap::new(),
            votes: BTreeMap::new(),
            unanswered: 0,
            ticks_per_move: 1,
            ticks: 0,
            is_slow: false,
            early: 0,
            known: (Role::Follower, None, Term(0)),
        }
    }

    /// The log as it is in memory.
    #[must_use]
    pub fn log(&self) -> &Log {
        self.node.store()
    }

    /// A leader that shows itself moves the clock of the one who hears it, too, which then need not wake by itself; waking
    /// for nothing is most of what an idle replica costs.
    fn put_off_tick(&self, from: ServerId, kind: Kind, out: &mut Outbox<Self>) {
        if matches!(kind, Kind::Heartbeat | Kind::Append) && self.known.1 == Some(from) {
            let Delay { min_us, max_us } = self.settings.tick;
            out.set(Tick, Delay { min_us: min_us + min_us / 4, max_us: max_us + max_us / 4 });
        }
    }

    fn on_command(&mut self, command: Command, out: &mut Outbox<Self>) {
        match command {
            Command::Boot => out.set(Tick, self.settings.tick),
            Command::Campaign => self.campaign(out),
            Command::ForgetLeader => self.forget_leader(),
            Command::Propose(entries) => self.propose(entries, out),
            Command::Read(number) => self.node.read_index(number.to_be_bytes().to_vec()),
            Command::Transfer(to) => self.node.transfer_leader(to.0),
            Command::AbortTransfer => self.node.raft.abort_leader_transfer(),
            Command::Compact(index, data) => self.compact(index, data, out),
            Command::Unreachable(peer) => {
                self.node.report_unreachable(peer.0);
                self.send_state_again(peer.0);
            }
            Command::Slower(us) => self.slow_down(us),
        }
    }

    /// How long the engine waits before it campaigns by itself is fixed when it starts, in moves of its clock.
    fn slow_down(&mut self, slower_us: u64) {
        let backstop_us = self.settings.tick.min_us.saturating_mul(self.settings.backstop_ticks as u64).max(1);
        self.is_slow = slower_us > 0;
        self.ticks_per_move = 1 + slower_us.saturating_mul(BACKSTOP_TRIPS) / backstop_us;
    }

    fn on_tick(&mut self, out: &mut Outbox<Self>) {
        self.ticks = self.ticks.wrapping_add(1);
        // The engine's clock stands still meanwhile, because it might campaign.
        if self.restoring.is_none() && self.ticks.is_multiple_of(self.ticks_per_move) {
            self.node.tick();
        }
        self.node.ping();
        self.watch_states();
        out.set(Tick, self.settings.tick);
    }

    /// The engine sends a whole state once and then waits for ever. If it was lost, somebody must say so.
    fn watch_states(&mut self) {
        let state = |peer: &u64| self.node.raft.prs().get(*peer).map(|progress| progress.state);
        let is_fetching = |peer: &u64| state(peer) == Some(ProgressState::Snapshot);
        let peers: Vec<u64> = self.voters.iter().copied().filter(is_fetching).collect();
        self.fetching.retain(|peer, _| peers.contains(peer));
        for peer in peers {
            let ticks = self.fetching.entry(peer).or_default();
            *ticks += 1;
            if *ticks >= STATE_TICKS_MAX {
                self.send_state_again(peer);
            }
        }
    }

    fn send_state_again(&mut self, peer: u64) {
        if self.fetching.remove(&peer).is_some() {
            self.node.report_snapshot(peer, SnapshotStatus::Failure);
        }
    }

    /// The engine refuses only a leader or a removed voter, and both have nothing to campaign for.
    fn campaign(&mut self, out: &mut Outbox<Self>) {
        self.forget_leader();
        if self.restoring.is_some() {
            return out.ignore(RESTORING);
        }
        _ = self.node.campaign();
    }

    fn forget_leader(&mut self) {
        if self.node.raft.state != StateRole::Leader {
            self.node.raft.leader_id = 0;
        }
    }

    fn propose(&mut self, entries: Vec<Bytes>, out: &mut Outbox<Self>) {
        if entries.is_empty() {
            return out.ignore("a proposal of nothing");
        }
        if self.node.raft.state != StateRole::Leader {
            // The engine would forward it silently, and nobody could say whether it was taken.
            return out.notify(Notice::Refused(Refusal::NotLeading, entries));
        }
        if self.node.raft.step(message::proposal(self.settings.id.0, &entries)).is_err() {
            return out.notify(Notice::Refused(Refusal::Busy, entries));
        }
        self.hurry();
    }

    /// Until a follower has answered a new leader, the engine sends it nothing but its first entry. On slow links what is
    /// proposed meanwhile would wait for a round trip, so it is sent at once, together with that entry.
    fn hurry(&mut self) {
        if !self.is_slow || self.early == 0 {
            return;
        }
        self.early -= 1;
        let raft = &mut self.node.raft;
        for peer in self.voters.iter().copied() {
            let progress = raft.mut_prs().get_mut(peer);
            let held_back =
                progress.filter(|progress| progress.state == ProgressState::Probe && progress.is_paused());
            if let Some(progress) = held_back {
                progress.resume();
                raft.send_append(peer);
            }
        }
    }

    fn compact(&mut self, index: u64, data: Bytes, out: &mut Outbox<Self>) {
        use raft::Storage;
        // The engine still wants to look at what it does not know to be applied; while a state from elsewhere is not
        // durable, that can be less than what the owner has.
        if index > self.node.raft.raft_log.applied() {
            return out.ignore("a snapshot that comes too early");
        }
        let Ok(term) = self.node.store().term(index) else { return out.ignore("a snapshot of what is gone") };
        let snapshot = Snapshot { index, term, data };
        self.node.mut_store().compact(snapshot.clone(), self.settings.keep_entries);
        // Losing it loses only time, so nothing waits for it. An owner that applies entries says this before the write of
        // the same step is carried out, and the token of that one would then be reported too early.
        out.persist(Token(self.durable), vec![Record::Snapshot(snapshot)]);
    }

    fn on_message(&mut self, from: ServerId, message: Message, out: &mut Outbox<Self>) {
        // The engine obeys anybody who tells it to campaign at once.
        let is_order = message.kind == Kind::TimeoutNow;
        let (_, leader, term) = self.known;
        if !self.voters.contains(&from.0) || is_order && (leader != Some(from) || term.0 != message.term) {
            return out.ignore("a message that nobody may send");
        }
        if is_order && self.restoring.is_some() {
            return out.ignore(RESTORING);
        }
        self.put_off_tick(from, message.kind, out);
        let is_vote = message.kind == Kind::RequestVoteResponse && !message.reject;
        if is_vote && self.is_voting() && self.writing.is_some() {
            self.votes.insert(from, message);
            return;
        }
        self.step_engine(from, message);
    }

    fn step_engine(&mut self, from: ServerId, message: Message) {
        // An error means that the message came too late for the role or the log; Raft repairs that by itself.
        _ = self.node.step(message.into_engine(from.0, self.settings.id.0, &self.voters));
    }

    fn on_persisted(&mut self, token: Token) {
        let is_later = |last: &u64| *last > token.0;
        self.durable = self.durable.max(token.0);
        self.writing = self.writing.filter(is_later);
        self.swearing = self.swearing.filter(is_later);
        self.restoring = self.restoring.filter(is_later);
        // What the engine was ready with after the last write had nothing to write.
        self.node.on_persist_ready(if self.writing.is_none() { self.last_ready } else { token.0 });
        if self.restoring.is_none() {
            self.node.advance_apply();
        }
        if self.writing.is_none() {
            let votes = std::mem::take(&mut self.votes);
            votes.into_iter().for_each(|(from, vote)| self.step_engine(from, vote));
        }
    }

    /// Carries out everything that the engine wants, in the order that keeps its promises.
    fn settle(&mut self, out: &mut Outbox<Self>) {
        self.speak(out);
        while self.node.has_ready() {
            let mut ready = self.node.ready();
            self.last_ready = ready.number();
            self.send(ready.take_messages(), out);
            let is_log_durable = self.writing.is_none() && ready.entries().is_empty();
            let records = self.take_records(&mut ready, out);
            if !records.is_empty() {
                self.writing = Some(self.last_ready);
            }
            self.promise(ready.take_persisted_messages(), is_log_durable, out);
            // What was committed before needs no disk.
            self.tell(&mut ready, out);
            self.node.advance_append_async(ready);
            if !records.is_empty() {
                out.persist(Token(self.last_ready), records);
            } else if self.writing.is_none() {
                self.node.on_persist_ready(self.last_ready);
            }
            if self.restoring.is_none() {
                self.node.advance_apply();
            }
        }
        self.note_change(out);
    }

    /// The engine remembers everything that it was ready with until the disk has followed. What is only said is therefore
    /// taken out of its hands: signs of life would pile up while a disk is full.
    fn speak(&mut self, out: &mut Outbox<Self>) {
        let messages = std::mem::take(&mut self.node.raft.msgs);
        if self.node.has_ready() {
            self.node.raft.msgs = messages;
        } else if self.node.raft.state == StateRole::Leader {
            self.send(messages, out);
        } else {
            self.promise(messages, self.writing.is_none(), out);
        }
    }

    fn send(&mut self, messages: Vec<raft::eraftpb::Message>, out: &mut Outbox<Self>) {
        messages.into_iter().for_each(|message| self.send_after(None, message, out));
    }

    /// What promises something waits until that is durable. To ask for a vote promises no more than the log that one has, and
    /// the disks of all can write at the same time; but nobody may lead before its own vote is durable, so others' votes wait
    /// for that. A sign of life speaks of the term only: a follower whose disk is full or slow is still a follower.
    fn promise(&mut self, messages: Vec<raft::eraftpb::Message>, is_log_durable: bool, out: &mut Outbox<Self>) {
        for message in messages {
            let is_kept = match message.msg_type {
                MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => is_log_durable,
                MessageType::MsgHeartbeatResponse => self.swearing.is_none(),
                _ => false,
            };
            self.send_after(self.writing.filter(|_| !is_kept).map(Token), message, out);
        }
    }

    fn send_after(&mut self, token: Option<Token>, message: raft::eraftpb::Message, out: &mut Outbox<Self>) {
        let Some((to, message)) = Message::from_engine(message) else { return };
        if self.may_stay_quiet(&message) {
            return;
        }
        match token {
            Some(token) => out.send_after(token, ServerId(to), message),
            None => out.send(ServerId(to), message),
        }
    }

    /// When there is nothing to say, every third sign of life of the leader is answered: less work for an idle cluster.
    fn may_stay_quiet(&mut self, message: &Message) -> bool {
        if message.kind != Kind::HeartbeatResponse {
            return false;
        }
        let (last, committed) = self.extent();
        let has_news = !message.context.is_empty() || last != committed;
        self.unanswered = if has_news || self.unanswered >= UNANSWERED_MAX { 0 } else { self.unanswered + 1 };
        self.unanswered > 0
    }

    /// The log in memory changes at once; the same goes to the disk. A commit index alone need not be durable.
    fn take_records(&mut self, ready: &mut Ready, out: &mut Outbox<Self>) -> Vec<Record> {
        let mut records = Vec::new();
        if !ready.snapshot().is_empty() {
            let snapshot = Snapshot::from_engine(ready.snapshot().clone());
            self.node.mut_store().restore(snapshot.clone());
            self.restoring = Some(ready.number());
            out.notify(Notice::Restored(snapshot.clone()));
            records.push(Record::Snapshot(snapshot));
        }
        for entry in ready.take_entries() {
            self.node.mut_store().append(entry.clone());
            records.push(Record::Append(Entry::from_engine(entry)));
        }
        if let Some(state) = ready.hs().map(HardState::from_engine) {
            let before = self.node.store().hard_state();
            if (state.term, state.vote) != (before.term, before.vote) {
                self.swearing = Some(ready.number());
            }
            self.node.mut_store().set_hard_state(state);
            if ready.must_sync() {
                records.push(Record::HardState(state));
            }
        }
        records
    }

    fn tell(&mut self, ready: &mut Ready, out: &mut Outbox<Self>) {
        for read in ready.take_read_states() {
            if let Some(number) = read.request_ctx.first_chunk() {
                out.notify(Notice::Readable(u64::from_be_bytes(*number), read.index));
            }
        }
        let committed: Vec<Entry> = ready.take_committed_entries().into_iter().map(Entry::from_engine).collect();
        if !committed.is_empty() {
            out.notify(Notice::Committed(committed));
        }
    }

    fn note_change(&mut self, out: &mut Outbox<Self>) {
        let raft = &self.node.raft;
        let role = match raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Follower => Role::Follower,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
        };
        let now = (role, Some(ServerId(raft.leader_id)).filter(|id| id.0 != 0), Term(raft.term));
        if self.known != now {
            if role == Role::Leader && self.known.0 != role {
                // The tick that was set is a follower's, and comes later.
                out.set(Tick, self.settings.tick);
                self.early = EARLY_MAX;
            }
            self.known = now;
            out.notify(Notice::Changed(now.0, now.1, now.2));
        }
    }
}

impl Consensus for Replica {
    fn view(&self) -> (Role, Option<ServerId>, Term) {
        self.known
    }

    fn is_readable(&self) -> bool {
        self.node.raft.state == StateRole::Leader && self.node.raft.commit_to_current_term()
    }

    fn peers(&self) -> Vec<ServerId> {
        self.settings.voters.iter().copied().filter(|voter| *voter != self.settings.id).collect()
    }

    fn is_voting(&self) -> bool {
        self.node.raft.state == StateRole::Candidate
    }

    fn matched(&self, peer: ServerId) -> Option<u64> {
        let progress = self.node.raft.prs().get(peer.0).filter(|_| self.known.0 == Role::Leader);
        progress.map(|progress| progress.matched)
    }

    fn extent(&self) -> (u64, u64) {
        (self.node.raft.raft_log.last_index(), self.node.raft.raft_log.committed)
    }

    fn freshness(&self) -> (u64, u64) {
        (self.node.raft.raft_log.last_term(), self.node.raft.raft_log.last_index())
    }
}

impl Machine for Replica {
    type Peer = ServerId;
    type Message = Message;
    type Command = Command;
    type Timer = Tick;
    type Record = Record;
    type Token = Token;
    type Barrier = Token;
    type Notice = Notice;

    fn step(&mut self, _: Moment, input: Input<Self>, out: &mut Outbox<Self>) {
        match input {
            Input::Message { from, message } => self.on_message(from, message, out),
            Input::Timer(Tick) => self.on_tick(out),
            Input::Command(command) => self.on_command(command, out),
            Input::LinkUp(_) | Input::LinkDown(_) => out.ignore("links: the owner says who is unreachable"),
            Input::Persisted(token) => self.on_persisted(token),
        }
        self.settle(out);
    }
}

fn config(settings: &Settings, applied: u64) -> Config {
    Config {
        id: settings.id.0,
        election_tick: settings.backstop_ticks,
        // One more than the least removes the engine's only randomness.
        min_election_tick: settings.backstop_ticks,
        max_election_tick: settings.backstop_ticks + 1,
        // Heartbeats are sent with every tick, by `ping`; the engine's own are the backstop.
        heartbeat_tick: settings.backstop_ticks.div_ceil(4).max(1),
        applied,
        // Signs of life queue behind records on the same link. With more than 16 MiB on their way to a peer they come so late that leases
        // run out.
        max_size_per_msg: 256 * 1024,
        max_inflight_msgs: 64,
        max_uncommitted_size: 256 << 20,
        check_quorum: true,
        pre_vote: true,
        read_only_option: ReadOnlyOption::Safe,
        ..Config::default()
    }
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (role, leader, term) = self.known;
        f.debug_struct("Replica")
            .field("id", &self.settings.id)
            .field("role", &role)
            .field("leader", &leader)
            .field("term", &term)
            .field("extent", &self.extent())
            .finish()
    }
}
