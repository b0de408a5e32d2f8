//! `primus bench lending`: how much sooner a flooded farm is done when its neighbour lends it workers.
//!
//! All tasks go to one farm: first to one that is alone, then to one that has an idle neighbour. They sleep, so that few
//! processors are enough. Every task leaves a line in a file when it begins, so that starts can be counted; when it began and on
//! which worker is in the borrower's ledger, and what happened to loans in the histories of both farms.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

use primus_client::pages;
use primus_core::ledger::loans::home_of;
use primus_core::loan::lending::Rules;
use primus_terminal::failure::Failure;
use primus_terminal::json::rounded;
use primus_terminal::{Format, Verdict};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::LendingArgs;
use crate::report::{Found, Spread, flag, measured, milliseconds};
use primus_local::answers::time_ms;
use primus_local::chaos;
use primus_local::{Purpose, TemporaryFarm};

/// Of each farm.
const SERVERS: u64 = 3;
const WORKERS: u64 = 4;
pub(crate) const TASKS: u64 = 160;
/// No more tasks are of use here.
pub(crate) const TASKS_MAX: u64 = 10_000;
const TASK_MS: u64 = 500;
const TASK_MS_MAX: u64 = 600_000;
/// How long anything may take, beside the tasks themselves.
const WAITING_TIME: Duration = Duration::from_secs(30);
/// How long one answer may be waited for.
const POLL_MS: u64 = 5000;
/// How much longer than workers stay where they are to wait until they may be lent.
const SPARE: Duration = Duration::from_millis(500);

/// What was found. The runs are makespans with lending.
#[derive(Serialize)]
struct Lending {
    n: u64,
    task_ms: u64,
    servers: u64,
    workers: u64,
    #[serde(flatten)]
    spread: Spread,
    /// How long the farm takes that is alone.
    alone_ms: f64,
    makespan_ratio: f64,
    /// From when the farm was saturated until a task began on a borrowed worker.
    first_borrowed_task_ms: f64,
    /// From when it was calm until the last worker was at home.
    all_home_ms: f64,
    /// How many tasks ran on borrowed workers.
    borrowed_tasks: usize,
    lost: u64,
    /// How many starts there were beyond one for each task.
    rerun: u64,
    /// How often one worker changed farms within the time that it should stay, at most.
    thrash_max: usize,
    /// How much of all slots of both farms was in use.
    utilisation: f64,
}

/// What is to be measured.
#[derive(Debug, Clone, Copy)]
struct Plan {
    n: u64,
    task_ms: u64,
}

/// Measures and prints.
pub(crate) fn lending(args: &LendingArgs, format: Format) -> Result<Verdict, Failure> {
    let plan = Plan {
        n: flag("-n", &args.n, TASKS, 1, TASKS_MAX)?,
        task_ms: flag("--task-ms", &args.task_ms, TASK_MS, 1, TASK_MS_MAX)?,
    };
    measured(format, || measure("bench".into(), plan))
}

/// How much sooner it is done than the one that is alone, in such farms.
pub(crate) fn ratio(purpose: Purpose, n: u64) -> Result<f64, Failure> {
    Ok(measure(purpose, Plan { n, task_ms: TASK_MS })?.makespan_ratio)
}

fn measure(purpose: Purpose, plan: Plan) -> Result<Lending, Failure> {
    let alone = alone(purpose, plan)?;
    let [borrower, lender] = TemporaryFarm::start_neighbours(purpose, SERVERS, WORKERS, &[])?;
    meet(&borrower, &lender)?;
    let helped = flood(&borrower, plan)?;
    come_home(&[&borrower, &lender])?;
    let (here, there) = (Events(borrower.happened()), Events(lender.happened()));
    let saturated_us = 1000.0 * here.first_ms("saturated").ok_or_else(not_saturated)?;
    let began_us = helped.first_borrowed_us().ok_or_else(|| missing("no worker was lent"))?;
    let calm_ms = here.last_ms("calm").ok_or_else(|| missing("the farm never was calm"))?;
    let home_ms = there.last_ms("loan_home").ok_or_else(|| missing("no worker came home"))?;
    Ok(Lending {
        n: plan.n,
        task_ms: plan.task_ms,
        servers: SERVERS,
        workers: WORKERS,
        alone_ms: alone.makespan_ms,
        makespan_ratio: rounded(helped.makespan_ms / alone.makespan_ms),
        first_borrowed_task_ms: rounded((began_us - saturated_us) / 1000.0),
        all_home_ms: rounded(home_ms - calm_ms),
        borrowed_tasks: helped.borrowed().count(),
        lost: helped.lost,
        rerun: helped.rerun,
        thrash_max: there.thrash_max(Rules::default().stay_ms as f64),
        utilisation: helped.utilisation(2 * WORKERS),
        spread: Spread::of(vec![helped.makespan_ms]),
    })
}

