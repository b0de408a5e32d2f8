//! A connection to a server, and what comes back over it.
//!
//! A connection works only while its user waits for something, so it needs no task of its own and ends when it is dropped.

use std::error::Error as _;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::BytesMut;
use hyper::HeaderMap;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::body::Content;
use super::{BODY_LEN_MAX, CLOSE, CONNECT_TIME, Field, JSON, Request, TransportError};
use crate::tokens;

/// How long the head of an answer may be, and how many fields it may have.
const HEAD_LEN_MAX: usize = 64 << 10;
const FIELDS_MAX: usize = 100;
/// How long a line of an answer may be that is read line by line.
const LINE_LEN_MAX: usize = 16 << 10;

/// What moves bytes between the socket and the rest of a connection; none once it is closed.
type Driver = Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>;

/// A connection that takes one request after the other.
pub(super) struct Connection {
    sender: SendRequest<Content>,
    driver: Driver,
}

/// An answer whose body has not been read yet.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    fields: HeaderMap,
    body: Incoming,
    /// What has arrived of the body and was not read yet as a line.
    arrived: BytesMut,
    pub(super) connection: Connection,
    answer_time: Duration,
}

/// Why no answer came, and the request itself if nothing of it has left.
pub(super) struct Failed {
    pub(super) request: Option<Box<hyper::Request<Content>>>,
    pub(super) error: TransportError,
}

/// The one place where a connection begins.
async fn connect(address: &str, time: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in lookup_host(address).await? {
        match timeout(time, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}

impl Connection {
    pub(super) async fn open(address: &str, time: Duration) -> Result<Self, TransportError> {
        let stream = connect(address, time).await.map_err(|_| TransportError::Unreachable)?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_LEN_MAX).max_headers(FIELDS_MAX);
        let begun = builder.handshake(TokioIo::new(stream)).await;
        let (sender, driver) = begun.map_err(|_| TransportError::Unreachable)?;
        Ok(Self { sender, driver: Some(Box::pin(driver)) })
    }

    /// Sends this, and waits for the head of the answer so long.
    pub(super) async fn ask(
        mut self,
        request: hyper::Request<Content>,
        head_time: Duration,
        answer_time: Duration,
    ) -> Result<Answer, Failed> {
        let Self { sender, driver } = &mut self;
        let not_sent = |request| Failed { request: Some(Box::new(request)), error: TransportError::Unreachable };
        let no_answer = |error| Failed { request: None, error: TransportError::NoAnswer(error) };
        if drive(driver, poll_fn(|cx| sender.poll_ready(cx))).await.is_err() {
            return Err(not_sent(request));
        }
        let sent = timeout(head_time, drive(driver, sender.try_send_request(request))).await;
        let response = sent.map_err(|_| no_answer(late(head_time)))?;
        let response = response.map_err(|mut failed| match failed.take_message() {
            Some(request) => not_sent(request),
            None => no_answer(broken(failed.into_error())),
        });
        let (head, body) = response?.into_parts();
        let (status, fields, arrived) = (head.status.as_u16(), head.headers, BytesMut::new());
        Ok(Answer { status, fields, body, arrived, connection: self, answer_time })
    }
}

/// Waits for this while the connection works.
async fn drive<T>(driver: &mut Driver, waited_for: impl Future<Output = T>) -> T {
    let mut waited_for = pin!(waited_for);
    poll_fn(|cx| {
        // What ends a connection is told to those who wait for something of it.
        if driver.as_mut().is_some_and(|driver| driver.as_mut().poll(cx).is_ready()) {
            *driver = None;
        }
        waited_for.as_mut().poll(cx)
    })
    .await
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("is_open", &self.driver.is_some()).finish_non_exhaustive()
    }
}

