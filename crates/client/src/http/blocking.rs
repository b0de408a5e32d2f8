//! The same for programs that do one thing at a time. Not to be called where a runtime already runs.
//!
//! Every thread that asks has a small runtime of its own, made when it asks for the first time: threads that ask at the same
//! time do not wait for each other. So what has begun on one thread cannot go on on another.

use std::future::Future;
use std::io::{self, Read};
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::pin;
use std::time::Duration;

use hyper::header::CONTENT_TYPE;
use primus_shapes::HERE;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::body::Content;
use super::connection::{Answer, Connection, late};
use super::kept::{Connections, Limits};
use super::{BODY_LEN_MAX, CLOSE, CONNECT_TIME, Field, Request, TransportError};

/// How much of a long body is sent at a time.
const PIECE_LEN: usize = 64 << 10;

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().expect("the system gives a runtime");
}

/// What binds to a thread.
type Here = PhantomData<*const ()>;

/// Waits for this on this thread.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.with(|runtime| runtime.block_on(future))
}

/// An answer whose body has not been read yet.
#[derive(Debug)]
pub struct Response(Answer, Here);

impl Response {
    /// The whole body.
    pub fn bytes(mut self) -> io::Result<Vec<u8>> {
        wait(self.0.bytes())
    }

    /// The answer and its whole body.
    pub fn whole(mut self) -> Result<(Answer, Vec<u8>), TransportError> {
        let body = wait(self.0.bytes()).map_err(TransportError::NoAnswer)?;
        Ok((self.0, body))
    }

    /// The body line by line, as it arrives.
    pub fn lines(mut self) -> impl Iterator<Item = io::Result<String>> {
        std::iter::from_fn(move || wait(self.0.line()).transpose())
    }
}

impl Deref for Response {
    type Target = Answer;

    fn deref(&self) -> &Answer {
        &self.0
    }
}

impl Request<'_> {
    /// Sends it to `host:port`. No part of the answer may take longer than `answer_time`.
    pub fn send(&self, address: &str, answer_time: Duration) -> Result<Response, TransportError> {
        self.send_with(&[], address, answer_time)
    }

    /// The same, with more fields in its head.
    pub fn send_with(
        &self,
        fields: &[Field<'_>],
        address: &str,
        answer_time: Duration,
    ) -> Result<Response, TransportError> {
        wait(self.ask(address, fields, answer_time)).map(|answer| Response(answer, PhantomData))
    }
}

/// Sends this as the body of a POST while it is read, however long it is. No part of it may take longer than `answer_time`.
pub fn upload(
    address: &str,
    path: &str,
    kind: &str,
    body: &mut impl Read,
    answer_time: Duration,
) -> Result<Response, TransportError> {
    let asked = async {
        let connection = Connection::open(address, CONNECT_TIME.min(answer_time)).await?;
        let (pieces, made) = mpsc::channel(1);
        let request =
            Request::post(path, b"").with(Content::Made(made), address, [CLOSE, (CONTENT_TYPE.as_str(), kind)])?;
        let mut answer = pin!(connection.ask(request, Duration::MAX, answer_time));
        let late = |_| TransportError::NoAnswer(late(answer_time));
        loop {
            let mut piece = vec![0; PIECE_LEN];
            let len = body.read(&mut piece).map_err(TransportError::NoAnswer)?;
            if len == 0 {
                break;
            }
            piece.truncate(len);
            let sent = async {
                tokio::select! {
                    biased;
                    // A server that refuses stops reading; then its answer says why.
                    answer = &mut answer => Some(answer),
                    _ = pieces.send(piece.into()) => None,
                }
            };
            if let Some(answer) = timeout(answer_time, sent).await.map_err(late)? {
                return answer.map_err(|failed| failed.error);
            }
        }
        drop(pieces);
        timeout(answer_time, answer).await.map_err(late)?.map_err(|failed| failed.error)
    };
    wait(asked).map(|answer| Response(answer, PhantomData))
}

/// A connection to one server that is used again and again, and that answers for itself: it passes nothing on.
#[derive(Debug)]
pub struct Session {
    address: String,
    answer_time: Duration,
    connections: Connections,
    _here: Here,
}

impl Session {
    /// With the server at `host:port`.
    pub fn new(address: &str, answer_time: Duration) -> Self {
        let (connect_time, idle_time, answer_len_max) = (CONNECT_TIME, Duration::MAX, BODY_LEN_MAX);
        let connections = Connections::new(Limits { connect_time, idle_time, answer_len_max });
        Self { address: address.to_owned(), answer_time, connections, _here: PhantomData }
    }

    /// The status of the answer.
    pub fn status(&mut self, request: &Request<'_>) -> Result<u16, TransportError> {
        self.answer(request).map(|(status, _)| status)
    }

    /// The answer as JSON, whatever its status.
    pub fn json(&mut self, request: &Request<'_>) -> Result<Value, TransportError> {
        let (_, body) = self.answer(request)?;
        serde_json::from_slice(&body).map_err(|error| TransportError::NoAnswer(error.into()))
    }

    fn answer(&mut self, request: &Request<'_>) -> Result<(u16, Vec<u8>), TransportError> {
        wait(self.connections.ask(request, &self.address, &[(HERE, "1")], self.answer_time))
    }
}
