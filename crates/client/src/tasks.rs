//! Talking to a farm about tasks.
//!
//! Everything that is asked here may be asked again: reads change nothing, a job that is submitted twice under one key
//! exists once, and what is cancelled twice is cancelled. So whoever asks goes from server to server until one answers,
//! and a leader that dies meanwhile is nothing but a pause. Only what was cancelled and then forgotten cannot be told from
//! what never was; who may have been heard the first time says so.

use std::time::Duration;

use serde_json::{Value, json};

use primus_core::retry::{Fate, Retry};
use primus_core::text::quoted;

use crate::error::Error;
use crate::farms::Farm;
use crate::http::{Answer, Field, Request, TransportError, escaped, wait};
use crate::{Attempts, Client, is_alive, meaning, refusal, strange_answer};

/// How long one server may take to answer, the first time and later: one that is frozen says nothing.
const ANSWER_TIMES: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(5), Duration::from_secs(10)];
/// How much longer an order may take than a question: a job can have millions of tasks.
const ORDER_TIME: Duration = Duration::from_secs(10);
/// How long a farm may have nobody who answers.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait before asking again.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a server may let somebody wait before it says that there is nothing new.
const POLL_TIME: Duration = Duration::from_secs(5);

/// Somebody who asks a farm.
#[derive(Debug, Clone)]
pub struct TaskClient {
    client: Client,
    /// Has a server ever answered? Until then a farm that cannot be reached is not there.
    is_met: bool,
}

/// One piece of what a task printed.
#[derive(Debug)]
pub struct Piece {
    /// The attempt that printed it; nothing if none has begun.
    pub attempt: Option<String>,
    /// Where it begins in what the attempt printed.
    pub offset: u64,
    /// What was printed.
    pub bytes: Vec<u8>,
    /// Will nothing more come?
    pub is_last: bool,
    /// How much the attempt printed, once that is known.
    pub total: Option<u64>,
    /// The worker that may have what is missing before this piece, and is not here.
    pub elsewhere: Option<String>,
}

/// What somebody wants to read of a task's output.
#[derive(Debug, Clone)]
pub struct Reading {
    /// The task that printed it.
    pub task: String,
    /// `stdout` or `stderr`.
    pub stream: &'static str,
    /// The attempt that was read so far.
    pub attempt: Option<String>,
    /// How much of that attempt was read so far.
    pub offset: u64,
}

impl TaskClient {
    /// Asks the farm of this client.
    #[must_use]
    pub const fn new(client: Client) -> Self {
        Self { client, is_met: false }
    }

    /// A farm of this host.
    pub fn of(farm: &Farm) -> Self {
        Self { client: Client::of(farm), is_met: false }
    }

    /// Do all its servers run on this host?
    pub fn is_local(&self) -> bool {
        let is_local = |address: &String| {
            let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
            host == "localhost" || host.trim_matches(['[', ']']).parse().is_ok_and(is_loopback)
        };
        self.client.addresses.iter().all(is_local)
    }

    /// Submits a job, once, however often that has to be said.
    pub fn submit(&mut self, body: &[u8], key: &str) -> Result<Value, Error> {
        wait(self.submit_async(body, key))
    }

    /// The same inside a runtime.
    pub async fn submit_async(&mut self, body: &[u8], key: &str) -> Result<Value, Error> {
        self.ask(&Request::post("/v1/jobs", body), &[("idempotency-key", key)], Duration::ZERO).await
    }

    /// Reads something.
    pub fn get(&mut self, path: &str) -> Result<Value, Error> {
        wait(self.get_async(path))
    }

    /// The same inside a runtime.
    pub async fn get_async(&mut self, path: &str) -> Result<Value, Error> {
        self.ask(&Request::get(path), &[], Duration::ZERO).await
    }

    /// Has something done that may be done twice.
    pub fn post(&mut self, path: &str, body: &Value) -> Result<Value, Error> {
        wait(self.post_async(path, body))
    }

    /// The same inside a runtime.
    pub async fn post_async(&mut self, path: &str, body: &Value) -> Result<Value, Error> {
        // A server that is frozen must not use up the time that a busy one may need.
        for place in 0..self.client.addresses.len() {
            if is_alive(&self.client.addresses[place]).await {
                self.client.addresses.rotate_left(place);
                break;
            }
        }
        self.ask(&Request::post(path, body.to_string().as_bytes()), &[], ORDER_TIME).await
    }

