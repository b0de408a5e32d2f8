//! Accepts connections. Whoever says nothing, or sends half a head, or vanishes, does not stay for ever; at the limit one gives
//! way, or others wait until somebody goes.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use primus_node::sockets::tend;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::connections::{Connection, Connections, Phase, Taken};
use super::doors::Doors;

/// How long a connection may wait for the next whole request head, its first byte included.
pub(super) const HEAD_TIME: Duration = Duration::from_secs(5);
/// How long an answer may stay unheard.
const UNHEARD_TIME: Duration = Duration::from_secs(10);
/// The longest head; what a connection may make the server keep.
const HEAD_LEN_MAX: usize = 16 * 1024;
/// How long an idle connection has to end, in case that its last answer is still under way.
const END_TIME: Duration = Duration::from_secs(1);

/// Serves until the process ends.
pub(crate) async fn serve(listener: TcpListener, router: Router, doors: Arc<Doors>) {
    let connections = Connections::default();
    loop {
        let Ok((stream, address)) = listener.accept().await else {
            // Out of files, most likely: others may end meanwhile.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        if tend(&stream, UNHEARD_TIME).is_err() {
            continue;
        }
        if let Some(taken) = connections.admit(address.ip(), !doors.is_near(address.ip())).await {
            tokio::spawn(attend(stream, taken, router.clone()));
        }
    }
}

/// Serves one connection until it ends or must give way. One that breaks is its client's business.
async fn attend(stream: TcpStream, mut taken: Taken, router: Router) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(HEAD_LEN_MAX);
    let service = Known { connection: taken.connection.clone(), router: TowerToHyperService::new(router) };
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = serving.as_mut() => {}
        closed = &mut taken.closed => if closed == Ok(Phase::Idle) {
            serving.as_mut().graceful_shutdown();
            _ = timeout(END_TIME, serving).await;
        },
    }
}

/// Tells every request which connection it came on.
struct Known {
    connection: Connection,
    router: TowerToHyperService<Router>,
}

impl Service<Request<Incoming>> for Known {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.connection.clone());
        self.router.call(request)
    }
}
