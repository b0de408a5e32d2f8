//! One run: machines, a network and a schedule of faults in virtual time, all chance drawn from one seed.
//!
//! The same seed gives the same run, bit for bit. A run ends when the election has *settled*: no fault is still to
//! come, no message is under way, nobody is electing, and the last disturbance is long enough ago for repairs. It is
//! broken off when that does not happen within its patience.
//!
//! Not here: which faults happen ([`crate::faults`]), what must hold afterwards ([`crate::invariants`]).
//!
//! Elections alone have a loop of their own beside the driver of whole servers, because a ring may have a million nodes,
//! and most of a run's time goes into touching memory. A node is a slot in a vector here, with a number for each of its
//! timers. A host of the driver is found in a map, and has clocks, a disk, threads and links. Both share virtual time
//! and its loop (`timeline.rs`), how messages travel ([`crate::network`]), kinds of faults and partitions
//! ([`crate::faults`]), and what happens to nodes ([`Happening`]).

use std::collections::{BTreeSet, VecDeque};

use primus_core::election::{Command, Election, Timer};
use primus_core::machine::{Delay, Input, Moment, Outbox, Output};
use primus_core::{Machine, ServerId};

use crate::chance::Chance;
use crate::index::Index;
use crate::network::Network;
use crate::node::NodeId;
pub use crate::observer::Observer;
pub use crate::outcome::{Counts, Leaders, Outcome};
use crate::timeline::{Scene, Timeline, play};

/// Everything that a run is made of.
#[derive(Debug, Clone)]
pub struct Setup<M> {
    /// Fresh machines. One that restarts is a copy of the one here.
    pub nodes: Vec<M>,
    /// Who leads before the run starts. Nodes that outrank it would take over again at once if they may preempt; the
    /// caller sees to it that none does.
    pub leader: Option<ServerId>,
    /// How messages travel.
    pub network: Network,
    /// What happens when, in microseconds.
    pub schedule: Vec<(u64, Happening)>,
    /// How much faster or slower the nodes' clocks run, in parts per million; none means exact.
    pub clock_skew_ppm: Vec<i64>,
    /// How long after a change a node may notice that a peer is gone or back. Without it only unanswered questions tell.
    pub detection: Option<Delay>,
    /// How long after the last disturbance lost messages may still be repaired.
    pub repair_us: u64,
    /// How long after the last disturbance the run is broken off.
    pub patience_us: u64,
    /// Where all chance comes from.
    pub seed: u64,
}

/// Something that happens to the nodes or to the links between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happening {
    /// The owner of a node commands it.
    Command(NodeId, Command),
    /// A node dies and forgets everything that is not on disk.
    Crash(NodeId),
    /// A dead node starts again.
    Restart(NodeId),
    /// A node stands still; what reaches it waits.
    Pause(NodeId),
    /// It goes on: first what waited, then its timers.
    Resume(NodeId),
    /// Messages from the first to the second get lost.
    Cut(NodeId, NodeId),
    /// They arrive again.
    Mend(NodeId, NodeId),
}

/// Makes the run that `setup` describes.
pub fn run<M: Election, O: Observer<M>>(setup: Setup<M>, observer: &mut O) -> Outcome {
    let mut simulation = Simulation::new(setup, observer);
    play(&mut simulation);
    simulation.outcome()
}

/// A run under way.
struct Simulation<'a, M: Election, O> {
    setup: Setup<M>,
    observer: &'a mut O,
    /// Who is in which slot, also while it is dead.
    ids: Vec<ServerId>,
    slots: Vec<Slot<M>>,
    /// What restarts; empty in a run without restarts, so that a million nodes are not kept twice.
    fresh: Vec<M>,
    index: Index,
    time: Timeline<Event<M>>,
    outbox: Outbox<M>,
    /// Timers are numbered: one that was set again or cancelled is known by its old number.
    next_number: u32,
    cut: BTreeSet<(ServerId, ServerId)>,
    messages_under_way: u64,
    happenings_to_come: u64,
    electing: usize,
    leading: u32,
    last_disturbance_us: Option<u64>,
    /// Is a leader just repeating itself? That is no part of the election and is counted apart.
    is_reminding: bool,
    /// Messages of the time before the run, unseen and uncounted.
    prologue: Option<VecDeque<(ServerId, u32, M::Message)>>,
    outcome: Outcome,
}

