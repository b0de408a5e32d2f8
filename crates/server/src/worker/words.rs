//! What goes into a worker and what comes out of it.

use std::collections::BTreeMap;
use std::fmt;

use primus_core::farm::{self, Assignment, worker};
use primus_core::ledger::{Held, LoanId, Report};
use primus_core::load::Usage;
use primus_core::loan::{WorkerMessage, placement};
use primus_core::machine::{Token, WriteName};
use primus_core::{FarmId, Place, ServerId, Term};

/// A server of one of the worker's farms. A worker counts its farms in the order in which it begins to serve them: its own is
/// [`FarmId::OWN`], and a farm that it serves again gets another number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// Whose it is.
    pub farm: FarmId,
    /// Which one.
    pub server: ServerId,
}

/// Servers, and where they are reached.
pub type Servers = BTreeMap<ServerId, Place>;

/// A farm, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FarmAddress {
    /// What it is called.
    pub name: String,
    /// Its servers.
    pub servers: Servers,
}

/// What is said between a worker and its servers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// Server: it leads, in this term.
    Leads(Term),
    /// Server: it does not lead any more.
    Follows,
    /// About tasks.
    Work(farm::Message),
    /// Server: where the worker is to work, and where the servers of that farm are.
    Call(WorkerMessage, Servers),
    /// Worker: where it works.
    Placement(WorkerMessage),
}

/// What its owner tells a worker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// Begin. These farms were visited before, and this was kept for each.
    Start(Vec<(FarmAddress, Vec<worker::Record>)>),
    /// An attempt for this farm has ended.
    Ended(FarmId, Report),
    /// An attempt for this farm was ended before its time through no fault of its own, and has no result.
    Abandoned(FarmId, Held),
    /// There is room for results of this farm on the disk, or not.
    Room(FarmId, bool),
    /// The load of the host was measured.
    Measured(Usage),
    /// The answer to [`Notice::Open`]: what was kept for the farm of this name, or why its folder cannot be used.
    Opened(String, Result<Vec<worker::Record>, String>),
    /// The answer to [`Notice::Begin`], if there is no way to work for this farm.
    CannotBegin(FarmId, String),
    /// A server does not want this worker, for this reason.
    Refused(Peer, String),
    /// Take nothing new from any farm, and come to an end with what is under way: [`Worker::is_drained`] says when.
    ///
    /// [`Worker::is_drained`]: super::Worker::is_drained
    Drain,
    /// The same, but end at once what is under way: others may have it.
    Abandon,
    /// All that had arrived was told: what it came to leaves in one go.
    Turn,
}

/// What a worker keeps on disk.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Record {
    /// The newest call that it has followed.
    Epoch(LoanId),
    /// About a result. The token says whose it is.
    Result(worker::Record),
}

/// Names a write, and the file that is written. Tokens of one file grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Write {
    /// To the file of the epoch.
    Epoch(Token),
    /// To the results of this farm.
    Results(FarmId, Token),
}

impl WriteName for Write {
    fn number(self) -> u64 {
        match self {
            Self::Epoch(token) | Self::Results(_, token) => token.0,
        }
    }
}

/// Its timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// Those of the work for one farm.
    Work(FarmId, worker::Timer),
    /// Those of its placement.
    Placement(placement::Timer),
    /// Time to say that it is well.
    Renew,
}

/// What a worker tells its owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Notice {
    /// Begin with this, for this farm.
    Start(FarmId, Assignment),
    /// End this at once.
    Kill(FarmId, Held),
    /// Open the folder of this farm, and say what is kept there: [`Command::Opened`].
    Open(FarmAddress),
    /// The worker does not go to the farm of this name: its folder is not needed.
    Close(String),
    /// Serve this farm from now on: link to its servers, under this name, and be ready to run its tasks.
    Begin {
        /// Its number.
        farm: FarmId,
        /// Where it is.
        address: FarmAddress,
        /// What it calls this worker.
        name: String,
    },
    /// This farm has recorded all results: drop its links and what ran its tasks.
    Part(FarmId),
    /// The worker stood still for too long: drop all links, and dial again.
    DropLinks,
    /// The worker is well. Whatever runs its tasks kills them when it has not heard that for a while.
    Renew,
    /// For those who watch.
    Happened(Happening),
}

