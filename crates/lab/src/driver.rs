//! The one driver of all runs: whole servers, workers and guards in virtual time, all chance drawn from one seed.
//!
//! A server is what ships: control on the real engine, the farm and the leases beside it, each on a thread of its own, with a disk that
//! is slow and loses what it has not synced. What is said in between takes its time, is lost, doubled and overtaken as
//! far as real ways allow that. Processes crash, restart and stand still; clocks run wrong and jump.
//!
//! What stands where, what is done to it and when it is over says a [`Plan`], which a setup ([`crate::setup`]) draws from the seed
//! ([`crate::cluster`], [`crate::farm`], [`crate::loans`], [`crate::leases`]). What must be true is in [`crate::checks`].
//!
//! Here are the loop and its events. `host` is what stands on a host, `servers` its threads, `workers` and `guards` the other
//! two kinds of hosts, `links` what is said between workers, servers and farms, `clients` who wants something of them, `fault`
//! what goes wrong.

pub(crate) mod clients;
pub(crate) mod clock;
pub(crate) mod disk;
pub(crate) mod fault;
mod guards;
pub(crate) mod host;
mod links;
pub(crate) mod plan;
mod servers;
mod threads;
mod workers;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use primus_core::lease::{self, Guard, guard};
use primus_core::ledger::{Entry, Held};
use primus_core::machine::{Delay, Input, Machine, Output};
use primus_core::{ServerId, SessionId, Term, WorkerId, loan};
use primus_server::control::{self, Command};
use primus_server::farm::Farm;
use primus_server::leases::Leases;
use primus_server::{Server, Worker, farm, worker};

use self::clients::Clients;
use self::clock::Clock;
use self::fault::Fault;
use self::host::{FarmHost, FarmPlace, GuardHost, Member, ServerHost, Thread, Words, WorkerHost};
use self::links::Ways;
use self::plan::{End, Plan};
use crate::chance::Chance;
use crate::checks::{Checks, Report, Tally};
use crate::lending::Books;
use crate::node::NodeId;
use crate::observer::Observer;
use crate::simulate::Happening;
use crate::timeline::{Scene, Timeline, play};

/// Whoever sees all that happens in a run.
pub trait Audience:
    Observer<Server> + Observer<Farm> + Observer<Leases> + Observer<Worker> + Observer<Guard>
{
}

impl<O> Audience for O where
    O: Observer<Server> + Observer<Farm> + Observer<Leases> + Observer<Worker> + Observer<Guard>
{
}

/// A run under way.
pub(crate) struct Run<'a, O> {
    plan: Plan,
    seed: u64,
    observer: &'a mut O,
    farms: Vec<FarmHost>,
    servers: BTreeMap<NodeId, ServerHost>,
    workers: BTreeMap<NodeId, WorkerHost>,
    guards: BTreeMap<NodeId, GuardHost>,
    ways: Ways,
    time: Timeline<Event>,
    /// Timers, links, questions and sessions are numbered, so that old ones are known.
    last_number: u64,
    /// What waits while a process stands still.
    frozen: BTreeMap<NodeId, Vec<Event>>,
    clients: Clients,
    checks: Checks,
    tally: Tally,
    /// Since when nothing is left to do, and which farm was flooded then.
    quiet_since_us: Option<u64>,
    /// Figures of a day of load, if it is one.
    books: Option<Books>,
    flooded: Option<FarmPlace>,
}

/// Something that will happen.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    Words {
        from: NodeId,
        to: NodeId,
        words: Box<Words>,
    },
    /// A link between servers is lost; is the peer's process gone, or another one in its place?
    Look {
        at: NodeId,
        peer: NodeId,
        incarnation: u32,
    },
    /// It can be made again.
    Dial {
        at: NodeId,
        peer: NodeId,
    },
    Timer {
        at: NodeId,
        timer: Timer,
        number: u64,
    },
    Synced {
        at: NodeId,
        incarnation: u32,
        write: Write,
    },
    Turn {
        at: NodeId,
        incarnation: u32,
        thread: Thread,
    },
    /// A worker calls a server,
    Call {
        member: Member,
        duty: u64,
        server: NodeId,
    },
    ToServer {
        server: NodeId,
        link: WorkerId,
        message: Box<worker::Message>,
    },
    ToWorker {
        worker: NodeId,
        link: WorkerId,
        message: Box<farm::Message>,
    },
    /// and one of the two notices that nothing passes any more.
    LinkEnds {
        at: NodeId,
        link: WorkerId,
    },
    Between {
        from: NodeId,
        to: NodeId,
        lane: u64,
        message: Box<loan::Message>,
    },
    Opened {
        worker: NodeId,
        incarnation: u32,
        farm: FarmPlace,
    },
    Done {
        member: Member,
        duty: u64,
        held: Held,
    },
    /// A guard's question arrives at a server, from the guard or from the server that it speaks through.
    Poll {
        from: NodeId,
        server: NodeId,
        asker: (NodeId, SessionId),
        poll: Box<lease::Poll>,
    },
    Answer {
        server: NodeId,
        term: Term,
        asker: (NodeId, SessionId),
        message: Box<lease::Message>,
    },
    Failed {
        server: NodeId,
        asker: (NodeId, SessionId),
        number: u64,
    },
    /// What ran under this token has ended.
    Ends {
        guard: NodeId,
        group: String,
        token: u64,
    },
    WantAgain {
        guard: NodeId,
        group: String,
    },
    Clients,
    Wishes,
    Clocks,
    /// A task comes that takes so long.
    Submit(FarmPlace, u64),
    Wish(FarmPlace, Box<Entry>),
    Order(FarmPlace, clients::Order),
    Command(NodeId, Box<Command>),
    Fault(Fault, u64),
    /// The transfer to that server has taken too long.
    Impatience(NodeId),
    Happening(Happening),
    ClockJumpsBack(NodeId, i64),
}

