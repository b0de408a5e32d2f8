//! What a farm agrees on: jobs, their tasks' results, who its workers are, whom it has lent and borrowed, who
//! holds which group, and who is who.
//!
//! Everything here is changed by entries of the replicated log and by nothing else. [`Ledger::apply`] is deterministic and
//! total: the same entries give the same ledger everywhere, and an entry that makes no sense (a result of an unknown task,
//! a second result) changes nothing. Who runs what at the moment is not in here: that is the leader's own business, and a
//! new leader finds it out from the workers.

pub mod entry;
pub mod groups;
pub mod job;
pub mod loans;
pub mod roll;
pub mod task;
pub mod timekeeper;

mod book;
mod effect;
mod order;
mod results;
mod weighed;
mod whole;

pub use book::{Ledger, Limits, Registration};
pub use effect::Effect;
pub use entry::{Batch, Entry, Report, Start, Target};
pub use groups::{Grant, Group, GroupRank, GroupRules, Groups, Holding, Release};
pub use job::{CommandLine, Expansion, Job, JobId, Spec, Work};
pub use loans::{Borrow, Borrowed, Ending, Lend, Lent, LoanId, Loans, Why};
pub use roll::Roll;
pub use task::{Attempt, Counts, Held, Outcome, State, Tail, TaskId, Tasks, Verdict};
pub use timekeeper::Timekeeper;
