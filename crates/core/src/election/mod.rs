//! What the elections share: the commands of their owner, what they tell it, and their timers.
//!
//! An election here has no authority of its own: its winner simply announces itself, so two sides of a
//! partition have a leader each until the partition heals. That is what the source documents describe. Where
//! more is needed, a quorum ratifies the winner.

pub mod bully;
pub mod ring;

use alloc::sync::Arc;
use core::fmt;
use core::hash::Hash;

use serde::{Deserialize, Serialize};

use crate::ids::ServerId;
use crate::load::Score;
use crate::machine::{Delay, Machine, Never};

/// An election algorithm, as laboratories and servers drive it.
/// Nothing that an election does must survive a crash: a node that forgets starts as undefined, and rounds are learned from
/// the nodes that answer.
pub trait Election:
    Machine<
        Peer = ServerId,
        Command = Command,
        Notice = Notice,
        Timer = Timer,
        Record = Never,
        Token = Never,
        Barrier = Never,
    > + Clone
    + Eq
    + Hash
{
    /// Who this is.
    fn id(&self) -> ServerId;

    /// Whom this node takes for the leader: *defined(leader)*, or *undefined* (election theory).
    fn leader(&self) -> Option<ServerId>;

    /// Does this node itself lead?
    fn leads(&self) -> bool {
        self.leader() == Some(self.id())
    }

    /// Is an election under way here, that is, will this node act again without hearing from anybody?
    fn is_electing(&self) -> bool;

    /// The best of those who are thought alive and rank better than this node.
    fn better(&self) -> Option<ServerId>;

    /// The best of them, and of those who may lead; by default only the best of all is looked at.
    fn better_among(&self, may_lead: &dyn Fn(ServerId) -> bool) -> Option<ServerId> {
        self.better().filter(|best| may_lead(*best))
    }

    /// How many of them there are.
    fn better_count(&self) -> usize;

    /// May the better take over from a worse one that leads?
    fn preempts(&self) -> bool;

    /// What a message is counted as.
    fn kind_of(message: &Self::Message) -> MessageKind;

    /// False if a message names a round that nobody can have reached: its sender is broken or a liar. See
    /// [`bounds`](crate::bounds). An election without rounds believes everything.
    fn is_credible(&self, _: &Self::Message) -> bool {
        true
    }
}

/// The algorithms that a cluster can choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// The best-ranked live node leads.
    Bully,
    /// A token travels round, and the highest live id leads.
    Ring,
}

/// What an owner can tell an election.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// The process has just started, for the first time or after a crash: start an election after the start-up
    /// delay unless a leader is heard of before.
    Boot,
    /// Start an election now. Calling again is harmless.
    Start,
    /// Give leadership up.
    Resign,
    /// This peer is believed to be dead or cut off.
    Suspect(ServerId),
    /// This peer is believed to be alive again.
    Trust(ServerId),
    /// This node's own load has been measured.
    Score(Score),
    /// A peer's load has been heard of.
    PeerScore(ServerId, Score),
    /// The members, in ring order, from now on.
    Members(Arc<[ServerId]>),
    /// A quorum has made this node the leader, whatever the election thought: it is over.
    Ratified(ServerId),
    /// A message to the slowest live peer and back takes this many microseconds longer than on a local network.
    Slower(u64),
}

/// What an election tells its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Notice {
    /// This node leads from now on.
    Lead,
    /// That node leads from now on.
    Follow(ServerId),
    /// Nobody is known to lead from now on.
    Undefined,
    /// The announcement went once round the ring (rule 6 of ring over AMQP).
    Complete,
}

/// The timers. A node needs at most one at a time: each belongs to one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// Just started: waiting for a leader to be heard of.
    Startup,
    /// Bully: waiting for better-ranked peers to answer.
    Answers,
    /// Bully: waiting for the one that answered to lead.
    Victory,
    /// Ring: waiting for the round to end.
    Round,
    /// Leading: announce again, for those who missed it.
    Remind,
    /// Following: the leader has not been heard for too long.
    Silence,
}

/// The kinds of messages, as people count them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MessageKind {
    /// Somebody asks to lead.
    Election,
    /// Bully: a better-ranked node answers.
    Alive,
    /// Bully: the winner announces itself.
    Coordinator,
    /// Ring: the winner announces itself.
    Elected,
}

/// Announcements that repair what was lost: a leader repeats its own, and a follower that hears none for a
/// while takes the leader for dead. Without reminders an election trusts its owner's suspicions alone, as
/// inside a server, whose pings say the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reminders {
    /// How often a leader announces itself again.
    pub every: Delay,
    /// How long a follower waits for that.
    pub silence: Delay,
}

/// The one timer that runs, if any. It keeps sets and cancels in step with the state of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Armed(Option<Timer>);

impl Armed {
    /// Starts `timer` instead of whatever runs.
    fn set<M: Election>(&mut self, timer: Timer, delay: Delay, out: &mut crate::Outbox<M>) {
        if self.0.is_some_and(|running| running != timer) {
            self.cancel(out);
        }
        self.0 = Some(timer);
        out.set(timer, delay);
    }

    /// Stops whatever runs.
    fn cancel<M: Election>(&mut self, out: &mut crate::Outbox<M>) {
        if let Some(running) = self.0.take() {
            out.cancel(running);
        }
    }

    /// A timer ran out: was it the one that runs?
    fn fired(&mut self, timer: Timer) -> bool {
        let current = self.0 == Some(timer);
        if current {
            self.0 = None;
        }
        current
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boot => f.write_str("boot"),
            Self::Start => f.write_str("start"),
            Self::Resign => f.write_str("resign"),
            Self::Suspect(peer) => write!(f, "suspect {peer}"),
            Self::Trust(peer) => write!(f, "trust {peer}"),
            Self::Score(score) => write!(f, "score {score}"),
            Self::PeerScore(peer, score) => write!(f, "score of {peer} {score}"),
            Self::Members(members) => {
                f.write_str("members")?;
                members.iter().try_for_each(|member| write!(f, " {member}"))
            }
            Self::Ratified(leader) => write!(f, "ratified {leader}"),
            Self::Slower(us) => write!(f, "slower by {us} us"),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lead => f.write_str("become leader"),
            Self::Follow(leader) => write!(f, "follow {leader}"),
            Self::Undefined => f.write_str("lose leader"),
            Self::Complete => f.write_str("complete"),
        }
    }
}

impl fmt::Display for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Startup => "startup",
            Self::Answers => "answers",
            Self::Victory => "victory",
            Self::Round => "round",
            Self::Remind => "remind",
            Self::Silence => "silence",
        })
    }
}

impl Timer {
    /// All timers.
    pub const ALL: [Self; 6] =
        [Self::Startup, Self::Answers, Self::Victory, Self::Round, Self::Remind, Self::Silence];
}

impl MessageKind {
    /// All kinds, in the order in which people list them.
    pub const ALL: [Self; 4] = [Self::Election, Self::Alive, Self::Coordinator, Self::Elected];

    /// The kind's name, as output contracts spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Election => "election",
            Self::Alive => "alive",
            Self::Coordinator => "coordinator",
            Self::Elected => "elected",
        }
    }
}
