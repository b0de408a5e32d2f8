//! A job that was submitted: how it is, how it ended, and that it ends.

use std::fmt;
use std::time::Duration;

use primus_client::Attempts;
use primus_core::ledger::{JobId, State, TaskId};
use primus_core::retry::Retry;

use crate::client::Client;
use crate::trouble::Trouble;

/// How long a farm may have no server that knows, while a program waits for a job.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(100);

/// A job by its number: from [`Client::submit`] or [`Client::job`].
#[derive(Debug, Clone)]
pub struct JobHandle {
    client: Client,
    id: JobId,
}

/// How a job is: how many of its tasks are in which state.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobReport {
    /// The number of the job.
    pub job: JobId,
    /// The name that people gave it.
    pub name: String,
    /// Tasks that wait.
    pub queued: u64,
    /// Tasks that run.
    pub running: u64,
    /// Tasks that ended well.
    pub done: u64,
    /// Tasks that ended badly and have no attempts left.
    pub failed: u64,
    /// Tasks that must not run twice, and whose worker died.
    pub lost: u64,
    /// Tasks that were cancelled.
    pub cancelled: u64,
}

/// How a task is, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskReport {
    /// The name of the task: `12.7` is the seventh task of job 12.
    pub task: TaskId,
    /// What became of it.
    pub state: TaskState,
    /// The worker that ran it.
    pub worker: Option<String>,
    /// The exit code of its command; 0 or 1 for a kind.
    pub exit: Option<u8>,
    /// How long it ran.
    pub took: Option<Duration>,
    /// The end of what it printed, or what its kind gave back: up to 4 KiB.
    pub stdout: String,
    /// The end of its complaints: up to 4 KiB.
    pub stderr: String,
    /// Why it did not end well.
    pub reason: Option<String>,
}

/// What became of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TaskState {
    /// It waits.
    Queued,
    /// A worker runs it.
    Running,
    /// It ended well.
    Done,
    /// It ended badly and has no attempts left.
    Failed,
    /// It must not run twice, and its worker died.
    Lost,
    /// It was cancelled.
    Cancelled,
}

/// Why a farm says nothing about a job, or does nothing with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// Your program's mistake, or a matter of time: the farm does not know the job, or not any more.
    #[error("job {0} does not exist, or it ended long ago")]
    NoSuchJob(JobId),
    /// The server does not allow it.
    #[error("{0}")]
    NotAllowed(String),
    /// The farm's fault: no server leads, or none answers. Ask again later.
    #[error("{0}")]
    Unavailable(String),
}

impl JobHandle {
    pub(crate) const fn new(client: Client, id: JobId) -> Self {
        Self { client, id }
    }

    /// The number of the job.
    #[must_use]
    pub const fn id(&self) -> JobId {
        self.id
    }

    /// How the job is now.
    ///
    /// # Errors
    /// See [`JobError`].
    pub async fn report(&self) -> Result<JobReport, JobError> {
        self.client.report(self.id).await.map_err(|trouble| self.error(trouble))
    }

    /// Waits until all tasks of the job have ended, however often the leader changes meanwhile.
    ///
    /// # Errors
    /// If the farm does not know the job, or no server leads for half a minute.
    pub async fn wait(&self) -> Result<JobReport, JobError> {
        let attempts = || Attempts::new(Retry::steady(PATIENCE, PAUSE));
        let mut silent = attempts();
        loop {
            match self.client.wait(self.id).await {
                Ok(report) if report.is_over() => return Ok(report),
                Ok(_) => silent = attempts(),
                Err(trouble) => {
                    if !silent.go_on(trouble.fate(), true).await {
                        return Err(self.error(trouble));
                    }
                }
            }
        }
    }

    /// How each task of the job is, in order. What a task printed is kept for a while after its end.
    ///
    /// # Errors
    /// See [`JobError`].
    pub async fn results(&self) -> Result<Vec<TaskReport>, JobError> {
        self.client.results(self.id).await.map_err(|trouble| self.error(trouble))
    }

    /// Cancels what has not ended of the job, and says how many tasks that were.
    ///
    /// # Errors
    /// See [`JobError`]. To cancel what is cancelled is not an error.
    pub async fn cancel(&self) -> Result<u64, JobError> {
        self.client.cancel(self.id).await.map_err(|trouble| self.error(trouble))
    }

    fn error(&self, trouble: Trouble) -> JobError {
        match trouble {
            Trouble::NotFound => JobError::NoSuchJob(self.id),
            Trouble::NotAllowed(words) => JobError::NotAllowed(words),
            Trouble::Wrong(words)
            | Trouble::KeyTaken(words)
            | Trouble::Full(words)
            | Trouble::Unavailable(words)
            | Trouble::Unknown(words) => JobError::Unavailable(words),
        }
    }
}

impl JobReport {
    /// How many tasks the job has.
    #[must_use]
    pub const fn tasks(&self) -> u64 {
        self.queued + self.running + self.done + self.failed + self.lost + self.cancelled
    }

    /// True if all tasks have ended.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.queued + self.running == 0
    }

    /// True if all tasks have ended well.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        self.done == self.tasks()
    }
}

impl TaskReport {
    /// A task of which nothing else is known.
    pub(crate) fn new(task: TaskId, state: TaskState) -> Self {
        let (stdout, stderr) = (String::new(), String::new());
        Self { task, state, worker: None, exit: None, took: None, stdout, stderr, reason: None }
    }
}

impl TaskState {
    const ALL: [Self; 6] = [Self::Queued, Self::Running, Self::Done, Self::Failed, Self::Lost, Self::Cancelled];

    pub(crate) const fn of(state: State, is_running: bool) -> Self {
        match state {
            State::Waiting { .. } if is_running => Self::Running,
            State::Waiting { .. } => Self::Queued,
            State::Started => Self::Running,
            State::Done => Self::Done,
            State::Failed => Self::Failed,
            State::Lost => Self::Lost,
            State::Cancelled => Self::Cancelled,
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Lost => "lost",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_called_as_in_the_api() {
        for state in TaskState::ALL {
            assert_eq!(TaskState::named(&state.to_string()), Some(state));
        }
        let states = [State::Waiting { failures: 1 }, State::Started, State::Done, State::Failed, State::Lost];
        for state in states {
            assert_eq!(TaskState::of(state, false).name(), state.name());
        }
        assert_eq!(TaskState::of(State::Waiting { failures: 0 }, true), TaskState::Running);
    }
}
