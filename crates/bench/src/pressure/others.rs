//! Those who notice: clients that ask every server for small things, and a guarded command.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use primus_client::farms;
use primus_client::http::{Request, TransportError};
use primus_terminal::Verdict;
use primus_terminal::failure::Failure;
use primus_terminal::json::rounded;
use rustix::process::{Signal, kill_process};
use serde::Serialize;
use serde_json::Value;

use crate::args::GuardArgs;
use crate::report::{milliseconds, quantile};
use primus_local::TemporaryFarm;
use primus_local::answers::place;
use primus_terminal::parent::end_with;

/// What each of them asks for, and what people call it.
const ASKED: [(&str, &str, &str); 4] = [
    ("put", "PUT", "/v1/kv/others"),
    ("get", "GET", "/v1/kv/others"),
    ("leader", "GET", "/v1/leader"),
    ("jobs", "GET", "/v1/jobs?limit=5"),
];
/// The value that is put.
const VALUE: &[u8] = b"x";
/// How long a client waits for its answer, and how long it rests after it.
const ANSWER_TIME: Duration = Duration::from_secs(10);
const REST: Duration = Duration::from_millis(50);
/// How long the guarded command may take to begin, and `primus lead` to end.
const BEGINNING_TIME: Duration = Duration::from_secs(30);
const END_TIME: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(5);
/// How many different failures are told.
const FAILURES_MAX: usize = 3;

/// What they noticed.
#[derive(Debug, Serialize)]
pub(super) struct Others {
    pub(super) count: usize,
    pub(super) failed: usize,
    pub(super) median_ms: f64,
    pub(super) slowest_ms: f64,
    /// Which one that was.
    pub(super) slowest: String,
    /// The first failures, in words.
    failures: Vec<String>,
}

/// One answer.
struct Answered {
    /// What was asked for, and of which server.
    what: &'static str,
    server: u64,
    ms: f64,
    failure: Option<String>,
}

/// Asks until then, and tells.
pub(super) fn ask<'scope, 'a: 'scope>(
    farm: &'a TemporaryFarm,
    until: Instant,
    scope: &'scope Scope<'scope, '_>,
) -> Result<Others, Failure> {
    let clients = farm.servers().iter().flat_map(|server| ASKED.iter().map(move |asked| (server, asked)));
    let clients: Vec<_> = clients
        .map(|(server, (what, method, path))| {
            let body = if *method == "PUT" { VALUE } else { b"" };
            let request = Request { method, path, body };
            scope.spawn(move || ask_one(&request, (what, server.id), place(&server.api), until))
        })
        .collect();
    let answers = clients.into_iter().map(|client| client.join().map_err(|_| silent()));
    let answers = answers.collect::<Result<Vec<_>, _>>()?;
    Others::of(&answers.into_iter().flatten().collect::<Vec<_>>())
}

/// Puts what is asked for later.
pub(super) fn prepare(farm: &TemporaryFarm) -> Result<(), Failure> {
    farm.write("others", "x")
}

fn ask_one(request: &Request<'_>, (what, server): (&'static str, u64), api: &str, until: Instant) -> Vec<Answered> {
    let mut answers = Vec::new();
    while Instant::now() < until {
        let started = Instant::now();
        let failure = exchange(request, api).err();
        answers.push(Answered { what, server, ms: milliseconds(started), failure });
        thread::sleep(REST);
    }
    answers
}

