//! Jobs and tasks as people see them.

use std::time::Duration;

use primus_terminal::failure::on_one_line;
use primus_terminal::table::{fitted, table};
use primus_terminal::values::{number, plain, time};
use serde_json::Value;

use super::page::{Page, said};

const JOB_COLUMNS: [&str; 9] =
    ["JOB", "TASKS", "QUEUED", "RUNNING", "DONE", "FAILED", "OTHER", "SUBMITTED", "WHAT"];
const TASK_COLUMNS: [&str; 6] = ["TASK", "STATE", "WORKER", "EXIT", "TOOK", "ENDED BECAUSE"];
/// How much of a command a table shows.
const WHAT_LEN_MAX: usize = 60;

/// A table of jobs.
pub(crate) fn jobs(items: &[Value]) -> String {
    let rows: Vec<[String; 9]> = items.iter().map(job_row).collect();
    fitted(&JOB_COLUMNS, &rows, &["SUBMITTED", "OTHER"])
}

/// A table of tasks.
pub(crate) fn tasks(items: &[Value]) -> String {
    let rows: Vec<[String; 6]> = items.iter().map(task_row).collect();
    table(&TASK_COLUMNS, &rows)
}

fn job_row(job: &Value) -> [String; 9] {
    let other = number(&job["lost"]) + number(&job["cancelled"]);
    [
        plain(&job["job"]),
        plain(&job["tasks"]),
        plain(&job["queued"]),
        plain(&job["running"]),
        plain(&job["done"]),
        plain(&job["failed"]),
        other.to_string(),
        plain(&job["submitted"]),
        what(job),
    ]
}

