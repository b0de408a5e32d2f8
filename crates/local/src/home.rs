//! Where a farm keeps its data: a temporary folder, or one that is kept and remembers what the farm was.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use primus_client::farms::private_folder;
use primus_node::private::{self, Exposed};
use primus_terminal::amounts::quoted;
use primus_terminal::failure::Failure;
use primus_terminal::names;
use serde::{Deserialize, Serialize};

use crate::Wanted;
use crate::chance;

const NAME: &str = "local";
const SERVERS: u64 = 3;
/// The most servers of a farm on one host.
pub const SERVERS_MAX: u64 = 25;
const WORKERS: u64 = 2;
/// The most workers of a farm on one host.
pub const WORKERS_MAX: u64 = 1000;
const SLOTS: u64 = 1;
/// The most tasks that a worker runs at once.
pub const SLOTS_MAX: u64 = 4096;
/// What the folder remembers. It is also what two farms in one folder fight about.
const MEMORY: &str = "farm.json";

/// A farm's folder, which is ours alone as long as this lives.
#[derive(Debug)]
pub struct Home {
    /// The name of the farm.
    pub name: String,
    /// The number of its servers.
    pub servers: u64,
    /// The number of its workers.
    pub workers: u64,
    /// The number of tasks that each worker runs at once.
    pub slots: u64,
    /// How the names of its workers begin.
    pub(crate) initial: char,
    /// The folder.
    pub dir: PathBuf,
    /// True if the folder is removed at the end.
    pub temporary: bool,
    /// Holds the lock on the folder.
    _memory: File,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Memory {
    farm: String,
    servers: u64,
    #[serde(default = "workers")]
    workers: u64,
    #[serde(default = "slots")]
    slots: u64,
}

const fn workers() -> u64 {
    WORKERS
}

const fn slots() -> u64 {
    SLOTS
}

impl Home {
    /// Opens or creates the folder of the farm that is wanted.
    pub(crate) fn open(wanted: &Wanted, initial: char) -> Result<Self, Failure> {
        if let Some(name) = &wanted.farm {
            check_name(name)?;
        }
        if wanted.dir.as_deref() == Some("") {
            return Err(Failure::usage("--dir is empty", "name a folder, or leave it out"));
        }
        let temporary = wanted.dir.is_none();
        let dir = wanted.dir.as_ref().map_or_else(temporary_folder, PathBuf::from);
        private_folder(&dir)?;
        private::check(&dir).map_err(|exposed| exposed_folder(&exposed))?;
        let dir = fs::canonicalize(&dir).map_err(|error| unusable(&dir, &error))?;
        let opened = Self::enter(&dir, wanted, temporary, initial);
        if opened.is_err() && temporary {
            _ = fs::remove_dir_all(&dir);
        }
        opened
    }

