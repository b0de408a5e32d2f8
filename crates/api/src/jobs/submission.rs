//! Jobs as they are submitted, one or many at a time: what is read, and what is refused.

use primus_core::ledger::{Effect, Entry};
use primus_shapes::objects::complaint;
use primus_shapes::submission::Submission;

use crate::context::Context;
use crate::problem::Problem;

/// What is written into the log for this.
pub(crate) fn entry(context: &Context, submission: Submission, key: Option<String>) -> Result<Entry, Problem> {
    let spec = submission.spec(context.queue_max).map_err(|(message, hint)| Problem::usage(message, hint))?;
    Ok(Entry::Submit { spec, key })
}

pub(crate) fn tasks_of(entry: &Entry) -> u64 {
    if let Entry::Submit { spec, .. } = entry { spec.expansion.len() } else { 0 }
}

pub(crate) fn strange(error: &serde_json::Error) -> Problem {
    Problem::usage(format!("this is not a job: {}", complaint(error)), "send {\"command\":[\"echo\",\"hello\"]}")
}

/// Why the ledger did not take a job.
pub(crate) fn not_taken(context: &Context, effect: &Effect) -> Problem {
    match effect {
        Effect::OtherJob(job) => Problem::other_job(*job),
        _ => full(context),
    }
}

pub(crate) fn full(context: &Context) -> Problem {
    let most = context.queue_max;
    Problem::full(format!("the queue is full: {most} tasks may wait"), "try again when some have ended")
}
