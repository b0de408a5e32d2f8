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
    /// The number under which each timer of a process was set last.
    timers: BTreeMap<(NodeId, Timer), u64>,
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
    /// To a host, as soon as it can move.
    To(NodeId, What),
    Clients,
    Wishes,
    Clocks,
    /// A task comes that takes so long.
    Submit(FarmPlace, u64),
    Wish(FarmPlace, Box<Entry>),
    Order(FarmPlace, clients::Order),
    Fault(Fault, u64),
    Happening(Happening),
    ClockJumpsBack(NodeId, i64),
}

/// What happens to a host.
#[derive(Debug, Clone)]
pub(crate) enum What {
    /// A server says this.
    Words(NodeId, Box<Words>),
    /// A link between servers is lost; is the peer's process of this incarnation gone, or another one in its place?
    Look(NodeId, u32),
    /// It can be made again.
    Dial(NodeId),
    Timer(Timer, u64),
    Synced(u32, Write),
    Turn(u32, Thread),
    /// A worker calls a server, because of a duty for a farm,
    Call(FarmPlace, u64, NodeId),
    ToServer(WorkerId, Box<worker::Message>),
    ToWorker(WorkerId, Box<farm::Message>),
    /// and one of the two notices that nothing passes any more.
    LinkEnds(WorkerId),
    /// A server of another farm says this on its lane.
    Between(NodeId, u64, Box<loan::Message>),
    Opened(u32, FarmPlace),
    Done(FarmPlace, u64, Held),
    /// A guard's question arrives at a server, from the guard or from the server that it speaks through.
    Poll(NodeId, Asker, Box<lease::Poll>),
    /// The answer of a server that leads in this term, and that it cannot answer a question.
    Answer(NodeId, Term, SessionId, Box<lease::Message>),
    Failed(NodeId, SessionId, u64),
    /// What ran under this token has ended.
    Ends(String, u64),
    WantAgain(String),
    Command(Box<Command>),
    /// A transfer of leadership has taken too long.
    Impatience,
}

/// A guard and its session.
pub(crate) type Asker = (NodeId, SessionId);

/// The timers of all machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
            timers: BTreeMap::new(),
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
            Event::To(to, What::Words(from, words)) => {
                let is_lost = self.ways.is_cut(*from, *to);
                if is_lost {
                    Observer::<Server>::on_loss(self.observer, self.time.now_us, *from, *to, words);
                }
                is_lost
            }
            Event::To(server, What::Poll(from, ..)) => self.ways.is_cut(*from, *server),
            Event::To(guard, What::Answer(server, ..) | What::Failed(server, ..)) => {
                let at = self.guards[guard].at;
                at != *server && self.ways.is_cut(*server, at) || self.ways.is_cut(at, *guard)
            }
            _ => false,
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::To(at, what) => self.happen_to(at, what),
            Event::Clients => self.on_clients(),
            Event::Wishes => self.on_wishes(),
            Event::Clocks => self.on_clocks(),
            Event::Submit(farm, takes_us) => self.on_submit(farm, takes_us),
            Event::Wish(farm, wish) => self.farms[farm].wishes.push(*wish),
            Event::Order(farm, order) => self.on_order(farm, order),
            Event::Fault(fault, until_us) => self.on_fault(fault, until_us),
            Event::Happening(happening) => self.on_happening(&happening),
            Event::ClockJumpsBack(at, by_ms) => self.jump(at, -by_ms),
        }
    }

    fn happen_to(&mut self, at: NodeId, what: What) {
        match what {
            What::Words(from, words) => {
                self.step_control(at, Input::Message { from: from.server(), message: *words });
            }
            What::Look(peer, incarnation) => self.on_look(at, peer, incarnation),
            What::Dial(peer) => self.on_dial(at, peer),
            What::Timer(timer, number) => self.on_timer(at, timer, number),
            What::Synced(incarnation, Write::Log) => self.on_log_synced(at, incarnation),
            What::Synced(incarnation, Write::Of(write)) => self.on_worker_synced(at, incarnation, write),
            What::Turn(incarnation, thread) => self.on_turn(at, incarnation, thread),
            What::Call(farm, duty, server) => self.on_call(Member { worker: at, farm }, duty, server),
            What::ToServer(link, message) => self.on_word_to_server(at, link, *message),
            What::ToWorker(link, message) => self.on_word_to_worker(at, link, *message),
            What::LinkEnds(link) => self.on_link_ends(at, link),
            What::Between(from, lane, message) => self.on_between(from, at, lane, *message),
            What::Opened(incarnation, farm) => self.on_opened(at, incarnation, farm),
            What::Done(farm, duty, held) => self.on_done(Member { worker: at, farm }, duty, held),
            What::Poll(from, asker, poll) => self.on_poll(from, at, asker, poll),
            What::Answer(_, term, session, message) => self.on_answer(term, (at, session), *message),
            What::Failed(_, session, number) => self.on_failed((at, session), number),
            What::Ends(group, token) => self.on_ends(at, group, token),
            What::WantAgain(group) => self.on_want_again(at, &group),
            What::Command(command) => self.step_control(at, Input::Command(*command)),
            What::Impatience => self.on_impatience(at),
        }
    }

    /// One that was set again, or belongs to a process that has ended, is known by its number.
    fn on_timer(&mut self, at: NodeId, timer: Timer, number: u64) {
        if self.timers.get(&(at, timer)) != Some(&number) {
            return;
        }
        self.cancel(at, timer);
        match timer {
            Timer::Control(timer) => self.step_control(at, Input::Timer(timer)),
            Timer::Farm(timer) => self.on_farm_timer(at, timer),
            Timer::Leases(tick) => self.on_leases_timer(at, tick),
            Timer::Worker(timer) => self.on_worker_timer(at, timer),
            Timer::Guard(timer) => self.step_guard(at, Input::Timer(timer)),
        }
    }

    fn set(&mut self, at: NodeId, clock: Clock, timer: Timer, delay: Delay) {
        let number = self.number();
        self.timers.insert((at, timer), number);
        self.time.after(clock.real(delay), Event::To(at, What::Timer(timer, number)));
    }

    fn cancel(&mut self, at: NodeId, timer: Timer) {
        self.timers.remove(&(at, timer));
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
        let at = if let Event::To(at, _) = &event { Some(*at) } else { None };
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
    /// After standing still, messages come before timers: a pause of one's own is nobody else's silence.
    const fn is_timer(&self) -> bool {
        matches!(self, Self::To(_, What::Timer(..)))
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