    /// A job or a task (its path), when it has ended or this much time has passed.
    pub fn wait(&mut self, path: &str, time: Duration) -> Result<Value, Error> {
        wait(self.wait_async(path, time))
    }

    /// The same inside a runtime.
    pub async fn wait_async(&mut self, path: &str, time: Duration) -> Result<Value, Error> {
        let time = time.min(POLL_TIME);
        self.ask(&Request::get(&format!("{path}/wait?timeout_ms={}", time.as_millis())), &[], time).await
    }

    /// The next piece of an output, when there is one or a while has passed.
    pub fn read(&mut self, reading: &Reading, time: Duration) -> Result<Piece, Error> {
        let time = time.min(POLL_TIME);
        let Reading { task, stream, attempt, offset } = reading;
        let attempt = attempt.as_ref().map(|attempt| format!("&attempt={attempt}")).unwrap_or_default();
        let wait_ms = time.as_millis();
        let query = format!("stream={stream}&offset={offset}{attempt}&wait_ms={wait_ms}");
        let path = format!("/v1/tasks/{task}/output?{query}");
        wait(self.persist(&Request::get(&path), &[], time, |(answer, body)| match answer.status {
            200 => Piece::read(&answer, body),
            _ => Err(refusal(&answer, &body)),
        }))
    }

    async fn ask(&mut self, request: &Request<'_>, fields: &[Field<'_>], extra: Duration) -> Result<Value, Error> {
        self.persist(request, fields, extra, meaning).await
    }

    /// Asks one server after the other until one answers. `extra`: how long it may think about it.
    async fn persist<T>(
        &mut self,
        request: &Request<'_>,
        fields: &[Field<'_>],
        extra: Duration,
        read: impl Fn((Answer, Vec<u8>)) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (mut attempts, mut tried) = (Attempts::new(Retry::steady(PATIENCE, PAUSE)), Tried::default());
        loop {
            let address = self.client.addresses.first().cloned().ok_or_else(|| self.client.unreachable())?;
            let sent = request.whole(&address, fields, tried.answer_time() + extra).await;
            let (fate, answer) = self.judge(sent.map(&read), &mut tried);
            if attempts.go_on(fate, true).await {
                self.client.rotate();
                continue;
            }
            let is_late = |failure: &Error| tried.is_heard && request.method == "POST" && is_late(failure);
            return answer.map_err(|failure| if is_late(&failure) { perhaps_done(&failure) } else { failure });
        }
    }

    /// What became of a request, and what to say of it if it is not asked again.
    fn judge<T>(
        &mut self,
        sent: Result<Result<T, Error>, TransportError>,
        tried: &mut Tried,
    ) -> (Fate, Result<T, Error>) {
        let fate = match &sent {
            Ok(answer) => answer.as_ref().err().map_or(Fate::Taken, fate),
            Err(TransportError::NoAnswer(_)) => Fate::Unknown,
            Err(TransportError::Unreachable) => Fate::NotTaken,
        };
        tried.silent += usize::from(matches!(sent, Err(TransportError::NoAnswer(_))));
        tried.unreachable += usize::from(matches!(sent, Err(TransportError::Unreachable)));
        tried.is_heard |= fate == Fate::Unknown;
        self.is_met |= !fate.allows_another(true);
        let is_nobody_there = !self.is_met && tried.silent == 0 && tried.unreachable >= self.client.addresses.len();
        let fate = if is_nobody_there { Fate::Refused } else { fate };
        (fate, sent.unwrap_or_else(|_| Err(self.client.unreachable())))
    }
}

/// What came of the attempts so far.
#[derive(Default)]
struct Tried {
    unreachable: usize,
    silent: usize,
    /// May one of them have been carried out?
    is_heard: bool,
}

impl Tried {
    fn answer_time(&self) -> Duration {
        ANSWER_TIMES[self.silent.min(ANSWER_TIMES.len() - 1)]
    }
}

/// What a refusal says of the request. A full queue will not be otherwise in a moment.
fn fate(refusal: &Error) -> Fate {
    match refusal.code() {
        "no_leader" | "busy" => Fate::NotTaken,
        "unknown_outcome" => Fate::Unknown,
        _ => Fate::Refused,
    }
}

/// May it be so because of what was asked before? What is gone may have been cancelled; and what was submitted waits for
/// room on disks that take nothing new by now.
fn is_late(error: &Error) -> bool {
    matches!(error.code(), "not_found" | "disk_full")
}

/// Something has changed, and we may be the reason.
fn perhaps_done(error: &Error) -> Error {
    let message = format!("no answer came back at first, and now {}: it may have been done", error.message());
    Error::failed("unknown_outcome", message, "look with primus jobs")
}

