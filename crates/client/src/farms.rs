//! The farms that `primus up` runs for this user: one file `NAME.json` each, in a folder that only this user can read.
//!
//! A file can outlive its farm, when `up` was killed. It therefore says when the process that wrote it began, so that
//! another process with the same number is not taken for it.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use primus_shapes::token::Token;
use rustix::process::{Pid, getuid, test_kill_process};
use serde::{Deserialize, Serialize};

use primus_core::Place;

use crate::error::{Error, Kind};
use crate::tokens;

/// What the founding file of a farm of `primus up` is called, in its folder.
pub const FOUNDING: &str = "farm.founding";

/// A farm that `primus up` runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Farm {
    /// Its name.
    #[serde(rename = "farm")]
    pub name: String,
    /// The process `primus up`.
    pub pid: u32,
    /// When that process began, in the kernel's own count; 0 where the system does not tell.
    pub began: u64,
    /// The folder that holds its data.
    pub dir: PathBuf,
    /// Is the folder removed at the end?
    pub temporary: bool,
    /// The addresses of the API of its servers.
    pub api: Vec<String>,
    /// The secret that its servers ask for.
    #[serde(default)]
    pub token: Option<Token>,
    /// The file that holds the secret.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// Its servers.
    pub servers: Vec<Started>,
    /// Its workers.
    pub workers: Vec<StartedWorker>,
}

/// A worker that `primus up` has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedWorker {
    /// Its name.
    pub name: String,
    /// Its process; none while it is dead.
    pub pid: Option<u32>,
}

/// A server that `primus up` has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Its number.
    pub id: u64,
    /// Its process; none while it is dead.
    pub pid: Option<u32>,
    /// The address of its links.
    pub address: String,
    /// The address of its API.
    pub api: String,
}

impl Started {
    /// What its files are called.
    pub fn node(&self) -> String {
        format!("server-{}", self.id)
    }
}

impl Farm {
    /// The farms of this user that run, by name.
    pub fn all() -> Result<Vec<Self>, Error> {
        let folder = folder()?;
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|error| unusable(&folder, &error))?,
        };
        let files = entries.flatten().map(|entry| entry.path());
        let mut farms: Vec<Self> = files.filter_map(|file| Self::read(&file)).filter(Self::runs).collect();
        farms.iter().for_each(Self::make_known);
        farms.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(farms)
    }

    /// The farm of this name, or the only one there is; none if nothing runs and no name was given.
    pub fn find(name: Option<&str>) -> Result<Option<Self>, Error> {
        let mut farms = Self::all()?;
        let names = farms.iter().map(|farm| farm.name.as_str()).collect::<Vec<_>>().join(", ");
        match name {
            Some(name) => match farms.iter().position(|farm| farm.name == name) {
                Some(place) => Ok(Some(farms.swap_remove(place))),
                None if farms.is_empty() => Err(Error::unreachable(
                    format!("no farm '{name}' runs here"),
                    format!("start it: primus up --farm {name}"),
                )),
                None => {
                    Err(Error::unreachable(format!("no farm '{name}' runs here"), format!("these do: {names}")))
                }
            },
            None if farms.len() > 1 => {
                Err(Error::usage(format!("several farms run here: {names}"), "choose one with --farm NAME"))
            }
            None => Ok(farms.pop()),
        }
    }

    /// How it is now.
    pub fn again(&self) -> Result<Self, Error> {
        let current = Self::read(&folder()?.join(format!("{}.json", self.name)));
        let current = current.filter(Self::runs).ok_or_else(|| {
            Error::unreachable(format!("farm '{}' has ended", self.name), "start it again: primus up")
        })?;
        current.make_known();
        Ok(current)
    }

    /// Makes the farm known, unless another one of that name runs.
    pub fn announce(&self) -> Result<(), Error> {
        let folder = folder()?;
        private_folder(&folder)?;
        let failed = |error: io::Error| unusable(&folder, &error);
        let draft = self.write_draft(&folder).map_err(failed)?;
        // A link, unlike a rename, fails where a file is already: of two that start at once, one wins.
        let linked = fs::hard_link(&draft, self.file(&folder)).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => name_taken(&self.name),
            _ => failed(error),
        });
        _ = fs::remove_file(&draft);
        linked
    }

    /// Writes down what has changed.
    pub fn update(&self) -> Result<(), Error> {
        let folder = folder()?;
        let written = self.write_draft(&folder).and_then(|draft| fs::rename(draft, self.file(&folder)));
        written.map_err(|error| unusable(&folder, &error))
    }

    /// The farm has ended.
    pub fn forget(&self) {
        if let Ok(folder) = folder() {
            _ = fs::remove_file(self.file(&folder));
        }
    }

    fn file(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.json", self.name))
    }

    fn write_draft(&self, folder: &Path) -> io::Result<PathBuf> {
        let draft = folder.join(format!(".{}.{}", self.name, self.pid));
        let mut file: File = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        let text = serde_json::to_string(self).map_err(io::Error::other)?;
        file.write_all(text.as_bytes())?;
        Ok(draft)
    }

    fn read(file: &Path) -> Option<Self> {
        let is_ours = file.extension().is_some_and(|extension| extension == "json");
        let farm: Self = serde_json::from_slice(&fs::read(file).ok().filter(|_| is_ours)?).ok()?;
        // Whoever wrote a name that does not fit its file did not write it with us.
        (file.file_stem()?.to_str()? == farm.name).then_some(farm)
    }

    /// From now on its servers are shown its secret.
    pub fn make_known(&self) {
        if let Some(token) = &self.token {
            self.api.iter().for_each(|api| tokens::know(api, token));
        }
    }

    fn runs(&self) -> bool {
        is_alive(self.pid) && began(self.pid) == self.began
    }
}

