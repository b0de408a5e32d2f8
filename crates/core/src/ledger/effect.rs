//! What comes of an entry. The server that applies the log acts on it, and the client that asked is told.

use alloc::string::String;

use super::entry::Start;
use super::groups::Grant;
use super::job::JobId;
use super::loans::{Borrowed, Ending, Lent, LoanId};
use super::roll;
use super::task::{Held, Tasks};
use crate::ids::SessionId;

/// What an entry came to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// The job has this number; it is not new if its key was known.
    Submitted {
        /// Its number.
        job: JobId,
        /// Did this entry make it?
        is_new: bool,
    },
    /// Nothing: its key belongs to this job, which is another one.
    OtherJob(JobId),
    /// Too much waits already, or the job has too many tasks.
    Full,
    /// This attempt's result is recorded, and the task is over.
    Finished(Held),
    /// This attempt failed, and the task is to run again.
    Again(Held),
    /// This attempt's result came too late, and will never be recorded.
    Refused(Held),
    /// Somebody wants these tasks to run again.
    Wanted(Tasks),
    /// This task may start now: it is written down that it does.
    MayStart(Start),
    /// These tasks are not wanted any more.
    Cancelled(Tasks),
    /// A worker came or changed.
    Workers,
    /// This worker is given up.
    Left(String),
    /// Somebody holds a group.
    Granted {
        /// Who, and which group.
        grant: Grant,
        /// Under which token.
        token: u64,
        /// Since when, in milliseconds since 1970.
        since_ms: u64,
    },
    /// Somebody held a group.
    Released {
        /// Which group.
        group: String,
        /// Who.
        session: SessionId,
        /// Under which token.
        token: u64,
    },
    /// A worker of ours is lent, under this number.
    Lent(LoanId),
    /// It is wanted back.
    Recalled(LoanId),
    /// A loan is over.
    LoanEnded {
        /// Its number.
        loan: LoanId,
        /// What it was.
        lent: Lent,
        /// How it ended.
        ending: Ending,
    },
    /// This worker of another farm works here from now on.
    Borrowed(String),
    /// And does not any more.
    GivenBack(String, Borrowed),
    /// Who is who has changed, or not for this reason.
    Roll(Result<roll::Done, roll::Denial>),
    /// The entry came too late, or made no sense.
    Nothing,
}