    fn enter(dir: &Path, wanted: &Wanted, temporary: bool, initial: char) -> Result<Self, Failure> {
        let mut memory = lock(dir)?;
        let known = recall(&mut memory, dir)?;
        let now = match &known {
            Some(known) => known.matching(dir, wanted)?,
            None => Memory {
                farm: wanted.farm.clone().unwrap_or_else(|| NAME.to_string()),
                servers: wanted.servers.unwrap_or(SERVERS),
                workers: wanted.workers.unwrap_or(WORKERS),
                slots: wanted.slots.unwrap_or(SLOTS),
            },
        };
        if known.as_ref() != Some(&now) {
            remember(&mut memory, &now).map_err(|error| unusable(dir, &error))?;
        }
        let Memory { farm, servers, workers, slots } = now;
        let dir = dir.to_path_buf();
        Ok(Self { name: farm, servers, workers, slots, initial, dir, temporary, _memory: memory })
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if self.temporary {
            _ = fs::remove_dir_all(&self.dir);
        }
    }
}

impl Memory {
    /// The votes of a farm's servers are on their disks, so it cannot simply become another farm. Workers come and go.
    fn matching(&self, dir: &Path, wanted: &Wanted) -> Result<Self, Failure> {
        let dir = dir.display();
        if let Some(name) = wanted.farm.as_ref().filter(|name| **name != self.farm) {
            let hint = format!("leave --farm out, or choose another folder than {dir}");
            return Err(Failure::usage(format!("{dir} holds farm '{}', not '{name}'", self.farm), hint));
        }
        if let Some(servers) = wanted.servers.filter(|servers| *servers != self.servers) {
            let message = format!("{dir} holds a farm of {} servers, not {servers}", self.servers);
            return Err(Failure::usage(message, "leave --servers out, or choose another folder"));
        }
        let (workers, slots) = (wanted.workers.unwrap_or(self.workers), wanted.slots.unwrap_or(self.slots));
        Ok(Self { farm: self.farm.clone(), servers: self.servers, workers, slots })
    }
}

fn remember(file: &mut File, memory: &Memory) -> std::io::Result<()> {
    let text = serde_json::to_string(memory).expect("plain fields become JSON");
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(text.as_bytes())
}

/// Takes the folder, if it is empty or a farm's, and nobody else has it.
fn lock(dir: &Path) -> Result<File, Failure> {
    let failed = |error: std::io::Error| unusable(dir, &error);
    let file = dir.join(MEMORY);
    let is_strange = !file.exists() && fs::read_dir(dir).map_err(failed)?.next().is_some();
    if is_strange {
        let message = format!("{} is not empty and holds no farm", dir.display());
        return Err(Failure::usage(message, "choose a new or an empty folder"));
    }
    private::own_folder(dir).map_err(failed)?;
    let memory = private::open_or_make(&file).map_err(failed)?;
    match memory.try_lock() {
        Ok(()) => Ok(memory),
        Err(TryLockError::WouldBlock) => Err(Failure::usage(
            format!("another primus up uses {}", dir.display()),
            "end it, or choose another folder with --dir",
        )),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

fn recall(memory: &mut File, dir: &Path) -> Result<Option<Memory>, Failure> {
    let mut text = String::new();
    memory.read_to_string(&mut text).map_err(|error| unusable(dir, &error))?;
    if text.is_empty() {
        return Ok(None);
    }
    let known: Option<Memory> = serde_json::from_str(&text).ok();
    let is_sound = |known: &Memory| {
        let are_few = known.workers <= WORKERS_MAX && (1..=SLOTS_MAX).contains(&known.slots);
        check_name(&known.farm).is_ok() && (1..=SERVERS_MAX).contains(&known.servers) && are_few
    };
    let known = known.filter(is_sound);
    known.map(Some).ok_or_else(|| {
        let file = dir.join(MEMORY);
        Failure::usage(format!("{} is damaged", file.display()), "restore it, or choose another folder")
    })
}

fn check_name(name: &str) -> Result<(), Failure> {
    names::check_name(name).map_err(|hint| Failure::usage(format!("--farm is {}", quoted(name)), hint))
}

fn temporary_folder() -> PathBuf {
    std::env::temp_dir().join(format!("primus-up-{}-{}", std::process::id(), chance() % 1_000_000_000))
}

pub(crate) fn exposed_folder(exposed: &Exposed) -> Failure {
    Failure::usage(exposed.to_string(), "--dir says which")
}

fn unusable(dir: &Path, error: &std::io::Error) -> Failure {
    Failure::failed("storage", format!("{} cannot be used: {error}", dir.display()), "choose another folder")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_remembers_its_farm() {
        let args = |name: Option<&str>, servers: Option<u64>, dir: &Path| Wanted {
            servers,
            dir: Some(dir.to_str().unwrap().to_string()),
            farm: name.map(str::to_string),
            ..Wanted::default()
        };
        let dir = temporary_folder();
        let home = Home::open(&args(Some("north"), Some(5), &dir), 'w').unwrap();
        assert!(Home::open(&args(None, None, &dir), 'w').unwrap_err().words().contains("another primus up"));
        drop(home);
        let home = Home::open(&args(None, None, &dir), 'w').unwrap();
        assert_eq!((home.name.as_str(), home.servers, home.workers), ("north", 5, 2));
        drop(home);
        let more = Wanted { workers: Some(7), ..args(None, None, &dir) };
        assert_eq!(Home::open(&more, 'w').unwrap().workers, 7);
        assert_eq!(Home::open(&args(None, None, &dir), 'w').unwrap().workers, 7);
        assert!(Home::open(&args(Some("south"), None, &dir), 'w').is_err());
        assert!(Home::open(&args(None, Some(3), &dir), 'w').is_err());
        fs::write(dir.join(MEMORY), "nonsense").unwrap();
        assert!(Home::open(&args(None, None, &dir), 'w').unwrap_err().words().contains("damaged"));
        fs::remove_file(dir.join(MEMORY)).unwrap();
        fs::write(dir.join("mine"), "").unwrap();
        assert!(Home::open(&args(None, None, &dir), 'w').unwrap_err().words().contains("not empty"));
        fs::remove_dir_all(dir).unwrap();
    }
}
