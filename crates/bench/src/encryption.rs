//! `primus bench encryption`: what links with certificates cost, beside plain ones in the same run.
//!
//! What is measured, and how, other benches know: here are two farms for each part, in turn or side by side, and the aims.

use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use primus_local::{Purpose, TemporaryFarm};
use primus_terminal::failure::Failure;
use primus_terminal::json::{self, rounded};
use primus_terminal::{Format, Verdict, screen};
use serde::Serialize;

use crate::args::{EncryptionArgs, EncryptionPart, Fault};
use crate::report::{Figures, Spread, debug_remark, flag, milliseconds, quantile, refuse_to_draw};
use crate::{failover, idle, lending, log, tasks};

const SERVERS: u64 = 3;
const WORKERS: u64 = 2;
const RUNS_MAX: u64 = 10_000;
const RECORDS: u64 = 200_000;
const TASKS: u64 = 5000;
/// The aims.
const LOG_RATIO_MIN: f64 = 0.7;
const TASKS_RATIO_MIN: f64 = 0.95;
const IDLE_PERCENT_MAX: f64 = 4.0;
const KILL_MS_MAX: [f64; 2] = [10.0, 30.0];
const FREEZE_MS_MAX: [f64; 2] = [90.0, 110.0];
const LENDING_RATIO_MAX: f64 = 0.55;

/// What is to be measured.
#[derive(Debug)]
struct Plan {
    parts: Vec<EncryptionPart>,
    runs: Option<u64>,
    records: u64,
    tasks: u64,
    sleeps: u64,
}

/// What was found. A run is a part, its figure how long all of it took.
#[derive(Serialize)]
struct Encryption {
    parts: Vec<String>,
    #[serde(flatten)]
    spread: Spread,
    figures: Vec<Row>,
}

/// One figure of both farms.
#[derive(Debug, Serialize)]
struct Row {
    figure: &'static str,
    unit: &'static str,
    plain: f64,
    encrypted: f64,
    /// What the encrypted one is beside the plain one.
    ratio: f64,
    aim: String,
    met: bool,
}

/// The same of the plain farm and of the encrypted one, in this order.
struct Both<T>(T, T);

/// Measures and prints: for people every row when it is known.
pub(crate) fn encryption(args: &EncryptionArgs, format: Format) -> Result<Verdict, Failure> {
    let plan = Plan::of(args)?;
    refuse_to_draw(format)?;
    let say = |text: &str| if format == Format::Text { screen::print(text) } else { Ok(()) };
    say("encryption               plain   encrypted      ratio  aim\n")?;
    let (mut figures, mut took) = (Vec::new(), Vec::new());
    for part in &plan.parts {
        let began = Instant::now();
        let rows = measure(&plan, *part).map_err(Failure::into_bench)?;
        took.push(milliseconds(began));
        say(&rows.iter().map(Row::text).collect::<String>())?;
        figures.extend(rows);
    }
    say(debug_remark())?;
    if format == Format::Json {
        let parts = plan.parts.iter().map(|part| name_of(*part)).collect();
        let found = Encryption { parts, spread: Spread::of(took), figures };
        screen::print(&json::line(&Figures { bench: "encryption", found: &found }))?;
    }
    Ok(Verdict::Held)
}

impl Plan {
    fn of(args: &EncryptionArgs) -> Result<Self, Failure> {
        let mut parts = args.parts.clone();
        if parts.is_empty() {
            parts = EncryptionPart::value_variants().to_vec();
        }
        Ok(Self {
            parts,
            runs: args.runs.as_ref().map(|_| flag("--runs", &args.runs, 1, 1, RUNS_MAX)).transpose()?,
            records: flag("-n", &args.records, RECORDS, 100, log::RECORDS_MAX)?,
            tasks: flag("--tasks", &args.tasks, TASKS, 1, tasks::TASKS_MAX)?,
            sleeps: flag("--sleeps", &args.sleeps, lending::TASKS, 1, lending::TASKS_MAX)?,
        })
    }

    /// How often to measure.
    fn runs(&self, usual: u64) -> u64 {
        self.runs.unwrap_or(usual)
    }
}

fn measure(plan: &Plan, part: EncryptionPart) -> Result<Vec<Row>, Failure> {
    match part {
        EncryptionPart::Log => Ok(vec![log_rate(plan)?]),
        EncryptionPart::Tasks => Ok(vec![task_rate(plan)?]),
        EncryptionPart::Idle => Ok(vec![idleness(plan)?]),
        EncryptionPart::Failover => {
            let farms = Both::start(|purpose| TemporaryFarm::start(purpose, SERVERS))?;
            let kill = failovers(&farms, plan, Fault::Kill, ["kill, median", "kill, longest"], KILL_MS_MAX)?;
            let freeze =
                failovers(&farms, plan, Fault::Freeze, ["freeze, median", "freeze, longest"], FREEZE_MS_MAX)?;
            Ok(kill.into_iter().chain(freeze).collect())
        }
        EncryptionPart::Lending => Ok(vec![borrowing(plan)?]),
    }
}

impl<T> Both<T> {
    fn start(start: impl Fn(Purpose) -> Result<T, Failure>) -> Result<Self, Failure> {
        Ok(Self(start(Purpose::plain("bench-plain"))?, start("bench".into())?))
    }

    /// Asks one after the other, so often.
    fn in_turn<F>(
        &mut self,
        runs: u64,
        ask: impl Fn(&mut T, usize) -> Result<F, Failure>,
    ) -> Result<Both<Vec<F>>, Failure> {
        let mut found = Both(Vec::new(), Vec::new());
        for number in 0..usize::try_from(runs).unwrap_or(usize::MAX) {
            found.0.push(ask(&mut self.0, number)?);
            found.1.push(ask(&mut self.1, number)?);
        }
        Ok(found)
    }
}

