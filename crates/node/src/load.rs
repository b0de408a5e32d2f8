//! How loaded this server is: measured now and then, off the loop's thread, smoothed.
//!
//! The first reading of processors is their average since the host, or the process, started, so it is thrown away. All
//! servers on one host read the same processors; tests and demonstrations set loads through a file or by hand.

mod cgroup;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use primus_core::load::{Load, Reading, Score, Weights};
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
    /// A file that holds a score from 0 to 100.
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
            _ => Err(format!("'{text}' is no source of loads; choose system, cgroup, process or file:PATH")),
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

/// What measures a load.
#[derive(Debug)]
pub struct Meter {
    gauge: Gauge,
    weights: Weights,
}

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
    pub fn open(source: &Source, weights: Weights) -> Result<Self, Unmeasurable> {
        let gauge = match source {
            Source::System => Gauge::System(System::new()),
            Source::Cgroup => Gauge::Cgroup(Cgroup::of_this_process()?),
            Source::Process => {
                let pid = sysinfo::get_current_pid().map_err(|reason| Unmeasurable(reason.to_owned()))?;
                Gauge::Process(System::new(), pid)
            }
            Source::File(path) => Gauge::File(path.clone()),
        };
        let mut meter = Self { gauge, weights };
        _ = meter.read();
        Ok(meter)
    }

    /// Measures for as long as somebody listens, on a thread of its own.
    ///
    /// # Panics
    /// If the system gives no thread.
    pub fn watch(mut self, mut tell: impl FnMut(Load) -> bool + Send + 'static) {
        let watching = move || {
            let mut before = None;
            thread::sleep(self.first_pause());
            loop {
                if let Some(now) = self.read() {
                    let load = before.map_or(now, |before| smoothed(before, now));
                    before = Some(load);
                    if !tell(load) {
                        return;
                    }
                }
                thread::sleep(EVERY);
            }
        };
        thread::Builder::new().name("load".to_owned()).spawn(watching).expect("the system gives a thread");
    }

    const fn first_pause(&self) -> Duration {
        if let Gauge::File(_) = self.gauge { Duration::ZERO } else { WATCHING }
    }

    /// Nothing if it cannot be read: then the last load stays.
    fn read(&mut self) -> Option<Load> {
        let (cpu, memory_used) = match &mut self.gauge {
            Gauge::File(path) => return read_file(path).map(Load::from),
            Gauge::System(system) => read_system(system),
            Gauge::Process(system, pid) => read_process(system, *pid)?,
            Gauge::Cgroup(cgroup) => cgroup.read()?,
        };
        Some(self.weights.load(Reading { cpu, tasks: 0, memory_used }))
    }
}

/// Half of what was, half of what is: a burst of a moment moves nobody.
fn smoothed(before: Load, now: Load) -> Load {
    let mix = |before: Score, now: Score| Score::from_hundredths(before.hundredths().midpoint(now.hundredths()));
    Load {
        score: mix(before.score, now.score),
        cpu: now.cpu.map(|cpu| mix(before.cpu.unwrap_or(cpu), cpu)),
        memory: now.memory.map(|memory| mix(before.memory.unwrap_or(memory), memory)),
        tasks: now.tasks,
        is_disk_full: now.is_disk_full,
    }
}

fn read_file(path: &Path) -> Option<Score> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok().map(Score::from_percent)
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
        Meter::open(source, Weights::DEFAULT).expect("this can be measured everywhere")
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
    fn a_file_gives_its_score_and_garbage_gives_none() {
        let path = std::env::temp_dir().join(format!("primus-load-{}", std::process::id()));
        let source = Source::File(path.clone());
        for (text, expected) in [("85\n", Some(8500)), (" 12.5", Some(1250)), ("much", None), ("-3", Some(0))] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(meter(&source).read().map(|load| load.score.hundredths()), expected);
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(meter(&source).read(), None);
    }

    #[test]
    fn the_host_has_a_load() {
        let load = meter(&Source::System).read().expect("a host can be measured");
        assert!(load.memory > Some(Score::default()), "memory is always used");
        assert!(load.score > Score::default());
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
        let load = meter.read().expect("a process can be measured");
        assert!(load.cpu > Some(Score::default()), "{load:?}");
        assert!(load.memory < Some(Score::MAX), "{load:?}");
    }

    #[test]
    fn a_burst_moves_a_load_half_way() {
        let load = |cpu: f64| Weights::DEFAULT.load(Reading { cpu, tasks: 0, memory_used: 10.0 });
        let mixed = smoothed(load(0.0), load(80.0));
        assert_eq!(mixed.cpu, Some(Score::from_percent(40.0)));
        assert_eq!(mixed.memory, Some(Score::from_percent(10.0)));
        assert_eq!(mixed.score, Score::from_percent(22.0));
    }
}
