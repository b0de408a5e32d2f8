//! A control group of its own for a guarded command, where the system lets us make one: whatever the command starts stays in
//! it, wherever it goes, and is killed at one stroke.
//!
//! Only version 2 can do that, and only where this process may write there; elsewhere descendants are found one by one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions, waitpid};

/// How long the system may take until nothing lives in it any more.
const END_TIME: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_micros(200);

/// A control group, until this goes.
#[derive(Debug)]
pub(crate) struct Cage(PathBuf);

impl Cage {
    /// Makes one inside the control group of this process, if that is possible here.
    pub(super) fn new() -> Option<Self> {
        let folder = folder_of(std::process::id())?;
        fs::create_dir(&folder).ok()?;
        let cage = Self(folder);
        // Without this file it could not be emptied at one stroke.
        cage.0.join("cgroup.kill").exists().then_some(cage)
    }

    /// The one that this companion, a child of this process, has made and left.
    pub(crate) fn of(companion: Pid) -> Option<Self> {
        let folder = folder_of(u32::try_from(companion.as_raw_nonzero().get()).ok()?)?;
        folder.join("cgroup.kill").exists().then_some(Self(folder))
    }

    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    /// Kills everything inside, and returns when nothing lives there any more.
    pub(super) fn kill(&self) {
        let until = Instant::now() + END_TIME;
        while is_inhabited(&self.0) && Instant::now() < until {
            _ = fs::write(self.0.join("cgroup.kill"), "1");
            thread::sleep(LOOK);
        }
    }

    /// The same, and takes leave of those that have become children of this process by then: a dead one has no mark any more
    /// by which it could be found.
    pub(crate) fn kill_and_bury(&self) {
        let inside = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        self.kill();
        for pid in inside.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
            // What is another's child is none of our business.
            _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        self.kill();
        _ = fs::remove_dir(&self.0);
    }
}

/// Children are in the control group of their parent, so both of them find it.
fn folder_of(companion: u32) -> Option<PathBuf> {
    let own =
        own_group(&fs::read_to_string("/proc/self/mounts").ok()?, &fs::read_to_string("/proc/self/cgroup").ok()?)?;
    Some(own.join(format!("primus-guard-{companion}")))
}

/// Moves this process into that control group.
pub(super) fn enter(folder: &Path) -> io::Result<()> {
    fs::write(folder.join("cgroup.procs"), "0")
}

fn is_inhabited(folder: &Path) -> bool {
    fs::read_to_string(folder.join("cgroup.events"))
        .is_ok_and(|events| events.lines().any(|line| line == "populated 1"))
}

/// Where the control group of version 2 of this process is, from what the system says of mounts and groups.
fn own_group(mounts: &str, groups: &str) -> Option<PathBuf> {
    let mut mounted = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let place = mounted.find_map(|words| (words.get(2) == Some(&"cgroup2")).then(|| words.get(1).copied())?)?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(Path::new(place).join(own.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_control_group_is_found() {
        let mounts = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        let found = |mounts, groups| own_group(mounts, groups).map(|path| path.display().to_string());
        assert_eq!(found(mounts, "0::/user.slice/a.scope\n").as_deref(), Some("/sys/fs/cgroup/user.slice/a.scope"));
        assert_eq!(found(mounts, "1:cpu:/\n0::/\n").as_deref(), Some("/sys/fs/cgroup/"));
        assert_eq!(found(mounts, "1:cpu:/x\n"), None, "only version 1");
        assert_eq!(found("cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\n", "0::/\n"), None, "version 2 is not mounted");
    }
}
