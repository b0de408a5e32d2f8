//! `primus bench pressure`: what others notice while a farm is asked for far more than usual, and how much memory that takes.
//!
//! Every load has a farm of its own, of real processes. Beside it a command is guarded, and all servers are asked for small
//! things: those are the others. What a load does is in [`loads`]; what it is measured by, in [`others`].

mod crowds;
mod fat;
mod loads;
mod others;

use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use loads::Scene;
use others::{Guarded, Others};
use primus_terminal::amounts::number;
use primus_terminal::failure::Failure;
use primus_terminal::json::{self, rounded};
use primus_terminal::{Format, Verdict, screen};
use serde::Serialize;

use crate::args::{PressureArgs, PressureLoad};
use crate::processes::{Burners, count_anew, peak_mib};
use crate::report::{Figures, Spread, debug_remark, flag, refuse_to_draw};
use crate::watch::{Watch, Watched};
use primus_local::{Purpose, TemporaryFarm};

pub(crate) use others::guard;

const SERVERS: u64 = 3;
const WORKERS: u64 = 2;
const SECONDS: u64 = 10;
const SECONDS_MAX: u64 = 3600;
const BESIDE: u64 = 2;
const BESIDE_MAX: u64 = 256;
const KEYS: u64 = 1_000_000;
const KEYS_MAX: u64 = 5_000_000;
const TASKS: u64 = 4_000_000;
const CLIENTS_MAX: u64 = 10_000;
/// What laying the state leaves behind must be over: memory is given back.
const CALM: Duration = Duration::from_millis(1500);
/// The aims: no other request takes longer, and no server takes more memory above what it had.
const ANSWER_MS_MAX: f64 = 200.0;
const ABOVE_MIB_MAX: f64 = 256.0;

/// What is to be measured.
#[derive(Debug)]
struct Plan {
    loads: Vec<PressureLoad>,
    seconds: u64,
    beside: usize,
    keys: u64,
    tasks: u64,
    clients: Option<u64>,
}

/// What was found. A run is a load, its figure the slowest answer to others.
#[derive(Serialize)]
struct Pressure {
    servers: u64,
    workers: u64,
    seconds: u64,
    beside: usize,
    #[serde(flatten)]
    spread: Spread,
    loads: Vec<Row>,
}

/// What one load showed.
#[derive(Serialize)]
struct Row {
    load: String,
    /// How much of it took place, and what was counted.
    done: u64,
    unit: &'static str,
    #[serde(flatten)]
    watched: Watched,
    guarded_ended: bool,
    others: Others,
    memory: Vec<Memory>,
    /// Which aims were missed, a few words each.
    missed: Vec<String>,
    met: bool,
}

/// The memory of one server.
#[derive(Serialize)]
struct Memory {
    server: u64,
    before_mib: f64,
    above_mib: f64,
}

/// Measures and prints: for people every row when it is known.
pub(crate) fn pressure(args: &PressureArgs, format: Format) -> Result<Verdict, Failure> {
    let plan = Plan::of(args)?;
    refuse_to_draw(format)?;
    let say = |text: &str| if format == Format::Text { screen::print(text) } else { Ok(()) };
    say(&head(&plan))?;
    let mut loads = Vec::new();
    for load in &plan.loads {
        let row = measure(&plan, *load).map_err(Failure::into_bench)?;
        say(&row.text())?;
        loads.push(row);
    }
    say(debug_remark())?;
    if format == Format::Json {
        let Plan { seconds, beside, .. } = plan;
        let spread = Spread::of(loads.iter().map(|row| row.others.slowest_ms).collect());
        let found = Pressure { servers: SERVERS, workers: WORKERS, seconds, beside, spread, loads };
        screen::print(&json::line(&Figures { bench: "pressure", found: &found }))?;
    }
    Ok(Verdict::Held)
}

impl Plan {
    fn of(args: &PressureArgs) -> Result<Self, Failure> {
        let beside = flag("--beside", &args.beside, BESIDE, 0, BESIDE_MAX)?;
        let clients = args.clients.as_deref().map(|text| number("--clients", text, SERVERS, CLIENTS_MAX));
        let mut loads = args.loads.clone();
        if loads.is_empty() {
            loads = PressureLoad::value_variants().to_vec();
        }
        Ok(Self {
            loads,
            seconds: flag("--seconds", &args.seconds, SECONDS, 1, SECONDS_MAX)?,
            beside: usize::try_from(beside).unwrap_or(0),
            keys: flag("--keys", &args.keys, KEYS, 1, KEYS_MAX)?,
            tasks: flag("--tasks", &args.tasks, TASKS, 1, TASKS)?,
            clients: clients.transpose()?,
        })
    }

    fn clients(&self, load: PressureLoad) -> usize {
        let usual = match load {
            PressureLoad::Lists | PressureLoad::Cancels | PressureLoad::ListsAndCancels => 0,
            PressureLoad::Bulk => 250,
            PressureLoad::Workers => 24,
            PressureLoad::Followers => 6144,
            PressureLoad::Slow => 900,
        };
        usize::try_from(self.clients.unwrap_or(usual)).unwrap_or(usize::MAX)
    }
}

