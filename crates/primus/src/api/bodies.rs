//! Reads what requests carry, within limits: of length, of time, and of how many are read at once.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::http::Request;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::answers::Problem;

/// How long a body may take to arrive, its wait for a place included.
const BODY_TIME: Duration = Duration::from_secs(5);
/// How many are kept while they arrive: with the greatest length this bounds the memory that they take.
const BODIES_MAX: usize = 64;

/// A body up to this length is not long.
const SHORT_LEN: usize = 64 * 1024;
const LONG_BODIES_MAX: usize = 4;
const LONG_BODY_TIME: Duration = Duration::from_secs(30);

/// The whole body, if it is not longer than this.
pub(super) async fn read(request: Request<Body>, len_max: usize) -> Result<Bytes, Problem> {
    static PLACES: Semaphore = Semaphore::const_new(BODIES_MAX);
    check_length(&request, len_max)?;
    let reading = async {
        let _place = PLACES.acquire().await;
        to_bytes(request.into_body(), len_max).await
    };
    let read = timeout(BODY_TIME, reading).await.map_err(|_| too_slow())?;
    read.map_err(|_| too_long(len_max))
}

/// The same for a body that may be long: fewer of them at once, and more time for each.
pub(super) async fn read_long(request: Request<Body>, len_max: usize) -> Result<Bytes, Problem> {
    static PLACES: Semaphore = Semaphore::const_new(LONG_BODIES_MAX);
    let is_short = request.body().size_hint().upper().is_some_and(|length| length <= SHORT_LEN as u64);
    if is_short {
        return read(request, SHORT_LEN).await;
    }
    check_length(&request, len_max)?;
    let reading = async {
        let _place = PLACES.acquire().await;
        to_bytes(request.into_body(), len_max).await
    };
    let read = timeout(LONG_BODY_TIME, reading).await.map_err(|_| too_slow())?;
    read.map_err(|_| too_long(len_max))
}

/// Refuses what says of itself that it is too long.
pub(super) fn check_length(request: &Request<Body>, len_max: usize) -> Result<(), Problem> {
    let is_too_long = request.body().size_hint().lower() > len_max as u64;
    if is_too_long { Err(too_long(len_max)) } else { Ok(()) }
}

fn too_long(len_max: usize) -> Problem {
    Problem::too_long(format!("the body is longer than {len_max} bytes"), "split it")
}

fn too_slow() -> Problem {
    Problem::too_slow(format!("the body did not arrive within {} s", BODY_TIME.as_secs()), "send it at once")
}
