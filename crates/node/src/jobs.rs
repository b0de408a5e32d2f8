//! Jobs, as any server of a farm can be asked about them: how they are, how their tasks ended, and that they end.
//!
//! Only the leader knows what runs, so what is asked of another server travels to the leader over links of the
//! servers (`questions.rs`). An answer has a bound: tasks come page by page, and a wait is answered after a moment and asked again.

use std::time::Duration;

use primus_core::farm::foreman::Foreman;
use primus_core::ledger::{Counts, Effect, Entry, Job, JobId, Outcome, State, Target, TaskId, Verdict};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use crate::farm::Awaited;
use crate::handle::{Handle, Unable};
use crate::leader_search::Patience;
use crate::questions::{LeaderReply, LeaderRequest};

/// How long a leader keeps one question about a job that has not ended.
const WAIT_TIME_MAX: Duration = Duration::from_secs(2);
/// How many tasks one answer tells of.
const TASKS_MAX: usize = 1000;
/// How long that answer may be, in bytes: it must fit into a frame.
const TASKS_LEN_MAX: usize = 512 << 10;
/// What a task takes in an answer beside what is said of its end.
const TASK_LEN: usize = 128;

/// A job as its leader sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    /// The name that people gave it.
    pub name: String,
    /// How many tasks are in which state, as agreed.
    pub counts: Counts,
    /// How many tasks run.
    pub running: u64,
    /// How many tasks have not ended.
    pub open: u64,
}

/// A task as its leader sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskView {
    /// Its name.
    pub task: TaskId,
    /// What is agreed about it.
    pub state: State,
    /// True if a worker runs it now.
    pub is_running: bool,
    /// How it ended, as long as that is kept.
    pub outcome: Option<Outcome>,
}

impl JobView {
    fn new(foreman: &Foreman, id: JobId, job: &Job) -> Self {
        let counts = job.counts();
        let running = foreman.running_of(id).max(counts.started);
        Self { name: job.spec.name.clone(), counts, running, open: job.open() }
    }
}

impl Handle {
    /// A job as it is now; nothing if there is no such job.
    ///
    /// # Errors
    /// If no server leads for five seconds.
    pub async fn job(&self, id: JobId) -> Result<Option<JobView>, Unable> {
        match self.ask_patiently(LeaderRequest::Job(id), Patience::LONG).await? {
            LeaderReply::JobView(view) => Ok(view),
            _ => Err(Unable::Unknown),
        }
    }

    /// The same, when it has ended or this much time has passed.
    ///
    /// # Errors
    /// As [`Handle::job`].
    pub async fn wait_for_job(&self, id: JobId, time: Duration) -> Result<Option<JobView>, Unable> {
        let by = Instant::now().checked_add(time);
        loop {
            let left = by.map_or(WAIT_TIME_MAX, |by| by.saturating_duration_since(Instant::now()));
            let part_ms = u32::try_from(left.min(WAIT_TIME_MAX).as_millis()).unwrap_or(u32::MAX);
            let LeaderReply::JobView(view) =
                self.ask_patiently(LeaderRequest::Wait(id, part_ms), Patience::LONG).await?
            else {
                return Err(Unable::Unknown);
            };
            let is_over = view.as_ref().is_none_or(|view| view.open == 0);
            if is_over || left < WAIT_TIME_MAX {
                return Ok(view);
            }
        }
    }

    /// Some tasks of a job, from this place on (from 1): fewer than there are if they are many or have printed much, and none
    /// behind the last. Nothing if there is no such job.
    ///
    /// # Errors
    /// As [`Handle::job`].
    pub async fn tasks(&self, id: JobId, from: u64) -> Result<Option<Vec<TaskView>>, Unable> {
        match self.ask_patiently(LeaderRequest::Tasks(id, from), Patience::LONG).await? {
            LeaderReply::Tasks(tasks) => Ok(tasks),
            _ => Err(Unable::Unknown),
        }
    }

    /// Cancels what has not ended of a job, and says how many tasks that were. Nothing if there is no such job.
    ///
    /// # Errors
    /// As [`Handle::job`].
    pub async fn cancel(&self, id: JobId) -> Result<Option<u64>, Unable> {
        match self.ask_patiently(LeaderRequest::Cancel(id), Patience::LONG).await? {
            LeaderReply::Cancelled(count) => Ok(count),
            _ => Err(Unable::Unknown),
        }
    }
}

/// What a leader answers.
impl Handle {
    pub(crate) async fn job_here(&self, id: JobId) -> Result<Option<JobView>, Unable> {
        self.farm.look(move |foreman| foreman.ledger().job(id).map(|job| JobView::new(foreman, id, job))).await
    }

    pub(crate) async fn wait_here(&self, id: JobId, time_ms: u32) -> Result<Option<JobView>, Unable> {
        let time = Duration::from_millis(time_ms.into()).min(WAIT_TIME_MAX);
        // What has not ended is told as it is.
        timeout(time, self.farm.ended(vec![Awaited::Jobs(id, id)])).await.unwrap_or(Ok(()))?;
        self.job_here(id).await
    }

    pub(crate) async fn tasks_here(&self, id: JobId, from: u64) -> Result<Option<Vec<TaskView>>, Unable> {
        self.farm.look(move |foreman| tasks(foreman, id, from)).await
    }

    pub(crate) async fn cancel_here(&self, id: JobId) -> Result<Option<u64>, Unable> {
        if self.job_here(id).await?.is_none() {
            return Ok(None);
        }
        let effects = self.farm.enter(vec![Entry::Cancel(Target::Job(id))]).await?;
        let count = |effect: &Effect| if let Effect::Cancelled(tasks) = effect { tasks.count } else { 0 };
        Ok(Some(effects.iter().map(count).sum()))
    }
}

fn tasks(foreman: &Foreman, id: JobId, from: u64) -> Option<Vec<TaskView>> {
    let job = foreman.ledger().job(id)?;
    let running = foreman.running();
    let (mut found, mut len) = (Vec::new(), 0);
    for index in from.max(1).. {
        let Some(state) = job.state(index) else { break };
        let task = TaskId { job: id, index };
        let outcome = foreman.ledger().outcome(task);
        len += TASK_LEN + outcome.as_ref().map_or(0, said_len);
        if found.len() == TASKS_MAX || len > TASKS_LEN_MAX && !found.is_empty() {
            break;
        }
        let is_running = !state.is_final() && running.contains(&task);
        found.push(TaskView { task, state, is_running, outcome });
    }
    Some(found)
}

fn said_len(outcome: &Outcome) -> usize {
    let reason = if let Verdict::Refused(reason) = &outcome.verdict { reason.len() } else { 0 };
    outcome.worker.len() + outcome.stdout.bytes.len() + outcome.stderr.bytes.len() + reason
}
