//! `primus bench queue`: what many waiting tasks cost the leader.
//!
//! Real servers and workers: while the workers are drained, a job of many tasks is submitted, and the leader's memory is
//! read before and after. Then half of the tasks run, and it is read again. What has grown by then is divided by the tasks that
//! still wait, twice: as it is, and without what the results of the other half take, which stay for a day whether anything
//! waits or not. Workers begin with tasks in their order, so what results in any other order cost is measured with a ledger
//! inside this process; so is how long it takes to cancel all of them at once, and to want them again. Last, so much is written that every server takes a snapshot of all that still waits.

use std::thread;
use std::time::{Duration, Instant};

use primus_client::http::{self, Request};
use primus_core::Term;
use primus_core::ledger::job::Lines;
use primus_core::ledger::{
    Attempt, Batch, Entry, Expansion, JobId, Ledger, Limits, Outcome, Report, Spec, Tail, Target, TaskId,
    Verdict as Ending, Work,
};
use primus_lab::chance::Chance;
use primus_terminal::failure::Failure;
use primus_terminal::json::rounded;
use primus_terminal::{Format, Verdict};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::QueueArgs;
use crate::leader::{Leader, ask};
use crate::processes::resident_mb;
use crate::report::{Found, flag, measured, milliseconds, silent};
use crate::watch::longest_turn_ms;
use primus_local::TemporaryFarm;

const SERVERS: u64 = 3;
const WORKERS: u64 = 2;
const TASKS: u64 = 100_000;
const TASKS_MAX: u64 = 1_000_000;
/// How many results a farm keeps if nothing else is configured.
const RESULTS_MAX: u64 = 100_000;
/// More records than servers let the log grow by before they take a snapshot.
const RECORDS: usize = 12_000;
/// How many results a batch of the log has.
const BATCH_LEN: usize = 100;
const SEED: u64 = 1;
const ANSWER_TIME: Duration = Duration::from_secs(40);
/// How long half of the tasks may take.
const WAITING_TIME: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(20);
/// What was needed only for a moment must have been given back.
const CALM: Duration = Duration::from_secs(1);

/// What was found.
#[derive(Serialize)]
struct Queue {
    n: u64,
    tasks: &'static str,
    servers: u64,
    workers: u64,
    submit_ms: f64,
    /// What the leader's memory has grown by, for each task that was submitted: while all wait,
    bytes_per_task_queued: f64,
    /// and when half have ended.
    bytes_per_task: f64,
    /// Then, if only those count that still wait;
    bytes_per_waiting: f64,
    /// and without the results of the others, each of which takes so much.
    bytes_per_waiting_without_results: f64,
    bytes_per_result: f64,
    /// All of it in a ledger alone, half of whose tasks ended in random order.
    ledger_bytes_per_waiting: f64,
    /// How long a ledger takes to cancel all of them while they wait, and then to want all of them again.
    ledger_cancel_ms: f64,
    ledger_retry_ms: f64,
    leader_mb: f64,
    snapshot: Snapshot,
}

/// What happened while snapshots were taken.
#[derive(Serialize)]
struct Snapshot {
    queued: u64,
    records: usize,
    took_ms: f64,
    leader_changes: u64,
    /// Of any server since it started, the submission included.
    longest_turn_ms: f64,
}

/// Measures and prints.
pub(crate) fn queue(args: &QueueArgs, format: Format) -> Result<Verdict, Failure> {
    let n = flag("-n", &args.n, TASKS, 2, TASKS_MAX)?;
    measured(format, || measure(n, args.each_line))
}

fn measure(n: u64, each_line: bool) -> Result<Queue, Failure> {
    // First, while this process is still small.
    let ledger = half_at_random(n, each_line)?;
    let (ledger_cancel_ms, ledger_retry_ms) = all_at_once(n, each_line);
    let queue = QueueFarm::start()?;
    queue.drain(true)?;
    let before = queue.leader_mb()?;
    let submit_ms = queue.submit(n, each_line)?;
    thread::sleep(CALM);
    let bytes_per_task_queued = rounded((queue.leader_mb()? - before) * 1e6 / n as f64);
    queue.drain(false)?;
    queue.wait_for_half(n)?;
    queue.drain(true)?;
    thread::sleep(CALM);
    let leader_mb = queue.leader_mb()?;
    let queued = queue.queued()?;
    let grown = (leader_mb - before) * 1e6;
    let results = ledger.per_result * n.saturating_sub(queued).min(RESULTS_MAX) as f64;
    let per_waiting = |bytes: f64| rounded(bytes / queued.max(1) as f64);
    Ok(Queue {
        n,
        tasks: if each_line { "lines" } else { "array" },
        servers: SERVERS,
        workers: WORKERS,
        submit_ms,
        bytes_per_task_queued,
        bytes_per_task: rounded(grown / n as f64),
        bytes_per_waiting: per_waiting(grown),
        bytes_per_waiting_without_results: per_waiting(grown - results),
        bytes_per_result: rounded(ledger.per_result),
        ledger_bytes_per_waiting: rounded(ledger.per_waiting),
        ledger_cancel_ms,
        ledger_retry_ms,
        leader_mb: rounded(leader_mb),
        snapshot: queue.snapshot(queued)?,
    })
}

