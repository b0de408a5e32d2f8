//! Runs what a worker is given: commands through a [companion](crate::companion), handlers inside this process.
//!
//! A companion stands still while a new process finds its program, so a worker with several slots has several of them. The
//! caller says every now and then that it is well ([`Executor::renew`]); if it does not, it hangs, and the companion
//! kills what runs. What has ended comes back through a channel. The channel closes when there is no companion and none can
//! be started: a worker without one must stop.

mod environment;
mod kinds;
mod user;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use primus_core::farm::Assignment;
use primus_core::ledger::{CommandLine, Held, Outcome, Report, Tail, Verdict, Work};
use rustix::process::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

pub use self::kinds::{Answer, Call, Kinds};
pub use self::user::User;
use crate::clock::now_us;
pub use crate::companion::limited::Limits;
use crate::companion::order::{self, Cause, End, INPUT_PIECE_LEN, Order, Rules, Start};
use crate::companion::{kin, wall_clock_us};
use crate::outputs::{self, Outputs};
use crate::umask;

/// How much a command may read.
pub const INPUT_LEN_MAX: usize = 1 << 20;
/// How long arguments and environment of a command may be together; a frame must hold them.
const ARGUMENTS_LEN_MAX: usize = 768 << 10;
/// A companion that dies this early, that often in a row, will not do better the next time.
const EARLY: Duration = Duration::from_secs(1);
const EARLY_DEATHS_MAX: u32 = 3;
/// How many orders leave in one write.
const ORDERS_AT_ONCE: usize = 64;

/// How tasks run here.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The worker's name, for results.
    pub worker: String,
    /// The worker's folder; outputs are in its folder [`Settings::OUTPUTS`].
    pub directory: PathBuf,
    /// Where commands run if nothing else is said.
    pub home: PathBuf,
    /// The programs that may run, as submitted; `*` stands for all.
    pub allow: Vec<String>,
    /// Variables that load code and that a submission may set all the same, where not all programs are allowed. A star at the
    /// end stands for anything.
    pub allow_env: Vec<String>,
    /// Variables of the worker that tasks get, beside `PATH`, `HOME`, `LANG`, `TZ` and `TMPDIR`. A star at the end stands for
    /// anything, but none that begins with `PRIMUS_` is passed on.
    pub pass: Vec<String>,
    /// How much each process of a task may use.
    pub limits: Limits,
    /// Who tasks run as, if not the worker's own user. Only the superuser can do that.
    pub user: Option<User>,
    /// How much of a task's output is kept.
    pub output_len_max: u64,
    /// How much of all outputs is kept.
    pub outputs_len_max: u64,
    /// How long commands go on when the worker does not renew. It must end before others are given the worker's tasks.
    pub patience: Duration,
    /// How long a command that took too long has between TERM and KILL.
    pub grace: Duration,
    /// The program that calls [`companion::run`](crate::companion::run), and its arguments. A worker that allows no command needs
    /// none.
    pub companion: Option<(PathBuf, Vec<OsString>)>,
    /// The program that calls [`companion::limited::exec`](crate::companion::limited::exec) with what follows, and its arguments;
    /// without limits none is needed.
    pub exec: Option<(PathBuf, Vec<OsString>)>,
    /// How many of them share the commands.
    pub companions: usize,
}

impl Settings {
    /// The folder of the outputs inside the worker's folder.
    pub const OUTPUTS: &str = "outputs";

    /// The usual settings.
    #[must_use]
    pub fn new(worker: &str, directory: PathBuf, companion: impl Into<Option<(PathBuf, Vec<OsString>)>>) -> Self {
        Self {
            worker: worker.to_owned(),
            home: directory.clone(),
            directory,
            allow: Vec::new(),
            allow_env: Vec::new(),
            pass: Vec::new(),
            limits: Limits::default(),
            user: None,
            output_len_max: 10 << 20,
            outputs_len_max: 1 << 30,
            patience: Duration::from_secs(1),
            grace: Duration::from_secs(5),
            companion: companion.into(),
            exec: None,
            companions: 1,
        }
    }
}

/// What became of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It has a result.
    Finished(Report),
    /// The companion killed it because the worker had not renewed in time, or was killed itself. That is no fault of the
    /// task and no result of it: it has to run again.
    Abandoned(Held),
}