/// The file that asks `primus up` to start a node again.
pub fn restart_request(dir: &Path, node: &str) -> PathBuf {
    dir.join(format!("restart-{node}"))
}

/// The file that says why a node must not be started again.
pub fn end_note(dir: &Path, node: &str) -> PathBuf {
    dir.join(format!("ended-{node}"))
}

/// What a node wrote to stderr.
pub fn log_file(dir: &Path, node: &str) -> PathBuf {
    dir.join(format!("{node}.log"))
}

/// Removes what farms left behind that were killed: their files, and their data if it was temporary.
pub fn tidy() -> Result<(), Error> {
    let folder = folder()?;
    let Ok(entries) = fs::read_dir(&folder) else { return Ok(()) };
    let left = entries.flatten().filter_map(|entry| Farm::read(&entry.path()));
    for farm in left.filter(|farm| !farm.runs()) {
        farm.forget();
        let is_ours = farm.dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with("primus-"));
        if farm.temporary && is_ours {
            _ = fs::remove_dir_all(&farm.dir);
        }
    }
    Ok(())
}

/// Creates a folder that only this user can look into.
pub fn private_folder(folder: &Path) -> Result<(), Error> {
    match DirBuilder::new().mode(0o700).recursive(true).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(unusable(folder, &error)),
        _ => Ok(()),
    }
}

/// When a process began, in the kernel's own count.
pub fn began(pid: u32) -> u64 {
    // The second field is the program's name in brackets, and may contain anything; the 22nd is what we want.
    let read = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
    };
    read().unwrap_or(0)
}

/// Is there such a process?
pub fn is_alive(pid: u32) -> bool {
    process(pid).is_some_and(|pid| test_kill_process(pid).is_ok())
}

/// A process number as the system takes it.
pub fn process(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

/// Where the files are. The folder need not exist; in the temporary directory it must be nobody else's.
/// The founding file of the farm of this name, if it runs on this host and its servers listen there. Nothing if this user has none.
pub fn founding_of(farm: &str, servers: impl IntoIterator<Item = Place>) -> Option<PathBuf> {
    let servers: BTreeSet<String> = servers.into_iter().map(|address| address.to_string()).collect();
    let is_it = |running: &Farm| {
        running.name == farm && running.servers.iter().any(|server| servers.contains(&server.address))
    };
    let running = Farm::all().ok()?.into_iter().find(is_it)?;
    Some(running.dir.join(FOUNDING)).filter(|file| file.exists())
}

fn folder() -> Result<PathBuf, Error> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute());
    if let Some(runtime) = runtime {
        return Ok(runtime.join("primus"));
    }
    let user = getuid().as_raw();
    let folder = std::env::temp_dir().join(format!("primus-{user}"));
    match fs::symlink_metadata(&folder) {
        Ok(found) if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 => Err(Error::new(
            Kind::NotAllowed,
            "not_allowed",
            format!("{} is not a private folder of yours", folder.display()),
            "remove it, or set XDG_RUNTIME_DIR",
        )),
        _ => Ok(folder),
    }
}

fn unusable(folder: &Path, error: &io::Error) -> Error {
    Error::failed("storage", format!("{} cannot be used: {error}", folder.display()), "check its permissions")
}

fn name_taken(name: &str) -> Error {
    Error::usage(format!("a farm '{name}' runs already"), "choose another name with --farm, or end that one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_with_the_same_number_is_not_the_farm() {
        let pid = std::process::id();
        let mut farm = Farm {
            name: "north".to_string(),
            pid,
            began: began(pid),
            dir: PathBuf::from("/nowhere"),
            temporary: true,
            api: Vec::new(),
            token: None,
            token_file: None,
            servers: Vec::new(),
            workers: Vec::new(),
        };
        assert!(farm.runs());
        farm.began += 1;
        assert!(!farm.runs());
    }
}