/// A farm with a long queue.
struct QueueFarm {
    farm: TemporaryFarm,
    leader: Leader,
}

impl QueueFarm {
    /// A farm that has run a few tasks and has nothing to do.
    fn start() -> Result<Self, Failure> {
        let farm = TemporaryFarm::start_with_workers("bench", SERVERS, WORKERS, 1)?;
        let leader = Leader::of(&farm)?;
        farm.wait_for_workers(WORKERS)?;
        let queue = Self { farm, leader };
        let job = queue.post("/v1/jobs", &json!({ "kind": "noop", "array": "1-1000" }))?;
        queue.ask(&Request::get(&format!("/v1/jobs/{}/wait", job["job"].as_str().unwrap_or("1"))))?;
        thread::sleep(CALM);
        Ok(queue)
    }

    fn ask(&self, request: &Request<'_>) -> Result<Value, Failure> {
        ask(&mut self.leader.session(ANSWER_TIME), request)
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        let answer = self.ask(&Request::post(path, body.to_string().as_bytes()))?;
        match answer["error"]["message"].as_str() {
            Some(message) => Err(Failure::failed("refused", message, "see whether the host is overloaded")),
            None => Ok(answer),
        }
    }

    /// Workers get nothing new, or get work again.
    fn drain(&self, draining: bool) -> Result<(), Failure> {
        let status = self.ask(&Request::get("/v1/status"))?;
        for worker in status["workers"].as_array().into_iter().flatten() {
            let name = worker["name"].as_str().unwrap_or_default();
            self.post(&format!("/v1/workers/{name}/drain"), &json!({ "draining": draining }))?;
        }
        Ok(())
    }

    fn leader_mb(&self) -> Result<f64, Failure> {
        let servers = self.farm.now()?.servers;
        let pid = servers.iter().find(|server| server.id == self.leader.now.leader).and_then(|server| server.pid);
        pid.and_then(resident_mb).ok_or_else(unknown)
    }

    fn submit(&self, n: u64, each_line: bool) -> Result<f64, Failure> {
        let body = match each_line {
            true => json!({ "kind": "noop", "lines": (1..=n).map(line).collect::<Vec<_>>() }),
            false => json!({ "kind": "noop", "array": format!("1-{n}") }),
        };
        let body = body.to_string();
        let started = Instant::now();
        let answer = self.ask(&Request::post("/v1/jobs", body.as_bytes()))?;
        let took = milliseconds(started);
        if answer["tasks"].as_u64() == Some(n) { Ok(took) } else { Err(silent("the leader")) }
    }

    fn queued(&self) -> Result<u64, Failure> {
        self.ask(&Request::get("/v1/status"))?["queued"].as_u64().ok_or_else(|| silent("the leader"))
    }

