//! `primus bench tasks`: how fast a farm gets tasks done, from the submission to the last result.
//!
//! Every kind is compared with something that is measured or computed in the same run, because hosts differ and this one may
//! be busy: processes with `xargs`, which only starts them; sleeps with the time that their slots need at least; a bag of
//! unequal sleeps with what a perfect list scheduler makes of the same order.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use primus_client::http::{self, Request, Session};
use primus_lab::chance::Chance;
use primus_terminal::failure::Failure;
use primus_terminal::json::rounded;
use primus_terminal::{Format, Verdict};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::{TaskKind, TasksArgs};
use crate::leader::{Leader, ask};
use crate::report::{Found, Runs, Spread, flag, measured, milliseconds, quantile, silent};
use crate::watch::{Watch, Watched};
use primus_local::TemporaryFarm;
use primus_local::home::SERVERS_MAX;

const SERVERS: u64 = 3;
const WORKERS: u64 = 2;
const WORKERS_MAX: u64 = 1000;
const SLOTS: u64 = 1;
const SLOTS_MAX: u64 = 1024;
const XARGS_MAX: u64 = WORKERS_MAX * SLOTS_MAX;
pub(crate) const TASKS_MAX: u64 = 1_000_000;
const RUNS_MAX: u64 = 10_000;
/// Unless somebody says how many, no run starts after this; a bench ends within 45 s.
const BUDGET_MS: f64 = 20_000.0;
/// So few tasks say little, so that they are submitted many times.
const FEW: u64 = 100;
const RUNS_OF_FEW: u64 = 50;
/// How long one of many equal sleeps takes.
const SLEEP_MS: u64 = 20;
/// The bag's sleeps: many short ones, a few long ones.
const BAG_SHORTEST_MS: f64 = 10.0;
const BAG_LONGEST_MS: f64 = 1000.0;
const BAG_SHAPE: f64 = 1.1;
const BAG_SEED: u64 = 1;
const ANSWER_TIME: Duration = Duration::from_secs(40);
/// How long everything together may take.
const WAITING_TIME: Duration = Duration::from_secs(600);

/// What was found.
#[derive(Serialize)]
struct Tasks {
    kind: &'static str,
    n: u64,
    servers: u64,
    workers: u64,
    slots: u64,
    #[serde(flatten)]
    spread: Spread,
    tasks_per_s: f64,
    /// From the submission until a task began, if few were submitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<Start>,
    /// The same with `primus submit` as a process of its own, if single tasks are measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    cli_start: Option<Start>,
    reference: Option<Reference>,
    /// How much of the reference is reached; for makespans, how many times as long it takes.
    ratio: Option<f64>,
    #[serde(flatten)]
    watched: Watched,
}

