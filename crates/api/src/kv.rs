//! `/v1/kv`: reading, writing and listing the small values that all servers agree on.

pub(crate) mod import;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use primus_core::limits::{KEY_LEN_MAX, VALUE_LEN_MAX};
use primus_node::handle::Unable;
use primus_node::leader_search::Patience;
use primus_server::register::{Change, Listing};
use primus_shapes::described;
use serde::Serialize;

use crate::bodies;
use crate::context::{Context, may_pass_on};
use crate::limits::PAGE_LEN_MAX;
use crate::orders::Asked;
use crate::pages::{self, Page};
use crate::problem::Problem;
use crate::proxy::Through;

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
    if let Some(leader) = context.elsewhere(&request).await {
        return context.pass_on(request, leader).await;
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
    let found = match may_pass_on(&request) {
        true => context.handle.read(&key, Patience::MOMENT).await,
        false => context.handle.farm.get(key.clone()).await,
    };
    match found {
        Ok(Some((value, index))) => Json(KeyFacts::new(key, &value, index)).into_response(),
        Ok(None) => Problem::not_found(format!("nothing was put under '{key}'"), "primus kv list shows all keys")
            .into_response(),
        // A read changes nothing, so it does not matter whether somebody heard it.
        Err(Unable::Unknown) => Problem::from(Unable::NoLeader).into_response(),
        Err(unable) => Problem::from(unable).into_response(),
    }
}

pub(crate) async fn write(
    State(context): State<Context>,
    Path(key): Path<String>,
    request: Request<Body>,
) -> Response {
    let (parts, body) = request.into_parts();
    let asked = Request::from_parts(parts.clone(), ());
    match bodies::read(Request::from_parts(parts, body), VALUE_LEN_MAX).await {
        // It is told as text, so that anything else would come back as something else.
        Ok(value) if std::str::from_utf8(&value).is_err() => {
            Problem::usage("the value is not UTF-8 text", "encode it, with base64 for instance").into_response()
        }
        Ok(value) => change(&context, key, Some(value.bytes()), &asked).await,
        Err(problem) => problem.into_response(),
    }
}

pub(crate) async fn forget(
    State(context): State<Context>,
    Path(key): Path<String>,
    request: Request<Body>,
) -> Response {
    change(&context, key, None, &request.map(|_| ())).await
}

/// Writes here or at the leader.
async fn change(context: &Context, key: String, value: Option<Bytes>, request: &Request<()>) -> Response {
    if key.len() > KEY_LEN_MAX {
        return Problem::usage(format!("the key is longer than {KEY_LEN_MAX} bytes"), "shorten it").into_response();
    }
    let written = match may_pass_on(request) {
        true => context.handle.write(&key, value, Patience::MOMENT).await,
        false => {
            let change = value.as_ref().map_or(Change::Delete(&key), |value| Change::Put(&key, value));
            context.change(change, Through::of(request).is_none()).await
        }
    };
    match written {
        Ok(index) => Json(WriteAnswer { key, index }).into_response(),
        Err(unable) => Problem::from(unable).into_response(),
    }
}
