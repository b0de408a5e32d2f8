//! Any election, for a server that is told only at its start which one to use.

use std::fmt;

use primus_core::election::bully::{self, Bully};
use primus_core::election::ring::{self, Ring};
use primus_core::election::{Command, Election, MessageKind, Notice, Timer};
use primus_core::machine::{Input, Machine, Moment, Never, Outbox, Output};
use primus_core::{Round, ServerId};

use crate::own_election::{self, OwnElection};

/// The election of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AnyElection {
    /// The best-ranked live server leads.
    Bully(Bully),
    /// A token goes round.
    Ring(Ring),
    /// Somebody else's.
    Own(OwnElection),
}

impl AnyElection {
    /// The latest election that this server knows of.
    #[must_use]
    pub const fn round(&self) -> Round {
        match self {
            Self::Bully(bully) => bully.round(),
            Self::Ring(ring) => ring.round(),
            Self::Own(_) => Round::UNKNOWN,
        }
    }
}

/// What any of them says. They never meet: all servers of a cluster use the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Message {
    /// Bully.
    Bully(bully::Message),
    /// Ring.
    Ring(ring::Message),
    /// Somebody else's.
    Own(own_election::Message),
}

impl Machine for AnyElection {
    type Peer = ServerId;
    type Message = Message;
    type Command = Command;
    type Timer = Timer;
    type Record = Never;
    type Token = Never;
    type Barrier = Never;
    type Notice = Notice;

    fn step(&mut self, now: Moment, input: Input<Self>, out: &mut Outbox<Self>) {
        match self {
            Self::Bully(bully) => drive(bully, now, input, (in_bully, Message::Bully), out),
            Self::Ring(ring) => drive(ring, now, input, (in_ring, Message::Ring), out),
            Self::Own(own) => own.step(now, input, out),
        }
    }
}

fn in_bully(message: Message) -> Option<bully::Message> {
    match message {
        Message::Bully(message) => Some(message),
        Message::Ring(_) | Message::Own(_) => None,
    }
}

fn in_ring(message: Message) -> Option<ring::Message> {
    match message {
        Message::Ring(message) => Some(message),
        Message::Bully(_) | Message::Own(_) => None,
    }
}

/// Steps the inner machine and hands out what it wants. Its messages are unwrapped on their way in, and wrapped on their way out.
pub(crate) fn drive<E: Election>(
    machine: &mut E,
    now: Moment,
    input: Input<AnyElection>,
    (unwrap, wrap): (impl Fn(Message) -> Option<E::Message>, impl Fn(E::Message) -> Message),
    out: &mut Outbox<AnyElection>,
) {
    let input = match input {
        Input::Message { from, message } => match unwrap(message) {
            Some(message) => Input::Message { from, message },
            None => return out.ignore("a message of another algorithm"),
        },
        Input::Timer(timer) => Input::Timer(timer),
        Input::Command(command) => Input::Command(command),
        Input::LinkUp(peer) => Input::LinkUp(peer),
        Input::LinkDown(peer) => Input::LinkDown(peer),
    };
    let mut inner = Outbox::new();
    machine.step(now, input, &mut inner);
    for output in inner.drain() {
        match output {
            Output::Send { to, message } => out.send(to, wrap(message)),
            Output::Set { timer, delay } => out.set(timer, delay),
            Output::Cancel(timer) => out.cancel(timer),
            Output::Notify(notice) => out.notify(notice),
            Output::Ignore(reason) => out.ignore(reason),
        }
    }
}

impl Election for AnyElection {
    fn id(&self) -> ServerId {
        match self {
            Self::Bully(bully) => bully.id(),
            Self::Ring(ring) => ring.id(),
            Self::Own(own) => own.id(),
        }
    }

    fn leader(&self) -> Option<ServerId> {
        match self {
            Self::Bully(bully) => bully.leader(),
            Self::Ring(ring) => ring.leader(),
            Self::Own(own) => own.leader(),
        }
    }

    fn is_electing(&self) -> bool {
        match self {
            Self::Bully(bully) => bully.is_electing(),
            Self::Ring(ring) => ring.is_electing(),
            Self::Own(own) => own.is_electing(),
        }
    }

    fn better(&self) -> Option<ServerId> {
        match self {
            Self::Bully(bully) => bully.better(),
            Self::Ring(ring) => ring.better(),
            Self::Own(own) => own.better(),
        }
    }

    fn better_among(&self, may_lead: &dyn Fn(ServerId) -> bool) -> Option<ServerId> {
        match self {
            Self::Bully(bully) => bully.better_among(may_lead),
            Self::Ring(ring) => ring.better_among(may_lead),
            Self::Own(own) => own.better_among(may_lead),
        }
    }

    fn better_count(&self) -> usize {
        match self {
            Self::Bully(bully) => bully.better_count(),
            Self::Ring(ring) => ring.better_count(),
            Self::Own(own) => own.better_count(),
        }
    }

    fn preempts(&self) -> bool {
        match self {
            Self::Bully(bully) => bully.preempts(),
            Self::Ring(ring) => ring.preempts(),
            Self::Own(own) => own.preempts(),
        }
    }

    fn kind_of(message: &Message) -> MessageKind {
        match message {
            Message::Bully(message) => Bully::kind_of(message),
            Message::Ring(message) => Ring::kind_of(message),
            Message::Own(message) => message.kind,
        }
    }

    fn is_credible(&self, message: &Message) -> bool {
        match (self, message) {
            (Self::Bully(bully), Message::Bully(message)) => bully.is_credible(message),
            (Self::Ring(ring), Message::Ring(message)) => ring.is_credible(message),
            // What only an election of one's own can read, or one of another algorithm, which is ignored anyway.
            _ => true,
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bully(message) => message.fmt(f),
            Self::Ring(message) => message.fmt(f),
            Self::Own(message) => message.fmt(f),
        }
    }
}
