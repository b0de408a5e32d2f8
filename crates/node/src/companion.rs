//! The companion: the small process that owns a worker's commands and kills them when the worker dies or hangs.
//!
//! It is our own program, started again by the [executor](crate::executor), with one end of a socket as its standard input.
//! Every command leads a process group of its own. When the socket closes, the worker is dead: all groups are killed at
//! once. When the worker has not said for a while that it is well, it hangs, and others may be given its tasks: all groups
//! are killed as well, by a clock that does not stop while the host sleeps. So no copy of a task runs beside its rerun.
//!
//! One thread, one `poll`: nothing here waits for a task, a disk that is slow excepted. [`guarded`] is another one, for commands
//! that run under a lease.

pub(crate) mod order;

pub(crate) mod cage;
mod capture;
mod child;
pub mod guarded;
pub(crate) mod kin;
pub mod limited;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Buf, BytesMut};
use primus_core::ledger::{Tail, Verdict};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process_group, set_child_subreaper,
    set_parent_process_death_signal, setsid, wait, waitid,
};
use rustix::thread::set_no_new_privs;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use self::capture::Capture;
use self::order::{Cause, End, Order, Rules, Start};
use crate::clock::now_us;

const BUFFER_LEN: usize = 64 << 10;

/// Runs until the worker at the other end of standard input is gone, and no process of its tasks is left.
///
/// # Errors
/// If standard input is no socket of a worker, or the system refuses what this needs.
pub fn run() -> io::Result<()> {
    let mut companion = Companion::new()?;
    let ended = companion.serve();
    companion.kill_all();
    ended
}

struct Companion {
    worker: UnixStream,
    /// A byte arrives when a child has ended.
    deaths: UnixStream,
    arrived: BytesMut,
    leaving: BytesMut,
    rules: Rules,
    inputs: BTreeMap<u64, Vec<u8>>,
    tasks: BTreeMap<u64, Task>,
    /// Until then the worker is taken to be well.
    renewed_until_us: u64,
    buffer: Vec<u8>,
}

struct Task {
    group: Pid,
    started_us: u64,
    began_us: u64,
    fate: Fate,
    stdout: Capture,
    stderr: Capture,
    /// How much more of its output may be kept.
    room: u64,
}

/// What becomes of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Runs,
    /// It gets TERM at that time.
    RunsUntil(u64),
    /// It has got TERM, and gets KILL at that time.
    Overdue(u64),
    /// It took too long, and has got KILL.
    Killed,
    /// It has got KILL, and nobody wants its result.
    Abandoned,
}

