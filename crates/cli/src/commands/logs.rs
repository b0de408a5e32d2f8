//! `primus logs`: what a task printed, or prints at the moment.

use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::time::Duration;

use primus_client::tasks::{Piece, Reading, TaskClient, path_of};
use primus_core::ledger::loans::home_of;
use primus_terminal::amounts::number;
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict, json as lines, screen};
use serde_json::{Value, json};

use super::select::{self, All};
use crate::args::LogsArgs;

/// As long as a server lets one wait.
const LONG: Duration = Duration::from_secs(3600);
/// More lines than are kept of an output.
const LINES_MAX: u64 = 100_000_000;

/// Shows it, task by task.
pub(super) fn run(args: &LogsArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let tail = args.tail.as_deref().map(|text| number("--tail", text, 0, LINES_MAX)).transpose()?;
    let mut caller = args.which.place.caller()?;
    let stream = if args.stderr { "stderr" } else { "stdout" };
    let sink = if format == Format::Json { Sink::Json } else { Sink::Stdout };
    for id in select::ids(&mut caller, &args.which.ids, All::Refused)? {
        // It must be known, before anything is waited for.
        let known = caller.get(&path_of(&id)?)?;
        for index in 1..=known["tasks"].as_u64().unwrap_or(1) {
            let task = if known["task"].is_string() { id.clone() } else { format!("{id}.{index}") };
            let mut follower = Follower::new(caller.clone(), &task, stream, sink);
            if let Some(lines) = tail {
                follower.skip_to_tail(lines)?;
            }
            if args.follow { follower.follow()? } else { follower.catch_up()? }
        }
    }
    Ok(Verdict::Held)
}

/// Where output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sink {
    Stdout,
    Stderr,
    /// An object per piece, on stdout.
    Json,
}

impl Sink {
    /// Writes somebody's own bytes. Is anybody still reading?
    pub(super) fn write(self, bytes: &[u8]) -> Result<bool, Failure> {
        let written = match self {
            Self::Stdout | Self::Json => put(&mut std::io::stdout().lock(), bytes),
            Self::Stderr => put(&mut std::io::stderr().lock(), bytes),
        };
        match written {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(Failure::output(&error)),
        }
    }
}

fn put(stream: &mut impl Write, bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}

/// Reads one stream of one task.
pub(super) struct Follower {
    caller: TaskClient,
    reading: Reading,
    sink: Sink,
}

impl Follower {
    pub(super) fn new(caller: TaskClient, task: &str, stream: &'static str, sink: Sink) -> Self {
        let reading = Reading { task: task.to_owned(), stream, attempt: None, offset: 0 };
        Self { caller, reading, sink }
    }

    /// Goes to where the last lines begin of what there is now.
    fn skip_to_tail(&mut self, lines: u64) -> Result<(), Failure> {
        let mut seen = Tail::new(lines);
        let mut reading = self.reading.clone();
        loop {
            let Piece { attempt, offset, bytes, is_last, .. } = self.caller.read(&reading, Duration::ZERO)?;
            seen.take(offset, &bytes);
            let is_over = is_last || bytes.is_empty();
            reading.offset = offset + bytes.len() as u64;
            reading.attempt = attempt.or(reading.attempt);
            if is_over {
                break;
            }
        }
        self.reading = Reading { offset: seen.begin(reading.offset), ..reading };
        Ok(())
    }

    /// Until the task has ended.
    pub(super) fn follow(mut self) -> Result<(), Failure> {
        loop {
            let piece = self.caller.read(&self.reading, LONG)?;
            let (is_last, total) = (piece.is_last, piece.total);
            if !self.take(piece)? {
                return Ok(());
            }
            if is_last {
                self.tell_of_the_rest(total);
                return Ok(());
            }
        }
    }

    /// What there is now.
    pub(super) fn catch_up(mut self) -> Result<(), Failure> {
        loop {
            let piece = self.caller.read(&self.reading, Duration::ZERO)?;
            let (is_last, is_empty, total) = (piece.is_last, piece.bytes.is_empty(), piece.total);
            if !self.take(piece)? {
                return Ok(());
            }
            if is_last || is_empty {
                self.tell_of_the_rest(total.filter(|_| is_last));
                return Ok(());
            }
        }
    }

