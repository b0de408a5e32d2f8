//! The companion of a guarded command: it lets it run until a deadline that only its supervisor moves.
//!
//! The deadline is a time on a clock that goes on while the host sleeps. Shortly before it the command is asked to end, and
//! killed in time, with everything that it has started: whatever left its group or session is found, because this process
//! adopts it. When the supervisor is gone, so is the command, at once: the system wakes a stopped companion for that. And
//! should the companion itself be killed, the system kills the command: it is started through [`exec`], which asks for that.
//!
//! The companion says which deadline it knows, and its supervisor enforces the very same one ([`crate::guarded`]). So either
//! of the two may be stopped.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::{Buf, BytesMut};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getppid, kill_process_group, set_child_subreaper,
    set_parent_process_death_signal, setsid, wait, waitid,
};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use super::cage::{self, Cage};
use super::{kin, order, timespec};
use crate::clock::now_us;

const BUFFER_LEN: usize = 16 << 10;
/// So long before the deadline everything is killed: that takes time, too.
pub(crate) const KILL_BEFORE_US: u64 = 20_000;

/// What opens the farm to programs of this user. The command does not get it by accident: it has its own ways to ask for it.
const SECRETS: [&str; 2] = ["PRIMUS_TOKEN", "PRIMUS_JOIN"];
/// Tells [`exec`] which control group the command belongs into.
const CAGE: &str = "PRIMUS_CAGE";

/// What the supervisor says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Run this.
    Start(Start),
    /// It may go on until then.
    Renew(u64),
    /// It has this long to end, from when it is told to.
    End(u64),
}

/// What to run. No shell is involved.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Start {
    /// The program that runs [`exec`], with its arguments, and then the command with its.
    pub(crate) arguments: Vec<OsString>,
    /// Added to the environment.
    pub(crate) environment: Vec<(String, String)>,
    /// Until then.
    pub(crate) until_us: u64,
    /// So long before the deadline it is asked to end.
    pub(crate) warning_us: u64,
}

/// What the companion says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Said {
    /// Something has happened to the command.
    Report(Report),
    /// It may go on until then, as far as the companion knows.
    Renewed(u64),
}

/// What happens to the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// It runs.
    Started {
        /// Its first process.
        pid: u32,
    },
    /// It could not be started, for this reason.
    Failed(String),
    /// It has ended, and nothing of it lives.
    Ended {
        /// Its exit code;
        code: Option<u8>,
        /// or the signal that killed it.
        signal: Option<u8>,
        /// Did it end by itself, before anybody told it to?
        by_itself: bool,
    },
}

/// Runs until the supervisor at the other end of standard input is gone, and no process of the command is left.
///
/// # Errors
/// If standard input is no socket of a supervisor, or the system refuses what this needs.
pub fn run() -> io::Result<()> {
    let mut companion = Companion::new()?;
    let ended = companion.serve();
    kin::kill_children();
    ended
}

/// Becomes the command, which the system then kills when its parent, the companion, ends.
#[must_use]
pub fn exec(arguments: &[OsString]) -> io::Error {
    let Some((program, rest)) = arguments.split_first() else { return ErrorKind::InvalidInput.into() };
    let parent = getppid();
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    if let Some(folder) = std::env::var_os(CAGE)
        && let Err(error) = cage::enter(Path::new(&folder))
    {
        return error;
    }
    // It may have ended before we asked; then somebody else is the parent by now, or nobody is known.
    if getppid() != parent || parent.is_none_or(|parent| parent == Pid::INIT) {
        return io::Error::other("the companion has ended");
    }
    let mut command = Command::new(program);
    SECRETS.into_iter().for_each(|name| _ = command.env_remove(name));
    command.args(rest).env_remove(CAGE).exec()
}

struct Companion {
    supervisor: UnixStream,
    /// A byte arrives when a child has ended.
    deaths: UnixStream,
    arrived: BytesMut,
    leaving: BytesMut,
    command: Option<Running>,
    buffer: Vec<u8>,
}

struct Running {
    group: Pid,
    until_us: u64,
    warning_us: u64,
    /// Where nothing that it has started can hide, if the system has such places.
    cage: Option<Cage>,
    /// When it was told to end, it must have by then.
    ends_by_us: Option<u64>,
}

