//! The machine of the examples: server 1 hands out numbers, and no number may be given twice, whatever crashes.

use std::fmt;

use primus_core::machine::{Input, Machine, Moment, Never, Outbox, Token};
use primus_core::{Output, ServerId};

/// The server that hands out numbers.
pub(crate) const GIVER: ServerId = ServerId(1);

/// One server: it hands out numbers, or asks for them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Tickets {
    /// The last number given.
    last: u64,
    /// The numbers received.
    pub(crate) received: Vec<u64>,
    /// A planted mistake: the number leaves before it is on the disk.
    pub(crate) is_hasty: bool,
}

/// What servers say to each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Message {
    Ask,
    Number(u64),
}

/// The owner wants a number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Want;

/// A number that must not be given again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Given(pub(crate) u64);

impl Tickets {
    /// A server as it starts, with what is on its disk.
    pub(crate) fn new(_: ServerId, disk: &[Given]) -> Self {
        Self { last: disk.last().map_or(0, |given| given.0), ..Self::default() }
    }
}

impl Machine for Tickets {
    type Peer = ServerId;
    type Message = Message;
    type Command = Want;
    type Timer = Never;
    type Record = Given;
    type Token = Token;
    type Barrier = Token;
    type Notice = Never;

    fn step(&mut self, _: Moment, input: Input<Self>, out: &mut Outbox<Self>) {
        match input {
            Input::Command(Want) => out.send(GIVER, Message::Ask),
            Input::Message { from, message: Message::Ask } => self.give(from, out),
            Input::Message { message: Message::Number(number), .. } => self.received.push(number),
            _ => {}
        }
    }
}

impl Tickets {
    fn give(&mut self, to: ServerId, out: &mut Outbox<Self>) {
        self.last += 1;
        let (token, number) = (Token(self.last), Message::Number(self.last));
        out.persist(token, vec![Given(self.last)]);
        if self.is_hasty {
            return out.send(to, number);
        }
        // The record must be durable first: a server that forgets a number gives it twice.
        out.send_after(token, to, number);
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask => f.write_str("ask"),
            Self::Number(number) => write!(f, "number {number}"),
        }
    }
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("want")
    }
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "given {}", self.0)
    }
}

/// Arithmetic needs no world.
#[test]
fn a_number_waits_for_its_record() {
    let mut out = Outbox::new();
    let ask = Input::Message { from: ServerId(2), message: Message::Ask };
    Tickets::new(GIVER, &[Given(7)]).step(Moment::START, ask, &mut out);
    let number = Output::SendAfter { token: Token(8), to: ServerId(2), message: Message::Number(8) };
    assert_eq!(out.as_slice(), [Output::Persist { token: Token(8), records: vec![Given(8)] }, number]);
}
