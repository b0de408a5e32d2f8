//! One run: machines, a network and a schedule of faults in virtual time, all chance drawn from one seed.
//!
//! The same seed gives the same run, bit for bit. A run ends when the election has *settled*: no fault is still to
//! come, no message is under way, nobody is electing, and the last disturbance is long enough ago for repairs. It is
//! broken off when that does not happen within its patience.
//!
//! Not here: which faults happen ([`crate::faults`]), what must hold afterwards ([`crate::invariants`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use primus_core::election::{Command, Election, MessageKind, Timer};
use primus_core::machine::{Delay, Input, Outbox, Output};
use primus_core::{Machine, NodeId};

use crate::chance::Chance;
use crate::queue::Queue;

/// Everything that a run is made of.
#[derive(Debug, Clone)]
pub struct Setup<M> {
    /// Fresh machines. One that restarts is a copy of the one here.
    pub nodes: Vec<M>,
    /// Who leads before the run starts. Nodes that outrank it would take over again at once if they may preempt; the
    /// caller sees to it that none does.
    pub leader: Option<NodeId>,
    /// How messages travel.
    pub network: Network,
    /// What happens when, in microseconds.
    pub schedule: Vec<(u64, Happening)>,
    /// How much faster or slower the nodes' clocks run, in parts per million; none means exact.
    pub clock_skew_ppm: Vec<i64>,
    /// How long after a change a node may notice that a peer is gone or back.
    pub detection: Delay,
    /// How long after the last disturbance lost messages may still be repaired.
    pub repair_us: u64,
    /// How long after the last disturbance the run is broken off.
    pub patience_us: u64,
    /// Where all chance comes from.
    pub seed: u64,
}

/// How messages travel. Loss, duplication and extra delay end at a given time; the plain delay does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// How long a message takes. Each draws its own time, so messages overtake each other.
    pub delay: Delay,
    /// How many of a million messages are lost.
    pub loss_ppm: u32,
    /// How many of a million arrive twice.
    pub duplication_ppm: u32,
    /// How many of a million take much longer.
    pub lateness_ppm: u32,
    /// How much longer those take.
    pub late_by: Delay,
    /// When all this ends.
    pub faulty_until_us: u64,
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

/// Sees a run as it goes on.
pub trait Observer<M: Machine> {
    /// A node took a step.
    fn on_step(&mut self, _at_us: u64, _node: NodeId, _input: &Input<M>, _outputs: &[Output<M>]) {}
    /// Something happened to a node or a link.
    fn on_happening(&mut self, _at_us: u64, _happening: &Happening) {}
    /// A message was lost on its way.
    fn on_loss(&mut self, _at_us: u64, _from: NodeId, _to: NodeId, _message: &M::Message) {}
}

/// Sees nothing.
impl<M: Machine> Observer<M> for () {}

/// Two observers see the same run.
impl<M: Machine, A: Observer<M>, B: Observer<M>> Observer<M> for (A, B) {
    fn on_step(&mut self, at_us: u64, node: NodeId, input: &Input<M>, outputs: &[Output<M>]) {
        self.0.on_step(at_us, node, input, outputs);
        self.1.on_step(at_us, node, input, outputs);
    }

    fn on_happening(&mut self, at_us: u64, happening: &Happening) {
        self.0.on_happening(at_us, happening);
        self.1.on_happening(at_us, happening);
    }

    fn on_loss(&mut self, at_us: u64, from: NodeId, to: NodeId, message: &M::Message) {
        self.0.on_loss(at_us, from, to, message);
        self.1.on_loss(at_us, from, to, message);
    }
}

impl<M: Machine, O: Observer<M>> Observer<M> for &mut O {
    fn on_step(&mut self, at_us: u64, node: NodeId, input: &Input<M>, outputs: &[Output<M>]) {
        (**self).on_step(at_us, node, input, outputs);
    }

    fn on_happening(&mut self, at_us: u64, happening: &Happening) {
        (**self).on_happening(at_us, happening);
    }

