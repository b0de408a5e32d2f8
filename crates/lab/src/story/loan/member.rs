//! A farm or a worker as one machine, and its steps in words that name both as people do.

use std::fmt;

use primus_core::ledger::{Entry, LoanId};
use primus_core::loan::allegiance::{self, Record};
use primus_core::loan::{Content, Word, office};
use primus_core::{Input, Machine, Moment, Never, Outbox, Output, Token, loan};

use super::hand::Hand;
use super::host::Host;
use crate::node::NodeId;
use crate::story::farm::member::{self as farm, entries_words};
use crate::world::Taken;

/// What farms are called; their numbers begin with 1.
const FARMS: [&str; 4] = ["north", "south", "east", "west"];

/// One process of a story of loans.
#[derive(Debug)]
pub(super) enum Member {
    Farm(Box<Host>),
    Worker(Box<Hand>),
}

/// What members say to each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Message {
    Farm(loan::Message),
    Word(Word),
    /// A worker introduces itself to a farm that it is lent to.
    Arrival(String, LoanId),
    /// It does not work for that farm any more.
    Departure(String),
}

/// What its owner tells a member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Command {
    /// Another server leads this farm.
    Lead,
    /// The log of this farm says this.
    Apply(Vec<Entry>),
    /// So many tasks wait in this farm.
    Queue(u64),
    Worker(allegiance::Command),
}

/// What a member tells its owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Notice {
    Propose(Vec<Entry>),
    Happened(office::Happening),
    Worker(allegiance::Notice),
}

/// The timers of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Timer {
    Farm(office::Timer),
    Worker(allegiance::Timer),
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
            Self::Farm(host) => host.step(now, input, out),
            Self::Worker(hand) => hand.step(now, input, out),
        }
    }
}

/// The farm or worker of this name: `north`, `w1`. A worker is the same wherever it works: `w1@north`.
pub(super) fn node_of(name: &str) -> Option<NodeId> {
    let farm = FARMS.iter().position(|farm| *farm == name);
    let worker = name.split('@').next().and_then(farm::worker_of);
    farm.map(|place| NodeId(place as u64 + 1)).or(worker)
}

/// What people call a node.
pub(super) fn name_of(node: NodeId) -> String {
    let farm = usize::try_from(node.0).ok().and_then(|number| FARMS.get(number.checked_sub(1)?));
    farm.map_or_else(|| farm::name_of(node), |name| (*name).to_owned())
}

/// A step as a line. What is repeated all the time is worth one only if something follows.
pub(super) fn tell(taken: &Taken<Member>) -> Option<String> {
    let told: Vec<String> = taken.outputs.iter().filter_map(output_words).collect();
    let is_quiet = match &taken.input {
        Input::Message { message, .. } => !is_told(message),
        Input::Persisted(_) | Input::Timer(Timer::Farm(_)) | Input::Command(Command::Apply(_)) => true,
        _ => false,
    };
    if told.is_empty() && is_quiet {
        return None;
    }
    let input = match &taken.input {
        Input::Message { from, message } => format!("from {} {message}", name_of(*from)),
        // Which write it was says nothing to a reader.
        Input::Persisted(_) => "persisted".to_owned(),
        Input::Command(Command::Worker(allegiance::Command::Home(Some(home)))) => {
            format!("home is led by {}", name_of((*home).into()))
        }
        input => input.to_string(),
    };
    let told = if told.is_empty() { "nothing".to_owned() } else { told.join(", ") };
    Some(format!("{}: {input} -> {told}", name_of(taken.node)))
}

/// Beats are said all the time.
pub(super) const fn is_told(message: &Message) -> bool {
    !matches!(message, Message::Farm(loan::Message { content: Content::Beat(_), .. }))
}

fn output_words(output: &Output<Member>) -> Option<String> {
    match output {
        Output::Send { message, .. } if !is_told(message) => None,
        Output::Send { to, message } => Some(format!("send {} {message}", name_of(*to))),
        Output::Persist { records, .. } => {
            let records: Vec<String> = records.iter().map(ToString::to_string).collect();
            Some(format!("persist {}", records.join(" ")))
        }
        Output::Set { timer: Timer::Farm(_), .. } | Output::Cancel(Timer::Farm(_)) => None,
        output => Some(output.to_string()),
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Farm(message) => message.fmt(f),
            Self::Word(word) => word.fmt(f),
            Self::Arrival(name, loan) => write!(f, "hello of {name} under {loan}"),
            Self::Departure(name) => write!(f, "farewell of {name}"),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lead => f.write_str("another server leads"),
            Self::Apply(entries) => write!(f, "apply {}", entries_words(entries)),
            Self::Queue(queued) => write!(f, "queue {queued}"),
            Self::Worker(command) => command.fmt(f),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Propose(entries) => write!(f, "propose {}", entries_words(entries)),
            Self::Happened(happening) => write!(f, "note \"{happening}\""),
            Self::Worker(notice) => notice.fmt(f),
        }
    }
}

impl fmt::Display for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Farm(timer) => timer.fmt(f),
            Self::Worker(timer) => timer.fmt(f),
        }
    }
}
