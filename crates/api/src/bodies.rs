//! Reads what requests carry, within limits: of length, of pace, and of how much is kept at once.

use std::ops::Deref;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use axum::http::Request;
use bytes::BytesMut;
use futures_util::StreamExt;
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use crate::problem::Problem;
use crate::room::{LONG, Room, SESSIONS, SHORT, Share};

/// A body up to this length is not long.
const SHORT_LEN: usize = 64 * 1024;
/// How far a body may fall behind its pace: it may begin late, or stop for a moment.
const GRACE: Duration = Duration::from_secs(5);
/// Its pace, in bytes per second.
const PACE: u32 = 8 * 1024;
/// How long a client may be silent between two lines.
const SILENCE: Duration = Duration::from_secs(30);

/// A piece of a body of lines that is longer than this is read in its turn...
const LONG_PIECE_LEN: usize = 16 * 1024;
/// ...so many of them, then everything else that waits for the API's thread.
static TURNS: Semaphore = Semaphore::const_new(4);

/// A whole body, and the room that it takes.
#[derive(Debug)]
pub(crate) struct Arrived {
    bytes: Bytes,
    _room: Room,
}

impl Arrived {
    /// The same bytes, which need not be copied. They have room for as long as this lives.
    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }
}

impl Deref for Arrived {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The whole body, if it is not longer than this.
pub(crate) async fn read(request: Request<Body>, len_max: usize) -> Result<Arrived, Problem> {
    collect(request, len_max, &SHORT).await
}

/// The same for a body that may be long.
pub(crate) async fn read_long(request: Request<Body>, len_max: usize) -> Result<Arrived, Problem> {
    let is_short = request.body().size_hint().upper().is_some_and(|length| length <= SHORT_LEN as u64);
    collect(request, len_max, if is_short { &SHORT } else { &LONG }).await
}

/// The same for what a session asks, which must not wait for others.
pub(crate) async fn read_question(request: Request<Body>, len_max: usize) -> Result<Arrived, Problem> {
    collect(request, len_max, &SESSIONS).await
}

async fn collect(request: Request<Body>, len_max: usize, share: &'static Share) -> Result<Arrived, Problem> {
    check_length(&request, len_max)?;
    let (mut room, mut bytes) = (Room::of_body(share), BytesMut::new());
    let mut pieces = Pieces::new(request.into_body());
    while let Some(piece) = pieces.next().await? {
        let len = bytes.len() + piece.len();
        if len > len_max {
            return Err(too_long(len_max));
        }
        room.hold(len).await?;
        bytes.extend_from_slice(&piece);
    }
    Ok(Arrived { bytes: bytes.freeze(), _room: room })
}

/// A body that arrives piece by piece, and not too slowly.
pub(crate) struct Pieces {
    stream: BodyDataStream,
    /// How much longer the next piece may take.
    patience: Duration,
}

impl Pieces {
    pub(crate) fn new(body: Body) -> Self {
        Self { stream: body.into_data_stream(), patience: GRACE }
    }

    /// The next piece, or nothing at the end. Only the time counts in which the client has nothing to say.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        let since = Instant::now();
        let Ok(piece) = timeout(self.patience, self.stream.next()).await else { return Err(too_slow()) };
        let piece = piece.transpose().map_err(|_| broken())?;
        let len = piece.as_ref().map_or(0, Bytes::len);
        self.patience = left(self.patience, since.elapsed(), len);
        Ok(piece)
    }

    /// The same for a body of lines: between two of them a client may be silent for longer.
    pub(crate) async fn next_of_lines(&mut self, is_between: bool) -> Result<Option<Bytes>, Problem> {
        if is_between {
            self.patience = SILENCE;
        }
        let piece = self.next().await?;
        if piece.as_ref().is_some_and(|piece| piece.len() > LONG_PIECE_LEN) {
            turn().await;
        }
        Ok(piece)
    }
}

/// Lets others have the thread first. Hundreds of bodies that arrive at once would keep it for a tenth of a second each time, and a
/// session that asks for its lease waits for the thread several times.
async fn turn() {
    let _turn = TURNS.acquire().await;
    yield_now().await;
}

/// How much patience is left after a piece of this length that took so long.
fn left(patience: Duration, took: Duration, len: usize) -> Duration {
    (patience.saturating_sub(took) + Duration::from_secs(len as u64) / PACE).min(GRACE)
}

/// Refuses what says of itself that it is too long.
pub(crate) fn check_length(request: &Request<Body>, len_max: usize) -> Result<(), Problem> {
    let is_too_long = request.body().size_hint().lower() > len_max as u64;
    if is_too_long { Err(too_long(len_max)) } else { Ok(()) }
}

fn too_long(len_max: usize) -> Problem {
    Problem::too_long(format!("the body is longer than {len_max} bytes"), "split it")
}

fn too_slow() -> Problem {
    let message = format!("the body arrives more slowly than {PACE} bytes per second");
    Problem::too_slow(message, "have it ready before you send it")
}

fn broken() -> Problem {
    Problem::usage("the body ended in the middle", "send the rest again")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many pieces of this length a body may send, one every so many milliseconds.
    fn sent(len: usize, every_ms: u64) -> usize {
        let (mut patience, every) = (GRACE, Duration::from_millis(every_ms));
        (0..1000)
            .take_while(|_| {
                let is_in_time = every <= patience;
                patience = left(patience, every, len);
                is_in_time
            })
            .count()
    }

    #[test]
    fn a_body_may_be_slow_but_not_slower_than_its_pace() {
        assert_eq!(sent(1000, 100), 1000);
        assert_eq!(sent(9000, 1000), 1000);
        assert_eq!(sent(8000, 1000), 171, "a little too slow is noticed late");
        assert_eq!(sent(1, 900), 5);
        assert_eq!(sent(1 << 20, 5001), 0, "what comes fast does not excuse a long pause");
    }
}
