//! A command that runs under a lease, seen from its supervisor: it belongs to a [companion](crate::companion::guarded), so that
//! a frozen or killed supervisor cannot leave it running. A frozen companion cannot either: `deadline.rs` ends both in time.
//! Only if both are stopped within one lease, and the command is not, nothing on this host can end it.

mod deadline;

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command};

use bytes::BytesMut;
use rustix::process::{Pid, set_child_subreaper};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use self::deadline::Deadline;
use crate::companion::cage::Cage;
pub use crate::companion::guarded::Report;
use crate::companion::guarded::{Order, Said, Start};
use crate::companion::{kin, order};
use crate::umask;

const SESSION: &str = "PRIMUS_SESSION";

/// What to run, and how its companion is started.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The program that calls [`companion::guarded::run`](crate::companion::guarded::run), and its arguments.
    pub companion: (PathBuf, Vec<OsString>),
    /// The program that calls [`companion::guarded::exec`](crate::companion::guarded::exec) with what follows, and its
    /// arguments.
    pub exec: (PathBuf, Vec<OsString>),
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// Added to its environment.
    pub environment: Vec<(String, String)>,
    /// Marks what the command starts, by `PRIMUS_SESSION` in its environment. To be unique on the host.
    pub session: u64,
}

impl Settings {
    /// What is in the environment of everything that the command starts.
    fn mark(&self) -> String {
        format!("{SESSION}={:x}", self.session)
    }
}

/// A companion and its command. Dropping it kills both.
#[derive(Debug)]
pub struct Guarded {
    settings: Settings,
    process: Child,
    deadline: Deadline,
    reading: OwnedReadHalf,
    writing: OwnedWriteHalf,
    arrived: BytesMut,
}

impl Guarded {
    /// Starts the companion; the command is not started yet. To be called inside a tokio runtime with io.
    ///
    /// # Errors
    /// If there is no companion to be had.
    pub fn new(settings: Settings) -> io::Result<Self> {
        // Should the companion be killed, what its command has started comes here and is killed here.
        set_child_subreaper(Some(rustix::process::getpid()))?;
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (program, arguments) = &settings.companion;
        let mut command = Command::new(program);
        command.args(arguments).stdin(OwnedFd::from(theirs));
        let process = umask::as_before(|| command.spawn())?;
        let deadline = Deadline::new(Pid::from_child(&process), settings.mark())?;
        let (reading, writing) = UnixStream::from_std(ours)?.into_split();
        Ok(Self { settings, process, deadline, reading, writing, arrived: BytesMut::new() })
    }

    /// The companion's process.
    #[must_use]
    pub fn companion(&self) -> u32 {
        self.process.id()
    }

    /// Starts the command. It is asked to end a while before its time is over, and killed in time.
    ///
    /// # Errors
    /// If the companion is gone.
    pub async fn start(&mut self, until_us: u64, warning_us: u64, token: u64) -> io::Result<()> {
        let (program, first) = &self.settings.exec;
        let words = std::iter::once(program.clone().into_os_string()).chain(first.iter().cloned());
        let arguments = words.chain(self.settings.command.iter().cloned()).collect();
        let mut environment = self.settings.environment.clone();
        environment.push(("PRIMUS_TERM".to_owned(), token.to_string()));
        environment.push((SESSION.to_owned(), format!("{:x}", self.settings.session)));
        self.deadline.extend(until_us);
        self.order(&Order::Start(Start { arguments, environment, until_us, warning_us })).await
    }

    /// It may go on until then.
    ///
    /// # Errors
    /// If the companion is gone.
    pub async fn renew(&mut self, until_us: u64) -> io::Result<()> {
        self.order(&Order::Renew(until_us)).await
    }

    /// It has this long to end.
    ///
    /// # Errors
    /// If the companion is gone.
    pub async fn end(&mut self, grace_us: u64) -> io::Result<()> {
        self.order(&Order::End(grace_us)).await
    }

    async fn order(&mut self, order: &Order) -> io::Result<()> {
        let mut leaving = BytesMut::new();
        order::put(&mut leaving, order).map_err(io::Error::other)?;
        self.writing.write_all_buf(&mut leaving).await
    }

    /// What has happened. May be dropped and called again without losing anything.
    ///
    /// # Errors
    /// If the companion is gone.
    pub async fn report(&mut self) -> io::Result<Report> {
        loop {
            while let Some(said) = order::take(&mut self.arrived)? {
                match said {
                    Said::Renewed(until_us) => self.deadline.extend(until_us),
                    Said::Report(report) => {
                        if !matches!(report, Report::Started { .. }) {
                            self.deadline.lift();
                        }
                        return Ok(report);
                    }
                }
            }
            if self.reading.read_buf(&mut self.arrived).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Kills the companion and all that the command has started; returns when nothing is left.
    pub fn kill(&mut self) {
        self.deadline.leave();
        _ = self.process.kill();
        _ = self.process.wait();
        let session = Pid::from_child(&self.process);
        if let Some(cage) = Cage::of(session) {
            cage.kill_and_bury();
        }
        kin::kill_session(session);
        kin::bury_session(session);
        // What has left the session comes here, because this process adopts it, and still has its mark.
        kin::kill_children_with(&self.settings.mark());
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.kill();
    }
}
