//! Accepts connections, a few at a time: what is asked on those that are known does not wait behind a crowd that arrives. Whoever says nothing, or sends half a head, or vanishes, does not stay for ever; at the limit one gives
//! way, or others wait until somebody goes.

mod connections;
pub(crate) mod phases;

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use primus_node::request_links::{Purpose, RequestLinks};
use primus_node::sockets::tend;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use self::connections::{Connection, Connections, Phase, Taken};
use crate::doors::Doors;
use crate::limits::HEAD_TIME;
use crate::proxy::Through;

/// How long an answer may stay unheard.
const UNHEARD_TIME: Duration = Duration::from_secs(10);
/// The longest head; what a connection may make the server keep.
const HEAD_LEN_MAX: usize = 16 * 1024;
/// How long an idle connection has to end, in case that its last answer is still under way.
const END_TIME: Duration = Duration::from_secs(1);

/// How many connections may be new at once: so many more are served in turn with those that are known.
const NEW_MAX: usize = 32;
/// How long a connection is new that asks nothing.
const NEW_TIME: Duration = Duration::from_millis(10);

/// Serves clients and other servers until the process ends.
pub(crate) async fn serve(listener: TcpListener, router: Router, doors: Arc<Doors>, links: Arc<RequestLinks>) {
    let connections = Connections::default();
    tokio::spawn(serve_peers(links, connections.clone(), router.clone()));
    let new = Arc::new(Semaphore::new(NEW_MAX));
    loop {
        let turn = Arc::clone(&new).acquire_owned().await.expect("nobody closes it");
        let Ok((stream, address)) = listener.accept().await else {
            // Out of files, most likely: others may end meanwhile.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        if tend(&stream, UNHEARD_TIME).is_err() {
            continue;
        }
        if let Some(taken) = connections.admit(address.ip(), !doors.is_near(address.ip())).await {
            tokio::spawn(attend(stream, taken, router.clone(), New(Arc::new(Mutex::new(Some(turn)))), None));
        }
    }
}

/// Serves what other servers pass on. Their links take places as clients' connections do.
async fn serve_peers(links: Arc<RequestLinks>, connections: Connections, router: Router) {
    let mut calls = links.serve(Purpose::Requests);
    while let Some(caller) = calls.recv().await {
        let through = Through { server: caller.from, gate: links.gate(caller.from) };
        let Ok(stream) = caller.open(UNHEARD_TIME) else { continue };
        let Ok(address) = stream.peer_addr() else { continue };
        if let Some(taken) = connections.admit(address.ip(), false).await {
            tokio::spawn(attend(stream, taken, router.clone(), New::default(), Some(through)));
        }
    }
}

/// Serves one connection until it ends or must give way. One that breaks is its client's business.
async fn attend(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    mut taken: Taken,
    router: Router,
    new: New,
    through: Option<Through>,
) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(HEAD_LEN_MAX);
    let router = TowerToHyperService::new(router);
    let service = Known { connection: taken.connection.clone(), new: new.clone(), through, router };
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
    if timeout(NEW_TIME, serving.as_mut()).await.is_ok() {
        return;
    }
    new.is_over();
    tokio::select! {
        _ = serving.as_mut() => {}
        closed = &mut taken.closed => if closed == Ok(Phase::Idle) {
            serving.as_mut().graceful_shutdown();
            _ = timeout(END_TIME, serving).await;
        },
    }
}

/// The turn of a connection that is new.
#[derive(Debug, Clone, Default)]
struct New(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl New {
    /// It is not new any more: another one may come.
    fn is_over(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Tells every request which connection it came on, and through which server.
struct Known {
    connection: Connection,
    new: New,
    through: Option<Through>,
    router: TowerToHyperService<Router>,
}

impl Service<Request<Incoming>> for Known {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        self.new.is_over();
        request.extensions_mut().insert(self.connection.clone());
        if let Some(through) = &self.through {
            request.extensions_mut().insert(through.clone());
        }
        self.router.call(request)
    }
}
