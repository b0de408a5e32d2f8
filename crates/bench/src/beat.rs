//! `primus bench beat`: a command that writes down that it is alive, every millisecond, and ends in good order or does not.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use primus_node::clock::now_us;
use primus_terminal::Verdict;
use primus_terminal::failure::Failure;
use signal_hook::consts::SIGTERM;

use crate::args::{BeatArgs, Manner};

const EVERY: Duration = Duration::from_millis(1);

/// Beats until it is told to end.
pub(crate) fn beat(args: &BeatArgs) -> Result<Verdict, Failure> {
    let failed = |error: std::io::Error| {
        Failure::failed("beat", format!("it cannot be written down: {error}"), "look at --file")
    };
    if args.is_apart {
        // It fails only for one that leads a session already.
        _ = rustix::process::setsid();
    }
    let is_ended = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, Arc::clone(&is_ended)).map_err(failed)?;
    if !args.is_child && args.manner != Manner::Plain && args.manner != Manner::Stubborn {
        start_child(args).map_err(failed)?;
    }
    let mut file = OpenOptions::new().append(true).create(true).open(&args.file).map_err(failed)?;
    let term: u64 = std::env::var("PRIMUS_TERM").ok().and_then(|term| term.parse().ok()).unwrap_or(0);
    while !is_ended.load(Ordering::Relaxed) || args.manner == Manner::Stubborn || args.is_child {
        note(&mut file, term, args.server).map_err(failed)?;
        thread::sleep(EVERY);
    }
    Ok(Verdict::Held)
}

/// One write: lines of several processes do not mix.
fn note(file: &mut File, term: u64, server: u64) -> std::io::Result<()> {
    file.write_all(format!("{} {term} {server} {}\n", now_us(), std::process::id()).as_bytes())
}

/// Another one like this, which nobody tells to end; it may leave the session, too.
fn start_child(args: &BeatArgs) -> std::io::Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "beat", "--child", "--server", &args.server.to_string(), "--file"]).arg(&args.file);
    if args.manner == Manner::Setsid {
        command.arg("--apart");
    }
    command.stdin(Stdio::null()).spawn().map(|_| ())
}

impl Manner {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Stubborn => "stubborn",
            Self::Forks => "forks",
            Self::Setsid => "setsid",
        }
    }
}