/// Runs tasks. Dropping it kills what runs; the channel closes when nothing is left.
#[derive(Debug)]
pub struct Executor {
    shared: Arc<Shared>,
    kinds: Kinds,
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// To each companion; to none once the executor is dropped.
    orders: Vec<mpsc::UnboundedSender<Order>>,
    /// How many companions there are.
    companions: usize,
    /// Nothing once there is no companion any more, or one cannot be kept.
    tell: Option<mpsc::UnboundedSender<Ended>>,
    last_number: u64,
    /// Attempts that companions have, by their numbers.
    commands: BTreeMap<u64, Running>,
    /// Attempts that handlers have.
    calls: BTreeMap<Held, AbortHandle>,
    outputs: Outputs,
}

#[derive(Debug, Clone, Copy)]
struct Running {
    held: Held,
    companion: usize,
    is_wanted: bool,
}

impl Executor {
    /// Starts the companions. To be called inside a tokio runtime with time and io.
    ///
    /// # Errors
    /// If there is no companion to be had, the folder for outputs cannot be made, there are limits and nothing that takes them, or
    /// commands are allowed and nothing owns them.
    pub fn start(settings: Settings, kinds: Kinds) -> io::Result<(Self, mpsc::UnboundedReceiver<Ended>)> {
        if !settings.limits.is_none() && settings.exec.is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "limits need a program that takes them"));
        }
        if !settings.allow.is_empty() && settings.companion.is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "commands need a companion that owns them"));
        }
        if let Some((program, _)) = settings.companion.as_ref().filter(|(program, _)| program.is_absolute()) {
            // The companions themselves start later; that there is none is said now.
            std::fs::metadata(program)?;
        }
        let outputs = Outputs::open(settings.directory.join(Settings::OUTPUTS), settings.outputs_len_max)?;
        let count = if settings.companion.is_some() { settings.companions.max(1) } else { 0 };
        let (orders, queues): (Vec<_>, Vec<_>) = (0..count).map(|_| mpsc::unbounded_channel()).unzip();
        let (tell, ended) = mpsc::unbounded_channel();
        let state = State {
            orders,
            companions: count,
            tell: Some(tell),
            last_number: 0,
            commands: BTreeMap::new(),
            calls: BTreeMap::new(),
            outputs,
        };
        let shared = Arc::new(Shared { settings, state: Mutex::new(state) });
        for (which, queue) in queues.into_iter().enumerate() {
            let starting = Companion::start(&shared);
            tokio::spawn(supervise(Arc::clone(&shared), which, queue, starting));
        }
        Ok((Self { shared, kinds }, ended))
    }

    /// Begins with this. Its end comes through the channel, in any case.
    pub fn run(&self, assignment: Assignment) {
        let Assignment { held, work, argument, number, timeout_ms, .. } = assignment;
        let refusal = match work {
            Work::Command(command) => self.run_command(held, number, command, &argument, timeout_ms),
            Work::Kind { name, input } => self.call(&name, Call { held, argument, input }, timeout_ms),
        };
        if let Err(reason) = refusal {
            self.shared.finish(held, Facts::now(Verdict::Refused(reason)));
        }
    }

    /// Ends this at once; nothing more is heard of it.
    pub fn kill(&self, held: Held) {
        let mut state = self.shared.state();
        if let Some(call) = state.calls.remove(&held) {
            call.abort();
        }
        let found = state.commands.iter_mut().find(|(_, running)| running.held == held);
        if let Some((number, running)) = found {
            running.is_wanted = false;
            let (companion, order) = (running.companion, Order::Kill(*number));
            state.order(companion, order);
        }
    }

    /// The worker is well. To be said by its loop, several times within [`Settings::patience`].
    pub fn renew(&self) {
        let state = self.shared.state();
        for companion in 0..state.orders.len() {
            if state.load_of(companion) > 0 {
                state.order(companion, Order::Renew(now_us()));
            }
        }
    }

    fn run_command(
        &self,
        held: Held,
        index: u64,
        command: CommandLine,
        argument: &str,
        timeout_ms: Option<u64>,
    ) -> Result<(), String> {
        let arguments = command.arguments_for(argument);
        self.check(&arguments, &command)?;
        let mut state = self.shared.state();
        state.last_number += 1;
        let number = state.last_number;
        let companion = (0..state.orders.len()).min_by_key(|companion| state.load_of(*companion)).unwrap_or(0);
        state.commands.insert(number, Running { held, companion, is_wanted: true });
        for piece in command.stdin.chunks(INPUT_PIECE_LEN) {
            state.order(companion, Order::Input(number, piece.to_vec()));
        }
        let start = Start {
            number,
            sent_us: now_us(),
            arguments,
            environment: environment(held, index, command.environment),
            directory: command.directory,
            nice: command.nice,
            timeout_us: timeout_ms.map(|timeout| timeout.saturating_mul(1000)),
            output: outputs::stem(held),
        };
        state.order(companion, Order::Start(start));
        Ok(())
    }

    fn check(&self, arguments: &[String], command: &CommandLine) -> Result<(), String> {
        let program = arguments.first().ok_or("there is nothing to run: the command is empty")?;
        if !self.shared.settings.allow.iter().any(|allowed| allowed == "*" || allowed == program) {
            let worker = &self.shared.settings.worker;
            return Err(format!(
                "worker {worker} does not allow {program:?}: add it to its configuration, [worker] allow = [{program:?}], \
                 or allow all programs, [worker] allow = [\"*\"]"
            ));
        }
        self.check_variables(program, command)?;
        if command.stdin.len() > INPUT_LEN_MAX {
            return Err(format!("its input has {} bytes; {INPUT_LEN_MAX} are allowed", command.stdin.len()));
        }
        let length = arguments.iter().map(String::len).sum::<usize>()
            + command.environment.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        if length > ARGUMENTS_LEN_MAX {
            return Err(format!(
                "its arguments and environment have {length} bytes; {ARGUMENTS_LEN_MAX} are allowed"
            ));
        }
        Ok(())
    }

    /// A variable can make an allowed program run anything.
    fn check_variables(&self, program: &str, command: &CommandLine) -> Result<(), String> {
        let Settings { allow, allow_env, worker, .. } = &self.shared.settings;
        if allow.iter().any(|allowed| allowed == "*") {
            return Ok(());
        }
        let names = command.environment.iter().map(|(name, _)| name.as_str());
        match environment::loads_code(names, allow_env) {
            None => Ok(()),
            Some(name) => Err(format!(
                "worker {worker} does not allow the variable {name}, which can make {program:?} run other programs: add it to \
                 its configuration, [worker] allow_env = [{name:?}]"
            )),
        }
    }

    fn call(&self, name: &str, call: Call, timeout_ms: Option<u64>) -> Result<(), String> {
        let held = call.held;
        let work = self.kinds.call(name, call);
        let work =
            work.ok_or_else(|| format!("this worker has no kind {name:?}; it has {}", self.kinds.names()))?;
        if name == Kinds::NOOP {
            self.shared.finish(held, Facts::now(Verdict::Exited(0)));
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        // The lock is held until the call is listed, so that it cannot end before.
        let mut state = self.shared.state();
        let task = tokio::spawn(async move {
            let facts = answer(work, timeout_ms).await;
            if shared.state().calls.remove(&held).is_some() {
                shared.finish(held, facts);
            }
        });
        state.calls.insert(held, task.abort_handle());
        Ok(())
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.orders.clear();
        if state.companions == 0 {
            state.tell = None;
        }
        std::mem::take(&mut state.calls).into_values().for_each(|call| call.abort());
    }
}

