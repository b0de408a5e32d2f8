//! `/v1/workers`: who they are, and who gets nothing new.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::Request;
use axum::response::Response;
use primus_core::ledger::{Effect, Entry};
use serde_json::{Value, json};

use super::answers::Problem;
use super::facts;
use super::orders::{Asked, Order};
use super::pages::{self, Page};
use super::routes::Context;

pub(super) async fn list(State(context): State<Context>, mut asked: Asked) -> Result<Response, Problem> {
    let page = Page::new(pages::limit(&mut asked)?);
    // The last worker of the page before.
    let after = asked.text("after");
    asked.done()?;
    let farm = context.farm.clone();
    let workers = context.handle.farm.look(move |foreman| facts::workers(foreman, &farm)).await?;
    let rest = workers.into_iter().filter(|worker| after.as_ref().is_none_or(|after| worker.name > *after));
    Ok(page.fill(rest.map(|worker| (worker.name.clone(), worker))).finish())
}

pub(super) async fn drain(
    State(context): State<Context>,
    Path(worker): Path<String>,
    request: Request<Body>,
) -> Result<Json<Value>, Problem> {
    let mut is_draining = true;
    if let Some(mut order) = Order::read(request, "send {\"draining\":true}").await? {
        let draining = order.truth("draining")?;
        is_draining = order.given("draining", draining)?;
        order.done()?;
    }
    let entry = Entry::Drain { worker: worker.clone(), is_draining };
    let effects = context.handle.farm.enter(vec![entry]).await?;
    match effects.first() {
        Some(Effect::Workers) => Ok(Json(json!({ "worker": worker, "draining": is_draining }))),
        _ => Err(Problem::not_found(format!("there is no worker '{worker}'"), "primus status lists the workers")),
    }
}
