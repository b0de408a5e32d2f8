//! Asking through a server in this process.

use std::time::Duration;

use primus_core::ledger::{JobId, Verdict};
use primus_node::handle::Handle;
use primus_node::jobs::{JobView, TaskView};
use primus_node::server::SubmitError;
use primus_shapes::submission::Submission;

use crate::handle::{JobReport, TaskReport, TaskState};
use crate::trouble::Trouble;

/// How long one round of waiting takes.
const WAIT_TIME: Duration = Duration::from_secs(10);

pub(super) async fn submit(server: &Handle, submission: Submission, key: &str) -> Result<JobId, Trouble> {
    // The leader knows how many tasks may wait.
    let spec = submission.spec(u64::MAX).map_err(|(message, _)| Trouble::Wrong(message))?;
    server.submit(spec, Some(key)).await.map_err(|error| match error {
        SubmitError::Full => Trouble::Full(error.to_string()),
        SubmitError::OtherJob(_) => Trouble::KeyTaken(error.to_string()),
        SubmitError::Unable(unable) => unable.into(),
    })
}

pub(super) async fn report(server: &Handle, id: JobId) -> Result<JobReport, Trouble> {
    known(id, server.job(id).await?)
}

pub(super) async fn wait(server: &Handle, id: JobId) -> Result<JobReport, Trouble> {
    known(id, server.wait_for_job(id, WAIT_TIME).await?)
}

fn known(id: JobId, view: Option<JobView>) -> Result<JobReport, Trouble> {
    let JobView { name, counts, running, .. } = view.ok_or(Trouble::NotFound)?;
    let unfinished = counts.waiting + counts.started;
    Ok(JobReport {
        job: id,
        name,
        queued: unfinished.saturating_sub(running),
        running,
        done: counts.done,
        failed: counts.failed,
        lost: counts.lost,
        cancelled: counts.cancelled,
    })
}

pub(super) async fn results(server: &Handle, id: JobId) -> Result<Vec<TaskReport>, Trouble> {
    let mut found = Vec::new();
    loop {
        let page = server.tasks(id, found.len() as u64 + 1).await?.ok_or(Trouble::NotFound)?;
        if page.is_empty() {
            return Ok(found);
        }
        found.extend(page.into_iter().map(task_report));
    }
}

pub(super) async fn cancel(server: &Handle, id: JobId) -> Result<u64, Trouble> {
    server.cancel(id).await?.ok_or(Trouble::NotFound)
}

fn task_report(view: TaskView) -> TaskReport {
    let TaskView { task, state, is_running, outcome } = view;
    let state = TaskState::of(state, is_running);
    let Some(outcome) = outcome else { return TaskReport::new(task, state) };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (exit, reason) = match outcome.verdict {
        Verdict::Exited(0) => (Some(0), None),
        Verdict::Exited(code) => (Some(code), Some(format!("it ended with exit code {code}"))),
        Verdict::Signalled(signal) => (None, Some(format!("signal {signal} ended it"))),
        Verdict::TimedOut => (None, Some("it took too long and was ended".to_owned())),
        Verdict::Refused(reason) => (None, Some(reason)),
        Verdict::Lost => (None, Some("its worker died, and it must not run twice".to_owned())),
    };
    TaskReport {
        worker: Some(outcome.worker),
        exit,
        took: Some(Duration::from_micros(outcome.took_us)),
        stdout: text(&outcome.stdout.bytes),
        stderr: text(&outcome.stderr.bytes),
        reason,
        ..TaskReport::new(task, state)
    }
}