fn alone(purpose: Purpose, plan: Plan) -> Result<Flood, Failure> {
    let farm = TemporaryFarm::start_with_workers(purpose, SERVERS, WORKERS, 1)?;
    farm.settled()?;
    flood(&farm, plan)
}

/// Waits until both farms are whole, the one has heard how many slots of the other are free, and those may be lent.
fn meet(borrower: &TemporaryFarm, lender: &TemporaryFarm) -> Result<(), Failure> {
    borrower.settled()?;
    lender.settled()?;
    let name = lender.now()?.name;
    chaos::wait(WAITING_TIME, "the farms to hear each other", || {
        let farms = borrower.ask("/v1/farms")?;
        let mut farms = farms["items"].as_array().into_iter().flatten();
        Ok(farms.any(|farm| farm["farm"] == name && farm["idle"] == WORKERS).then_some(()))
    })?;
    // For all that a new leader knows its workers have just come home, so that it lends nobody at first.
    thread::sleep(Duration::from_millis(Rules::default().stay_ms) + SPARE);
    Ok(())
}

/// Waits until both farms have it that nobody is away.
fn come_home(farms: &[&TemporaryFarm]) -> Result<(), Failure> {
    chaos::wait(WAITING_TIME, "everybody to be home", || {
        let are_home =
            |farm: &&TemporaryFarm| Ok(farm.ask("/v1/loans")?["items"].as_array().is_some_and(Vec::is_empty));
        let are_home: Vec<bool> = farms.iter().map(are_home).collect::<Result<_, Failure>>()?;
        Ok(are_home.iter().all(|home| *home).then_some(()))
    })
}

/// What came of all tasks.
struct Flood {
    makespan_ms: f64,
    /// As the ledger has them.
    tasks: Vec<Value>,
    lost: u64,
    rerun: u64,
}

/// Submits everything at once, and waits for the last result.
fn flood(farm: &TemporaryFarm, plan: Plan) -> Result<Flood, Failure> {
    let starts = farm.now()?.dir.join("starts");
    let started = Instant::now();
    let job = farm.submit(&plan.job(&starts))?;
    let path = format!("/v1/jobs/{job}/wait?timeout_ms={POLL_MS}");
    let ended = chaos::wait(plan.waiting_time(), "the tasks to end", || {
        let job = farm.ask(&path)?;
        Ok((job["open"] == 0).then_some(job))
    })?;
    let makespan_ms = milliseconds(started);
    let path = format!("/v1/tasks?job={job}&fields=worker,started_us,took_ms");
    let tasks = pages::all(&path, |page| farm.ask(page))?;
    Ok(Flood {
        makespan_ms,
        tasks: tasks["items"].as_array().cloned().unwrap_or_default(),
        lost: plan.n - ended["done"].as_u64().unwrap_or(0).min(plan.n),
        rerun: rerun(&fs::read_to_string(starts).unwrap_or_default()),
    })
}

impl Plan {
    /// Tasks that leave a line and sleep.
    fn job(&self, starts: &Path) -> Value {
        let script = "echo $PRIMUS_TASK >> \"$0\"; exec sleep \"$1\"";
        let seconds = self.task_ms as f64 / 1000.0;
        let command = json!(["/bin/sh", "-c", script, starts, seconds.to_string()]);
        json!({ "command": command, "array": format!("1-{}", self.n) })
    }

    /// Twice the time that the workers of one farm need.
    fn waiting_time(&self) -> Duration {
        WAITING_TIME + Duration::from_millis(2 * self.task_ms * self.n.div_ceil(WORKERS))
    }
}

impl Flood {
    fn borrowed(&self) -> impl Iterator<Item = &Value> {
        let is_borrowed = |task: &&Value| task["worker"].as_str().is_some_and(|name| home_of(name).is_some());
        self.tasks.iter().filter(is_borrowed)
    }

    fn first_borrowed_us(&self) -> Option<f64> {
        self.borrowed().filter_map(|task| task["started_us"].as_f64()).min_by(f64::total_cmp)
    }

