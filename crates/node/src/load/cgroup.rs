//! The load of a control group (version 2): a container or a service that may use only a part of its host.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use sysinfo::{MemoryRefreshKind, System};

use super::{Unmeasurable, processors};

/// A control group, by its folder.
#[derive(Debug)]
pub(super) struct Cgroup {
    dir: PathBuf,
    /// When it was read last, and for how long its processors had worked, in microseconds.
    before: Option<(Instant, u64)>,
    /// What counts as all memory if the group has no limit.
    host_memory: u64,
}

impl Cgroup {
    /// The group that this process is in.
    pub(super) fn of_this_process() -> Result<Self, Unmeasurable> {
        let read = |path: &str| {
            fs::read_to_string(path).map_err(|error| Unmeasurable(format!("{path} cannot be read: {error}")))
        };
        let (mounts, groups) = (read("/proc/self/mounts")?, read("/proc/self/cgroup")?);
        let dir = folder(&mounts, &groups)
            .ok_or_else(|| Unmeasurable("this host has no control groups of version 2".to_owned()))?;
        let mut system = System::new();
        system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        Self::at(dir, system.total_memory())
    }

    fn at(dir: PathBuf, host_memory: u64) -> Result<Self, Unmeasurable> {
        for file in ["cpu.stat", "memory.current"] {
            if !dir.join(file).exists() {
                let what = format!("the control group {} has no {file}", dir.display());
                return Err(Unmeasurable(what));
            }
        }
        Ok(Self { dir, before: None, host_memory })
    }

    /// Use of processors since the last reading, and of memory, in percent of what the group may use.
    pub(super) fn read(&mut self) -> Option<(f64, f64)> {
        let (now, worked) = (Instant::now(), self.field("cpu.stat", "usage_usec")?);
        let memory = self.memory()?;
        let (then, worked_before) = self.before.replace((now, worked))?;
        let passed_us = (now - then).as_secs_f64() * 1e6;
        let cpu = worked.saturating_sub(worked_before) as f64 / (passed_us * self.quota()).max(1.0);
        Some((100.0 * cpu, 100.0 * memory))
    }

    /// How many processors it may keep busy.
    fn quota(&self) -> f64 {
        let limit = self.text("cpu.max").and_then(|text| {
            let (quota, period) = text.trim().split_once(' ')?;
            let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
            (quota > 0.0 && period > 0.0).then_some(quota / period)
        });
        limit.unwrap_or_else(processors)
    }

    /// The share of its memory that is in use. What only caches files can be taken back at any moment and does not count.
    fn memory(&self) -> Option<f64> {
        let current: u64 = self.text("memory.current")?.trim().parse().ok()?;
        let cached = self.field("memory.stat", "inactive_file").unwrap_or(0);
        let limit = self.text("memory.max").and_then(|text| text.trim().parse().ok());
        let most = limit.unwrap_or(self.host_memory).min(self.host_memory).max(1);
        Some(current.saturating_sub(cached) as f64 / most as f64)
    }

    fn text(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.dir.join(file)).ok()
    }

    fn field(&self, file: &str, name: &str) -> Option<u64> {
        let text = self.text(file)?;
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    }
}

/// Where the group's files are: below the mount of version 2, at the path in the line that begins with `0::`.
fn folder(mounts: &str, groups: &str) -> Option<PathBuf> {
    let mount = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (place, kind) = (words.nth(1)?, words.next()?);
        (kind == "cgroup2").then_some(place)
    })?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(Path::new(mount).join(path.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// A folder with the files of a group, as the kernel writes them.
    fn group(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("primus-cgroup-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).expect("a folder can be made");
        for (file, text) in files {
            fs::write(dir.join(file), text).expect("a file can be written");
        }
        dir
    }

    #[test]
    fn the_folder_is_found_below_the_mount() {
        let pure = "sysfs /sys sysfs rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        let mixed = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        for (mounts, groups, expected) in [
            (pure, "0::/system.slice/primus.service\n", Some("/sys/fs/cgroup/system.slice/primus.service")),
            (pure, "0::/\n", Some("/sys/fs/cgroup/")),
            (mixed, "4:memory:/x\n0::/y\n", Some("/sys/fs/cgroup/unified/y")),
            ("cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n", "1:cpu:/\n", None),
        ] {
            assert_eq!(folder(mounts, groups), expected.map(PathBuf::from), "{groups}");
        }
    }

    #[test]
    fn use_is_measured_against_the_limits_of_the_group() {
        let dir = group(
            "limits",
            &[
                ("cpu.stat", "usage_usec 3000000\nuser_usec 2000000\n"),
                ("cpu.max", "50000 100000\n"),
                ("memory.current", "209715200\n"),
                ("memory.max", "419430400\n"),
                ("memory.stat", "anon 1\ninactive_file 104857600\n"),
            ],
        );
        let mut cgroup = Cgroup::at(dir.clone(), 1000 * MIB).unwrap();
        assert_eq!(cgroup.read(), None, "the first reading is an average since the group began");
        // One second ago the group had worked for 2.75 s: a quarter of a processor, of the half that it may use.
        cgroup.before = Some((Instant::now().checked_sub(Duration::from_secs(1)).unwrap(), 2_750_000));
        let (cpu, memory) = cgroup.read().unwrap();
        assert!((49.0..=50.0).contains(&cpu), "{cpu}");
        assert!((memory - 25.0).abs() < 1e-9, "{memory}");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_group_without_limits_may_use_the_host() {
        let dir = group(
            "open",
            &[
                ("cpu.stat", "usage_usec 1\n"),
                ("cpu.max", "max 100000\n"),
                ("memory.current", "104857600\n"),
                ("memory.max", "max\n"),
            ],
        );
        let cgroup = Cgroup::at(dir.clone(), 1000 * MIB).unwrap();
        assert!((cgroup.quota() - processors()).abs() < 1e-9);
        assert!((cgroup.memory().unwrap() - 0.1).abs() < 1e-9);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_group_that_counts_nothing_is_refused_by_name() {
        let dir = group("empty", &[("cpu.stat", "usage_usec 1\n")]);
        let refusal = Cgroup::at(dir.clone(), MIB).unwrap_err().to_string();
        assert!(refusal.contains("memory.current") && refusal.contains(dir.to_str().unwrap()), "{refusal}");
        fs::remove_dir_all(dir).unwrap();
    }
}
