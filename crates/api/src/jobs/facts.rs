//! Jobs as objects: what the API says of them, and the commands print.

use primus_core::farm::foreman::Foreman;
use primus_core::ledger::{Counts, Job, JobId, Work};
use primus_shapes::described;
use primus_shapes::schema::Time;
use serde::Serialize;

use crate::values::time_text;
use crate::words::JobNumber;

described! {
    /// A job.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub(crate) struct JobFacts {
        /// The job's number.
        job: String as JobNumber,
        /// Its name, for people.
        name: String,
        /// The program and its arguments; empty if it is a kind.
        command: Vec<String>,
        /// The kind, if it is one; else null.
        kind: Option<String>,
        /// How many tasks it has.
        tasks: u64,
        /// How many of them have not ended.
        open: u64,
        /// How many wait.
        queued: u64,
        /// How many run.
        running: u64,
        /// How many ended well.
        done: u64,
        /// How many failed.
        failed: u64,
        /// How many were lost: their worker died, and they must not run twice.
        lost: u64,
        /// How many were cancelled.
        cancelled: u64,
        /// When it was submitted.
        submitted: String as Time,
        /// Its priority: greater goes first.
        priority: i16,
        /// How many slots a task takes.
        cpus: u16,
        /// How often a task that fails is tried again.
        retries: u8,
        /// How long a task may run; null if it may run for ever.
        timeout_ms: Option<u64>,
        /// True if a task that may have begun must not begin again.
        no_rerun: bool,
    }
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
            tasks: spec.expansion.len(),
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

described! {
    /// Jobs in a row, counted together.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub(crate) struct RangeFacts {
        /// The first job.
        first: String as JobNumber,
        /// The last job.
        last: String as JobNumber,
        /// How many tasks those have that are kept.
        tasks: u64,
        /// How many of them have not ended.
        open: u64,
        /// How many ended well.
        done: u64,
        /// How many failed.
        failed: u64,
        /// How many were lost.
        lost: u64,
        /// How many were cancelled.
        cancelled: u64,
        /// How many jobs ended so long ago, or so many others since, that they are not kept.
        forgotten: u64,
    }
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
