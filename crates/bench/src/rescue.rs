//! `primus bench rescue`: how soon work goes on when somebody dies or freezes who had it.
//!
//! Real processes: a task writes a file named after its attempt when it begins, and this bench looks for such files. A worker
//! that is killed or frozen has one task, which must begin elsewhere; of a killed one's task no process may be left. If the
//! leader dies, the workers live on, and what is measured is when the next task begins that the new leader handed out.

use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, thread};

use primus_client::http::Request;
use primus_client::{Client, Patience, farms};
use primus_terminal::failure::Failure;
use primus_terminal::json::rounded;
use primus_terminal::{Format, Verdict};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::{RescueArgs, RescueFault};
use crate::report::{Found, Runs, Spread, measured, milliseconds, quantile};
use primus_local::TemporaryFarm;
use primus_local::chaos;

const SERVERS: u64 = 3;
const WORKERS: u64 = 2;
const RUNS: u64 = 10;
const RUNS_MAX: u64 = 1000;
/// Unless somebody says how many, no run starts after this; a bench ends within 45 s.
const BUDGET_MS: f64 = 30_000.0;
/// How long anything may take.
const WAITING_TIME: Duration = Duration::from_secs(15);
/// How often somebody looks.
const LOOK: Duration = Duration::from_micros(200);
/// More short tasks than workers get through while leaders change, and no more: a server that starts again goes through all
/// that was cancelled before.
const MANY: u64 = 5_000;

/// What was found.
#[derive(Serialize)]
struct Rescue {
    fault: &'static str,
    servers: u64,
    workers: u64,
    #[serde(flatten)]
    spread: Spread,
    /// How long a process of the dead worker's task lived on.
    #[serde(skip_serializing_if = "Option::is_none")]
    orphan_max_ms: Option<f64>,
}

/// What one run showed.
struct Run {
    ms: f64,
    orphan_ms: Option<f64>,
}

/// Measures and prints.
pub(crate) fn rescue(args: &RescueArgs, format: Format) -> Result<Verdict, Failure> {
    let runs = Runs::typed(&args.runs, RUNS, RUNS_MAX, BUDGET_MS)?;
    measured(format, || measure(args.fault, runs))
}

fn measure(fault: RescueFault, runs: Runs) -> Result<Rescue, Failure> {
    let started = Instant::now();
    let farm =
        MarkedFarm { farm: TemporaryFarm::start_with_workers("bench", SERVERS, WORKERS, 1)?, marks: Marks::new()? };
    let done = runs.repeat(started, |_| {
        farm.whole()?;
        match fault {
            RescueFault::LeaderKill => farm.without_leader(),
            RescueFault::WorkerKill | RescueFault::WorkerFreeze => farm.without_worker(fault),
        }
    })?;
    let orphans: Vec<f64> = done.iter().filter_map(|run| run.orphan_ms).collect();
    Ok(Rescue {
        fault: fault.name(),
        servers: SERVERS,
        workers: WORKERS,
        spread: Spread::of(done.iter().map(|run| run.ms).collect()),
        orphan_max_ms: (!orphans.is_empty()).then(|| quantile(&orphans, 1.0)),
    })
}

/// A farm whose tasks leave marks when they start.
struct MarkedFarm {
    farm: TemporaryFarm,
    marks: Marks,
}

impl MarkedFarm {
    /// Waits until all are there and nobody has anything to do.
    fn whole(&self) -> Result<(), Failure> {
        self.farm.settled()?;
        self.farm.wait_for_workers(WORKERS)
    }

    fn without_worker(&self, fault: RescueFault) -> Result<Run, Failure> {
        self.marks.clear();
        let job = self.submit(&self.marks.command("exec sleep 600"), 1, false)?;
        let first = self.marks.wait(|_| true)?;
        let task = self.read(&format!("/v1/tasks/{job}.1"))?;
        let worker = task["worker"].as_str().unwrap_or_default().to_owned();
        let now = self.farm.now()?;
        let started = Instant::now();
        match fault {
            RescueFault::WorkerFreeze => chaos::freeze(&now, &worker),
            RescueFault::WorkerKill | RescueFault::LeaderKill => chaos::kill_at_once(&now, &worker),
        }?;
        let orphan =
            (fault == RescueFault::WorkerKill).then(|| thread::spawn(move || lives(first.process, started)));
        self.marks.wait(|mark| mark.attempt != first.attempt)?;
        let ms = milliseconds(started);
        let orphan_ms = orphan.and_then(|orphan| orphan.join().ok());
        match fault {
            RescueFault::WorkerFreeze => _ = chaos::thaw(&now, &worker)?,
            _ => _ = chaos::restart(&now, &worker)?,
        }
        self.cancel(&job)?;
        Ok(Run { ms, orphan_ms })
    }

