//! What servers tell of their leaders and of their control loops while something is done to them.

use std::time::Duration;

use primus_terminal::failure::Failure;
use primus_terminal::json::rounded;
use serde::Serialize;
use serde_json::Value;

use primus_local::TemporaryFarm;
use primus_local::answers::{LeaderTerm, history, metric};
use primus_local::chaos;

use crate::report::silent;

/// How long servers may take to tell, once they are left alone.
const TELLING_TIME: Duration = Duration::from_secs(30);

/// A turn that takes longer is late, and servers tell it.
const LATE_MS: f64 = 50.0;

/// What was the case before.
#[derive(Debug)]
pub(crate) struct Watch {
    first: LeaderTerm,
    /// The newest event of each server.
    newest: Vec<u64>,
    longest_turn_ms: f64,
}

/// What happened since then.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Watched {
    pub(crate) leader_changes: u64,
    /// Why, as the server says that has seen most of them.
    reasons: Vec<String>,
    /// No turn of a control loop took longer. If none was late, and one before it all began took longer than any since, it is
    /// only known that all were in time.
    pub(crate) longest_turn_ms: f64,
    pub(crate) late_turns: Vec<LateTurn>,
}

/// A turn of a control loop that took too long, as its server says.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LateTurn {
    server: u64,
    took_ms: f64,
    worked_ms: f64,
    cause: String,
    /// How many other late turns it stands for.
    left_out: u64,
}

impl Watch {
    pub(crate) fn begin(farm: &TemporaryFarm) -> Result<Self, Failure> {
        let first = farm.settled()?;
        let newest = histories(farm)?.into_iter().map(|events| events.iter().map(index).max().unwrap_or(0));
        Ok(Self { first, newest: newest.collect(), longest_turn_ms: longest_turn_ms(farm)? })
    }

    /// What has happened by now.
    pub(crate) fn end(&self, farm: &TemporaryFarm) -> Result<Watched, Failure> {
        let last = farm.settled()?;
        let histories = histories(farm)?;
        let news = self.newest.iter().zip(&histories).zip(farm.servers());
        let news = news.flat_map(|((newest, events), server)| {
            events.iter().filter(|event| index(event) > *newest).map(|event| (server.id, event))
        });
        let news: Vec<(u64, &Value)> = news.collect();
        let reasons = |id: u64| {
            let changes = news.iter().filter(|(of, event)| *of == id && is(event, "leader_changed"));
            changes.map(|(_, event)| event["reason"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        let reasons =
            farm.servers().iter().map(|server| reasons(server.id)).max_by_key(Vec::len).unwrap_or_default();
        let late = news.iter().filter(|(_, event)| is(event, "late_turn"));
        let late_turns: Vec<LateTurn> = late.map(|(server, event)| LateTurn::of(*server, event)).collect();
        let longest = longest_turn_ms(farm)?;
        let is_old = longest <= self.longest_turn_ms && late_turns.is_empty();
        Ok(Watched {
            leader_changes: (reasons.len() as u64).max(u64::from(last != self.first)),
            reasons,
            longest_turn_ms: if is_old { longest.min(LATE_MS) } else { longest },
            late_turns,
        })
    }
}

impl Watched {
    /// A line for each other leader and each late turn.
    pub(crate) fn text(&self) -> String {
        let changes = self.reasons.iter().map(|reason| format!("new leader   because of {reason}\n"));
        changes.chain(self.late_turns.iter().map(LateTurn::text)).collect()
    }
}

impl LateTurn {
    fn of(server: u64, event: &Value) -> Self {
        let number = |name: &str| event[name].as_f64().unwrap_or_default();
        Self {
            server,
            took_ms: number("took_ms"),
            worked_ms: number("worked_ms"),
            cause: event["cause"].as_str().unwrap_or_default().to_owned(),
            left_out: event["left_out"].as_u64().unwrap_or_default(),
        }
    }

    fn text(&self) -> String {
        let Self { server, took_ms, worked_ms, cause, left_out } = self;
        let others = if *left_out == 0 { String::new() } else { format!(", and {left_out} others before it") };
        format!("late turn    server {server}: {took_ms:.0} ms, {worked_ms:.0} of them at work: {cause}{others}\n")
    }
}

fn is(event: &Value, kind: &str) -> bool {
    event["kind"] == kind
}

fn index(event: &Value) -> u64 {
    event["index"].as_u64().unwrap_or(0)
}

fn histories(farm: &TemporaryFarm) -> Result<Vec<Vec<Value>>, Failure> {
    chaos::wait(TELLING_TIME, "all servers to tell what happened", || {
        Ok(farm.servers().iter().map(|server| history(&server.api)).collect())
    })
}

/// The longest turn of any control loop of a farm.
pub(crate) fn longest_turn_ms(farm: &TemporaryFarm) -> Result<f64, Failure> {
    let turns = farm.servers().iter().map(|server| metric(&server.api, "primus_loop_turn_longest_seconds"));
    let turns = turns.collect::<Option<Vec<f64>>>().ok_or_else(|| silent("a server"))?;
    Ok(rounded(turns.into_iter().fold(0.0, f64::max) * 1000.0))
}