/// From a submission to the first start that it led to.
#[derive(Serialize)]
struct Start {
    median_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

impl Start {
    fn of(times: &[f64]) -> Option<Self> {
        let figures = |times| Self {
            median_ms: quantile(times, 0.5),
            p99_ms: quantile(times, 0.99),
            max_ms: quantile(times, 1.0),
        };
        (!times.is_empty()).then(|| figures(times))
    }
}

/// What the farm is compared with.
#[derive(Serialize)]
struct Reference {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    makespan_ms: Option<f64>,
}

/// What is to be measured.
#[derive(Debug, Clone, Copy)]
struct Plan {
    kind: TaskKind,
    n: u64,
    servers: u64,
    workers: u64,
    slots: u64,
    /// How many processes `xargs` runs at once.
    xargs: u64,
    runs: Runs,
}

/// True if so few processes are started that single starts are of interest.
fn is_few(kind: TaskKind, n: u64) -> bool {
    n <= FEW && kind == TaskKind::True
}

/// Measures and prints.
pub(crate) fn tasks(args: &TasksArgs, format: Format) -> Result<Verdict, Failure> {
    let workers = flag("--workers", &args.workers, WORKERS, 1, WORKERS_MAX)?;
    let slots = flag("--slots", &args.slots, SLOTS, 1, SLOTS_MAX)?;
    let n = flag("-n", &args.n, args.kind.usual_count(), 1, TASKS_MAX)?;
    let usual = if is_few(args.kind, n) { RUNS_OF_FEW } else { 3 };
    let plan = Plan {
        kind: args.kind,
        n,
        servers: flag("--servers", &args.servers, SERVERS, 1, SERVERS_MAX)?,
        workers,
        slots,
        xargs: flag("--xargs", &args.xargs, workers * slots, 1, XARGS_MAX)?,
        runs: Runs::typed(&args.runs, usual, RUNS_MAX, BUDGET_MS)?,
    };
    measured(format, || measure(plan))
}

fn measure(plan: Plan) -> Result<Tasks, Failure> {
    let farm = TemporaryFarm::start_with_workers("bench", plan.servers, plan.workers, plan.slots)?;
    let tasks = Submitter { plan, leader: Leader::of(&farm)? };
    tasks.warm_up()?;
    let watch = Watch::begin(&farm)?;
    let (spread, starts, xargs) = tasks.runs()?;
    let with_cli = tasks.cli_starts(&farm.now()?.name, spread.runs.len())?;
    let tasks_per_s = (plan.n as f64 / spread.median_ms * 1000.0).round();
    let (reference, ratio) = tasks.compared(&spread, tasks_per_s, &xargs);
    let watched = watch.end(&farm)?;
    let Plan { kind, n, servers, workers, slots, .. } = plan;
    let (start, cli_start) = (Start::of(&starts), Start::of(&with_cli));
    let kind = kind.name();
    Ok(Tasks { kind, n, servers, workers, slots, spread, tasks_per_s, start, cli_start, reference, ratio, watched })
}

/// Has this farm run so many times `/bin/true` at each call, and says how long that took.
pub(crate) fn of_true(
    farm: &TemporaryFarm,
    n: u64,
    workers: u64,
) -> Result<impl FnMut() -> Result<f64, Failure> + use<>, Failure> {
    let runs = Runs::typed(&None, 1, 1, BUDGET_MS)?;
    let plan = Plan { kind: TaskKind::True, n, servers: SERVERS, workers, slots: SLOTS, xargs: workers, runs };
    let tasks = Submitter { plan, leader: Leader::of(farm)? };
    tasks.warm_up()?;
    Ok(move || Ok(tasks.run()?.0))
}

/// What submits tasks to the leader and waits for their ends.
struct Submitter {
    plan: Plan,
    leader: Leader,
}

impl Submitter {
    /// The first tasks after a start find nothing ready: workers must have joined, pages must be there.
    fn warm_up(&self) -> Result<(), Failure> {
        let mut session = self.leader.session(ANSWER_TIME);
        for _ in 0..5 {
            let tasks = 2 * self.plan.workers * self.plan.slots;
            let body = json!({ "command": ["/bin/true"], "array": format!("1-{tasks}") });
            self.run_job(&mut session, &body)?;
        }
        Ok(())
    }

    /// How long each run took, when tasks began, and how fast `xargs` was before and after.
    fn runs(&self) -> Result<(Spread, Vec<f64>, Vec<f64>), Failure> {
        let started = Instant::now();
        let is_few = is_few(self.plan.kind, self.plan.n);
        let (mut times, mut starts, mut xargs) = (Vec::new(), Vec::new(), Vec::new());
        while self.plan.runs.is_due(times.len(), started) {
            if self.plan.kind == TaskKind::True && !is_few {
                xargs.push(self.xargs()?);
            }
            let (time, began) = self.run()?;
            times.push(time);
            starts.extend(began.filter(|_| is_few));
        }
        if !xargs.is_empty() {
            xargs.push(self.xargs()?);
        }
        Ok((Spread::of(times), starts, xargs))
    }

    fn run(&self) -> Result<(f64, Option<f64>), Failure> {
        let n = self.plan.n;
        let mut session = self.leader.session(ANSWER_TIME);
        // A connection that is open already, as a program has that submits often.
        ask(&mut session, &Request::get("/v1/leader"))?;
        let array = format!("1-{n}");
        match self.plan.kind {
            TaskKind::True => self.run_job(&mut session, &json!({ "command": ["/bin/true"], "array": array })),
            TaskKind::Sleep => {
                let body = json!({ "kind": "sleep", "input": SLEEP_MS.to_string(), "array": array });
                self.run_job(&mut session, &body)
            }
            TaskKind::Bag => {
                let lines: Vec<String> = bag(n).iter().map(u64::to_string).collect();
                self.run_job(&mut session, &json!({ "kind": "sleep", "lines": lines }))
            }
            TaskKind::Noop => self.run_one_by_one(&mut session),
        }
    }

    /// Submits a job, waits until all of it has ended, and looks whether all of it went well.
    fn run_job(&self, session: &mut Session, body: &Value) -> Result<(f64, Option<f64>), Failure> {
        let body = body.to_string();
        let (started, submitted_us) = (Instant::now(), now_us());
        let answer = ask(session, &Request::post("/v1/jobs", body.as_bytes()))?;
        let job = answer["job"].as_str().ok_or_else(|| refused(&answer))?.to_owned();
        let ended = self.wait(session, &job)?;
        let time = milliseconds(started);
        check(&ended["done"], self.tasks_of(&answer))?;
        let task = ask(session, &Request::get(&format!("/v1/tasks/{job}.1")))?;
        let began = task["started_us"].as_f64().map(|began| rounded((began - submitted_us) / 1000.0));
        Ok((time, began))
    }

