//! What servers and workers say on stderr: one line for each thing that happens. While nothing happens they say nothing.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::SystemTime;

use clap::ValueEnum;
use primus_node::events::{Event, History, Kind};
use serde_json::{Value, json};

use crate::api::text_of;
use crate::args::LogFormat;
use crate::output::failure::Failure;
use crate::output::tasks::plain;

/// How much somebody wants to hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl Level {
    /// What `PRIMUS_LOG` says, if it is set.
    fn from_environment() -> Result<Self, Failure> {
        let text = std::env::var("PRIMUS_LOG").unwrap_or_default();
        if text.is_empty() {
            return Ok(Self::Info);
        }
        Self::from_str(&text, true).map_err(|_| {
            Failure::usage(format!("PRIMUS_LOG is '{text}'"), "choose off, error, warn, info, debug or trace")
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// How what happens is written to stderr.
#[derive(Debug, Clone, Copy)]
pub(super) struct Diary {
    level: Level,
    format: LogFormat,
}

/// One thing that happened to a node.
pub(super) struct Note {
    pub(super) time: SystemTime,
    pub(super) level: Level,
    /// What kind of node it is, and which one.
    pub(super) who: (&'static str, Value),
    /// For people.
    pub(super) words: String,
    /// For programs: an object.
    pub(super) facts: Value,
}

impl Diary {
    /// In this format, as much as the environment says.
    pub(super) fn new(format: LogFormat) -> Result<Self, Failure> {
        Ok(Self { level: Level::from_environment()?, format })
    }

    /// Writes it down, if somebody wants to hear it.
    pub(super) fn add(self, note: Note) {
        if note.level <= self.level {
            // Whoever closed stderr does not want to know.
            _ = writeln!(io::stderr(), "{}", self.line(note));
        }
    }

    fn line(self, note: Note) -> String {
        let (time, level) = (text_of(note.time), note.level.name());
        let (kind, name) = note.who;
        match self.format {
            LogFormat::Text => format!("{time} {level} {}: {}", plain(&name), note.words),
            LogFormat::Json => {
                let mut line = note.facts;
                line["time"] = time.into();
                line["level"] = level.into();
                line[kind] = name;
                line.to_string()
            }
        }
    }
}

/// Writes down what happens to a server, for as long as it runs.
pub(super) async fn write_down(server: u64, history: Arc<History>, diary: Diary) {
    let mut newest = history.newest();
    let mut last = 0;
    while newest.wait_for(|newest| *newest > last).await.is_ok() {
        for event in history.after(last) {
            last = event.index;
            diary.add(note(server, &event));
        }
    }
}

fn note(server: u64, event: &Event) -> Note {
    Note {
        time: event.time,
        level: level_of(&event.kind),
        who: ("server", server.into()),
        words: words(&event.kind),
        facts: json!(event.kind),
    }
}

const fn level_of(kind: &Kind) -> Level {
    match kind {
        Kind::LeaderChanged { .. } | Kind::LeaderLost { .. } => Level::Info,
        Kind::Suspected { .. } | Kind::LinkRefused { .. } => Level::Warn,
    }
}

/// In the words of stories.
fn words(kind: &Kind) -> String {
    match kind {
        Kind::LeaderChanged { leader, term, reason, took_ms, .. } => {
            format!("leader {leader} term {term} {reason}, {took_ms:.1} ms without one")
        }
        Kind::LeaderLost { term, reason, .. } => format!("no leader term {term} {reason}"),
        Kind::Suspected { peer, reason } => format!("suspect {peer} {reason}"),
        Kind::LinkRefused { reason } => format!("link refused: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_tells_when_how_bad_who_and_what() {
        let kind =
            Kind::LeaderChanged { leader: 2, previous: Some(3), term: 8, reason: "link_lost", took_ms: 4.14 };
        let event = Event { index: 1, time: SystemTime::UNIX_EPOCH + Duration::from_millis(1500), kind };
        let text = "1970-01-01T00:00:01.500Z info 1: leader 2 term 8 link_lost, 4.1 ms without one";
        let line = |format| Diary { level: Level::Info, format }.line(note(1, &event));
        assert_eq!(line(LogFormat::Text), text);
        let json: Value = serde_json::from_str(&line(LogFormat::Json)).unwrap();
        assert_eq!(
            (&json["level"], &json["kind"], &json["server"]),
            (&"info".into(), &"leader_changed".into(), &1.into())
        );
    }
}