    fn on_loss(&mut self, at_us: u64, from: NodeId, to: NodeId, message: &M::Message) {
        (**self).on_loss(at_us, from, to, message);
    }
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Did the election settle before the patience ran out?
    pub settled: bool,
    /// What every live node takes for the leader, in the order of the nodes.
    pub table: Vec<(NodeId, Option<NodeId>)>,
    /// How long the longest of those who know no leader has known none.
    pub undefined_us: u64,
    /// Messages sent, by kind.
    pub messages: Counts,
    /// How many nodes led at the same time at most, and how often somebody began to lead.
    pub leaders: Leaders,
    /// When it ended.
    pub virtual_us: u64,
    /// Steps taken.
    pub events: u64,
    /// Were there crashes, cuts, pauses or lost, doubled or late messages?
    pub disturbed: bool,
}

/// Messages by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts([u64; MessageKind::ALL.len()]);

/// Leaders during a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leaders {
    /// At the same time, at most.
    pub most_at_once: u32,
    /// How often somebody began to lead.
    pub changes: u32,
}

/// Makes the run that `setup` describes.
pub fn run<M: Election, O: Observer<M>>(setup: Setup<M>, observer: &mut O) -> Outcome {
    let mut simulation = Simulation::new(setup, observer);
    while !simulation.is_over() && simulation.next_event() {}
    simulation.outcome()
}

/// A run under way.
struct Simulation<'a, M: Election, O> {
    setup: Setup<M>,
    observer: &'a mut O,
    slots: Vec<Slot<M>>,
    index: Index,
    queue: Queue<Event<M>>,
    outbox: Outbox<M>,
    chance: Chance,
    now_us: u64,
    /// Timers and messages are numbered; a timer that was set again or cancelled is known by its old number.
    next_number: u64,
    cut: BTreeSet<(usize, usize)>,
    messages_under_way: u64,
    happenings_to_come: u64,
    electing: usize,
    leading: u32,
    last_disturbance_us: Option<u64>,
    /// Messages of the time before the run, unseen and uncounted.
    prologue: Option<VecDeque<(usize, usize, M::Message)>>,
    outcome: Outcome,
}

/// A node and what belongs to it.
struct Slot<M: Election> {
    /// None while it is dead.
    machine: Option<M>,
    timers: Vec<(Timer, u64)>,
    /// What waits while it is paused.
    backlog: Option<Vec<Event<M>>>,
    /// When it last knew a leader.
    last_defined_us: u64,
}

enum Event<M: Machine> {
    Deliver {
        from: usize,
        to: usize,
        message: M::Message,
    },
    Timer {
        slot: usize,
        timer: M::Timer,
        number: u64,
    },
    Happening(Happening),
    /// A node looks whether a peer is there.
    Look {
        watcher: usize,
        peer: usize,
    },
}

/// Finds the slot of a node: by a table where ids are dense, as in a ring of a million, else by search.
enum Index {
    Dense(Vec<u32>),
    Sparse(BTreeMap<NodeId, usize>),
}

impl Index {
    const NOBODY: u32 = u32::MAX;

    fn new(ids: &[NodeId]) -> Self {
        let largest = ids.iter().map(|id| id.0).max().unwrap_or(0);
        if largest > 4 * ids.len() as u64 + 64 {
            return Self::Sparse(ids.iter().enumerate().map(|(slot, id)| (*id, slot)).collect());
        }
        let mut table = vec![Self::NOBODY; largest as usize + 1];
        for (slot, id) in ids.iter().enumerate() {
            table[id.0 as usize] = u32::try_from(slot).expect("fewer than four billion nodes");
        }
        Self::Dense(table)
    }

    fn slot(&self, id: NodeId) -> Option<usize> {
        match self {
            Self::Sparse(map) => map.get(&id).copied(),
            Self::Dense(table) => table
                .get(usize::try_from(id.0).ok()?)
                .filter(|slot| **slot != Self::NOBODY)
                .map(|slot| *slot as usize),
        }
    }
}

impl<'a, M: Election, O: Observer<M>> Simulation<'a, M, O> {
    fn new(setup: Setup<M>, observer: &'a mut O) -> Self {
        let ids: Vec<NodeId> = setup.nodes.iter().map(Election::id).collect();
        let slot = |machine: &M| Slot {
            machine: Some(machine.clone()),
            timers: Vec::new(),
            backlog: None,
            last_defined_us: 0,
        };
        let mut simulation = Self {
            slots: setup.nodes.iter().map(slot).collect(),
            index: Index::new(&ids),
            queue: Queue::new(),
            outbox: Outbox::new(),
            chance: Chance::new(setup.seed),
            now_us: 0,
            next_number: 0,
            cut: BTreeSet::new(),
            messages_under_way: 0,
            happenings_to_come: 0,
            electing: setup.nodes.iter().filter(|node| node.is_electing()).count(),
            leading: u32::try_from(setup.nodes.iter().filter(|node| node.leads()).count()).unwrap_or(u32::MAX),
            last_disturbance_us: None,
            prologue: None,
            outcome: Outcome::default(),
            observer,
            setup,
        };
        for (at_us, happening) in std::mem::take(&mut simulation.setup.schedule) {
            simulation.schedule(at_us, Event::Happening(happening));
        }
        if let Some(leader) = simulation.setup.leader {
            simulation.on_slot(leader, Self::inaugurate);
        }
        simulation
    }

