//! A server's foreman or a worker as one machine, and its steps in words that name workers as people do.

use std::fmt;

use primus_core::farm::foreman::{self, Foreman};
use primus_core::farm::worker::{self, Record, Worker};
use primus_core::farm::{Hello, Message};
use primus_core::ledger::{Ending, Entry, Held, Report, Target, Verdict};
use primus_core::{Input, Machine, Moment, Never, Outbox, Output, Token};

use crate::node::NodeId;
use crate::world::Taken;

/// Servers have lesser numbers.
const FIRST_WORKER: u64 = 101;

/// One process of a farm.
#[derive(Debug)]
pub(super) enum Member {
    Server {
        foreman: Box<Foreman>,
        /// What it wants to be written into the log, until the log takes it.
        proposed: Vec<Vec<Entry>>,
    },
    Worker(Box<Worker>),
}

/// What its owner tells a member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Command {
    Server(foreman::Command),
    Worker(worker::Command),
}

/// What a member tells its owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Notice {
    Server(foreman::Notice),
    Worker(worker::Notice),
}

/// The timers of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Timer {
    Server(foreman::Timer),
    Worker(worker::Timer),
}

impl Machine for Member {
    type Peer = NodeId;
    type Message = Message;
    type Command = Command;
    type Timer = Timer;
    type Record = Record;
    type Token = Token;
    type Barrier = Never;
    type Notice = Notice;

    fn step(&mut self, now: Moment, input: Input<Self>, out: &mut Outbox<Self>) {
        match self {
            Self::Server { foreman, proposed } => {
                let Some(input) = for_server(input) else { return out.ignore("what is for workers") };
                let mut inner = Outbox::new();
                foreman.step(now, input, &mut inner);
                inner.drain().for_each(|output| {
                    if let Output::Notify(foreman::Notice::Propose(entries)) = &output {
                        proposed.push(entries.clone());
                    }
                    pass_on(output, out, Timer::Server, Notice::Server, |token, _| match token {});
                });
            }
            Self::Worker(worker) => {
                let Some(input) = for_worker(input) else { return out.ignore("what is for servers") };
                let mut inner = Outbox::new();
                worker.step(now, input, &mut inner);
                inner.drain().for_each(|output| {
                    pass_on(output, out, Timer::Worker, Notice::Worker, |token, records| (token, records));
                });
            }
        }
    }
}

fn for_server(input: Input<Member>) -> Option<Input<Foreman>> {
    Some(match input {
        Input::Message { from, message } => Input::Message { from: from.worker(), message },
        Input::Timer(Timer::Server(timer)) => Input::Timer(timer),
        Input::Command(Command::Server(command)) => Input::Command(command),
        Input::LinkUp(peer) => Input::LinkUp(peer.worker()),
        Input::LinkDown(peer) => Input::LinkDown(peer.worker()),
        Input::Timer(Timer::Worker(_)) | Input::Command(Command::Worker(_)) | Input::Persisted(_) => return None,
    })
}

fn for_worker(input: Input<Member>) -> Option<Input<Worker>> {
    Some(match input {
        Input::Message { from, message } => Input::Message { from: from.server(), message },
        Input::Timer(Timer::Worker(timer)) => Input::Timer(timer),
        Input::Command(Command::Worker(command)) => Input::Command(command),
        Input::LinkUp(peer) => Input::LinkUp(peer.server()),
        Input::LinkDown(peer) => Input::LinkDown(peer.server()),
        Input::Persisted(token) => Input::Persisted(token),
        Input::Timer(Timer::Server(_)) | Input::Command(Command::Server(_)) => return None,
    })
}

/// What one of the two asks for, the member asks for.
fn pass_on<M: Machine<Peer: Into<NodeId>, Message = Message, Barrier = Never>>(
    output: Output<M>,
    out: &mut Outbox<Member>,
    timer_of: impl Fn(M::Timer) -> Timer,
    notice_of: impl Fn(M::Notice) -> Notice,
    written: impl Fn(M::Token, Vec<M::Record>) -> (Token, Vec<Record>),
) {
    match output {
        Output::Send { to, message } => out.send(to.into(), message),
        Output::Persist { token, records } => {
            let (token, records) = written(token, records);
            out.persist(token, records);
        }
        Output::Set { timer, delay } => out.set(timer_of(timer), delay),
        Output::Cancel(timer) => out.cancel(timer_of(timer)),
        Output::Notify(notice) => out.notify(notice_of(notice)),
        Output::Ignore(reason) => out.ignore(reason),
    }
}

/// The worker of this name, if it is one: `w1`.
pub(in crate::story) fn worker_of(name: &str) -> Option<NodeId> {
    let number: u64 = name.strip_prefix('w')?.parse().ok()?;
    number.checked_sub(1)?.checked_add(FIRST_WORKER).map(NodeId)
}

/// What people call a node.
pub(in crate::story) fn name_of(node: NodeId) -> String {
    match node.0.checked_sub(FIRST_WORKER) {
        Some(place) => format!("w{}", place + 1),
        None => node.to_string(),
    }
}

