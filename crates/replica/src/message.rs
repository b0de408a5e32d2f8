//! What replicas say to each other, and what they keep on disk: plain types that mirror the engine's.
//!
//! The engine's own types are protobuf. They never come from the wire: its parser can be driven into endless recursion
//! (RUSTSEC-2024-0437), and what is never called cannot hurt.

use std::fmt;

use bytes::Bytes;
use raft::eraftpb as engine;
use serde::{Deserialize, Serialize};

/// A message of the Raft protocol; sender and receiver are known from the link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Message {
    /// What it asks or says.
    pub kind: Kind,
    /// The sender's term.
    pub term: u64,
    /// The term of the entry before `entries`, or of the candidate's last entry.
    pub log_term: u64,
    /// The index that goes with it.
    pub index: u64,
    /// What is to be appended.
    pub entries: Vec<Entry>,
    /// The sender's commit index.
    pub commit: u64,
    /// The term of the entry there.
    pub commit_term: u64,
    /// A whole state, for a follower that is too far behind.
    pub snapshot: Option<Snapshot>,
    /// An index from which a snapshot is wanted.
    pub request_snapshot: u64,
    /// Refused?
    pub reject: bool,
    /// Where the logs may still agree.
    pub reject_hint: u64,
    /// Names a read, or says that a campaign is a transfer.
    pub context: Bytes,
}

/// The kinds of messages that travel. Kinds that the engine uses only inside itself cannot be spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of the Raft paper")]
pub enum Kind {
    Append,
    AppendResponse,
    RequestVote,
    RequestVoteResponse,
    Snapshot,
    Heartbeat,
    HeartbeatResponse,
    TimeoutNow,
    ReadIndex,
    ReadIndexResponse,
    RequestPreVote,
    RequestPreVoteResponse,
}

/// An entry of the log. One without data marks the begin of a term.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Entry {
    /// Its place.
    pub index: u64,
    /// The term in which it was proposed.
    pub term: u64,
    /// What was proposed.
    pub data: Bytes,
}

/// The whole state at one place of the log.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Snapshot {
    /// The last entry that it covers.
    pub index: u64,
    /// That entry's term.
    pub term: u64,
    /// The state, in its owner's own form.
    pub data: Bytes,
}

/// What a replica must never forget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct HardState {
    /// The newest term that it knows.
    pub term: u64,
    /// Whom it voted for in that term; 0 is nobody.
    pub vote: u64,
    /// How far the log was committed, as far as it knew.
    pub commit: u64,
}

/// One thing to be made durable. They are applied in order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Record {
    /// Replaces everything from this entry's index on.
    Append(Entry),
    /// Term, vote and commit.
    HardState(HardState),
    /// Replaces the log up to and including its index.
    Snapshot(Snapshot),
}

const KINDS: [(Kind, engine::MessageType); 12] = {
    use engine::MessageType as E;
    [
        (Kind::Append, E::MsgAppend),
        (Kind::AppendResponse, E::MsgAppendResponse),
        (Kind::RequestVote, E::MsgRequestVote),
        (Kind::RequestVoteResponse, E::MsgRequestVoteResponse),
        (Kind::Snapshot, E::MsgSnapshot),
        (Kind::Heartbeat, E::MsgHeartbeat),
        (Kind::HeartbeatResponse, E::MsgHeartbeatResponse),
        (Kind::TimeoutNow, E::MsgTimeoutNow),
        (Kind::ReadIndex, E::MsgReadIndex),
        (Kind::ReadIndexResponse, E::MsgReadIndexResp),
        (Kind::RequestPreVote, E::MsgRequestPreVote),
        (Kind::RequestPreVoteResponse, E::MsgRequestPreVoteResponse),
    ]
};

