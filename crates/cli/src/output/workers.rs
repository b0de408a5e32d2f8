//! Workers as people see them.

use primus_terminal::table::fitted;
use primus_terminal::values::plain;
use serde_json::Value;

use super::page::{Page, said};

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

/// A worker as a page.
pub(crate) fn page(worker: &Value) -> String {
    let name = plain(&worker["name"]);
    let mut page = Page::new(format!("worker {name} {}\n", state(worker)));
    page.fact("farm", said(&worker["farm"]));
    page.fact("home", said(&worker["home"]).filter(|home| worker["farm"] != home.as_str()));
    page.fact("slots", said(&worker["slots"]));
    let tasks = worker["running_tasks"].as_array().into_iter().flatten().map(plain);
    page.fact("runs", Some(tasks.collect::<Vec<_>>().join(", ")).filter(|tasks| !tasks.is_empty()));
    page.fact("score", said(&worker["score"]));
    page.fact("cpu", said(&worker["cpu"]).map(|percent| format!("{percent} %")));
    page.fact("memory", said(&worker["memory"]).map(|percent| format!("{percent} %")));
    let undo = if worker["draining"] == true { " --undo lets it have work again" } else { " gives it nothing new" };
    page.hint(&format!("primus drain {name}{undo}"));
    page.text()
}

fn state(worker: &Value) -> &'static str {
    match (worker["alive"] == true, worker["draining"] == true) {
        (false, _) => "is not connected",
        (true, true) => "is drained",
        (true, false) => "is connected",
    }
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

    #[test]
    fn a_worker_is_a_page() {
        let worker = json!({"name": "w1", "home": "south", "farm": "north", "slots": 2, "running": 1, "alive": true,
            "draining": true, "score": 17.0, "cpu": 20.0, "memory": null, "running_tasks": ["12.7", "13.1"]});
        let expected = "\
worker w1 is drained
  farm       north
  home       south
  slots      2
  runs       12.7, 13.1
  score      17.0
  cpu        20.0 %

primus drain w1 --undo lets it have work again
";
        assert_eq!(page(&worker), expected);
    }
}