    /// Lets a node win before the run starts: it believes itself alone, announces itself, and everybody hears that.
    fn inaugurate(&mut self, slot: usize) {
        self.prologue = Some(VecDeque::new());
        let leader = self.setup.nodes[slot].id();
        let peers: Vec<NodeId> = self.setup.nodes.iter().map(Election::id).filter(|id| *id != leader).collect();
        peers.iter().for_each(|peer| self.command(slot, Command::Suspect(*peer)));
        self.command(slot, Command::Start);
        peers.iter().for_each(|peer| self.command(slot, Command::Trust(*peer)));
        while let Some((from, to, message)) = self.prologue.as_mut().and_then(VecDeque::pop_front) {
            let from = self.setup.nodes[from].id();
            self.step(to, Input::Message { from, message });
        }
        self.prologue = None;
        self.outcome = Outcome::default();
    }

    fn schedule(&mut self, at_us: u64, event: Event<M>) {
        match event {
            Event::Happening(_) | Event::Look { .. } => self.happenings_to_come += 1,
            Event::Deliver { .. } => self.messages_under_way += 1,
            Event::Timer { .. } => {}
        }
        self.queue.push(at_us, event);
    }

    fn is_over(&mut self) -> bool {
        let since_us = self.last_disturbance_us.map(|at| self.now_us.saturating_sub(at));
        let is_quiet = self.messages_under_way == 0 && self.happenings_to_come == 0 && self.electing == 0;
        self.outcome.settled = is_quiet && since_us.is_none_or(|since| since >= self.setup.repair_us);
        let out_of_patience = self.happenings_to_come == 0
            && self.now_us.saturating_sub(self.last_disturbance_us.unwrap_or(0)) > self.setup.patience_us;
        self.outcome.settled || out_of_patience
    }

    /// Takes the next event; false if nothing is left to happen.
    fn next_event(&mut self) -> bool {
        let Some((at_us, event)) = self.queue.pop() else {
            // Nothing will ever happen again, so nothing needs to be waited for either.
            self.outcome.settled = self.electing == 0;
            return false;
        };
        self.now_us = at_us;
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
        true
    }

    fn on_deliver(&mut self, from: usize, to: usize, message: M::Message) {
        if self.slots[to].machine.is_none() || (!self.cut.is_empty() && self.cut.contains(&(from, to))) {
            return self.lose(from, to, &message);
        }
        if let Some(backlog) = &mut self.slots[to].backlog {
            return backlog.push(Event::Deliver { from, to, message });
        }
        let from = self.setup.nodes[from].id();
        self.step(to, Input::Message { from, message });
    }

    /// The cut, the crash or the bad luck behind it is the disturbance, not each message that it swallows: reminders to
    /// a node that stays dead are lost for ever.
    fn lose(&mut self, from: usize, to: usize, message: &M::Message) {
        let (from, to) = (self.setup.nodes[from].id(), self.setup.nodes[to].id());
        self.observer.on_loss(self.now_us, from, to, message);
    }

    fn on_timer(&mut self, slot: usize, timer: M::Timer, number: u64) {
        let Slot { timers, backlog, .. } = &mut self.slots[slot];
        let Some(place) = timers.iter().position(|&set| set == (timer, number)) else { return };
        if let Some(backlog) = backlog {
            return backlog.push(Event::Timer { slot, timer, number });
        }
        timers.swap_remove(place);
        self.step(slot, Input::Timer(timer));
    }

