//! A user's election as a machine of the servers and of the laboratory.

use std::fmt;
use std::time::Duration;

use primus_core::ServerId;
use primus_core::election::{self, Command, MessageKind, Notice, Timer};
use primus_core::machine::{Delay, Input, Machine, Moment, Never, Outbox};
use serde::{Deserialize, Serialize};

use super::{Actions, Election, Event};

/// How long a server that has just started listens for a leader before it holds an election.
const STARTUP: Delay = Delay::between_ms(50, 100);

/// A user's election, and what others may ask of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Adapted<E> {
    id: ServerId,
    inner: E,
    leader: Option<ServerId>,
    /// The timer that runs.
    waits: Option<Timer>,
}

/// A user's message, which need not have a text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Said<M>(M);

impl<M: fmt::Debug> fmt::Display for Said<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl<E: Election> Adapted<E> {
    pub(crate) const fn new(id: ServerId, inner: E) -> Self {
        Self { id, inner, leader: None, waits: None }
    }

    fn event(&mut self, input: Input<Self>) -> Option<Event<E::Message>> {
        Some(match input {
            Input::Message { from, message: Said(message) } => Event::Message { from, message },
            Input::Timer(timer) if self.waits.take_if(|waits| *waits == timer).is_none() => return None,
            Input::Timer(Timer::Startup) | Input::Command(Command::Start) => Event::Start,
            Input::Timer(_) => Event::Timeout,
            Input::Command(Command::Resign) => Event::Resign,
            Input::Command(Command::Suspect(peer)) => Event::Suspect(peer),
            Input::Command(Command::Trust(peer)) => Event::Trust(peer),
            Input::Command(Command::Ratified(leader)) => Event::Ratified(leader),
            _ => return None,
        })
    }

    fn wait(&mut self, timer: Timer, delay: Delay, out: &mut Outbox<Self>) {
        self.stop_waiting(out);
        self.waits = Some(timer);
        out.set(timer, delay);
    }

    fn stop_waiting(&mut self, out: &mut Outbox<Self>) {
        self.waits.take().into_iter().for_each(|timer| out.cancel(timer));
    }

    fn carry_out(&mut self, actions: Actions<E::Message>, out: &mut Outbox<Self>) {
        let Actions { said, named, wait } = actions;
        said.into_iter().for_each(|(to, message)| out.send(to, Said(message)));
        if let Some(leader) = named {
            self.stop_waiting(out);
            self.leader = leader;
            out.notify(match leader {
                Some(leader) if leader == self.id => Notice::Lead,
                Some(leader) => Notice::Follow(leader),
                None => Notice::Undefined,
            });
        }
        if let Some((least, most)) = wait {
            let delay = Delay { min_us: micros(least), max_us: micros(most.max(least)) };
            self.wait(Timer::Answers, delay, out);
        }
    }
}

fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

impl<E: Election> Machine for Adapted<E> {
    type Peer = ServerId;
    type Message = Said<E::Message>;
    type Command = Command;
    type Timer = Timer;
    type Record = Never;
    type Token = Never;
    type Barrier = Never;
    type Notice = Notice;

    fn step(&mut self, _: Moment, input: Input<Self>, out: &mut Outbox<Self>) {
        if input == Input::Command(Command::Boot) {
            return self.wait(Timer::Startup, STARTUP, out);
        }
        let Some(event) = self.event(input) else { return out.ignore("what this election does not need") };
        let mut actions = Actions::new();
        self.inner.on(event, &mut actions);
        self.carry_out(actions, out);
    }
}

impl<E: Election> election::Election for Adapted<E> {
    fn id(&self) -> ServerId {
        self.id
    }

    fn leader(&self) -> Option<ServerId> {
        self.leader
    }

    fn is_electing(&self) -> bool {
        self.waits.is_some()
    }

    fn better(&self) -> Option<ServerId> {
        self.inner.better().into_iter().next()
    }

    fn better_among(&self, may_lead: &dyn Fn(ServerId) -> bool) -> Option<ServerId> {
        self.inner.better().into_iter().find(|server| may_lead(*server))
    }

    fn better_count(&self) -> usize {
        self.inner.better().len()
    }

    fn preempts(&self) -> bool {
        self.inner.preempts()
    }

    fn kind_of(_: &Self::Message) -> MessageKind {
        MessageKind::Election
    }
}