    fn wait_for_half(&self, n: u64) -> Result<(), Failure> {
        let until = Instant::now() + WAITING_TIME;
        while self.queued()? > n / 2 {
            if Instant::now() > until {
                return Err(Failure::failed(
                    "too_slow",
                    "the tasks do not end",
                    "see whether the host is overloaded",
                ));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    fn snapshot(&self, queued: u64) -> Result<Snapshot, Failure> {
        let lines: String =
            (0..RECORDS).map(|key| format!("{{\"key\":\"k{}\",\"value\":\"v\"}}\n", key % 10)).collect();
        let started = Instant::now();
        let sent = http::upload(&self.leader.api, "/v1/kv", http::LINES, &mut lines.as_bytes(), ANSWER_TIME);
        let answer = sent.map_err(|_| silent("the leader"))?;
        let took_ms = milliseconds(started);
        if answer.status != 200 {
            return Err(silent("the leader"));
        }
        thread::sleep(CALM);
        let reign = self.farm.settled()?;
        Ok(Snapshot {
            queued,
            records: RECORDS,
            took_ms,
            leader_changes: reign.term.saturating_sub(self.leader.now.term),
            longest_turn_ms: longest_turn_ms(&self.farm)?,
        })
    }
}

/// What a ledger takes after half of its tasks have ended.
struct LedgerBytes {
    per_waiting: f64,
    per_result: f64,
}

/// What a ledger alone takes after half of its tasks have ended, in random order.
fn half_at_random(n: u64, each_line: bool) -> Result<LedgerBytes, Failure> {
    let own_mb = || resident_mb(std::process::id()).ok_or_else(unknown);
    let mut order: Vec<u64> = (1..=n).collect();
    Chance::new(SEED).shuffle(&mut order);
    let before = own_mb()?;
    let mut ledger = Ledger::new(Limits::default());
    ledger.apply(Batch { time_ms: 0, entries: vec![Entry::Submit { spec: spec(n, each_line), key: None }] });
    let submitted = own_mb()?;
    let half = &order[..order.len() / 2];
    for (number, indices) in half.chunks(BATCH_LEN).enumerate() {
        let entries = indices.iter().map(|index| finish(*index)).collect();
        ledger.apply(Batch { time_ms: number as u64, entries });
    }
    let ended = own_mb()?;
    let results = (half.len() as u64).min(RESULTS_MAX);
    Ok(LedgerBytes {
        per_waiting: (ended - before) * 1e6 / ledger.counts().waiting as f64,
        per_result: (ended - submitted) * 1e6 / results.max(1) as f64,
    })
}

/// How many milliseconds a ledger takes to cancel a job, and to want all of it again.
fn all_at_once(n: u64, each_line: bool) -> (f64, f64) {
    let mut ledger = Ledger::new(Limits::default());
    let mut apply = |entry: Entry| {
        let started = Instant::now();
        ledger.apply(Batch { time_ms: 0, entries: vec![entry] });
        milliseconds(started)
    };
    apply(Entry::Submit { spec: spec(n, each_line), key: None });
    let job = Target::Job(JobId(1));
    (apply(Entry::Cancel(job)), apply(Entry::Retry(job)))
}

fn spec(n: u64, each_line: bool) -> Spec {
    let mut lines = Lines::default();
    let expansion = match each_line {
        true => {
            (1..=n).for_each(|number| _ = lines.push(&line(number)));
            Expansion::Lines(lines)
        }
        false => Expansion::Array { first: 1, last: n },
    };
    let work = Work::Kind { name: "noop".to_owned(), input: Vec::new() };
    Spec {
        name: String::new(),
        work,
        expansion,
        retries: 0,
        timeout_ms: None,
        is_once: false,
        priority: 0,
        cpus: 1,
    }
}

fn finish(index: u64) -> Entry {
    let outcome = Outcome {
        attempt: Attempt { term: Term(1), sequence: index },
        worker: "worker-1".into(),
        verdict: Ending::Exited(0),
        started_us: 1_700_000_000_000_000 + index,
        took_us: 10,
        stdout: Tail::default(),
        stderr: Tail::default(),
    };
    Entry::Finish(Report { task: TaskId { job: JobId(1), index }, outcome })
}

/// Forty bytes, and no two lines are the same.
fn line(number: u64) -> String {
    format!("{number:040}")
}

fn unknown() -> Failure {
    Failure::failed("system", "a process's memory cannot be read", "this needs Linux, and servers that live")
}

impl Found for Queue {
    const BENCH: &'static str = "queue";

    fn text(&self) -> String {
        let Self { n, tasks, servers, submit_ms, bytes_per_task_queued, bytes_per_task, .. } = self;
        let Self { bytes_per_waiting, bytes_per_waiting_without_results, bytes_per_result, .. } = self;
        let Snapshot { queued, records, leader_changes, longest_turn_ms, .. } = self.snapshot;
        format!(
            "queue        {n} tasks, {tasks}, {servers} servers
submitted    in {submit_ms:.1} ms
memory       {bytes_per_task_queued:.0} bytes of the leader for each task while all wait
half done    {bytes_per_task:.0} bytes for each, {bytes_per_waiting:.0} for each that still waits; without the results of the \
others, which take {bytes_per_result:.0} each, {bytes_per_waiting_without_results:.0}
ledger       {:.0} bytes for each that still waits if the others ended in random order
all at once  cancelled in {:.1} ms, wanted again in {:.1} ms
snapshot     after {records} records with {queued} tasks waiting: {leader_changes} leader changes
longest turn {longest_turn_ms:.1} ms of a control loop
",
            self.ledger_bytes_per_waiting,
            self.ledger_cancel_ms,
            self.ledger_retry_ms,
        )
    }
}
