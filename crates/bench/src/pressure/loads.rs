//! What is asked of a farm that is under pressure: more of everything than usual, all of it from clients that do not rest.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use primus_client::http::{self, Request, escaped};
use primus_client::tokens;
use primus_terminal::failure::Failure;
use serde_json::{Value, json};

use super::crowds::{self, Manner};
use super::{Plan, fat, others};
use crate::args::PressureLoad;
use primus_local::TemporaryFarm;
use primus_local::answers::place;

/// How many clients list.
const LISTING: usize = 2;
/// How many keys are written with one request while the state is laid.
const KEYS_PER_BODY: u64 = 50_000;
/// How long whoever lays the load waits for an answer, and how long for a connection.
const ANSWER_TIME: Duration = Duration::from_secs(30);
const CONNECT_TIME: Duration = Duration::from_secs(1);
/// How long somebody waits who was refused.
const PAUSE: Duration = Duration::from_millis(10);

/// Where a load is laid, until when, and what has come of it.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    pub(super) farm: &'a str,
    /// Its servers' APIs, the leader's first.
    pub(super) apis: Vec<&'a str>,
    /// The leader, and where it listens for workers.
    pub(super) leader: (u64, &'a str),
    pub(super) clients: usize,
    tasks: u64,
    until: Instant,
    done: AtomicU64,
    trouble: Mutex<Option<String>>,
}

impl<'a> Scene<'a> {
    pub(super) fn new(
        farm: &'a TemporaryFarm,
        name: &'a str,
        leader: u64,
        clients: usize,
        tasks: u64,
        until: Instant,
    ) -> Self {
        let mut servers: Vec<_> = farm.servers().iter().collect();
        servers.sort_by_key(|server| server.id != leader);
        Self {
            farm: name,
            apis: servers.iter().map(|server| place(&server.api)).collect(),
            leader: (leader, servers.first().map_or("", |server| server.address.as_str())),
            clients,
            tasks,
            until,
            done: AtomicU64::new(0),
            trouble: Mutex::new(None),
        }
    }

    pub(super) fn goes_on(&self) -> bool {
        Instant::now() < self.until
    }

    /// For how much longer.
    pub(super) fn rest(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    pub(super) fn count(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps the first thing that went wrong, and rests for a moment.
    pub(super) fn went_wrong(&self, what: &str) {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| what.to_owned());
        thread::sleep(PAUSE);
    }

    /// How much took place. If nothing did, nothing was measured.
    pub(super) fn done(&self) -> Result<u64, Failure> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let why = trouble.as_deref().unwrap_or("the time was too short for it");
        match self.done.load(Ordering::Relaxed) {
            0 => Err(failed(format!("nothing of the load took place: {why}"))),
            done => Ok(done),
        }
    }

    /// The API that the client of this number talks to.
    pub(super) fn api(&self, client: usize) -> &'a str {
        self.apis[client % self.apis.len()]
    }
}

/// What is counted of a load.
pub(super) const fn unit(load: PressureLoad) -> &'static str {
    match load {
        PressureLoad::Lists => "pages",
        PressureLoad::Cancels => "jobs",
        PressureLoad::ListsAndCancels => "pages and jobs",
        PressureLoad::Bulk | PressureLoad::Slow => "bodies",
        PressureLoad::Workers => "words",
        PressureLoad::Followers => "followers",
    }
}

/// Lays the state that a load needs.
pub(super) fn prepare(farm: &TemporaryFarm, plan: &Plan, load: PressureLoad, leader: u64) -> Result<(), Failure> {
    others::prepare(farm)?;
    let leader = farm.servers().iter().find(|server| server.id == leader);
    let api = leader.map(|leader| place(&leader.api)).unwrap_or_default();
    match load {
        PressureLoad::Lists | PressureLoad::ListsAndCancels => fill(api, plan.keys),
        // What is written over and over again is there before, so that it is not taken for memory that the load takes.
        PressureLoad::Bulk => import(api, &crowds::values()),
        PressureLoad::Workers => {
            fat::prepare();
            Ok(())
        }
        PressureLoad::Cancels | PressureLoad::Followers | PressureLoad::Slow => Ok(()),
    }
}

fn fill(api: &str, keys: u64) -> Result<(), Failure> {
    for first in (0..keys).step_by(usize::try_from(KEYS_PER_BODY).unwrap_or(usize::MAX)) {
        let last = keys.min(first + KEYS_PER_BODY);
        let lines: String =
            (first..last).map(|key| format!("{{\"key\":\"k{key:07}\",\"value\":\"v\"}}\n")).collect();
        import(api, lines.as_bytes())?;
    }
    Ok(())
}

