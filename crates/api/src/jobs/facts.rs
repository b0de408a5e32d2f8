//! Jobs as objects: what the API says of them, and the commands print.

use primus_core::farm::foreman::Foreman;
use primus_core::ledger::{Counts, Job, JobId, Work};
use serde::Serialize;

use crate::values::time_text;

/// A job: `/v1/jobs/12`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct JobFacts {
    job: String,
    name: String,
    command: Vec<String>,
    kind: Option<String>,
    tasks: u64,
    open: u64,
    queued: u64,
    running: u64,
    done: u64,
    failed: u64,
    lost: u64,
    cancelled: u64,
    submitted: String,
    priority: i16,
    cpus: u16,
    retries: u8,
    timeout_ms: Option<u64>,
    no_rerun: bool,
}

impl JobFacts {
    pub(crate) fn new(foreman: &Foreman, id: JobId, job: &Job) -> Self {
        let counts = job.counts();
        let running = foreman.running_of(id).max(counts.started);
        let spec = &job.spec;
        let (command, kind) = match &spec.work {
            Work::Command(command) => (command.arguments.clone(), None),
            Work::Kind { name, .. } => (Vec::new(), Some(name.clone())),
        };
        Self {
            job: id.to_string(),
            name: spec.name.clone(),
            command,
            kind,
            tasks: spec.fan.len(),
            open: job.open(),
            queued: (counts.waiting + counts.started).saturating_sub(running),
            running,
            done: counts.done,
            failed: counts.failed,
            lost: counts.lost,
            cancelled: counts.cancelled,
            submitted: time_text(job.submitted_ms),
            priority: spec.priority,
            cpus: spec.slots(),
            retries: spec.retries,
            timeout_ms: spec.timeout_ms,
            no_rerun: spec.is_once,
        }
    }
}

/// Many jobs in a row: `/v1/jobs/1-1000/wait`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RangeFacts {
    first: String,
    last: String,
    tasks: u64,
    open: u64,
    done: u64,
    failed: u64,
    lost: u64,
    cancelled: u64,
    /// Jobs that ended so long ago, or so many others since, that nothing is known of them.
    forgotten: u64,
}

impl RangeFacts {
    pub(crate) fn new(foreman: &Foreman, first: JobId, last: JobId) -> Self {
        let mut counts = Counts::default();
        let (mut known, mut open) = (0, 0);
        for (_, job) in foreman.ledger().jobs(first).take_while(|(id, _)| *id <= last) {
            known += 1;
            open += job.open();
            add(job, &mut counts);
        }
        let Counts { waiting, started, done, failed, lost, cancelled } = counts;
        Self {
            tasks: waiting + started + done + failed + lost + cancelled,
            open,
            done,
            failed,
            lost,
            cancelled,
            forgotten: (last.0 - first.0 + 1).saturating_sub(known),
            first: first.to_string(),
            last: last.to_string(),
        }
    }
}

fn add(job: &Job, counts: &mut Counts) {
    let Counts { waiting, started, done, failed, lost, cancelled } = job.counts();
    counts.waiting += waiting;
    counts.started += started;
    counts.done += done;
    counts.failed += failed;
    counts.lost += lost;
    counts.cancelled += cancelled;
}
