//! What goes into a farm and what comes out of it.

use std::fmt;

use bytes::Bytes;
use primus_core::ledger::timekeeper;
use primus_core::ledger::{Effect, Entry, Groups, JobId, Target, TaskId};
use primus_core::loan::lending::{CannotLend, LendOrder};
use primus_core::loan::{WorkerMessage, lending};
use primus_core::{FarmId, ServerId, Term, WorkerId, farm, loan};

use crate::record::Draft;
use crate::room::Disks;

/// Whom a farm talks with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// A worker, on one link.
    Worker(WorkerId),
    /// Another farm.
    Neighbour(FarmId),
}

/// What is said between a farm and its peers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// To a worker: this server leads, in this term.
    Leads(Term),
    /// To a worker: this server does not lead any more.
    Follows,
    /// About tasks, with a worker.
    Work(farm::Message),
    /// About where a worker works, with that worker.
    Placement(WorkerMessage),
    /// About loans, with a neighbour.
    Loan(loan::Message),
}

/// Names a question of somebody who waits for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What its owner tells a farm.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// A record of the log that holds a batch, or a piece of one, and its place in the log.
    Committed(u64, Bytes),
    /// This one leads, as far as this server knows. If it is this server itself, it has to wait for [`Command::Lead`].
    Leader(Option<ServerId>),
    /// This server leads in this term, and everything that was agreed on before has been applied.
    Lead(Term),
    /// The clock of this server shows this time, in milliseconds since 1970.
    Clock(ServerId, u64),
    /// In this term the leases of this server want this in the log.
    Want(Term, Vec<Entry>),
    /// A worker of this name has a link. Links of workers are numbered and never come back.
    Link(WorkerId, String),
    /// So much room there is on the disks from now on.
    Room(Disks),
    /// Write this batch into the log. Answered when it is applied.
    Enter(Ticket, Draft),
    /// Once the log is applied up to here: answer when these have ended, or are unknown.
    Await(Ticket, u64, Vec<Awaited>),
    /// Answer when the log is applied up to here, so that the owner can look.
    Look(Ticket, u64),
    /// An operator lends workers. Answered when the log says so, or nobody can go.
    Lend(Ticket, LendOrder),
    /// These do not wait any more.
    Forget(Vec<Ticket>),
    /// All that had arrived was told, and it is this time, in milliseconds since 1970: what it came to leaves in one go.
    Turn(u64),
}

/// What somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Awaited {
    /// One task.
    Task(TaskId),
    /// All tasks of these jobs, both ends included.
    Jobs(JobId, JobId),
}

impl From<Target> for Awaited {
    fn from(target: Target) -> Self {
        match target {
            Target::Job(job) => Self::Jobs(job, job),
            Target::Task(task) => Self::Task(task),
        }
    }
}

/// Its timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// The foreman's.
    Work(farm::foreman::Timer),
    /// The lending side's.
    Loan(lending::Timer),
}

impl Timer {
    /// Does it mean that somebody has been silent? An owner that is late must hear what has arrived before it believes that.
    #[must_use]
    pub const fn is_about_silence(self) -> bool {
        use farm::foreman::Timer::{Beside, Grace, Settle, Silence};
        match self {
            Self::Work(Silence(_) | Beside(_) | Settle) => true,
            Self::Work(Grace(_)) | Self::Loan(_) => false,
        }
    }
}

/// What a farm tells its owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Notice {
    /// Append these records to the log, if this server still leads in this term.
    Append(Term, Vec<Bytes>),
    /// The answer to a question.
    Answer(Ticket, Result<Answer, Refusal>),
    /// This server leads in this term, and these leases are held.
    Held(Term, Groups),
    /// In this term, leases were granted or released.
    Leases(Term, Vec<Effect>),
    /// So many tasks run beside this server.
    Beside(u32),
    /// The link of this worker is to be closed: it does not say what its owner says.
    Close(WorkerId),
    /// Who is who has changed: links are looked at again.
    Roll,
    /// This worker is forgotten: its name is free at once.
    Forgotten(String),
    /// From now on the neighbours are talked to, or not any more.
    Lending(bool),
    /// Loans began or ended.
    Loans(Vec<Effect>),
    /// Something about loans that people may want to know.
    Happened(lending::Happening),
    /// A clock is off, or right again.
    Clock(timekeeper::Notice),
}

