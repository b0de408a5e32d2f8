//! Finding a farm, and talking to its servers.
//!
//! Every server answers for the farm. Reads go from one to the next until somebody answers. A write goes to one that is
//! known to listen, and is never sent twice: when no answer comes back, its outcome is unknown, and that is what is said.

mod error;
pub mod farms;
pub mod http;
pub mod pages;
pub mod tasks;
pub mod tokens;

use std::io::{self, Read};
use std::time::{Duration, Instant};

pub use error::{Error, Kind};
use farms::Farm;
use futures_util::future::join_all;
use http::{Answer, Request, Response, TransportError, wait};
use primus_core::retry::{Fate, Retry};
use primus_shapes::token::Token;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::sleep;

/// Where a server listens that nobody configured otherwise.
const DEFAULT_API: &str = "127.0.0.1:7461";
const DEFAULT_PORT: u16 = 7461;
/// How long a server may take to say who leads. One that is frozen says nothing; a busy host is slow.
const PATIENCE: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(3)];
/// How long to wait before asking again.
const PAUSE: Duration = Duration::from_millis(20);
/// No answer is waited for less than this.
const ANSWER_TIME_MIN: Duration = Duration::from_millis(500);

/// The servers of one farm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// `host:port` of each.
    addresses: Vec<String>,
}

/// How long to go on.
#[derive(Debug, Clone, Copy)]
pub enum Patience {
    /// Ask once, and give the answer this much time.
    Once(Duration),
    /// Ask again while there is no leader, for so long.
    WhileNoLeader(Duration),
}

/// Who leads, as a server sees it.
#[derive(Debug, Clone, Deserialize)]
pub struct Leader {
    /// The name of the farm.
    pub farm: String,
    /// The server that leads; absent while none does.
    pub leader: Option<u64>,
    /// The number of this leadership.
    pub term: u64,
    /// The point in time at which it began.
    pub since: String,
    /// Why leadership changed.
    pub reason: String,
}

impl Client {
    /// The servers of a farm: those at `api`, of the farm of this name that runs here, at `PRIMUS_API`, of the only farm that runs
    /// here, or at the default address; the first of these that there is.
    ///
    /// # Errors
    /// If an address makes no sense, the farm does not run, or several do.
    pub fn find(api: Option<&str>, farm: Option<&str>) -> Result<Self, Error> {
        if let Some(api) = api {
            return Self::at("--api", api);
        }
        let from_environment = std::env::var("PRIMUS_API").ok().filter(|api| !api.is_empty());
        match (farm, from_environment) {
            // What was typed outweighs what was set some time ago.
            (None, Some(api)) => Self::at("PRIMUS_API", &api),
            (name, _) => match Farm::find(name)? {
                Some(farm) => Ok(Self::of(&farm)),
                None => Self::at("the default", DEFAULT_API),
            },
        }
    }

    /// `host:port` of each server.
    pub fn into_addresses(self) -> Vec<String> {
        self.addresses
    }

    /// The servers of a farm that runs here.
    pub fn of(farm: &Farm) -> Self {
        // A dead server would only cost time.
        let alive = farm.servers.iter().filter(|server| server.pid.is_some());
        Self { addresses: alive.map(|server| server.api.trim_start_matches("http://").to_string()).collect() }
    }

    /// The servers at these addresses, separated by commas.
    fn at(origin: &str, urls: &str) -> Result<Self, Error> {
        let addresses = urls.split(',').map(|url| address(origin, url.trim()));
        let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
        match Token::from_environment().map_err(|(message, hint)| Error::usage(message, hint))? {
            Some(token) => addresses.iter().for_each(|address| tokens::know(address, &token)),
            // One of them may be a server of this user: reading what runs here makes its secret known.
            None => _ = Farm::all(),
        }
        Ok(Self { addresses })
    }

    /// Reads something from a server that listens; if it then says nothing, from the next.
    pub fn read(&self, path: &str, patience: Patience) -> Result<Value, Error> {
        wait(self.read_async(path, patience))
    }

    /// The same inside a runtime.
    pub async fn read_async(&self, path: &str, patience: Patience) -> Result<Value, Error> {
        let (mut attempts, time_min) = patience.attempts();
        loop {
            let answer = self.read_once(path, attempts.left().max(time_min)).await;
            if !attempts.go_on(leaderless(&answer), false).await {
                return answer;
            }
        }
    }

