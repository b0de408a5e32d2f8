//! What a server says on stderr: one line for each thing that happens. While nothing happens it says nothing.

use std::io::{self, Write};
use std::sync::Arc;

use clap::ValueEnum;
use primus_node::events::{Event, History, Kind};
use serde_json::json;

use crate::api::text_of;
use crate::args::LogFormat;
use crate::output::failure::Failure;

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
    pub(super) fn from_environment() -> Result<Self, Failure> {
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

/// Writes down what happens, for as long as the server runs.
pub(super) async fn write_down(server: u64, history: Arc<History>, level: Level, format: LogFormat) {
    let mut newest = history.newest();
    let mut last = 0;
    while newest.wait_for(|newest| *newest > last).await.is_ok() {
        for event in history.after(last) {
            last = event.index;
            if level_of(&event.kind) <= level {
                // Whoever closed stderr does not want to know.
                _ = writeln!(io::stderr(), "{}", line(server, &event, format));
            }
        }
    }
}

const fn level_of(kind: &Kind) -> Level {
    match kind {
        Kind::LeaderChanged { .. } | Kind::LeaderLost { .. } => Level::Info,
        Kind::Suspected { .. } | Kind::LinkRefused { .. } => Level::Warn,
    }
}

fn line(server: u64, event: &Event, format: LogFormat) -> String {
    let (time, level) = (text_of(event.time), level_of(&event.kind).name());
    match format {
        LogFormat::Text => format!("{time} {level} {server}: {}", words(&event.kind)),
        LogFormat::Json => {
            let mut line = json!(event.kind);
            line["time"] = time.into();
            line["level"] = level.into();
            line["server"] = server.into();
            line.to_string()
        }
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
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn a_line_tells_when_how_bad_who_and_what() {
        let kind =
            Kind::LeaderChanged { leader: 2, previous: Some(3), term: 8, reason: "link_lost", took_ms: 4.14 };
        let event = Event { index: 1, time: SystemTime::UNIX_EPOCH + Duration::from_millis(1500), kind };
        let text = "1970-01-01T00:00:01.500Z info 1: leader 2 term 8 link_lost, 4.1 ms without one";
        assert_eq!(line(1, &event, LogFormat::Text), text);
        let json: serde_json::Value = serde_json::from_str(&line(1, &event, LogFormat::Json)).unwrap();
        assert_eq!(
            (&json["level"], &json["kind"], &json["server"]),
            (&"info".into(), &"leader_changed".into(), &1.into())
        );
    }
}
