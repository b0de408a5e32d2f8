//! Which steps are about who leads, and how they are told: `from 2 alive r2 -> cancel answers, set victory`.
//!
//! Stories of servers and the log of a real one write a step with this one function, in the words of
//! [`primus_core::trace`], so that a line of the log can be pasted into a story. What replicates, measures or syncs is left out.

use std::fmt;

use primus_core::election::{self, Election, MessageKind};
use primus_core::machine::{Input, Machine, Output};
use primus_replica::consensus::Consensus;
use primus_replica::message::Kind;

use crate::any_election::AnyElection;
use crate::control::{self, Control};
use crate::groups::{self, Groups, Said};

/// What something is about. A step is about the greatest of what goes in and comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// Anything else: the log, loads, the disk.
    Other,
    /// A sign of life.
    Heartbeat,
    /// Something that an election says, and that is said again and again after it: alone it is a sign of life.
    Reminder,
    /// Who should lead, and why.
    Election,
}

/// A machine whose steps can be told.
pub trait Telling: Machine {
    /// What a message is about.
    fn message(message: &Self::Message) -> Topic;
    /// What a timer is about.
    fn timer(timer: Self::Timer) -> Topic;
    /// What a command is about.
    fn command(command: &Self::Command) -> Topic;
    /// What a notice is about.
    fn notice(notice: &Self::Notice) -> Topic;

    /// True if this input is sure to change nothing about who leads. Most inputs of a busy server are, and are not worth a copy.
    fn is_routine(&self, input: &Input<Self>) -> bool;
}

/// One step, as text.
#[derive(Debug)]
pub struct Told<'a, M: Machine> {
    /// What happened.
    pub input: &'a Input<M>,
    /// What followed.
    pub outputs: &'a [Output<M>],
}

impl<M: Telling> Told<'_, M> {
    /// What the step is about. One that changes nothing about who leads is not worth telling.
    #[must_use]
    pub fn topic(&self) -> Topic {
        match self.greatest() {
            Topic::Election if self.shown(Topic::Election).next().is_none() => Topic::Other,
            topic => topic,
        }
    }

    fn greatest(&self) -> Topic {
        let input = match self.input {
            Input::Message { message, .. } => M::message(message),
            Input::Timer(timer) => M::timer(*timer),
            Input::Command(command) => M::command(command),
            Input::LinkUp(_) | Input::LinkDown(_) | Input::Persisted(_) => Topic::Other,
        };
        let notice = |output: &Output<M>| match output {
            Output::Notify(notice) => M::notice(notice),
            output => topic_of(output),
        };
        self.outputs.iter().map(notice).fold(input, Topic::max)
    }

    /// The outputs that belong into a line about this topic.
    fn shown(&self, topic: Topic) -> impl Iterator<Item = &Output<M>> {
        let least = topic.clamp(Topic::Heartbeat, Topic::Reminder);
        self.outputs.iter().filter(move |output| match output {
            Output::Notify(_) | Output::Ignore(_) => true,
            Output::Cancel(timer) => M::timer(*timer) >= Topic::Reminder,
            output => topic_of(output) >= least,
        })
    }
}

/// What an output is about that is not a notice.
fn topic_of<M: Telling>(output: &Output<M>) -> Topic {
    match output {
        Output::Send { message, .. } | Output::SendAfter { message, .. } => M::message(message),
        Output::Set { timer, .. } => M::timer(*timer),
        Output::Cancel(_) | Output::Persist { .. } | Output::Notify(_) | Output::Ignore(_) => Topic::Other,
    }
}

impl<M: Telling> fmt::Display for Told<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.input {
            // Which write it was says nothing to a reader.
            Input::Persisted(_) => f.write_str("persisted")?,
            input => input.fmt(f)?,
        }
        let mut separator = " -> ";
        for output in self.shown(self.greatest()) {
            f.write_str(separator)?;
            match output {
                Output::SendAfter { to, message, .. } => write!(f, "once durable send {to} {message}")?,
                output => output.fmt(f)?,
            }
            separator = ", ";
        }
        if separator == " -> " { f.write_str(" -> nothing") } else { Ok(()) }
    }
}

impl<E: Election, R: Consensus> Telling for Control<E, R> {
    fn message(message: &Self::Message) -> Topic {
        match message {
            control::Message::Election(_) | control::Message::Change(_) | control::Message::Confirmed(_) => {
                Topic::Election
            }
            control::Message::Replica(message) => topic_of_kind(message.kind),
            _ => Topic::Other,
        }
    }

    fn timer(timer: control::Timer) -> Topic {
        match timer {
            control::Timer::Election(_) => Topic::Election,
            _ => Topic::Other,
        }
    }

    fn command(command: &control::Command) -> Topic {
        use control::Command::{Boot, Elect, Gone, Leave, Transfer};
        match command {
            Boot | Gone(_) | Transfer(..) | Leave | Elect(_) => Topic::Election,
            _ => Topic::Other,
        }
    }

    fn notice(notice: &control::Notice) -> Topic {
        use control::Notice::{Committed, NoRoom, Readable, Refused, Restored, Unreadable};
        match notice {
            Committed(_) | Readable(..) | Unreadable(_) | Restored(_) | Refused(..) | NoRoom(..) => Topic::Other,
            _ => Topic::Election,
        }
    }

    fn is_routine(&self, input: &Input<Self>) -> bool {
        use control::Command::{Compact, Propose, Read, Room, Write};
        match input {
            Input::Message { from, message: control::Message::Replica(message) } => {
                // The known leader replicates in its term; such a message may carry much.
                let carries = !message.entries.is_empty() || message.snapshot.is_some();
                carries && self.leader() == Some(*from) && self.replica().view().2.0 == message.term
            }
            Input::Command(command) => matches!(command, Propose(_) | Write(..) | Room(_) | Read(_) | Compact(..)),
            _ => false,
        }
    }
}

const fn topic_of_kind(kind: Kind) -> Topic {
    match kind {
        Kind::RequestPreVote
        | Kind::RequestPreVoteResponse
        | Kind::RequestVote
        | Kind::RequestVoteResponse
        | Kind::TimeoutNow => Topic::Election,
        Kind::Heartbeat | Kind::HeartbeatResponse => Topic::Heartbeat,
        _ => Topic::Other,
    }
}

impl Telling for Groups {
    fn message(said: &Said) -> Topic {
        match said {
            Said::Election { message, .. } => match AnyElection::kind_of(message) {
                MessageKind::Election | MessageKind::Alive => Topic::Election,
                MessageKind::Coordinator | MessageKind::Elected => Topic::Reminder,
            },
            _ => Topic::Heartbeat,
        }
    }

    fn timer(timer: groups::Timer) -> Topic {
        match timer {
            groups::Timer::Election(_, election::Timer::Remind | election::Timer::Silence) => Topic::Reminder,
            groups::Timer::Election(..) => Topic::Election,
            _ => Topic::Heartbeat,
        }
    }

    fn command(command: &groups::Command) -> Topic {
        match command {
            groups::Command::Score(_) => Topic::Other,
            _ => Topic::Election,
        }
    }

    fn notice(_: &groups::Notice) -> Topic {
        Topic::Election
    }

    fn is_routine(&self, _: &Input<Self>) -> bool {
        false
    }
}