/// A whole exchange over a connection of its own; or why there was none.
fn exchange(request: &Request<'_>, api: &str) -> Result<(), String> {
    let response = request.send(api, ANSWER_TIME).map_err(|trouble| match trouble {
        TransportError::Unreachable => "no connection".to_owned(),
        TransportError::NoAnswer(error) => format!("no answer: {error}"),
    })?;
    let status = response.status;
    let body = response.bytes().map_err(|error| format!("half an answer: {error}"))?;
    if status == 200 {
        return Ok(());
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    Err(format!("{status} {}", body["error"]["message"].as_str().unwrap_or_default()))
}

impl Others {
    fn of(answers: &[Answered]) -> Result<Self, Failure> {
        let slowest = answers.iter().max_by(|one, other| one.ms.total_cmp(&other.ms)).ok_or_else(silent)?;
        let times: Vec<f64> = answers.iter().map(|answer| answer.ms).collect();
        let mut failures: Vec<String> = Vec::new();
        for Answered { what, server, failure, .. } in answers {
            let told = failure.as_ref().map(|failure| format!("{what} at server {server}: {failure}"));
            let is_news = |told: &String| failures.len() < FAILURES_MAX && !failures.contains(told);
            failures.extend(told.filter(is_news));
        }
        Ok(Self {
            count: answers.len(),
            failed: answers.iter().filter(|answer| answer.failure.is_some()).count(),
            median_ms: rounded(quantile(&times, 0.5)),
            slowest_ms: rounded(slowest.ms),
            slowest: format!("{} at server {}", slowest.what, slowest.server),
            failures,
        })
    }

    /// What the row has no room for.
    pub(super) fn text(&self) -> String {
        self.failures.iter().map(|failure| format!("failed       {failure}\n")).collect()
    }
}

/// A `primus lead` with the command that it guards; both end with this value.
#[derive(Debug)]
pub(super) struct Guarded {
    lead: Child,
    command: u32,
}

impl Guarded {
    /// Starts it and waits until its command runs.
    pub(super) fn start(farm: &str) -> Result<Self, Failure> {
        let failed =
            |error| Failure::failed("system", format!("primus lead cannot be started: {error}"), "make room");
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["bench", "guard", "--parent", &std::process::id().to_string(), "--farm", farm]);
        // A group of its own: what is typed at this terminal is for the bench.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut guarded = Self { lead: command.spawn().map_err(failed)?, command: 0 };
        let (said, hears) = mpsc::channel();
        if let Some(stdout) = guarded.lead.stdout.take() {
            thread::spawn(move || listen(BufReader::new(stdout), &said));
        }
        let late =
            |_| Failure::failed("too_slow", "no guarded command begins", "see whether the host is overloaded");
        guarded.command = hears.recv_timeout(BEGINNING_TIME).map_err(late)?;
        Ok(guarded)
    }

    /// Is it still the same command that runs?
    pub(super) fn runs(&self) -> bool {
        farms::is_alive(self.command)
    }
}

/// The command says its process first; what else is said must not wait for a reader.
fn listen(mut stdout: impl BufRead, said: &mpsc::Sender<u32>) {
    let mut line = String::new();
    if stdout.by_ref().take(100).read_line(&mut line).is_ok()
        && let Ok(process) = line.trim().parse()
    {
        _ = said.send(process);
    }
    _ = std::io::copy(&mut stdout, &mut std::io::sink());
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(pid) = farms::process(self.lead.id()) {
            _ = kill_process(pid, Signal::TERM);
        }
        let until = Instant::now() + END_TIME;
        while matches!(self.lead.try_wait(), Ok(None)) && Instant::now() < until {
            thread::sleep(LOOK);
        }
        _ = self.lead.kill();
        _ = self.lead.wait();
    }
}

/// `primus bench guard`: becomes a `primus lead` that ends when its parent does.
pub(crate) fn guard(args: &GuardArgs) -> Result<Verdict, Failure> {
    end_with(args.parent, Signal::TERM)?;
    let failed = |error| Failure::failed("system", format!("primus lead cannot be started: {error}"), "make room");
    let mut lead = Command::new(std::env::current_exe().map_err(failed)?);
    lead.args(["lead", "--farm", &args.farm, "--group", "pressure", "--grace", "200ms", "--"]);
    lead.args(["/bin/sh", "-c", "echo $$; exec sleep 1000000"]);
    Err(failed(lead.exec()))
}

fn silent() -> Failure {
    Failure::failed("silent", "the client asked nothing", "see whether the host is overloaded")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_answer_and_the_first_failures_are_named() {
        let answer = |what, ms, failure: Option<&str>| {
            let failure = failure.map(str::to_owned);
            Answered { what, server: 2, ms, failure }
        };
        let answers = [answer("get", 1.0, None), answer("put", 30.0, Some("503 full")), answer("jobs", 2.0, None)];
        let others = Others::of(&answers).unwrap();
        assert_eq!((others.count, others.failed, others.median_ms, others.slowest_ms), (3, 1, 2.0, 30.0));
        assert_eq!(
            (others.slowest.as_str(), others.failures),
            ("put at server 2", vec!["put at server 2: 503 full".to_owned()])
        );
        assert!(Others::of(&[]).is_err());
    }
}
