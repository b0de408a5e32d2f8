//! The guarded command of the demo: two hosts would run it, one does, its supervisor is frozen, and the other one begins only
//! after the first command is dead. Both write down every millisecond that they are alive.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use primus_client::farms;
use primus_terminal::failure::Failure;
use rustix::process::{Signal, kill_process};

use super::real::RealTour;
use super::simulated::Shown;

const NAMES: [&str; 2] = ["a", "b"];
const WAITING_TIME: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(5);
/// How long each is watched while it runs.
const WATCHED: Duration = Duration::from_millis(300);
/// How wide time is drawn.
const WIDTH: usize = 50;

pub(super) fn command() -> String {
    "primus lead --group demo -- ./only-once     (on two hosts; then kill -STOP the one that runs it)".to_owned()
}

/// Freezes whoever runs it, and looks at what both wrote down.
pub(super) fn freeze_supervisor(play: &mut RealTour) -> Result<Shown, Failure> {
    let guards = Guards::start(play)?;
    let first = guards.wait_for_term(0)?;
    thread::sleep(WATCHED);
    let frozen = guards.spans()[&first].candidate;
    guards.signal(frozen, Signal::STOP);
    let second = guards.wait_for_term(first)?;
    thread::sleep(WATCHED);
    // What wakes up late must find its command dead.
    guards.signal(frozen, Signal::CONT);
    thread::sleep(WATCHED);
    Ok(shown(&guards.spans(), first, second))
}

fn shown(spans: &BTreeMap<u64, Span>, first: u64, second: u64) -> Shown {
    let (old, new) = (spans[&first], spans[&second]);
    let begin_us = old.first_us;
    let width_us = (new.last_us.max(old.last_us) - begin_us).max(1);
    let place = |us: u64| usize::try_from((us - begin_us) * WIDTH as u64 / width_us).unwrap_or(WIDTH).min(WIDTH);
    let line = |span: Span| {
        let (from, to) = (place(span.first_us), place(span.last_us).max(place(span.first_us) + 1));
        let bar = "█".repeat(to - from);
        format!(
            "{} {}{bar}{}  {} ms",
            NAMES[span.candidate],
            "·".repeat(from),
            "·".repeat(WIDTH.saturating_sub(to)),
            (span.last_us - span.first_us) / 1000
        )
    };
    let is_apart = old.last_us < new.first_us && spans.len() == 2;
    let gap_ms = new.first_us.saturating_sub(old.last_us) as f64 / 1000.0;
    let (old_name, new_name) = (NAMES[old.candidate], NAMES[new.candidate]);
    Shown {
        lines: vec![line(old), line(new)],
        claim: format!(
            "{new_name} began {gap_ms:.0} ms after {old_name}'s command was dead, under term {second} after {first}; never two at once"
        ),
        held: is_apart && second > first,
    }
}

/// Two candidates, until this goes.
struct Guards {
    children: Vec<Child>,
    folder: PathBuf,
}

/// When the command of a term was first and last alive, and whose it was.
#[derive(Debug, Clone, Copy)]
struct Span {
    first_us: u64,
    last_us: u64,
    candidate: usize,
}

impl Guards {
    fn start(play: &RealTour) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::failed("system", format!("no process can be started: {error}"), "make room, then try again")
        };
        let folder = std::env::temp_dir().join(format!("primus-guard-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(failed)?;
        let apis: Vec<String> = play.farm()?.servers().iter().map(|server| server.api.clone()).collect();
        let program = std::env::current_exe().map_err(failed)?;
        let mut guards = Self { children: Vec::new(), folder };
        for (number, name) in NAMES.iter().enumerate() {
            let mut command = Command::new(&program);
            command.args([
                "lead",
                "--group",
                "demo",
                "--rank",
                "name",
                "--name",
                name,
                "--api",
                &apis.join(","),
                "--",
            ]);
            command.arg(&program).args(["bench", "beat", "--server", &number.to_string(), "--file"]);
            command.arg(guards.file()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            guards.children.push(command.spawn().map_err(failed)?);
        }
        Ok(guards)
    }

    fn file(&self) -> PathBuf {
        self.folder.join("alive")
    }

    fn signal(&self, candidate: usize, signal: Signal) {
        if let Some(pid) = farms::process(self.children[candidate].id()) {
            _ = kill_process(pid, signal);
        }
    }

    fn spans(&self) -> BTreeMap<u64, Span> {
        let mut spans: BTreeMap<u64, Span> = BTreeMap::new();
        for line in fs::read_to_string(self.file()).unwrap_or_default().lines() {
            let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            let &[us, term, candidate, _] = numbers.as_slice() else { continue };
            let candidate = usize::try_from(candidate).unwrap_or(0).min(NAMES.len() - 1);
            let span = spans.entry(term).or_insert(Span { first_us: us, last_us: us, candidate });
            span.last_us = span.last_us.max(us);
        }
        spans
    }

    /// The next term under which the command runs.
    fn wait_for_term(&self, after: u64) -> Result<u64, Failure> {
        let until = Instant::now() + WAITING_TIME;
        while Instant::now() < until {
            if let Some((term, _)) = self.spans().range(after + 1..).next() {
                return Ok(*term);
            }
            thread::sleep(LOOK);
        }
        Err(Failure::failed("too_slow", "the guarded command runs nowhere", "see whether the host is overloaded"))
    }
}

impl Drop for Guards {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Its companion ends the command with it.
            _ = child.kill();
            _ = child.wait();
        }
        _ = fs::remove_dir_all(&self.folder);
    }
}