/// What happens to a worker, for those who watch it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Happening {
    /// It works for this server, in this term.
    Serves(ServerId, Term),
    /// The server that it worked for is not there any more.
    LostLeader(ServerId),
    /// This server does not want it, for this reason.
    Refused(ServerId, String),
    /// The name of this server does not resolve, with this sentence; it is tried again.
    Unresolved(ServerId, String),
    /// It is lent to this farm, under this loan, and works for it from now on.
    Lent(String, LoanId),
    /// It is with its own farm again, after this loan.
    Home(LoanId),
    /// It cannot work for this farm, for this reason.
    CannotGo(String, String),
    /// This server of another farm does not want it, for this reason.
    RefusedAbroad(String, ServerId, String),
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server {} of farm {}", self.server, self.farm)
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leads(term) => write!(f, "leads in term {term}"),
            Self::Follows => f.write_str("follows"),
            Self::Work(message) => message.fmt(f),
            Self::Call(word, _) | Self::Placement(word) => word.fmt(f),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(visited) => write!(f, "start with {} visited farms", visited.len()),
            Self::Ended(farm, report) => write!(f, "ended {} of farm {farm}", report.task),
            Self::Abandoned(farm, held) => write!(f, "abandoned {held} of farm {farm}"),
            Self::Room(farm, true) => write!(f, "room for farm {farm}"),
            Self::Room(farm, false) => write!(f, "no room for farm {farm}"),
            Self::Measured(_) => f.write_str("measured"),
            Self::Opened(farm, Ok(records)) => write!(f, "opened {farm}: {} records", records.len()),
            Self::Opened(farm, Err(reason)) => write!(f, "cannot open {farm}: {reason}"),
            Self::CannotBegin(farm, reason) => write!(f, "cannot begin with farm {farm}: {reason}"),
            Self::Refused(peer, reason) => write!(f, "refused by {peer}: {reason}"),
            Self::Drain => f.write_str("drain"),
            Self::Abandon => f.write_str("abandon all"),
            Self::Turn => f.write_str("turn"),
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Epoch(epoch) => write!(f, "epoch {epoch}"),
            Self::Result(record) => record.fmt(f),
        }
    }
}

impl fmt::Display for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Work(farm, timer) => write!(f, "{timer} of farm {farm}"),
            Self::Placement(timer) => timer.fmt(f),
            Self::Renew => f.write_str("renew"),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(farm, assignment) => write!(f, "start {} of farm {farm}", assignment.held),
            Self::Kill(farm, held) => write!(f, "kill {held} of farm {farm}"),
            Self::Open(address) => write!(f, "open {}", address.name),
            Self::Close(name) => write!(f, "close {name}"),
            Self::Begin { farm, address, .. } => write!(f, "begin with {}, farm {farm}", address.name),
            Self::Part(farm) => write!(f, "part with farm {farm}"),
            Self::DropLinks => f.write_str("drop all links"),
            Self::Renew => f.write_str("renew"),
            Self::Happened(happening) => happening.fmt(f),
        }
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serves(server, term) => write!(f, "serves {server} in term {term}"),
            Self::LostLeader(server) => write!(f, "lost {server}"),
            Self::Refused(server, reason) => write!(f, "refused by {server}: {reason}"),
            Self::Unresolved(server, reason) => write!(f, "no link to {server}: {reason}"),
            Self::Lent(farm, loan) => write!(f, "lent to {farm} under {loan}"),
            Self::Home(loan) => write!(f, "home after {loan}"),
            Self::CannotGo(farm, reason) => write!(f, "cannot work for {farm}: {reason}"),
            Self::RefusedAbroad(farm, server, reason) => write!(f, "refused by {server} of {farm}: {reason}"),
        }
    }
}
