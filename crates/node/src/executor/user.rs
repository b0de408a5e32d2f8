//! Another user for tasks, as the host's own files name it.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

const USERS: &str = "/etc/passwd";

/// A user of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its number.
    pub uid: u32,
    /// The number of its group. Tasks are in no other one.
    pub gid: u32,
    /// Its own folder.
    pub home: PathBuf,
}

impl User {
    /// The user of this name in `/etc/passwd`, or the one that is written as `UID:GID`, for users that are kept elsewhere.
    ///
    /// # Errors
    /// If there is none, or the file cannot be read.
    pub fn find(name: &str) -> io::Result<Self> {
        if let Some((uid, gid)) = name.split_once(':') {
            let numbers = uid.parse().ok().zip(gid.parse().ok());
            let (uid, gid) =
                numbers.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "write it as UID:GID"))?;
            return Ok(Self { uid, gid, home: PathBuf::from("/") });
        }
        let found = fs::read_to_string(USERS)?.lines().find_map(|line| of_line(line, name));
        found.ok_or_else(|| io::Error::new(ErrorKind::NotFound, format!("no such user in {USERS}")))
    }

    /// The first folder on the way to this one that this user cannot pass.
    #[must_use]
    pub fn obstacle(&self, path: &Path) -> Option<PathBuf> {
        use std::os::unix::fs::MetadataExt;
        let is_closed = |folder: &&Path| {
            fs::metadata(folder).is_ok_and(|about| {
                let shift = if about.uid() == self.uid {
                    6
                } else if about.gid() == self.gid {
                    3
                } else {
                    0
                };
                about.mode() >> shift & 1 == 0
            })
        };
        path.ancestors().filter(is_closed).last().map(Path::to_owned)
    }
}

/// Name, password, number, group, what people call it, folder, shell.
fn of_line(line: &str, name: &str) -> Option<User> {
    let fields: Vec<&str> = line.split(':').collect();
    let [own, _, uid, gid, _, home, ..] = fields[..] else { return None };
    (own == name)
        .then(|| Some(User { uid: uid.parse().ok()?, gid: gid.parse().ok()?, home: PathBuf::from(home) }))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_or_numbers() {
        let line = "batch:x:1001:1002:Batch,,,:/home/batch:/bin/sh";
        let batch = User { uid: 1001, gid: 1002, home: PathBuf::from("/home/batch") };
        assert_eq!(of_line(line, "batch"), Some(batch));
        assert_eq!(of_line(line, "bat"), None);
        assert_eq!(of_line("batch:x:many:1:::", "batch"), None);
        assert_eq!(User::find("7:8").unwrap(), User { uid: 7, gid: 8, home: PathBuf::from("/") });
        assert_eq!(User::find("root").unwrap().uid, 0);
        assert!(User::find("7:").is_err() && User::find("no such user").is_err());
    }
}