/// A step as a line. What follows from nothing but time or the log is worth one only if something follows.
pub(super) fn tell(taken: &Taken<Member>) -> Option<String> {
    let told: Vec<String> = taken.outputs.iter().filter_map(output_words).collect();
    let is_quiet =
        matches!(taken.input, Input::Persisted(_) | Input::Command(Command::Server(foreman::Command::Apply(_))));
    if told.is_empty() && is_quiet {
        return None;
    }
    let input = match &taken.input {
        Input::Message { from, message } => format!("from {} {}", name_of(*from), message_words(message)),
        Input::LinkDown(peer) => format!("link down {}", name_of(*peer)),
        // Which write it was says nothing to a reader.
        Input::Persisted(_) => "persisted".to_owned(),
        input => input.to_string(),
    };
    let told = if told.is_empty() { "nothing".to_owned() } else { told.join(", ") };
    Some(format!("{}: {input} -> {told}", name_of(taken.node)))
}

/// Timers that every sign of life sets anew are left out.
fn output_words(output: &Output<Member>) -> Option<String> {
    use foreman::Timer::{Grace, Silence};
    match output {
        Output::Send { to, message } => Some(format!("send {} {}", name_of(*to), message_words(message))),
        Output::Persist { records, .. } => {
            let records: Vec<String> = records.iter().map(ToString::to_string).collect();
            Some(format!("persist {}", records.join(" ")))
        }
        Output::Set { timer: Timer::Server(Silence(_)) | Timer::Worker(_), .. }
        | Output::Cancel(Timer::Server(Silence(_) | Grace(_)) | Timer::Worker(_))
        | Output::Notify(Notice::Server(foreman::Notice::Applied(_))) => None,
        output => Some(output.to_string()),
    }
}

/// A hello says what the worker has, which is what stories are about.
fn message_words(message: &Message) -> String {
    let Message::Hello(Hello { name, held, ended, .. }) = message else { return message.to_string() };
    let has: String = held.iter().map(|held| format!(", has {held}")).collect();
    let keeps: String = ended.iter().map(|report| format!(", keeps {}", report.held())).collect();
    format!("hello of {name}{has}{keeps}")
}

pub(in crate::story) fn entries_words(entries: &[Entry]) -> String {
    entries.iter().map(entry_words).collect::<Vec<_>>().join(" and ")
}

fn entry_words(entry: &Entry) -> String {
    match entry {
        Entry::Submit { spec, .. } => format!("submit {}", spec.fan.len()),
        Entry::Finish(report) => format!("finish {} {}", report.held(), verdict_words(report)),
        Entry::Start(start) => {
            format!("start {} on {}", Held { task: start.task, attempt: start.attempt }, start.worker)
        }
        Entry::Cancel(target) => format!("cancel {}", target_words(*target)),
        Entry::Retry(target) => format!("retry {}", target_words(*target)),
        Entry::RetryFailed(job) => format!("retry failed of {job}"),
        Entry::Join { worker, .. } => format!("join {worker}"),
        Entry::Leave { worker } => format!("leave {worker}"),
        Entry::Drain { worker, is_draining: true } => format!("drain {worker}"),
        Entry::Drain { worker, is_draining: false } => format!("undrain {worker}"),
        Entry::Limit(_) => "limit".to_owned(),
        Entry::Grant(grant) => format!("grant {} to {}", grant.group, grant.name),
        Entry::Release(release) => format!("release {} #{}", release.group, release.token),
        Entry::Lend(lend) => format!("lend {} to {}", lend.worker, lend.to),
        Entry::Recall(loan) => format!("recall {loan}"),
        Entry::EndLoan(loan, Ending::Home) => format!("end {loan}: home"),
        Entry::EndLoan(loan, Ending::Dead) => format!("end {loan}: dead"),
        Entry::Borrow(borrow) => format!("borrow {} under {}", borrow.worker, borrow.loan),
        Entry::GiveBack { worker, loan } => format!("give back {worker} under {loan}"),
    }
}

fn verdict_words(report: &Report) -> String {
    match &report.outcome.verdict {
        Verdict::Exited(code) => format!("exit {code}"),
        Verdict::Signalled(signal) => format!("signal {signal}"),
        Verdict::TimedOut => "timed out".to_owned(),
        Verdict::Refused(reason) => format!("refused: {reason}"),
        Verdict::Lost => "lost".to_owned(),
    }
}

fn target_words(target: Target) -> String {
    match target {
        Target::Job(job) => job.to_string(),
        Target::Task(task) => task.to_string(),
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(foreman::Command::Apply(batch)) => write!(f, "apply {}", entries_words(&batch.entries)),
            Self::Server(command) => command.fmt(f),
            Self::Worker(command) => command.fmt(f),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(foreman::Notice::Propose(entries)) => write!(f, "propose {}", entries_words(entries)),
            Self::Server(notice) => notice.fmt(f),
            Self::Worker(notice) => notice.fmt(f),
        }
    }
}

impl fmt::Display for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(foreman::Timer::Settle) => f.write_str("settle"),
            Self::Server(foreman::Timer::Grace(worker)) => write!(f, "grace {}", name_of((*worker).into())),
            Self::Server(foreman::Timer::Silence(worker)) => write!(f, "silence {}", name_of((*worker).into())),
            Self::Server(foreman::Timer::Beside(worker)) => write!(f, "beside {}", name_of((*worker).into())),
            Self::Worker(timer) => timer.fmt(f),
        }
    }
}
