//! Many connections that are kept: those of followers, of bodies that arrive as fast as they can, and of bodies that arrive byte by
//! byte. One that is closed comes back when it is its turn again.
//!
//! One thread keeps all that a server has, as if they came from elsewhere: many threads would take the processors from the servers.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread::{self, Scope};
use std::time::Duration;

use bytes::{Buf, Bytes};
use primus_client::http::LINES;
use primus_terminal::failure::Failure;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::loads::{Scene, authorization, head, is_silence, open};

const JSON: &str = "application/json";
/// How many files a bench needs besides.
const FILES_MORE: u64 = 500;
/// How long the bodies are that arrive slowly: short ones, and long ones.
const SHORT_LEN: usize = 60_000;
const LONG_LEN: usize = 200_000;
/// A little less than a line of many jobs may have.
const LINE_LEN: usize = (4 << 20) - 1024;
/// A little less than a value may have, how many of them are in a body, and how many keys there are.
const VALUE_LEN: usize = 250 << 10;
const VALUES: usize = 16;
const BULK_KEYS: usize = 8;
/// How long a member waits until its first words have left.
const WRITE_TIME: Duration = Duration::from_secs(1);

/// How the members of a crowd behave.
pub(super) struct Manner {
    /// How the request of this member begins, and what it sends then.
    begin: fn(usize, &str) -> String,
    bodies: Vec<Bytes>,
    /// How much of it is sent at once, and how long all rest after each has had its turn.
    at_once: usize,
    rest: Duration,
    /// How long the next one waits after one has come.
    pace: Duration,
}

impl Manner {
    /// They follow events. Those that are sent away come back after three seconds, as browsers do, and not all at once: otherwise
    /// connecting would be the load, and not following.
    pub(super) fn following() -> Self {
        let begin = |_: usize, api: &str| {
            let secret = authorization(api);
            format!("GET /v1/events HTTP/1.1\r\nhost: {api}\r\n{secret}\r\n")
        };
        let (rest, pace) = (Duration::from_secs(3), Duration::from_millis(1));
        Self { begin, bodies: vec![Bytes::new()], at_once: 0, rest, pace }
    }

    /// Their bodies arrive byte by byte.
    pub(super) fn slow() -> Self {
        let begin = |member: usize, api: &str| match member % 4 {
            0 => head("PUT", "/v1/kv/slow", api, JSON, SHORT_LEN),
            1 => head("POST", "/v1/jobs", api, JSON, LONG_LEN),
            2 => head("POST", "/v1/jobs", api, LINES, LONG_LEN),
            _ => head("POST", "/v1/sessions/slow", api, JSON, SHORT_LEN),
        };
        let (rest, pace) = (Duration::from_millis(500), Duration::ZERO);
        Self { begin, bodies: vec![vec![b' '; LONG_LEN].into()], at_once: 1, rest, pace }
    }

    /// Every other one sends a line of jobs that never ends, the others many great values.
    pub(super) fn bulk() -> Self {
        let begin = |member: usize, api: &str| match member % 2 {
            0 => head("POST", "/v1/jobs", api, LINES, LINE_LEN + 1),
            _ => head("POST", "/v1/kv", api, LINES, values_len()),
        };
        let bodies = vec![vec![b' '; LINE_LEN].into(), values().into()];
        let (rest, pace) = (Duration::from_millis(1), Duration::ZERO);
        Self { begin, bodies, at_once: 256 << 10, rest, pace }
    }
}

/// Lines with great values, of a few keys.
pub(super) fn values() -> Vec<u8> {
    let value = "v".repeat(VALUE_LEN);
    let line = |number: usize| format!("{{\"key\":\"bulk/{}\",\"value\":\"{value}\"}}\n", number % BULK_KEYS);
    (0..VALUES).flat_map(|number| line(number).into_bytes()).collect()
}

const fn values_len() -> usize {
    VALUES * (VALUE_LEN + "{'key':'bulk/0','value':''}\n".len())
}

/// A crowd for each server.
pub(super) fn lay<'scope, 'a: 'scope>(
    scene: &'a Scene<'a>,
    scope: &'scope Scope<'scope, '_>,
    manner: fn() -> Manner,
) {
    let servers = scene.apis.len();
    for server in 0..servers {
        let members = scene.clients / servers + usize::from(server < scene.clients % servers);
        scope.spawn(move || keep(scene, scene.api(server), members, &manner()));
    }
}

fn keep(scene: &Scene<'_>, api: &str, members: usize, manner: &Manner) {
    let mut crowd: Vec<Option<Member>> = (0..members).map(|_| None).collect();
    while scene.goes_on() {
        for (number, place) in crowd.iter_mut().enumerate() {
            if !scene.goes_on() {
                return;
            }
            if place.as_mut().is_some_and(|member| member.stays(manner.at_once)) {
                continue;
            }
            *place = None;
            match Member::enter(number, api, manner) {
                Ok(member) => {
                    scene.count();
                    *place = Some(member);
                }
                Err(error) => scene.went_wrong(&error.to_string()),
            }
            thread::sleep(manner.pace);
        }
        thread::sleep(manner.rest.min(scene.rest()));
    }
}

/// One of a crowd.
struct Member {
    stream: TcpStream,
    /// What it has not sent yet.
    left: Bytes,
}

impl Member {
    fn enter(number: usize, api: &str, manner: &Manner) -> io::Result<Self> {
        let mut stream = open(api)?;
        stream.set_write_timeout(Some(WRITE_TIME))?;
        stream.write_all((manner.begin)(number, api).as_bytes())?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, left: manner.bodies[number % manner.bodies.len()].clone() })
    }

    /// Hears what there is and goes on. False if the connection is over.
    fn stays(&mut self, at_once: usize) -> bool {
        let mut buffer = [0; 16 << 10];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) if is_silence(&error) => return self.goes_on(at_once),
                Err(_) => return false,
            }
        }
    }

    fn goes_on(&mut self, at_once: usize) -> bool {
        let len = self.left.len().min(at_once);
        match self.stream.write(&self.left[..len]) {
            Ok(written) => self.left.advance(written),
            Err(error) => return is_silence(&error),
        }
        true
    }
}

/// Lets this process have as many connections.
pub(super) fn allow_files(connections: usize) -> Result<(), Failure> {
    let needed = connections as u64 + FILES_MORE;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    if raised.is_ok() && limit.maximum.is_none_or(|maximum| maximum >= needed) {
        return Ok(());
    }
    let message = format!("this needs {needed} open files, and a process here may have {:?}", limit.maximum);
    Err(Failure::failed("system", message, "raise the limit (ulimit -Hn), or choose fewer --clients"))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn great_values_come_in_whole_lines_of_the_length_that_is_promised() {
        let values = values();
        assert_eq!(values.len(), values_len());
        let lines = values.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let lines: Vec<Value> = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
        assert_eq!((lines.len(), lines[VALUES - 1]["value"].as_str().map(str::len)), (VALUES, Some(VALUE_LEN)));
    }
}
