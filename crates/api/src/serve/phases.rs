//! Says of every connection what it does: its body arrives, it waits for its answer, it follows something, or it is idle.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::CONNECTION;
use axum::http::{Method, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};

use super::connections::{Connection, Phase};
use crate::doors::LIVEZ;
use crate::problem::Problem;
use crate::proxy::Through;

/// Serves a request, and follows what its connection does meanwhile.
pub(crate) async fn follow(request: Request<Body>, next: Next) -> Response {
    let Some(connection) = request.extensions().get::<Connection>().cloned() else {
        return next.run(request).await;
    };
    if connection.is_kept_back() && !is_urgent(&request) {
        return ([(CONNECTION, "close")], no_place()).into_response();
    }
    let phase = match () {
        () if lasts(&request) => Phase::Following,
        () if request.body().is_end_stream() => Phase::Asking,
        () => Phase::Arriving,
    };
    connection.enter(phase);
    let request = match phase {
        Phase::Arriving => request.map(|body| Watched::body(body, &connection, phase, Phase::Asking)),
        _ => request,
    };
    let answer = next.run(request).await;
    // An answer may come before the body has been read.
    connection.leave(Phase::Arriving, Phase::Asking);
    let phase = if phase == Phase::Following { phase } else { Phase::Asking };
    answer.map(|body| Watched::body(body, &connection, phase, Phase::Idle))
}

/// Must it be answered, whatever else happens? What it asks for takes little, and others depend on it.
fn is_urgent(request: &Request<Body>) -> bool {
    let (method, path) = (request.method(), request.uri().path());
    let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| path.starts_with(beginning));
    path == LIVEZ
        || begins(&["/readyz", "/v1/leader", "/v1/elections", "/v1/sessions/"])
        || method == Method::DELETE
        || (method == Method::POST && path.ends_with("/cancel"))
        || Through::of(request).is_some()
}

/// May its answer take as long as somebody likes to wait?
fn lasts(request: &Request<Body>) -> bool {
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    let is_of_tasks = ["/v1/jobs/", "/v1/tasks/"].iter().any(|beginning| path.starts_with(beginning));
    match path.rsplit('/').next() {
        Some("events") => path == "/v1/events" && !query.contains("follow=false"),
        Some("wait") => is_of_tasks,
        Some("output") => is_of_tasks && (query.contains("follow=") || query.contains("wait_ms=")),
        _ => false,
    }
}

fn no_place() -> Problem {
    Problem::busy("all connections that this server can have are in use")
}

/// A body, and what its connection does as soon as it is over.
struct Watched {
    body: Body,
    connection: Connection,
    phase: Phase,
    then: Phase,
}

impl Watched {
    fn body(body: Body, connection: &Connection, phase: Phase, then: Phase) -> Body {
        Body::new(Self { body, connection: connection.clone(), phase, then })
    }
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        // A body that goes on need not give way yet.
        if self.phase == Phase::Arriving {
            self.connection.leave(Phase::Arriving, Phase::Arriving);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.connection.leave(self.phase, self.then);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, uri: &str) -> Request<Body> {
        Request::builder().method(method).uri(uri).body(Body::empty()).expect("it is a request")
    }

    #[test]
    fn what_lasts_and_what_must_not_wait() {
        for (method, uri, expected) in [
            ("GET", "/v1/events", (true, false)),
            ("GET", "/v1/events?follow=false", (false, false)),
            ("GET", "/v1/jobs/1/wait", (true, false)),
            ("GET", "/v1/kv/a/wait", (false, false)),
            ("GET", "/v1/tasks/1.1/output", (false, false)),
            ("GET", "/v1/tasks/1.1/output?follow=true", (true, false)),
            ("GET", "/v1/tasks/1.1/output?wait_ms=9", (true, false)),
            ("PUT", "/v1/kv/x", (false, false)),
            ("DELETE", "/v1/kv/x", (false, true)),
            ("GET", "/livez", (false, true)),
            ("POST", "/v1/leader/transfer", (false, true)),
            ("POST", "/v1/sessions/7", (false, true)),
            ("POST", "/v1/jobs/1/cancel", (false, true)),
            ("POST", "/v1/jobs", (false, false)),
        ] {
            let request = request(method, uri);
            assert_eq!((lasts(&request), is_urgent(&request)), expected, "{method} {uri}");
        }
    }
}