    fn on_happening(&mut self, happening: Happening) {
        self.observer.on_happening(self.now_us, &happening);
        match happening {
            Happening::Command(node, command) => {
                self.on_slot(node, |simulation, slot| simulation.command(slot, command));
            }
            Happening::Crash(node) => self.on_slot(node, Self::crash),
            Happening::Restart(node) => self.on_slot(node, Self::restart),
            Happening::Pause(node) => self.on_slot(node, Self::pause),
            Happening::Resume(node) => self.on_slot(node, Self::resume),
            Happening::Cut(from, to) => self.on_link(from, to, true),
            Happening::Mend(from, to) => self.on_link(from, to, false),
        }
    }

    fn on_slot(&mut self, node: NodeId, action: impl FnOnce(&mut Self, usize)) {
        if let Some(slot) = self.index.slot(node) {
            action(self, slot);
        }
    }

    fn command(&mut self, slot: usize, command: Command) {
        if let (Some(_), None) = (&self.slots[slot].machine, &self.slots[slot].backlog) {
            self.step(slot, Input::Command(command));
        }
    }

    fn crash(&mut self, slot: usize) {
        self.disturb();
        if let Some(machine) = self.slots[slot].machine.take() {
            self.note_change(Some(&machine), None);
        }
        self.slots[slot].timers.clear();
        self.slots[slot].backlog = None;
        self.let_all_look(slot);
    }

    fn restart(&mut self, slot: usize) {
        if self.slots[slot].machine.is_some() {
            return;
        }
        self.disturb();
        let machine = self.setup.nodes[slot].clone();
        self.note_change(None, Some(&machine));
        self.slots[slot].machine = Some(machine);
        self.step(slot, Input::Command(Command::Boot));
        self.let_all_look(slot);
    }

    fn pause(&mut self, slot: usize) {
        if self.slots[slot].machine.is_some() && self.slots[slot].backlog.is_none() {
            self.disturb();
            self.slots[slot].backlog = Some(Vec::new());
            self.let_all_look(slot);
        }
    }

    /// First the messages that waited, then the timers: one's own pause is nobody else's silence.
    fn resume(&mut self, slot: usize) {
        let Some(backlog) = self.slots[slot].backlog.take() else { return };
        self.disturb();
        let (messages, timers): (Vec<_>, Vec<_>) =
            backlog.into_iter().partition(|event| matches!(event, Event::Deliver { .. }));
        for event in messages.into_iter().chain(timers) {
            self.schedule(self.now_us, event);
        }
        self.let_all_look(slot);
    }

    fn on_link(&mut self, from: NodeId, to: NodeId, is_cut: bool) {
        self.disturb();
        let (Some(from), Some(to)) = (self.index.slot(from), self.index.slot(to)) else { return };
        if is_cut {
            self.cut.insert((from, to));
        } else {
            self.cut.remove(&(from, to));
        }
        self.look_later(to, from);
        self.look_later(from, to);
    }

    fn let_all_look(&mut self, changed: usize) {
        for peer in (0..self.slots.len()).filter(|peer| *peer != changed) {
            self.look_later(peer, changed);
            self.look_later(changed, peer);
        }
    }

    fn look_later(&mut self, watcher: usize, peer: usize) {
        let Delay { min_us, max_us } = self.setup.detection;
        let at_us = self.now_us + self.chance.between(min_us, max_us);
        self.schedule(at_us, Event::Look { watcher, peer });
    }

    /// A peer is there if it lives, moves, and its messages arrive.
    fn on_look(&mut self, watcher: usize, peer: usize) {
        let is_there = self.slots[peer].machine.is_some()
            && self.slots[peer].backlog.is_none()
            && !self.cut.contains(&(peer, watcher));
        let id = self.setup.nodes[peer].id();
        self.command(watcher, if is_there { Command::Trust(id) } else { Command::Suspect(id) });
    }

