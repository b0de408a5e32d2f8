//! A job as a program describes it.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use primus_core::ledger::job::Lines;
use primus_shapes::submission::{LINES_LEN_MAX, Submission};

use crate::trouble::Trouble;

/// What a farm is to run: one task, one for each number, or one for each line.
///
/// ```
/// use std::time::Duration;
/// use primus_farm::Job;
///
/// // A command; no shell is involved. `{}` becomes the task's number or line.
/// let convert = Job::command(["convert", "{}", "{}.png"]).lines(["a.jpg", "b.jpg"]).retries(2);
/// // What workers have under a name, without a process for each task.
/// let count = Job::kind("primes", "1000000").timeout(Duration::from_secs(60)).priority(5);
/// ```
#[derive(Clone)]
#[must_use = "a job does nothing until it is submitted"]
pub struct Job {
    submission: Submission,
    key: Option<String>,
    /// True if there are more lines than a job can have.
    is_too_long: bool,
}

/// Why a job was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// Your program's mistake: a job that makes no sense, or is too long.
    #[error("{0}")]
    Job(String),
    /// Your program's mistake: another job was submitted under the same key.
    #[error("{0}")]
    KeyTaken(String),
    /// The farm has no room: too many tasks wait, or its disks are full.
    #[error("{0}")]
    Full(String),
    /// The server does not allow it.
    #[error("{0}")]
    NotAllowed(String),
    /// The farm's fault: no server leads. The job was not taken.
    #[error("{0}")]
    Unavailable(String),
    /// The farm's fault, and the job may have been taken: under a key it can be submitted again.
    #[error("{0}")]
    Unknown(String),
}

impl Job {
    /// A program and its arguments.
    pub fn command(words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let command = words.into_iter().map(Into::into).collect();
        Self::new(Submission { command, ..Submission::default() })
    }

    /// A call of what workers have under this name, with this input.
    pub fn kind(name: impl Into<String>, input: impl Into<String>) -> Self {
        Self::new(Submission { kind: Some(name.into()), input: Some(input.into()), ..Submission::default() })
    }

    const fn new(submission: Submission) -> Self {
        Self { submission, key: None, is_too_long: false }
    }

    /// Makes one task for each of these numbers.
    pub fn array(mut self, numbers: RangeInclusive<u64>) -> Self {
        self.submission.array = Some(format!("{}-{}", numbers.start(), numbers.end()));
        self
    }

    /// Makes one task for each of these lines.
    pub fn lines(mut self, lines: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut all = Lines::default();
        self.is_too_long = !lines.into_iter().all(|line| all.push(line.as_ref()));
        self.submission.lines = Some(all);
        self
    }

    /// Sets the name of the job, for people.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.submission.name = Some(name.into());
        self
    }

    /// Sets how often a task that fails is tried again: by default never. A task whose worker dies runs again in any case.
    pub const fn retries(mut self, retries: u8) -> Self {
        self.submission.retries = retries;
        self
    }

    /// Sets how long a task may run: at most 24 hours.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.submission.timeout_ms = Some(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Lets no task begin twice, even if one is lost for that when its worker dies.
    pub const fn run_once(mut self) -> Self {
        self.submission.no_rerun = true;
        self
    }

    /// Sets the priority, from -1000 to 1000: a task with a greater one goes first.
    pub const fn priority(mut self, priority: i16) -> Self {
        self.submission.priority = priority;
        self
    }

    /// Sets how many slots a task takes.
    pub const fn cpus(mut self, cpus: u16) -> Self {
        self.submission.cpus = Some(cpus);
        self
    }

    /// Sets an environment variable of a command.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.submission.env.insert(name.into(), value.into());
        self
    }

    /// Sets the folder in which a command starts.
    pub fn directory(mut self, directory: impl Into<String>) -> Self {
        self.submission.cwd = Some(directory.into());
        self
    }

    /// Sets what a command reads: at most a mebibyte.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.submission.set_stdin(bytes.into());
        self
    }

    /// Sets a key under which this job is taken once, however often your program submits it, also after a restart.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// What is submitted, and under which key.
    pub(crate) fn into_parts(self) -> Result<(Submission, String), SubmitError> {
        if self.is_too_long {
            return Err(SubmitError::Job(format!("the lines have more than {LINES_LEN_MAX} bytes")));
        }
        Ok((self.submission, self.key.unwrap_or_else(fresh_key)))
    }
}

fn fresh_key() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    format!("{:032x}", u128::from_be_bytes(bytes))
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.submission.fmt(f)
    }
}

impl From<Trouble> for SubmitError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Wrong(words) => Self::Job(words),
            Trouble::KeyTaken(words) => Self::KeyTaken(words),
            Trouble::Full(words) => Self::Full(words),
            Trouble::NotAllowed(words) => Self::NotAllowed(words),
            Trouble::NotFound => Self::Unavailable("the server does not know what was asked".to_owned()),
            Trouble::Unavailable(words) => Self::Unavailable(words),
            Trouble::Unknown(words) => Self::Unknown(words),
        }
    }
}