fn import(api: &str, mut lines: &[u8]) -> Result<(), Failure> {
    let sent = http::upload(api, "/v1/kv", http::LINES, &mut lines, ANSWER_TIME);
    match sent.map(|response| response.status) {
        Ok(200) => Ok(()),
        other => Err(failed(format!("the register cannot be filled: {other:?}"))),
    }
}

/// Lays it: its clients go on until the time is over.
pub(super) fn lay<'scope, 'a: 'scope>(load: PressureLoad, scene: &'a Scene<'a>, scope: &'scope Scope<'scope, '_>) {
    match load {
        PressureLoad::Lists => lists(scene, scope),
        PressureLoad::Cancels => _ = scope.spawn(|| cancel(scene)),
        PressureLoad::ListsAndCancels => {
            lists(scene, scope);
            scope.spawn(|| cancel(scene));
        }
        PressureLoad::Bulk => crowds::lay(scene, scope, Manner::bulk),
        PressureLoad::Workers => {
            for client in 0..scene.clients {
                scope.spawn(move || fat::work(scene, client));
            }
        }
        PressureLoad::Followers => crowds::lay(scene, scope, Manner::following),
        PressureLoad::Slow => crowds::lay(scene, scope, Manner::slow),
    }
}

fn lists<'scope, 'a: 'scope>(scene: &'a Scene<'a>, scope: &'scope Scope<'scope, '_>) {
    for client in 0..LISTING {
        scope.spawn(move || list(scene, scene.api(client)));
    }
}

/// All keys, page by page, again and again.
fn list(scene: &Scene<'_>, api: &str) {
    let mut after = String::new();
    while scene.goes_on() {
        let path = format!("/v1/kv?limit=10000{after}");
        let page = Request::get(&path).send(api, ANSWER_TIME).ok().filter(|response| response.status == 200);
        match page.and_then(|response| response.bytes().ok()) {
            Some(page) => {
                scene.count();
                after = next(&page).map_or_else(String::new, |next| format!("&after={}", escaped(&next)));
            }
            None => scene.went_wrong("a page is refused"),
        }
    }
}

/// Where the next page begins. The page itself is not read: that would cost this process more than the server.
fn next(page: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(page).ok()?;
    let end = &text[text.rfind("\"next\":")?..];
    let end: Value = serde_json::from_str(&format!("{{{end}")).ok()?;
    end["next"].as_str().map(str::to_owned)
}

/// A job of very many tasks is submitted and cancelled, again and again.
fn cancel(scene: &Scene<'_>) {
    let api = scene.api(0);
    let job = json!({ "command": ["sleep", "1000"], "array": format!("1-{}", scene.tasks) }).to_string();
    while scene.goes_on() {
        match post(api, "/v1/jobs", job.as_bytes()).as_ref().map(|answer| answer["job"].as_str()) {
            Ok(Some(job)) => match post(api, &format!("/v1/jobs/{job}/cancel"), b"{}") {
                Ok(_) => scene.count(),
                Err(why) => scene.went_wrong(&why),
            },
            Ok(None) => scene.went_wrong("the answer names no job"),
            Err(why) => scene.went_wrong(why),
        }
    }
}

fn post(api: &str, path: &str, body: &[u8]) -> Result<Value, String> {
    let response = Request::post(path, body).send(api, ANSWER_TIME).map_err(|trouble| format!("{trouble:?}"))?;
    let status = response.status;
    let bytes = response.bytes().map_err(|error| error.to_string())?;
    let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if status < 300 { Ok(answer) } else { Err(format!("{status} {answer}")) }
}

/// A connection to this API.
pub(super) fn open(api: &str) -> std::io::Result<TcpStream> {
    let address: SocketAddr = api.parse().map_err(std::io::Error::other)?;
    TcpStream::connect_timeout(&address, CONNECT_TIME)
}

/// How a request with a body begins.
pub(super) fn head(method: &str, path: &str, api: &str, kind: &str, len: usize) -> String {
    let secret = authorization(api);
    format!(
        "{method} {path} HTTP/1.1\r\nhost: {api}\r\nconnection: close\r\n{secret}content-type: {kind}\r\n\
         content-length: {len}\r\n\r\n"
    )
}

/// The secret of this server, as a field of the head.
pub(super) fn authorization(api: &str) -> String {
    tokens::of(api).map(|token| format!("authorization: {}\r\n", token.credentials())).unwrap_or_default()
}

/// Did just nothing happen?
pub(super) fn is_silence(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

fn failed(message: String) -> Failure {
    Failure::failed("pressure", message, "see whether the host is overloaded")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_page_says_where_the_next_begins() {
        let page = |next: &str| format!("{{\"items\":[{{\"key\":\"next\"}}],\"next\":{next}}}");
        assert_eq!(next(page("\"k\\\"1\"").as_bytes()), Some("k\"1".to_owned()));
        assert_eq!(next(page("null").as_bytes()), None);
        assert_eq!(next(b"{}"), None);
    }
}