    /// Shows a piece. Is anybody still reading?
    fn take(&mut self, piece: Piece) -> Result<bool, Failure> {
        let Piece { attempt, offset, bytes, elsewhere, .. } = piece;
        if attempt.is_some() && self.reading.attempt.is_some() && attempt != self.reading.attempt {
            screen::complain(&format!("task {} has begun again", self.reading.task));
            self.reading.offset = 0;
        }
        if offset > self.reading.offset {
            let missing = offset - self.reading.offset;
            let place = whereabouts(elsewhere.as_deref());
            screen::complain(&format!("{missing} bytes of task {} are {place}", self.reading.task));
        }
        self.reading.attempt = attempt.or(self.reading.attempt.take());
        self.reading.offset = offset + bytes.len() as u64;
        if bytes.is_empty() {
            return Ok(true);
        }
        match self.sink {
            Sink::Json => screen::stream(&lines::line(&self.object(offset, &bytes))),
            sink => sink.write(&bytes),
        }
    }

    fn object(&self, offset: u64, bytes: &[u8]) -> Value {
        let Reading { task, stream, attempt, .. } = &self.reading;
        let text = String::from_utf8_lossy(bytes);
        json!({ "task": task, "attempt": attempt, "stream": stream, "offset": offset, "text": text })
    }

    fn tell_of_the_rest(&self, total: Option<u64>) {
        let Some(missing) = total.and_then(|total| total.checked_sub(self.reading.offset)).filter(|rest| *rest > 0)
        else {
            return;
        };
        screen::complain(&format!("{missing} further bytes of task {} are not kept", self.reading.task));
    }
}

/// Where the last lines begin.
struct Tail {
    lines: usize,
    /// Where the last lines begin that have been seen, the oldest first.
    begins: VecDeque<u64>,
    /// Does a line begin with the next byte?
    is_new: bool,
}

impl Tail {
    fn new(lines: u64) -> Self {
        Self { lines: usize::try_from(lines).unwrap_or(usize::MAX), begins: VecDeque::new(), is_new: true }
    }

    fn take(&mut self, offset: u64, bytes: &[u8]) {
        for (place, byte) in (offset..).zip(bytes) {
            if self.is_new {
                self.begins.push_back(place);
            }
            self.is_new = *byte == b'\n';
            if self.begins.len() > self.lines {
                self.begins.pop_front();
            }
        }
    }

    fn begin(&self, end: u64) -> u64 {
        self.begins.front().copied().unwrap_or(end)
    }
}

/// Where those bytes of an output are that cannot be shown.
fn whereabouts(worker: Option<&str>) -> String {
    match worker.map(|worker| (worker, home_of(worker))) {
        None => "not kept".to_owned(),
        Some((worker, None)) => format!("with worker {worker}, which is not here"),
        Some((_, Some((worker, home)))) => {
            format!("with worker {worker} of {home}, which is not here any more: look into its folder, under away")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_begin_where_they_begin() {
        let begin = |lines: u64, pieces: &[&str]| {
            let (mut tail, mut offset) = (Tail::new(lines), 0);
            for piece in pieces {
                tail.take(offset, piece.as_bytes());
                offset += piece.len() as u64;
            }
            tail.begin(offset)
        };
        assert_eq!(begin(1, &["a\nb\nc\n"]), 4);
        assert_eq!(begin(2, &["a\nb\nc"]), 2);
        assert_eq!(begin(2, &["a\nb", "b\n", "", "c"]), 2);
        assert_eq!((begin(9, &["a\nb\n"]), begin(0, &["a\nb\n"]), begin(3, &[])), (0, 4, 0));
    }

    #[test]
    fn it_is_said_where_the_rest_is() {
        assert_eq!(whereabouts(None), "not kept");
        assert_eq!(whereabouts(Some("w1")), "with worker w1, which is not here");
        let words = "with worker w1 of north, which is not here any more: look into its folder, under away";
        assert_eq!(whereabouts(Some("w1@north")), words);
    }
}
