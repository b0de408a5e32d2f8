//! `primus jobs`, `primus job`, `primus tasks`, `primus task`: what there is to do, and how it goes.

use clap::ValueEnum;
use primus_client::tasks::{path_of, task_path};
use primus_client::{pages, strange_answer};
use primus_terminal::Place;
use primus_terminal::amounts::{number, quoted};
use primus_terminal::failure::{Failure, on_one_line};
use primus_terminal::{Format, Verdict};
use serde_json::Value;

use crate::args::{JobArgs, JobsArgs, TaskArgs, TasksArgs};
use crate::output::tasks;

const JOBS_PATH: &str = "/v1/jobs/";
const JOBS: u64 = 20;
const TASKS: u64 = 100;
/// More than a farm keeps.
const LIMIT_MAX: u64 = 10_000_000;

/// Lists jobs.
pub(super) fn jobs(args: &JobsArgs, format: Format) -> Result<Verdict, Failure> {
    let count = count(args.limit.as_deref(), args.all, JOBS)?;
    let answer = gather(&args.place, "/v1/jobs", count, format)?;
    list(&answer, format, tasks::jobs)
}

/// Lists tasks.
pub(super) fn tasks(args: &TasksArgs, format: Format) -> Result<Verdict, Failure> {
    let count = count(args.limit.as_deref(), args.all, TASKS)?;
    let state = args.state.and_then(|state| state.to_possible_value());
    let state = state.map(|state| format!("&state={}", state.get_name())).unwrap_or_default();
    let job = match args.of.as_ref().or(args.job.as_ref()) {
        Some(job) => {
            let path = job_path(job)?;
            format!("&job={}", path.trim_start_matches(JOBS_PATH))
        }
        None => String::new(),
    };
    let query = format!("{state}{job}");
    let path = if query.is_empty() { String::from("/v1/tasks") } else { format!("/v1/tasks?{}", &query[1..]) };
    let answer = gather(&args.place, &path, count, format)?;
    list(&answer, format, tasks::tasks)
}

/// Shows one job.
pub(super) fn job(args: &JobArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let job = args.place.caller()?.get(&job_path(&args.id)?)?;
    format.show(|| tasks::job(&job), &job)?;
    Ok(Verdict::Held)
}

/// Shows one task.
pub(super) fn task(args: &TaskArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let mut caller = args.place.caller()?;
    let task = caller.get(&task_path(&args.id)?)?;
    // The page names the command, which the job has. A job that was forgotten a moment ago leaves a gap in it.
    let job = match (format, task["job"].as_str()) {
        (Format::Text, Some(job)) => caller.get(&job_path(job)?).unwrap_or_default(),
        _ => Value::Null,
    };
    format.show(|| tasks::task(&task, &job), &task)?;
    Ok(Verdict::Held)
}

/// The path of a job; a task is not one.
fn job_path(text: &str) -> Result<String, Failure> {
    match path_of(text)? {
        path if path.starts_with(JOBS_PATH) => Ok(path),
        _ => Err(Failure::usage(
            format!("{} is a task, not a job", quoted(text)),
            format!("leave out what follows the dot, or see primus task {}", on_one_line(text)),
        )),
    }
}

/// The first so many, page after page.
fn gather(place: &Place, path: &str, count: usize, format: Format) -> Result<Value, Failure> {
    format.refuse_to_draw()?;
    let mut caller = place.caller()?;
    Ok(pages::gather(path, count, |page| caller.get(page))?)
}

fn list(answer: &Value, format: Format, table: impl Fn(&[Value]) -> String) -> Result<Verdict, Failure> {
    let items = answer["items"].as_array().ok_or_else(strange_answer)?;
    format.show(|| table(items), answer)?;
    Ok(Verdict::Held)
}

/// How many are wanted.
fn count(limit: Option<&str>, all: bool, default: u64) -> Result<usize, Failure> {
    let count = match (all, limit) {
        (true, _) => u64::MAX,
        (false, Some(text)) => number("--limit", text, 1, LIMIT_MAX)?,
        (false, None) => default,
    };
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}
