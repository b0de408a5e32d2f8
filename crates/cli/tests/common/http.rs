//! Requests to a server's API, each on a connection of its own, with the secret of the server that they go to.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::validator::{Asked, Document};

/// How long a client waits for an answer.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(2);

/// What each server asks for.
static TOKENS: Mutex<BTreeMap<SocketAddr, String>> = Mutex::new(BTreeMap::new());

/// What an API of this version may answer.
static DOCUMENT: LazyLock<Document> = LazyLock::new(|| Document(primus_api::document()));

/// From now on requests to this server show this.
pub(crate) fn know(api: SocketAddr, token: &str) {
    TOKENS.lock().unwrap_or_else(PoisonError::into_inner).insert(api, token.to_owned());
}

/// What this server asks for, if it is known.
pub(crate) fn token(api: SocketAddr) -> Option<String> {
    TOKENS.lock().unwrap_or_else(PoisonError::into_inner).get(&api).cloned()
}

/// The same request with what every server asks for: its own address as `Host`, the secret, and the kind of the body.
pub(crate) fn dressed(api: SocketAddr, request: &[u8]) -> Vec<u8> {
    let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") else { return request.to_vec() };
    let Ok(head) = std::str::from_utf8(&request[..end]) else { return request.to_vec() };
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let fields: Vec<&str> = lines.filter(|line| !line.eq_ignore_ascii_case("host: x")).collect();
    let says = |name: &str| fields.iter().any(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")));
    let mut dressed = vec![first.to_owned()];
    dressed.extend((!says("host")).then(|| format!("host: {api}")));
    let token = token(api).filter(|_| !says("authorization"));
    dressed.extend(token.map(|token| format!("authorization: Bearer {token}")));
    let has_body = request.len() > end + 4 || says("transfer-encoding");
    dressed.extend((has_body && !says("content-type")).then(|| "content-type: application/json".to_owned()));
    dressed.extend(fields.into_iter().map(str::to_owned));
    [dressed.join("\r\n").as_bytes(), &request[end..]].concat()
}

/// The status and JSON that came back.
pub(crate) fn ask(api: SocketAddr, method: &str, path: &str, body: &str) -> io::Result<(u16, Value)> {
    request(api, &format!("{method} {path} HTTP/1.1"), body)
}

/// Submits a job that exists once under this key, however often it is submitted.
pub(crate) fn submit(api: SocketAddr, key: &str, job: &Value) -> io::Result<(u16, Value)> {
    request(api, &format!("POST /v1/jobs HTTP/1.1\r\nidempotency-key: {key}"), &job.to_string())
}

/// The head is what comes before the headers that all requests have.
fn request(api: SocketAddr, head: &str, body: &str) -> io::Result<(u16, Value)> {
    let length = body.len();
    let head = format!("{head}\r\nhost: {api}\r\nconnection: close\r\ncontent-length: {length}");
    let text = exchange(api, format!("{head}\r\n\r\n{body}").as_bytes())?;
    let broken = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(broken)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(broken)?;
    Ok((status, serde_json::from_str(body).map_err(|_| broken())?))
}

/// Sends this, with what every server asks for, and reads until the other side closes or time is up.
pub(crate) fn exchange(api: SocketAddr, request: &[u8]) -> io::Result<String> {
    exchange_bare(api, &dressed(api, request))
}

/// The same with nothing but these bytes.
pub(crate) fn exchange_bare(api: SocketAddr, request: &[u8]) -> io::Result<String> {
    let until = Instant::now() + ANSWER_TIME;
    let mut stream = TcpStream::connect_timeout(&api, ANSWER_TIME)?;
    stream.set_write_timeout(Some(ANSWER_TIME))?;
    // From here on the request may have been heard, whatever happens next.
    let heard = |error: io::Error| io::Error::new(io::ErrorKind::BrokenPipe, error);
    stream.write_all(request).map_err(heard)?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer).map_err(heard)? {
            0 => {
                let answer = String::from_utf8(answer).map_err(|error| heard(io::Error::other(error)))?;
                hold_to_the_document(request, &answer);
                return Ok(answer);
            }
            count => answer.extend_from_slice(&buffer[..count]),
        }
    }
}

/// What a server's history holds.
pub(crate) fn events(api: SocketAddr) -> io::Result<Vec<Value>> {
    let text = exchange(api, b"GET /v1/events?follow=false HTTP/1.0\r\n\r\n")?;
    let events = text.lines().filter_map(|line| line.strip_prefix("data:"));
    events.map(|data| serde_json::from_str(data).map_err(io::Error::other)).collect()
}

/// Every answer is what the API's document says of its route: status, code, fields and their types.
pub(crate) fn hold_to_the_document(request: &[u8], answer: &str) {
    let Some((method, path)) = asked(request) else { return };
    let Some((status, kind, body)) = told(answer) else { return };
    let asked = Asked { method: &method, path: &path };
    for body in bodies(&kind, body) {
        if let Err(mistake) = DOCUMENT.check_answer(asked, status, &kind, &body) {
            panic!("{method} {path} {status} is not what the document says: {mistake}");
        }
    }
}

/// The method, and the path without the query.
fn asked(request: &[u8]) -> Option<(String, String)> {
    let end = request.iter().position(|byte| *byte == b'\n')?;
    let mut words = std::str::from_utf8(&request[..end]).ok()?.split_whitespace();
    let (method, target) = (words.next()?, words.next()?);
    let path = target.split('?').next()?;
    Some((method.to_owned(), path.to_owned()))
}

/// The status, the kind of the body, and the body of the first answer, if it is whole.
fn told(answer: &str) -> Option<(u16, String, &str)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let field = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    };
    let kind = field("content-type")?.to_owned();
    let body = match field("content-length") {
        Some(length) => body.get(..length.parse().ok()?)?,
        None => body,
    };
    Some((status, kind, body))
}

/// What such a body holds: one value, or an event a line.
fn bodies(kind: &str, body: &str) -> Vec<Value> {
    match kind {
        "application/json" => {
            let value = serde_json::from_str(body);
            vec![value.unwrap_or_else(|error| panic!("an answer of JSON is not JSON: {error}: {body}"))]
        }
        "text/event-stream" => {
            let lines = body.lines().filter_map(|line| line.strip_prefix("data:"));
            lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
        }
        _ => Vec::new(),
    }
}
