//! `/v1/tasks`: listing, showing, explaining, waiting for, cancelling and retrying single tasks.

pub(crate) mod explain;
mod facts;
pub(crate) mod output;

use std::collections::BTreeSet;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::Request;
use axum::response::Response;
use primus_core::farm::foreman::Foreman;
use primus_core::ledger::{Entry, Job, JobId, State as TaskState, Target, TaskId};
use primus_node::farm::Awaited;
use serde_json::Value;

pub(crate) use self::facts::TaskFacts;
use self::facts::task;
use crate::context::Context;
use crate::jobs::{CancelAnswer, RetryAnswer, change};
use crate::orders::{Asked, Order};
use crate::pages::{self, Page};
use crate::patience::Patience;
use crate::problem::Problem;

/// How many tasks are looked at between two steps of the farm.
const SCAN_MAX: usize = 50_000;
/// The states that can be asked for.
const STATES: [&str; 6] = ["queued", "running", "done", "failed", "lost", "cancelled"];

/// What is looked for: from the newest job to the oldest, and within a job from the first task to the last.
#[derive(Debug, Clone)]
struct Search {
    state: Option<String>,
    job: Option<JobId>,
    /// Only these fields of each.
    fields: Option<BTreeSet<String>>,
    /// The last task that was looked at.
    place: Option<TaskId>,
}

/// The fields of a task that were asked for.
fn some_of(facts: &TaskFacts, wanted: &BTreeSet<String>) -> Value {
    let mut facts = serde_json::to_value(facts).expect("plain fields become JSON");
    if let Some(fields) = facts.as_object_mut() {
        fields.retain(|name, _| wanted.contains(name));
    }
    facts
}

/// What was found so far.
struct Found {
    page: Page,
    place: Option<TaskId>,
    is_all: bool,
}

pub(crate) async fn list(State(context): State<Context>, mut asked: Asked) -> Result<Response, Problem> {
    let mut page = Page::new(pages::limit(&mut asked)?);
    let mut search = Search::new(asked)?;
    let mut is_all = false;
    while !is_all && page.room() > 0 {
        let part = search.clone();
        let found = context.handle.farm.look(move |foreman| part.look(foreman, page)).await?;
        (page, search.place, is_all) = (found.page, found.place, found.is_all);
    }
    let next = search.place.filter(|_| !is_all).map(|task| task.to_string());
    Ok(page.finish_at(next))
}

impl Search {
    fn new(mut asked: Asked) -> Result<Self, Problem> {
        let [state, after, fields] = ["state", "after", "fields"].map(|name| asked.text(name));
        let job = asked.number("job")?;
        asked.done()?;
        if let Some(state) = state.as_deref().filter(|state| !STATES.contains(state)) {
            return Err(Problem::usage(
                format!("state '{state}' does not exist"),
                "choose queued, running, done, failed, lost or cancelled",
            ));
        }
        let named = |fields: String| fields.split(',').map(|name| name.trim().to_owned()).collect();
        Ok(Self {
            state,
            job: job.map(JobId),
            fields: fields.map(named),
            // The last task of the page before.
            place: after.as_deref().map(parse).transpose()?,
        })
    }

    fn look(&self, foreman: &Foreman, page: Page) -> Found {
        let running = foreman.running();
        let mut found = Found { page, place: self.place, is_all: true };
        let mut left = SCAN_MAX;
        for (id, job) in self.jobs(foreman) {
            let first = self.place.filter(|place| place.job == id).map_or(1, |place| place.index + 1);
            for (index, state) in (first..).zip(job.states().skip(usize::try_from(first - 1).unwrap_or(usize::MAX)))
            {
                let task = TaskId { job: id, index };
                if left == 0
                    || found.page.room() == 0
                    || !self.show(foreman, task, state, &running, &mut found.page)
                {
                    found.is_all = false;
                    return found;
                }
                (left, found.place) = (left - 1, Some(task));
            }
        }
        found
    }

    /// Writes a task, if it is wanted. False if there is no room for it.
    fn show(
        &self,
        foreman: &Foreman,
        id: TaskId,
        state: TaskState,
        running: &BTreeSet<TaskId>,
        page: &mut Page,
    ) -> bool {
        let is_running = running.contains(&id);
        let facts = if self.wants(state, is_running) { task(foreman, id, is_running) } else { None };
        facts.is_none_or(|facts| match &self.fields {
            Some(fields) => page.push(id, &some_of(&facts, fields)),
            None => page.push(id, &facts),
        })
    }

    /// The jobs that have not been looked at.
    fn jobs<'a>(&'a self, foreman: &'a Foreman) -> impl Iterator<Item = (JobId, &'a Job)> {
        let newest = self.place.map_or(JobId(u64::MAX), |place| place.job);
        let jobs =
            foreman.ledger().jobs(self.job.unwrap_or(JobId(0))).rev().skip_while(move |(id, _)| *id > newest);
        jobs.filter(|(id, _)| self.job.is_none_or(|job| job == *id))
    }

    fn wants(&self, state: TaskState, is_running: bool) -> bool {
        let name = if is_running && !state.is_final() { "running" } else { state.name() };
        self.state.as_deref().is_none_or(|wanted| wanted == name)
    }
}

pub(crate) async fn one(
    State(context): State<Context>,
    Path(id): Path<String>,
) -> Result<Json<TaskFacts>, Problem> {
    facts(&context, parse(&id)?).await.map(Json)
}

async fn facts(context: &Context, id: TaskId) -> Result<TaskFacts, Problem> {
    let look = move |foreman: &Foreman| task(foreman, id, foreman.running().contains(&id));
    context.handle.farm.look(look).await?.ok_or_else(|| unknown(id))
}

pub(crate) async fn wait(
    State(context): State<Context>,
    Path(id): Path<String>,
    asked: Asked,
) -> Result<Json<TaskFacts>, Problem> {
    let (id, patience) = (parse(&id)?, Patience::new(asked)?);
    patience.wait(&context, Awaited::Task(id)).await?;
    facts(&context, id).await.map(Json)
}

pub(crate) async fn cancel(
    State(context): State<Context>,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Result<Json<CancelAnswer>, Problem> {
    let task = parse(&id)?;
    Order::nothing(request).await?;
    facts(&context, task).await?;
    let cancelled = change(&context, vec![Entry::Cancel(Target::Task(task))]).await?;
    Ok(Json(CancelAnswer { id, cancelled }))
}

pub(crate) async fn retry(
    State(context): State<Context>,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Result<Json<RetryAnswer>, Problem> {
    let task = parse(&id)?;
    Order::nothing(request).await?;
    facts(&context, task).await?;
    let retried = change(&context, vec![Entry::Retry(Target::Task(task))]).await?;
    Ok(Json(RetryAnswer { id, retried }))
}

pub(crate) fn parse(id: &str) -> Result<TaskId, Problem> {
    let task = id.parse::<TaskId>().ok().filter(|task| task.job.0 > 0 && task.index > 0);
    task.ok_or_else(|| Problem::usage(format!("'{id}' is not a task"), "the seventh task of job 12 is 12.7"))
}

pub(crate) fn unknown(id: TaskId) -> Problem {
    Problem::not_found(format!("task {id} does not exist"), "primus tasks lists those that are kept")
}