/// What a question comes to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answer {
    /// The batch is applied, and this came of it.
    Entered(Vec<Effect>),
    /// Nobody can be lent.
    CannotLend(CannotLend),
    /// All have ended.
    Ended,
    /// Now is the time to look.
    Look,
}

/// Why a question is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// That server leads.
    NotLeading(ServerId),
    /// Nobody leads, as far as this server knows.
    NoLeader,
    /// There is too much to do.
    Busy,
    /// There is no room on the leader's disk.
    DiskFull,
    /// There is no room on the disks of so many servers that a majority cannot write.
    DisksFull,
    /// There may be no more content than so many bytes.
    StateFull(u64),
    /// Leadership was lost meanwhile: the batch may be applied or not.
    Unknown,
}

impl Refusal {
    /// Why this server does not answer what only a leader answers, by who leads as far as it knows. One that leads itself is
    /// not ready yet.
    #[must_use]
    pub fn of(id: ServerId, leader: Option<ServerId>) -> Self {
        match leader {
            Some(leader) if leader != id => Self::NotLeading(leader),
            Some(_) => Self::Busy,
            None => Self::NoLeader,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker(id) => write!(f, "worker {id}"),
            Self::Neighbour(id) => write!(f, "farm {id}"),
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leads(term) => write!(f, "leads in term {term}"),
            Self::Follows => f.write_str("follows"),
            Self::Work(message) => message.fmt(f),
            Self::Placement(word) => word.fmt(f),
            Self::Loan(message) => message.fmt(f),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Committed(index, _) => write!(f, "committed {index}"),
            Self::Leader(Some(leader)) => write!(f, "leader {leader}"),
            Self::Leader(None) => f.write_str("no leader"),
            Self::Lead(term) => write!(f, "lead in term {term}"),
            Self::Clock(server, _) => write!(f, "clock of {server}"),
            Self::Want(_, entries) => write!(f, "want {}", entries.len()),
            Self::Link(worker, name) => write!(f, "link {worker} of {name}"),
            Self::Room(disks) => write!(f, "room {disks:?}"),
            Self::Enter(ticket, _) => write!(f, "enter {}", ticket.0),
            Self::Await(ticket, index, _) => write!(f, "await {} at {index}", ticket.0),
            Self::Look(ticket, index) => write!(f, "look {} at {index}", ticket.0),
            Self::Lend(ticket, order) => write!(f, "lend {} to {}: {}", order.count, order.to, ticket.0),
            Self::Forget(tickets) => write!(f, "forget {}", tickets.len()),
            Self::Turn(_) => f.write_str("turn"),
        }
    }
}

impl fmt::Display for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Work(timer) => timer.fmt(f),
            Self::Loan(timer) => timer.fmt(f),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Append(_, records) => write!(f, "append {}", records.len()),
            Self::Answer(ticket, Ok(_)) => write!(f, "answer {}", ticket.0),
            Self::Answer(ticket, Err(refusal)) => write!(f, "refuse {}: {refusal}", ticket.0),
            Self::Held(term, _) => write!(f, "held in term {term}"),
            Self::Leases(_, effects) => write!(f, "leases {}", effects.len()),
            Self::Beside(tasks) => write!(f, "{tasks} run beside"),
            Self::Close(worker) => write!(f, "close {worker}"),
            Self::Roll => f.write_str("the roll has changed"),
            Self::Forgotten(worker) => write!(f, "{worker} is forgotten"),
            Self::Lending(is_on) => f.write_str(if *is_on { "talk to neighbours" } else { "leave neighbours" }),
            Self::Loans(effects) => write!(f, "loans {}", effects.len()),
            Self::Happened(happening) => happening.fmt(f),
            Self::Clock(timekeeper::Notice::Off(server, ms)) => write!(f, "clock of {server} is off by {ms} ms"),
            Self::Clock(timekeeper::Notice::Right(server)) => write!(f, "clock of {server} is right"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeading(leader) => write!(f, "server {leader} leads"),
            Self::NoLeader => f.write_str("nobody leads"),
            Self::Busy => f.write_str("too much to do"),
            Self::DiskFull => f.write_str("the disk is full"),
            Self::DisksFull => f.write_str("too many disks are full"),
            Self::StateFull(max) => write!(f, "no more than {max} bytes"),
            Self::Unknown => f.write_str("leadership was lost"),
        }
    }
}
