//! The words of a server's control part: what servers say to each other, what their owners say and hear, and why leaders
//! change.

use std::fmt;

use bytes::Bytes;
use primus_core::ServerId;
use primus_core::Term;
use primus_core::election;
use primus_core::load::{Load, Score};
use primus_replica::message::{Entry, Snapshot};
use primus_replica::replica::Refusal;

use crate::farm;
use crate::room::Room;
use crate::transfer::Obstacle;

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
    /// It was too loaded, and handed over.
    Load,
    /// It could no longer reach a majority.
    LostQuorum,
    /// An operator had an election held, and another one won it.
    Elected,
    /// Its process ended in good order, and handed over before that. This is not a resignation that lasts.
    Left,
}

/// What servers say to each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Message<T> {
    /// Who should lead?
    Election(T),
    /// The replicated log.
    Replica(primus_replica::message::Message),
    /// How loaded these servers are: a follower tells the leader of itself, the leader tells everybody of all. And whom the
    /// leader misses.
    Loads(Vec<(ServerId, Load)>, Vec<ServerId>),
    /// There will soon be another leader, for this reason.
    Change(Reason),
    /// Send this back at once: it is what the sender's own clock says.
    Probe(u64),
    /// A probe that comes back.
    Echo(u64),
    /// An election was held, and the leader won it.
    Confirmed(Confirmed),
}

/// What came of an election that the leader won.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Confirmed {
    /// The leader, which held it.
    pub leader: ServerId,
    /// The term in which it leads on.
    pub term: Term,
    /// The server that was asked for an election.
    pub asked: ServerId,
    /// How loaded everybody is, as far as the leader knows.
    pub scores: Vec<(ServerId, Score)>,
}

/// What a server's owner tells it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// The process has just started.
    Boot,
    /// This peer's process is gone: its link was reset and its port refuses.
    Gone(ServerId),
    /// The own load has been measured.
    Load(Load),
    /// Append these, each as an entry of its own and all or none of them, if this server leads.
    Propose(Vec<Bytes>),
    /// Append these writes of a client, as above, if there is room for them. Do they bring new content?
    Write(Vec<Bytes>, bool),
    /// So much room there is from now on.
    Room(Room),
    /// Find out up to where a read must wait.
    Read(u64),
    /// Let another server lead: that one, or the best.
    Transfer(Option<ServerId>, Reason),
    /// This process is about to end: let another server lead.
    Leave,
    /// An operator asked that server for an election: hold it, if this server leads or nobody does.
    Elect(ServerId),
    /// The owner's state up to this index.
    Compact(u64, Bytes),
    /// Something is guarded beside this server, and must end before another one leads; or not any more.
    Guarded(bool),
    /// Links are not what they were: measure them again.
    Measure,
}

/// What a server's owner is told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Notice {
    /// Somebody leads, or nobody.
    Leader(Option<ServerId>, Term, Reason),
    /// These entries are agreed on.
    Committed(Vec<Entry>),
    /// A read is linearizable once this index has been applied.
    Readable(u64, u64),
    /// A read cannot be served here now.
    Unreadable(u64),
    /// The whole state came from the leader.
    Restored(Snapshot),
    /// Proposals were not taken.
    Refused(Refusal, Vec<Bytes>),
    /// There is no room for these writes, for this reason.
    NoRoom(farm::Refusal, Vec<Bytes>),
    /// Another server should lead, for this reason, once nothing is guarded beside this one.
    HandOver(ServerId, Reason),
    /// Nobody took over, for this reason, and the leader leads on.
    NotTransferred(Obstacle),
    /// A peer is suspected, for this reason.
    Suspected(ServerId, Reason),
    /// What the election says, before any quorum has ratified it.
    Election(election::Notice),
    /// A peer said what no server says, and was not heard: this is what.
    Strange(ServerId, &'static str),
    /// This server has forgotten what it acknowledged, and must not go on.
    Forgotten {
        /// Who says so, again and again.
        leader: ServerId,
        /// Up to where it has acknowledged the log.
        index: u64,
        /// Up to where it has it.
        last: u64,
    },
    /// A message to the slowest live peer and back takes this many microseconds longer than on a local network.
    Slower(u64),
    /// An election was held, and the leader won it.
    Confirmed(Confirmed),
}