    fn step(&mut self, slot: usize, input: Input<M>) {
        self.outcome.events += 1;
        let Some(machine) = self.slots[slot].machine.as_mut() else { return };
        let before = (machine.is_electing(), machine.leads());
        let mut outbox = std::mem::take(&mut self.outbox);
        // Cloning an input costs nothing for an observer that sees nothing: the compiler removes it.
        machine.step(input.clone(), &mut outbox);
        let after = (machine.is_electing(), machine.leads());
        let id = machine.id();
        if machine.leader().is_some() {
            self.slots[slot].last_defined_us = self.now_us;
        }
        if self.prologue.is_none() {
            self.observer.on_step(self.now_us, id, &input, outbox.as_slice());
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

    fn carry_out(&mut self, slot: usize, output: Output<M>) {
        match output {
            Output::Send { to, message } => self.send(slot, to, message),
            Output::Set { timer, delay } => self.set_timer(slot, timer, delay),
            Output::Cancel(timer) => self.slots[slot].timers.retain(|&(set, _)| set != timer),
            Output::Notify(_) | Output::Ignore(_) => {}
            Output::Persist { .. } | Output::SendAfter { .. } => {
                unreachable!("elections keep nothing on disk: their record type is empty")
            }
        }
    }

    fn send(&mut self, from: usize, to: NodeId, message: M::Message) {
        let Some(to) = self.index.slot(to) else { return };
        if let Some(prologue) = &mut self.prologue {
            return prologue.push_back((from, to, message));
        }
        self.outcome.messages.add(M::kind_of(&message));
        let network = self.setup.network;
        if self.now_us < network.faulty_until_us {
            if self.chance.happens(network.loss_ppm) {
                self.disturb();
                return self.lose(from, to, &message);
            }
            if self.chance.happens(network.duplication_ppm) {
                self.disturb();
                self.dispatch(from, to, message.clone());
            }
        }
        self.dispatch(from, to, message);
    }

    fn dispatch(&mut self, from: usize, to: usize, message: M::Message) {
        let network = self.setup.network;
        let mut delay_us = self.chance.between(network.delay.min_us, network.delay.max_us);
        if self.now_us < network.faulty_until_us && self.chance.happens(network.lateness_ppm) {
            self.disturb();
            delay_us += self.chance.between(network.late_by.min_us, network.late_by.max_us);
        }
        self.schedule(self.now_us + delay_us, Event::Deliver { from, to, message });
    }

    fn set_timer(&mut self, slot: usize, timer: Timer, delay: Delay) {
        self.next_number += 1;
        let number = self.next_number;
        let timers = &mut self.slots[slot].timers;
        timers.retain(|&(set, _)| set != timer);
        timers.push((timer, number));
        let drawn_us = self.chance.between(delay.min_us, delay.max_us);
        let skew_ppm = self.setup.clock_skew_ppm.get(slot).copied().unwrap_or(0);
        let skew_us = i128::from(drawn_us) * i128::from(skew_ppm) / 1_000_000;
        let skewed_us = u64::try_from(i128::from(drawn_us) + skew_us).unwrap_or(0);
        self.queue.push(self.now_us + skewed_us, Event::Timer { slot, timer, number });
    }

    fn disturb(&mut self) {
        self.last_disturbance_us = Some(self.now_us);
    }

    fn outcome(mut self) -> Outcome {
        let live = || self.slots.iter().filter_map(|slot| Some((slot.machine.as_ref()?, slot.last_defined_us)));
        self.outcome.table = live().map(|(machine, _)| (machine.id(), machine.leader())).collect();
        let undefined = live().filter(|(machine, _)| machine.leader().is_none());
        self.outcome.undefined_us = undefined.map(|(_, last_us)| self.now_us - last_us).max().unwrap_or(0);
        self.outcome.virtual_us = self.now_us;
        self.outcome.disturbed = self.last_disturbance_us.is_some();
        self.outcome
    }
}

impl Outcome {
    /// The one node that all take for the leader and that itself leads, if there is one.
    #[must_use]
    pub fn agreed_leader(&self) -> Option<NodeId> {
        let leader = self.table.first()?.1?;
        let all_agree = self.table.iter().all(|(_, view)| *view == Some(leader));
        let leads_itself = self.table.iter().any(|(node, _)| *node == leader);
        (all_agree && leads_itself).then_some(leader)
    }

    /// Who leads at the end, by their own belief.
    pub fn leaders_at_end(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.table.iter().filter(|(node, view)| *view == Some(*node)).map(|(node, _)| *node)
    }
}

impl Counts {
    fn add(&mut self, kind: MessageKind) {
        self.0[kind as usize] += 1;
    }

    /// How many of this kind were sent.
    #[must_use]
    pub const fn of(&self, kind: MessageKind) -> u64 {
        self.0[kind as usize]
    }

    /// How many were sent in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl Network {
    /// Nothing is lost, doubled or late.
    #[must_use]
    pub const fn reliable(delay: Delay) -> Self {
        let late_by = Delay { min_us: 0, max_us: 0 };
        Self { delay, loss_ppm: 0, duplication_ppm: 0, lateness_ppm: 0, late_by, faulty_until_us: 0 }
    }
}