    /// How long it takes from the start of `primus submit` until its task begins.
    fn cli_starts(&self, farm: &str, runs: usize) -> Result<Vec<f64>, Failure> {
        let is_single = self.plan.n == 1 && self.plan.kind == TaskKind::True;
        let mut session = self.leader.session(ANSWER_TIME);
        (0..runs).filter(|_| is_single).map(|_| self.cli_start(&mut session, farm)).collect()
    }

    fn cli_start(&self, session: &mut Session, farm: &str) -> Result<f64, Failure> {
        let system = |error| Failure::failed("system", format!("primus cannot be started: {error}"), "make room");
        let mut primus = Command::new(std::env::current_exe().map_err(system)?);
        primus.args(["submit", "--farm", farm, "-o", "json", "--", "/bin/true"]);
        let submitted_us = now_us();
        let said = primus.output().map_err(system)?;
        let answer: Value = serde_json::from_slice(&said.stdout).map_err(|_| silent("the leader"))?;
        let job = answer["job"].as_str().ok_or_else(|| refused(&answer))?;
        check(&self.wait(session, job)?["done"], 1)?;
        let task = ask(session, &Request::get(&format!("/v1/tasks/{job}.1")))?;
        let began = task["started_us"].as_f64().ok_or_else(|| refused(&task))?;
        Ok(rounded((began - submitted_us) / 1000.0))
    }

    fn tasks_of(&self, answer: &Value) -> u64 {
        answer["tasks"].as_u64().unwrap_or(self.plan.n)
    }

    /// Every task is a job of its own, with its own line and its own result.
    fn run_one_by_one(&self, session: &mut Session) -> Result<(f64, Option<f64>), Failure> {
        let lines = "{\"kind\":\"noop\"}\n".repeat(usize::try_from(self.plan.n).unwrap_or(usize::MAX));
        let started = Instant::now();
        let sent = http::upload(&self.leader.api, "/v1/jobs", http::LINES, &mut lines.as_bytes(), ANSWER_TIME);
        let bytes = sent.map_err(|_| silent("the leader"))?.bytes().map_err(|_| silent("the leader"))?;
        let answer: Value = serde_json::from_slice(&bytes).map_err(|_| silent("the leader"))?;
        let ranges = answer["ranges"].as_array().ok_or_else(|| refused(&answer))?;
        let mut done = 0;
        for range in ranges {
            let [Some(first), Some(last)] = [0, 1].map(|end| range[end].as_str()) else {
                return Err(refused(&answer));
            };
            let ended = self.wait(session, &format!("{first}-{last}"))?;
            // Of what is forgotten one knows at least that it has ended.
            done +=
                [&ended["done"], &ended["forgotten"]].map(|count| count.as_u64().unwrap_or(0)).iter().sum::<u64>();
        }
        let time = milliseconds(started);
        check(&json!(done), self.plan.n)?;
        Ok((time, None))
    }

    fn wait(&self, session: &mut Session, jobs: &str) -> Result<Value, Failure> {
        let until = Instant::now() + WAITING_TIME;
        while Instant::now() < until {
            let path = format!("/v1/jobs/{jobs}/wait");
            let answer = ask(session, &Request::get(&path))?;
            if answer["open"] == 0 {
                return Ok(answer);
            }
        }
        Err(Failure::failed("too_slow", "the tasks do not end", "see whether the host is overloaded"))
    }

    /// Tasks per second of the simplest thing that starts processes.
    fn xargs(&self) -> Result<f64, Failure> {
        let missing = |_| Failure::failed("no_reference", "xargs cannot be run", "install findutils");
        let numbers: String = (1..=self.plan.n).map(|number| format!("{number}\n")).collect();
        let slots = self.plan.xargs.to_string();
        let started = Instant::now();
        let mut xargs = Command::new("xargs");
        let mut child =
            xargs.args(["-P", &slots, "-n1", "/bin/true"]).stdin(Stdio::piped()).spawn().map_err(missing)?;
        let fed = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(numbers.as_bytes()));
        let ended = child.wait().map_err(missing)?;
        fed.map_err(missing)?;
        let per_s = (self.plan.n as f64 / milliseconds(started) * 1000.0).round();
        if ended.success() { Ok(per_s) } else { Err(missing(std::io::Error::other("it failed"))) }
    }

