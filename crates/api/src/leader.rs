//! `/v1/leader`: which server leads, and letting another one lead.

pub(crate) mod explain;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use primus_core::ServerId;
use primus_node::handle::{Request as ControlRequest, Unable, View};
use primus_server::Reason as Why;
use primus_shapes::described;
use primus_shapes::schema::Time;
use serde::Serialize;

use crate::context::Context;
use crate::limits::ANSWER_TIME;
use crate::orders::Order;
use crate::problem::Problem;
use crate::values::text_of;
use crate::words::Reason;

/// How long another server may take to lead once the old leader has stepped down.
const TRANSFER_TIME: Duration = Duration::from_secs(2);

described! {
    /// Which server leads, as far as the server that is asked knows.
    #[derive(Serialize)]
    pub(crate) struct LeaderAnswer {
        /// The farm's name.
        farm: String,
        /// The server that leads, or null if none does.
        leader: Option<u64>,
        /// The number of the leadership: each leader has a greater one.
        term: u64,
        /// Since when it has been so.
        since: String as Time,
        /// Why leadership changed.
        reason: &'static str as Reason,
    }
}

/// Which server leads.
pub(crate) async fn read(State(context): State<Context>) -> Json<LeaderAnswer> {
    let view = context.handle.view.borrow().clone();
    Json(LeaderAnswer::new(&context, &view))
}

/// Lets another server lead.
pub(crate) async fn resign(State(context): State<Context>, request: Request<Body>) -> Response {
    if let Some(leader) = context.elsewhere(&request).await {
        return context.proxy.pass_on(request, leader, ANSWER_TIME).await;
    }
    hand_over(&context, None, Why::Resigned).await
}

/// Lets a certain server lead.
pub(crate) async fn transfer(State(context): State<Context>, request: Request<Body>) -> Response {
    if let Some(leader) = context.elsewhere(&request).await {
        return context.proxy.pass_on(request, leader, ANSWER_TIME).await;
    }
    match wanted_leader(&context, request).await {
        Ok(to) => hand_over(&context, Some(to), Why::Operator).await,
        Err(problem) => problem.into_response(),
    }
}

async fn wanted_leader(context: &Context, request: Request<Body>) -> Result<ServerId, Problem> {
    let mut order = Order::must(request, "send {\"to\":2}").await?;
    let to = order.number("to")?;
    let to = ServerId(order.given("to", to)?);
    order.done()?;
    match context.servers.contains_key(&to) {
        true => Ok(to),
        false => Err(Problem::not_found(format!("server {to} does not exist"), "see /v1/status")),
    }
}

/// Waits until somebody else leads; a transfer that comes to nothing leaves the old leader in place.
async fn hand_over(context: &Context, to: Option<ServerId>, reason: Why) -> Response {
    let mut view = context.handle.view.clone();
    let me = view.borrow().id;
    if to == Some(me) && view.borrow().leader == Some(me) {
        return read(State(Arc::clone(context))).await.into_response();
    }
    if view.borrow().leader != Some(me) {
        return Problem::from(Unable::NoLeader).into_response();
    }
    // What is guarded beside the leader ends first, so that it can go on beside the next one at once.
    if let Err(unable) = context.handle.farm.vacate().await {
        return Problem::from(unable).into_response();
    }
    if let Err(problem) = context.ask(|reply| ControlRequest::Transfer(to, reason, reply)).await {
        context.handle.farm.stay();
        return problem.into_response();
    }
    let changed = view.wait_for(|view| view.leader.is_some_and(|leader| leader != me));
    if tokio::time::timeout(TRANSFER_TIME, changed).await.is_ok() {
        return read(State(Arc::clone(context))).await.into_response();
    }
    let message = "no other server has begun to lead";
    Problem::unavailable("not_transferred", message, "see /v1/status").into_response()
}

impl LeaderAnswer {
    pub(crate) fn new(context: &Context, view: &View) -> Self {
        Self {
            farm: context.farm.clone(),
            leader: view.leader.map(|leader| leader.0),
            term: view.term.0,
            since: text_of(view.since),
            reason: view.reason.name(),
        }
    }
}
