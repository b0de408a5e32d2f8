//! Accepts connections. Whoever says nothing, or sends half a head, or vanishes, does not stay for ever; at the limit others
//! wait until somebody goes.

use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use primus_node::sockets::tend;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// How long a connection may wait for the next whole request head, its first byte included.
pub(super) const HEAD_TIME: Duration = Duration::from_secs(5);
/// How long an answer may stay unheard.
const UNHEARD_TIME: Duration = Duration::from_secs(10);
const CONNECTIONS_MAX: usize = 2048;
/// The longest head; what a connection may make the server keep.
const HEAD_LEN_MAX: usize = 16 * 1024;

/// Serves until the process ends.
pub(crate) async fn serve(listener: TcpListener, router: Router) {
    static PLACES: Semaphore = Semaphore::const_new(CONNECTIONS_MAX);
    loop {
        let Ok(place) = PLACES.acquire().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of files, most likely: others may end meanwhile.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        if tend(&stream, UNHEARD_TIME).is_err() {
            continue;
        }
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let _place = place;
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(HEAD_LEN_MAX);
            // A connection that breaks is its client's business.
            _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
