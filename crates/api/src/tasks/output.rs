//! `/v1/tasks/{id}/output`: what a task printed, or prints at the moment.
//!
//! Short outputs are in the result; longer ones, and those of tasks that still run, are with the worker. An answer is one
//! piece and says where the next one begins, so that whoever reads on can ask any server, also after a leader has died.
//! With `follow=true` the pieces come in one answer, for people with a plain HTTP client.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use primus_core::farm::foreman::Foreman;
use primus_core::ledger::{Held, Outcome, TaskId};
use primus_node::farm::OUTPUT_LEN_MAX;
use primus_node::handle::Unable;
use primus_node::outputs::Stream;
use primus_shapes::objects::shown;
use tokio::time::{Instant, sleep};

use super::{parse, unknown};
use crate::context::Context;
use crate::headers::{ATTEMPT, ELSEWHERE, LAST, OFFSET, TOTAL};
use crate::limits::WAIT_TIME_MAX;
use crate::orders::Asked;
use crate::problem::Problem;

/// How often a worker is asked whether there is more: soon at first, then less and less.
const LOOK_FIRST: Duration = Duration::from_millis(5);
const LOOK_LAST: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy)]
enum WhichStream {
    Stdout,
    Stderr,
}

impl WhichStream {
    fn read(name: Option<&str>) -> Result<Self, Problem> {
        match name {
            None | Some("stdout") => Ok(Self::Stdout),
            Some("stderr") => Ok(Self::Stderr),
            Some(other) => {
                Err(Problem::usage(format!("stream {:?} does not exist", shown(other)), "choose stdout or stderr"))
            }
        }
    }
}

/// Who reads what.
#[derive(Clone)]
struct Reader {
    context: Context,
    task: TaskId,
    stream: WhichStream,
    attempt: Option<String>,
    offset: u64,
}

/// A part of an output.
struct Piece {
    attempt: Option<String>,
    offset: u64,
    bytes: Bytes,
    is_last: bool,
    total: Option<u64>,
    /// The worker that may have what is missing before this piece, and is not here.
    elsewhere: Option<String>,
}

/// Where an output is.
enum Source {
    /// It has ended, and this is its result.
    Ended(Outcome),
    /// It has ended without one.
    Nothing,
    /// This worker has it.
    Worker(String, Held),
    /// It has not begun.
    Nowhere,
}

pub(crate) async fn output(
    State(context): State<Context>,
    Path(id): Path<String>,
    mut asked: Asked,
) -> Result<Response, Problem> {
    let stream = WhichStream::read(asked.text("stream").as_deref())?;
    // The attempt that was read so far; another one begins anew.
    let (offset, attempt) = (asked.number("offset")?.unwrap_or(0), asked.text("attempt"));
    // How long to wait for something new.
    let (wait_ms, follow) = (asked.number("wait_ms")?, asked.truth("follow")?.unwrap_or(false));
    asked.done()?;
    let reader = Reader { context, task: parse(&id)?, stream, attempt, offset };
    if follow {
        return Ok(reader.follow().await?.into_response());
    }
    let patience = Duration::from_millis(wait_ms.unwrap_or(0)).min(WAIT_TIME_MAX);
    Ok(reader.next(patience).await?.into_response())
}

impl Reader {
    /// The next piece, when there is one or time is over.
    async fn next(&self, patience: Duration) -> Result<Piece, Problem> {
        let until = Instant::now() + patience;
        let mut pause = LOOK_FIRST;
        loop {
            let piece = self.look().await?;
            if !piece.bytes.is_empty() || piece.is_last || Instant::now() >= until {
                return Ok(piece);
            }
            sleep(pause.min(until.saturating_duration_since(Instant::now()))).await;
            pause = (pause * 2).min(LOOK_LAST);
        }
    }

    async fn look(&self) -> Result<Piece, Problem> {
        let task = self.task;
        let source = self.context.handle.farm.look(move |foreman| source(foreman, task)).await?;
        match source.ok_or_else(|| unknown(task))? {
            Source::Ended(outcome) => self.of_result(outcome).await,
            Source::Nothing => Ok(Piece { is_last: true, ..self.empty(self.attempt.clone(), self.offset) }),
            Source::Nowhere => Ok(self.empty(None, 0)),
            Source::Worker(worker, held) => {
                let offset = self.offset_in(held);
                let bytes = self.fetch(&worker, held, offset).await.ok().flatten().unwrap_or_default();
                Ok(Piece { bytes, ..self.empty(Some(held.attempt.to_string()), offset) })
            }
        }
    }

