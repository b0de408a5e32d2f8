//! The router: the [`routes`](crate::routes), and what every request passes before and after them.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Method, Request};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use primus_core::limits::VALUE_LEN_MAX;
use serde_json::json;

use crate::context::Context;
use crate::doors::{self, Doors};
use crate::limits::{ANSWER_TIME, BULK_TIME, QUESTION_LEN_MAX, WAIT_TIME_MAX};
use crate::problem::{Problem, SEE_ROUTES, in_one_body};
use crate::routes::{own_routes, task_routes};
use crate::serve::phases;
use crate::table::{Row, Table};
use crate::{bodies, document, health, jobs};

/// Everything that a server of this farm serves, behind its doors.
pub(crate) fn router(context: Context, doors: Arc<Doors>) -> Router {
    let Table { rows, router } = own_routes();
    let tasks = task_routes();
    let index = Row::of_the_table().into_iter().chain(rows).chain(tasks.rows).collect::<Vec<_>>();
    let index = json!({ "items": index, "next": null });
    router
        .route(Row::INDEX, get(async move || Json(index.clone())))
        .route(Row::DOCUMENT, get(document::read))
        .merge(tasks.router.layer(from_fn_with_state(Arc::clone(&context), at_the_leader)))
        .fallback(|| async { Problem::not_found("there is nothing at this path", SEE_ROUTES) })
        .layer(from_fn(refuse_long_bodies))
        .layer(map_response(in_one_body))
        .layer(from_fn(phases::follow))
        .layer(from_fn_with_state(Arc::clone(&context), health::founded))
        .layer(from_fn_with_state(doors, doors::guard))
        .with_state(context)
}

/// Answers here if this server leads, else passes the request on.
async fn at_the_leader(State(context): State<Context>, request: Request<Body>, next: Next) -> Response {
    let Some(leader) = context.elsewhere(&request).await else { return next.run(request).await };
    let path = request.uri().path();
    let time = match () {
        () if jobs::is_bulk(request.headers()) => BULK_TIME,
        () if path.ends_with("/wait") || path.ends_with("/output") => WAIT_TIME_MAX + ANSWER_TIME,
        () => ANSWER_TIME,
    };
    context.pass_on_within(time, request, leader).await
}

/// Refuses a body that is too long for anything, before it is read or passed on.
async fn refuse_long_bodies(request: Request<Body>, next: Next) -> Response {
    // Many values or jobs in one body are read piece by piece, each with its own limit.
    if request.method() == Method::POST && ["/v1/kv", "/v1/jobs"].contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let is_session = request.uri().path().starts_with("/v1/sessions/");
    let len_max = if is_session { QUESTION_LEN_MAX } else { VALUE_LEN_MAX };
    match bodies::check_length(&request, len_max) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}
