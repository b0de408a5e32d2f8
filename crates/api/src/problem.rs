//! Why something was not done: the same body for every error, with the status that fits.

use std::fmt;

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use primus_core::ledger::JobId;
use primus_node::handle::Unable;
use primus_server::transfer::Obstacle;
use primus_shapes::refusal::Body;

/// No message is longer, whatever somebody has sent that it repeats.
const MESSAGE_LEN_MAX: usize = 500;
/// What to do if one does not know what can be asked.
pub(crate) const SEE_ROUTES: &str = "GET /v1 lists all routes";

/// The code of what will be otherwise in a moment.
const BUSY: &str = "busy";

/// A reason for which a request is refused.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Code {
    pub(crate) name: &'static str,
    pub(crate) status: u16,
    pub(crate) about: &'static str,
    /// True if any request can be refused for it.
    pub(crate) is_common: bool,
}

/// A reason that any request can meet.
const fn common(name: &'static str, status: u16, about: &'static str) -> Code {
    Code { name, status, about, is_common: true }
}

/// A reason of some routes.
const fn code(name: &'static str, status: u16, about: &'static str) -> Code {
    Code { name, status, about, is_common: false }
}

/// All of them, as the document lists them.
pub(crate) const CODES: [Code; 31] = [
    common("usage", 400, "a parameter, a field or the body makes no sense"),
    common("no_token", 401, "the secret is missing or wrong"),
    common(
        "not_allowed",
        403,
        "the request comes from another site, or needs what this server was not started with",
    ),
    code("not_found", 404, "what the path names does not exist"),
    code("method_not_allowed", 405, "the path does not take that method"),
    common("too_slow", 408, "the body arrives too slowly"),
    code("not_heard", 409, "the neighbour has not been heard lately"),
    code("not_reached", 409, "no server of the other farm answers"),
    code("all_lent", 409, "as many workers are lent as may be"),
    code("none_idle", 409, "no worker is idle"),
    code("no_authority", 409, "the farm was founded without TLS"),
    code("rotating", 409, "an authority is being rotated already"),
    code("no_rotation", 409, "no authority is being rotated"),
    code("roll_full", 409, "as many are known as may be"),
    common("too_long", 413, "the body or one of its lines is too long"),
    common("content_type", 415, "the Content-Type of the body cannot be used"),
    common("wrong_host", 421, "the Host field does not name this server"),
    code("other_job", 422, "another job has this Idempotency-Key"),
    code("queue_full", 429, "as many tasks wait as may"),
    common("busy", 503, "no room at the moment: Retry-After says when to try again"),
    common("not_founded", 503, "the server belongs to no cluster yet: the message says what it waits for"),
    code("no_leader", 503, "no server leads at the moment, and nothing was done"),
    code("unknown_outcome", 503, "leadership changed meanwhile: it may have been done or not"),
    code("disk_full", 503, "the disks are full"),
    code("state_full", 503, "the farm holds as much as it may"),
    code("too_long", 503, "it does not fit into one batch of the log"),
    code("no_worker", 503, "the worker that has it is not here"),
    code("refused", 503, "no server leads, and this one is refused by others"),
    code("not_transferred", 503, "no other server has begun to lead"),
    code("not_caught_up", 503, "the server has not caught up with the log"),
    code("dead", 503, "the server is dead, frozen or cut off"),
];

/// An error, in the same body everywhere.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    message: String,
    hint: &'static str,
}

impl Problem {
    pub(crate) fn usage(message: impl Into<String>, hint: &'static str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code: "usage", message: message.into(), hint }
    }

