//! Hooks: a command that a server runs whenever a server begins to lead.
//!
//! They have a thread of their own: a hook that hangs, or whose program lies on a slow disk, holds up neither the server nor
//! its API. One runs at a time, in the order of the events, for a limited time; no shell is involved. How it ended is an
//! event itself. The process that a hook starts is not reaped before its group has been told everything: until then no
//! stranger can get its number.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::pending;
use std::io::{self, ErrorKind, PipeReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::pin::pin;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use primus_core::ServerId;
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::events::{Event, History, Kind, milliseconds};
use crate::meters::Meters;
use crate::umask;

/// What it is called in events: after those that it runs for.
const LEADER_CHANGED: &str = "leader_changed";
/// How many events may wait while a hook runs. Then the oldest goes: of many changes the last ones matter.
const WAITING_MAX: usize = 100;
/// How much of what a hook printed is kept: the end of it.
const OUTPUT_LEN_MAX: usize = 4096;
/// How much is read after it has ended. More can only come from processes that it left behind.
const LATE_LEN_MAX: usize = 1 << 20;
/// How long a hook that took too long may take to end by itself.
const GRACE: Duration = Duration::from_secs(1);

/// What is run, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// How long it may take.
    pub timeout: Duration,
}

/// Runs this hook for every change of the leader that this server notes, as long as the process lives.
///
/// # Panics
/// If the system gives no thread.
pub fn start(hook: Hook, farm: String, server: ServerId, history: Arc<History>, meters: Arc<Meters>) {
    let runner = Runner { hook, farm, server, history, meters };
    let running = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("the system gives a runtime").block_on(runner.run());
    };
    std::thread::Builder::new().name("hooks".to_owned()).spawn(running).expect("the system gives a thread");
}

/// How a hook ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ending {
    Exited(ExitStatus),
    /// It took too long and was killed.
    TimedOut,
    /// It could not be started, or not be watched, for this reason.
    NotStarted(String),
    /// Too many waited.
    Dropped,
}

impl Ending {
    /// In one word, as metrics and events say it.
    fn outcome(&self) -> &'static str {
        match self {
            Self::Exited(status) if status.success() => "done",
            Self::Exited(_) => "failed",
            Self::TimedOut => "timed_out",
            Self::NotStarted(_) => "not_started",
            Self::Dropped => "dropped",
        }
    }

    fn status(&self) -> Option<ExitStatus> {
        if let Self::Exited(status) = self { Some(*status) } else { None }
    }

    fn error(&self) -> Option<String> {
        match self {
            Self::NotStarted(reason) => Some(reason.clone()),
            Self::Dropped => Some(format!("more than {WAITING_MAX} waited")),
            Self::Exited(_) | Self::TimedOut => None,
        }
    }
}

struct Runner {
    hook: Hook,
    farm: String,
    server: ServerId,
    history: Arc<History>,
    meters: Arc<Meters>,
}

impl Runner {
    async fn run(self) {
        let mut newest = self.history.newest();
        let mut waiting = Waiting::default();
        while newest.wait_for(|newest| *newest > waiting.last).await.is_ok() {
            self.collect(&mut waiting);
            while let Some(event) = waiting.events.pop_front() {
                let mut running = pin!(self.run_for(&event));
                loop {
                    tokio::select! {
                        () = &mut running => break,
                        Ok(_) = newest.wait_for(|newest| *newest > waiting.last) => {}
                    }
                    self.collect(&mut waiting);
                }
            }
        }
    }

    /// Notes what has happened meanwhile.
    fn collect(&self, waiting: &mut Waiting) {
        for dropped in waiting.add(self.history.after(waiting.last)) {
            self.tell(dropped.index, &Ending::Dropped, Duration::ZERO, String::new());
        }
    }

    async fn run_for(&self, event: &Event) {
        let began = Instant::now();
        let (ending, output) = match Running::start(self.command(event), event) {
            Ok(mut running) => (running.end(self.hook.timeout).await, running.output.text()),
            Err(error) => (Ending::NotStarted(self.reason(&error)), String::new()),
        };
        self.tell(event.index, &ending, began.elapsed(), output);
    }

    fn command(&self, event: &Event) -> Command {
        let (program, arguments) =
            self.hook.command.split_first().expect("the settings check that it is not empty");
        let mut command = Command::new(program);
        // A hook is the operator's own program and keeps the server's environment, but not by accident what opens the API.
        command.args(arguments).process_group(0).env_remove("PRIMUS_TOKEN").env_remove("PRIMUS_JOIN");
        command.env("PRIMUS_FARM", &self.farm).env("PRIMUS_SERVER", self.server.to_string());
        if let Kind::LeaderChanged { leader, term, reason, .. } = event.kind {
            command.env("PRIMUS_LEADER", leader.to_string()).env("PRIMUS_TERM", term.to_string());
            command.env("PRIMUS_REASON", reason);
        }
        command
    }

