//! Explorations of what a guest does: a worker that is lent to a farm, the tasks that it gets there, and its way home, in any
//! kind of time.
//!
//! Foreman, ledger and worker are the ones that ship. Nothing here has a length: a timer that is set runs out at any
//! moment, what was proposed is agreed on at any moment, in order, and so is heard what was said on a link. Beyond that a budget
//! says how often somebody dies, a link breaks, a living worker is given up, or is lent again.
//!
//! Left out, to keep the number of states small:
//!
//! - The lender is only its calls. A lender that is out of reach for a while is the same as one that calls later, and the end of the
//!   guest's time is the same as a call home.
//! - The borrower only lets in the workers that are lent.
//! - The log is reduced to its effects ([`crate::servers`] visits logs): a proposal of a dying leader is agreed on or lost, another
//!   server leads at once, and a deposed leader is not heard.
//! - The borrower's own worker, if it has one, never fails and hears everything at once.
//! - A worker sends heartbeats only when it was given up for its silence.
//!
//! How farms agree about loans is explored in [`crate::loans`].
//!
//! These things must always hold. A task is not handed out after its result was recorded. A task with a recorded result has begun.
//! Nothing runs for the borrower on a worker that is at home. A task that must not start twice does not. And from every state in
//! which nothing is under way every task comes to one result, and the guest comes home with nothing to report, once all can reach
//! each other.

mod action;
mod guest;
mod link;
mod scene;

use primus_core::planted::Planted;

use crate::frame::Milestone;

/// A farm that has borrowed a worker.
#[derive(Debug, Clone)]
pub struct Guests {
    /// How many tasks there are.
    pub tasks: u64,
    /// Must none of them start twice?
    pub is_once: bool,
    /// Has the borrower a worker of its own? If not, one comes when all else is over.
    pub has_own: bool,
    /// A bug that is to be found.
    pub planted: Planted,
}

/// What happens only so often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Chance {
    /// The borrower's leader or the guest dies; the guest comes back.
    Crash,
    /// The link between guest and borrower breaks, and all that is on it is lost.
    Cut,
    /// The borrower gives the guest up for its silence, though it lives.
    Doubt,
    /// Its own farm lends the guest once more.
    Call,
}

/// A worker that is at home tells the borrower a result.
pub const TOLD_FROM_HOME: Milestone = Milestone("a result is told from home");
/// A task was stopped at the deadline, and has begun again.
pub const RUNS_AGAIN: Milestone = Milestone("what was stopped begins again");
/// A task has come back that had not begun.
pub const WENT_BACK: Milestone = Milestone("a task goes back that had not begun");
/// A leader has died while the guest worked for it.
pub const LEADER_DIED: Milestone = Milestone("a leader dies while the guest works");
/// A worker that had results to tell was lent to the same farm again.
pub const LENT_AGAIN: Milestone = Milestone("one that has results to tell is lent again");

// What is judged whenever something happens; the last one, wherever nothing is under way.
const NONE_HANDED_OUT_LATE: &str = "no task is handed out whose result is recorded";
const RECORDED_HAS_BEGUN: &str = "what is recorded has begun";
const ONE_RESULT: &str = "a task has one result";
const NOTHING_RUNS_AT_HOME: &str = "nothing runs for the borrower on a worker that is at home";
const ONCE_IS_ONCE: &str = "what must not start twice does not";
const ENDINGS: &str = "every task comes to a result once everybody is reached";