/// A node and what belongs to it. Small, because there may be a million: most of a run's time goes into touching memory.
struct Slot<M: Election> {
    /// None while it is dead.
    machine: Option<M>,
    /// The number under which each timer was set last; 0 while it does not run.
    timers: [u32; Timer::ALL.len()],
    /// What waits while it is paused.
    backlog: Option<Vec<Event<M>>>,
    /// When it last knew a leader.
    last_defined_us: u64,
}

enum Event<M: Machine> {
    Deliver { from: ServerId, to: u32, message: M::Message },
    Timer { slot: u32, timer: Timer, number: u32 },
    Happening(Happening),
    Look { watcher: u32, peer: u32 },
}

impl<M: Election> Slot<M> {
    const fn new(machine: M) -> Self {
        Self { machine: Some(machine), timers: [0; Timer::ALL.len()], backlog: None, last_defined_us: 0 }
    }
}

impl<M: Election, O: Observer<M>> Scene for Simulation<'_, M, O> {
    type Event = Event<M>;

    fn time(&mut self) -> &mut Timeline<Event<M>> {
        &mut self.time
    }

    fn on_event(&mut self, event: Event<M>) {
        match event {
            Event::Deliver { from, to, message } => {
                self.messages_under_way -= 1;
                self.on_deliver(from, to, message);
            }
            Event::Timer { slot, timer, number } => self.on_timer(slot, timer, number),
            Event::Happening(happening) => {
                self.happenings_to_come -= 1;
                self.on_happening(happening);
            }
            Event::Look { watcher, peer } => {
                self.happenings_to_come -= 1;
                self.on_look(watcher, peer);
            }
        }
    }

    fn is_over(&mut self) -> bool {
        let since_us = self.last_disturbance_us.map(|at| self.time.now_us.saturating_sub(at));
        let is_quiet = self.messages_under_way == 0 && self.happenings_to_come == 0 && self.electing == 0;
        self.outcome.settled = is_quiet && since_us.is_none_or(|since| since >= self.setup.repair_us);
        let out_of_patience = self.happenings_to_come == 0
            && self.time.now_us.saturating_sub(self.last_disturbance_us.unwrap_or(0)) > self.setup.patience_us;
        self.outcome.settled || out_of_patience
    }

    /// Nothing needs to be waited for either.
    fn on_silence(&mut self) {
        self.outcome.settled = self.electing == 0;
    }
}

impl<'a, M: Election, O: Observer<M>> Simulation<'a, M, O> {
    fn new(mut setup: Setup<M>, observer: &'a mut O) -> Self {
        let nodes = std::mem::take(&mut setup.nodes);
        let ids: Vec<ServerId> = nodes.iter().map(Election::id).collect();
        let restarts = setup.schedule.iter().any(|(_, happening)| matches!(happening, Happening::Restart(_)));
        let mut simulation = Self {
            index: Index::new(&ids),
            ids,
            fresh: if restarts { nodes.clone() } else { Vec::new() },
            electing: nodes.iter().filter(|node| node.is_electing()).count(),
            leading: 0,
            slots: nodes.into_iter().map(Slot::new).collect(),
            time: Timeline::new(Chance::new(setup.seed)),
            outbox: Outbox::new(),
            next_number: 0,
            cut: BTreeSet::new(),
            messages_under_way: 0,
            happenings_to_come: 0,
            last_disturbance_us: None,
            is_reminding: false,
            prologue: None,
            outcome: Outcome::default(),
            observer,
            setup,
        };
        simulation.begin();
        simulation
    }

