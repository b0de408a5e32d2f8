//! What processes cost, and processes that only cost.

use std::fs;
use std::hint::black_box;
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::process::Signal;

use crate::args::BurnArgs;
use crate::commands::Verdict;
use crate::commands::server::end_with;
use crate::output::failure::Failure;

/// The processor time of all threads of a process so far, where the system tells (Linux).
pub(super) fn cpu_ms(pid: u32) -> Option<f64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let nanoseconds = threads.flatten().filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    });
    Some(nanoseconds.sum::<f64>() / 1_000_000.0)
}

/// The memory that a process has now, in MB.
pub(super) fn resident_mb(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024.0 / 1_000_000.0)
}

/// Processes that keep all processors busy until this value goes, or this process ends.
#[derive(Debug)]
pub(super) struct Burners(Vec<Child>);

impl Burners {
    pub(super) fn start() -> Result<Self, Failure> {
        let count = thread::available_parallelism().map_or(1, usize::from);
        let mut burners = Self(Vec::new());
        for _ in 0..count {
            let burner = burner().map_err(|error| {
                Failure::failed(
                    "system",
                    format!("no process can be started: {error}"),
                    "make room, then try again",
                )
            })?;
            burners.0.push(burner);
        }
        Ok(burners)
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        for burner in &mut self.0 {
            _ = burner.kill();
            _ = burner.wait();
        }
    }
}

fn burner() -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "burn", "--parent", &std::process::id().to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

/// Keeps one processor busy until its parent ends.
pub(in crate::commands) fn burn(args: &BurnArgs) -> Result<Verdict, Failure> {
    end_with(args.parent, Signal::KILL)?;
    let mut number: u64 = 0;
    loop {
        number = black_box(number.wrapping_add(1));
    }
}