impl Request<'_> {
    /// Sends it to `host:port` over a connection of its own. No part of the answer may take longer than `answer_time`.
    pub async fn ask(
        &self,
        address: &str,
        fields: &[Field<'_>],
        answer_time: Duration,
    ) -> Result<Answer, TransportError> {
        let connection = Connection::open(address, CONNECT_TIME.min(answer_time)).await?;
        let request = self.addressed(address, &[&[CLOSE], fields].concat())?;
        let asked = connection.ask(request, self.head_time(answer_time), answer_time).await;
        asked.map_err(|failed| failed.error)
    }

    /// The same with the whole body of the answer.
    pub async fn whole(
        &self,
        address: &str,
        fields: &[Field<'_>],
        answer_time: Duration,
    ) -> Result<(Answer, Vec<u8>), TransportError> {
        let mut answer = self.ask(address, fields, answer_time).await?;
        let bytes = answer.bytes().await.map_err(TransportError::NoAnswer)?;
        Ok((answer, bytes))
    }

    /// A long request takes a while to be sent, and to be understood: a second for each megabyte.
    pub(super) fn head_time(&self, answer_time: Duration) -> Duration {
        answer_time + Duration::from_micros(self.body.len() as u64)
    }

    pub(super) fn addressed(
        &self,
        address: &str,
        fields: &[Field<'_>],
    ) -> Result<hyper::Request<Content>, TransportError> {
        let content = Content::Known(Bytes::copy_from_slice(self.body));
        let kind = Some((CONTENT_TYPE.as_str(), JSON)).filter(|_| !self.body.is_empty());
        self.with(content, address, kind.into_iter().chain(fields.iter().copied()))
    }

    /// This with another body, and with the secret of that server if we know it.
    pub(super) fn with<'f>(
        &self,
        content: Content,
        address: &str,
        fields: impl IntoIterator<Item = Field<'f>>,
    ) -> Result<hyper::Request<Content>, TransportError> {
        let mut request = hyper::Request::builder().method(self.method).uri(self.path).header(HOST, address);
        if let Some(token) = tokens::of(address) {
            request = request.header(AUTHORIZATION, token.credentials());
        }
        let request = fields.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        let odd = |error| TransportError::NoAnswer(io::Error::new(ErrorKind::InvalidInput, error));
        request.body(content).map_err(odd)
    }
}

impl Answer {
    /// What a field of its head says.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name)?.to_str().ok()
    }

    /// The next piece of its body; none at the end.
    async fn piece(&mut self) -> io::Result<Option<Bytes>> {
        let Self { body, connection, answer_time, .. } = self;
        loop {
            let next = drive(&mut connection.driver, poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)));
            let frame = timeout(*answer_time, next).await.map_err(|_| late(*answer_time))?;
            let Some(frame) = frame.transpose().map_err(broken)? else { return Ok(None) };
            // What is no data are fields behind the body.
            if let Ok(piece) = frame.into_data() {
                return Ok(Some(piece));
            }
        }
    }

    /// The whole body.
    pub async fn bytes(&mut self) -> io::Result<Vec<u8>> {
        self.bytes_max(BODY_LEN_MAX).await
    }

    pub(super) async fn bytes_max(&mut self, len_max: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.piece().await? {
            if bytes.len() + piece.len() > len_max {
                return Err(strange("the answer is too long"));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    /// The next line of the body, as soon as all of it has arrived. What follows the last end of a line is not a line.
    pub async fn line(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.arrived.iter().position(|byte| *byte == b'\n') {
                let line = self.arrived.split_to(end + 1);
                let line = line[..end].strip_suffix(b"\r").unwrap_or(&line[..end]);
                let line = std::str::from_utf8(line).map_err(|_| strange("the answer is not valid UTF-8"))?;
                return Ok(Some(line.to_owned()));
            }
            if self.arrived.len() > LINE_LEN_MAX {
                return Err(strange("a line of the answer is too long"));
            }
            match self.piece().await? {
                Some(piece) => self.arrived.extend_from_slice(&piece),
                None => return Ok(None),
            }
        }
    }
}

/// Why a connection was of no use, with the kind of what lies behind it.
fn broken(error: hyper::Error) -> io::Error {
    let below = error.source().and_then(|source| source.downcast_ref::<io::Error>()).map(io::Error::kind);
    let kind = match below.filter(|kind| *kind != ErrorKind::UnexpectedEof) {
        Some(kind) => kind,
        None if error.is_parse() => ErrorKind::InvalidData,
        None => ErrorKind::ConnectionAborted,
    };
    io::Error::new(kind, error)
}

pub(super) fn late(time: Duration) -> io::Error {
    io::Error::new(ErrorKind::TimedOut, format!("nothing came within {} ms", time.as_millis()))
}

fn strange(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}
