//! `/v1/workers`: who they are, and who gets nothing new.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::Request;
use primus_core::ledger::{Effect, Entry};
use serde::Deserialize;
use serde_json::{Value, json};

use super::answers::Problem;
use super::routes::Context;
use super::{bodies, facts};

const ORDER_LEN_MAX: usize = 1024;

pub(super) async fn list(State(context): State<Context>) -> Result<Json<Value>, Problem> {
    let farm = context.farm.clone();
    let items = context.handle.farm.look(move |foreman| facts::workers(foreman, &farm)).await?;
    Ok(Json(json!({ "items": items, "next": null })))
}

#[derive(Deserialize)]
struct Order {
    draining: bool,
}

pub(super) async fn drain(
    State(context): State<Context>,
    Path(worker): Path<String>,
    request: Request<Body>,
) -> Result<Json<Value>, Problem> {
    let body = bodies::read(request, ORDER_LEN_MAX).await?;
    let order = if body.is_empty() { Ok(Order { draining: true }) } else { serde_json::from_slice(&body) };
    let order: Order = order.map_err(|_| Problem::usage("this is no order", "send {\"draining\":true}"))?;
    let is_draining = order.draining;
    let entry = Entry::Drain { worker: worker.clone(), is_draining };
    let effects = context.handle.farm.enter(vec![entry]).await?;
    match effects.first() {
        Some(Effect::Workers) => Ok(Json(json!({ "worker": worker, "draining": is_draining }))),
        _ => Err(Problem::not_found(format!("there is no worker '{worker}'"), "primus status lists the workers")),
    }
}