    fn begin(&mut self) {
        for (at_us, happening) in std::mem::take(&mut self.setup.schedule) {
            self.schedule(at_us, Event::Happening(happening));
        }
        if let Some(leader) = self.setup.leader {
            self.on_slot(leader, Self::inaugurate);
        }
    }

    /// Lets a node win before the run starts: it believes itself alone, announces itself, and everybody hears that.
    fn inaugurate(&mut self, slot: u32) {
        self.prologue = Some(VecDeque::new());
        let leader = self.id(slot);
        let peers: Vec<ServerId> = self.ids.iter().copied().filter(|id| *id != leader).collect();
        peers.iter().for_each(|peer| self.command(slot, Command::Suspect(*peer)));
        self.command(slot, Command::Start);
        peers.iter().for_each(|peer| self.command(slot, Command::Trust(*peer)));
        while let Some((from, to, message)) = self.prologue.as_mut().and_then(VecDeque::pop_front) {
            self.step(to, Input::Message { from, message });
        }
        self.prologue = None;
        self.outcome = Outcome::default();
    }

    fn id(&self, slot: u32) -> ServerId {
        self.ids[slot as usize]
    }

    fn slot(&mut self, slot: u32) -> &mut Slot<M> {
        &mut self.slots[slot as usize]
    }

    fn schedule(&mut self, at_us: u64, event: Event<M>) {
        match event {
            Event::Happening(_) | Event::Look { .. } => self.happenings_to_come += 1,
            Event::Deliver { .. } => self.messages_under_way += 1,
            Event::Timer { .. } => {}
        }
        self.time.at(at_us, event);
    }

    fn on_deliver(&mut self, from: ServerId, to: u32, message: M::Message) {
        let is_cut = !self.cut.is_empty() && self.cut.contains(&(from, self.id(to)));
        if is_cut || self.slot(to).machine.is_none() {
            return self.lose(from, to, &message);
        }
        if let Some(backlog) = &mut self.slot(to).backlog {
            return backlog.push(Event::Deliver { from, to, message });
        }
        self.step(to, Input::Message { from, message });
    }

    /// The cut, the crash or the bad luck behind it is the disturbance, not each message that it swallows: reminders to
    /// a node that stays dead are lost for ever.
    fn lose(&mut self, from: ServerId, to: u32, message: &M::Message) {
        self.observer.on_loss(self.time.now_us, from.into(), self.ids[to as usize].into(), message);
    }

    fn on_timer(&mut self, slot: u32, timer: Timer, number: u32) {
        let Slot { timers, backlog, .. } = self.slot(slot);
        if timers[timer as usize] != number {
            return;
        }
        if let Some(backlog) = backlog {
            return backlog.push(Event::Timer { slot, timer, number });
        }
        timers[timer as usize] = 0;
        self.step(slot, Input::Timer(timer));
    }

    fn on_happening(&mut self, happening: Happening) {
        self.observer.on_happening(self.time.now_us, &happening);
        match happening {
            Happening::Command(node, command) => {
                self.on_slot(node.server(), |simulation, slot| simulation.command(slot, command));
            }
            Happening::Crash(node) => self.on_slot(node.server(), Self::crash),
            Happening::Restart(node) => self.on_slot(node.server(), Self::restart),
            Happening::Pause(node) => self.on_slot(node.server(), Self::pause),
            Happening::Resume(node) => self.on_slot(node.server(), Self::resume),
            Happening::Cut(from, to) => self.on_link(from.server(), to.server(), true),
            Happening::Mend(from, to) => self.on_link(from.server(), to.server(), false),
        }
    }

    fn on_slot(&mut self, node: ServerId, action: impl FnOnce(&mut Self, u32)) {
        if let Some(slot) = self.index.slot(node) {
            action(self, slot);
        }
    }