    pub(crate) fn too_long(message: impl Into<String>, hint: &'static str) -> Self {
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, code: "too_long", message: message.into(), hint }
    }

    pub(crate) fn too_slow(message: impl Into<String>, hint: &'static str) -> Self {
        Self { status: StatusCode::REQUEST_TIMEOUT, code: "too_slow", message: message.into(), hint }
    }

    pub(crate) fn not_found(message: impl Into<String>, hint: &'static str) -> Self {
        Self { status: StatusCode::NOT_FOUND, code: "not_found", message: message.into(), hint }
    }

    pub(crate) fn forbidden(message: impl Into<String>, hint: &'static str) -> Self {
        Self { status: StatusCode::FORBIDDEN, code: "not_allowed", message: message.into(), hint }
    }

    /// The server waits for this before it belongs to a cluster.
    pub(crate) fn not_founded(reason: &str) -> Self {
        Self::unavailable("not_founded", reason, "start all servers of the farm, or do what the message says")
    }

    /// Somebody believes to reach another server.
    pub(crate) fn misdirected() -> Self {
        Self {
            status: StatusCode::MISDIRECTED_REQUEST,
            code: "wrong_host",
            message: "the Host field does not name this server".to_owned(),
            hint: "use its address, localhost, or a name that api.names lists",
        }
    }

    /// The request does not show the secret.
    pub(crate) fn unauthorized() -> Self {
        Self {
            status: StatusCode::UNAUTHORIZED,
            code: "no_token",
            message: "this server asks for a secret".to_owned(),
            hint: "run the command as the user who runs the farm, or set PRIMUS_TOKEN",
        }
    }

    /// The body is not said to be JSON.
    pub(crate) fn wrong_kind() -> Self {
        Self {
            status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
            code: "content_type",
            message: "the Content-Type of the body cannot be used".to_owned(),
            hint: "send Content-Type: application/json, or application/x-ndjson for lines",
        }
    }

    /// Another job has this key.
    pub(crate) fn other_job(job: JobId) -> Self {
        Self {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            code: "other_job",
            message: format!("job {job} was submitted under this Idempotency-Key, and it is another one"),
            hint: "use a new key for a new job",
        }
    }

    pub(crate) fn not_now(code: &'static str, message: impl Into<String>, hint: &'static str) -> Self {
        Self { status: StatusCode::CONFLICT, code, message: message.into(), hint }
    }

    pub(crate) fn full(message: impl Into<String>, hint: &'static str) -> Self {
        Self { status: StatusCode::TOO_MANY_REQUESTS, code: "queue_full", message: message.into(), hint }
    }

    /// There is no room at the moment.
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self::unavailable(BUSY, message, "try again in a moment")
    }

    pub(crate) fn unavailable(code: &'static str, message: impl Into<String>, hint: &'static str) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, code, message: message.into(), hint }
    }
}

impl Problem {
    fn not_transferred(obstacle: Obstacle) -> Self {
        let (code, hint) = match obstacle {
            Obstacle::NotLeading => ("no_leader", "try again in a moment"),
            Obstacle::Behind(..) => ("not_caught_up", "try again in a moment"),
            Obstacle::Silent(_) => ("dead", "primus status shows who is alive"),
            Obstacle::Nobody | Obstacle::NoAnswer(_) => ("not_transferred", "primus status shows who leads"),
        };
        Self::unavailable(code, Unable::NotTransferred(obstacle).to_string(), hint)
    }

    /// The same, with the place where it is.
    pub(crate) fn within(mut self, place: &str) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// The same, with more to say.
    pub(crate) fn after(mut self, before: &str) -> Self {
        self.message = format!("{before}; then: {}", self.message);
        self
    }
}

impl From<Unable> for Problem {
    fn from(unable: Unable) -> Self {
        let (code, hint) = match unable {
            Unable::NotLeading(_) | Unable::NoLeader => ("no_leader", "try again in a moment"),
            Unable::DiskFull => ("disk_full", "make room; the leader goes on by itself then"),
            Unable::DisksFull => {
                ("disk_full", "make room where primus status says so; they go on by themselves then")
            }
            Unable::StateFull(_) => ("state_full", "delete keys, wait for jobs to end, or raise farm.state_max"),
            Unable::Busy => (BUSY, "try again in a moment"),
            Unable::Unknown => ("unknown_outcome", "read the key to find out whether it was written"),
            Unable::TooLong => ("too_long", "submit it in several parts"),
            Unable::NoWorker => ("no_worker", "try again when the worker is back"),
            Unable::NotTransferred(obstacle) => return Self::not_transferred(obstacle),
        };
        Self::unavailable(code, unable.to_string(), hint)
    }
}

/// What the framework refuses by itself, in plain text or in silence, gets the same body as everything else.
pub(crate) async fn in_one_body(response: Response) -> Response {
    let status = response.status();
    let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if is_json || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let allowed = response.headers().get(ALLOW).cloned();
    let (code, message) = match status {
        StatusCode::METHOD_NOT_ALLOWED => ("method_not_allowed", "this route does not take that method"),
        StatusCode::BAD_REQUEST => ("usage", "the path is not valid UTF-8"),
        _ => ("usage", status.canonical_reason().unwrap_or("refused")),
    };
    let problem = Problem { status, code, message: message.to_owned(), hint: SEE_ROUTES };
    (allowed.map(|methods| [(ALLOW, methods)]), problem).into_response()
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message.char_indices().nth(MESSAGE_LEN_MAX) {
            Some((end, _)) => write!(f, "{}…", &self.message[..end]),
            None => f.write_str(&self.message),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let challenge = (self.status == StatusCode::UNAUTHORIZED).then_some([(WWW_AUTHENTICATE, "Bearer")]);
        let again = (self.code == BUSY).then_some([(RETRY_AFTER, "1")]);
        let message = self.to_string();
        (self.status, challenge, again, Json(Body::new(self.code, &message, self.hint))).into_response()
    }
}