/// The timers of all machines.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Timer {
    Control(control::Timer),
    Farm(farm::Timer),
    Leases(lease::lessor::Tick),
    Worker(worker::Timer),
    Guard(guard::Timer),
}

/// What is written to a disk.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Write {
    Log,
    Of(worker::Write),
}

/// The loop.
impl<'a, O: Audience> Run<'a, O> {
    pub(crate) fn new(plan: Plan, chance: Chance, seed: u64, observer: &'a mut O) -> Self {
        let checks = Checks::new(&plan);
        let mut run = Self {
            seed,
            observer,
            farms: Vec::new(),
            servers: BTreeMap::new(),
            workers: BTreeMap::new(),
            guards: BTreeMap::new(),
            ways: Ways::default(),
            time: Timeline::new(chance),
            last_number: 0,
            frozen: BTreeMap::new(),
            clients: Clients::default(),
            checks,
            tally: Tally::default(),
            quiet_since_us: None,
            books: None,
            flooded: None,
            plan,
        };
        run.build();
        run
    }

    /// Makes the run and judges it.
    pub(crate) fn finish(mut self) -> Report {
        self.begin();
        play(&mut self);
        self.judge_end();
        let table = self.table();
        self.tally.virtual_us = self.time.now_us;
        self.checks.verdict(self.seed, table, self.tally)
    }

    fn begin(&mut self) {
        let hosts: Vec<NodeId> =
            self.servers.keys().chain(self.workers.keys()).chain(self.guards.keys()).copied().collect();
        for id in hosts {
            let at_us = self.time.chance.between(0, self.plan.start_us);
            self.time.at(at_us, Event::Happening(Happening::Restart(id)));
        }
        for event in [Event::Clients, Event::Wishes, Event::Clocks] {
            self.time.at(0, event);
        }
        for (at_us, event) in std::mem::take(&mut self.plan.events) {
            self.time.at(at_us, event);
        }
    }

    /// Does something lie between those who say this and those who are to hear it? What has arrived at a frozen process has
    /// arrived, whatever happens to the ways later.
    fn is_lost(&mut self, event: &Event) -> bool {
        match event {
            Event::Words { from, to, words } => {
                let is_lost = self.ways.is_cut(*from, *to);
                if is_lost {
                    Observer::<Server>::on_loss(self.observer, self.time.now_us, *from, *to, words);
                }
                is_lost
            }
            Event::Poll { from, server, .. } => self.ways.is_cut(*from, *server),
            Event::Answer { server, asker, .. } | Event::Failed { server, asker, .. } => {
                let at = self.guards[&asker.0].at;
                at != *server && self.ways.is_cut(*server, at) || self.ways.is_cut(at, asker.0)
            }
            _ => false,
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Words { from, to, words } => {
                self.step_control(to, Input::Message { from: from.server(), message: *words });
            }
            Event::Look { at, peer, incarnation } => self.on_look(at, peer, incarnation),
            Event::Dial { at, peer } => self.on_dial(at, peer),
            Event::Timer { at, timer, number } => self.on_timer(at, timer, number),
            Event::Synced { at, incarnation, write } => self.on_synced(at, incarnation, write),
            Event::Turn { at, incarnation, thread } => self.on_turn(at, incarnation, thread),
            Event::Call { member, duty, server } => self.on_call(member, duty, server),
            Event::ToServer { server, link, message } => self.on_word_to_server(server, link, *message),
            Event::ToWorker { worker, link, message } => self.on_word_to_worker(worker, link, *message),
            Event::LinkEnds { at, link } => self.on_link_ends(at, link),
            Event::Between { from, to, lane, message } => self.on_between(from, to, lane, *message),
            Event::Opened { worker, incarnation, farm } => self.on_opened(worker, incarnation, farm),
            Event::Done { member, duty, held } => self.on_done(member, duty, held),
            Event::Poll { from, server, asker, poll } => self.on_poll(from, server, asker, poll),
            Event::Answer { term, asker, message, .. } => self.on_answer(term, asker, *message),
            Event::Failed { asker, number, .. } => self.on_failed(asker, number),
            Event::Ends { guard, group, token } => self.on_ends(guard, group, token),
            Event::WantAgain { guard, group } => self.on_want_again(guard, &group),
            Event::Clients => self.on_clients(),
            Event::Wishes => self.on_wishes(),
            Event::Clocks => self.on_clocks(),
            Event::Submit(farm, takes_us) => self.on_submit(farm, takes_us),
            Event::Wish(farm, wish) => self.farms[farm].wishes.push(*wish),
            Event::Order(farm, order) => self.on_order(farm, order),
            Event::Command(server, command) => self.step_control(server, Input::Command(*command)),
            Event::Fault(fault, until_us) => self.on_fault(fault, until_us),
            Event::Impatience(server) => self.on_impatience(server),
            Event::Happening(happening) => self.on_happening(&happening),
            Event::ClockJumpsBack(at, by_ms) => self.jump(at, -by_ms),
        }
    }

