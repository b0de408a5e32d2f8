//! `primus workers`: all in a table, or each on a page of its own; or one is forgotten.

use primus_client::tasks::TaskClient;
use primus_client::{pages, strange_answer};
use primus_terminal::failure::{Failure, on_one_line};
use primus_terminal::names::advice;
use primus_terminal::{Format, Verdict};
use serde_json::{Value, json};

use super::{lists, roll};
use crate::args::{WorkersArgs, WorkersWhat};
use crate::output::workers;

/// Lists the workers, as the leader knows them.
pub(super) fn run(args: &WorkersArgs, format: Format) -> Result<Verdict, Failure> {
    if let Some(WorkersWhat::Forget { name, place }) = &args.what {
        return roll::forget_worker(name, place, format);
    }
    if args.names.is_empty() {
        return lists::all(&args.list, format, "/v1/workers", "name", workers::text);
    }
    lists::show(&args.list, format, "name", |caller| named(caller, &args.names), pages_of)
}

/// These workers, each with the tasks that it runs.
fn named(caller: &mut TaskClient, names: &[String]) -> Result<Value, Failure> {
    let all = list(caller, "/v1/workers")?;
    let running = list(caller, "/v1/tasks?state=running&fields=task,worker")?;
    let find = |name: &String| {
        let Some(worker) = all.iter().find(|worker| worker["name"] == **name) else {
            return Err(unknown(name, &all));
        };
        let has = |task: &&Value| task["worker"] == worker["name"];
        let runs: Vec<&Value> = running.iter().filter(has).map(|task| &task["task"]).collect();
        let mut worker = worker.clone();
        worker["running_tasks"] = json!(runs);
        Ok(worker)
    };
    Ok(json!({ "items": names.iter().map(find).collect::<Result<Vec<_>, _>>()?, "next": null }))
}

fn list(caller: &mut TaskClient, path: &str) -> Result<Vec<Value>, Failure> {
    let mut answer = pages::all(path, |page| caller.get(page))?;
    match answer["items"].take() {
        Value::Array(items) => Ok(items),
        _ => Err(strange_answer().into()),
    }
}

fn unknown(name: &str, all: &[Value]) -> Failure {
    let names = all.iter().filter_map(|worker| worker["name"].as_str());
    let hint = advice(name, names, "primus workers lists them");
    Failure::failed("not_found", format!("the farm does not know a worker '{}'", on_one_line(name)), hint)
}

fn pages_of(items: &[Value]) -> String {
    items.iter().map(workers::page).collect::<Vec<_>>().join("\n")
}