    fn command(&mut self, slot: u32, command: Command) {
        if let Slot { machine: Some(_), backlog: None, .. } = self.slot(slot) {
            self.step(slot, Input::Command(command));
        }
    }

    fn crash(&mut self, slot: u32) {
        self.disturb();
        if let Some(machine) = self.slot(slot).machine.take() {
            self.note_change(Some(&machine), None);
        }
        self.slot(slot).timers = Default::default();
        self.slot(slot).backlog = None;
        self.let_all_look(slot);
    }

    fn restart(&mut self, slot: u32) {
        if self.slot(slot).machine.is_some() {
            return;
        }
        self.disturb();
        let machine = self.fresh[slot as usize].clone();
        self.note_change(None, Some(&machine));
        self.slot(slot).machine = Some(machine);
        self.step(slot, Input::Command(Command::Boot));
        self.let_all_look(slot);
    }

    fn pause(&mut self, slot: u32) {
        if let Slot { machine: Some(_), backlog: backlog @ None, .. } = self.slot(slot) {
            *backlog = Some(Vec::new());
            self.disturb();
            self.let_all_look(slot);
        }
    }

    /// First the messages that waited, then the timers: one's own pause is nobody else's silence.
    fn resume(&mut self, slot: u32) {
        let Some(backlog) = self.slot(slot).backlog.take() else { return };
        self.disturb();
        let (messages, timers): (Vec<_>, Vec<_>) =
            backlog.into_iter().partition(|event| matches!(event, Event::Deliver { .. }));
        for event in messages.into_iter().chain(timers) {
            self.schedule(self.time.now_us, event);
        }
        self.let_all_look(slot);
    }

    fn on_link(&mut self, from: ServerId, to: ServerId, is_cut: bool) {
        self.disturb();
        if is_cut {
            self.cut.insert((from, to));
        } else {
            self.cut.remove(&(from, to));
        }
        if let (Some(from), Some(to)) = (self.index.slot(from), self.index.slot(to)) {
            self.look_later(to, from);
            self.look_later(from, to);
        }
    }

    fn let_all_look(&mut self, changed: u32) {
        for peer in (0..self.slots.len() as u32).filter(|peer| *peer != changed) {
            self.look_later(peer, changed);
            self.look_later(changed, peer);
        }
    }

    /// After a while a node looks whether a peer is there.
    fn look_later(&mut self, watcher: u32, peer: u32) {
        let Some(Delay { min_us, max_us }) = self.setup.detection else { return };
        let at_us = self.time.now_us + self.time.chance.between(min_us, max_us);
        self.schedule(at_us, Event::Look { watcher, peer });
    }

    /// A peer is there if it lives, moves, and its messages arrive.
    fn on_look(&mut self, watcher: u32, peer: u32) {
        let id = self.id(peer);
        let is_cut = self.cut.contains(&(id, self.id(watcher)));
        let is_there = !is_cut && matches!(self.slot(peer), Slot { machine: Some(_), backlog: None, .. });
        self.command(watcher, if is_there { Command::Trust(id) } else { Command::Suspect(id) });
    }

    fn step(&mut self, slot: u32, input: Input<M>) {
        let Slot { machine: Some(machine), last_defined_us, .. } = &mut self.slots[slot as usize] else { return };
        self.outcome.events += 1;
        self.is_reminding = matches!(input, Input::Timer(Timer::Remind));
        let before = (machine.is_electing(), machine.leads());
        let mut outbox = std::mem::take(&mut self.outbox);
        // Cloning an input costs nothing for an observer that sees nothing: the compiler removes it.
        machine.step(Moment(self.time.now_us), input.clone(), &mut outbox);
        let after = (machine.is_electing(), machine.leads());
        if machine.leader().is_some() {
            *last_defined_us = self.time.now_us;
        }
        if self.prologue.is_none() {
            self.observer.on_step(self.time.now_us, machine.id().into(), &input, outbox.as_slice());
        }
        self.note(before, after);
        for output in outbox.drain() {
            self.carry_out(slot, output);
        }
        self.outbox = outbox;
    }

