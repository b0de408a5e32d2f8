//! `/v1/events`: what this server has seen, as server-sent events.

use std::convert::Infallible;

use axum::extract::State;
use axum::response::sse::{Event as ServerSentEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use primus_node::handle::Handle;

use super::answers::Problem;
use super::orders::Asked;
use super::routes::Context;

/// Server-sent events, from any number on. This server's own: every server has its own history.
pub(super) async fn events(State(context): State<Context>, mut asked: Asked) -> Result<Response, Problem> {
    let (after, follow) = (asked.number("after")?.unwrap_or(0), asked.truth("follow")?);
    // The steps of the last elections instead of what came of them.
    let steps = asked.truth("steps")?.unwrap_or(false);
    asked.done()?;
    Ok(events_after(context, after, follow, steps))
}

fn events_after(context: Context, after: u64, follow: Option<bool>, steps: bool) -> Response {
    let Handle { history, steps: taken, .. } = context.handle;
    let newest = if steps { taken.newest() } else { history.newest() };
    let since = move |index: u64| -> Vec<(u64, serde_json::Value)> {
        match steps {
            true => taken.after(index).iter().map(|step| (step.index, taken.object(step))).collect(),
            false => history.after(index).iter().map(|event| (event.index, event.object())).collect(),
        }
    };
    let past = since(after);
    let last = past.last().map_or(after, |(index, _)| *index);
    let past = stream::iter(past);
    if follow == Some(false) {
        return sent(past).into_response();
    }
    let future = stream::unfold((last, newest, since), |(last, mut newest, since)| async move {
        // Not everything that has a number is shown.
        let seen = *newest.wait_for(|newest| *newest > last).await.ok()?;
        let news = since(last);
        let last = news.last().map_or(seen, |(index, _)| seen.max(*index));
        Some((stream::iter(news), (last, newest, since)))
    });
    sent(past.chain(future.flatten())).keep_alive(KeepAlive::default()).into_response()
}

fn sent(
    objects: impl Stream<Item = (u64, serde_json::Value)> + Send + 'static,
) -> Sse<impl Stream<Item = Result<ServerSentEvent, Infallible>>> {
    Sse::new(
        objects
            .map(|(index, object)| Ok(ServerSentEvent::default().id(index.to_string()).data(object.to_string()))),
    )
}
