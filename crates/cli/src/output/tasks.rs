//! Jobs and tasks as people see them.

use std::time::Duration;

use primus_terminal::failure::on_one_line;
use primus_terminal::table::table;
use primus_terminal::values::{number, plain, time};
use serde_json::Value;

const JOB_COLUMNS: [&str; 9] =
    ["JOB", "TASKS", "QUEUED", "RUNNING", "DONE", "FAILED", "OTHER", "SUBMITTED", "WHAT"];
const TASK_COLUMNS: [&str; 6] = ["TASK", "STATE", "WORKER", "EXIT", "TOOK", "ENDED BECAUSE"];
/// How much of a command a table shows.
const WHAT_LEN_MAX: usize = 60;

/// A table of jobs.
pub(crate) fn jobs(items: &[Value]) -> String {
    let rows: Vec<[String; 9]> = items.iter().map(job_row).collect();
    table(&JOB_COLUMNS, &rows)
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
    let took =
        task["took_ms"].as_f64().map_or_else(|| "-".to_owned(), |ms| time(Duration::from_secs_f64(ms / 1e3)));
    [
        plain(&task["task"]),
        plain(&task["state"]),
        plain(&task["worker"]),
        plain(&task["exit"]),
        took,
        plain(&task["reason"]),
    ]
}

/// A task, a line per fact.
pub(crate) fn task(task: &Value) -> String {
    let facts = task.as_object().into_iter().flatten();
    let is_said =
        |value: &Value| !value.is_null() && value != "" && value.as_array().is_none_or(|list| !list.is_empty());
    let facts = facts.filter(|(name, value)| is_said(value) && !["stdout", "stderr"].contains(&name.as_str()));
    let facts: Vec<(&str, String)> = facts.map(|(name, value)| (name.as_str(), plain(value))).collect();
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    facts.into_iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
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
    fn a_task_is_a_list_of_facts() {
        let facts = json!({"exit": 0, "reason": null, "stdout": "x", "task": "12.7"});
        assert_eq!(task(&facts), "exit  0\ntask  12.7\n");
    }
}
