//! The steps of farms and workers in words that name both as people do, with what is in the log decoded.
//!
//! What no reader needs is left out: signs of life and their timers, clocks, links that come up, looks and agreements from which
//! nothing follows, and what a client gets into the log, because that is told when it is applied.

use bytes::Bytes;
use primus_core::FarmId;
use primus_core::farm::foreman::Foreman;
use primus_core::farm::foreman::Timer::{Grace, Settle};
use primus_core::farm::{self as work, worker::Worker as Work};
use primus_core::ledger::roll::Change;
use primus_core::ledger::{Ending, Entry, Held, JobId, LoanId, Loans, Report, State, Target, TaskId, Verdict};
use primus_core::loan::placement::Place;
use primus_core::loan::{Content, WorkerMessage};
use primus_core::{Input, Output};
use primus_server::farm::{self, Answer, Message};
use primus_server::record::Assembly;
use primus_server::worker::{self, Happening};

use super::member::{Hand, Member, Notice, Of, Timer};
use crate::world::Taken;

/// A step as a line, if it is worth one.
pub(super) fn tell(taken: &Taken<Member>) -> Option<String> {
    let is_worth_a_line = is_worth_a_line(&taken.input);
    let is_asked =
        matches!(taken.input, Input::Command(Of::Server(farm::Command::Enter(..) | farm::Command::Lend(..))));
    let told = taken.outputs.iter().filter(|output| match output {
        Output::Ignore(_) => is_worth_a_line,
        Output::Notify(Of::Server(farm::Notice::Append(..))) => !is_asked,
        _ => true,
    });
    let told: Vec<String> = told.filter_map(output_words).collect();
    let words = if told.is_empty() { "nothing".to_owned() } else { told.join(", ") };
    let line = || format!("{}: {} -> {words}", taken.node, input_words(&taken.input));
    (is_worth_a_line || !told.is_empty()).then(line)
}

/// Even if nothing follows?
const fn is_worth_a_line(input: &Input<Member>) -> bool {
    match input {
        Input::Message { message: Message::Loan(_), .. } => false,
        Input::Message { message, .. } => is_told(message),
        Input::Command(Of::Server(command)) => matches!(command, farm::Command::Lead(_)),
        Input::Command(Of::Worker(command)) => {
            matches!(command, worker::Command::Ended(..) | worker::Command::Abandoned(..))
        }
        _ => false,
    }
}

/// Signs of life are said all the time, and who has never been away says that at every welcome.
pub(super) const fn is_told(message: &Message) -> bool {
    match message {
        Message::Loan(message) => !matches!(message.content, Content::Beat(_)),
        Message::Work(message) => !matches!(message, work::Message::Beat(_) | work::Message::Beside(_)),
        Message::Placement(word) => !matches!(word, WorkerMessage::At { epoch: LoanId(0), is_away: false }),
        Message::Leads(_) | Message::Follows => true,
    }
}

fn input_words(input: &Input<Member>) -> String {
    match input {
        Input::Message { from, message } => format!("from {from} {}", message_words(message)),
        // Which write it was says nothing to a reader.
        Input::Persisted(_) => "persisted".to_owned(),
        Input::Command(Of::Server(farm::Command::Committed(_, record))) => {
            format!("apply {}", record_words(record))
        }
        Input::Command(Of::Worker(worker::Command::Ended(_, report))) => format!("ended {}", report.task),
        Input::Command(Of::Worker(worker::Command::Abandoned(_, held))) => format!("abandoned {held}"),
        input => input.to_string(),
    }
}

fn output_words(output: &Output<Member>) -> Option<String> {
    match output {
        Output::Send { to, message } => is_told(message).then(|| format!("send {to} {}", message_words(message))),
        Output::Persist { records, .. } => {
            let records: Vec<String> = records.iter().map(ToString::to_string).collect();
            Some(format!("persist {}", records.join(" ")))
        }
        Output::Notify(notice) => notice_words(notice),
        Output::Set { timer: Timer(Of::Server(farm::Timer::Work(Settle | Grace(_)))), .. }
        | Output::Cancel(Timer(Of::Server(farm::Timer::Work(Settle))))
        | Output::Set { timer: Timer(Of::Worker(worker::Timer::Placement(_))), .. }
        | Output::Cancel(Timer(Of::Worker(worker::Timer::Placement(_)))) => Some(output.to_string()),
        // Those of signs of life and looks are set all the time.
        Output::Set { .. } | Output::Cancel(_) => None,
        output => Some(output.to_string()),
    }
}

/// A hello says what the worker has, which is what stories are about. One that works for another farm by now says farewell.
fn message_words(message: &Message) -> String {
    let Message::Work(work::Message::Hello(hello)) = message else { return message.to_string() };
    let what = if hello.slots == 0 { "farewell" } else { "hello" };
    let loan = hello.loan.map(|loan| format!(" under {loan}")).unwrap_or_default();
    let has: String = hello.held.iter().map(|held| format!(", has {held}")).collect();
    let keeps: String = hello.ended.iter().map(|report| format!(", keeps {}", report.held())).collect();
    format!("{what} of {}{loan}{has}{keeps}", hello.name)
}

