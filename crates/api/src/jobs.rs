//! `/v1/jobs`: submitting, listing, waiting for, cancelling and retrying jobs.

mod bulk;
mod facts;
mod submission;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use primus_core::farm::foreman::Foreman;
use primus_core::ledger::{Effect, Entry, JobId, Target};
use primus_core::limits::IDEMPOTENCY_KEY_LEN_MAX;
use primus_node::farm::Awaited;
use primus_shapes::described;
use primus_shapes::objects::Object;
use primus_shapes::submission::BODY_LEN_MAX;
use serde::Serialize;

pub(crate) use self::bulk::BulkAnswer;
pub(crate) use self::facts::{JobFacts, RangeFacts};
use self::submission::{entry, full, not_taken, strange, tasks_of};
use crate::bodies;
use crate::context::Context;
use crate::headers::KEY;
use crate::orders::{Asked, Order};
use crate::pages::{self, Page};
use crate::patience::Patience;
use crate::problem::Problem;
use crate::words::JobNumber;

/// How many tasks are counted between two steps of the farm.
const SCAN_MAX: u64 = 50_000;
described! {
    /// A job that was submitted.
    #[derive(Serialize)]
    pub(crate) struct SubmittedAnswer {
        /// The job's number.
        job: String as JobNumber,
        /// How many tasks it has.
        tasks: u64,
        /// False if the job was there already, under the same Idempotency-Key.
        created: bool,
    }
}

described! {
    /// What was cancelled.
    #[derive(Serialize)]
    pub(crate) struct CancelAnswer {
        /// The job or the task, as it was named.
        pub(crate) id: String,
        /// How many tasks were cancelled that had not ended.
        pub(crate) cancelled: u64,
    }
}

described! {
    /// What runs again.
    #[derive(Serialize)]
    pub(crate) struct RetryAnswer {
        /// The job or the task, as it was named.
        pub(crate) id: String,
        /// How many tasks run again.
        pub(crate) retried: u64,
    }
}

pub(crate) async fn submit(State(context): State<Context>, request: Request<Body>) -> Result<Response, Problem> {
    let key = key(request.headers())?;
    if is_bulk(request.headers()) {
        return bulk::submit(&context, key, request.into_body()).await;
    }
    let body = bodies::read_long(request, BODY_LEN_MAX).await?;
    let Object(submission) = serde_json::from_slice(&body).map_err(|error| strange(&error))?;
    drop(body);
    let entry = entry(&context, submission, key)?;
    let tasks = tasks_of(&entry);
    let effects = context.handle.farm.enter(vec![entry]).await?;
    match effects.first() {
        Some(Effect::Submitted { job, is_new }) => {
            let status = if *is_new { StatusCode::CREATED } else { StatusCode::OK };
            let answer = SubmittedAnswer { job: job.to_string(), tasks, created: *is_new };
            Ok((status, Json(answer)).into_response())
        }
        Some(effect) => Err(not_taken(&context, effect)),
        None => Err(full(&context)),
    }
}

/// Does every line hold a job?
pub(crate) fn is_bulk(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.starts_with("application/x-ndjson") || kind.starts_with("application/jsonl")
}

fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(KEY) else { return Ok(None) };
    let text = value.to_str().ok().filter(|text| !text.is_empty() && text.len() <= IDEMPOTENCY_KEY_LEN_MAX);
    let wrong = || Problem::usage("the Idempotency-Key cannot be used", "use up to 200 plain characters");
    text.map(|text| Some(text.to_owned())).ok_or_else(wrong)
}

pub(crate) async fn list(State(context): State<Context>, mut asked: Asked) -> Result<Response, Problem> {
    let limit = pages::limit(&mut asked)?;
    // Only what was submitted before this job.
    let mut before = JobId(asked.number("after")?.unwrap_or(u64::MAX));
    asked.done()?;
    let (mut page, mut is_over) = (Page::new(limit), false);
    while !is_over {
        (page, before, is_over) = context.handle.farm.look(move |foreman| newest(foreman, page, before)).await?;
    }
    Ok(page.finish())
}

