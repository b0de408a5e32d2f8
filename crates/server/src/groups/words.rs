//! The words of groups: what servers say to each other about them, and what their owners say and hear.

use std::fmt;

use primus_core::load::Score;
use primus_core::{Round, ServerId, election};

use crate::any_election;
use crate::control::Reason;

/// What servers say to each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Said {
    /// I am here.
    Here {
        /// How loaded I am.
        score: Score,
        /// Now and then: of the groups that you are no member of, I lead these and no others, elected in these rounds.
        leads: Option<Vec<(String, Round)>>,
    },
    /// Who should lead this group?
    Election {
        /// Which one.
        group: String,
        /// What its election says.
        message: any_election::Message,
        /// Why its leader changes, or changed last.
        reason: Reason,
    },
}

/// What their owner tells them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// The process has just started.
    Boot,
    /// This peer's process is gone: its link was reset and its port refuses.
    Gone(ServerId),
    /// The own load has been measured.
    Score(Score),
    /// A message to the slowest live peer and back takes this many microseconds longer than on a local network.
    Slower(u64),
    /// An operator wants an election of this group.
    Elect(String),
}

/// What their owner is told: this group has this leader, or none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Notice {
    /// Which group.
    pub group: String,
    /// Who leads it.
    pub leader: Option<ServerId>,
    /// In which round that was decided.
    pub round: Round,
    /// Who led it last.
    pub previous: Option<ServerId>,
    /// Why that changed, if it did.
    pub reason: Reason,
    /// Is this the result of an election that this server was asked for?
    pub is_result: bool,
}

/// Their timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// Time to show oneself, and to look for others.
    Beat,
    /// One of the election of this group, by its place in the list.
    Election(usize, election::Timer),
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here { score, leads } => {
                write!(f, "here {score}")?;
                leads.iter().flatten().try_for_each(|(group, round)| write!(f, " leads {group} r{round}"))
            }
            Self::Election { group, message, .. } => write!(f, "{group} {message}"),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boot => f.write_str("boot"),
            Self::Gone(peer) => write!(f, "gone {peer}"),
            Self::Score(score) => write!(f, "score {score}"),
            Self::Slower(us) => write!(f, "slower by {us} us"),
            Self::Elect(group) => write!(f, "elect in {group}"),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.leader {
            Some(leader) => write!(f, "{} leader {leader} r{} {}", self.group, self.round, self.reason),
            None => write!(f, "{} no leader r{} {}", self.group, self.round, self.reason),
        }
    }
}

impl fmt::Display for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beat => f.write_str("beat"),
            Self::Election(number, timer) => write!(f, "{timer} of group {number}"),
        }
    }
}
