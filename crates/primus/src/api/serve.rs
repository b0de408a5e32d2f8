//! Accepts connections, each with a time limit for its request head: whoever sends half a head must not stay for ever.

use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

const HEAD_TIME: Duration = Duration::from_secs(5);
const CONNECTIONS_MAX: usize = 1024;

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
        _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let _place = place;
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
            // A connection that breaks is its client's business.
            _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
