//! A small HTTP/1.1 client: one request per connection, no TLS, and a limit on everything.
//!
//! It knows one thing that larger clients hide: whether a request had left when something went wrong. Only then can a
//! write have taken place, and only then must it not be repeated blindly.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

pub use primus_shapes::path::escaped;
use primus_shapes::{HERE, PROOF};

use crate::tokens;

const HEAD_LINE_LEN_MAX: u64 = 16 * 1024;
const HEAD_LINES_MAX: usize = 100;
/// A farm's whole register fits in it many times.
const BODY_LEN_MAX: u64 = 256 * 1024 * 1024;
/// How much of a long body is sent at a time.
const CHUNK_LEN: usize = 64 * 1024;
/// How the names of fields begin that only our servers send.
const OWN_FIELDS: &str = "x-primus-";
const CONNECT_TIME: Duration = Duration::from_secs(1);

/// What is asked of a server.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// `GET`, `POST` and the like.
    pub method: &'static str,
    /// Path and query, already escaped.
    pub path: &'a str,
    /// The body, empty if there is none.
    pub body: &'a [u8],
}

/// What went wrong, and so whether the server may have acted.
#[derive(Debug)]
pub enum TransportError {
    /// Nobody listens there: nothing was sent.
    Unreachable,
    /// The request left, and no answer came back.
    NoAnswer(io::Error),
}

/// An answer whose body has not been read yet.
#[derive(Debug)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// What its head says of ourselves: names and values.
    fields: Vec<(String, String)>,
    body: Body,
}

#[derive(Debug)]
struct Body {
    stream: BufReader<TcpStream>,
    framing: Framing,
}

/// How one knows where a body ends; how much is left of it, or of its current chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(u64),
    Chunked(u64),
    UntilClose,
}

impl<'a> Request<'a> {
    /// Reads something.
    pub fn get(path: &'a str) -> Self {
        Self { method: "GET", path, body: b"" }
    }

    /// Asks for something to be done.
    pub fn post(path: &'a str, body: &'a [u8]) -> Self {
        Self { method: "POST", path, body }
    }

    /// Sends it to `host:port`. No read waits longer than `answer_time`.
    pub fn send(&self, address: &str, answer_time: Duration) -> Result<Response, TransportError> {
        self.send_with(None, address, answer_time)
    }

    /// The same, with one more field in its head.
    pub fn send_with(
        &self,
        field: Option<(&str, &str)>,
        address: &str,
        answer_time: Duration,
    ) -> Result<Response, TransportError> {
        let stream = connect(address, answer_time).map_err(|_| TransportError::Unreachable)?;
        self.exchange(stream, address, field).map_err(TransportError::NoAnswer)
    }

    fn exchange(&self, mut stream: TcpStream, address: &str, field: Option<(&str, &str)>) -> io::Result<Response> {
        let Self { method, path, body } = self;
        let field = field.map(|(name, value)| format!("{name}: {value}\r\n")).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{field}{}{}\r\n",
            authorization(address),
            content(body),
        );
        stream.write_all(&[head.as_bytes(), body].concat())?;
        Response::begin(BufReader::new(stream))
    }
}

/// The secret, as a field of the head, if the server there has one that we know.
pub fn authorization(address: &str) -> String {
    tokens::of(address).map(|token| format!("authorization: {}\r\n", token.credentials())).unwrap_or_default()
}

/// What the head says of the body.
fn content(body: &[u8]) -> String {
    let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
    format!("{kind}content-length: {}\r\n", body.len())
}

/// Bodies whose every line is an object of its own.
pub const LINES: &str = "application/x-ndjson";

