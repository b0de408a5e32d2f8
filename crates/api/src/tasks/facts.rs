//! Tasks as objects: what the API says of them, and the commands print.

use primus_core::farm::foreman::Foreman;
use primus_core::ledger::{Job, Outcome, State, Tail, TaskId, Verdict};
use primus_shapes::described;
use primus_shapes::schema::Time;
use serde::Serialize;

use crate::values::time_text;
use crate::words::{AttemptNumber, JobNumber, TaskNumber, TaskState, TaskVerdict};

described! {
    /// A task.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub(crate) struct TaskFacts {
        /// The task: its job, and its place in that.
        task: String as TaskNumber,
        /// Its job.
        job: String as JobNumber,
        /// What its state is.
        state: &'static str as TaskState,
        /// Its number or its line, if its job has such; else empty.
        argument: String,
        /// How often it has failed and was tried again.
        failures: u8,
        /// The worker that has it, or had it last.
        worker: Option<String>,
        /// The attempt that runs, or was the last.
        attempt: Option<String> as Option<AttemptNumber>,
        /// Why it ended as it did, if it did not end well.
        reason: Option<String>,
        #[serde(flatten)]
        result: Option<ResultFacts>,
    }
}

described! {
    /// What came of a task, as far as it is kept.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    struct ResultFacts {
        /// How its last attempt ended.
        verdict: &'static str as TaskVerdict,
        /// Its exit code, if it ended by itself.
        exit: Option<u8>,
        /// The signal that ended it.
        signal: Option<u8>,
        /// When it started, by its worker's clock; null if it did not.
        started: Option<String> as Option<Time>,
        /// The same in microseconds since 1970; 0 if it did not start.
        started_us: u64,
        /// How long it took.
        took_ms: f64,
        /// The end of what it printed; all of it is at /v1/tasks/{id}/output.
        stdout: String,
        /// How many bytes it printed.
        stdout_len: u64,
        /// The end of what it printed to stderr.
        stderr: String,
        /// How many bytes it printed to stderr.
        stderr_len: u64,
    }
}

/// A task: `/v1/tasks/12.7`. `is_running`: does it run at the moment, as far as the leader can tell?
pub(crate) fn task(foreman: &Foreman, id: TaskId, is_running: bool) -> Option<TaskFacts> {
    let job = foreman.ledger().job(id.job)?;
    let state = job.state(id.index)?;
    let whereabouts = foreman.assignment_of(id).filter(|_| !state.is_final());
    let outcome = foreman.ledger().outcome(id);
    let worker = whereabouts.map(|(worker, _)| worker).or(outcome.as_ref().map(|outcome| outcome.worker.as_str()));
    let attempt = whereabouts.map(|(_, attempt)| attempt).or(outcome.as_ref().map(|outcome| outcome.attempt));
    Some(TaskFacts {
        task: id.to_string(),
        job: id.job.to_string(),
        state: if is_running && !state.is_final() { "running" } else { state.name() },
        argument: job.spec.expansion.argument(id.index),
        failures: if let State::Waiting { failures } = state { failures } else { 0 },
        worker: worker.map(str::to_owned),
        attempt: attempt.map(|attempt| attempt.to_string()),
        reason: reason(state, outcome.as_ref(), job),
        result: outcome.as_ref().map(result),
    })
}

fn result(outcome: &Outcome) -> ResultFacts {
    let (verdict, exit, signal) = match &outcome.verdict {
        Verdict::Exited(code) => ("exited", Some(*code), None),
        Verdict::Signalled(signal) => ("signalled", None, Some(*signal)),
        Verdict::TimedOut => ("timed_out", None, None),
        Verdict::Refused(_) => ("refused", None, None),
        Verdict::Lost => ("lost", None, None),
    };
    let text = |tail: &Tail| String::from_utf8_lossy(&tail.bytes).into_owned();
    ResultFacts {
        verdict,
        exit,
        signal,
        started: (outcome.started_us > 0).then(|| time_text(outcome.started_us / 1000)),
        started_us: outcome.started_us,
        took_ms: outcome.took_us as f64 / 1000.0,
        stdout: text(&outcome.stdout),
        stdout_len: outcome.stdout.total,
        stderr: text(&outcome.stderr),
        stderr_len: outcome.stderr.total,
    }
}

/// Why it ended as it did, if it did not end well.
pub(crate) fn reason(state: State, outcome: Option<&Outcome>, job: &Job) -> Option<String> {
    let verdict = outcome.map(|outcome| &outcome.verdict);
    match (state, verdict) {
        (State::Cancelled, _) => Some("somebody cancelled it".to_owned()),
        (State::Failed | State::Lost, Some(verdict)) => Some(words(verdict, job)),
        (State::Failed | State::Lost, None) => Some("its result is not kept any more".to_owned()),
        _ => None,
    }
}

fn words(verdict: &Verdict, job: &Job) -> String {
    match verdict {
        Verdict::Exited(code) => format!("it ended with exit code {code}"),
        Verdict::Signalled(signal) => format!("signal {signal} ended it"),
        Verdict::TimedOut => {
            format!("it took longer than {} ms and was ended", job.spec.timeout_ms.unwrap_or_default())
        }
        Verdict::Refused(reason) => reason.clone(),
        Verdict::Lost => "its worker died, and it must not run twice".to_owned(),
    }
}
