//! What servers and workers say on stderr: one line for each thing that happens. While nothing happens they say nothing.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::SystemTime;

use clap::ValueEnum;
use primus_core::text::{escape, is_hidden};
use primus_node::events::{Event, History, Kind, text_of};
use primus_node::steps::{Step, Steps};
use primus_terminal::failure::Failure;
use primus_terminal::values::plain;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::args::LogFormat;

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
pub(super) struct Log {
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

impl Log {
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
            LogFormat::Text => format!("{time} {level} {}: {}", plain(&name), escape(&note.words)),
            LogFormat::Json => {
                let mut line = note.facts;
                line["time"] = time.into();
                line["level"] = level.into();
                line[kind] = name;
                visible(&line.to_string())
            }
        }
    }
}

/// The same JSON, with every character that a terminal would not show as an escape.
fn visible(json: &str) -> String {
    let written = |character: char| match is_hidden(character) {
        true => character.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
        false => character.to_string(),
    };
    if json.contains(is_hidden) { json.chars().map(written).collect() } else { json.to_owned() }
}

/// Writes down what happens to a server, for as long as it runs, and the steps of its elections if somebody wants them.
pub(super) async fn write_down(server: u64, (history, steps): (Arc<History>, Arc<Steps>), diary: Log) {
    let (mut newest, mut newest_step) = (history.newest(), steps.newest());
    let (mut last, mut last_step) = (0, 0);
    if diary.level == Level::Trace {
        steps.keep_heartbeats();
    }
    loop {
        let is_alive = tokio::select! {
            is_alive = grows(&mut newest, last) => is_alive,
            is_alive = grows(&mut newest_step, last_step), if diary.level >= Level::Debug => is_alive,
        };
        let events = history.after(last);
        last = events.last().map_or(last, |event| event.index);
        let mut notes: Vec<Note> = events.iter().map(|event| note(server, event)).collect();
        if diary.level >= Level::Debug {
            let taken = steps.all_after(last_step);
            last_step = taken.last().map_or(last_step, |step| step.index);
            notes.extend(taken.into_iter().map(|step| note_of_step(server, step)));
            notes.sort_by_key(|note| note.time);
        }
        notes.into_iter().for_each(|note| diary.add(note));
        if !is_alive {
            return;
        }
    }
}

async fn grows(newest: &mut watch::Receiver<u64>, last: u64) -> bool {
    newest.wait_for(|newest| *newest > last).await.is_ok()
}

/// What a server heard in an election and what it did then, in the words of stories; signs of life only for the patient.
fn note_of_step(server: u64, step: Step) -> Note {
    let (level, kind) = match step.is_heartbeat {
        true => (Level::Trace, "heartbeat"),
        false => (Level::Debug, "election_step"),
    };
    let facts = json!({ "kind": kind, "step": step.text });
    Note { time: step.time, level, who: ("server", server.into()), words: step.text, facts }
}

fn note(server: u64, event: &Event) -> Note {
    Note {
        time: event.time,
        level: level_of(&event.kind),
        who: ("server", server.into()),
        words: event.kind.to_string(),
        facts: json!(event.kind),
    }
}

const fn level_of(kind: &Kind) -> Level {
    match kind {
        Kind::LeaderChanged { .. } | Kind::LeaderLost { .. } | Kind::GroupLeaderChanged { .. } => Level::Info,
        Kind::Suspected { .. } | Kind::LinkRefused { .. } | Kind::ClockOff { .. } => Level::Warn,
        Kind::LateTurn { .. } | Kind::FoundingWaits { .. } | Kind::ListDiffers { .. } => Level::Warn,
        Kind::NeighbourSilent { .. } | Kind::LoanNotSent { .. } => Level::Warn,
        Kind::LoanUnknown { .. } | Kind::WorkerUnknown { .. } => Level::Warn,
        Kind::LoanDead(_) | Kind::Overdue(_) => Level::Warn,
        Kind::HookEnded { code: Some(0), .. } => Level::Debug,
        Kind::HookEnded { .. } => Level::Warn,
        // The rest is what loans are for.
        _ => Level::Info,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_a_neighbour_does_wrong_is_a_warning_and_the_rest_is_not() {
        let strange = Kind::WorkerUnknown { farm: "south".to_owned(), worker: "s1@south".to_owned() };
        assert_eq!((level_of(&strange), level_of(&Kind::Calm)), (Level::Warn, Level::Info));
    }

    #[test]
    fn nobody_else_writes_lines() {
        let reason = "x\n2026-11-16T00:00:00.000Z info 3: forged\u{1b}[31m\u{202e}\u{e0041}".to_owned();
        let kind = Kind::LinkRefused { reason: reason.clone(), left_out: 7 };
        let event = Event { index: 1, time: SystemTime::UNIX_EPOCH, kind };
        for format in [LogFormat::Text, LogFormat::Json] {
            let line = Log { level: Level::Info, format }.line(note(1, &event));
            assert!(!line.contains(is_hidden), "{line}");
        }
        let line = Log { level: Level::Info, format: LogFormat::Json }.line(note(1, &event));
        let json: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((json["reason"].as_str(), &json["left_out"]), (Some(reason.as_str()), &7.into()));
        let line = Log { level: Level::Info, format: LogFormat::Text }.line(note(1, &event));
        assert!(line.ends_with("\\u{e0041} (7 more before it)"), "{line}");
    }

    #[test]
    fn a_line_tells_when_how_bad_who_and_what() {
        let kind =
            Kind::LeaderChanged { leader: 2, previous: Some(3), term: 8, reason: "link_lost", took_ms: 4.14 };
        let event = Event { index: 1, time: SystemTime::UNIX_EPOCH + Duration::from_millis(1500), kind };
        let text =
            "1970-01-01T00:00:01.500Z info 1: server 2 leads in term 8 (link_lost), after server 3, in 4.1 ms";
        let line = |format| Log { level: Level::Info, format }.line(note(1, &event));
        assert_eq!(line(LogFormat::Text), text);
        let json: Value = serde_json::from_str(&line(LogFormat::Json)).unwrap();
        assert_eq!(
            (&json["level"], &json["kind"], &json["server"]),
            (&"info".into(), &"leader_changed".into(), &1.into())
        );
    }
}
