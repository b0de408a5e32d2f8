//! What a lending side is told and asked, and what it says.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::Term;
use crate::ledger::{Entry, LoanId, Loans};
use crate::loan::{Objection, WorkerMessage};

/// What its owner tells a lending side.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// This server leads from now on, in this term, and this is agreed on.
    Lead(Term, Loans),
    /// It does not any more.
    Follow,
    /// This is agreed on now.
    Agreed(Loans),
    /// This is how things are: the answer to [`Notice::LookAround`].
    Situation(Situation),
    /// A worker of another farm says that it is lent to this one, with so many slots. The name is the one that it has here.
    Arrived(String, LoanId, u16),
    /// A worker of our own says this.
    Said(String, WorkerMessage),
}

/// What its owner is told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Notice {
    /// Write this into the log.
    Propose(Vec<Entry>),
    /// Say how things are.
    LookAround,
    /// Say this to this worker. Whoever it is redirected to is a neighbour.
    Tell(String, WorkerMessage),
    /// Something that people may want to know.
    Happened(Happening),
}

/// What people may want to know of loans, beside what the ledger says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Happening {
    /// The farm has too much to do.
    Saturated {
        /// How many tasks wait.
        queued: u64,
    },
    /// It has not any more.
    Calm,
    /// A neighbour was asked for so many workers.
    Asked(String, u32),
    /// It lends so many.
    Promised(String, u32),
    /// It lends none, for this reason.
    Refused(String, Objection),
    /// It did not answer.
    NoAnswer(String),
    /// It promised a worker that did not come.
    NotSent(String, LoanId),
    /// It speaks of a loan that there is not.
    UnknownLoan(String, LoanId),
    /// A worker came from it that it has not lent.
    UnknownWorker(String, String),
    /// It is lent this worker of ours, which cannot go.
    CannotGo(String, String),
    /// A worker of ours should be back by now.
    Overdue(LoanId),
}

/// Its timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// Time to look around.
    Look,
}

/// What a lending side sees when it looks around in its own farm.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Situation {
    /// What time it is, in milliseconds since 1970.
    pub now_ms: u64,
    /// How many tasks wait for a slot.
    pub queued: u64,
    /// How many slots are free.
    pub free: u32,
    /// Own workers that have nothing to do, and could be lent; with their slots.
    pub idle: Vec<(String, u16)>,
    /// Workers of others that are registered here.
    pub guests: BTreeSet<String>,
}

/// An operator lends workers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LendOrder {
    /// To whom.
    pub to: String,
    /// How many, at most.
    pub count: u32,
    /// For how long, in milliseconds.
    pub for_ms: u64,
}

/// Why nobody goes when an operator lends workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CannotLend {
    /// No neighbour has that name.
    NoNeighbour,
    /// It has not been heard lately.
    NotHeard,
    /// No more may be lent.
    AllLent,
    /// No worker is idle.
    NoneIdle,
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lead(term, _) => write!(f, "lead in term {term}"),
            Self::Follow => f.write_str("follow"),
            Self::Agreed(loans) => {
                write!(f, "agreed: {} lent, {} borrowed", loans.lent().len(), loans.borrowed().len())
            }
            Self::Situation(situation) => {
                write!(f, "{} queued, {} free, {} idle", situation.queued, situation.free, situation.idle.len())
            }
            Self::Arrived(worker, loan, _) => write!(f, "{worker} has arrived under {loan}"),
            Self::Said(worker, word) => write!(f, "{worker} says: {word}"),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Propose(entries) => write!(f, "propose {}", entries.len()),
            Self::LookAround => f.write_str("look around"),
            Self::Tell(worker, word) => write!(f, "tell {worker}: {word}"),
            Self::Happened(happening) => happening.fmt(f),
        }
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Saturated { queued: 1 } => f.write_str("saturated: 1 task waits and no slot is free"),
            Self::Saturated { queued } => write!(f, "saturated: {queued} tasks wait and no slot is free"),
            Self::Calm => f.write_str("calm: next to nothing waits"),
            Self::Asked(farm, 1) => write!(f, "asked {farm} for 1 worker"),
            Self::Asked(farm, count) => write!(f, "asked {farm} for {count} workers"),
            Self::Promised(farm, 1) => write!(f, "{farm} lends 1 worker"),
            Self::Promised(farm, count) => write!(f, "{farm} lends {count} workers"),
            Self::Refused(farm, objection) => write!(f, "{farm} lends nothing: {}", objection.name()),
            Self::NoAnswer(farm) => write!(f, "{farm} did not answer"),
            Self::NotSent(farm, loan) => write!(f, "{farm} promised a worker under loan {loan} that did not come"),
            Self::UnknownLoan(farm, loan) => write!(f, "{farm} speaks of loan {loan}, which there is not"),
            Self::UnknownWorker(farm, worker) => write!(f, "{worker} has come from {farm}, which has not lent it"),
            Self::CannotGo(farm, worker) => write!(f, "{worker} cannot go to {farm}"),
            Self::Overdue(loan) => write!(f, "loan {loan} is overdue"),
        }
    }
}

impl fmt::Display for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Look => f.write_str("look"),
        }
    }
}
