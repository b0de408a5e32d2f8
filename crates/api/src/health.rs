//! `/livez` and `/readyz`: does this process live, does it belong to a cluster, and does a server lead?

use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use primus_node::founding::Standing;
use primus_node::handle::PeerView;
use primus_server::peers::Why;

use crate::context::Context;
use crate::doors::LIVEZ;
use crate::problem::Problem;

/// It lives, whatever else is true.
pub(crate) async fn alive() -> &'static str {
    "alive\n"
}

/// What is answered before the server belongs to a cluster: that it lives, and what has happened to it.
const ALWAYS: [&str; 2] = [LIVEZ, "/v1/events"];

/// Answers nothing else before the server belongs to a cluster: there is nothing to tell, and nothing is taken that
/// could be lost.
pub(crate) async fn founded(State(context): State<Context>, request: Request<Body>, next: Next) -> Response {
    let standing = context.handle.standing.borrow().clone();
    match standing {
        Standing::Waiting(reason) if !ALWAYS.contains(&request.uri().path()) => {
            Problem::not_founded(&reason).into_response()
        }
        _ => next.run(request).await,
    }
}

/// A server leads, as far as this one knows.
pub(crate) async fn ready(State(context): State<Context>) -> Response {
    let (has_leader, refusal) = {
        let view = context.handle.view.borrow();
        let refused = |peer: &PeerView| matches!(&peer.why, Some(Why::Refused(_)));
        let refusal = view.peers.values().find(|peer| refused(peer)).and_then(|peer| peer.why.clone());
        (view.leader.is_some(), refusal)
    };
    match (has_leader, refusal) {
        (true, _) => "ready\n".into_response(),
        (false, Some(why)) => {
            let message = format!("no server leads as far as this one knows, and it is refused: {why}");
            Problem::unavailable("refused", message, "waiting does not help; do what the message says")
                .into_response()
        }
        (false, None) => Problem::unavailable("no_leader", "no server leads at the moment", "wait").into_response(),
    }
}
