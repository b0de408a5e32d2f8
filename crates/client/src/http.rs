//! HTTP/1.1 as a client speaks it: a limit on everything, and no TLS yet.
//!
//! It knows one thing that larger clients hide: whether a request had left when something went wrong. Only then can a
//! write have taken place, and only then must it not be repeated blindly.
//!
//! `connection` is the client itself, and asynchronous; `kept` keeps its connections, and `blocking` is its front for programs
//! that do one thing at a time.

mod blocking;
mod body;
mod connection;
mod kept;

use std::io;
use std::time::Duration;

pub use primus_shapes::path::escaped;

pub(crate) use self::blocking::wait;
pub use self::blocking::{Response, Session, upload};
pub use self::connection::Answer;
pub use self::kept::{Connections, Limits};

/// Bodies whose every line is an object of its own.
pub const LINES: &str = "application/x-ndjson";
const JSON: &str = "application/json";
/// The longest answer: a farm's whole register fits in it many times.
const BODY_LEN_MAX: usize = 256 << 20;
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

/// A further field of a request's head: its name and what it says.
pub type Field<'a> = (&'static str, &'a str);

/// What a request says that is the only one on its connection.
const CLOSE: Field<'_> = ("connection", "close");

/// What went wrong, and so whether the server may have acted.
#[derive(Debug)]
pub enum TransportError {
    /// The server does not listen, or hung up before: nothing was sent.
    Unreachable,
    /// The request left, and no answer came back.
    NoAnswer(io::Error),
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
}

#[cfg(test)]
mod tests;
