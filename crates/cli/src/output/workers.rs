//! Workers as people see them.

use primus_terminal::table::fitted;
use primus_terminal::values::plain;
use serde_json::Value;

const COLUMNS: [&str; 10] =
    ["WORKER", "FARM", "SLOTS", "RUNNING", "ALIVE", "DRAINED", "SCORE", "CPU", "MEMORY", "TASKS"];
/// What may be left out where there is no room, the last first.
const SPARE: [&str; 5] = ["DRAINED", "SCORE", "TASKS", "MEMORY", "CPU"];
const NONE: &str = "the farm has no workers; start one with primus worker\n";

/// A table of workers, or that there is none.
pub(crate) fn text(workers: &[Value]) -> String {
    if workers.is_empty() { NONE.to_owned() } else { table(workers) }
}

/// A table of workers.
pub(crate) fn table(workers: &[Value]) -> String {
    let rows: Vec<[String; 10]> = workers.iter().map(row).collect();
    fitted(&COLUMNS, &rows, &SPARE)
}

fn row(worker: &Value) -> [String; 10] {
    let yes_or_no = |value: &Value| if value == true { "yes" } else { "no" }.to_string();
    [
        plain(&worker["name"]),
        plain(&worker["farm"]),
        plain(&worker["slots"]),
        plain(&worker["running"]),
        yes_or_no(&worker["alive"]),
        yes_or_no(&worker["draining"]),
        plain(&worker["score"]),
        plain(&worker["cpu"]),
        plain(&worker["memory"]),
        plain(&worker["tasks"]),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn workers_stand_in_a_table() {
        let worker = json!({"name": "w1", "farm": "north", "slots": 2, "running": 1, "alive": true, "draining": false,
            "score": 17.0, "cpu": 20.0, "memory": 20.0, "tasks": 1});
        let expected = "\
WORKER  FARM   SLOTS  RUNNING  ALIVE  DRAINED  SCORE  CPU   MEMORY  TASKS
w1      north  2      1        yes    no       17.0   20.0  20.0    1
";
        assert_eq!(text(&[worker]), expected);
        assert_eq!(text(&[]), NONE);
    }
}