impl Companion {
    fn new() -> io::Result<Self> {
        rustix::net::sockopt::socket_type(io::stdin())?;
        _ = setsid();
        // Should the supervisor be killed while this process is stopped, the system wakes it up: it ends the command then.
        set_parent_process_death_signal(Some(Signal::CONT))?;
        set_child_subreaper(Some(rustix::process::getpid()))?;
        // These are meant for the supervisor, which ends the command in good order.
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
        }
        let (deaths, bell) = UnixStream::pair()?;
        deaths.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGCHLD, bell)?;
        let supervisor = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        supervisor.set_nonblocking(true)?;
        let (arrived, leaving) = (BytesMut::new(), BytesMut::new());
        Ok(Self { supervisor, deaths, arrived, leaving, command: None, buffer: vec![0; BUFFER_LEN] })
    }

    fn serve(&mut self) -> io::Result<()> {
        loop {
            self.wait()?;
            // Taken before the supervisor is heard: whatever it said until then counts.
            let now = now_us();
            if !self.hear()? {
                return Ok(());
            }
            while matches!((&self.deaths).read(&mut self.buffer), Ok(length) if length > 0) {}
            self.bury();
            self.check_time(now);
            self.speak()?;
        }
    }

    fn wait(&self) -> io::Result<()> {
        let wanted = if self.leaving.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        let mut waiting = [PollFd::new(&self.supervisor, wanted), PollFd::new(&self.deaths, PollFlags::IN)];
        let due = self.command.as_ref().map(Running::due_us);
        let timeout = due.map(|due| timespec(due.saturating_sub(now_us())));
        match poll(&mut waiting, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Carries out everything that the supervisor has said; false if it is gone.
    fn hear(&mut self) -> io::Result<bool> {
        loop {
            match self.supervisor.read(&mut self.buffer) {
                Ok(0) => return Ok(false),
                Ok(length) => self.arrived.extend_from_slice(&self.buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(false),
                Err(error) => return Err(error),
            }
            while let Some(order) = order::take(&mut self.arrived)? {
                self.obey(order);
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Start(start) => self.start(&start),
            Order::Renew(until_us) => {
                if let Some(command) = &mut self.command {
                    command.until_us = command.until_us.max(until_us);
                    let renewed = Said::Renewed(command.until_us);
                    self.say(&renewed);
                }
            }
            Order::End(grace_us) => {
                if let Some(command) = &mut self.command {
                    command.end(now_us() + grace_us);
                }
            }
        }
    }

    fn start(&mut self, start: &Start) {
        // Whoever starts it again has not heard yet that it ended.
        if self.command.is_some() {
            return self.report(&Report::Failed("it runs already".to_owned()));
        }
        if now_us() + KILL_BEFORE_US >= start.until_us {
            return self.report(&Report::Failed("its time is over already".to_owned()));
        }
        let cage = Cage::new();
        match spawn(start, cage.as_ref()) {
            Ok(group) => {
                let Start { until_us, warning_us, .. } = *start;
                self.command = Some(Running { group, until_us, warning_us, cage, ends_by_us: None });
                let pid = u32::try_from(group.as_raw_nonzero().get()).unwrap_or(0);
                self.report(&Report::Started { pid });
            }
            Err(error) => self.report(&Report::Failed(error.to_string())),
        }
    }

    /// The command ends with its first process: what it left behind is killed.
    fn bury(&mut self) {
        let Some(command) = &self.command else {
            while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
            return;
        };
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let Ok(Some(status)) = waitid(WaitId::Pid(command.group), look) else { return };
        let by_itself = command.ends_by_us.is_none();
        let byte = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
        let (code, signal) = (status.exit_status().map(byte), status.terminating_signal().map(byte));
        command.kill();
        kin::kill_children();
        self.command = None;
        self.report(&Report::Ended { code, signal, by_itself });
    }

    fn check_time(&mut self, now: u64) {
        let Some(command) = &mut self.command else { return };
        if now
            >= command.ends_by_us.unwrap_or(u64::MAX).min(command.until_us - KILL_BEFORE_US.min(command.until_us))
        {
            command.ends_by_us.get_or_insert(now);
            command.kill();
            kin::kill_children_but(command.group);
            return self.bury_at_last();
        }
        if now + command.warning_us >= command.until_us {
            let until_us = command.until_us;
            command.end(until_us);
        }
    }

    /// It has been killed, so it ends; how, is asked before it is forgotten.
    fn bury_at_last(&mut self) {
        while let Some(command) = &self.command {
            _ = waitid(WaitId::Pid(command.group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            self.bury();
        }
    }

    fn report(&mut self, report: &Report) {
        self.say(&Said::Report(report.clone()));
    }

    fn say(&mut self, said: &Said) {
        order::put(&mut self.leaving, said).expect("a sentence fits into a frame");
    }

    /// Says what fits into the socket. The rest waits: a frozen supervisor must not stop the companion.
    fn speak(&mut self) -> io::Result<()> {
        while !self.leaving.is_empty() {
            match self.supervisor.write(&self.leaving) {
                Ok(length) => self.leaving.advance(length),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The next read tells that the supervisor is gone.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => self.leaving.clear(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Running {
    fn due_us(&self) -> u64 {
        let kill_us = self.until_us.saturating_sub(KILL_BEFORE_US);
        match self.ends_by_us {
            Some(ends_by_us) => ends_by_us.min(kill_us),
            None => self.until_us.saturating_sub(self.warning_us).min(kill_us),
        }
    }

    /// It is asked to end, once.
    fn end(&mut self, by_us: u64) {
        if self.ends_by_us.is_none() {
            self.signal(Signal::TERM);
            self.ends_by_us = Some(by_us);
        }
    }

    /// At one stroke, where that is possible.
    fn kill(&self) {
        self.signal(Signal::KILL);
        if let Some(cage) = &self.cage {
            cage.kill();
        }
    }

    /// To the whole group. Its first process has not been taken leave of, so the number is nobody else's.
    fn signal(&self, signal: Signal) {
        _ = kill_process_group(self.group, signal);
    }
}

/// It prints where the supervisor prints, and reads nothing.
fn spawn(start: &Start, cage: Option<&Cage>) -> io::Result<Pid> {
    let (program, arguments) = start.arguments.split_first().ok_or(ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments).envs(start.environment.iter().map(|(name, value)| (name, value)));
    command.process_group(0).stdin(Stdio::null());
    if let Some(cage) = cage {
        command.env(CAGE, cage.folder());
    }
    Ok(Pid::from_child(&command.spawn()?))
}
