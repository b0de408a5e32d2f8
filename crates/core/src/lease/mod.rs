//! Leases: who may do what only one may do (or only so many), and until when.
//!
//! A *candidate* wants to hold a group. The *lessor*, which is the farm's leader, has the log say who holds it, and promises
//! the holder again and again that it may go on for a while. Two rules make sure that intervals of holders never overlap:
//!
//! - The lessor promises no longer than one lease from a moment at which it *asked* whether it still led, and was told so by a
//!   majority. Whoever follows it as leader began to lead after that moment. So a new leader that gives every holder it finds
//!   in the log one lease from the beginning of its own term cannot be wrong, whatever the old one promised, frozen or not.
//! - The candidate counts what it is promised from the moment at which it asked, not from the moment at which it was told.
//!
//! Clocks are never compared, only their rates: whoever waits for the end of somebody else's promise waits 1 % and 50 ms longer.
//! [`lessor`] is the leader's side, [`guard`] the candidate's; who holds what is in the [ledger](crate::ledger::groups).

pub mod guard;
pub mod lessor;

#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

pub use guard::Guard;
pub use lessor::Lessor;

use crate::ServerId;
use crate::ledger::{GroupRank, GroupRules};
use crate::load::Score;

/// How long a lease lasts if nobody says otherwise.
pub const LEASE_US: u64 = 1_000_000;
/// The shortest lease: below, ordinary pauses would end it.
pub const LEASE_MIN_US: u64 = 300_000;

/// What candidates and the lessor say to each other. A candidate is known by its session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// Candidate: I am here; what do I hold?
    Poll(Poll),
    /// Lessor: this.
    Answer(Answer),
}

/// A candidate's question. The answer comes when there is something new, or after a while.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Poll {
    /// Names the question.
    pub number: u64,
    /// Everything that it would like to hold; if nothing is said, what it said before.
    pub wants: Option<Vec<Candidacy>>,
    /// What it holds, as far as it knows; said together with what it wants.
    pub holds: Vec<Claim>,
    /// What it held and has done with.
    pub ended: Vec<Claim>,
    /// How loaded its host is.
    pub score: Score,
    /// The server that it speaks through.
    pub at: ServerId,
    /// How long the answer may wait for something new.
    pub wait_us: u64,
}

/// What a candidate would like to hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Candidacy {
    /// The group.
    pub group: String,
    /// What it thinks the others want, too.
    pub rules: GroupRules,
    /// What people call the candidate.
    pub name: String,
    /// Its number, where numbers are compared.
    pub id: u64,
}

/// A group and the token under which it is, or was, held.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Claim {
    /// The group.
    pub group: String,
    /// The token.
    pub token: u64,
}

/// What a candidate is told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Answer {
    /// The question.
    pub number: u64,
    /// False if the lessor knows nothing of this session: it must say what it wants.
    pub is_known: bool,
    /// All that it holds.
    pub promises: Vec<Promise>,
    /// Of these it should let go, in good order.
    pub recalled: Vec<String>,
    /// These it cannot have.
    pub refused: Vec<(String, Objection)>,
}

/// What a candidate holds, and for how long from the moment at which it asked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Promise {
    /// The group.
    pub group: String,
    /// The token.
    pub token: u64,
    /// For how long.
    pub rest_us: u64,
}

/// Why a candidate cannot have what it wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Objection {
    /// The others have agreed on this.
    OtherRules(GroupRules),
    /// There are too many groups.
    TooManyGroups,
    /// There are too many candidates.
    TooManyCandidates,
    /// It held the group under an older token, and does not any more.
    OldToken,
}

/// How long whoever waits for the end of a promise must wait: its clock may be faster than the other's.
#[must_use]
pub const fn stretched(length_us: u64) -> u64 {
    length_us + length_us / 100 + 50_000
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poll(poll) => write!(f, "poll {}", poll.number),
            Self::Answer(answer) => {
                write!(f, "answer {}", answer.number)?;
                answer
                    .promises
                    .iter()
                    .try_for_each(|promise| write!(f, " {} #{}", promise.group, promise.token))?;
                answer.recalled.iter().try_for_each(|group| write!(f, " recall {group}"))
            }
        }
    }
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherRules(GroupRules { rank, holders }) => {
                write!(f, "the other candidates have agreed on rank {} and {holders} at once", rank.name())
            }
            Self::TooManyGroups => write!(f, "there are {} groups already", crate::ledger::groups::GROUPS_MAX),
            Self::TooManyCandidates => f.write_str("there are too many candidates"),
            Self::OldToken => f.write_str("this was held under an older term"),
        }
    }
}

/// What is compared between candidates.
struct Contender<'a> {
    candidacy: &'a Candidacy,
    score: Score,
    at: ServerId,
}

/// The least is the best; names make sure that two are never equal for long.
fn preference<'a>(rank: GroupRank, leader: ServerId, standing: &Contender<'a>) -> (bool, u64, &'a str) {
    let Contender { candidacy, score, at } = standing;
    let score = u64::from(score.hundredths());
    let (is_elsewhere, number) = match rank {
        GroupRank::Leader => (*at != leader, score),
        GroupRank::Load => (false, score),
        GroupRank::Id => (false, u64::MAX - candidacy.id),
        GroupRank::Name => (false, 0),
    };
    (is_elsewhere, number, candidacy.name.as_str())
}