    fn on_timer(&mut self, at: NodeId, timer: Timer, number: u64) {
        match timer {
            Timer::Control(timer) => self.on_control_timer(at, timer, number),
            Timer::Farm(timer) => self.on_farm_timer(at, timer, number),
            Timer::Leases(tick) => self.on_leases_timer(at, tick, number),
            Timer::Worker(timer) => self.on_worker_timer(at, timer, number),
            Timer::Guard(timer) => self.on_guard_timer(at, timer, number),
        }
    }

    fn on_synced(&mut self, at: NodeId, incarnation: u32, write: Write) {
        match write {
            Write::Log => self.on_log_synced(at, incarnation),
            Write::Of(write) => self.on_worker_synced(at, incarnation, write),
        }
    }

    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Are all faults over?
    const fn is_calm(&self) -> bool {
        self.time.now_us > self.plan.faults_end_us
    }

    /// A machine takes a step, and whoever watches sees it.
    fn see<M: Machine>(&mut self, at: NodeId, input: &Input<M>, outputs: &[Output<M>])
    where
        O: Observer<M>,
    {
        self.tally.steps += 1;
        self.observer.on_step(self.time.now_us, at, input, outputs);
    }

    fn observe(&mut self, happening: &Happening) {
        Observer::<Server>::on_happening(self.observer, self.time.now_us, happening);
    }

    fn set_timer(&mut self, at: NodeId, clock: Clock, timer: Timer, number: u64, delay: Delay) {
        self.time.after(clock.real(delay), Event::Timer { at, timer, number });
    }

    /// Everybody who lives, and whom each takes for the leader of its farm.
    fn table(&self) -> BTreeMap<ServerId, Option<ServerId>> {
        let live = self.servers.iter().filter_map(|(id, host)| Some((*id, host.process.as_ref()?)));
        live.map(|(id, process)| (id.server(), process.control.machine.leader())).collect()
    }
}

impl<O: Audience> Scene for Run<'_, O> {
    type Event = Event;

    fn time(&mut self) -> &mut Timeline<Event> {
        &mut self.time
    }

    fn on_event(&mut self, event: Event) {
        let at = event.receiver();
        if self.is_lost(&event) {
            return;
        }
        if let Some(backlog) = at.and_then(|at| self.frozen.get_mut(&at)) {
            return backlog.push(event);
        }
        // A machine that breaks an assertion of its own ends the run.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.happen(event))) {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word");
            self.checks.on_panic(at, words);
        }
    }

    fn is_over(&mut self) -> bool {
        let (now_us, calm_us) = (self.time.now_us, self.plan.faults_end_us);
        let is_done = match self.plan.end {
            End::At(end_us) => now_us >= end_us,
            End::Healed { within_us } => self.tally.healed_us.is_some() || now_us > calm_us + within_us,
            End::AtRest { within_us, .. } => now_us > calm_us + within_us || self.is_at_rest(),
        };
        is_done || self.checks.is_violated()
    }
}

impl Event {
    /// Who must be able to move for this to happen.
    const fn receiver(&self) -> Option<NodeId> {
        match self {
            Self::Words { to: at, .. }
            | Self::Look { at, .. }
            | Self::Dial { at, .. }
            | Self::Timer { at, .. }
            | Self::Synced { at, .. }
            | Self::Turn { at, .. }
            | Self::Call { member: Member { worker: at, .. }, .. }
            | Self::ToServer { server: at, .. }
            | Self::ToWorker { worker: at, .. }
            | Self::LinkEnds { at, .. }
            | Self::Between { to: at, .. }
            | Self::Opened { worker: at, .. }
            | Self::Done { member: Member { worker: at, .. }, .. }
            | Self::Poll { server: at, .. }
            | Self::Answer { asker: (at, _), .. }
            | Self::Failed { asker: (at, _), .. }
            | Self::Ends { guard: at, .. }
            | Self::WantAgain { guard: at, .. }
            | Self::Command(at, _)
            | Self::Impatience(at) => Some(*at),
            _ => None,
        }
    }

    /// After standing still, messages come before timers: a pause of one's own is nobody else's silence.
    const fn is_timer(&self) -> bool {
        matches!(self, Self::Timer { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most of a run's time goes into touching memory, and the queue moves what waits again and again.
    #[test]
    fn events_are_small() {
        assert!(size_of::<Event>() <= 64, "{}", size_of::<Event>());
    }
}