    /// Where to read on: another attempt than before is read from its beginning.
    fn offset_in(&self, held: Held) -> u64 {
        let is_other = self.attempt.as_ref().is_some_and(|attempt| *attempt != held.attempt.to_string());
        if is_other { 0 } else { self.offset }
    }

    async fn of_result(&self, outcome: Outcome) -> Result<Piece, Problem> {
        let held = Held { task: self.task, attempt: outcome.attempt };
        let offset = self.offset_in(held);
        let tail = match self.stream {
            WhichStream::Stdout => outcome.stdout,
            WhichStream::Stderr => outcome.stderr,
        };
        let total = tail.total;
        let tail_at = total.saturating_sub(tail.bytes.len() as u64);
        let mut piece = Piece { total: Some(total), ..self.empty(Some(held.attempt.to_string()), offset) };
        if offset >= total {
            return Ok(Piece { is_last: true, ..piece });
        }
        if offset < tail_at {
            match self.fetch(&outcome.worker, held, offset).await {
                Ok(Some(bytes)) if !bytes.is_empty() => return Ok(Piece { bytes, ..piece }),
                Err(Unable::NoWorker) => piece.elsewhere = Some(outcome.worker),
                // The rest was too much, or the file is gone: the end is in the result.
                _ => {}
            }
        }
        let from = offset.max(tail_at);
        let bytes = Bytes::from(tail.bytes).slice(usize::try_from(from - tail_at).unwrap_or(0)..);
        Ok(Piece { bytes, offset: from, is_last: true, ..piece })
    }

    async fn fetch(&self, worker: &str, held: Held, offset: u64) -> Result<Option<Bytes>, Unable> {
        let stream = match self.stream {
            WhichStream::Stdout => Stream::Stdout,
            WhichStream::Stderr => Stream::Stderr,
        };
        self.context.handle.farm.output(worker, held, stream, offset, OUTPUT_LEN_MAX).await
    }

    const fn empty(&self, attempt: Option<String>, offset: u64) -> Piece {
        Piece { attempt, offset, bytes: Bytes::new(), is_last: false, total: None, elsewhere: None }
    }

    /// All pieces until the task has ended.
    async fn follow(mut self) -> Result<Response, Problem> {
        let first = self.next(Duration::ZERO).await?;
        self.go_on(&first);
        let pieces = stream::unfold((self, Some(first)), |(mut reader, ready)| async move {
            let piece = match ready {
                Some(piece) => piece,
                None => reader.next(WAIT_TIME_MAX).await.ok()?,
            };
            if piece.is_last && piece.bytes.is_empty() {
                return None;
            }
            reader.go_on(&piece);
            Some((Ok::<Bytes, std::io::Error>(piece.bytes), (reader, None)))
        });
        Ok(([(CONTENT_TYPE, BYTES)], Body::from_stream(pieces)).into_response())
    }

    fn go_on(&mut self, piece: &Piece) {
        self.attempt = piece.attempt.clone().or(self.attempt.take());
        self.offset = piece.offset + piece.bytes.len() as u64;
    }
}

const BYTES: &str = "application/octet-stream";

/// Nothing if there is no such task.
fn source(foreman: &Foreman, task: TaskId) -> Option<Source> {
    let state = foreman.ledger().state(task)?;
    if let Some(outcome) = foreman.ledger().outcome(task) {
        return Some(Source::Ended(outcome));
    }
    if state.is_final() {
        return Some(Source::Nothing);
    }
    let with = foreman.assignment_of(task);
    Some(
        with.map_or(Source::Nowhere, |(worker, attempt)| Source::Worker(worker.to_owned(), Held { task, attempt })),
    )
}

impl IntoResponse for Piece {
    fn into_response(self) -> Response {
        let mut response = ([(CONTENT_TYPE, BYTES)], self.bytes).into_response();
        let attempt = self.attempt.map(|attempt| (ATTEMPT, attempt));
        let total = self.total.map(|total| (TOTAL, total.to_string()));
        let elsewhere = self.elsewhere.map(|worker| (ELSEWHERE, worker));
        let fields = [
            Some((OFFSET, self.offset.to_string())),
            Some((LAST, self.is_last.to_string())),
            attempt,
            total,
            elsewhere,
        ];
        for (name, value) in fields.into_iter().flatten() {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}
