//! `primus jobs`, `primus tasks`, `primus task`: what there is.

use clap::ValueEnum;
use primus_client::tasks::{path_of, task_path};
use primus_client::{pages, strange_answer};
use primus_terminal::Place;
use primus_terminal::amounts::number;
use primus_terminal::failure::{Failure, on_one_line};
use primus_terminal::{Format, Verdict};
use serde_json::Value;

use crate::args::{JobsArgs, TaskArgs, TasksArgs};
use crate::output::tasks;

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
    let job = match &args.job {
        Some(job) => {
            let path = path_of(job)?;
            let job = path.strip_prefix("/v1/jobs/").ok_or_else(|| no_job(job))?;
            format!("&job={job}")
        }
        None => String::new(),
    };
    let query = format!("{state}{job}");
    let path = if query.is_empty() { String::from("/v1/tasks") } else { format!("/v1/tasks?{}", &query[1..]) };
    let answer = gather(&args.place, &path, count, format)?;
    list(&answer, format, tasks::tasks)
}

/// Shows one.
pub(super) fn task(args: &TaskArgs, format: Format) -> Result<Verdict, Failure> {
    let task = get(&args.place, &task_path(&args.id)?, format)?;
    format.show(|| tasks::task(&task), &task)?;
    Ok(Verdict::Held)
}

fn get(place: &Place, path: &str, format: Format) -> Result<Value, Failure> {
    format.refuse_to_draw()?;
    Ok(place.caller()?.get(path)?)
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

fn no_job(text: &str) -> Failure {
    Failure::usage(format!("--job is '{}'", on_one_line(text)), "a job is a number, such as 12")
}