/// Sends this as the body of a POST while it is read, however long it is.
pub fn upload(
    address: &str,
    path: &str,
    kind: &str,
    body: &mut impl Read,
    answer_time: Duration,
) -> Result<Response, TransportError> {
    let mut stream = connect(address, answer_time).map_err(|_| TransportError::Unreachable)?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: {kind}\r\n{}\
         transfer-encoding: chunked\r\n\r\n",
        authorization(address),
    );
    let sent = stream.write_all(head.as_bytes()).and_then(|()| send_chunks(&mut stream, body));
    // A server that refuses stops reading; then its answer says why.
    match (Response::begin(BufReader::new(stream)), sent) {
        (Ok(response), _) => Ok(response),
        (Err(_), Err(error)) | (Err(error), Ok(())) => Err(TransportError::NoAnswer(error)),
    }
}

fn send_chunks(stream: &mut TcpStream, body: &mut impl Read) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_LEN];
    loop {
        let len = body.read(&mut chunk)?;
        let head = format!("{len:x}\r\n");
        stream.write_all(&[head.as_bytes(), &chunk[..len], b"\r\n"].concat())?;
        if len == 0 {
            return Ok(());
        }
    }
}

/// A connection to one server that is used again and again, and that answers for itself: it passes nothing on.
#[derive(Debug)]
pub struct Session {
    address: String,
    /// What every head says of us.
    identity: String,
    answer_time: Duration,
    stream: Option<BufReader<TcpStream>>,
}

impl Session {
    /// With the server at `host:port`.
    pub fn new(address: &str, answer_time: Duration) -> Self {
        let proof = tokens::of(address).map(|token| format!("{PROOF}: {}\r\n", token.proof())).unwrap_or_default();
        let identity = authorization(address) + &proof;
        Self { address: address.to_string(), identity, answer_time, stream: None }
    }

    /// The status of the answer. After any trouble the next request opens another connection.
    pub fn status(&mut self, request: &Request<'_>) -> Result<u16, TransportError> {
        self.answer(request).map(|(status, _)| status)
    }

    /// The answer as JSON, whatever its status.
    pub fn json(&mut self, request: &Request<'_>) -> Result<serde_json::Value, TransportError> {
        let (_, body) = self.answer(request)?;
        serde_json::from_slice(&body).map_err(|error| TransportError::NoAnswer(error.into()))
    }

    fn answer(&mut self, request: &Request<'_>) -> Result<(u16, Vec<u8>), TransportError> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                BufReader::new(connect(&self.address, self.answer_time).map_err(|_| TransportError::Unreachable)?)
            }
        };
        self.exchange(stream, request).map_err(TransportError::NoAnswer)
    }

    fn exchange(&mut self, mut stream: BufReader<TcpStream>, request: &Request<'_>) -> io::Result<(u16, Vec<u8>)> {
        let Request { method, path, body } = request;
        let (address, identity, content) = (&self.address, &self.identity, content(body));
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\n{HERE}: 1\r\n{identity}{content}\r\n");
        stream.get_mut().write_all(&[head.as_bytes(), body].concat())?;
        let mut response = Response::begin(stream)?;
        let mut body = Vec::new();
        (&mut response.body).take(BODY_LEN_MAX).read_to_end(&mut body)?;
        self.stream = Some(response.body.stream);
        Ok((response.status, body))
    }
}