/// What people called it, or what it runs.
fn what(job: &Value) -> String {
    let name = job["name"].as_str().filter(|name| !name.is_empty()).map(str::to_owned);
    let words = || job["command"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let command = || words().collect::<Vec<_>>().join(" ");
    let text = name.or_else(|| job["kind"].as_str().map(str::to_owned)).unwrap_or_else(command);
    let text = on_one_line(&text);
    if text.chars().count() <= WHAT_LEN_MAX {
        return text;
    }
    text.chars().take(WHAT_LEN_MAX - 1).chain(['…']).collect()
}

fn task_row(task: &Value) -> [String; 6] {
    let took = took(task).unwrap_or_else(|| "-".to_owned());
    [
        plain(&task["task"]),
        plain(&task["state"]),
        plain(&task["worker"]),
        plain(&task["exit"]),
        took,
        plain(&task["reason"]),
    ]
}

/// A task as a page: how it is, what it runs, where, and the end of what it printed. `job` is what the farm says of its job, if it still
/// says anything.
pub(crate) fn task(task: &Value, job: &Value) -> String {
    let mut page = Page::new(format!("task {} {}\n", plain(&task["task"]), task_state(task)));
    page.fact("job", whole_job(task, job));
    page.fact("command", command(task, job));
    page.fact("worker", said(&task["worker"]));
    page.fact("started", said(&task["started"]));
    page.fact("took", took(task));
    page.fact("attempt", said(&task["attempt"]));
    let failures = number(&task["failures"]);
    page.fact("failures", (failures > 0).then(|| format!("{failures} so far; it is tried again")));
    page.tail("stdout", task);
    page.tail("stderr", task);
    if task["stdout_len"].is_null() {
        page.hint(&format!(
            "primus explain {} says why it is so; primus logs {0} shows what it prints",
            plain(&task["task"])
        ));
    }
    page.text()
}

/// A job as a page.
pub(crate) fn job(job: &Value) -> String {
    let id = plain(&job["job"]);
    let mut page = Page::new(format!("{}\n", outcome(job)));
    page.fact("name", said(&job["name"]));
    page.fact("command", command(&Value::Null, job));
    page.fact("submitted", said(&job["submitted"]));
    page.fact("slots", at_least(&job["cpus"], 2).map(|slots| format!("{slots} for each task")));
    page.fact(
        "priority",
        job["priority"].as_i64().filter(|priority| *priority != 0).map(|priority| priority.to_string()),
    );
    page.fact("retries", at_least(&job["retries"], 1));
    page.fact("timeout", job["timeout_ms"].as_u64().map(|ms| time(Duration::from_millis(ms))));
    page.fact("rerun", (job["no_rerun"] == true).then(|| "never: a task whose worker dies is lost".to_owned()));
    if number(&job["failed"]) + number(&job["lost"]) > 0 {
        page.hint(&format!(
            "primus tasks {id} --state failed lists what failed; primus retry --failed {id} runs it again"
        ));
    } else {
        page.hint(&format!("primus tasks {id} lists its tasks; primus logs {id} shows what they printed"));
    }
    page.text()
}

/// The state in words, and why.
fn task_state(task: &Value) -> String {
    let state = match task["state"].as_str().unwrap_or("unknown") {
        "queued" => "waits for a slot",
        "running" => "is running",
        "done" => "is done",
        "failed" => "failed",
        "lost" => "is lost",
        "cancelled" => "is cancelled",
        other => return on_one_line(other),
    };
    match said(&task["reason"]) {
        Some(reason) => format!("{state}: {reason}"),
        None => state.to_owned(),
    }
}

fn whole_job(task: &Value, job: &Value) -> Option<String> {
    let id = said(&task["job"])?;
    let name = said(&job["name"]).map(|name| format!("  {name}")).unwrap_or_default();
    let size = at_least(&job["tasks"], 2).map(|tasks| format!("  {tasks} tasks")).unwrap_or_default();
    Some(format!("{id}{name}{size}"))
}

/// What a task runs: {} stands for its own argument.
fn command(task: &Value, job: &Value) -> Option<String> {
    if let Some(kind) = said(&job["kind"]) {
        return Some(format!("{kind} (a kind of the workers' own)"));
    }
    let words = job["command"].as_array()?.iter().filter_map(Value::as_str);
    let words: Vec<String> = match task["argument"].as_str() {
        Some(argument) => words.map(|word| word.replace("{}", argument)).collect(),
        None => words.map(str::to_owned).collect(),
    };
    (!words.is_empty()).then(|| on_one_line(&words.join(" ")))
}

fn took(task: &Value) -> Option<String> {
    task["took_ms"].as_f64().map(|ms| time(Duration::from_secs_f64(ms.max(0.0) / 1e3)))
}

fn at_least(value: &Value, least: u64) -> Option<String> {
    value.as_u64().filter(|number| *number >= least).map(|number| number.to_string())
}

/// How a job went, in one sentence.
pub(crate) fn outcome(job: &Value) -> String {
    let parts = ["done", "failed", "lost", "cancelled", "running", "queued"].into_iter();
    let parts = parts.filter_map(|state| match number(&job[state]) {
        0 => None,
        count => Some(format!("{count} {state}")),
    });
    let parts: Vec<String> = parts.collect();
    let tasks = number(&job["tasks"]);
    let noun = if tasks == 1 { "task" } else { "tasks" };
    format!("job {}: {tasks} {noun}, {}", plain(&job["job"]), parts.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn jobs_stand_in_a_table_and_end_in_a_sentence() {
        let job = json!({"job": "12", "tasks": 3, "queued": 0, "running": 1, "done": 1, "failed": 0, "lost": 0,
            "cancelled": 1, "submitted": "T", "command": ["echo", "a\nb"]});
        let turned = json!({"name": "photo\u{202e}gpj.exe"});
        assert_eq!(what(&turned), "photo\\u{202e}gpj.exe");
        let expected = "\
JOB  TASKS  QUEUED  RUNNING  DONE  FAILED  OTHER  SUBMITTED  WHAT
12   3      0       1        1     0       1      T          echo a\\nb
";
        assert_eq!(jobs(std::slice::from_ref(&job)), expected);
        assert_eq!(outcome(&job), "job 12: 3 tasks, 1 done, 1 cancelled, 1 running");
    }

    #[test]
    fn a_task_is_a_page() {
        let job =
            json!({"job": "12", "name": "render", "tasks": 30, "command": ["./render.sh", "{}"], "kind": null});
        let failed = json!({"task": "12.7", "job": "12", "state": "failed", "argument": "7", "failures": 0, "worker": "w1",
            "attempt": "7.3", "reason": "it ended with exit code 3", "verdict": "exited", "exit": 3, "signal": null,
            "started": "2026-01-01T00:00:00.000Z", "started_us": 17, "took_ms": 1200.0, "stdout": "", "stdout_len": 0,
            "stderr": "no\n such file\n", "stderr_len": 5000});
        let expected = "\
task 12.7 failed: it ended with exit code 3
  job        12  render  30 tasks
  command    ./render.sh 7
  worker     w1
  started    2026-01-01T00:00:00.000Z
  took       1.2 s
  attempt    7.3

stderr (the last 14 of 5000 bytes):
  no
   such file
";
        assert_eq!(task(&failed, &job), expected);
        let waiting = json!({"task": "12.8", "job": "12", "state": "queued", "argument": "8", "failures": 1, "worker": null,
            "attempt": null, "reason": null});
        let expected = "\
task 12.8 waits for a slot
  job        12
  failures   1 so far; it is tried again

primus explain 12.8 says why it is so; primus logs 12.8 shows what it prints
";
        assert_eq!(task(&waiting, &Value::Null), expected);
    }

    #[test]
    fn a_job_is_a_page() {
        let facts = json!({"job": "12", "name": "", "command": ["echo", "a"], "kind": null, "tasks": 3, "queued": 0,
            "running": 0, "done": 2, "failed": 1, "lost": 0, "cancelled": 0, "submitted": "T", "priority": 5, "cpus": 2,
            "retries": 0, "timeout_ms": 10000, "no_rerun": true});
        let expected = "\
job 12: 3 tasks, 2 done, 1 failed
  command    echo a
  submitted  T
  slots      2 for each task
  priority   5
  timeout    10.0 s
  rerun      never: a task whose worker dies is lost

primus tasks 12 --state failed lists what failed; primus retry --failed 12 runs it again
";
        assert_eq!(job(&facts), expected);
    }
}