    async fn read_once(&self, path: &str, answer_time: Duration) -> Result<Value, Error> {
        let views = self.views_async("/v1/leader").await;
        let mut last = if views.is_empty() { self.absent().await } else { self.unreachable() };
        for (address, _) in views {
            let Ok(answer) = Request::get(path).whole(&address, &[], answer_time).await else { continue };
            match meaning(answer) {
                Err(failure) if failure.is_not_now() => last = failure,
                answer => return answer,
            }
        }
        Err(last)
    }

    /// Has something changed, once at most.
    pub fn write(&self, request: Request<'_>, patience: Patience) -> Result<Value, Error> {
        wait(self.write_async(request, patience))
    }

    /// The same inside a runtime.
    pub async fn write_async(&self, request: Request<'_>, patience: Patience) -> Result<Value, Error> {
        let (mut attempts, time_min) = patience.attempts();
        loop {
            let answer = self.write_once(request, attempts.left().max(time_min)).await;
            if !attempts.go_on(leaderless(&answer), false).await {
                return answer;
            }
        }
    }

    async fn write_once(&self, request: Request<'_>, answer_time: Duration) -> Result<Value, Error> {
        let (address, _) = self.view("/v1/leader").await?;
        match request.whole(&address, &[], answer_time).await {
            Ok(answer) => meaning(answer),
            Err(TransportError::Unreachable) => {
                let message = "the server that was asked has just ended";
                Err(Error::new(Kind::NotNow, "no_leader", message, "try again"))
            }
            Err(TransportError::NoAnswer(error)) => Err(unknown_outcome(&error)),
        }
    }

    /// Has many values written while they are read. The leader gets them itself, if one can tell where it is.
    pub fn import(&self, body: &mut impl Read, batch: u64, answer_time: Duration) -> Result<Value, Error> {
        let path = format!("/v1/kv?batch={batch}");
        let (first, status) = wait(self.view("/v1/status"))?;
        let leader = status["servers"].as_array().into_iter().flatten().find(|server| server["role"] == "leader");
        let address = leader.and_then(|leader| leader["api"].as_str()).unwrap_or(&first);
        tokens::share(&first, address);
        let sent = http::upload(address, &path, http::LINES, body, answer_time);
        match sent.and_then(Response::whole) {
            Ok(answer) => meaning(answer),
            Err(TransportError::Unreachable) => Err(self.unreachable()),
            Err(TransportError::NoAnswer(error)) => Err(unknown_outcome(&error)),
        }
    }

    /// The latest view that a server has of this: `/v1/leader` or `/v1/status`.
    pub fn latest(&self, path: &str) -> Result<Value, Error> {
        wait(self.latest_async(path))
    }

    /// The same inside a runtime.
    pub async fn latest_async(&self, path: &str) -> Result<Value, Error> {
        Ok(self.view(path).await?.1)
    }

    async fn view(&self, path: &str) -> Result<(String, Value), Error> {
        match self.views_async(path).await.into_iter().next() {
            Some(view) => Ok(view),
            None => Err(self.absent().await),
        }
    }

    /// The latest list that a server has of this, all of it from that server: every server has its own.
    pub fn latest_list(&self, path: &str) -> Result<Value, Error> {
        let mut server: Option<Self> = None;
        pages::all(path, |page| match &server {
            Some(server) => server.latest(page),
            None => {
                let (address, list) = wait(self.view(page))?;
                server = Some(Self { addresses: vec![address] });
                Ok(list)
            }
        })
    }

    /// Who leads, understood and as it was said.
    pub fn leader(&self) -> Result<(Leader, Value), Error> {
        let view = self.latest("/v1/leader")?;
        Ok((Leader::read(&view)?, view))
    }

    /// What all servers say that answer, the latest first. One that is cut off may still believe in an old leader.
    pub fn views(&self, path: &str) -> Vec<(String, Value)> {
        wait(self.views_async(path))
    }

    async fn views_async(&self, path: &str) -> Vec<(String, Value)> {
        let rank = |view: &Value| (view["term"].as_u64(), view["leader"].is_u64());
        for answer_time in PATIENCE {
            let mut views = self.ask_all(path, answer_time).await;
            views.sort_by_key(|(_, view)| std::cmp::Reverse(rank(view)));
            if !views.is_empty() {
                return views;
            }
        }
        Vec::new()
    }

    /// A stream of events from the first server that gives one.
    pub fn open(&self, path: &str, answer_time: Duration) -> Result<Response, Error> {
        for address in &self.addresses {
            // A frozen server accepts connections and says nothing, so see first whether it is alive.
            let is_alive = Request::get("/livez").send(address, PATIENCE[0]).is_ok();
            match Request::get(path).send(address, answer_time) {
                Ok(response) if is_alive && response.status == 200 => return Ok(response),
                Ok(response) if is_alive => {
                    return Err(response
                        .whole()
                        .map_or_else(|_| self.unreachable(), |(answer, body)| refusal(&answer, &body)));
                }
                _ => {}
            }
        }
        Err(self.unreachable())
    }