/// Waits for a handler, but not for ever.
async fn answer(work: impl Future<Output = Answer> + Send + 'static, timeout_ms: Option<u64>) -> Facts {
    let (started_us, began) = (wall_clock_us(), Instant::now());
    // In a task of its own, because a handler may panic; the set ends it with whoever waits for it.
    let mut alone = JoinSet::new();
    alone.spawn(work);
    let limit = Duration::from_millis(timeout_ms.unwrap_or(u64::MAX));
    let (verdict, stdout, stderr) = match tokio::time::timeout(limit, alone.join_next()).await {
        Ok(Some(Ok(Ok(printed)))) => (Verdict::Exited(0), tail(printed), Tail::default()),
        Ok(Some(Ok(Err(complaint)))) => (Verdict::Exited(1), Tail::default(), tail(complaint.into_bytes())),
        Ok(Some(Err(panic))) => (Verdict::Exited(101), Tail::default(), tail(panic.to_string().into_bytes())),
        Ok(None) | Err(_) => (Verdict::TimedOut, Tail::default(), Tail::default()),
    };
    Facts { verdict, started_us, took_us: micros(began.elapsed()), stdout, stderr }
}

fn tail(mut bytes: Vec<u8>) -> Tail {
    let total = bytes.len() as u64;
    bytes.drain(..bytes.len().saturating_sub(Tail::LEN_MAX));
    Tail { total, bytes }
}

fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

/// What a command finds in its environment beside what it was submitted with.
fn environment(held: Held, index: u64, mut given: Vec<(String, String)>) -> Vec<(String, String)> {
    let own = [
        ("PRIMUS_TASK", held.task.to_string()),
        ("PRIMUS_INDEX", index.to_string()),
        ("PRIMUS_ATTEMPT", held.attempt.to_string()),
        ("PRIMUS_TERM", held.attempt.term.to_string()),
    ];
    given.extend(own.map(|(name, value)| (name.to_owned(), value)));
    given
}

/// All of an outcome but who and which.
struct Facts {
    verdict: Verdict,
    started_us: u64,
    took_us: u64,
    stdout: Tail,
    stderr: Tail,
}

impl Facts {
    fn now(verdict: Verdict) -> Self {
        let (stdout, stderr) = (Tail::default(), Tail::default());
        Self { verdict, started_us: wall_clock_us(), took_us: 0, stdout, stderr }
    }
}

impl State {
    fn order(&self, companion: usize, order: Order) {
        if let Some(orders) = self.orders.get(companion) {
            // Nobody listens after the channel to the worker has been closed, too.
            _ = orders.send(order);
        }
    }

    /// How many attempts this companion has.
    fn load_of(&self, companion: usize) -> usize {
        self.commands.values().filter(|running| running.companion == companion).count()
    }

    fn tell(&self, ended: Ended) {
        if let Some(tell) = &self.tell {
            // A worker that does not listen any more is about to end.
            _ = tell.send(ended);
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding this")
    }

    fn finish(&self, held: Held, facts: Facts) {
        let Facts { verdict, started_us, took_us, stdout, stderr } = facts;
        let worker = self.settings.worker.clone();
        let outcome = Outcome { attempt: held.attempt, worker, verdict, started_us, took_us, stdout, stderr };
        self.state().tell(Ended::Finished(Report { task: held.task, outcome }));
    }

    fn on_end(&self, end: End) {
        let mut state = self.state();
        let Some(Running { held, is_wanted, .. }) = state.commands.remove(&end.number) else { return };
        if end.kept > 0 {
            state.outputs.add(outputs::stem(held), end.kept);
        }
        let End { cause, started_us, took_us, stdout, stderr, .. } = end;
        match cause {
            _ if !is_wanted => {}
            Cause::Abandoned => state.tell(Ended::Abandoned(held)),
            Cause::Verdict(verdict) => {
                drop(state);
                self.finish(held, Facts { verdict, started_us, took_us, stdout, stderr });
            }
        }
    }

    /// A companion is dead, and so is all that it had. What it had not heard of yet is not told to the next one either.
    fn abandon_all(&self, companion: usize, queue: &mut mpsc::UnboundedReceiver<Order>) {
        let mut state = self.state();
        while queue.try_recv().is_ok() {}
        let had = state.commands.extract_if(.., |_, running| running.companion == companion);
        let lost: Vec<Running> = had.map(|(_, running)| running).filter(|running| running.is_wanted).collect();
        lost.into_iter().for_each(|running| state.tell(Ended::Abandoned(running.held)));
    }

    /// A companion is gone for good. That is the end if nobody wants it any more, or it cannot be kept.
    fn part(&self, over: Over) {
        let mut state = self.state();
        state.companions -= 1;
        if state.companions == 0 || over == Over::Companion {
            state.tell = None;
        }
    }
}

/// The companion's process and the socket to it.
struct Companion {
    process: Child,
    socket: UnixStream,
    started: Instant,
}

impl Companion {
    /// Starts one on a thread of its own: the system takes a moment, and links to servers need not wait for it.
    fn start(shared: &Arc<Shared>) -> JoinHandle<io::Result<Self>> {
        let shared = Arc::clone(shared);
        tokio::task::spawn_blocking(move || Self::spawn(&shared.settings))
    }