impl Both<Vec<f64>> {
    fn quantile(&self, share: f64) -> Both<f64> {
        Both(quantile(&self.0, share), quantile(&self.1, share))
    }
}

impl Both<f64> {
    fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self(rounded(change(self.0)), rounded(change(self.1)))
    }
}

fn log_rate(plan: &Plan) -> Result<Row, Failure> {
    let mut farms = Both::start(|purpose| TemporaryFarm::start(purpose, SERVERS))?;
    let times = farms.in_turn(plan.runs(5), |farm, _| log::run(farm, plan.records, log::BATCH))?;
    let rates = times.quantile(0.5).map(|ms| plan.records as f64 / ms * 1000.0);
    Ok(Row::at_least("log", "records/s", rates, LOG_RATIO_MIN))
}

fn task_rate(plan: &Plan) -> Result<Row, Failure> {
    let farms = Both::start(|purpose| TemporaryFarm::start_with_workers(purpose, SERVERS, WORKERS, 1))?;
    let [plain, encrypted] = [&farms.0, &farms.1].map(|farm| tasks::of_true(farm, plan.tasks, WORKERS));
    let times = Both(plain?, encrypted?).in_turn(plan.runs(5), |run, _| run())?;
    let rates = times.quantile(0.5).map(|ms| plan.tasks as f64 / ms * 1000.0);
    Ok(Row::at_least("tasks", "tasks/s", rates, TASKS_RATIO_MIN))
}

/// Both farms in the same seconds.
fn idleness(plan: &Plan) -> Result<Row, Failure> {
    let mut farms = Both::start(|purpose| idle::settled(purpose, idle::SERVERS, 0))?;
    let mut used_ms = || farms.in_turn(1, |farm, _| idle::cpu_of(farm)).map(|used| used.quantile(1.0));
    let (before, began) = (used_ms()?, Instant::now());
    thread::sleep(Duration::from_secs(plan.runs(10)));
    let after = used_ms()?;
    let took_s = began.elapsed().as_secs_f64();
    let percent = Both(after.0 - before.0, after.1 - before.1).map(|ms| ms / took_s / 10.0);
    Ok(Row::at_most("5 idle servers", "% of a core", percent, IDLE_PERCENT_MAX))
}

fn failovers(
    farms: &Both<TemporaryFarm>,
    plan: &Plan,
    fault: Fault,
    figures: [&'static str; 2],
    aims: [f64; 2],
) -> Result<[Row; 2], Failure> {
    let mut farms = Both(&farms.0, &farms.1);
    let times = farms.in_turn(plan.runs(20), |farm, number| failover::once(farm, fault, number))?;
    let row = |place: usize, share| Row::at_most(figures[place], "ms", times.quantile(share), aims[place]);
    Ok([row(0, 0.5), row(1, 1.0)])
}

/// One pair of farms after the other: their tasks sleep, and nothing else counts.
fn borrowing(plan: &Plan) -> Result<Row, Failure> {
    let ratios = Both::start(|purpose| lending::ratio(purpose, plan.sleeps))?;
    Ok(Row::at_most("lending", "of alone", ratios, LENDING_RATIO_MAX))
}

/// As people write it.
fn name_of(part: EncryptionPart) -> String {
    part.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

impl Row {
    fn of(figure: &'static str, unit: &'static str, Both(plain, encrypted): Both<f64>) -> Self {
        let ratio = if plain > 0.0 { rounded(encrypted / plain) } else { 1.0 };
        Self { figure, unit, plain, encrypted, ratio, aim: String::new(), met: true }
    }

    /// The encrypted figure beside the plain one must be so high.
    fn at_least(figure: &'static str, unit: &'static str, both: Both<f64>, ratio: f64) -> Self {
        let row = Self::of(figure, unit, both);
        Self { aim: format!("ratio at least {ratio}"), met: row.ratio >= ratio, ..row }
    }

    /// The encrypted figure itself must not be higher.
    fn at_most(figure: &'static str, unit: &'static str, both: Both<f64>, most: f64) -> Self {
        let row = Self::of(figure, unit, both);
        Self { aim: format!("at most {most} {unit}"), met: row.encrypted <= most, ..row }
    }

    /// For people.
    fn text(&self) -> String {
        let Self { figure, unit, plain, encrypted, ratio, aim, met } = self;
        let met = if *met { "met" } else { "missed" };
        format!("{figure:<18} {plain:>11.2} {encrypted:>11.2} {ratio:>10.3}  {aim}: {met} ({unit})\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_compared_and_times_are_not() {
        let row = Row::at_least("log", "records/s", Both(200.0, 150.0), 0.7);
        assert!((row.met, row.ratio) == (true, 0.75), "{row:?}");
        assert!(!Row::at_least("log", "records/s", Both(200.0, 130.0), 0.7).met);
        assert!(Row::at_most("kill", "ms", Both(1.0, 9.0), 10.0).met);
        assert!(!Row::at_most("kill", "ms", Both(20.0, 11.0), 10.0).met);
    }

    #[test]
    fn both_are_asked_in_turn() {
        let asked = std::cell::RefCell::new(Vec::new());
        let found = Both("plain", "encrypted").in_turn(2, |who, number| {
            asked.borrow_mut().push((*who, number));
            Ok(number as f64)
        });
        assert_eq!(*asked.borrow(), [("plain", 0), ("encrypted", 0), ("plain", 1), ("encrypted", 1)]);
        let Ok(found) = found else { panic!("all answered") };
        assert_eq!(found.quantile(1.0).1, 1.0);
    }
}