    /// A client of each server by itself, for what every server has its own of.
    pub fn each(&self) -> impl Iterator<Item = Self> {
        self.addresses.iter().map(|address| {
            let mut one = self.clone();
            one.addresses = vec![address.clone()];
            one
        })
    }

    /// Puts the server that leads first, if one can tell which that is: some things only that one sees.
    pub fn prefer_leader(&mut self) {
        let Ok(status) = self.latest("/v1/status") else { return };
        let leader = status["servers"].as_array().into_iter().flatten().find(|server| server["role"] == "leader");
        let Some(api) = leader.and_then(|leader| leader["api"].as_str()) else { return };
        self.addresses.sort_by_key(|address| address != api);
    }

    /// Puts this server last, because it has let us down.
    pub fn rotate(&mut self) {
        if !self.addresses.is_empty() {
            self.addresses.rotate_left(1);
        }
    }

    async fn ask_all(&self, path: &str, answer_time: Duration) -> Vec<(String, Value)> {
        let ask = async |address: &String| {
            let answer = Request::get(path).whole(address, &[], answer_time).await.ok()?;
            Some((address.clone(), meaning(answer).ok()?))
        };
        join_all(self.addresses.iter().map(ask)).await.into_iter().flatten().collect()
    }

    /// Why no server tells anything: one of them may be there, and refuse, or belong to no cluster yet.
    async fn absent(&self) -> Error {
        for address in &self.addresses {
            let answer = Request::get("/v1/leader").whole(address, &[], PATIENCE[0]).await;
            let refused = answer.map(|(answer, body)| (answer.status, refusal(&answer, &body)));
            if let Ok((status, refusal)) = refused
                && (matches!(status, 401 | 403 | 421) || refusal.code() == "not_founded")
            {
                return refusal;
            }
        }
        self.unreachable()
    }

    fn unreachable(&self) -> Error {
        let places = self.addresses.join(", ");
        let message = if places.is_empty() {
            "no server of the farm runs at the moment".to_string()
        } else {
            format!("no server answers at {places}")
        };
        Error::unreachable(message, "start one with primus up, or say where it is with --api URL")
    }
}

impl Leader {
    /// Who leads, in a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { farm, leader, term, since, reason } = self;
        match leader {
            Some(leader) => format!("server {leader} leads {farm} in term {term} since {since} ({reason})"),
            None => format!("no server leads {farm}; the last term was {term}"),
        }
    }

    /// What a server said about it.
    pub fn read(view: &Value) -> Result<Self, Error> {
        Self::deserialize(view).map_err(|_| strange_answer())
    }
}

/// Attempts to have something answered.
#[derive(Debug)]
pub struct Attempts {
    began: Instant,
    retry: Retry,
}

impl Attempts {
    /// From now on.
    #[must_use]
    pub fn new(retry: Retry) -> Self {
        Self { began: Instant::now(), retry }
    }

    /// How much time is left.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.retry.left(self.began.elapsed())
    }

    /// Pauses before the next attempt. False if none must follow one that ended like this, or time is up.
    pub async fn go_on(&mut self, fate: Fate, is_repeatable: bool) -> bool {
        let pause = self.retry.pause(self.began.elapsed()).filter(|_| fate.allows_another(is_repeatable));
        if let Some(pause) = pause {
            sleep(pause).await;
        }
        pause.is_some()
    }
}

impl Patience {
    /// The attempts, and how long each may take at least.
    fn attempts(self) -> (Attempts, Duration) {
        match self {
            Self::Once(length) => (Attempts::new(Retry::steady(Duration::ZERO, PAUSE)), length),
            Self::WhileNoLeader(length) => (Attempts::new(Retry::steady(length, PAUSE)), ANSWER_TIME_MIN),
        }
    }
}

/// What became of a request that may only wait for a leader.
fn leaderless(answer: &Result<Value, Error>) -> Fate {
    if answer.as_ref().is_err_and(Error::is_not_now) { Fate::NotTaken } else { Fate::Refused }
}

/// Makes such attempts until one must not be followed by another.
pub fn persist<T>(retry: Retry, is_repeatable: bool, mut attempt: impl FnMut() -> (Fate, T)) -> T {
    let mut attempts = Attempts::new(retry);
    loop {
        let (fate, answer) = attempt();
        if !wait(attempts.go_on(fate, is_repeatable)) {
            return answer;
        }
    }
}

