//! A server's farm or a worker, as they ship, as one machine. What a driver does is done here: it ends a turn after everything
//! that happens, and numbers links; it decides nothing.

use std::collections::BTreeMap;
use std::fmt;

use primus_core::farm::{foreman, worker as work};
use primus_core::ledger::{Limits, LoanId};
use primus_core::load::Weights;
use primus_core::loan::lending;
use primus_core::planted::Planted;
use primus_core::{FarmId, Input, Machine, Moment, Never, Outbox, Output, ServerId, WorkerId};
use primus_server::farm::{self, Message};
use primus_server::worker::{self, Peer, Worker, Write};

use super::cast::{Farm, Node};
use crate::tasks::address;

/// When stories begin, in milliseconds since 1970.
const WALL_MS: u64 = 1_794_800_000_000;
/// A link has the number of its worker, and more of these than any link before it.
const LINKS: u64 = 1_000_000;

/// Something of a server's farm, or of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Of<S, W> {
    Server(S),
    Worker(W),
}

pub(super) type Member = Of<Box<Host>, Box<Hand>>;
pub(super) type Command = Of<farm::Command, worker::Command>;
pub(super) type Notice = Of<farm::Notice, worker::Notice>;

/// A timer, which people call by the name of its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Timer(pub(super) Of<farm::Timer, worker::Timer>);

/// What a worker has on its disk.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Record(Farm, worker::Record);

/// A server, as far as its farm goes.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) farm: farm::Farm,
    home: Farm,
    /// The servers of each neighbour.
    neighbours: Vec<Vec<Node>>,
    links: BTreeMap<Node, WorkerId>,
    last_link: u64,
}

/// A worker.
#[derive(Debug)]
pub(super) struct Hand {
    pub(super) worker: Worker,
    all: Vec<Farm>,
    /// Its farms, by the numbers that it gives them.
    farms: BTreeMap<FarmId, Farm>,
}

impl Machine for Member {
    type Peer = Node;
    type Message = Message;
    type Command = Command;
    type Timer = Timer;
    type Record = Record;
    type Token = Write;
    type Barrier = Never;
    type Notice = Notice;

    fn step(&mut self, now: Moment, input: Input<Self>, out: &mut Outbox<Self>) {
        match self {
            Self::Server(host) => host.step(now, input, out),
            Self::Worker(hand) => hand.step(now, input, out),
        }
    }
}

/// What time it is.
pub(super) const fn shows_ms(now_us: u64) -> u64 {
    WALL_MS + now_us / 1000
}

impl Host {
    /// The `origin`th process of the story. Its farm has so many servers, and these neighbours.
    pub(super) fn new(node: Node, origin: u64, servers: usize, neighbours: &[(Farm, Vec<Node>)]) -> Self {
        let rules = farm::Rules {
            work: foreman::Rules::default(),
            lending: lending::Rules::default(),
            neighbours: neighbours.iter().map(|(farm, _)| farm.0.to_owned()).collect(),
            limits: Limits::default(),
            state_max: 1 << 30,
            servers,
            planted: Planted::NONE,
        };
        let farm = farm::Farm::new(ServerId(node.number()), origin, rules);
        let neighbours = neighbours.iter().map(|(_, servers)| servers.clone()).collect();
        Self { farm, home: node.farm(), neighbours, links: BTreeMap::new(), last_link: 0 }
    }

    fn step(&mut self, now: Moment, input: Input<Member>, out: &mut Outbox<Member>) {
        let Some(input) = self.take(input) else { return out.ignore("what comes on no link") };
        let mut outbox = Outbox::new();
        self.farm.step(now, input, &mut outbox);
        self.farm.step(now, Input::Command(farm::Command::Turn(shows_ms(now.0))), &mut outbox);
        outbox.drain().for_each(|output| self.carry_out(output, out));
    }