    fn reason(&self, error: &io::Error) -> String {
        let program = self.hook.command.first().map_or("", String::as_str);
        match error.kind() {
            ErrorKind::NotFound => format!("program {program:?} was not found"),
            ErrorKind::PermissionDenied => format!("{program:?} may not be run: look at its permissions"),
            _ => format!("{program:?} could not be started: {error}"),
        }
    }

    fn tell(&self, event: u64, ending: &Ending, took: Duration, output: String) {
        self.meters.hooks.add(ending.outcome());
        self.history.add(Kind::HookEnded {
            hook: LEADER_CHANGED,
            event,
            outcome: ending.outcome(),
            code: ending.status().and_then(|status| status.code()),
            signal: ending.status().and_then(|status| status.signal()),
            error: ending.error(),
            took_ms: milliseconds(took),
            output,
        });
    }
}

/// Events for which the hook has not run yet.
#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Event>,
    /// The last event of any kind that was looked at.
    last: u64,
}

impl Waiting {
    /// Takes what concerns hooks; gives back what has to go.
    fn add(&mut self, events: Vec<Event>) -> Vec<Event> {
        self.last = events.last().map_or(self.last, |event| event.index);
        self.events.extend(events.into_iter().filter(|event| matches!(event.kind, Kind::LeaderChanged { .. })));
        let too_many = self.events.len().saturating_sub(WAITING_MAX);
        self.events.drain(..too_many).collect()
    }
}

/// A hook that runs, in a process group that has its first process's number.
struct Running {
    child: Child,
    /// Waits for the end of that process, and does not reap it.
    end: JoinHandle<()>,
    output: Output,
}

impl Running {
    fn start(mut command: Command, event: &Event) -> io::Result<Self> {
        let (output, printed) = io::pipe()?;
        let output = Output { pipe: pipe::Receiver::from_owned_fd(output.into())?, last: Vec::new() };
        command.stdin(input(event)?).stdout(printed.try_clone()?).stderr(printed);
        let child = umask::as_before(|| command.spawn())?;
        let process = WaitId::Pid(Pid::from_child(&child));
        let end = spawn_blocking(move || {
            _ = retry_on_intr(|| waitid(process.clone(), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT));
        });
        // The command, which ends here, holds our ends of its pipes: otherwise the output would have no end.
        Ok(Self { child, end, output })
    }

    /// Waits until it has ended, or has had enough time.
    async fn end(&mut self, time: Duration) -> Ending {
        let is_over = tokio::select! {
            () = completed(&mut self.end) => true,
            never = self.output.keep_reading() => match never {},
            () = sleep(time) => false,
        };
        if !is_over {
            self.kill().await;
        }
        self.output.read_rest();
        match self.child.try_wait() {
            Ok(Some(status)) if is_over => Ending::Exited(status),
            _ => Ending::TimedOut,
        }
    }

    /// Politely, then not: all that it has started and that stayed in its group.
    async fn kill(&mut self) {
        let group = Pid::from_child(&self.child);
        _ = kill_process_group(group, Signal::TERM);
        let all_gone = async {
            self.output.read_to_end().await;
            completed(&mut self.end).await;
        };
        _ = timeout(GRACE, all_gone).await;
        _ = kill_process_group(group, Signal::KILL);
        // Only the system itself can still hold it.
        _ = timeout(GRACE, completed(&mut self.end)).await;
    }
}

/// The event as one line. A pipe takes that much at once, so nobody has to feed it while the hook runs.
fn input(event: &Event) -> io::Result<PipeReader> {
    let (reader, mut writer) = io::pipe()?;
    writer.write_all(format!("{}\n", event.object()).as_bytes())?;
    Ok(reader)
}

/// Waits for it, however often that is asked.
async fn completed(task: &mut JoinHandle<()>) {
    if !task.is_finished() {
        _ = task.await;
    }
}

/// What a hook prints. It is always read, however much comes, and its end is kept.
struct Output {
    pipe: pipe::Receiver,
    /// The end of it, and up to as much again before that.
    last: Vec<u8>,
}

impl Output {
    async fn keep_reading(&mut self) -> Infallible {
        self.read_to_end().await;
        pending().await
    }

    async fn read_to_end(&mut self) {
        let mut buffer = [0; OUTPUT_LEN_MAX];
        while let Ok(length @ 1..) = self.pipe.read(&mut buffer).await {
            self.keep(&buffer[..length]);
        }
    }

