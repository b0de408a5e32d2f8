//! Passes a request on to the leader. One hop only: a request that was passed on already is answered here.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Request, Uri};
use axum::response::{IntoResponse, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use primus_core::ServerId;
use primus_node::handle::Unable;
use tokio::time::timeout;

use primus_shapes::PROOF;

use crate::headers::{PASSED_ON, SITE};
use crate::limits::HEAD_TIME;
use crate::problem::Problem;

/// In a crowd the first attempt may be dropped; the system tries again after a second.
const CONNECT_TIME: Duration = Duration::from_secs(3);

/// A client that keeps its connections.
#[derive(Debug, Clone)]
pub(crate) struct Proxy {
    client: Client<HttpConnector, Body>,
    /// This server.
    id: ServerId,
    /// What shows others that it is one.
    proof: Option<HeaderValue>,
}

impl Proxy {
    pub(crate) fn new(id: ServerId, proof: Option<&str>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIME));
        connector.set_nodelay(true);
        // A connection that the leader is about to close must not be used for another write.
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(HEAD_TIME / 2);
        let proof = proof.and_then(|proof| HeaderValue::from_str(proof).ok());
        Self { client: builder.build(connector), id, proof }
    }

    /// The leader's answer to this request.
    pub(crate) async fn pass_on(&self, mut request: Request<Body>, leader: SocketAddr, time: Duration) -> Response {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let Ok(uri) = format!("http://{leader}{path}").parse::<Uri>() else {
            return Problem::usage("the request's path cannot be passed on", "check the key").into_response();
        };
        *request.uri_mut() = uri;
        self.sign(request.headers_mut());
        match timeout(time, self.client.request(request)).await {
            Ok(Ok(response)) => response.map(Body::new).into_response(),
            // Nothing was sent, so nothing took place.
            Ok(Err(error)) if error.is_connect() => Problem::from(Unable::NoLeader).into_response(),
            _ => unreachable_leader().into_response(),
        }
    }

    /// The client's secret goes on with its request. What was asked of this server, and from where, has been checked.
    fn sign(&self, headers: &mut HeaderMap) {
        for field in [HOST.as_str(), ORIGIN.as_str(), SITE] {
            headers.remove(field);
        }
        headers.insert(PASSED_ON, HeaderValue::from(self.id.0));
        if let Some(proof) = &self.proof {
            headers.insert(PROOF, proof.clone());
        }
    }
}

/// The connection broke or took too long: a write may have taken place.
fn unreachable_leader() -> Problem {
    let message = "the leader could not be reached; whether a write took place is unknown";
    Problem::unavailable("unknown_outcome", message, "read the key to find out, or try again")
}