fn notice_words(notice: &Notice) -> Option<String> {
    match notice {
        Of::Server(farm::Notice::Append(_, records)) => {
            let batches: Vec<String> = records.iter().map(record_words).collect();
            Some(format!("propose {}", batches.join(", then ")))
        }
        Of::Server(farm::Notice::Answer(_, Err(refusal))) => Some(format!("refuse: {refusal}")),
        Of::Server(farm::Notice::Answer(_, Ok(Answer::CannotLend(_)))) => Some("lend nobody".to_owned()),
        Of::Server(farm::Notice::Happened(happening)) => Some(format!("note \"{happening}\"")),
        Of::Worker(worker::Notice::Start(_, assignment)) => Some(format!("start {}", assignment.held)),
        Of::Worker(worker::Notice::Kill(_, held)) => Some(format!("kill {held}")),
        Of::Worker(worker::Notice::DropLinks) => Some(notice.to_string()),
        Of::Worker(worker::Notice::Happened(Happening::LostLeader(_))) => Some("lose leader".to_owned()),
        Of::Worker(worker::Notice::Happened(happening)) if !matches!(happening, Happening::Serves(..)) => {
            Some(happening.to_string())
        }
        _ => None,
    }
}

fn record_words(record: &Bytes) -> String {
    let filed = Assembly::default().take(record);
    filed.map_or_else(|| "a piece of a batch".to_owned(), |filed| entries_words(&filed.batch.entries))
}

fn entries_words(entries: &[Entry]) -> String {
    entries.iter().map(entry_words).collect::<Vec<_>>().join(" and ")
}

fn entry_words(entry: &Entry) -> String {
    match entry {
        Entry::Submit { spec, .. } => format!("submit {}", spec.expansion.len()),
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
        Entry::Roll(change) => roll_words(change),
    }
}

fn roll_words(change: &Change) -> String {
    match change {
        Change::ForgetWorker(name) => format!("forget {name}"),
        Change::Revoke(revocation) => format!("revoke {revocation}"),
        Change::BindWorker { name, .. } => format!("bind {name}"),
        _ => "change the roll".to_owned(),
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

/// `1.1 done by w1 (1-1)`, `1.2 queued, with w2 (1-2)`.
pub(super) fn tasks_words(foreman: &Foreman) -> Vec<String> {
    let jobs = foreman.ledger().jobs(JobId(0));
    let tasks = jobs.flat_map(|(id, job)| (1..).zip(job.states()).map(move |(index, state)| (id, index, state)));
    tasks.map(|(job, index, state)| task_words(foreman, TaskId { job, index }, state)).collect()
}

fn task_words(foreman: &Foreman, task: TaskId, state: State) -> String {
    let name = state.name();
    match (foreman.ledger().outcome(task), foreman.assignment_of(task)) {
        (Some(outcome), _) if state.is_final() => {
            format!("{task} {name} by {} ({})", outcome.worker, outcome.attempt)
        }
        (_, Some((worker, attempt))) => format!("{task} {name}, with {worker} ({attempt})"),
        _ => format!("{task} {name}"),
    }
}

/// `has lent w1 to south under 1, has borrowed w3@east under 1`.
pub(super) fn loans_words(loans: &Loans) -> String {
    let lent = loans.lent().iter().map(|(loan, lent)| {
        let missing = if lent.is_missing { ", out of sight" } else { "" };
        format!("has lent {} to {} under {loan}{missing}", lent.worker, lent.to)
    });
    let borrowed = loans.borrowed().iter();
    let borrowed = borrowed.map(|(name, borrowed)| format!("has borrowed {name} under {}", borrowed.loan));
    let words: Vec<String> = lent.chain(borrowed).collect();
    if words.is_empty() { "no loans".to_owned() } else { words.join(", ") }
}

/// `serves 1 in term 1: runs 1.1 (1-1), has 1.2 (1-2)`.
pub(super) fn service_words(hand: &Hand) -> String {
    let serves = hand.worker.work(FarmId::OWN).and_then(Work::serves);
    let serves = serves.map(|(leader, term)| format!("serves {leader} in term {term}"));
    let has = has_words(hand);
    let has = if has.is_empty() { "nothing".to_owned() } else { has.join(", ") };
    format!("{}: {has}", serves.unwrap_or_else(|| "serves nobody".to_owned()))
}

/// `with south under 1, runs 1.1 (1-1)`.
pub(super) fn place_words(hand: &Hand) -> String {
    let epoch = hand.worker.placement().epoch();
    let place = match hand.worker.placement().place() {
        Place::Home => "at home".to_owned(),
        Place::Going { farm, .. } => format!("about to go to {farm} under {epoch}"),
        Place::Staying { .. } => "about to stay".to_owned(),
        Place::Away { farm, .. } => format!("with {farm} under {epoch}"),
        Place::Returning { farm } => format!("with {farm} under {epoch}, takes nothing new"),
    };
    std::iter::once(place).chain(has_words(hand)).collect::<Vec<_>>().join(", ")
}

/// What it has, for whichever farm.
fn has_words(hand: &Hand) -> Vec<String> {
    let tell = |work: &Work, held: Held| match () {
        () if work.running().any(|running| running == held) => format!("runs {held}"),
        () if work.has_begun().any(|begun| begun == held) => format!("keeps {held}"),
        () => format!("has {held}"),
    };
    hand.works().flat_map(|(_, work)| work.has().map(|held| tell(work, held)).collect::<Vec<_>>()).collect()
}