    fn spawn(settings: &Settings) -> io::Result<Self> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let no_companion = || io::Error::new(io::ErrorKind::InvalidInput, "this worker has no companion");
        let (program, arguments) = settings.companion.as_ref().ok_or_else(no_companion)?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&settings.home);
        // What the companion has, its tasks get.
        let home = settings.user.as_ref().map(|user| user.home.clone().into_os_string());
        command.env_clear().envs(environment::common(std::env::vars_os(), &settings.pass, home));
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
        let process = umask::as_before(|| command.spawn())?;
        Ok(Self { process, socket: UnixStream::from_std(ours)?, started: Instant::now() })
    }
}

/// Returns when the worker or the companion has had enough.
async fn talk(socket: &mut UnixStream, shared: &Shared, queue: &mut mpsc::UnboundedReceiver<Order>) -> Over {
    let (reading, writing) = socket.split();
    tokio::select! {
        // That the companion is gone is all that matters, not how it was noticed.
        _ = listen(reading, shared) => Over::Companion,
        over = speak(writing, shared, queue) => over.unwrap_or(Over::Companion),
    }
}

/// Who ended a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Worker,
    Companion,
}

async fn listen(mut reading: tokio::net::unix::ReadHalf<'_>, shared: &Shared) -> io::Result<()> {
    let mut arrived = BytesMut::new();
    while reading.read_buf(&mut arrived).await? > 0 {
        while let Some(end) = order::take(&mut arrived)? {
            shared.on_end(end);
        }
    }
    Ok(())
}

async fn speak(
    mut writing: tokio::net::unix::WriteHalf<'_>,
    shared: &Shared,
    queue: &mut mpsc::UnboundedReceiver<Order>,
) -> io::Result<Over> {
    let mut leaving = BytesMut::new();
    let mut orders = vec![Order::Begin(rules(&shared.settings))];
    loop {
        for order in orders.drain(..) {
            order::put(&mut leaving, &order).map_err(io::Error::other)?;
        }
        writing.write_all_buf(&mut leaving).await?;
        if queue.recv_many(&mut orders, ORDERS_AT_ONCE).await == 0 {
            return Ok(Over::Worker);
        }
    }
}

fn rules(settings: &Settings) -> Rules {
    Rules {
        patience_us: micros(settings.patience),
        grace_us: micros(settings.grace),
        outputs: settings.directory.join(Settings::OUTPUTS),
        output_len_max: settings.output_len_max,
        limits: settings.limits,
        exec: settings.exec.clone(),
        user: settings.user.as_ref().map(|user| (user.uid, user.gid)),
    }
}

/// Keeps a companion there, until the worker wants none or there is none to be had.
async fn supervise(
    shared: Arc<Shared>,
    which: usize,
    mut queue: mpsc::UnboundedReceiver<Order>,
    mut starting: JoinHandle<io::Result<Companion>>,
) {
    let mut early_deaths = 0;
    loop {
        let Ok(Ok(Companion { process, mut socket, started })) = starting.await else {
            return shared.part(Over::Companion);
        };
        let over = talk(&mut socket, &shared, &mut queue).await;
        drop(socket);
        // What a dead companion left is killed before the worker hears of it.
        let cleaned = tokio::task::spawn_blocking(move || clean(process, over)).await;
        shared.abandon_all(which, &mut queue);
        early_deaths = if started.elapsed() < EARLY { early_deaths + 1 } else { 0 };
        let goes_on = over == Over::Companion && cleaned.is_ok() && early_deaths < EARLY_DEATHS_MAX;
        if !goes_on {
            return shared.part(over);
        }
        starting = Companion::start(&shared);
    }
}

/// Waits for the companion's end, and kills what it left if it did not end well.
fn clean(mut process: Child, over: Over) {
    if over == Over::Companion {
        // It may have said nonsense and still be there.
        _ = process.kill();
    }
    let session = Pid::from_child(&process);
    _ = process.wait();
    kin::kill_session(session);
}
