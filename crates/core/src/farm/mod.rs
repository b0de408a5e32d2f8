//! Who works for whom: what a leader and its workers say to each other, and how tasks find workers.
//!
//! [`foreman`] is the leader's side, [`worker`] the worker's, [`assign`] the rule by which a task finds its worker. All of it
//! is soft: what must not be lost is in the [ledger](crate::ledger), or on the worker's disk until the ledger has it.

pub mod assign;
pub mod foreman;
pub mod worker;

mod leadership;
mod past;
mod queue;
#[cfg(test)]
mod tests;

use crate::Term;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::bounds::at_most;
use crate::ledger::{Held, LoanId, Report, Work};
use crate::load::Load;

/// No worker has more slots: a configuration names no more, and a worker that claims more counts as having this many.
pub const SLOTS_MAX: u16 = 4096;

/// No worker tells of more attempts in one word: it holds as many as it has slots, and some in advance.
pub const HELD_MAX: usize = 1 << 16;
/// No worker tells of more results in one word.
pub const ENDED_MAX: usize = 1000;

/// What a leader and a worker say to each other. What comes from a leader carries its term; a worker obeys the newest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// Worker: I am here, and this is what I have.
    Hello(Hello),
    /// Worker: these attempts have ended; I keep the results until they are recorded.
    Ended(#[serde(deserialize_with = "at_most::<ENDED_MAX, _, _>")] Vec<Report>),
    /// Worker: I shall not come to an end with these. Most of them I had not even begun with.
    GaveBack(#[serde(deserialize_with = "at_most::<HELD_MAX, _, _>")] Vec<Held>),
    /// Worker: I am alive, and this loaded.
    Beat(Load),
    /// Leader of this term: I do not know you; say hello.
    WhoAreYou(Term),
    /// Leader of this term: I know you. Everything that you reported has been taken up.
    Welcome(Term),
    /// Leader: run these when there is room.
    Run(Term, Vec<Assignment>),
    /// Leader: give these back if you have not begun with them.
    GiveBack(Term, Vec<Held>),
    /// Leader: end these at once.
    Stop(Term, Vec<Held>),
    /// Leader: these results are recorded, or will never be; forget them.
    Forget(Term, Vec<Held>),
    /// Worker: give me new work, or none: there is no room for results on my disk, or I am about to go.
    Room(bool),
    /// Worker, to the server that it stands beside: so many tasks run here, whichever farm's they are.
    Beside(u32),
}

/// How a worker introduces itself, to every new leader and after every lost link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Hello {
    /// Its name.
    pub name: String,
    /// The newest term that it has heard of. An older leader is deposed, and knows nothing of what was done since.
    pub term: Term,
    /// How much it can run at once. Nothing, if it only has results to tell and works for another farm by now.
    pub slots: u16,
    /// Under which loan it has come, if it is another farm's.
    pub loan: Option<LoanId>,
    /// What it runs, or will run.
    #[serde(deserialize_with = "at_most::<HELD_MAX, _, _>")]
    pub held: Vec<Held>,
    /// What has ended and is not known to be recorded.
    #[serde(deserialize_with = "at_most::<ENDED_MAX, _, _>")]
    pub ended: Vec<Report>,
}

/// What a worker is given.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Assignment {
    /// Which attempt at which task.
    pub held: Held,
    /// What to do, as submitted. The worker fills in the task's own argument: filled in twice, an argument that has braces
    /// itself would grow.
    pub work: Work,
    /// That argument.
    pub argument: String,
    /// The task's number, as people count: from where the array begins.
    pub number: u64,
    /// How long it may take.
    pub timeout_ms: Option<u64>,
    /// How many slots it takes.
    pub cpus: u16,
    /// Must it not start twice? Then nobody else gets it, whatever happens.
    pub is_once: bool,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, what: &str, held: &[Held]| {
            f.write_str(what)?;
            held.iter().try_for_each(|held| write!(f, " {held}"))
        };
        match self {
            Self::Hello(hello) => write!(f, "hello of {}", hello.name),
            Self::Ended(reports) => {
                f.write_str("ended")?;
                reports.iter().try_for_each(|report| write!(f, " {}", report.task))
            }
            Self::GaveBack(held) => list(f, "gave back", held),
            Self::Beat(load) => write!(f, "beat {}", load.score),
            Self::WhoAreYou(term) => write!(f, "who are you, in term {term}"),
            Self::Welcome(term) => write!(f, "welcome to term {term}"),
            Self::Run(_, assignments) => {
                f.write_str("run")?;
                assignments.iter().try_for_each(|assignment| write!(f, " {}", assignment.held))
            }
            Self::GiveBack(_, held) => list(f, "give back", held),
            Self::Stop(_, held) => list(f, "stop", held),
            Self::Forget(_, held) => list(f, "forget", held),
            Self::Room(has_room) => f.write_str(if *has_room { "room" } else { "no room" }),
            Self::Beside(tasks) => write!(f, "{tasks} run beside you"),
        }
    }
}
