//! Starting one command, or saying in a sentence why it cannot be started.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::thread;

use rustix::fs::{Access, MemfdFlags, access, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, setpriority_process};

use super::order::{Rules, Start};

/// A command that runs, in a process group that has its first process's number.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) group: Pid,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// Starts it, by these rules. The program is looked for in the worker's own path: a task cannot change what an allowed name means.
///
/// # Errors
/// With the reason, for people.
pub(super) fn spawn(start: &Start, input: &[u8], rules: &Rules) -> Result<Child, String> {
    let (name, arguments) = start.arguments.split_first().ok_or("there is nothing to run: the command is empty")?;
    let program = find(name)?;
    let stdin = stdin_of(input).map_err(|error| format!("its input cannot be prepared: {error}"))?;
    let mut command = command(name, program, rules);
    command.args(arguments).process_group(0);
    if let Some((user, group)) = rules.user {
        // Leaves all other groups, too.
        command.uid(user).gid(group);
    }
    command.envs(start.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(directory) = &start.directory {
        command.current_dir(directory);
    }
    let mut child =
        spawn_nicely(&mut command, start.nice).map_err(|error| reason(start.directory.as_deref(), name, &error))?;
    let group = Pid::from_child(&child);
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (stdout, stderr) = stdout.zip(stderr).expect("both were asked for");
    Ok(Child { group, stdout: stdout.into(), stderr: stderr.into() })
}

/// The program itself, or, if it has limits, the step that takes them and becomes it.
fn command(name: &str, program: PathBuf, rules: &Rules) -> Command {
    match &rules.exec {
        Some((exec, first)) if !rules.limits.is_none() => {
            let mut command = Command::new(exec);
            command.args(first).args(rules.limits.words()).arg(name).arg(program);
            command
        }
        _ => {
            let mut command = Command::new(program);
            command.arg0(name);
            command
        }
    }
}

/// A command gives way from its first instruction on: it inherits that from the thread that starts it. Told afterwards, it could
/// have forked by then.
fn spawn_nicely(command: &mut Command, nice: u8) -> io::Result<process::Child> {
    if nice == 0 {
        return command.spawn();
    }
    let start = || {
        setpriority_process(None, i32::from(nice))?;
        command.spawn()
    };
    thread::scope(|scope| scope.spawn(start).join()).expect("starting a command does not panic")
}

/// In memory as a whole, so that nobody has to feed it while it runs.
fn stdin_of(input: &[u8]) -> io::Result<Stdio> {
    if input.is_empty() {
        return Ok(Stdio::null());
    }
    let mut file = File::from(memfd_create("stdin", MemfdFlags::CLOEXEC)?);
    file.write_all(input)?;
    file.rewind()?;
    Ok(file.into())
}

fn find(name: &str) -> Result<PathBuf, String> {
    if name.contains('/') {
        return Ok(PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsStr::new("/usr/local/bin:/usr/bin:/bin").to_owned());
    let mut places = std::env::split_paths(&path).map(|directory| directory.join(name));
    let found = places.find(|place| is_program(place)).filter(|_| !name.is_empty());
    found.ok_or_else(|| format!("program {name:?} was not found on this worker (its PATH is {})", path.display()))
}

fn is_program(path: &Path) -> bool {
    access(path, Access::EXEC_OK).is_ok() && path.is_file()
}

/// Why a command of this name could not be started in this folder.
pub(super) fn reason(directory: Option<&str>, name: &str, error: &io::Error) -> String {
    if let Some(directory) = directory.filter(|directory| !Path::new(directory).is_dir()) {
        return format!("the folder {directory:?} does not exist on this worker");
    }
    let place = Path::new(directory.unwrap_or(".")).join(name);
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) if fs::exists(&place).unwrap_or(false) => {
            format!("{name:?} names an interpreter in its first line that does not exist on this worker")
        }
        Some(Errno::NOENT | Errno::NOTDIR) => format!("program {name:?} was not found on this worker"),
        Some(Errno::ACCESS) => {
            format!("{name:?} is not a program that this worker may run: look at its permissions")
        }
        Some(Errno::NOEXEC) => format!("{name:?} is not a program: a script needs a first line such as #!/bin/sh"),
        Some(Errno::TOOBIG) => "its arguments and environment are too long for this host".to_owned(),
        _ if error.kind() == ErrorKind::InvalidInput => "a zero byte is in its arguments or environment".to_owned(),
        _ => format!("{name:?} could not be started: {error}"),
    }
}
