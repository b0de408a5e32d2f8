//! `primus jobs`, `primus job`, `primus tasks`, `primus task`: what there is to do, and how it goes.

use primus_client::tasks::{TaskClient, path_of, task_path};
use primus_client::{pages, strange_answer};
use primus_terminal::amounts::{number, quoted};
use primus_terminal::failure::{Failure, on_one_line};
use primus_terminal::values::number as count_of;
use primus_terminal::{Format, Verdict};
use serde_json::{Value, json};

use super::lists;
use super::select::{self, All};
use crate::args::{CountArgs, IdsArgs, JobsArgs, TasksArgs};
use crate::output::tasks;

const JOBS_PATH: &str = "/v1/jobs/";
const JOBS: u64 = 20;
const TASKS: u64 = 100;
/// More than a farm keeps.
const LIMIT_MAX: u64 = 10_000_000;
/// How many jobs are looked through at once.
const PAGE: usize = 1000;

/// Lists jobs.
pub(super) fn jobs(args: &JobsArgs, format: Format) -> Result<Verdict, Failure> {
    let count = count(&args.count, JOBS)?;
    let find = |caller: &mut TaskClient| match (args.state.as_slice(), &args.name) {
        ([], None) => Ok(pages::gather("/v1/jobs", count, |page| caller.get(page))?),
        _ => search(caller, count, |job| fits(args, job)),
    };
    lists::show(&args.list, format, "job", find, tasks::jobs)
}

/// Is it one of the jobs that are asked for?
fn fits(args: &JobsArgs, job: &Value) -> bool {
    let has_state = args.state.is_empty() || args.state.iter().any(|state| count_of(&job[state.name()]) > 0);
    let has_name = |part: &str| job["name"].as_str().is_some_and(|name| name.contains(part));
    has_state && args.name.as_deref().is_none_or(has_name)
}

/// The newest jobs that fit, at most this many.
fn search(caller: &mut TaskClient, count: usize, fits: impl Fn(&Value) -> bool) -> Result<Value, Failure> {
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let page = caller.get(&format!("/v1/jobs?limit={PAGE}{after}"))?;
        found.extend(page["items"].as_array().ok_or_else(strange_answer)?.iter().filter(|job| fits(job)).cloned());
        let next = page["next"].as_str().map(|next| format!("&after={next}")).filter(|next| *next != after);
        if found.len() > count {
            found.truncate(count);
            let last = found.last().map(|job| job["job"].clone());
            return Ok(json!({ "items": found, "next": last }));
        }
        match next {
            Some(next) => after = next,
            None => return Ok(json!({ "items": found, "next": null })),
        }
    }
}

/// Lists tasks.
pub(super) fn tasks(args: &TasksArgs, format: Format) -> Result<Verdict, Failure> {
    let count = count(&args.count, TASKS)?;
    let state = args.state.map(|state| format!("&state={}", state.name())).unwrap_or_default();
    let find = |caller: &mut TaskClient| {
        let job = match args.of.as_ref().or(args.job.as_ref()) {
            Some(job) => format!("&job={}", job_path(&select::id(caller, job)?)?.trim_start_matches(JOBS_PATH)),
            None => String::new(),
        };
        let query = format!("{state}{job}");
        let path = if query.is_empty() { String::from("/v1/tasks") } else { format!("/v1/tasks?{}", &query[1..]) };
        Ok(pages::gather(&path, count, |page| caller.get(page))?)
    };
    lists::show(&args.list, format, "task", find, tasks::tasks)
}

/// Shows jobs, each as a page.
pub(super) fn job(args: &IdsArgs, format: Format) -> Result<Verdict, Failure> {
    show_each(args, format, |caller, id| {
        let job = caller.get(&job_path(id)?)?;
        Ok((tasks::job(&job), job))
    })
}

/// Shows tasks, each as a page. A job stands for its first task.
pub(super) fn task(args: &IdsArgs, format: Format) -> Result<Verdict, Failure> {
    show_each(args, format, |caller, id| {
        let task = caller.get(&task_path(id)?)?;
        // The page names the command, which the job has. A job that was forgotten a moment ago leaves a gap in it.
        let job = match (format, task["job"].as_str()) {
            (Format::Text, Some(job)) => caller.get(&job_path(job)?).unwrap_or_default(),
            _ => Value::Null,
        };
        Ok((tasks::task(&task, &job), task))
    })
}

/// Pages with an empty line between them. As JSON one thing is an object, and several are a list.
fn show_each(
    args: &IdsArgs,
    format: Format,
    look: impl Fn(&mut TaskClient, &str) -> Result<(String, Value), Failure>,
) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let mut caller = args.place.caller()?;
    let ids = select::ids(&mut caller, &args.ids, All::Refused)?;
    let found = ids.iter().map(|id| look(&mut caller, id)).collect::<Result<Vec<_>, _>>()?;
    let (pages, mut items): (Vec<String>, Vec<Value>) = found.into_iter().unzip();
    let object = match items.as_mut_slice() {
        [only] if select::is_one(&args.ids) => only.take(),
        _ => json!({ "items": items, "next": null }),
    };
    format.show(|| pages.join("\n"), &object)?;
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

/// How many are wanted.
fn count(args: &CountArgs, default: u64) -> Result<usize, Failure> {
    let count = match (args.all, args.limit.as_deref()) {
        (true, _) => u64::MAX,
        (false, Some(text)) => number("--limit", text, 1, LIMIT_MAX)?,
        (false, None) => default,
    };
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}
