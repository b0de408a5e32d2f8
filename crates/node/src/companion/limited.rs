//! One more step before a command that has limits: this process takes them, and becomes the command.
//!
//! The companion could not take them itself, because they can only be lowered, and it must not run into them. Without limits
//! there is no such step.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use super::child;

/// What a command says that could not be started, as shells do.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;
/// Stands for no limit.
const NONE: &str = "-";

/// How much each process of a task may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// How many bytes of memory of its own a process may have.
    pub memory: Option<u64>,
    /// How many processes and threads the user of the task may have, whatever started them. The superuser has no such limit.
    pub processes: Option<u64>,
    /// How long a file may become that a process writes.
    pub file: Option<u64>,
}

impl Limits {
    /// Is there any?
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.memory.is_none() && self.processes.is_none() && self.file.is_none()
    }

    /// As arguments of [`exec`].
    pub(super) fn words(self) -> [String; 3] {
        [self.memory, self.processes, self.file]
            .map(|limit| limit.map_or_else(|| NONE.to_owned(), |limit| limit.to_string()))
    }

    fn of_words(words: &[OsString]) -> Option<Self> {
        let [memory, processes, file] = words else { return None };
        let limit = |word: &OsStr| match word.to_str()? {
            NONE => Some(None),
            number => number.parse().ok().map(Some),
        };
        Some(Self { memory: limit(memory)?, processes: limit(processes)?, file: limit(file)? })
    }

    fn take(self) -> io::Result<()> {
        // Not the whole address space: many runtimes reserve far more of that than they ever use.
        let limits =
            [(Resource::Data, self.memory), (Resource::Nproc, self.processes), (Resource::Fsize, self.file)];
        for (resource, limit) in limits {
            let Some(limit) = limit else { continue };
            // A limit that is lower already stays.
            let most = Some(getrlimit(resource).maximum.map_or(limit, |maximum| maximum.min(limit)));
            setrlimit(resource, Rlimit { current: most, maximum: most })?;
        }
        Ok(())
    }
}

/// Takes limits and becomes a command: three limits, what it is called, its program, its arguments. Returns only if that is not
/// possible, with the exit code; why is on stderr then.
#[must_use]
pub fn exec(words: &[OsString]) -> u8 {
    let Some((limits, [name, program, arguments @ ..])) = words.split_at_checked(3) else { return NOT_RUN };
    let Some(limits) = Limits::of_words(limits) else { return NOT_RUN };
    if let Err(error) = limits.take() {
        return complain(&format!("its limits cannot be set: {error}"), NOT_RUN);
    }
    let error = Command::new(program).arg0(name).args(arguments).exec();
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN };
    complain(&child::reason(None, &name.to_string_lossy(), &error), code)
}

fn complain(why: &str, code: u8) -> u8 {
    // A task that closed its stderr does not want to know.
    _ = writeln!(io::stderr(), "primus: {why}");
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_come_out_as_they_went_in() {
        for limits in [
            Limits::default(),
            Limits { memory: Some(1 << 30), ..Limits::default() },
            Limits { processes: Some(0), file: Some(u64::MAX), ..Limits::default() },
        ] {
            let words: Vec<OsString> = limits.words().into_iter().map(OsString::from).collect();
            assert_eq!(Limits::of_words(&words), Some(limits));
        }
        assert_eq!(Limits::of_words(&["x".into(), NONE.into(), NONE.into()]), None);
        assert_eq!(Limits::of_words(&[]), None);
    }
}
