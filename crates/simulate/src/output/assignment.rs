//! The rules of assignment compared, for people and for programs.

use primus_lab::assignment::{Comparison, Outcome};
use primus_terminal::json;
use primus_terminal::table::table;
use serde::Serialize;

/// A rule's name, and what it came to.
pub(crate) type Row = (&'static str, Outcome);

/// All rules as a table.
pub(crate) fn text(comparison: &Comparison, seed: u64, rows: &[Row]) -> String {
    let seconds = |time_us: u64| format!("{:.2} s", time_us as f64 / 1e6);
    let lines: Vec<[String; 4]> = rows
        .iter()
        .map(|(rule, outcome)| {
            let Outcome { mean_us, p99_us, makespan_us } = *outcome;
            [(*rule).to_owned(), seconds(mean_us), seconds(p99_us), seconds(makespan_us)]
        })
        .collect();
    let Comparison { workers, slots, tasks, task_us, load_percent, heartbeat_us } = *comparison;
    format!(
        "{}{tasks} tasks of {} on average, {workers} workers with {slots} slots, {load_percent} % of them busy; scores are up \
         to {} old\nseed: {seed}\n",
        table(&["rule", "mean response", "p99", "makespan"], &lines),
        seconds(task_us),
        seconds(heartbeat_us),
    )
}

#[derive(Serialize)]
struct Compared {
    seed: u64,
    tasks: u64,
    workers: u64,
    slots: u32,
    load_percent: u64,
    task_ms: f64,
    heartbeat_ms: f64,
    rules: Vec<Rule>,
}

#[derive(Serialize)]
struct Rule {
    rule: &'static str,
    mean_ms: f64,
    p99_ms: f64,
    makespan_ms: f64,
}

/// All rules as one line of JSON.
pub(crate) fn json(comparison: &Comparison, seed: u64, rows: &[Row]) -> String {
    let ms = |time_us: u64| time_us as f64 / 1e3;
    let rule = |(rule, outcome): &Row| Rule {
        rule,
        mean_ms: ms(outcome.mean_us),
        p99_ms: ms(outcome.p99_us),
        makespan_ms: ms(outcome.makespan_us),
    };
    json::line(&Compared {
        seed,
        tasks: comparison.tasks,
        workers: comparison.workers,
        slots: comparison.slots,
        load_percent: comparison.load_percent,
        task_ms: ms(comparison.task_us),
        heartbeat_ms: ms(comparison.heartbeat_us),
        rules: rows.iter().map(rule).collect(),
    })
}