/// Its timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// The replica's clock.
    Tick,
    /// Has the leader been silent for too long?
    Silence,
    /// Ask for votes again.
    Retry,
    /// A candidate knows less than this server: time to run instead.
    JumpIn,
    /// There has been no leader for too long.
    Leaderless,
    /// Whoever should take over has had enough time.
    Transfer,
    /// An election that was asked for has had enough time.
    Held,
    /// The election's.
    Election(election::Timer),
}

impl<T> Message<T> {
    /// Does it bring entries of the log, or a whole state?
    #[must_use]
    pub const fn brings_log(&self) -> bool {
        matches!(self, Self::Replica(message) if !message.entries.is_empty() || message.snapshot.is_some())
    }
}

impl<T: fmt::Display> fmt::Display for Message<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Election(message) => message.fmt(f),
            Self::Replica(message) => message.fmt(f),
            Self::Loads(loads, _) => {
                f.write_str("loads")?;
                loads.iter().try_for_each(|(id, load)| write!(f, " of {id} {}", load.score))
            }
            Self::Change(reason) => write!(f, "change {reason}"),
            Self::Probe(_) => f.write_str("probe"),
            Self::Echo(_) => f.write_str("echo"),
            Self::Confirmed(confirmed) => confirmed.fmt(f),
        }
    }
}

impl fmt::Display for Confirmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "confirmed {} term {}", self.leader, self.term.0)?;
        self.scores.iter().try_for_each(|(id, score)| write!(f, ", {id} at {score}"))
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boot => f.write_str("boot"),
            Self::Gone(peer) => write!(f, "gone {peer}"),
            Self::Load(load) => write!(f, "load {}", load.score),
            Self::Propose(entries) => {
                write!(f, "propose {} bytes", entries.iter().map(Bytes::len).sum::<usize>())
            }
            Self::Write(entries, _) => {
                write!(f, "write {} bytes", entries.iter().map(Bytes::len).sum::<usize>())
            }
            Self::Room(_) => f.write_str("room"),
            Self::Read(number) => write!(f, "read {number}"),
            Self::Transfer(Some(to), _) => write!(f, "transfer to {to}"),
            Self::Transfer(None, _) => f.write_str("transfer"),
            Self::Leave => f.write_str("leave"),
            Self::Elect(asked) => write!(f, "elect, asked through {asked}"),
            Self::Compact(index, _) => write!(f, "compact to {index}"),
            Self::Guarded(is_guarded) => f.write_str(if *is_guarded { "guarded" } else { "not guarded" }),
            Self::Measure => f.write_str("measure"),
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
            Self::NoRoom(refusal, _) => write!(f, "no room: {refusal}"),
            Self::HandOver(to, reason) => write!(f, "hand over to {to}: {reason}"),
            Self::NotTransferred(obstacle) => write!(f, "not transferred: {obstacle}"),
            Self::Suspected(peer, reason) => write!(f, "suspect {peer} {reason}"),
            Self::Election(notice) => notice.fmt(f),
            Self::Strange(peer, what) => write!(f, "strange words of {peer}: {what}"),
            Self::Forgotten { leader, index, last } => {
                write!(f, "forgotten: has {last}, acknowledged {index}, as {leader} says")
            }
            Self::Slower(us) => write!(f, "links are slower by {} ms", us / 1000),
            Self::Confirmed(confirmed) => confirmed.fmt(f),
        }
    }
}

impl fmt::Display for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tick => f.write_str("tick"),
            Self::Silence => f.write_str("silence"),
            Self::Retry => f.write_str("retry"),
            Self::JumpIn => f.write_str("jump in"),
            Self::Leaderless => f.write_str("leaderless"),
            Self::Transfer => f.write_str("transfer"),
            Self::Held => f.write_str("held"),
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
            Self::Operator | Self::Elected => "operator",
            Self::Resigned | Self::Left => "resigned",
            Self::Rank => "rank",
            Self::Load => "load",
            Self::LostQuorum => "lost_quorum",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