impl Message {
    /// What the engine wants to send, and to whom. Nothing for a kind that never travels.
    pub(crate) fn from_engine(mut message: engine::Message) -> Option<(u64, Self)> {
        let kind = KINDS.iter().find(|(_, engine)| *engine == message.get_msg_type())?.0;
        let snapshot = message.has_snapshot().then(|| Snapshot::from_engine(message.take_snapshot()));
        let to = message.to;
        let mirror = Self {
            kind,
            term: message.term,
            log_term: message.log_term,
            index: message.index,
            entries: message.take_entries().into_iter().map(Entry::from_engine).collect(),
            commit: message.commit,
            commit_term: message.commit_term,
            snapshot,
            request_snapshot: message.request_snapshot,
            reject: message.reject,
            reject_hint: message.reject_hint,
            context: message.take_context(),
        };
        Some((to, mirror))
    }

    pub(crate) fn into_engine(self, from: u64, to: u64, voters: &[u64]) -> engine::Message {
        let mut message = engine::Message::default();
        let kind = KINDS.iter().find(|(kind, _)| *kind == self.kind).expect("every kind is in the table").1;
        message.set_msg_type(kind);
        (message.from, message.to, message.term) = (from, to, self.term);
        (message.log_term, message.index) = (self.log_term, self.index);
        message.set_entries(self.entries.into_iter().map(Entry::into_engine).collect());
        (message.commit, message.commit_term) = (self.commit, self.commit_term);
        if let Some(snapshot) = self.snapshot {
            message.set_snapshot(snapshot.into_engine(voters));
        }
        message.request_snapshot = self.request_snapshot;
        (message.reject, message.reject_hint) = (self.reject, self.reject_hint);
        message.set_context(self.context);
        message
    }
}

/// What the engine takes as proposals, one entry each.
pub(crate) fn proposal(from: u64, data: &[Bytes]) -> engine::Message {
    let entry = |data: &Bytes| {
        let mut entry = engine::Entry::default();
        entry.set_data(data.clone());
        entry
    };
    let mut message = engine::Message::default();
    message.set_msg_type(engine::MessageType::MsgPropose);
    message.from = from;
    message.set_entries(data.iter().map(entry).collect());
    message
}

impl Entry {
    pub(crate) fn from_engine(mut entry: engine::Entry) -> Self {
        Self { index: entry.index, term: entry.term, data: entry.take_data() }
    }

    pub(crate) fn into_engine(self) -> engine::Entry {
        let mut entry = engine::Entry::default();
        (entry.index, entry.term) = (self.index, self.term);
        entry.set_data(self.data);
        entry
    }
}

impl Snapshot {
    pub(crate) fn from_engine(mut snapshot: engine::Snapshot) -> Self {
        let metadata = snapshot.get_metadata();
        Self { index: metadata.index, term: metadata.term, data: snapshot.take_data() }
    }

    /// Who may vote is configuration, not part of the state: every snapshot names the same voters.
    pub(crate) fn into_engine(self, voters: &[u64]) -> engine::Snapshot {
        let mut snapshot = engine::Snapshot::default();
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (self.index, self.term);
        metadata.mut_conf_state().set_voters(voters.to_vec());
        snapshot.set_data(self.data);
        snapshot
    }
}

impl HardState {
    pub(crate) fn from_engine(state: &engine::HardState) -> Self {
        Self { term: state.term, vote: state.vote, commit: state.commit }
    }

    pub(crate) fn into_engine(self) -> engine::HardState {
        let mut state = engine::HardState::default();
        (state.term, state.vote, state.commit) = (self.term, self.vote, self.commit);
        state
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} t{} i{}", self.kind, self.term, self.index)?;
        if !self.entries.is_empty() {
            write!(f, " +{}", self.entries.len())?;
        }
        if self.reject { f.write_str(" no") } else { Ok(()) }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Append(entry) => write!(f, "entry {}@{}", entry.index, entry.term),
            Self::HardState(state) => write!(f, "term {} vote {}", state.term, state.vote),
            Self::Snapshot(snapshot) => write!(f, "snapshot {}@{}", snapshot.index, snapshot.term),
        }
    }
}