/// Writes the next jobs that were submitted before this one. Where do they end, and is that the end of the page?
fn newest(foreman: &Foreman, mut page: Page, mut before: JobId) -> (Page, JobId, bool) {
    let mut left = SCAN_MAX;
    for (id, job) in foreman.ledger().jobs(JobId(0)).rev().skip_while(move |(id, _)| *id >= before) {
        if left == 0 {
            return (page, before, false);
        }
        if !page.push(id, &JobFacts::new(foreman, id, job)) {
            break;
        }
        left = left.saturating_sub(job.spec.expansion.len());
        before = id;
    }
    (page, before, true)
}

pub(crate) async fn one(State(context): State<Context>, Path(id): Path<String>) -> Result<Json<JobFacts>, Problem> {
    facts(&context, parse(&id)?).await.map(Json)
}

async fn facts(context: &Context, id: JobId) -> Result<JobFacts, Problem> {
    let look = move |foreman: &Foreman| foreman.ledger().job(id).map(|job| JobFacts::new(foreman, id, job));
    context.handle.farm.look(look).await?.ok_or_else(|| unknown(id))
}

pub(crate) async fn wait(
    State(context): State<Context>,
    Path(id): Path<String>,
    asked: Asked,
) -> Result<Response, Problem> {
    let patience = Patience::new(asked)?;
    if let Some((first, last)) = id.split_once('-') {
        let (first, last) = (parse(first)?, parse(last)?);
        return wait_for_many(&context, first, last, &patience).await;
    }
    let id = parse(&id)?;
    patience.wait(&context, Awaited::Jobs(id, id)).await?;
    facts(&context, id).await.map(|facts| Json(facts).into_response())
}

/// Whoever submits many jobs in one body waits for all of them in one request.
async fn wait_for_many(
    context: &Context,
    first: JobId,
    last: JobId,
    patience: &Patience,
) -> Result<Response, Problem> {
    if first > last {
        return Err(Problem::usage(
            format!("'{first}-{last}' is not a range of jobs"),
            "write the lesser number first",
        ));
    }
    patience.wait(context, Awaited::Jobs(first, last)).await?;
    let facts = context.handle.farm.look(move |foreman| RangeFacts::new(foreman, first, last)).await?;
    Ok(Json(facts).into_response())
}

pub(crate) async fn cancel(
    State(context): State<Context>,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Result<Json<CancelAnswer>, Problem> {
    let job = parse(&id)?;
    Order::nothing(request).await?;
    facts(&context, job).await?;
    let cancelled = change(&context, vec![Entry::Cancel(Target::Job(job))]).await?;
    Ok(Json(CancelAnswer { id, cancelled }))
}

pub(crate) async fn retry(
    State(context): State<Context>,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Result<Json<RetryAnswer>, Problem> {
    let job = parse(&id)?;
    let mut failed_only = false;
    if let Some(mut order) = Order::read(request, "send {\"failed_only\":true}").await? {
        failed_only = order.truth("failed_only")?.unwrap_or(false);
        order.done()?;
    }
    facts(&context, job).await?;
    let entry = if failed_only { Entry::RetryFailed(job) } else { Entry::Retry(Target::Job(job)) };
    let retried = change(&context, vec![entry]).await?;
    Ok(Json(RetryAnswer { id, retried }))
}

/// Writes this into the log. How many tasks are concerned?
pub(crate) async fn change(context: &Context, entries: Vec<Entry>) -> Result<u64, Problem> {
    let effects = context.handle.farm.enter(entries).await?;
    let count = |effect: &Effect| match effect {
        Effect::Cancelled(tasks) | Effect::Wanted(tasks) => tasks.count,
        _ => 0,
    };
    Ok(effects.iter().map(count).sum())
}

fn parse(id: &str) -> Result<JobId, Problem> {
    let number = id.parse().ok().filter(|number| *number > 0);
    number.map(JobId).ok_or_else(|| Problem::usage(format!("'{id}' is not a job"), "a job is a number, such as 12"))
}

fn unknown(id: JobId) -> Problem {
    Problem::not_found(format!("job {id} does not exist"), "primus jobs lists those that are kept")
}