impl Companion {
    fn new() -> io::Result<Self> {
        // Somebody who types its name has a terminal there, which must stay as it is.
        rustix::net::sockopt::socket_type(io::stdin())?;
        // A session of its own: what a terminal sends to the worker's group does not end the companion, and should the
        // companion be killed, the worker finds its tasks by the session. It fails only for one that leads one already.
        _ = setsid();
        // Should the worker be killed while this process is stopped, the system wakes it up: it ends the tasks then.
        set_parent_process_death_signal(Some(Signal::CONT))?;
        set_child_subreaper(Some(rustix::process::getpid()))?;
        // Whatever runs here, it gets no more rights than it has: no program that belongs to another user lends it that one's.
        set_no_new_privs(true)?;
        // These are meant for the worker, and its end is noticed. They are not ignored: children would inherit that.
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
        }
        let (deaths, bell) = UnixStream::pair()?;
        deaths.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGCHLD, bell)?;
        let worker = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        worker.set_nonblocking(true)?;
        Ok(Self {
            worker,
            deaths,
            arrived: BytesMut::new(),
            leaving: BytesMut::new(),
            rules: Rules::default(),
            inputs: BTreeMap::new(),
            tasks: BTreeMap::new(),
            renewed_until_us: 0,
            buffer: vec![0; BUFFER_LEN],
        })
    }

    /// Turns round and round until the worker is gone.
    fn serve(&mut self) -> io::Result<()> {
        loop {
            let ready = self.wait()?;
            // Taken before the worker is heard: whatever it said until then counts when its time is judged.
            let now = now_us();
            if ready.worker && !self.hear()? {
                return Ok(());
            }
            for number in ready.outputs {
                if let Some(task) = self.tasks.get_mut(&number) {
                    task.read(&mut self.buffer, now);
                }
            }
            if ready.deaths {
                while matches!((&self.deaths).read(&mut self.buffer), Ok(length) if length > 0) {}
                self.bury(now);
            }
            self.check_times(now);
            self.speak()?;
        }
    }

    /// Waits until something happens or is due.
    fn wait(&self) -> io::Result<Ready> {
        let wanted = if self.leaving.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        let mut waiting = vec![PollFd::new(&self.worker, wanted), PollFd::new(&self.deaths, PollFlags::IN)];
        let mut owners = Vec::new();
        for (number, task) in &self.tasks {
            for pipe in [task.stdout.pipe(), task.stderr.pipe()].into_iter().flatten() {
                waiting.push(PollFd::from_borrowed_fd(pipe, PollFlags::IN));
                owners.push(*number);
            }
        }
        let timeout = self.next_due_us().map(|due| timespec(due.saturating_sub(now_us())));
        match poll(&mut waiting, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |descriptor: &PollFd<'_>| !descriptor.revents().is_empty();
        let pipes = waiting[2..].iter().zip(owners);
        Ok(Ready {
            worker: is_ready(&waiting[0]),
            deaths: is_ready(&waiting[1]),
            outputs: pipes.filter(|(pipe, _)| is_ready(pipe)).map(|(_, number)| number).collect(),
        })
    }

    fn next_due_us(&self) -> Option<u64> {
        let renewal = (!self.tasks.is_empty()).then_some(self.renewed_until_us);
        self.tasks.values().filter_map(Task::due_us).chain(renewal).min()
    }

    /// Carries out everything that the worker has said; false if the worker is gone.
    fn hear(&mut self) -> io::Result<bool> {
        loop {
            let length = match self.worker.read(&mut self.buffer) {
                Ok(0) => return Ok(false),
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                // The worker died with unread words of ours.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(false),
                Err(error) => return Err(error),
            };
            self.arrived.extend_from_slice(&self.buffer[..length]);
            while let Some(order) = order::take(&mut self.arrived)? {
                self.obey(order);
            }
            if length < BUFFER_LEN {
                return Ok(true);
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Begin(rules) => self.rules = rules,
            Order::Input(number, piece) => self.inputs.entry(number).or_default().extend(piece),
            Order::Start(start) => {
                self.renew(start.sent_us);
                self.start(&start);
            }
            Order::Kill(number) => {
                if let Some(task) = self.tasks.get_mut(&number) {
                    task.abandon();
                }
            }
            Order::Renew(sent_us) => self.renew(sent_us),
        }
    }

    /// What counts is when the worker was well, not when its word was read: a word that comes after a gap shows that the
    /// worker hung, and what ran then may have been given to others.
    fn renew(&mut self, sent_us: u64) {
        if sent_us > self.renewed_until_us && !self.tasks.is_empty() {
            self.kill_all();
        }
        self.renewed_until_us = self.renewed_until_us.max(sent_us + self.rules.patience_us);
    }

    fn start(&mut self, start: &Start) {
        let input = self.inputs.remove(&start.number).unwrap_or_default();
        let (started_us, began_us) = (wall_clock_us(), now_us());
        let begun = child::spawn(start, &input, &self.rules).and_then(|child| {
            let path = |stream: &str| self.rules.outputs.join(format!("{}.{stream}", start.output));
            let stdout = Capture::new(child.stdout, path("stdout")).map_err(|error| error.to_string());
            let stderr = Capture::new(child.stderr, path("stderr")).map_err(|error| error.to_string());
            Ok((child.group, stdout?, stderr?))
        });
        match begun {
            Ok((group, stdout, stderr)) => {
                let fate = start
                    .timeout_us
                    .map_or(Fate::Runs, |timeout| Fate::RunsUntil(began_us.saturating_add(timeout)));
                let room = self.rules.output_len_max;
                self.tasks.insert(start.number, Task { group, started_us, began_us, fate, stdout, stderr, room });
            }
            Err(reason) => self.report(&End {
                number: start.number,
                cause: Cause::Verdict(Verdict::Refused(reason)),
                started_us,
                took_us: 0,
                stdout: Tail::default(),
                stderr: Tail::default(),
                kept: 0,
            }),
        }
    }

    /// Takes leave of the children that have ended. A command ends with its first process: what it left in its group is
    /// killed.
    fn bury(&mut self, now: u64) {
        let ended = self.tasks.iter().filter_map(|(number, task)| Some((*number, task.ended()?)));
        let ended: Vec<(u64, Verdict)> = ended.collect();
        for (number, verdict) in ended {
            self.end(number, verdict, now);
        }
        // Orphans that this process has adopted, and tasks that ended this very moment.
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let number = self.tasks.iter().find(|(_, task)| task.group == pid).map(|(number, _)| *number);
            if let Some(number) = number {
                self.end(number, verdict(status.exit_status(), status.terminating_signal()), now);
            }
        }
    }

    fn end(&mut self, number: u64, verdict: Verdict, now: u64) {
        if let Some(task) = self.tasks.remove(&number) {
            task.signal(Signal::KILL);
            _ = waitid(WaitId::Pid(task.group), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
            let end = task.finish(number, verdict, &mut self.buffer, now);
            self.report(&end);
        }
    }

    fn check_times(&mut self, now: u64) {
        if now >= self.renewed_until_us && !self.tasks.is_empty() {
            self.kill_all();
        }
        for task in self.tasks.values_mut() {
            task.check_time(now, self.rules.grace_us);
        }
    }

    /// Kills all tasks, and what has left their groups; returns when no process is left.
    fn kill_all(&mut self) {
        self.tasks.values_mut().for_each(Task::abandon);
        kin::kill_children();
        for (number, task) in std::mem::take(&mut self.tasks) {
            let end = task.finish(number, Verdict::Lost, &mut self.buffer, now_us());
            self.report(&end);
        }
    }

    fn report(&mut self, end: &End) {
        order::put(&mut self.leaving, end).expect("two tails and a sentence fit into a frame");
    }

    /// Says what fits into the socket. The rest waits: a frozen worker must not stop the companion.
    fn speak(&mut self) -> io::Result<()> {
        while !self.leaving.is_empty() {
            match self.worker.write(&self.leaving) {
                Ok(length) => self.leaving.advance(length),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The next read tells that the worker is gone.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => self.leaving.clear(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

struct Ready {
    worker: bool,
    deaths: bool,
    /// The tasks that have printed something.
    outputs: Vec<u64>,
}

impl Task {
    fn read(&mut self, buffer: &mut [u8], now: u64) {
        self.stdout.read(buffer, &mut self.room, now);
        self.stderr.read(buffer, &mut self.room, now);
    }

    fn due_us(&self) -> Option<u64> {
        let end = match self.fate {
            Fate::RunsUntil(at) | Fate::Overdue(at) => Some(at),
            Fate::Runs | Fate::Killed | Fate::Abandoned => None,
        };
        [end, self.stdout.shown_at_us(), self.stderr.shown_at_us()].into_iter().flatten().min()
    }

    fn check_time(&mut self, now: u64, grace_us: u64) {
        self.stdout.show(&mut self.room, now);
        self.stderr.show(&mut self.room, now);
        match self.fate {
            Fate::RunsUntil(at) if at <= now => {
                self.signal(Signal::TERM);
                self.fate = Fate::Overdue(now + grace_us);
            }
            Fate::Overdue(at) if at <= now => {
                self.signal(Signal::KILL);
                self.fate = Fate::Killed;
            }
            _ => {}
        }
    }

    fn abandon(&mut self) {
        if self.fate != Fate::Abandoned {
            self.signal(Signal::KILL);
            self.fate = Fate::Abandoned;
        }
    }

    /// To the whole group. Its first process has not been taken leave of, so the number is nobody else's.
    fn signal(&self, signal: Signal) {
        _ = kill_process_group(self.group, signal);
    }

    /// How its first process ended, if it has. It stays a zombie until it is buried.
    fn ended(&self) -> Option<Verdict> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.group), look).ok().flatten()?;
        Some(verdict(status.exit_status(), status.terminating_signal()))
    }

    /// The last words about it.
    fn finish(mut self, number: u64, verdict: Verdict, buffer: &mut [u8], now: u64) -> End {
        let (stdout, kept_stdout) = self.stdout.finish(buffer, &mut self.room, now);
        let (stderr, kept_stderr) = self.stderr.finish(buffer, &mut self.room, now);
        let cause = match self.fate {
            Fate::Abandoned => Cause::Abandoned,
            Fate::Overdue(_) | Fate::Killed => Cause::Verdict(Verdict::TimedOut),
            Fate::Runs | Fate::RunsUntil(_) => Cause::Verdict(verdict),
        };
        let (started_us, took_us) = (self.started_us, now.saturating_sub(self.began_us));
        End { number, cause, started_us, took_us, stdout, stderr, kept: kept_stdout + kept_stderr }
    }
}

fn verdict(code: Option<i32>, signal: Option<i32>) -> Verdict {
    let byte = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
    match (code, signal) {
        (Some(code), _) => Verdict::Exited(byte(code)),
        (None, signal) => Verdict::Signalled(signal.map_or(0, byte)),
    }
}

fn timespec(length_us: u64) -> Timespec {
    // Rounded up: waking early would only mean to wait again.
    Timespec::try_from(Duration::from_micros(length_us.saturating_add(1)))
        .unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 })
}

/// Microseconds since 1970.
pub(crate) fn wall_clock_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
