//! What a replica hears from its owner, and tells it.

use std::fmt;

use bytes::Bytes;
use primus_core::{ServerId, Term};

use crate::message::{Entry, Snapshot};

/// What its owner can tell a replica.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// Start the clock.
    Boot,
    /// Ask for votes: an election named this replica.
    Campaign,
    /// The leader is suspected: vote for others from now on. Term and vote stay, so this is as safe as a restart.
    ForgetLeader,
    /// Append these, each as an entry of its own and all or none of them, if this replica leads.
    Propose(Vec<Bytes>),
    /// Find out up to where a read must wait to be linearizable.
    Read(u64),
    /// Let another replica lead. Until it does, nothing that is proposed is taken.
    Transfer(ServerId),
    /// Lead on: the other one does not take over.
    AbortTransfer,
    /// The owner's state up to this index; what it covers can be forgotten.
    Compact(u64, Bytes),
    /// A message to this peer was lost: send again what it may miss.
    Unreachable(ServerId),
    /// A message to the slowest live peer and back takes this many microseconds longer than on a local network.
    Slower(u64),
}

/// What its owner is told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Notice {
    /// The role, the leader or the term has changed.
    Changed(Role, Option<ServerId>, Term),
    /// These entries are committed, in this order.
    Committed(Vec<Entry>),
    /// A read of this number is linearizable once the index has been applied.
    Readable(u64, u64),
    /// The whole state came from the leader.
    Restored(Snapshot),
    /// What was proposed was not taken, for this reason; it will never be committed.
    Refused(Refusal, Vec<Bytes>),
}

/// Why a proposal was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// Another replica leads, or none.
    NotLeading,
    /// Leadership is being handed over, or too much is under way.
    Busy,
}

/// What a replica is at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Role {
    /// It follows, or waits for somebody to follow.
    #[default]
    Follower,
    /// It asks for votes.
    Candidate,
    /// A majority voted for it.
    Leader,
}

/// The one timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick;

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tick")
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boot => f.write_str("boot"),
            Self::Campaign => f.write_str("campaign"),
            Self::ForgetLeader => f.write_str("forget leader"),
            Self::Propose(entries) => {
                write!(f, "propose {} bytes", entries.iter().map(Bytes::len).sum::<usize>())
            }
            Self::Read(number) => write!(f, "read {number}"),
            Self::Transfer(to) => write!(f, "transfer to {to}"),
            Self::AbortTransfer => f.write_str("abort transfer"),
            Self::Compact(index, _) => write!(f, "compact to {index}"),
            Self::Unreachable(peer) => write!(f, "unreachable {peer}"),
            Self::Slower(us) => write!(f, "slower by {us} us"),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed(role, Some(leader), term) => write!(f, "{role:?} of {leader} in term {}", term.0),
            Self::Changed(role, None, term) => write!(f, "{role:?} in term {}", term.0),
            Self::Committed(entries) => write!(f, "committed {}", entries.last().map_or(0, |entry| entry.index)),
            Self::Readable(number, index) => write!(f, "read {number} at {index}"),
            Self::Restored(snapshot) => write!(f, "restored {}", snapshot.index),
            Self::Refused(refusal, _) => write!(f, "refused {refusal:?}"),
        }
    }
}
