//! `/v1/kv`: reading, writing and listing the small values that all servers agree on.

pub(crate) mod import;

use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::Request;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use primus_core::limits::{KEY_LEN_MAX, VALUE_LEN_MAX};
use primus_node::handle::Unable;
use primus_server::register::{Change, Listing};
use primus_shapes::{HERE, described};
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use crate::bodies;
use crate::context::{Context, LEADERLESS_TIME};
use crate::headers::{NOT_TAKEN, PASSED_ON};
use crate::limits::PAGE_LEN_MAX;
use crate::orders::Asked;
use crate::pages::{self, Page};
use crate::problem::Problem;

/// How long a write waits before it asks the same leader again.
const ASKING_AGAIN: Duration = Duration::from_millis(2);

described! {
    /// A key and its value.
    #[derive(Serialize)]
    pub(crate) struct KeyFacts {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// Where in the log it was written.
        index: u64,
    }
}

described! {
    /// A key that was written or deleted.
    #[derive(Serialize)]
    pub(crate) struct WriteAnswer {
        /// The key.
        key: String,
        /// Where in the log this is written.
        index: u64,
    }
}

impl KeyFacts {
    fn new(key: String, value: &[u8], index: u64) -> Self {
        Self { key, value: String::from_utf8_lossy(value).into_owned(), index }
    }
}

pub(crate) async fn list(State(context): State<Context>, mut asked: Asked, request: Request<Body>) -> Response {
    let (prefix, after, limit) = (asked.text("prefix"), asked.text("after"), pages::limit(&mut asked));
    let count_max = match limit.and_then(|limit| asked.done().map(|()| limit)) {
        Ok(limit) => limit,
        Err(problem) => return problem.into_response(),
    };
    if let Some(api) = context.elsewhere(request.headers()).await {
        return context.pass_on(request, api).await;
    }
    let listing = Listing { prefix: prefix.unwrap_or_default(), after, count_max, len_max: PAGE_LEN_MAX };
    match context.handle.farm.list(listing).await.map_err(Problem::from) {
        Ok(found) => {
            let items = found.values.into_iter();
            let items = items.map(|(key, value, index)| (key.clone(), KeyFacts::new(key, &value, index)));
            let mut page = Page::new(count_max).fill(items);
            if !found.is_last {
                page.cut();
            }
            page.finish()
        }
        Err(problem) => problem.into_response(),
    }
}

pub(crate) async fn read(
    State(context): State<Context>,
    Path(key): Path<String>,
    request: Request<Body>,
) -> Response {
    if let Some(api) = context.elsewhere(request.headers()).await {
        return context.pass_on(request, api).await;
    }
    match context.handle.farm.get(key.clone()).await.map_err(Problem::from) {
        Ok(Some((value, index))) => Json(KeyFacts::new(key, &value, index)).into_response(),
        Ok(None) => Problem::not_found(format!("nothing was put under '{key}'"), "primus kv list shows all keys")
            .into_response(),
        Err(problem) => problem.into_response(),
    }
}

pub(crate) async fn write(
    State(context): State<Context>,
    Path(key): Path<String>,
    request: Request<Body>,
) -> Response {
    let (parts, body) = request.into_parts();
    match bodies::read(Request::from_parts(parts.clone(), body), VALUE_LEN_MAX).await {
        // It is told as text, so that anything else would come back as something else.
        Ok(value) if std::str::from_utf8(&value).is_err() => {
            Problem::usage("the value is not UTF-8 text", "encode it, with base64 for instance").into_response()
        }
        Ok(value) => change(&context, &key, Change::Put(&key, &value), &parts).await,
        Err(problem) => problem.into_response(),
    }
}

pub(crate) async fn forget(
    State(context): State<Context>,
    Path(key): Path<String>,
    request: Request<Body>,
) -> Response {
    change(&context, &key, Change::Delete(&key), &request.into_parts().0).await
}

/// Writes here or at the leader. Whoever certainly has not taken a write while leadership changes is not the last to be asked.
async fn change(context: &Context, key: &str, change: Change<'_>, parts: &Parts) -> Response {
    if key.len() > KEY_LEN_MAX {
        return Problem::usage(format!("the key is longer than {KEY_LEN_MAX} bytes"), "shorten it").into_response();
    }
    let may_wait = !parts.headers.contains_key(PASSED_ON);
    let may_go_on = may_wait && !parts.headers.contains_key(HERE);
    let until = Instant::now() + LEADERLESS_TIME;
    loop {
        let leader = context.handle.view.borrow().leader;
        let is_over = Instant::now() >= until;
        if let Some(api) = context.elsewhere_now(&parts.headers) {
            let body =
                if let Change::Put(_, value) = change { Bytes::copy_from_slice(value) } else { Bytes::new() };
            let answer = context.pass_on(Request::from_parts(parts.clone(), Body::from(body)), api).await;
            if is_over || !answer.headers().contains_key(NOT_TAKEN) {
                return answer;
            }
        } else {
            match context.change(change, may_wait).await {
                Ok(index) => return Json(WriteAnswer { key: key.to_owned(), index }).into_response(),
                Err(Unable::NotLeading(_)) if may_go_on && !is_over => {}
                Err(unable) => return refusal(unable).into_response(),
            }
        }
        // A transfer that comes to nothing is over soon, too, and then nothing changes here.
        let (mut view, soon) = (context.handle.view.clone(), Instant::now() + ASKING_AGAIN);
        _ = timeout_at(soon, view.wait_for(|view| view.leader != leader || view.leader == Some(view.id))).await;
    }
}

/// Tells another server whether it may ask again.
fn refusal(unable: Unable) -> impl IntoResponse {
    let is_not_taken = matches!(unable, Unable::NotLeading(_) | Unable::NoLeader | Unable::Busy);
    (is_not_taken.then_some([(NOT_TAKEN, "1")]), Problem::from(unable))
}
