//! How much of this host is used: measured now and then, off the loop's thread, smoothed. What runs here is not measured but
//! counted, and added elsewhere ([`primus_core::load::Weights::load`]).
//!
//! The first reading of processors is their average since the host, or the process, started, so it is thrown away. All
//! servers on one host read the same processors; tests and demonstrations set loads through a file or by hand. What a file says
//! is not smoothed: it means what it says.

mod cgroup;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use primus_core::load::{Score, Usage};
use sysinfo::{MemoryRefreshKind, Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use cgroup::Cgroup;

/// Processors must be watched for this long at least before their use means anything.
const WATCHING: Duration = Duration::from_millis(500);
const EVERY: Duration = Duration::from_secs(1);

/// Where loads come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The whole host.
    System,
    /// The control group that this process is in: a container, a service.
    Cgroup,
    /// This process alone.
    Process,
    /// A file that holds a score from 0 to 100, or what is used of processors and memory: lines like `cpu = 40`.
    File(PathBuf),
}

/// Why a source cannot be measured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unmeasurable(String);

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(path.into())),
            None if text == "system" => Ok(Self::System),
            None if text == "cgroup" => Ok(Self::Cgroup),
            None if text == "process" => Ok(Self::Process),
            _ => Err(format!("'{text}' is not a source of loads; choose system, cgroup, process or file:PATH")),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("system"),
            Self::Cgroup => f.write_str("cgroup"),
            Self::Process => f.write_str("process"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

/// What measures a host.
#[derive(Debug)]
pub struct Meter(Gauge);

#[derive(Debug)]
enum Gauge {
    System(System),
    Cgroup(Cgroup),
    Process(System, Pid),
    File(PathBuf),
}

impl Meter {
    /// Takes the first reading, which tells nothing yet.
    ///
    /// # Errors
    /// If there is nothing of this kind to measure here.
    pub fn open(source: &Source) -> Result<Self, Unmeasurable> {
        let gauge = match source {
            Source::System => Gauge::System(System::new()),
            Source::Cgroup => Gauge::Cgroup(Cgroup::of_this_process()?),
            Source::Process => {
                let pid = sysinfo::get_current_pid().map_err(|reason| Unmeasurable(reason.to_owned()))?;
                Gauge::Process(System::new(), pid)
            }
            Source::File(path) => Gauge::File(path.clone()),
        };
        let mut meter = Self(gauge);
        _ = meter.read();
        Ok(meter)
    }

    /// Measures for as long as somebody listens, on a thread of its own.
    ///
    /// # Panics
    /// If the system gives no thread.
    pub fn watch(mut self, mut tell: impl FnMut(Usage) -> bool + Send + 'static) {
        let watching = move || {
            let mut usage = Usage::Unknown;
            thread::sleep(self.first_pause());
            loop {
                if let Some(now) = self.read() {
                    usage = if self.is_file() { now } else { smoothed(usage, now) };
                    if !tell(usage) {
                        return;
                    }
                }
                thread::sleep(EVERY);
            }
        };
        thread::Builder::new().name("load".to_owned()).spawn(watching).expect("the system gives a thread");
    }

    const fn first_pause(&self) -> Duration {
        if self.is_file() { Duration::ZERO } else { WATCHING }
    }

    const fn is_file(&self) -> bool {
        matches!(self.0, Gauge::File(_))
    }

    /// Nothing if it cannot be read: then what was read last stays.
    fn read(&mut self) -> Option<Usage> {
        let (cpu, memory) = match &mut self.0 {
            Gauge::File(path) => return usage_of(&std::fs::read_to_string(path).ok()?),
            Gauge::System(system) => read_system(system),
            Gauge::Process(system, pid) => read_process(system, *pid)?,
            Gauge::Cgroup(cgroup) => cgroup.read()?,
        };
        Some(Usage::Parts { cpu: Score::from_percent(cpu), memory: Score::from_percent(memory) })
    }
}

/// Half of what was, half of what is: a burst of a moment moves no leader.
const fn smoothed(before: Usage, now: Usage) -> Usage {
    match (before, now) {
        (Usage::Parts { cpu: cpu_before, memory: memory_before }, Usage::Parts { cpu, memory }) => {
            Usage::Parts { cpu: mixed(cpu_before, cpu), memory: mixed(memory_before, memory) }
        }
        _ => now,
    }
}

/// The middle, rounded towards what is now, or it would never be reached.
const fn mixed(before: Score, now: Score) -> Score {
    let (before, now) = (before.hundredths(), now.hundredths());
    let middle = before.midpoint(now);
    Score::from_hundredths(if middle < now { middle + (before + now) % 2 } else { middle })
}

/// What a file says: one number is a score, lines like `cpu = 40` and `memory = 40` are what is used; what is not named is 0.
fn usage_of(text: &str) -> Option<Usage> {
    if let Ok(score) = text.trim().parse() {
        return Some(Usage::Chosen(Score::from_percent(score)));
    }
    let (mut cpu, mut memory) = (None, None);
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (name, percent) = line.split_once('=')?;
        let part = match name.trim() {
            "cpu" => &mut cpu,
            "memory" => &mut memory,
            _ => return None,
        };
        *part = Some(Score::from_percent(percent.trim().parse().ok()?));
    }
    (cpu.is_some() || memory.is_some())
        .then_some(Usage::Parts { cpu: cpu.unwrap_or_default(), memory: memory.unwrap_or_default() })
}

