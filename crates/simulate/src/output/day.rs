//! A day with lending and without, for people and for programs.

use primus_lab::lending::{Day, Figures, Load, Outcome};
use primus_terminal::json::{self, rounded};
use primus_terminal::table::table;
use serde::Serialize;

const COLUMNS: [&str; 9] =
    ["farm", "lending", "tasks", "mean queue", "p95", "max", "mean wait", "utilisation", "borrowed"];

/// Both days as one table.
pub(crate) fn text(day: &Day, seed: u64, without: &Outcome, with: &Outcome) -> String {
    let pairs = without.farms.iter().zip(&with.farms).enumerate();
    let farms = pairs.flat_map(|(farm, (without, with))| rows(&name(farm), without, with));
    let lines: Vec<[String; 9]> = farms.chain(rows("all", &without.all, &with.all)).collect();
    let Outcome { loans, stopped, thrash_max, .. } = with;
    format!(
        "{}{}\n{loans} loans; {stopped} tasks were stopped and ran again; within {} a worker changed farms {thrash_max} times at \
         most\nseed: {seed}\n",
        table(&COLUMNS, &lines),
        setting(day),
        seconds(day.rules.stay_ms * 1000),
    )
}

fn rows(farm: &str, without: &Figures, with: &Figures) -> [[String; 9]; 2] {
    [row(farm, "without", without), row(farm, "with", with)]
}

fn row(farm: &str, lending: &str, figures: &Figures) -> [String; 9] {
    let Figures { tasks, borrowed, queue_mean, queue_p95, queue_max, wait_us, utilisation, .. } = figures;
    [
        farm.to_owned(),
        lending.to_owned(),
        tasks.to_string(),
        format!("{queue_mean:.1}"),
        queue_p95.to_string(),
        queue_max.to_string(),
        seconds(*wait_us),
        format!("{:.0} %", 100.0 * utilisation),
        borrowed.to_string(),
    ]
}

fn setting(day: &Day) -> String {
    let Day { farms, workers, slots, busy_percent, .. } = day;
    let load = match day.load {
        Load::Curve => "a rise and a fall a day, at each farm later".to_owned(),
        Load::Bursts { turn_us } => format!("bursts that move on every {}", seconds(turn_us)),
        Load::One => "nearly everything for one farm".to_owned(),
        Load::Even => "the same everywhere".to_owned(),
    };
    format!(
        "{farms} farms of {workers} workers with {slots} slots for {:.1} h, tasks of {} on average for {busy_percent} % of all \
         slots; {load}",
        day.day_us as f64 / 3.6e9,
        seconds(day.task_us),
    )
}

fn seconds(time_us: u64) -> String {
    format!("{:.2} s", time_us as f64 / 1e6)
}

fn name(farm: usize) -> String {
    format!("farm{}", farm + 1)
}

#[derive(Serialize)]
struct Compared {
    seed: u64,
    farms: usize,
    workers: u64,
    slots: u16,
    load: &'static str,
    turn_ms: Option<f64>,
    busy_percent: u64,
    task_ms: f64,
    day_ms: f64,
    stay_ms: u64,
    without: Shown,
    with: Shown,
    loans: u64,
    stopped: u64,
    thrash_max: usize,
}

#[derive(Serialize)]
struct Shown {
    farms: Vec<Farm>,
    all: Farm,
}

#[derive(Serialize)]
struct Farm {
    farm: Option<String>,
    tasks: u64,
    borrowed: u64,
    left: u64,
    queue_mean: f64,
    queue_p95: u64,
    queue_max: u64,
    wait_mean_ms: f64,
    utilisation: f64,
}

/// Both days as one line of JSON.
pub(crate) fn json(day: &Day, seed: u64, without: &Outcome, with: &Outcome) -> String {
    let ms = |time_us: u64| time_us as f64 / 1e3;
    let (load, turn_ms) = match day.load {
        Load::Curve => ("curve", None),
        Load::Bursts { turn_us } => ("bursts", Some(ms(turn_us))),
        Load::One => ("one", None),
        Load::Even => ("even", None),
    };
    json::line(&Compared {
        seed,
        farms: day.farms,
        workers: day.workers,
        slots: day.slots,
        load,
        turn_ms,
        busy_percent: day.busy_percent,
        task_ms: ms(day.task_us),
        day_ms: ms(day.day_us),
        stay_ms: day.rules.stay_ms,
        without: shown(without),
        with: shown(with),
        loans: with.loans,
        stopped: with.stopped,
        thrash_max: with.thrash_max,
    })
}

fn shown(outcome: &Outcome) -> Shown {
    let farms = outcome.farms.iter().enumerate().map(|(farm, figures)| figures_of(Some(name(farm)), figures));
    Shown { farms: farms.collect(), all: figures_of(None, &outcome.all) }
}

fn figures_of(farm: Option<String>, figures: &Figures) -> Farm {
    Farm {
        farm,
        tasks: figures.tasks,
        borrowed: figures.borrowed,
        left: figures.left,
        queue_mean: rounded(figures.queue_mean),
        queue_p95: figures.queue_p95,
        queue_max: figures.queue_max,
        wait_mean_ms: rounded(figures.wait_us as f64 / 1e3),
        utilisation: rounded(figures.utilisation),
    }
}