    fn take(&mut self, input: Input<Member>) -> Option<Input<farm::Farm>> {
        match input {
            Input::Message { from, message } => Some(Input::Message { from: self.peer(from)?, message }),
            Input::Command(Of::Server(command)) => Some(Input::Command(command)),
            Input::Timer(Timer(Of::Server(timer))) => Some(Input::Timer(timer)),
            Input::LinkUp(worker) => Some(Input::Command(self.open(worker))),
            Input::LinkDown(worker) => Some(Input::LinkDown(farm::Peer::Worker(self.links.remove(&worker)?))),
            _ => None,
        }
    }

    fn open(&mut self, worker: Node) -> farm::Command {
        self.last_link += LINKS;
        let link = WorkerId(self.last_link + worker.number());
        self.links.insert(worker, link);
        farm::Command::Link(link, worker.name_in(self.home))
    }

    fn peer(&self, node: Node) -> Option<farm::Peer> {
        let place = self.neighbours.iter().position(|servers| servers.contains(&node));
        let neighbour = place.map(|place| farm::Peer::Neighbour(FarmId(place as u64 + 1)));
        neighbour.or_else(|| self.links.get(&node).map(|link| farm::Peer::Worker(*link)))
    }

    fn carry_out(&self, output: Output<farm::Farm>, out: &mut Outbox<Member>) {
        match output {
            Output::Send { to: farm::Peer::Worker(to), message } => {
                let worker = self.links.iter().find(|(_, link)| **link == to);
                worker.into_iter().for_each(|(worker, _)| out.send(*worker, message.clone()));
            }
            // All servers of a neighbour hear it, and the one that leads listens.
            Output::Send { to: farm::Peer::Neighbour(FarmId(number)), message } => {
                let servers = &self.neighbours[number as usize - 1];
                servers.iter().for_each(|server| out.send(*server, message.clone()));
            }
            Output::Set { timer, delay } => out.set(Timer(Of::Server(timer)), delay),
            Output::Cancel(timer) => out.cancel(Timer(Of::Server(timer))),
            Output::Notify(notice) => out.notify(Of::Server(notice)),
            Output::Ignore(reason) => out.ignore(reason),
        }
    }
}

impl Hand {
    /// A process that starts, with what is on its disk.
    pub(super) fn new(node: Node, slots: u16, all: Vec<Farm>, disk: &[Record]) -> Self {
        let home = node.farm();
        let (farm, name, weights) = (home.0.to_owned(), node.to_string(), Weights::DEFAULT);
        let rules = worker::Rules { farm, name, slots, beside: None, weights, planted: Planted::NONE };
        let epochs = disk.iter().map(|Record(_, record)| match record {
            worker::Record::Epoch(epoch) => *epoch,
            worker::Record::Result(_) => LoanId(0),
        });
        let worker = Worker::new(rules, epochs.max().unwrap_or_default(), kept(disk, home));
        Self { worker, all, farms: BTreeMap::from([(FarmId::OWN, home)]) }
    }

    /// The farm of this number.
    pub(super) fn farm(&self, number: FarmId) -> Farm {
        self.farms[&number]
    }