fn read_system(system: &mut System) -> (f64, f64) {
    system.refresh_cpu_usage();
    system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
    let available = system.available_memory() as f64 / system.total_memory().max(1) as f64;
    (f64::from(system.global_cpu_usage()), 100.0 * (1.0 - available))
}

fn read_process(system: &mut System, pid: Pid) -> Option<(f64, f64)> {
    let what = ProcessRefreshKind::nothing().with_cpu().with_memory().without_tasks();
    system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), false, what);
    let process = system.process(pid)?;
    let memory = process.memory() as f64 / system.total_memory().max(1) as f64;
    // A process that fills two of four processors is half busy.
    Some((f64::from(process.cpu_usage()) / processors(), 100.0 * memory))
}

/// How many processors this process may use; quotas and affinities count.
fn processors() -> f64 {
    thread::available_parallelism().map_or(1.0, |count| count.get() as f64)
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::Instant;

    use super::*;

    fn meter(source: &Source) -> Meter {
        Meter::open(source).expect("this can be measured everywhere")
    }

    fn parts(cpu: f64, memory: f64) -> Option<Usage> {
        Some(Usage::Parts { cpu: Score::from_percent(cpu), memory: Score::from_percent(memory) })
    }

    #[test]
    fn sources_are_named() {
        for text in ["system", "cgroup", "process", "file:/tmp/load"] {
            assert_eq!(text.parse::<Source>().unwrap().to_string(), text);
        }
        for wrong in ["", "file:", "cpu", "file", "cgroup:x"] {
            assert!(wrong.parse::<Source>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_gives_a_score_or_its_parts_and_garbage_gives_none() {
        let path = std::env::temp_dir().join(format!("primus-load-{}", std::process::id()));
        let source = Source::File(path.clone());
        let chosen = |percent| Some(Usage::Chosen(Score::from_percent(percent)));
        for (text, expected) in [
            ("85\n", chosen(85.0)),
            (" 12.5", chosen(12.5)),
            ("-3", chosen(0.0)),
            ("much", None),
            ("", None),
            ("cpu = 40\nmemory = 12.5\n", parts(40.0, 12.5)),
            ("# busy\n\nmemory=30", parts(0.0, 30.0)),
            ("cpu = 40\ndisk = 3", None),
            ("cpu = much", None),
            ("cpu", None),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(meter(&source).read(), expected, "{text}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(meter(&source).read(), None);
    }

    #[test]
    fn the_host_has_a_load() {
        let usage = meter(&Source::System).read();
        let Some(Usage::Parts { memory, .. }) = usage else { panic!("a host can be measured") };
        assert!(memory > Score::default(), "memory is always used");
    }

    /// Keeps a processor busy, long enough to be noticed.
    fn work() {
        let began = Instant::now();
        let mut sum = 0_u64;
        while began.elapsed() < WATCHING {
            sum = black_box(sum.wrapping_add(1));
        }
    }

    #[test]
    fn a_process_that_works_has_a_load() {
        // A process that has never worked looks to sysinfo as if it had never been read.
        work();
        let mut meter = meter(&Source::Process);
        work();
        let Some(Usage::Parts { cpu, memory }) = meter.read() else { panic!("a process can be measured") };
        assert!(cpu > Score::default(), "{cpu}");
        assert!(memory < Score::MAX, "{memory}");
    }

    #[test]
    fn a_burst_moves_a_load_half_way_and_what_lasts_all_the_way() {
        let usage = |cpu| parts(cpu, 10.0).unwrap();
        assert_eq!(smoothed(Usage::Unknown, usage(80.0)), usage(80.0));
        assert_eq!(smoothed(usage(0.0), usage(80.0)), usage(40.0));
        for (from, to) in [(0.0, 80.0), (80.0, 0.0), (0.01, 99.99)] {
            let arrived = (0..20).fold(usage(from), |before, _| smoothed(before, usage(to)));
            assert_eq!(arrived, usage(to));
        }
    }
}
