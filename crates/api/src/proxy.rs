//! Passes a request on to another server, over a link of the servers. One hop only: a request that was passed on already
//! ([`Through`]) is answered here.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONNECTION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Request, Uri, Version};
use axum::response::{IntoResponse, Response};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use primus_core::ServerId;
use primus_node::handle::Unable;
use primus_node::link_faults::PeerGate;
use primus_node::request_links::{Purpose, RequestLinks};
use tokio::time::{Instant, timeout};

use crate::headers::SITE;
use crate::limits::HEAD_TIME;
use crate::problem::Problem;

/// How long a link is kept that carries nothing. One that the other server is about to close must not be used again.
const IDLE_TIME: Duration = HEAD_TIME.checked_div(2).expect("two is not zero");

/// Marks a request that came through another server, which has checked what doors check.
#[derive(Debug, Clone)]
pub(crate) struct Through {
    /// That server.
    pub(crate) server: ServerId,
    /// The link to it.
    pub(crate) gate: PeerGate,
}

impl Through {
    /// The server through which a request came, if it did.
    pub(crate) fn of<B>(request: &Request<B>) -> Option<ServerId> {
        request.extensions().get::<Self>().map(|through| through.server)
    }
}

/// The links to other servers, which are used again and again.
#[derive(Debug)]
pub(crate) struct Proxy {
    links: Arc<RequestLinks>,
    idle: Idle,
}

/// Links that carry nothing, the oldest first, and since when.
type IdleLinks = BTreeMap<ServerId, Vec<(Instant, SendRequest<Body>)>>;

/// All of them.
#[derive(Debug, Clone, Default)]
struct Idle(Arc<Mutex<IdleLinks>>);

impl Proxy {
    pub(crate) fn new(links: Arc<RequestLinks>) -> Self {
        Self { links, idle: Idle::default() }
    }

    /// The other server's answer to this request.
    pub(crate) async fn pass_on(&self, mut request: Request<Body>, to: ServerId, time: Duration) -> Response {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let Ok(uri) = path.parse::<Uri>() else {
            return Problem::usage("the request's path cannot be passed on", "check the key").into_response();
        };
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_11;
        strip(request.headers_mut());
        match timeout(time, self.send(request, to)).await {
            Ok(Ok(response)) => response,
            Ok(Err(Unsent)) => Problem::from(Unable::NoLeader).into_response(),
            Err(_) => unreachable_leader().into_response(),
        }
    }

    async fn send(&self, mut request: Request<Body>, to: ServerId) -> Result<Response, Unsent> {
        loop {
            let (mut link, is_new) = match self.idle.take(to) {
                Some(link) => (link, false),
                None => (self.open(to).await.map_err(|_| Unsent)?, true),
            };
            match link.try_send_request(request).await {
                Ok(response) => {
                    self.idle.keep(to, link);
                    self.links.gate(to).travel(1).await;
                    return Ok(response.map(Body::new).into_response());
                }
                // A link that ended while it carried nothing: nothing was sent, so nothing took place.
                Err(mut error) => match error.take_message() {
                    Some(unsent) if !is_new => request = unsent,
                    Some(_) => return Err(Unsent),
                    None => return Ok(unreachable_leader().into_response()),
                },
            }
        }
    }

    async fn open(&self, to: ServerId) -> io::Result<SendRequest<Body>> {
        let stream = self.links.dial(to, Purpose::Requests).await?;
        let (link, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        // A link that breaks is the business of the request on it.
        tokio::spawn(connection);
        Ok(link)
    }
}

/// The request certainly did not leave this server.
struct Unsent;

impl Idle {
    /// The newest one that the other server does not close yet.
    fn take(&self, to: ServerId) -> Option<SendRequest<Body>> {
        let (_, link) = self.all().get_mut(&to)?.pop_if(|(since, link)| is_usable(*since, link))?;
        Some(link)
    }

    /// As soon as its answer has been read to the end.
    fn keep(&self, to: ServerId, mut link: SendRequest<Body>) {
        let idle = self.clone();
        tokio::spawn(async move {
            if link.ready().await.is_ok() {
                let mut all = idle.all();
                let links = all.entry(to).or_default();
                links.retain(|(since, link)| is_usable(*since, link));
                links.push((Instant::now(), link));
            }
        });
    }

    fn all(&self) -> MutexGuard<'_, IdleLinks> {
        self.0.lock().expect("nobody panics while holding this")
    }
}

fn is_usable(since: Instant, link: &SendRequest<Body>) -> bool {
    since.elapsed() < IDLE_TIME && link.is_ready()
}

/// What was asked of this server, from where, and with which secret, has been checked and goes no further.
fn strip(headers: &mut HeaderMap) {
    for field in [AUTHORIZATION.as_str(), CONNECTION.as_str(), ORIGIN.as_str(), SITE] {
        headers.remove(field);
    }
    headers.insert(HOST, HeaderValue::from_static("localhost"));
}

/// The connection broke or took too long: a write may have taken place.
fn unreachable_leader() -> Problem {
    let message = "the leader could not be reached; whether a write took place is unknown";
    Problem::unavailable("unknown_outcome", message, "read the key to find out, or try again")
}
