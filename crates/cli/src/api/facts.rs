//! Jobs, tasks and workers as objects: what the API says of them, and the commands print.

use std::time::Duration;

use primus_core::farm::foreman::{Foreman, Standing};
use primus_core::ledger::loans::home_of;
use primus_core::ledger::{Attempt, Counts, Job, JobId, Loans, Outcome, State, Tail, TaskId, Verdict, Work};
use primus_terminal::values::time;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::answers::{number, time_text};

/// A job: `/v1/jobs/12`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct JobFacts {
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
    pub(super) fn new(foreman: &Foreman, id: JobId, job: &Job) -> Self {
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
pub(super) struct RangeFacts {
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
    pub(super) fn new(foreman: &Foreman, first: JobId, last: JobId) -> Self {
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

/// A task: `/v1/tasks/12.7`. `is_running`: does it run at the moment, as far as the leader can tell?
pub(super) fn task(foreman: &Foreman, id: TaskId, is_running: bool) -> Option<Map<String, Value>> {
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
fn reason(state: State, outcome: Option<&Outcome>, job: &Job) -> Option<String> {
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

/// Why a task is as it is.
pub(super) struct Explanation {
    pub(super) code: &'static str,
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
    pub(super) fn new(foreman: &Foreman, id: TaskId) -> Option<Self> {
        let (code, why) = explanation(foreman, id)?;
        let job = foreman.ledger().job(id.job)?;
        let since = match (foreman.standing(id), job.state(id.index)?) {
            (Standing::Ended(_) | Standing::Reported(_), _) => Since::Ended,
            (Standing::With { before: 0, .. }, _) => Since::Runs(foreman.whereabouts(id)?.1),
            (_, State::Waiting { failures: 1.. }) => Since::WaitsAgain(job.submitted_ms),
            _ => Since::Waits(job.submitted_ms),
        };
        Some(Self { code, why, since })
    }

    /// For how long it has been so. `age` knows when attempts were handed out.
    pub(super) fn length(&self, now_ms: u64, age: impl Fn(Attempt) -> Option<Duration>) -> Option<Duration> {
        match self.since {
            Since::Waits(since_ms) | Since::WaitsAgain(since_ms) => {
                Some(Duration::from_millis(now_ms.saturating_sub(since_ms)))
            }
            Since::Runs(attempt) => age(attempt),
            Since::Ended => None,
        }
    }

    /// All of it in one sentence.
    pub(super) fn sentence(&self, length: Option<Duration>) -> String {
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
    Some(match foreman.standing(id) {
        Standing::Unknown => return None,
        Standing::Ended(State::Done) => {
            let outcome = foreman.ledger().outcome(id);
            let by = outcome.map(|outcome| format!(" on {} in {} ms", outcome.worker, outcome.took_us / 1000));
            ("done", format!("{id} ended well{}", by.unwrap_or_default()))
        }
        Standing::Ended(state) => {
            let why = reason(state, foreman.ledger().outcome(id).as_ref(), job).unwrap_or_default();
            (state.name(), format!("{id} is {}: {why}", state.name()))
        }
        Standing::NotLeading => ("no_leader", format!("{id} waits for a server that leads")),
        Standing::With { worker, before: 0 } => ("running", format!("{id} has been running on {worker}")),
        Standing::With { worker, before } => {
            ("assigned", format!("{id} is next on {worker}, which has {before} before it"))
        }
        Standing::Starting(worker) => {
            ("starting", format!("{id} is about to start on {worker}; that it starts is being written down"))
        }
        Standing::Reported(worker) => ("ending", format!("{id} has ended on {worker}; that is being written down")),
        Standing::Settling(missing) => {
            let names = missing.join(", ");
            (
                "settling",
                format!("{id} waits until all workers have told the new leader what they run; missing: {names}"),
            )
        }
        Standing::NoWorker => ("no_worker", format!("{id} waits for a worker: there is none")),
        Standing::AllDraining => {
            ("draining", format!("{id} waits for a worker: all that could take it are drained"))
        }
        Standing::DisksFull(workers) => {
            let workers = workers.join(", ");
            ("disk_full", format!("{id} waits for a worker: there is no room on the disk of {workers}"))
        }
        Standing::TooLarge { slots, most } => {
            ("too_large", format!("{id} needs {slots} slots, and the largest worker has {most}"))
        }
        Standing::Waits { before: 0 } => ("no_slot", format!("{id} waits for a free slot, and is next")),
        Standing::Waits { before } => ("no_slot", format!("{id} waits for a free slot; {before} come before it")),
    })
}

/// A worker: `/v1/workers`.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub(crate) struct WorkerFacts {
    pub(super) name: String,
    /// Whose it is, and whom it works for.
    home: String,
    farm: String,
    slots: u32,
    running: Option<u64>,
    alive: bool,
    /// Does the ledger know of it, so that it may get work?
    registered: bool,
    draining: bool,
    /// How loaded its host is, as it last said, and what that is made of; `tasks` are those that it counts itself.
    score: Option<f64>,
    cpu: Option<f64>,
    memory: Option<f64>,
    tasks: Option<u32>,
}

/// All workers that are here or registered, in the order of their names.
pub(super) fn workers(foreman: &Foreman, farm: &str) -> Vec<WorkerFacts> {
    let running: std::collections::BTreeMap<&str, u64> = foreman.crews().collect();
    let mut all: std::collections::BTreeMap<String, WorkerFacts> = std::collections::BTreeMap::new();
    let loans = foreman.ledger().loans();
    let facts = |name: &str, slots: u32| {
        let (home, farm) = allegiance(loans, name, farm);
        WorkerFacts { name: name.to_owned(), home, farm, slots, ..WorkerFacts::default() }
    };
    // One that is lent is still one of ours, also if nobody sees it at the moment.
    for lent in loans.lent().values() {
        all.insert(lent.worker.clone(), facts(&lent.worker, lent.slots.into()));
    }
    for (name, registration) in foreman.ledger().workers() {
        let draining = registration.is_draining;
        let known = WorkerFacts { registered: true, draining, ..facts(name, registration.slots.into()) };
        all.insert(name.clone(), known);
    }
    for (name, slots, _, load) in foreman.present() {
        let entry = all.entry(name.to_owned()).or_insert_with(|| facts(name, slots));
        entry.alive = running.contains_key(name);
        entry.running = running.get(name).copied();
        (entry.score, entry.tasks) = (Some(number(load.score)), Some(load.tasks));
        (entry.cpu, entry.memory) = (load.cpu.map(number), load.memory.map(number));
    }
    all.into_values().collect()
}

/// Whose worker this is, and which farm it works for, as agreed on.
fn allegiance(loans: &Loans, name: &str, farm: &str) -> (String, String) {
    let home = home_of(name).map_or(farm, |(_, home)| home);
    let lent = loans.loan_of(name).and_then(|loan| loans.lent().get(&loan));
    let is_ours = home == farm || loans.borrowed().contains_key(name);
    let works_for = lent.map_or(if is_ours { farm } else { home }, |lent| lent.to.as_str());
    (home.to_owned(), works_for.to_owned())
}
