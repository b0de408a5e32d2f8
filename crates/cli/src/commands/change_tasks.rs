//! `primus cancel`, `primus retry`, `primus drain`: what people change afterwards.

use std::thread;
use std::time::{Duration, Instant};

use primus_client::http::escaped;
use primus_client::tasks::{TaskClient, nothing, path_of};
use primus_client::{pages, strange_answer};
use primus_terminal::amounts::length;
use primus_terminal::failure::{Failure, on_one_line};
use primus_terminal::values::{number, plain};
use primus_terminal::{Format, Verdict};
use serde_json::{Value, json};

use super::select::{self, All};
use crate::args::{DrainArgs, IdsArgs, RetryArgs};

/// How often to look whether a worker still runs something.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Ends what is not wanted any more.
pub(super) fn cancel(args: &IdsArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let mut caller = args.place.caller()?;
    let ids = select::ids(&mut caller, &args.ids, All::Unfinished)?;
    let answers = each(&mut caller, &ids, "cancel", &nothing())?;
    tell(&answers, "cancelled", format)
}

/// Runs again what ended badly.
pub(super) fn retry(args: &RetryArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let mut caller = args.place.caller()?;
    let answers = match &args.failed {
        Some(job) if job.contains('.') => {
            let message = format!("--failed is '{}', which is a task", on_one_line(job));
            return Err(Failure::usage(message, "name a job, such as 12"));
        }
        Some(job) => {
            let job = select::id(&mut caller, job)?;
            each(&mut caller, &[job], "retry", &json!({ "failed_only": true }))?
        }
        None => {
            let ids = select::ids(&mut caller, &args.ids, All::Refused)?;
            each(&mut caller, &ids, "retry", &nothing())?
        }
    };
    tell(&answers, "retried", format)
}

/// Gives workers nothing new, or work again. As JSON one worker is an object, and several are a list.
pub(super) fn drain(args: &DrainArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let timeout = args.timeout.as_deref().map(|text| length("--timeout", text)).transpose()?;
    let mut caller = args.place.caller()?;
    let mut drain = |name: &String| -> Result<Value, Failure> {
        Ok(caller.post(&format!("/v1/workers/{}/drain", escaped(name)), &json!({ "draining": !args.undo }))?)
    };
    let answers = args.names.iter().map(&mut drain).collect::<Result<Vec<_>, _>>()?;
    if args.wait {
        await_idle(&mut caller, &args.names, timeout)?;
    }
    let outcome = match (args.undo, args.wait) {
        (true, _) => "gets work again",
        (false, true) => "runs nothing and gets nothing new",
        (false, false) => "gets nothing new",
    };
    let text = || args.names.iter().map(|name| format!("worker {} {outcome}\n", on_one_line(name))).collect();
    match answers.as_slice() {
        [only] => format.show(text, only)?,
        _ => format.show(text, &json!({ "items": answers, "next": null }))?,
    };
    Ok(Verdict::Held)
}

/// Until these workers run nothing.
fn await_idle(caller: &mut TaskClient, names: &[String], timeout: Option<Duration>) -> Result<(), Failure> {
    let until = timeout.map(|time| Instant::now() + time);
    loop {
        let workers = pages::all("/v1/workers", |page| caller.get(page))?;
        let items = workers["items"].as_array().ok_or_else(strange_answer)?;
        let is_busy =
            |worker: &&Value| names.iter().any(|name| worker["name"] == **name) && number(&worker["running"]) > 0;
        let Some(busy) = items.iter().find(is_busy) else { return Ok(()) };
        if until.is_some_and(|until| Instant::now() >= until) {
            let message = format!("worker {} still runs {}", plain(&busy["name"]), plain(&busy["running"]));
            return Err(Failure::too_long(message, "it gets nothing new; primus workers NAME shows what it runs"));
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Does this to each.
fn each(caller: &mut TaskClient, ids: &[String], what: &str, body: &Value) -> Result<Vec<Value>, Failure> {
    let paths = ids.iter().map(|id| path_of(id)).collect::<Result<Vec<_>, _>>()?;
    paths.iter().map(|path| Ok(caller.post(&format!("{path}/{what}"), body)?)).collect()
}

fn tell(answers: &[Value], what: &str, format: Format) -> Result<Verdict, Failure> {
    let line = |answer: &Value| {
        let count = number(&answer[what]);
        let noun = if count == 1 { "task is" } else { "tasks are" };
        format!("{}: {count} {noun} {what}\n", answer["id"].as_str().unwrap_or("-"))
    };
    format.show(|| answers.iter().map(line).collect(), &json!({ "items": answers, "next": null }))?;
    Ok(Verdict::Held)
}