    /// The farms that it serves or has results for, and what it does for each.
    pub(super) fn works(&self) -> impl Iterator<Item = (FarmId, &work::Worker)> + '_ {
        self.worker.farms().filter_map(|(number, _)| Some((number, self.worker.work(number)?)))
    }

    fn step(&mut self, now: Moment, input: Input<Member>, out: &mut Outbox<Member>) {
        let Some(input) = self.take(input) else { return out.ignore("what comes of no farm of its own") };
        let mut outbox = Outbox::new();
        self.worker.step(now, input, &mut outbox);
        self.worker.step(now, Input::Command(worker::Command::Turn), &mut outbox);
        let parted = outbox.as_slice().iter().filter_map(|output| match output {
            Output::Notify(worker::Notice::Part(farm)) => Some(*farm),
            _ => None,
        });
        let parted: Vec<FarmId> = parted.collect();
        outbox.drain().for_each(|output| self.carry_out(output, &parted, out));
    }

    fn take(&self, input: Input<Member>) -> Option<Input<Worker>> {
        match input {
            Input::Message { from, message } => {
                Some(Input::Message { from: self.peer(from)?, message: heard(message)? })
            }
            Input::Command(Of::Worker(command)) => Some(Input::Command(command)),
            Input::Timer(Timer(Of::Worker(timer))) => Some(Input::Timer(timer)),
            Input::Persisted(write) => Some(Input::Persisted(write)),
            Input::LinkUp(server) => self.peer(server).map(Input::LinkUp),
            Input::LinkDown(server) => self.peer(server).map(Input::LinkDown),
            _ => None,
        }
    }

    /// A farm that it serves again has another number.
    fn peer(&self, node: Node) -> Option<Peer> {
        let Node::Server(of, server) = node else { return None };
        let mut farms = self.farms.iter().rev();
        farms.find(|(_, farm)| **farm == of).map(|(farm, _)| Peer { farm: *farm, server })
    }

    fn carry_out(&mut self, output: Output<Worker>, parted: &[FarmId], out: &mut Outbox<Member>) {
        match output {
            // What was said in a turn leaves at its end, and not on links that are dropped by then.
            Output::Send { to, message } if !parted.contains(&to.farm) => {
                let server = Node::Server(self.farm(to.farm), to.server);
                said(message).into_iter().for_each(|message| out.send(server, message));
            }
            Output::Send { .. } => {}
            Output::Persist { token, records } => {
                let farm = self.farm(if let Write::Results(farm, _) = token { farm } else { FarmId::OWN });
                out.persist(token, records.into_iter().map(|record| Record(farm, record)).collect());
            }
            Output::Set { timer, delay } => out.set(Timer(Of::Worker(timer)), delay),
            Output::Cancel(timer) => out.cancel(Timer(Of::Worker(timer))),
            Output::Notify(notice) => {
                if let worker::Notice::Begin { farm, address, .. } = &notice {
                    let begun = self.all.iter().find(|farm| farm.0 == address.name);
                    self.farms.extend(begun.map(|begun| (*farm, *begun)));
                }
                out.notify(Of::Worker(notice));
            }
            Output::Ignore(reason) => out.ignore(reason),
        }
    }
}

/// What a disk has for one farm.
pub(super) fn kept(disk: &[Record], farm: Farm) -> Vec<work::Record> {
    let of_farm = |Record(of, record): &Record| match record {
        worker::Record::Result(record) if *of == farm => Some(record.clone()),
        _ => None,
    };
    disk.iter().filter_map(of_farm).collect()
}

/// What a worker hears when a server says this.
fn heard(message: Message) -> Option<worker::Message> {
    match message {
        Message::Leads(term) => Some(worker::Message::Leads(term)),
        Message::Follows => Some(worker::Message::Follows),
        Message::Work(message) => Some(worker::Message::Work(message)),
        Message::Placement(word) => Some(worker::Message::Call(word, address("", [ServerId(1)]).servers)),
        Message::Loan(_) => None,
    }
}

/// What a server hears when a worker says this.
fn said(message: worker::Message) -> Option<Message> {
    match message {
        worker::Message::Work(message) => Some(Message::Work(message)),
        worker::Message::Placement(word) => Some(Message::Placement(word)),
        _ => None,
    }
}

impl<S: fmt::Display, W: fmt::Display> fmt::Display for Of<S, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) => server.fmt(f),
            Self::Worker(worker) => worker.fmt(f),
        }
    }
}

impl fmt::Display for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.0.to_string();
        match words.rsplit_once(' ').map(|(what, link)| (what, link.parse::<u64>())) {
            Some((what, Ok(link))) if link > LINKS => write!(f, "{what} w{}", link % LINKS),
            _ => f.write_str(&words),
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.1.fmt(f)
    }
}
