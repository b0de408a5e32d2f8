//! How loaded this host is: measured now and then, off the loop's thread, smoothed.
//!
//! The first reading of the processors is their average since the host started, so it is thrown away. All servers on one
//! host read the same processors; tests and demonstrations set loads through a file or by hand.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use primus_core::load::{Reading, Score, Weights};
use sysinfo::System;

/// Processors must be watched for this long at least before their use means anything.
const WATCHING: Duration = Duration::from_millis(500);
const EVERY: Duration = Duration::from_secs(1);

/// Where loads come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The whole host.
    System,
    /// A file that holds a score from 0 to 100.
    File(PathBuf),
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(path.into())),
            None if text == "system" => Ok(Self::System),
            _ => Err(format!("'{text}' is no source of loads; choose system or file:PATH")),
        }
    }
}

/// Measures for as long as somebody listens.
///
/// # Panics
/// If the system gives no thread.
pub fn watch(source: Source, mut tell: impl FnMut(Score) -> bool + Send + 'static) {
    let watching = move || {
        let mut meter = Meter::new(source);
        let mut smooth: Option<u32> = None;
        loop {
            if let Some(score) = meter.read() {
                // Half of what was, half of what is: a burst of a moment moves nobody.
                let now = score.hundredths();
                let mixed = smooth.map_or(now, |before| before.midpoint(now));
                smooth = Some(mixed);
                if !tell(Score::from_hundredths(mixed)) {
                    return;
                }
            }
            thread::sleep(EVERY);
        }
    };
    thread::Builder::new().name("load".to_owned()).spawn(watching).expect("the system gives a thread");
}

struct Meter {
    source: Source,
    system: System,
}

impl Meter {
    fn new(source: Source) -> Self {
        let mut system = System::new();
        if source == Source::System {
            system.refresh_cpu_usage();
            thread::sleep(WATCHING);
        }
        Self { source, system }
    }

    /// Nothing if the file cannot be read: then the last score stays.
    fn read(&mut self) -> Option<Score> {
        match &self.source {
            Source::File(path) => read_file(path),
            Source::System => {
                self.system.refresh_cpu_usage();
                self.system.refresh_memory();
                let available = self.system.available_memory() as f64 / self.system.total_memory().max(1) as f64;
                let cpu = f64::from(self.system.global_cpu_usage());
                Some(Weights::DEFAULT.score(Reading { cpu, tasks: 0, memory_used: 100.0 * (1.0 - available) }))
            }
        }
    }
}

fn read_file(path: &Path) -> Option<Score> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok().map(Score::from_percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_named() {
        assert_eq!("system".parse(), Ok(Source::System));
        assert_eq!("file:/tmp/load".parse(), Ok(Source::File("/tmp/load".into())));
        for wrong in ["", "file:", "cpu", "file"] {
            assert!(wrong.parse::<Source>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_gives_its_score_and_garbage_gives_none() {
        let path = std::env::temp_dir().join(format!("primus-load-{}", std::process::id()));
        for (text, expected) in [("85\n", Some(8500)), (" 12.5", Some(1250)), ("much", None), ("-3", Some(0))] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(Meter::new(Source::File(path.clone())).read().map(Score::hundredths), expected);
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(Meter::new(Source::File(path)).read(), None);
    }

    #[test]
    fn the_host_has_a_load() {
        let score = Meter::new(Source::System).read().expect("a host can be measured");
        assert!(score.hundredths() > 0, "memory is always used");
    }
}
