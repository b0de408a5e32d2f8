//! What is written into the log to change the ledger.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::book::Limits;
use super::groups::{Grant, Release};
use super::job::{JobId, Spec};
use super::loans::{Borrow, Ending, Lend, LoanId};
use super::roll;
use super::task::{Attempt, Held, Outcome, TaskId};

/// What one record of the log holds: many entries, because a disk writes a hundred as fast as one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Batch {
    /// When the leader wrote it, in milliseconds since 1970. The ledger reads no clock.
    pub time_ms: u64,
    /// In this order.
    pub entries: Vec<Entry>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Entry {
    /// A new job.
    Submit {
        /// What it is.
        spec: Spec,
        /// A job of this key exists once, however often it is submitted.
        key: Option<String>,
    },
    /// An attempt ended.
    Finish(Report),
    /// A task that must not start twice is about to start.
    Start(Start),
    /// These are not wanted any more.
    Cancel(Target),
    /// These are to run again although they ended badly.
    Retry(Target),
    /// A worker is one of ours from now on.
    Join {
        /// Its name.
        worker: String,
        /// How much it can run at once.
        slots: u16,
    },
    /// It is not any more.
    Leave {
        /// Its name.
        worker: String,
    },
    /// It gets nothing new, or gets work again.
    Drain {
        /// Its name.
        worker: String,
        /// Which of both.
        is_draining: bool,
    },
    /// So much is kept from now on.
    Limit(Limits),
    /// All tasks of this job that failed or were lost are to run again, but none that was cancelled.
    RetryFailed(JobId),
    /// Somebody holds a group from now on.
    Grant(Grant),
    /// And does not any more.
    Release(Release),
    /// A worker of ours is lent.
    Lend(Lend),
    /// It is wanted back.
    Recall(LoanId),
    /// It is back, or dead.
    EndLoan(LoanId, Ending),
    /// A worker of another farm has arrived.
    Borrow(Borrow),
    /// It has left.
    GiveBack {
        /// Its name here.
        worker: String,
        /// The lender's number of the loan.
        loan: LoanId,
    },
    /// Who is who changes.
    Roll(roll::Change),
}

/// How an attempt of a task ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Report {
    /// Which task.
    pub task: TaskId,
    /// How.
    pub outcome: Outcome,
}

impl Report {
    /// The attempt that ended.
    #[must_use]
    pub const fn held(&self) -> Held {
        Held { task: self.task, attempt: self.outcome.attempt }
    }
}

/// The only start of a task that must not start twice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Start {
    /// Which task.
    pub task: TaskId,
    /// Who runs it.
    pub worker: String,
    /// Under which name.
    pub attempt: Attempt,
}

/// A task or all tasks of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Target {
    /// All of them.
    Job(JobId),
    /// One.
    Task(TaskId),
}