    fn note_change(&mut self, before: Option<&M>, after: Option<&M>) {
        let state = |machine: Option<&M>| {
            machine.map_or((false, false), |machine| (machine.is_electing(), machine.leads()))
        };
        self.note(state(before), state(after));
    }

    fn note(&mut self, (was_electing, was_leading): (bool, bool), (is_electing, is_leading): (bool, bool)) {
        self.electing = self.electing + usize::from(is_electing) - usize::from(was_electing);
        self.leading = self.leading + u32::from(is_leading) - u32::from(was_leading);
        self.outcome.leaders.changes += u32::from(is_leading && !was_leading);
        self.outcome.leaders.most_at_once = self.outcome.leaders.most_at_once.max(self.leading);
    }

    fn carry_out(&mut self, slot: u32, output: Output<M>) {
        match output {
            Output::Send { to, message } => self.send(slot, to, message),
            Output::Set { timer, delay } => self.set_timer(slot, timer, delay),
            Output::Cancel(timer) => self.slot(slot).timers[timer as usize] = 0,
            Output::Notify(_) | Output::Ignore(_) => {}
        }
    }

    fn send(&mut self, from: u32, to: ServerId, message: M::Message) {
        // In a ring nearly every message goes to the next node: looking there first spares a search through memory.
        let next = from + 1;
        let to = if self.ids.get(next as usize) == Some(&to) { Some(next) } else { self.index.slot(to) };
        let (from, Some(to)) = (self.id(from), to) else { return };
        if let Some(prologue) = &mut self.prologue {
            return prologue.push_back((from, to, message));
        }
        if self.is_reminding {
            self.outcome.reminders += 1;
        } else {
            self.outcome.messages.add(M::kind_of(&message));
        }
        let arrivals = self.setup.network.arrivals(self.time.now_us, &mut self.time.chance);
        if arrivals.are_disturbed {
            self.disturb();
        }
        let [first, second] = arrivals.at_us;
        if let (Some(at_us), message) = (second, &message) {
            self.schedule(at_us, Event::Deliver { from, to, message: message.clone() });
        }
        match first {
            Some(at_us) => self.schedule(at_us, Event::Deliver { from, to, message }),
            None => self.lose(from, to, &message),
        }
    }

    fn set_timer(&mut self, slot: u32, timer: Timer, delay: Delay) {
        // Zero means that a timer does not run, so numbers begin again at one.
        self.next_number = self.next_number.checked_add(1).unwrap_or(1);
        let number = self.next_number;
        self.slot(slot).timers[timer as usize] = number;
        let skew_ppm = self.setup.clock_skew_ppm.get(slot as usize).copied().unwrap_or(0);
        let delay = delay.skewed(skew_ppm);
        let drawn_us = self.time.chance.between(delay.min_us, delay.max_us);
        self.time.at(self.time.now_us + drawn_us, Event::Timer { slot, timer, number });
    }

    fn disturb(&mut self) {
        self.last_disturbance_us = Some(self.time.now_us);
    }

    fn outcome(mut self) -> Outcome {
        let live = || self.slots.iter().filter_map(|slot| Some((slot.machine.as_ref()?, slot.last_defined_us)));
        self.outcome.table = live().map(|(machine, _)| (machine.id(), machine.leader())).collect();
        let undefined = live().filter(|(machine, _)| machine.leader().is_none());
        self.outcome.undefined_us = undefined.map(|(_, last_us)| self.time.now_us - last_us).max().unwrap_or(0);
        self.outcome.virtual_us = self.time.now_us;
        self.outcome.disturbed = self.last_disturbance_us.is_some();
        self.outcome
    }
}