    /// How much of so many slots was in use.
    fn utilisation(&self, slots: u64) -> f64 {
        let busy_ms: f64 = self.tasks.iter().filter_map(|task| task["took_ms"].as_f64()).sum();
        rounded(busy_ms / (slots as f64 * self.makespan_ms))
    }
}

/// How many lines name a task that another line names.
fn rerun(starts: &str) -> u64 {
    let distinct: BTreeSet<&str> = starts.lines().collect();
    (starts.lines().count() - distinct.len()) as u64
}

/// The history of a farm.
struct Events(Vec<Value>);

impl Events {
    fn first_ms(&self, kind: &str) -> Option<f64> {
        self.0.iter().find(|event| event["kind"] == kind).and_then(time_ms)
    }

    fn last_ms(&self, kind: &str) -> Option<f64> {
        self.0.iter().rfind(|event| event["kind"] == kind).and_then(time_ms)
    }

    /// How often one worker changed farms within this time, at most. The owner's history knows when each left and came home.
    fn thrash_max(&self, within_ms: f64) -> usize {
        let is_change = |event: &&Value| event["kind"] == "lent" || event["kind"] == "loan_home";
        let mut changes: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for event in self.0.iter().filter(is_change) {
            let worker = event["worker"].as_str().unwrap_or_default();
            changes.entry(worker).or_default().extend(time_ms(event));
        }
        let most = |times: &Vec<f64>| {
            let within = |from: &f64| times.iter().filter(|time| (*from..from + within_ms).contains(time)).count();
            times.iter().map(within).max().unwrap_or(0)
        };
        changes.values().map(most).max().unwrap_or(0)
    }
}

fn not_saturated() -> Failure {
    Failure::failed("not_saturated", "the farm was never saturated", "give it more tasks, or longer ones")
}

fn missing(what: &str) -> Failure {
    Failure::failed("no_loan", what, "give it more tasks, or longer ones")
}

impl Found for Lending {
    const BENCH: &'static str = "lending";

    fn text(&self) -> String {
        let Self { n, task_ms, servers, workers, spread, alone_ms, makespan_ratio, borrowed_tasks, .. } = self;
        let Self { first_borrowed_task_ms, all_home_ms, lost, rerun, thrash_max, utilisation, .. } = self;
        let [makespan, alone] = [spread.median_ms, *alone_ms].map(|ms| ms / 1000.0);
        let (percent, stay_ms) = (100.0 * utilisation, Rules::default().stay_ms);
        format!(
            "lending      {n} tasks of {task_ms} ms for one of two farms of {servers} servers and {workers} workers
makespan     {makespan:.2} s, {makespan_ratio:.3} of the {alone:.2} s without lending; {percent:.0} % of all slots were in use
help         {borrowed_tasks} tasks ran on borrowed workers, the first {first_borrowed_task_ms:.0} ms after the farm was saturated
home         everybody was, {all_home_ms:.0} ms after the farm was calm
moves        {thrash_max} of one worker within {stay_ms} ms, at most
tasks        {lost} lost, {rerun} began again
",
        )
    }

    fn is_good(&self) -> bool {
        self.lost == 0 && self.rerun == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(changes: &[(&str, &str, u64)]) -> Events {
        let event = |(kind, worker, ms): &(&str, &str, u64)| {
            let time = format!("2026-01-01T00:00:{:02}.{:03}Z", ms / 1000, ms % 1000);
            json!({ "kind": kind, "worker": worker, "time": time })
        };
        Events(changes.iter().map(event).collect())
    }

    #[test]
    fn changes_of_one_worker_within_a_time_are_counted() {
        let calm = [("lent", "s1", 0), ("lent", "s2", 10), ("loan_home", "s2", 1010), ("loan_home", "s1", 1200)];
        assert_eq!(events(&calm).thrash_max(1000.0), 1);
        let hasty = [("lent", "s1", 0), ("loan_home", "s1", 999), ("lent", "s1", 1100), ("overdue", "s1", 1101)];
        assert_eq!(events(&hasty).thrash_max(1000.0), 2);
        assert_eq!(events(&[]).thrash_max(1000.0), 0);
        assert_eq!(events(&hasty).last_ms("lent"), events(&hasty).first_ms("lent").map(|ms| ms + 1100.0));
    }

    #[test]
    fn starts_beyond_the_first_of_a_task_are_reruns() {
        assert_eq!([rerun(""), rerun("1.1\n1.2\n"), rerun("1.1\n1.2\n1.1\n1.1\n")], [0, 0, 2]);
    }
}
