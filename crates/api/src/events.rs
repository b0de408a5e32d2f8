//! `/v1/events`: what this server has seen, as server-sent events.
//!
//! Whoever follows is given a little at a time, and no more before that has been sent. What is kept for everybody is the
//! history itself, which has a limit; a follower that is slower than the history misses what is no longer kept.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::State;
use axum::response::sse::{Event as ServerSentEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use serde_json::Value;
use tokio::sync::watch;

use crate::context::Context;
use crate::orders::Asked;
use crate::pages;
use crate::problem::Problem;

/// How many events one follower is given at once, and how long they are together, unless one alone is longer.
const SLICE_MAX: usize = 64;
const SLICE_LEN_MAX: usize = 32 << 10;

/// Server-sent events, from any number on. This server's own: every server has its own history.
pub(crate) async fn events(State(context): State<Context>, mut asked: Asked) -> Result<Response, Problem> {
    let (after, follow) = (asked.number("after")?.unwrap_or(0), asked.truth("follow")?.unwrap_or(true));
    // The steps of the last elections instead of what came of them.
    let steps = asked.truth("steps")?.unwrap_or(false);
    // What is kept has a limit of its own, so all of it is told if nothing else is said.
    let limit = if asked.has("limit") { pages::limit(&mut asked)? } else { usize::MAX };
    asked.done()?;
    if follow && limit < usize::MAX {
        return Err(Problem::usage("a limit and following contradict each other", "say follow=false, too"));
    }
    let (history, taken) = (Arc::clone(&context.handle.history), Arc::clone(&context.handle.steps));
    let newest = if steps { taken.newest() } else { history.newest() };
    let since = move |index: u64| match steps {
        true => slice(taken.after(index).iter().map(|step| (step.index, taken.object(step)))),
        false => slice(history.after(index).iter().map(|event| (event.index, event.object()))),
    };
    let told = told(after, follow.then_some(newest), since).take(limit);
    let events =
        told.map(|(index, text)| Ok::<_, Infallible>(ServerSentEvent::default().id(index.to_string()).data(text)));
    Ok(match follow {
        true => Sse::new(events).keep_alive(KeepAlive::default()).into_response(),
        false => Sse::new(events).into_response(),
    })
}

/// The first of these, as text.
fn slice(objects: impl Iterator<Item = (u64, Value)>) -> Vec<(u64, String)> {
    let mut len = 0;
    let texts = objects.map(|(index, object)| (index, object.to_string()));
    let is_within = |(_, text): &(u64, String)| {
        let is_first = len == 0;
        len += text.len();
        is_first || len <= SLICE_LEN_MAX
    };
    texts.take(SLICE_MAX).take_while(is_within).collect()
}

/// What `since` tells, slice after slice; then, if there is a number to watch, what comes.
fn told(
    after: u64,
    newest: Option<watch::Receiver<u64>>,
    since: impl Fn(u64) -> Vec<(u64, String)>,
) -> impl Stream<Item = (u64, String)> {
    let slices = stream::unfold((after, newest, since), |(mut last, mut newest, since)| async move {
        loop {
            let seen = newest.as_ref().map(|newest| *newest.borrow());
            let news = since(last);
            if let Some((index, _)) = news.last() {
                last = *index;
                return Some((stream::iter(news), (last, newest, since)));
            }
            // Not everything that has a number is shown.
            last = last.max(seen?);
            newest.as_mut()?.wait_for(|newest| *newest > last).await.ok()?;
        }
    });
    slices.flatten()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    /// Texts of this length, with the numbers behind this one.
    fn texts(len: usize, index: u64) -> Vec<(u64, String)> {
        slice((index + 1..=1000).map(|index| (index, Value::from("x".repeat(len)))))
    }

    #[test]
    fn a_follower_that_does_not_read_is_given_a_slice_and_no_more() {
        for (len, slice_len) in [(10, 64), (1000, 32), (SLICE_LEN_MAX * 2, 1)] {
            let given = Cell::new(0);
            let newest = watch::Sender::new(1000);
            let since = |index| {
                let slice = texts(len, index);
                given.set(given.get() + slice.len());
                slice
            };
            let mut told = pin!(told(0, Some(newest.subscribe()), since));
            for index in 1..=1000 {
                let (found, _) = told.next().now_or_never().flatten().expect("there is more");
                assert_eq!(found, index);
                assert!(given.get() - usize::try_from(index).unwrap() < slice_len, "{len}: {index}");
            }
            assert!(told.next().now_or_never().is_none(), "it waits for the next one");
        }
    }

    #[test]
    fn what_is_not_followed_ends() {
        let told = told(990, None, |index| texts(1, index));
        assert_eq!(told.count().now_or_never(), Some(10));
    }
}
