//! `/v1/tasks/{id}/explain`: why a task is as it is, in a sentence.

use std::time::{Duration, SystemTime};

use axum::Json;
use axum::extract::{Path, State};
use primus_core::farm::foreman::{Foreman, TaskStatus};
use primus_core::ledger::{Attempt, State as TaskState, TaskId};
use primus_shapes::described;
use primus_shapes::schema::Time;
use primus_shapes::values::time;
use serde::Serialize;

use super::facts::reason;
use super::{parse, unknown};
use crate::context::Context;
use crate::problem::Problem;
use crate::values::text_of;
use crate::words::{TaskCode, TaskNumber};

described! {
    /// Why a task is as it is.
    #[derive(Serialize)]
    pub(crate) struct TaskExplanation {
        /// The task.
        task: String as TaskNumber,
        /// The reason in one word.
        code: &'static str as TaskCode,
        /// The reason in a sentence.
        explanation: String,
        /// Since when it has been so; null for a task that has ended.
        since: Option<String> as Option<Time>,
        /// For how long it has been so.
        for_ms: Option<f64>,
    }
}

/// Why a task is as it is.
pub(crate) async fn explain(
    State(context): State<Context>,
    Path(id): Path<String>,
) -> Result<Json<TaskExplanation>, Problem> {
    let id = parse(&id)?;
    let look = move |foreman: &Foreman| Explanation::new(foreman, id);
    let explanation = context.handle.farm.look(look).await?.ok_or_else(|| unknown(id))?;
    let now = SystemTime::now();
    let now_ms = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    let now_ms = u64::try_from(now_ms).unwrap_or(u64::MAX);
    let length = explanation.length(now_ms, |attempt| context.handle.farm.age(attempt));
    Ok(Json(TaskExplanation {
        task: id.to_string(),
        code: explanation.code,
        explanation: explanation.sentence(length),
        since: length.and_then(|length| now.checked_sub(length)).map(text_of),
        for_ms: length.map(|length| length.as_secs_f64() * 1000.0),
    }))
}

/// Why a task is as it is.
struct Explanation {
    code: &'static str,
    /// The beginning of a sentence: for how long comes last.
    why: String,
    since: Since,
}

/// Since when a task is as it is.
#[derive(Clone, Copy)]
enum Since {
    /// It waits since then, by the ledger's clock, in milliseconds since 1970.
    Waits(u64),
    /// It has failed since, or was taken from a worker, and waits again.
    WaitsAgain(u64),
    /// It runs since this attempt was handed out.
    Runs(Attempt),
    /// It has ended.
    Ended,
}

impl Explanation {
    fn new(foreman: &Foreman, id: TaskId) -> Option<Self> {
        let (code, why) = explanation(foreman, id)?;
        let job = foreman.ledger().job(id.job)?;
        let since = match (foreman.status(id), job.state(id.index)?) {
            (TaskStatus::Ended(_) | TaskStatus::Reported(_), _) => Since::Ended,
            (TaskStatus::With { before: 0, .. }, _) => Since::Runs(foreman.assignment_of(id)?.1),
            (_, TaskState::Waiting { failures: 1.. }) => Since::WaitsAgain(job.submitted_ms),
            _ => Since::Waits(job.submitted_ms),
        };
        Some(Self { code, why, since })
    }

    /// For how long it has been so. `age` knows when attempts were handed out.
    fn length(&self, now_ms: u64, age: impl Fn(Attempt) -> Option<Duration>) -> Option<Duration> {
        match self.since {
            Since::Waits(since_ms) | Since::WaitsAgain(since_ms) => {
                Some(Duration::from_millis(now_ms.saturating_sub(since_ms)))
            }
            Since::Runs(attempt) => age(attempt),
            Since::Ended => None,
        }
    }

    /// All of it in one sentence.
    fn sentence(&self, length: Option<Duration>) -> String {
        let Some(length) = length.map(time) else { return self.why.clone() };
        match self.since {
            Since::Waits(_) => format!("{}; it has waited for {length}", self.why),
            Since::WaitsAgain(_) => format!("{}; it was submitted {length} ago", self.why),
            Since::Runs(_) => format!("{} for {length}", self.why),
            Since::Ended => self.why.clone(),
        }
    }
}

/// One word and the beginning of a sentence.
fn explanation(foreman: &Foreman, id: TaskId) -> Option<(&'static str, String)> {
    let job = foreman.ledger().job(id.job)?;
    Some(match foreman.status(id) {
        TaskStatus::Unknown => return None,
        TaskStatus::Ended(TaskState::Done) => {
            let outcome = foreman.ledger().outcome(id);
            let by = outcome.map(|outcome| format!(" on {} in {} ms", outcome.worker, outcome.took_us / 1000));
            ("done", format!("{id} ended well{}", by.unwrap_or_default()))
        }
        TaskStatus::Ended(state) => {
            let why = reason(state, foreman.ledger().outcome(id).as_ref(), job).unwrap_or_default();
            (state.name(), format!("{id} is {}: {why}", state.name()))
        }
        TaskStatus::NotLeading => ("no_leader", format!("{id} waits for a server that leads")),
        TaskStatus::With { worker, before: 0 } => ("running", format!("{id} has been running on {worker}")),
        TaskStatus::With { worker, before } => {
            ("assigned", format!("{id} is next on {worker}, which has {before} before it"))
        }
        TaskStatus::Starting(worker) => {
            ("starting", format!("{id} is about to start on {worker}; that it starts is being written down"))
        }
        TaskStatus::Reported(worker) => {
            ("ending", format!("{id} has ended on {worker}; that is being written down"))
        }
        TaskStatus::Settling(missing) => {
            let names = missing.join(", ");
            (
                "settling",
                format!("{id} waits until all workers have told the new leader what they run; missing: {names}"),
            )
        }
        TaskStatus::NoWorker => ("no_worker", format!("{id} waits for a worker: there is none")),
        TaskStatus::AllDraining => {
            ("draining", format!("{id} waits for a worker: all that could take it are drained"))
        }
        TaskStatus::DisksFull(workers) => {
            let workers = workers.join(", ");
            ("disk_full", format!("{id} waits for a worker: the disk of {workers} is full"))
        }
        TaskStatus::TooLarge { slots, most } => {
            ("too_large", format!("{id} needs {slots} slots, and the largest worker has {most}"))
        }
        TaskStatus::Waits { before: 0 } => ("no_slot", format!("{id} waits for a free slot, and is next")),
        TaskStatus::Waits { before } => ("no_slot", format!("{id} waits for a free slot; {before} come before it")),
    })
}
