//! Tasks as objects: what the API says of them, and the commands print.

use primus_core::farm::foreman::Foreman;
use primus_core::ledger::{Job, Outcome, State, Tail, TaskId, Verdict};
use serde_json::{Map, Value, json};

use crate::values::time_text;

/// A task: `/v1/tasks/12.7`. `is_running`: does it run at the moment, as far as the leader can tell?
pub(crate) fn task(foreman: &Foreman, id: TaskId, is_running: bool) -> Option<Map<String, Value>> {
    let job = foreman.ledger().job(id.job)?;
    let state = job.state(id.index)?;
    let mut facts = Map::new();
    let mut say = |name: &str, value: Value| _ = facts.insert(name.to_owned(), value);
    say("task", json!(id.to_string()));
    say("job", json!(id.job.to_string()));
    say("state", json!(if is_running && !state.is_final() { "running" } else { state.name() }));
    say("argument", json!(job.spec.fan.argument(id.index)));
    say("failures", json!(if let State::Waiting { failures } = state { failures } else { 0 }));
    let whereabouts = foreman.whereabouts(id).filter(|_| !state.is_final());
    let outcome = foreman.ledger().outcome(id);
    let worker = whereabouts.map(|(worker, _)| worker).or(outcome.as_ref().map(|outcome| outcome.worker.as_str()));
    let attempt = whereabouts.map(|(_, attempt)| attempt).or(outcome.as_ref().map(|outcome| outcome.attempt));
    say("worker", json!(worker));
    say("attempt", json!(attempt.map(|attempt| attempt.to_string())));
    say("reason", json!(reason(state, outcome.as_ref(), job)));
    if let Some(outcome) = outcome {
        facts.extend(result(&outcome));
    }
    Some(facts)
}

fn result(outcome: &Outcome) -> Map<String, Value> {
    let (verdict, exit, signal) = match &outcome.verdict {
        Verdict::Exited(code) => ("exited", Some(*code), None),
        Verdict::Signalled(signal) => ("signalled", None, Some(*signal)),
        Verdict::TimedOut => ("timed_out", None, None),
        Verdict::Refused(_) => ("refused", None, None),
        Verdict::Lost => ("lost", None, None),
    };
    let text = |tail: &Tail| String::from_utf8_lossy(&tail.bytes).into_owned();
    let facts = json!({
        "verdict": verdict,
        "exit": exit,
        "signal": signal,
        "started": (outcome.started_us > 0).then(|| time_text(outcome.started_us / 1000)),
        "started_us": outcome.started_us,
        "took_ms": outcome.took_us as f64 / 1000.0,
        "stdout": text(&outcome.stdout),
        "stdout_len": outcome.stdout.total,
        "stderr": text(&outcome.stderr),
        "stderr_len": outcome.stderr.total,
    });
    if let Value::Object(facts) = facts { facts } else { Map::new() }
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