fn measure(plan: &Plan, load: PressureLoad) -> Result<Row, Failure> {
    crowds::allow_files(plan.clients(load))?;
    // One of the loads is workers that nobody has named.
    let farm = TemporaryFarm::start_with_workers(Purpose::plain("bench"), SERVERS, WORKERS, 1)?;
    let reign = farm.settled()?;
    let name = farm.now()?.name;
    loads::prepare(&farm, plan, load, reign.leader)?;
    let guarded = Guarded::start(&name)?;
    thread::sleep(CALM);
    let watch = Watch::begin(&farm)?;
    let before = memories(&farm, count_anew)?;
    let burners = Burners::start(plan.beside)?;
    let until = Instant::now() + Duration::from_secs(plan.seconds);
    let scene = Scene::new(&farm, &name, reign.leader, plan.clients(load), plan.tasks, until);
    let others = thread::scope(|scope| {
        loads::lay(load, &scene, scope);
        others::ask(&farm, until, scope)
    });
    let guarded_ended = !guarded.runs();
    let peaks = memories(&farm, peak_mib)?;
    drop(burners);
    let watched = watch.end(&farm)?;
    let memory = before.into_iter().zip(peaks).map(|((server, before_mib), (_, peak))| Memory {
        server,
        before_mib,
        above_mib: rounded(peak - before_mib),
    });
    let row = Row {
        load: name_of(load),
        done: scene.done()?,
        unit: loads::unit(load),
        watched,
        guarded_ended,
        others: others?,
        memory: memory.collect(),
        missed: Vec::new(),
        met: true,
    };
    Ok(row.judged(load))
}

/// Servers, and what this says of their memory.
fn memories(farm: &TemporaryFarm, of: impl Fn(u32) -> Option<f64>) -> Result<Vec<(u64, f64)>, Failure> {
    let gone =
        || Failure::failed("system", "a server's memory cannot be read", "this needs Linux, and servers that live");
    let now = farm.now()?;
    let memories = now.servers.iter().map(|server| Some((server.id, rounded(of(server.pid?)?))));
    memories.collect::<Option<Vec<_>>>().ok_or_else(gone)
}

/// As people write it.
fn name_of(load: PressureLoad) -> String {
    load.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

impl Row {
    /// Compared with the aims.
    fn judged(mut self, load: PressureLoad) -> Self {
        let mut missed = Vec::new();
        let mut aim = |is_met: bool, what: String| missed.extend((!is_met).then_some(what));
        aim(self.watched.leader_changes == 0, "another leader".to_owned());
        aim(!self.guarded_ended, "the guarded command ended".to_owned());
        let failed = self.others.failed;
        aim(failed == 0, format!("{failed} other requests failed"));
        match load {
            PressureLoad::Lists | PressureLoad::Cancels | PressureLoad::ListsAndCancels => {
                let is_soon = self.others.slowest_ms <= ANSWER_MS_MAX;
                aim(is_soon, format!("{} took longer than {ANSWER_MS_MAX} ms", self.others.slowest));
            }
            PressureLoad::Bulk | PressureLoad::Workers | PressureLoad::Followers | PressureLoad::Slow => {
                aim(self.above_mib() <= ABOVE_MIB_MAX, format!("more than {ABOVE_MIB_MAX} MiB above"));
            }
        }
        self.met = missed.is_empty();
        self.missed = missed;
        self
    }

    /// Of the server that took most.
    fn above_mib(&self) -> f64 {
        self.memory.iter().map(|memory| memory.above_mib).fold(0.0, f64::max)
    }

    /// For people.
    fn text(&self) -> String {
        let Self { load, done, unit, watched, others, memory, missed, .. } = self;
        let above: Vec<String> = memory.iter().map(|memory| format!("{:.0}", memory.above_mib)).collect();
        let aims = if missed.is_empty() { "met".to_owned() } else { format!("missed: {}", missed.join(", ")) };
        let guarded = if self.guarded_ended { "ended" } else { "runs" };
        let Watched { leader_changes, longest_turn_ms, .. } = watched;
        let Others { count, failed, median_ms, slowest_ms, .. } = others;
        format!(
            "{load:<18} {leader_changes:>7}  {guarded:<8} {count:>6} {failed:>6} {median_ms:>8.1} {slowest_ms:>8.1} \
             {longest_turn_ms:>6.1}  {:<14} {:<18} {aims}\n{}{}",
            above.join(" "),
            format!("{done} {unit}"),
            others.text(),
            watched.text(),
        )
    }
}

fn head(plan: &Plan) -> String {
    let Plan { seconds, beside, keys, tasks, .. } = plan;
    format!(
        "pressure     {SERVERS} servers, {WORKERS} workers, {seconds} s each, beside {beside} busy processes; \
         {keys} keys, jobs of {tasks} tasks
                   leader   guarded   others: those                   ms   longest MiB above,     done               aims
load               changes  command     all failed   median  slowest turn ms  each server\n"
    )
}
