//! `primus wait`: until jobs or tasks have ended. On a terminal one sees how far they are.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use primus_client::tasks::{TaskClient, path_of};
use primus_terminal::amounts::length;
use primus_terminal::failure::{Failure, on_one_line};
use primus_terminal::values::{number, plain};
use primus_terminal::{Format, Verdict, screen};
use serde_json::{Value, json};

use super::run::has_ended;
use super::select::{self, All};
use crate::args::WaitArgs;
use crate::output::tasks::outcome;

/// How often somebody who looks on is told how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// And a file, which nobody looks at all the time.
const TELL_EVERY: Duration = Duration::from_secs(5);
const BAR: &str = "{prefix}  {bar:30} {pos}/{len}  {per_sec:>10}  {eta:>4} left {msg}";

/// Waits for all of them.
pub(super) fn run(args: &WaitArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let timeout = args.timeout.as_deref().map(|text| length("--timeout", text)).transpose()?;
    let mut caller = args.which.place.caller()?;
    let ids = select::ids(&mut caller, &args.which.ids, All::Unfinished)?;
    let mut waiting = Waiting::new(caller, ids, timeout)?;
    let items = waiting.finish()?;
    let text = || items.iter().map(|item| format!("{}\n", sentence(item))).collect();
    format.show(text, &json!({ "items": items, "next": null }))?;
    Ok(Verdict::of(items.iter().all(ended_well)))
}

/// Jobs and tasks that somebody waits for.
pub(super) struct Waiting {
    caller: TaskClient,
    ids: Vec<String>,
    /// Their paths.
    paths: Vec<String>,
    until: Option<Instant>,
    timeout: Option<Duration>,
}

impl Waiting {
    pub(super) fn new(caller: TaskClient, ids: Vec<String>, timeout: Option<Duration>) -> Result<Self, Failure> {
        let paths = ids.iter().map(|id| path_of(id)).collect::<Result<_, _>>()?;
        Ok(Self { caller, ids, paths, until: timeout.map(|time| Instant::now() + time), timeout })
    }

    /// All of them, ended.
    pub(super) fn finish(&mut self) -> Result<Vec<Value>, Failure> {
        let mut items = Vec::new();
        for (path, id) in self.paths.clone().iter().zip(self.ids.clone()) {
            items.push(self.await_one(path, &id)?);
        }
        Ok(items)
    }

    fn await_one(&mut self, path: &str, id: &str) -> Result<Value, Failure> {
        let mut progress = None;
        loop {
            let now = Instant::now();
            let left = self.until.map_or(Duration::MAX, |until| until.saturating_duration_since(now));
            let pace = if progress.is_some() { LOOK_EVERY } else { Duration::from_millis(50) };
            let item = self.caller.wait(path, left.min(pace))?;
            if is_over(&item) {
                return Ok(item);
            }
            progress.get_or_insert_with(|| Progress::new(&item)).tell(&item);
            if self.until.is_some_and(|until| Instant::now() >= until) {
                let seconds = self.timeout.unwrap_or_default().as_secs_f64();
                let message = format!("waited {seconds} s for {id}: {}", sentence(&item));
                return Err(Failure::too_long(message, "primus explain says what a task waits for"));
            }
        }
    }
}

/// A bar on a terminal, a line now and then elsewhere.
enum Progress {
    Bar(ProgressBar),
    Lines(Instant),
}

impl Progress {
    fn new(item: &Value) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Lines(Instant::now());
        }
        let tasks = item["tasks"].as_u64().unwrap_or(1);
        let bar = ProgressBar::with_draw_target(Some(tasks), ProgressDrawTarget::stderr());
        bar.set_style(ProgressStyle::with_template(BAR).expect("the template is good"));
        bar.set_prefix(if item["task"].is_string() { plain(&item["task"]) } else { plain(&item["job"]) });
        Self::Bar(bar)
    }

    fn tell(&mut self, item: &Value) {
        let ended = ["done", "failed", "lost", "cancelled"].map(|state| number(&item[state])).iter().sum();
        let bad = number(&item["failed"]) + number(&item["lost"]);
        match self {
            Self::Bar(bar) => {
                bar.set_message(if bad > 0 { format!(" {bad} failed") } else { String::new() });
                bar.set_position(ended);
            }
            Self::Lines(last) if last.elapsed() >= TELL_EVERY => {
                *last = Instant::now();
                screen::complain(&sentence(item));
            }
            Self::Lines(_) => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn is_over(item: &Value) -> bool {
    if item["task"].is_string() { has_ended(item) } else { number(&item["queued"]) + number(&item["running"]) == 0 }
}

/// Was it a success, as a whole?
pub(super) fn ended_well(item: &Value) -> bool {
    if item["task"].is_string() { item["state"] == "done" } else { item["done"] == item["tasks"] }
}

/// How it went, or goes.
pub(super) fn sentence(item: &Value) -> String {
    if item["task"].is_string() {
        let reason = item["reason"].as_str().map(|reason| format!(": {}", on_one_line(reason))).unwrap_or_default();
        return format!("task {} is {}{reason}", plain(&item["task"]), plain(&item["state"]));
    }
    outcome(item)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_tasks_end_well_or_not() {
        let job = json!({"job": "1", "tasks": 2, "done": 2, "queued": 0, "running": 0});
        assert!(is_over(&job) && ended_well(&job));
        let failed = json!({"job": "1", "tasks": 2, "done": 1, "failed": 1, "queued": 0, "running": 0});
        assert!(is_over(&failed) && !ended_well(&failed));
        let task = json!({"task": "1.1", "job": "1", "state": "failed", "reason": "it ended with exit code 3"});
        assert!(is_over(&task) && !ended_well(&task));
        assert_eq!(sentence(&task), "task 1.1 is failed: it ended with exit code 3");
        let hostile = json!({"task": "1.1", "job": "1", "state": "failed", "reason": "a\u{202e}b\u{1b}[2J"});
        assert_eq!(sentence(&hostile), "task 1.1 is failed: a\\u{202e}b\\u{1b}[2J");
        assert!(!is_over(&json!({"task": "1.1", "state": "queued"})));
    }
}
