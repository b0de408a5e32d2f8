//! `primus jobs`, `primus tasks`, `primus task`: what there is.

use clap::ValueEnum;
use serde_json::Value;

use super::{Verdict, refuse_to_draw, show};
use crate::args::{Format, JobsArgs, Place, TaskArgs, TasksArgs};
use crate::client::strange_answer;
use crate::client::tasks::{Caller, path_of, task_path};
use crate::output::failure::{Failure, on_one_line};
use crate::output::tasks;
use crate::settings::number;

const JOBS: u64 = 20;
const TASKS: u64 = 100;
/// As many as a server gives at once.
const LIMIT_MAX: u64 = 10_000;

/// Lists jobs.
pub(super) fn jobs(args: &JobsArgs, format: Format) -> Result<Verdict, Failure> {
    let limit = limit(args.limit.as_deref(), JOBS)?;
    let answer = get(&args.place, &format!("/v1/jobs?limit={limit}"), format)?;
    list(&answer, format, tasks::jobs)
}

/// Lists tasks.
pub(super) fn tasks(args: &TasksArgs, format: Format) -> Result<Verdict, Failure> {
    let limit = limit(args.limit.as_deref(), TASKS)?;
    let state = args.state.and_then(|state| state.to_possible_value());
    let state = state.map(|state| format!("&state={}", state.get_name())).unwrap_or_default();
    let job = match &args.job {
        Some(job) => {
            let path = path_of(job)?;
            let job = path.strip_prefix("/v1/jobs/").ok_or_else(|| no_job(job))?;
            format!("&job={job}")
        }
        None => String::new(),
    };
    let answer = get(&args.place, &format!("/v1/tasks?limit={limit}{state}{job}"), format)?;
    list(&answer, format, tasks::tasks)
}

/// Shows one.
pub(super) fn task(args: &TaskArgs, format: Format) -> Result<Verdict, Failure> {
    let task = get(&args.place, &task_path(&args.id)?, format)?;
    show(format, || tasks::task(&task), &task)?;
    Ok(Verdict::Held)
}

fn get(place: &Place, path: &str, format: Format) -> Result<Value, Failure> {
    refuse_to_draw(format)?;
    Caller::find(place)?.get(path)
}

fn list(answer: &Value, format: Format, table: impl Fn(&[Value]) -> String) -> Result<Verdict, Failure> {
    let items = answer["items"].as_array().ok_or_else(strange_answer)?;
    show(format, || table(items), answer)?;
    Ok(Verdict::Held)
}

fn limit(text: Option<&str>, default: u64) -> Result<u64, Failure> {
    text.map_or(Ok(default), |text| number("--limit", text, 1, LIMIT_MAX))
}

fn no_job(text: &str) -> Failure {
    Failure::usage(format!("--job is '{}'", on_one_line(text)), "a job is a number, such as 12")
}