fn is_loopback(address: std::net::IpAddr) -> bool {
    address.is_loopback()
}

impl Piece {
    fn read(answer: &Answer, bytes: Vec<u8>) -> Result<Self, Error> {
        let number = |name: &str| answer.field(name).and_then(|text| text.parse().ok());
        let (Some(offset), total) = (number("x-primus-offset"), number("x-primus-total")) else {
            return Err(strange_answer());
        };
        let attempt = answer.field("x-primus-attempt").map(str::to_owned);
        let elsewhere = answer.field("x-primus-elsewhere").map(str::to_owned);
        let is_last = answer.field("x-primus-last") == Some("true");
        Ok(Self { attempt, offset, is_last, total, elsewhere, bytes })
    }
}

/// The path of a job or a task, as people name it.
pub fn path_of(id: &str) -> Result<String, Error> {
    let is_number = |text: &str| text.parse::<u64>().is_ok_and(|number| number > 0);
    let is_job = is_number(id);
    let is_task = id.split_once('.').is_some_and(|(job, index)| is_number(job) && is_number(index));
    match (is_job, is_task) {
        (true, _) => Ok(format!("/v1/jobs/{}", escaped(id))),
        (_, true) => Ok(format!("/v1/tasks/{}", escaped(id))),
        _ => {
            let hint = "a job is a number such as 12, its seventh task is 12.7";
            Err(Error::usage(format!("{} names neither a job nor a task", quoted(id)), hint))
        }
    }
}

/// The path of a task; a job alone means its first.
pub fn task_path(id: &str) -> Result<String, Error> {
    Ok(path_of(id)?.replacen("/v1/jobs/", "/v1/tasks/", 1))
}

/// What is said to servers that are to do something with a job or a task.
pub fn nothing() -> Value {
    json!({})
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn jobs_and_tasks_as_people_name_them() {
        for (id, expected) in [
            ("12", Some("/v1/jobs/12")),
            ("12.7", Some("/v1/tasks/12.7")),
            ("0", None),
            ("12.0", None),
            ("12.", None),
            ("a", None),
            ("", None),
            ("-1", None),
            ("1.2.3", None),
        ] {
            assert_eq!(path_of(id).ok().as_deref(), expected, "{id}");
        }
        assert_eq!(task_path("12").unwrap(), "/v1/tasks/12");
    }

    /// A server that answers each connection in turn with one of these, and says nothing where there is none.
    fn server(answers: Vec<Option<&'static str>>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address").to_string();
        thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().expect("somebody calls");
                _ = stream.read(&mut [0; 4096]);
                if let Some(answer) = answer {
                    _ = write!(stream, "HTTP/1.1 {answer}");
                }
            }
        });
        address
    }

    #[test]
    fn what_is_refused_after_an_unheard_order_may_have_been_done() {
        const ALIVE: Option<&str> = Some("200 OK\r\ncontent-length: 0\r\n\r\n");
        const GONE: Option<&str> = Some(
            "404 Not Found\r\n\r\n{\"error\":{\"code\":\"not_found\",\"message\":\"job 1 does not exist\",\"hint\":\"h\"}}",
        );
        const FULL: Option<&str> = Some(
            "503 Unavailable\r\n\r\n{\"error\":{\"code\":\"disk_full\",\"message\":\"the disk is full\",\"hint\":\"h\"}}",
        );
        for (answers, expected) in [
            (vec![ALIVE, None, GONE], "unknown_outcome"),
            (vec![ALIVE, GONE], "not_found"),
            (vec![ALIVE, None, FULL], "unknown_outcome"),
            (vec![ALIVE, FULL], "disk_full"),
        ] {
            let client = Client { addresses: vec![server(answers)] };
            let refused = TaskClient { client, is_met: false }.post("/v1/jobs/1/cancel", &nothing());
            assert_eq!(refused.expect_err("it is refused").code(), expected);
        }
    }

    #[test]
    fn only_servers_on_this_host_are_local() {
        for (addresses, expected) in [
            (&["127.0.0.1:1", "[::1]:2", "localhost:3"][..], true),
            (&["127.0.0.1:1", "10.0.0.1:2"][..], false),
            (&["host:7461"][..], false),
        ] {
            let addresses = addresses.iter().map(ToString::to_string).collect();
            let caller = TaskClient { client: Client { addresses }, is_met: false };
            assert_eq!(caller.is_local(), expected, "{caller:?}");
        }
    }
}
