//! What a foreman hears from its owner, and tells it.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::ledger::{Batch, Effect, Entry, LoanId};
use crate::{Term, WorkerId};

/// What its owner tells a foreman.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// The log says this.
    Apply(Batch),
    /// This server leads from now on, in this term.
    Lead(Term),
    /// It does not any more.
    Follow,
}

/// What a foreman tells its owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Notice {
    /// Write this into the log.
    Propose(Vec<Entry>),
    /// What the last batch came to.
    Applied(Vec<Effect>),
    /// This worker of another farm says that it is lent to this one, with so many slots. It gets nothing before the ledger says
    /// that it is lent, too.
    Arrived(String, LoanId, u16),
    /// So many tasks run on workers that stand beside this server.
    Beside(u32),
}

/// Its timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// Workers that an older leader knew have had time enough to report.
    Settle,
    /// A worker whose link was lost has not come back.
    Grace(WorkerId),
    /// A worker has been silent for too long.
    Silence(WorkerId),
    /// A worker that stands beside this server has not said for too long what it runs.
    Beside(WorkerId),
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apply(batch) => write!(f, "apply {}", batch.entries.len()),
            Self::Lead(term) => write!(f, "lead in term {term}"),
            Self::Follow => f.write_str("follow"),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Propose(entries) => write!(f, "propose {}", entries.len()),
            Self::Applied(effects) => write!(f, "applied {}", effects.len()),
            Self::Arrived(worker, loan, _) => write!(f, "{worker} has arrived under {loan}"),
            Self::Beside(tasks) => write!(f, "{tasks} run beside"),
        }
    }
}

impl fmt::Display for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settle => f.write_str("settle"),
            Self::Grace(worker) => write!(f, "grace {worker}"),
            Self::Silence(worker) => write!(f, "silence {worker}"),
            Self::Beside(worker) => write!(f, "beside {worker}"),
        }
    }
}
