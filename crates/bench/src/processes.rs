//! What processes cost, and processes that only cost.

use std::hint::black_box;
use std::process::{Child, Command, Stdio};
use std::{fs, thread};

use primus_terminal::Verdict;
use primus_terminal::failure::Failure;
use rustix::process::Signal;

use primus_local::TemporaryFarm;

use crate::args::BurnArgs;
use primus_terminal::parent::end_with;

/// The processor time of all threads of a process so far, where the system tells (Linux).
pub(crate) fn cpu_ms(pid: u32) -> Option<f64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let nanoseconds = threads.flatten().filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    });
    Some(nanoseconds.sum::<f64>() / 1_000_000.0)
}

/// The processor time of all servers of a farm together.
pub(crate) fn cpu_ms_of_servers(farm: &TemporaryFarm) -> Option<f64> {
    farm.now().ok()?.servers.iter().map(|server| cpu_ms(server.pid?)).sum()
}

/// The memory that a process has now, in MB.
pub(crate) fn resident_mb(pid: u32) -> Option<f64> {
    Some(status_kib(pid, "VmRSS:")? * 1024.0 / 1_000_000.0)
}

/// The same in MiB; from now on the most that it has is counted anew.
pub(crate) fn count_anew(pid: u32) -> Option<f64> {
    // What the kernel's manual calls resetting the peak resident set size.
    fs::write(format!("/proc/{pid}/clear_refs"), "5").ok()?;
    Some(status_kib(pid, "VmRSS:")? / 1024.0)
}

/// The most memory that it has had since then, in MiB.
pub(crate) fn peak_mib(pid: u32) -> Option<f64> {
    Some(status_kib(pid, "VmHWM:")? / 1024.0)
}

fn status_kib(pid: u32, field: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// Processes that keep processors busy until this value goes, or this process ends.
#[derive(Debug)]
pub(crate) struct Burners(Vec<Child>);

impl Burners {
    /// One for each processor.
    pub(crate) fn for_all() -> Result<Self, Failure> {
        Self::start(thread::available_parallelism().map_or(1, usize::from))
    }

    pub(crate) fn start(count: usize) -> Result<Self, Failure> {
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
pub(crate) fn burn(args: &BurnArgs) -> Result<Verdict, Failure> {
    end_with(args.parent, Signal::KILL)?;
    let mut number: u64 = 0;
    loop {
        number = black_box(number.wrapping_add(1));
    }
}
