//! What the API says, as JSON: the same objects that the commands print.

use std::fmt;
use std::time::{Duration, SystemTime};

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use primus_core::ServerId;
use primus_core::ledger::JobId;
use primus_core::load::Score;
use primus_node::handle::{Unable, View};
use primus_replica::Role;
use primus_server::peers::State;
use primus_server::transfer::Obstacle;
use primus_shapes::refusal::Body;
use serde::Serialize;

use super::facts::WorkerFacts;
use super::routes::{Context, Places};

pub(crate) use primus_node::events::text_of;

/// No message is longer, whatever somebody has sent that it repeats.
const MESSAGE_LEN_MAX: usize = 500;
/// What to do if one does not know what can be asked.
pub(super) const SEE_ROUTES: &str = "GET /v1 lists all routes";

/// The code of what will be otherwise in a moment.
const BUSY: &str = "busy";

/// An error, in the same body everywhere.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    message: String,
    hint: &'static str,
}

/// `/v1/leader`.
#[derive(Serialize)]
pub(crate) struct LeaderAnswer {
    farm: String,
    leader: Option<u64>,
    term: u64,
    since: String,
    reason: &'static str,
}

/// `/v1/status`.
#[derive(Serialize)]
pub(crate) struct StatusAnswer {
    #[serde(flatten)]
    leader: LeaderAnswer,
    server: u64,
    servers: Vec<ServerAnswer>,
    workers: Vec<WorkerFacts>,
    queued: u64,
    running: u64,
    suspicions: u64,
    /// T as it is now: how long this server would wait for a silent leader.
    silence_ms: f64,
    longest_turn_ms: f64,
}

/// The workers, and what they have to do.
#[derive(Default)]
pub(crate) struct Crew {
    pub(super) workers: Vec<WorkerFacts>,
    pub(super) queued: u64,
    pub(super) running: u64,
}

#[derive(Serialize)]
struct ServerAnswer {
    id: u64,
    address: String,
    api: String,
    /// Nothing where it is not known, because the server is not up.
    role: Option<&'static str>,
    alive: bool,
    state: &'static str,
    since: String,
    /// How long ago it was heard.
    heard_ms: Option<f64>,
    /// Why it is not up.
    why: Option<String>,
    /// The leader that it gave way to, and for which it does not stand in elections.
    gave_way_to: Option<u64>,
    score: Option<f64>,
    cpu: Option<f64>,
    memory: Option<f64>,
    tasks: Option<u32>,
    disk_full: Option<bool>,
    applied: Option<u64>,
    lag: Option<u64>,
    /// How long a message there and back takes, as the server measures that answers.
    round_trip_ms: Option<f64>,
    /// By how much what it says is delayed on purpose (primus chaos delay).
    delay_ms: Option<u64>,
}

impl LeaderAnswer {
    pub(crate) fn new(context: &Context, view: &View) -> Self {
        Self {
            farm: context.farm.clone(),
            leader: view.leader.map(|leader| leader.0),
            term: view.term.0,
            since: text_of(view.since),
            reason: view.reason.name(),
        }
    }
}

impl StatusAnswer {
    pub(crate) fn new(context: &Context, view: &View, crew: Crew) -> Self {
        let servers = context.servers.iter().map(|(id, places)| ServerAnswer::new(context, view, *id, *places));
        Self {
            leader: LeaderAnswer::new(context, view),
            server: view.id.0,
            servers: servers.collect(),
            workers: crew.workers,
            queued: crew.queued,
            running: crew.running,
            suspicions: view.suspicions,
            silence_ms: view.silence_us as f64 / 1000.0,
            longest_turn_ms: view.longest_turn.as_secs_f64() * 1000.0,
        }
    }
}

impl ServerAnswer {
    /// What a server that is not up said of its load counts no more; how much of the log it has stays true.
    fn new(context: &Context, view: &View, id: ServerId, places: Places) -> Self {
        let is_self = id == view.id;
        let peer = view.peers.get(&id).cloned().unwrap_or_default();
        let state = if is_self { State::Up } else { peer.state };
        let is_up = state == State::Up;
        let load = if is_self { Some(view.load) } else { peer.load.filter(|_| is_up) };
        // A leader that has not heard a peer yet begins to count at nothing.
        let matched = peer.matched.filter(|matched| is_up || *matched > 0);
        let applied = if is_self { Some(view.applied) } else { matched };
        let heard = if is_self { Some(Duration::ZERO) } else { context.handle.heard.ago(id) };
        Self {
            id: id.0,
            address: places.address.to_string(),
            api: places.api.to_string(),
            role: is_up.then(|| role_of(view, is_self, view.leader == Some(id))),
            alive: is_self || peer.is_up,
            state: state.name(),
            since: text_of(if is_self { context.started } else { peer.since }),
            heard_ms: heard.map(|ago| ago.as_micros() as f64 / 1000.0),
            why: peer.why.filter(|_| !is_up).map(|why| why.to_string()),
            gave_way_to: view.gave_way.get(&id).map(|to| to.0),
            score: load.map(|load| number(load.score)),
            cpu: load.and_then(|load| load.cpu).map(number),
            memory: load.and_then(|load| load.memory).map(number),
            tasks: load.map(|load| load.tasks),
            disk_full: load.map(|load| load.is_disk_full),
            applied,
            lag: applied.map(|applied| view.last.saturating_sub(applied)),
            round_trip_ms: peer.round_trip_us.map(|us| us as f64 / 1000.0),
            delay_ms: peer.delay.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

pub(super) fn number(score: Score) -> f64 {
    f64::from(score.hundredths()) / 100.0
}

fn role_of(view: &View, is_self: bool, leads: bool) -> &'static str {
    match (leads, is_self, view.role) {
        (true, ..) => "leader",
        (false, true, Role::Candidate) => "candidate",
        _ => "follower",
    }
}

/// A point in time as text, from milliseconds since 1970.
pub(crate) fn time_text(time_ms: u64) -> String {
    text_of(SystemTime::UNIX_EPOCH + Duration::from_millis(time_ms))
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