    /// Reads what is there, and no more: what the hook left behind may keep the pipe open for ever.
    fn read_rest(&mut self) {
        let mut buffer = [0; OUTPUT_LEN_MAX];
        let mut late = 0;
        while late < LATE_LEN_MAX
            && let Ok(length @ 1..) = self.pipe.try_read(&mut buffer)
        {
            self.keep(&buffer[..length]);
            late += length;
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.last.extend_from_slice(bytes);
        if self.last.len() > 2 * OUTPUT_LEN_MAX {
            self.last.drain(..self.last.len() - OUTPUT_LEN_MAX);
        }
    }

    fn text(&self) -> String {
        let end = &self.last[self.last.len().saturating_sub(OUTPUT_LEN_MAX)..];
        String::from_utf8_lossy(end).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::kill_process;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn change(term: u64) -> Kind {
        Kind::LeaderChanged { leader: 2, previous: Some(3), term, reason: "link_lost", took_ms: 4.1 }
    }

    /// How the hook ended that runs this command for one change.
    fn ended(command: &[&str], time: Duration) -> (Kind, Arc<Meters>) {
        let (history, meters) = (Arc::<History>::default(), Arc::<Meters>::default());
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        history.add(change(8));
        let hook = Hook { command, timeout: time };
        start(hook, "north".to_owned(), ServerId(1), Arc::clone(&history), Arc::clone(&meters));
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(event) = history.after(1).pop() {
                return (event.kind, meters);
            }
            assert!(Instant::now() < until, "the hook did not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn shell(script: &str) -> (&'static str, Option<i32>, Option<i32>, String) {
        let (kind, meters) = ended(&["sh", "-c", script], PATIENCE);
        let Kind::HookEnded { hook, event, outcome, code, signal, error, output, .. } = kind else {
            panic!("{kind:?}");
        };
        assert_eq!((hook, event, error), (LEADER_CHANGED, 1, None));
        assert_eq!(meters.hooks.all().into_iter().collect::<Vec<_>>(), [(outcome, 1)]);
        (outcome, code, signal, output)
    }

    #[test]
    fn a_hook_reads_the_event_and_knows_the_rest_from_its_environment() {
        let words = "$PRIMUS_FARM $PRIMUS_SERVER $PRIMUS_LEADER $PRIMUS_TERM $PRIMUS_REASON";
        let (outcome, code, _, output) = shell(&format!("cat; echo {words}"));
        assert_eq!((outcome, code), ("done", Some(0)));
        let (event, rest) = output.split_once('\n').expect("two lines");
        assert_eq!(rest, "north 1 2 8 link_lost\n");
        let event: serde_json::Value = serde_json::from_str(event).expect("an object");
        assert_eq!(
            (&event["kind"], &event["term"], &event["index"]),
            (&"leader_changed".into(), &8.into(), &1.into())
        );
    }

    #[test]
    fn failures_are_told_with_the_end_of_the_output() {
        let (outcome, code, signal, output) = shell("echo well >&2; exit 3");
        assert_eq!((outcome, code, signal, output.as_str()), ("failed", Some(3), None, "well\n"));
        let (outcome, code, signal, _) = shell("kill -9 $$");
        assert_eq!((outcome, code, signal), ("failed", None, Some(9)));
        let (outcome, _, _, output) = shell("seq 1 100000");
        assert_eq!((outcome, output.len()), ("done", OUTPUT_LEN_MAX));
        assert!(output.ends_with("99999\n100000\n"), "{output}");
    }

    #[test]
    fn what_a_hook_leaves_behind_holds_nobody_up() {
        let (outcome, .., output) = shell("sleep 60 & echo $!");
        assert_eq!(outcome, "done");
        let left = output.trim().parse().ok().and_then(Pid::from_raw).expect("its number");
        kill_process(left, Signal::KILL).expect("it runs on");
    }

    #[test]
    fn a_program_that_is_not_there_is_reported() {
        let (kind, _) = ended(&["/no/such/program"], PATIENCE);
        let Kind::HookEnded { outcome, error, code: None, .. } = kind else { panic!("{kind:?}") };
        assert_eq!(
            (outcome, error.as_deref()),
            ("not_started", Some("program \"/no/such/program\" was not found"))
        );
    }

    #[test]
    fn a_hook_that_takes_too_long_is_killed_with_its_group() {
        // It ignores the first signal, and so does what it has started.
        let script = "trap '' TERM; sh -c 'echo $$; while :; do sleep 1; done'";
        let (kind, _) = ended(&["sh", "-c", script], Duration::from_millis(200));
        let Kind::HookEnded { outcome, code: None, signal: None, took_ms, output, .. } = kind else {
            panic!("{kind:?}")
        };
        assert_eq!(outcome, "timed_out");
        assert!(took_ms >= 200.0, "{took_ms}");
        let pid = output.trim();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let is_dead = stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']));
        assert!(!pid.is_empty() && is_dead, "{pid}: {stat}");
    }

    #[test]
    fn the_oldest_is_dropped_when_too_many_wait() {
        let event = |index| Event { index, time: std::time::SystemTime::UNIX_EPOCH, kind: change(index) };
        let mut waiting = Waiting::default();
        assert!(waiting.add((1..=WAITING_MAX as u64).map(event).collect()).is_empty());
        let other = Event { kind: Kind::LinkRefused { reason: String::new(), left_out: 0 }, ..event(101) };
        assert!(waiting.add(vec![other]).is_empty());
        let dropped: Vec<u64> = waiting.add(vec![event(102), event(103)]).iter().map(|event| event.index).collect();
        assert_eq!((dropped, waiting.last), (vec![1, 2], 103));
        assert!(waiting.add(Vec::new()).is_empty() && waiting.last == 103);
    }
}
