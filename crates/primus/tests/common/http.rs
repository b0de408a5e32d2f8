//! Requests to a server's API, each on a connection of its own.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long a client waits for an answer.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(2);

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

/// Sends this and reads until the other side closes or time is up.
pub(crate) fn exchange(api: SocketAddr, request: &[u8]) -> io::Result<String> {
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
            0 => return String::from_utf8(answer).map_err(|error| heard(io::Error::other(error))),
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
