//! One unit of work: its name, what is agreed about it, and how it ended.

use crate::Term;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::num::ParseIntError;
use core::ops::RangeInclusive;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use super::job::JobId;

/// Names a task: `12.7` is the seventh task of job 12.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    /// Its job.
    pub job: JobId,
    /// Its place in the job, from 1.
    pub index: u64,
}

/// Some tasks of one job: so many of those from the first place to the last. Millions are named in as few words as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tasks {
    /// Their job.
    pub job: JobId,
    /// The place of the first of them.
    pub first: u64,
    /// The place of the last of them.
    pub last: u64,
    /// How many there are. If there are fewer than places, others stand between them.
    pub count: u64,
}

/// Names one start of a task. A bare number would be given out twice by two leaders, so the term is part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Attempt {
    /// The term of the leader that handed it out.
    pub term: Term,
    /// Which of that leader's attempts it is.
    pub sequence: u64,
}

/// One attempt at one task, wherever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Held {
    /// The task.
    pub task: TaskId,
    /// The attempt.
    pub attempt: Attempt,
}

/// What is agreed about a task. Two bytes, because there may be millions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum State {
    /// It has no result yet, and has failed this often.
    Waiting {
        /// Failed attempts so far.
        failures: u8,
    },
    /// A task that must not run twice has been given to a worker.
    Started,
    /// It ended well.
    Done,
    /// It ended badly, and has no attempts left.
    Failed,
    /// It must not run twice, and nobody knows how its only attempt ended.
    Lost,
    /// Somebody did not want it any more.
    Cancelled,
}

/// How many tasks there are in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of the states")]
pub struct Counts {
    pub waiting: u64,
    pub started: u64,
    pub done: u64,
    pub failed: u64,
    pub lost: u64,
    pub cancelled: u64,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Verdict {
    /// The program ended with this code.
    Exited(u8),
    /// A signal ended it.
    Signalled(u8),
    /// It took longer than it may.
    TimedOut,
    /// It could not be started, for this reason.
    Refused(String),
    /// Its worker is gone, and it must not run twice.
    Lost,
}

/// The recorded result of a task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Outcome {
    /// Which start of the task this was.
    pub attempt: Attempt,
    /// Who ran it.
    pub worker: String,
    /// How it ended.
    pub verdict: Verdict,
    /// When it started, on the worker's clock, in microseconds since 1970.
    pub started_us: u64,
    /// How long it ran, in microseconds.
    pub took_us: u64,
    /// The end of what it printed.
    pub stdout: Tail,
    /// The end of its complaints.
    pub stderr: Tail,
}

/// The last part of a stream, and how long the whole was.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Tail {
    /// How many bytes there were.
    pub total: u64,
    /// The last of them, at most [`Tail::LEN_MAX`].
    #[serde(with = "super::whole")]
    pub bytes: Vec<u8>,
}

impl Tasks {
    /// All tasks between these places, both ends included.
    #[must_use]
    pub const fn all(job: JobId, first: u64, last: u64) -> Self {
        Self { job, first, last, count: (last - first).saturating_add(1) }
    }

    /// Are there no others between them?
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.count > self.last - self.first
    }

    /// The first and the last of them, and what is between.
    #[must_use]
    pub const fn ends(&self) -> RangeInclusive<TaskId> {
        TaskId { job: self.job, index: self.first }..=TaskId { job: self.job, index: self.last }
    }

    /// One after the other, and the others between them, too.
    pub fn iter(&self) -> impl Iterator<Item = TaskId> + use<> {
        let job = self.job;
        (self.first..=self.last).map(move |index| TaskId { job, index })
    }
}

impl From<TaskId> for Tasks {
    fn from(task: TaskId) -> Self {
        Self::all(task.job, task.index, task.index)
    }
}

impl Tail {
    /// How much of a stream a result carries.
    pub const LEN_MAX: usize = 4096;

    fn shorten(&mut self) {
        self.bytes.drain(..self.bytes.len().saturating_sub(Self::LEN_MAX));
    }
}

impl Outcome {
    /// No task started later, and none ran longer, in microseconds: 285 years.
    pub const TIME_MAX_US: u64 = 1 << 53;
    /// No reason is longer, in bytes.
    const REASON_LEN_MAX: usize = 4096;

    /// Cuts off what no worker says: it would be kept on the disks of all servers.
    pub fn shorten(&mut self) {
        self.stdout.shorten();
        self.stderr.shorten();
        self.started_us = self.started_us.min(Self::TIME_MAX_US);
        self.took_us = self.took_us.min(Self::TIME_MAX_US);
        if let Verdict::Refused(reason) = &mut self.verdict {
            reason.truncate(reason.floor_char_boundary(Self::REASON_LEN_MAX));
        }
    }
}

impl Verdict {
    /// Did it end well?
    #[must_use]
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Exited(0))
    }
}

impl State {
    /// Will nothing happen to it any more, unless somebody asks for it?
    #[must_use]
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Waiting { .. } | Self::Started)
    }

    /// The state's name, as output contracts spell it. A task that waits may run at the moment; only the leader knows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting { .. } => "queued",
            Self::Started => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Lost => "lost",
            Self::Cancelled => "cancelled",
        }
    }
}

impl Counts {
    pub(super) const fn of(&mut self, state: State) -> &mut u64 {
        match state {
            State::Waiting { .. } => &mut self.waiting,
            State::Started => &mut self.started,
            State::Done => &mut self.done,
            State::Failed => &mut self.failed,
            State::Lost => &mut self.lost,
            State::Cancelled => &mut self.cancelled,
        }
    }

    /// These tasks are now those.
    pub(super) const fn change(&mut self, before: Self, after: Self) {
        self.waiting = self.waiting - before.waiting + after.waiting;
        self.started = self.started - before.started + after.started;
        self.done = self.done - before.done + after.done;
        self.failed = self.failed - before.failed + after.failed;
        self.lost = self.lost - before.lost + after.lost;
        self.cancelled = self.cancelled - before.cancelled + after.cancelled;
    }
}

impl FromIterator<State> for Counts {
    fn from_iter<I: IntoIterator<Item = State>>(states: I) -> Self {
        let mut counts = Self::default();
        states.into_iter().for_each(|state| *counts.of(state) += 1);
        counts
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.index)
    }
}

impl FromStr for TaskId {
    type Err = ParseIntError;

    /// A job's number alone is its first task.
    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let (job, index) = text.split_once('.').unwrap_or((text, "1"));
        Ok(Self { job: JobId(job.parse()?), index: index.parse()? })
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.term, self.sequence)
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.task, self.attempt)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn a_state_takes_two_bytes() {
        assert_eq!(size_of::<State>(), 2);
    }

    #[test]
    fn task_names_read_back_as_written() {
        let task = TaskId { job: JobId(12), index: 7 };
        assert_eq!(task.to_string(), "12.7");
        assert_eq!("12.7".parse(), Ok(task));
        assert_eq!("12".parse(), Ok(TaskId { index: 1, ..task }));
        for wrong in ["", "12.", ".7", "12.7.1", "a"] {
            assert!(wrong.parse::<TaskId>().is_err(), "{wrong}");
        }
    }
}
