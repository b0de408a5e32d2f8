//! Loans: how a farm that has too much to do gets workers from one that has too little, and gives them back.
//!
//! [`lending`] is the leader's side, for what is lent and what is borrowed; [`placement`] is the worker's. Who is lent is in the
//! [ledgers](crate::ledger::loans) of both farms, so whoever leads next carries every loan on. Three rules keep it safe, whatever
//! is lost, late or dead:
//!
//! - The *worker* decides whom it works for, and it works for one farm at a time. It follows a call abroad only if that is newer
//!   than all that it has followed before, and its own farm sent it.
//! - The lender takes a worker for its own again when the worker says that it is at home, or when neither farm sees it any more;
//!   never because time has passed.
//! - The borrower gives work to a worker only while the lender says that it is lent. What leaders of two farms say is told again
//!   and again as a whole ([`Beat`]), so nothing depends on a message that was lost. Terms of two farms are never compared.

pub mod lending;
pub mod placement;

#[cfg(test)]
mod tests;

use crate::Term;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

pub use lending::Lending;
pub use placement::Placement;

use crate::ledger::{LoanId, Why};

/// What the leaders of two farms say to each other. Everything carries the term of whoever says it, so that a deposed leader is
/// not heard any more; it means nothing beside a term of another farm.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Message {
    /// The term of the leader that says it.
    pub term: Term,
    /// What it says.
    pub content: Content,
}

/// What the leader of a farm says to that of another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Content {
    /// How things are here.
    Beat(Beat),
    /// Borrower: lend me workers.
    Ask(Request),
    /// Lender: these are on their way.
    Offer {
        /// The request.
        number: u64,
        /// The loans; the beat before says what they are.
        loans: Vec<LoanId>,
    },
    /// Lender: not now.
    Refusal {
        /// The request.
        number: u64,
        /// Why not.
        objection: Objection,
    },
}

/// How things are in a farm, and all that it has to do with whoever hears this.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Beat {
    /// How many slots of its own are free.
    pub idle: u32,
    /// How many tasks wait.
    pub queued: u64,
    /// What it has lent to whoever hears this.
    pub lent: Vec<LentWorker>,
    /// What it has borrowed from whoever hears this.
    pub borrowed: Vec<LoanId>,
}

/// A worker that is lent, as the borrower needs to know it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LentWorker {
    /// The loan.
    pub loan: LoanId,
    /// Who, as its own farm calls it.
    pub worker: String,
    /// For how long, on the worker's clock.
    pub for_ms: u64,
    /// Why.
    pub why: Why,
    /// Is it wanted back?
    pub is_recalled: bool,
}

/// What a borrower would like to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Request {
    /// Names the request.
    pub number: u64,
    /// How many workers.
    pub count: u32,
    /// For how long.
    pub for_ms: u64,
}

/// Why a farm lends nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Objection {
    /// It has work waiting itself.
    Busy,
    /// None of its workers is idle, those in reserve aside.
    NoneIdle,
    /// It has lent as many as it lends.
    AllLent,
}

/// What a leader and a worker say to each other about loans. The worker's own leader can send it abroad; that one and the one that
/// it works for can send it home.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum WorkerMessage {
    /// Leader at home: work for that farm.
    Redirect {
        /// The loan, which is the worker's epoch from then on.
        loan: LoanId,
        /// For whom.
        farm: String,
        /// For how long.
        for_ms: u64,
        /// How long what runs then may take to end.
        within_ms: u64,
    },
    /// Either leader: go home. What runs may take so long; it is stopped then.
    Return {
        /// The loan.
        loan: LoanId,
        /// How long.
        within_ms: u64,
    },
    /// Worker, to its own leader: this is the newest call that I have followed, and this is where I am.
    At {
        /// The newest call.
        epoch: LoanId,
        /// Am I away, under it?
        is_away: bool,
    },
    /// Worker, to its own leader: I cannot work for that farm.
    CannotGo {
        /// The loan.
        loan: LoanId,
    },
}

impl Objection {
    /// Its name, as output contracts spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::NoneIdle => "none_idle",
            Self::AllLent => "all_lent",
        }
    }
}

impl fmt::Display for LoanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.content {
            Content::Beat(beat) => {
                write!(f, "beat idle {} queued {}", beat.idle, beat.queued)?;
                for lending in &beat.lent {
                    let recalled = if lending.is_recalled { " recalled" } else { "" };
                    write!(f, " lent {} {}{recalled}", lending.loan, lending.worker)?;
                }
                beat.borrowed.iter().try_for_each(|loan| write!(f, " borrowed {loan}"))
            }
            Content::Ask(request) => write!(f, "ask {} for {}", request.number, request.count),
            Content::Offer { number, loans } => {
                write!(f, "offer {number}:")?;
                loans.iter().try_for_each(|loan| write!(f, " {loan}"))
            }
            Content::Refusal { number, objection } => write!(f, "refusal {number}: {}", objection.name()),
        }
    }
}

impl fmt::Display for WorkerMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redirect { loan, farm, .. } => write!(f, "redirect {loan} to {farm}"),
            Self::Return { loan, .. } => write!(f, "return {loan}"),
            Self::At { epoch, is_away: true } => write!(f, "away under {epoch}"),
            Self::At { epoch, is_away: false } => write!(f, "at home, last away under {epoch}"),
            Self::CannotGo { loan } => write!(f, "cannot go under {loan}"),
        }
    }
}