fn connect(address: &str, answer_time: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match open(address, answer_time) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn open(address: SocketAddr, answer_time: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIME.min(answer_time))?;
    stream.set_read_timeout(Some(answer_time))?;
    stream.set_write_timeout(Some(answer_time))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Response {
    fn begin(mut stream: BufReader<TcpStream>) -> io::Result<Self> {
        let first = line(&mut stream)?;
        let status = first.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse().ok());
        let status = status.ok_or_else(|| strange("this is not an HTTP server"))?;
        let mut framing = Framing::UntilClose;
        let mut fields = Vec::new();
        for _ in 0..HEAD_LINES_MAX {
            let field = line(&mut stream)?;
            let Some((name, value)) = field.split_once(':') else {
                return Ok(Self { status, fields, body: Body { stream, framing } });
            };
            framing = framing.told(name, value.trim())?;
            if name.starts_with(OWN_FIELDS) {
                fields.push((name.to_owned(), value.trim().to_owned()));
            }
        }
        Err(strange("the head of the answer is too long"))
    }

    /// What a field of our own says.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The whole body.
    pub fn bytes(self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.body.take(BODY_LEN_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// The body line by line, as it arrives.
    pub fn lines(self) -> impl Iterator<Item = io::Result<String>> {
        let mut body = BufReader::new(self.body);
        std::iter::from_fn(move || match line(&mut body) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => None,
            other => Some(other),
        })
    }
}

impl Framing {
    fn told(self, name: &str, value: &str) -> io::Result<Self> {
        if name.eq_ignore_ascii_case("transfer-encoding") && value.eq_ignore_ascii_case("chunked") {
            return Ok(Self::Chunked(0));
        }
        if name.eq_ignore_ascii_case("content-length") && self == Self::UntilClose {
            return value
                .parse()
                .map(Self::Length)
                .map_err(|_| strange("the length of the answer is not a number"));
        }
        Ok(self)
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.framing == Framing::Chunked(0) {
            self.begin_chunk()?;
        }
        let left = match self.framing {
            Framing::Length(left) | Framing::Chunked(left) => left,
            Framing::UntilClose => u64::MAX,
        };
        let read = (&mut self.stream).take(left).read(buffer)?;
        if read == 0 && left > 0 && self.framing != Framing::UntilClose {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        self.count(read as u64)?;
        Ok(read)
    }
}

impl Body {
    fn begin_chunk(&mut self) -> io::Result<()> {
        let size = line(&mut self.stream)?;
        let size = u64::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16);
        let size = size.map_err(|_| strange("a chunk of the answer has no length"))?;
        // The last chunk is empty; nothing of interest follows it.
        self.framing = if size == 0 { Framing::Length(0) } else { Framing::Chunked(size) };
        Ok(())
    }

    fn count(&mut self, read: u64) -> io::Result<()> {
        match &mut self.framing {
            Framing::Length(left) => *left -= read,
            Framing::Chunked(left) => {
                *left -= read;
                if *left == 0 {
                    line(&mut self.stream)?;
                }
            }
            Framing::UntilClose => {}
        }
        Ok(())
    }
}

/// A line without its end; the end of the stream is an error.
fn line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut bytes = Vec::new();
    stream.take(HEAD_LINE_LEN_MAX).read_until(b'\n', &mut bytes)?;
    if bytes.pop() != Some(b'\n') {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    if bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    String::from_utf8(bytes).map_err(|_| strange("the answer is not valid UTF-8"))
}

fn strange(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// What the client makes of these bytes.
    fn answer(bytes: &'static [u8]) -> Result<(u16, io::Result<Vec<u8>>), TransportError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = BufReader::new(stream.try_clone().unwrap());
            while line(&mut request).is_ok_and(|line| !line.is_empty()) {}
            stream.write_all(bytes).unwrap();
        });
        let response = Request::get("/").send(&address, Duration::from_secs(5));
        let read = response.map(|response| (response.status, response.bytes()));
        server.join().unwrap();
        read
    }

    fn body(bytes: &'static [u8]) -> String {
        String::from_utf8(answer(bytes).unwrap().1.unwrap()).unwrap()
    }

    #[test]
    fn bodies_end_where_they_should() {
        assert_eq!(body(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc"), "ab");
        assert_eq!(body(b"HTTP/1.1 200 OK\r\n\r\nabc"), "abc");
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
        assert_eq!(body(chunked), "abcde");
    }

    #[test]
    fn half_an_answer_is_no_answer() {
        let cut_short = answer(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc").unwrap().1;
        assert_eq!(cut_short.unwrap_err().kind(), ErrorKind::ConnectionAborted);
        for bytes in
            [&b""[..], b"HTTP/1.1 200", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"]
        {
            assert!(matches!(answer(bytes), Err(TransportError::NoAnswer(_))), "{bytes:?}");
        }
    }

    #[test]
    fn where_nobody_listens_nothing_was_sent() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let sent = Request::get("/").send(&free, Duration::from_secs(5));
        assert!(matches!(sent, Err(TransportError::Unreachable)), "{sent:?}");
    }
}