/// Asks one server, and no other, for something that may be repeated.
pub fn tell(api: &str, path: &str, body: &Value, answer_time: Duration) -> Result<(), Error> {
    let body = body.to_string();
    let silent = || Error::unreachable(format!("the server at {api} does not answer"), "is it frozen or dead?");
    let response = Request::post(path, body.as_bytes()).send(&address("the server", api)?, answer_time);
    meaning(response.and_then(Response::whole).map_err(|_| silent())?).map(|_| ())
}

/// Does the server there listen?
pub fn listens(api: &str) -> bool {
    address("the server", api).is_ok_and(|address| wait(is_alive(&address)))
}

async fn is_alive(address: &str) -> bool {
    Request::get("/livez").ask(address, &[], PATIENCE[0]).await.is_ok()
}

/// `host:port` of a URL.
fn address(origin: &str, url: &str) -> Result<String, Error> {
    if url.starts_with("https://") {
        return Err(Error::usage(format!("{origin} is '{url}'"), "only http:// is spoken here so far"));
    }
    let place = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
    let is_host = |c: char| c.is_alphanumeric() || "-._:[]".contains(c);
    if place.is_empty() || !place.chars().all(is_host) {
        return Err(Error::usage(format!("{origin} is '{url}'"), "write it like http://127.0.0.1:7461"));
    }
    let has_port = place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    Ok(if has_port { place.to_string() } else { format!("{place}:{DEFAULT_PORT}") })
}

/// What a server answered, or why it refused.
fn meaning((answer, body): (Answer, Vec<u8>)) -> Result<Value, Error> {
    match (answer.status, serde_json::from_slice(&body).ok()) {
        (200..=299, Some(body)) => Ok(body),
        (204, None) => Ok(Value::Null),
        (200..=299, None) => Err(strange_answer()),
        _ => Err(refusal(&answer, &body)),
    }
}

fn refusal(answer: &Answer, body: &[u8]) -> Error {
    refusal_of(answer.status, &serde_json::from_slice(body).unwrap_or_default())
}

/// What a server refused with this status and body.
pub fn refusal_of(status: u16, body: &Value) -> Error {
    let text = |key: &str| body["error"][key].as_str().map(str::to_string);
    let message = text("message").unwrap_or_else(|| format!("the server answered with HTTP status {status}"));
    let hint = text("hint").unwrap_or_else(|| "check that --api leads to a primus server".to_string());
    Error::refused(text("code").unwrap_or_else(|| "http".to_string()), status, &message, &hint)
}

/// A server said something that this version does not understand.
pub fn strange_answer() -> Error {
    Error::failed("strange_answer", "the server's answer makes no sense", "is it a primus server of this version?")
}

fn unknown_outcome(error: &io::Error) -> Error {
    let message = format!("no answer came back ({error}), so whether it was done is unknown");
    Error::failed("unknown_outcome", message, "look before you try again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_as_people_write_them() {
        for (url, expected) in [
            ("http://127.0.0.1:7461", Some("127.0.0.1:7461")),
            ("http://127.0.0.1:9/", Some("127.0.0.1:9")),
            ("host", Some("host:7461")),
            ("[::1]", Some("[::1]:7461")),
            ("http://[::1]:80", Some("[::1]:80")),
            ("https://host", None),
            ("http://", None),
            ("", None),
            ("http://a/b", None),
            ("a\r\nx: y", None),
        ] {
            assert_eq!(address("--api", url).ok().as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn a_refusal_keeps_the_words_of_the_server() {
        let body = serde_json::json!({"error": {"code": "no_leader", "message": "nobody leads", "hint": "wait"}});
        assert!(refusal_of(503, &body).is_not_now());
        assert_eq!(refusal_of(503, &body).to_string(), "nobody leads; wait");
        let unknown = serde_json::json!({"error": {"code": "unknown_outcome", "message": "x", "hint": "y"}});
        assert!(!refusal_of(503, &unknown).is_not_now());
        assert!(!refusal_of(500, &Value::Null).is_not_now());
    }

    #[test]
    fn who_leads_is_one_sentence() {
        let leader = Leader {
            farm: "north".to_string(),
            leader: Some(3),
            term: 7,
            since: "2026-01-01T00:00:00.000Z".to_string(),
            reason: "link_lost".to_string(),
        };
        assert_eq!(leader.sentence(), "server 3 leads north in term 7 since 2026-01-01T00:00:00.000Z (link_lost)");
        let none = Leader { leader: None, ..leader };
        assert_eq!(none.sentence(), "no server leads north; the last term was 7");
    }
}