    fn without_leader(&self) -> Result<Run, Failure> {
        self.marks.clear();
        let reign = self.farm.settled()?;
        // What must not start twice is not handed out in advance: so the next start is the new leader's doing.
        let job = self.submit(&self.marks.command("exec sleep 0.01"), MANY, true)?;
        self.marks.wait(|mark| mark.term == reign.term)?;
        let (now, target) = (self.farm.now()?, reign.leader.to_string());
        let started = Instant::now();
        chaos::kill_at_once(&now, &target)?;
        self.marks.wait(|mark| mark.term > reign.term)?;
        let ms = milliseconds(started);
        chaos::restart(&now, &target)?;
        self.cancel(&job)?;
        Ok(Run { ms, orphan_ms: None })
    }

    fn submit(&self, command: &Value, tasks: u64, no_rerun: bool) -> Result<String, Failure> {
        let body = json!({ "command": command, "array": format!("1-{tasks}"), "no_rerun": no_rerun }).to_string();
        let request = Request::post("/v1/jobs", body.as_bytes());
        let answer = Client::of(&self.farm.now()?).write(request, Patience::WhileNoLeader(WAITING_TIME))?;
        let job = answer["job"].as_str().map(str::to_owned);
        job.ok_or_else(|| Failure::failed("refused", "the farm takes no tasks", "please report this"))
    }

    fn read(&self, path: &str) -> Result<Value, Failure> {
        Ok(Client::of(&self.farm.now()?).read(path, Patience::WhileNoLeader(WAITING_TIME))?)
    }

    fn cancel(&self, job: &str) -> Result<(), Failure> {
        let path = format!("/v1/jobs/{job}/cancel");
        let request = Request::post(&path, b"");
        Client::of(&self.farm.now()?).write(request, Patience::WhileNoLeader(WAITING_TIME))?;
        Ok(())
    }
}

/// How long this process lives on, in milliseconds since then.
fn lives(process: u32, since: Instant) -> f64 {
    while farms::is_alive(process) && since.elapsed() < WAITING_TIME {
        thread::sleep(LOOK);
    }
    rounded(milliseconds(since))
}

/// A folder in which tasks leave a mark when they begin: the term, then the attempt, and inside it their process.
struct Marks(PathBuf);

/// That a task has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mark {
    term: u64,
    attempt: String,
    process: u32,
}

impl Marks {
    fn new() -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(format!("primus-rescue-{}", std::process::id()));
        let failed = |error| {
            let message = format!("{} cannot be made: {error}", folder.display());
            Failure::failed("system", message, "make room in the temporary folder")
        };
        fs::create_dir_all(&folder).map_err(failed)?;
        Ok(Self(folder))
    }

    /// A command that leaves its mark and then does this.
    fn command(&self, then: &str) -> Value {
        let script = "echo $$ > \"$0/$PRIMUS_TERM.$PRIMUS_ATTEMPT\";";
        json!(["/bin/sh", "-c", format!("{script} {then}"), self.0])
    }

    fn clear(&self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            _ = fs::remove_file(entry.path());
        }
    }

    fn all(&self) -> impl Iterator<Item = Mark> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let (term, attempt) = name.split_once('.')?;
            // It may not have been written yet.
            let process = fs::read_to_string(entry.path()).ok()?.trim().parse().ok()?;
            Some(Mark { term: term.parse().ok()?, attempt: attempt.to_owned(), process })
        })
    }

    fn wait(&self, is_it: impl Fn(&Mark) -> bool) -> Result<Mark, Failure> {
        let until = Instant::now() + WAITING_TIME;
        while Instant::now() < until {
            if let Some(mark) = self.all().find(&is_it) {
                return Ok(mark);
            }
            thread::sleep(LOOK);
        }
        Err(Failure::failed("too_slow", "no task begins", "see whether the host is overloaded"))
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

impl RescueFault {
    const fn name(self) -> &'static str {
        match self {
            Self::WorkerKill => "worker-kill",
            Self::WorkerFreeze => "worker-freeze",
            Self::LeaderKill => "leader-kill",
        }
    }
}

impl Found for Rescue {
    const BENCH: &'static str = "rescue";

    fn text(&self) -> String {
        let Self { fault, servers, workers, spread, orphan_max_ms, .. } = self;
        let orphans = orphan_max_ms.map_or_else(String::new, |ms| {
            format!("left behind  a process of the dead worker's task lived for {ms:.1} ms at most\n")
        });
        format!(
            "rescue       {servers} servers, {workers} workers, fault: {fault}, {} runs, from the signal to the next start
{}{orphans}",
            spread.runs.len(),
            spread.text(),
        )
    }
}