    fn compared(&self, spread: &Spread, tasks_per_s: f64, xargs: &[f64]) -> (Option<Reference>, Option<f64>) {
        let slots = self.plan.workers * self.plan.slots;
        let makespan = |name: &str, lengths: &[u64]| {
            let ideal = list_schedule(lengths, slots) as f64;
            let reference = Reference { name: name.to_owned(), tasks_per_s: None, makespan_ms: Some(ideal) };
            (Some(reference), Some(rounded(spread.median_ms / ideal)))
        };
        match self.plan.kind {
            TaskKind::True if !xargs.is_empty() => {
                // As many runs of it as there are gaps between ours, so that both saw the same host.
                let mean = (xargs.iter().sum::<f64>() / xargs.len() as f64).round();
                let name = format!("xargs -P{} -n1 /bin/true", self.plan.xargs);
                let reference = Reference { name, tasks_per_s: Some(mean), makespan_ms: None };
                (Some(reference), Some(rounded(tasks_per_s / mean)))
            }
            TaskKind::Sleep => {
                makespan("slots that are never idle", &vec![SLEEP_MS; usize::try_from(self.plan.n).unwrap_or(0)])
            }
            TaskKind::Bag => makespan("perfect list scheduling", &bag(self.plan.n)),
            TaskKind::True | TaskKind::Noop => (None, None),
        }
    }
}

/// Sleeps in milliseconds, heavy-tailed (Pareto, cut off), always the same ones.
fn bag(n: u64) -> Vec<u64> {
    const STEPS: u64 = 1_000_000;
    let mut chance = Chance::new(BAG_SEED);
    let mut one = || {
        let share = (chance.below(STEPS) as f64 + 1.0) / STEPS as f64;
        (BAG_SHORTEST_MS * share.powf(-1.0 / BAG_SHAPE)).min(BAG_LONGEST_MS).round() as u64
    };
    (0..n).map(|_| one()).collect()
}

/// How long it takes if whoever is free takes the next one, at once.
fn list_schedule(lengths: &[u64], slots: u64) -> u64 {
    let mut free_at = vec![0; usize::try_from(slots).unwrap_or(1).max(1)];
    for length in lengths {
        if let Some(first) = free_at.iter_mut().min() {
            *first += length;
        }
    }
    free_at.into_iter().max().unwrap_or(0)
}

fn now_us() -> f64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0.0, |now| now.as_secs_f64() * 1_000_000.0)
}

fn check(done: &Value, wanted: u64) -> Result<(), Failure> {
    if done.as_u64() == Some(wanted) {
        return Ok(());
    }
    let message = format!("{done} of {wanted} tasks were done");
    Err(Failure::failed("tasks_failed", message, "see primus tasks --state failed"))
}

fn refused(answer: &Value) -> Failure {
    let message = answer["error"]["message"].as_str().unwrap_or("the leader's answer is not understood");
    Failure::failed("refused", message, "see whether the host is overloaded")
}

impl Found for Tasks {
    const BENCH: &'static str = "tasks";

    fn text(&self) -> String {
        let Self { kind, n, servers, workers, slots, spread, tasks_per_s, reference, ratio, watched, .. } = self;
        let Watched { leader_changes, longest_turn_ms, .. } = watched;
        let compared = reference.as_ref().zip(*ratio).map(|(reference, ratio)| {
            let figure = match (reference.tasks_per_s, reference.makespan_ms) {
                (Some(per_s), _) => format!("{per_s} tasks/s"),
                (None, makespan) => format!("{} ms", makespan.unwrap_or_default()),
            };
            format!("compared     {ratio:.3} of {figure}, {}\n", reference.name)
        });
        let line = |name: &str, start: &Option<Start>| {
            start.as_ref().map_or_else(String::new, |Start { median_ms, p99_ms, max_ms }| {
                format!("{name:<12} after {median_ms:.1} ms, 99 % within {p99_ms:.1} ms, max {max_ms:.1} ms\n")
            })
        };
        let (start, with_cli) = (line("start", &self.start), line("with the CLI", &self.cli_start));
        format!(
            "tasks        {n} of kind {kind}, {servers} servers, {workers} workers, {slots} slots each
per second   {tasks_per_s}
{}{start}{with_cli}{}leader       changed {leader_changes} times
longest turn {longest_turn_ms:.1} ms of a control loop
{}",
            compared.unwrap_or_default(),
            spread.text(),
            watched.text(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_free_takes_the_next_one() {
        assert_eq!(list_schedule(&[5, 1, 1, 1], 2), 5);
        assert_eq!(list_schedule(&[1, 1, 1, 5], 2), 6);
        assert_eq!(list_schedule(&[], 2), 0);
    }

    #[test]
    fn the_bag_is_always_the_same_and_has_a_heavy_tail() {
        let lengths = bag(200);
        assert_eq!(lengths, bag(200));
        let (short, long) =
            (lengths.iter().filter(|ms| **ms < 30).count(), lengths.iter().filter(|ms| **ms > 200).count());
        assert!(short > 100 && (2..40).contains(&long), "{lengths:?}");
    }
}
