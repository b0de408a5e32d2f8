//! What stories of all machines share: the world, its clock, and the links between the nodes.
//!
//! Messages arrive in the order of sending and at once, writes become durable at once, and timers take their shortest delay,
//! unless a story says otherwise. Time passes only when somebody says so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use primus_core::{Machine, Moment, Output};

use super::cluster;
use crate::world::{Delivery, Envelope, Taken, World};

/// A story that takes longer than this will not end; a hundred nodes need far less.
const SETTLE_STEPS_MAX: usize = 10_000;

/// The answer to a word that no stage knows.
pub(super) const NO_SUCH_COMMAND: &str = "no such command";

/// Nodes, and everything between them.
pub(super) struct Scenery<M: Machine> {
    pub(super) names: BTreeMap<String, M::Peer>,
    pub(super) world: World<M>,
    pub(super) clock_us: u64,
    /// In the order in which they were set.
    due: Vec<Due<M>>,
    /// Links that deliver only by hand.
    held: BTreeSet<(M::Peer, M::Peer)>,
    /// Nodes that stand still, and nodes whose disk does.
    frozen: BTreeSet<M::Peer>,
    slow: BTreeSet<M::Peer>,
    /// How long messages take, and when those were sent that are in flight.
    pub(super) delay_us: u64,
    sent_us: Vec<u64>,
    /// What was printed, until the story takes it.
    pub(super) lines: Vec<String>,
    /// Everything that was sent.
    pub(super) sent: Vec<M::Message>,
    /// What owners were told, until a stage sees to it.
    pub(super) told: VecDeque<(M::Peer, M::Notice)>,
    manner: Manner<M>,
}

/// How a stage treats its machines.
#[derive(Clone, Copy)]
pub(super) struct Manner<M: Machine> {
    /// Is a message worth a line when it is lost?
    pub(super) is_told: fn(&M::Message) -> bool,
    /// A step as a line, if it is worth one.
    pub(super) tell: fn(&Taken<M>) -> Option<String>,
}

struct Due<M: Machine> {
    node: M::Peer,
    timer: M::Timer,
    at_us: u64,
}

impl<M: Machine> Scenery<M> {
    pub(super) fn new(names: BTreeMap<String, M::Peer>, world: World<M>, manner: Manner<M>) -> Self {
        let (held, frozen, slow) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (due, sent_us, sent, lines, told) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), VecDeque::new());
        Self { names, world, clock_us: 0, due, held, frozen, slow, delay_us: 0, sent_us, lines, sent, told, manner }
    }

    /// Carries out a command about links, messages and processes.
    pub(super) fn perform(&mut self, words: &[&str]) -> Result<(), String> {
        match words {
            ["crash", node] => self.crash(self.alive(node)?),
            ["cut", from, to] => self.world.cut(self.node(from)?, self.node(to)?),
            ["partition", sides] => self.partition(sides)?,
            ["mend"] => self.world.mend(),
            ["hold", from, to] => _ = self.held.insert((self.node(from)?, self.node(to)?)),
            ["release"] => self.held.clear(),
            ["freeze", node] => _ = self.frozen.insert(self.alive(node)?),
            ["thaw", node] => _ = self.frozen.remove(&self.node(node)?),
            ["slow", node] => _ = self.slow.insert(self.node(node)?),
            ["fast", node] => _ = self.slow.remove(&self.node(node)?),
            ["deliver", which @ ..] => self.deliver(self.find(which)?),
            ["drop", which @ ..] => {
                let place = self.find(which)?;
                self.leave(place);
                self.lines.push(format!("{} dropped", self.world.drop(place)));
            }
            ["duplicate", which @ ..] => {
                self.lines.push(format!("{} duplicated", self.world.duplicate(self.find(which)?)));
            }
            ["fire", node, timer @ ..] => self.fire(self.alive(node)?, &timer.join(" "))?,
            ["deliver-all"] => self.repeat(Self::deliver_next)?,
            ["in-flight"] => self.print_in_flight(),
            _ => return Err(NO_SUCH_COMMAND.to_owned()),
        }
        Ok(())
    }

    fn crash(&mut self, node: M::Peer) {
        self.world.crash(node);
        self.frozen.remove(&node);
        self.due.retain(|due| due.node != node);
    }

    fn partition(&mut self, sides: &str) -> Result<(), String> {
        let parse_side = |side: &str| side.split(',').map(|node| self.node(node)).collect::<Result<Vec<_>, _>>();
        let sides = sides.split('|').map(parse_side).collect::<Result<Vec<_>, _>>()?;
        if sides.len() < 2 {
            return Err("a partition has two sides or more: 1,2|3".to_owned());
        }
        for (here, side) in sides.iter().enumerate() {
            let others = sides.iter().enumerate().filter(|(there, _)| *there != here);
            for to in others.flat_map(|(_, nodes)| nodes) {
                side.iter().for_each(|from| self.world.cut(*from, *to));
            }
        }
        Ok(())
    }

    /// A node does what this says, and that is written down.
    pub(super) fn act(
        &mut self,
        node: M::Peer,
        act: impl FnOnce(&mut World<M>) -> Option<Taken<M>>,
    ) -> Result<(), String> {
        self.tell_time();
        let taken = act(&mut self.world).ok_or_else(|| format!("node {node} is crashed"))?;
        self.print(&taken);
        Ok(())
    }

    /// The owner of a node tells it something.
    pub(super) fn command(&mut self, node: M::Peer, command: M::Command) -> Result<(), String> {
        self.act(node, |world| world.command(node, command))
    }

    /// A new process starts where one has crashed, with what is on the disk.
    pub(super) fn restart(
        &mut self,
        node: &str,
        make: impl FnOnce(M::Peer, &[M::Record]) -> M,
    ) -> Result<M::Peer, String> {
        let node = self.dead(node)?;
        let machine = make(node, self.world.disk(node));
        self.world.restart(node, machine);
        Ok(node)
    }

    const fn tell_time(&mut self) {
        self.world.pass(Moment(self.clock_us));
    }

    /// What is in flight and was not before was sent just now.
    fn note_sent(&mut self) {
        self.sent_us.resize(self.world.in_flight().len(), self.clock_us);
    }

    /// The message at this place is about to leave.
    fn leave(&mut self, place: usize) {
        self.note_sent();
        self.sent_us.remove(place);
    }

    /// When the first message arrives that nothing holds back.
    fn next_arrival(&mut self) -> Option<(u64, usize)> {
        self.note_sent();
        let is_free = |envelope: &Envelope<_, _>| {
            !self.held.contains(&(envelope.from, envelope.to)) && !self.frozen.contains(&envelope.to)
        };
        let in_flight = self.world.in_flight().iter().zip(&self.sent_us).enumerate();
        let free = in_flight.filter(|(_, (envelope, _))| is_free(envelope));
        free.map(|(place, (_, sent_us))| (sent_us + self.delay_us, place)).min()
    }

    /// Time passes until the next message arrives or the next timer runs out, if there is one by then. False if there is none.
    pub(super) fn go_on(&mut self, until_us: u64) -> bool {
        self.arrive_next(until_us) || self.fire_next(until_us, |_| true)
    }

    /// The next message arrives, if that is before the next timer. False if it is not.
    fn arrive_next(&mut self, until_us: u64) -> bool {
        let timers = self.due.iter().filter(|due| !self.frozen.contains(&due.node));
        let until_us = timers.map(|due| due.at_us).min().unwrap_or(until_us).min(until_us);
        let Some((at_us, place)) = self.next_arrival().filter(|(at_us, _)| *at_us <= until_us) else {
            return false;
        };
        self.clock_us = self.clock_us.max(at_us);
        self.deliver(place);
        true
    }

    fn deliver(&mut self, index: usize) {
        self.leave(index);
        self.tell_time();
        let is_told = self.manner.is_told;
        match self.world.deliver(index) {
            Delivery::Arrived(taken) => self.print(&taken),
            Delivery::ToCrashed(envelope) | Delivery::Cut(envelope) if !is_told(&envelope.message) => {}
            Delivery::ToCrashed(envelope) => {
                self.lines.push(format!("{envelope} lost: {} is crashed", envelope.to));
            }
            Delivery::Cut(envelope) => self.lines.push(format!("{envelope} lost: the link is cut")),
        }
    }

    pub(super) fn fire(&mut self, node: M::Peer, timer: &str) -> Result<(), String> {
        let place = self.due.iter().position(|due| due.node == node && due.timer.to_string() == timer);
        self.fire_due(place.ok_or_else(|| format!("node {node} has not set its timer {timer}"))?);
        Ok(())
    }

    /// Does it stand still?
    pub(super) fn is_frozen(&self, node: M::Peer) -> bool {
        self.frozen.contains(&node)
    }

    /// Everything that is on its way from one node to another is gone.
    pub(super) fn lose(&mut self, from: M::Peer, to: M::Peer) {
        let is_it = |envelope: &Envelope<_, _>| (envelope.from, envelope.to) == (from, to);
        while let Some(place) = self.world.in_flight().iter().position(is_it) {
            self.leave(place);
            self.world.drop(place);
        }
    }

    /// Repeats a step until there is nothing left to do.
    pub(super) fn repeat(&mut self, step: impl Fn(&mut Self) -> bool) -> Result<(), String> {
        let settled = (0..SETTLE_STEPS_MAX).any(|_| !step(self));
        if settled { Ok(()) } else { Err(format!("nothing settled within {SETTLE_STEPS_MAX} steps")) }
    }

    /// The oldest message that nothing holds back arrives, or a write becomes durable. False if there is neither.
    pub(super) fn deliver_next(&mut self) -> bool {
        let next = self.next_arrival().filter(|(at_us, _)| *at_us <= self.clock_us);
        next.map(|(_, place)| self.deliver(place)).is_some() || self.sync_next()
    }

    fn sync_next(&mut self) -> bool {
        let is_free = |node: &M::Peer| !self.slow.contains(node) && !self.frozen.contains(node);
        let nodes: Vec<_> = self.world.nodes().filter(is_free).collect();
        nodes.into_iter().any(|node| {
            self.tell_time();
            let taken = self.world.persisted(node);
            taken.map(|taken| self.print(&taken)).is_some()
        })
    }

    /// The timer that is due first, among those that count and by then, runs out. False if there is none.
    pub(super) fn fire_next(&mut self, until_us: u64, counts: impl Fn(M::Timer) -> bool) -> bool {
        let is_next = |due: &Due<_>| counts(due.timer) && due.at_us <= until_us && !self.frozen.contains(&due.node);
        let candidates = self.due.iter().enumerate().filter(|(_, due)| is_next(due));
        let next = candidates.min_by_key(|(_, due)| due.at_us).map(|(place, _)| place);
        next.map(|place| self.fire_due(place)).is_some()
    }

    fn fire_due(&mut self, place: usize) {
        let due = self.due.remove(place);
        self.clock_us = self.clock_us.max(due.at_us);
        self.tell_time();
        let taken = self.world.fire(due.node, due.timer).expect("what is due is set in the world");
        self.print(&taken);
    }

    /// Writes a step down, counts what was sent and notes when timers are due.
    fn print(&mut self, taken: &Taken<M>) {
        self.lines.extend((self.manner.tell)(taken));
        let node = taken.node;
        for output in &taken.outputs {
            match output {
                Output::Send { message, .. } => self.sent.push(message.clone()),
                Output::Set { timer, delay } => {
                    self.forget(node, *timer);
                    self.due.push(Due { node, timer: *timer, at_us: self.clock_us + delay.min_us });
                }
                Output::Cancel(timer) => self.forget(node, *timer),
                Output::Notify(notice) => self.told.push_back((node, notice.clone())),
                _ => {}
            }
        }
        self.note_sent();
    }

    fn forget(&mut self, node: M::Peer, timer: M::Timer) {
        self.due.retain(|due| due.node != node || due.timer != timer);
    }

    pub(super) fn print_table(&mut self, describe: impl Fn(M::Peer, &M) -> String) {
        self.lines.extend(self.world.nodes().map(|node| match self.world.machine(node) {
            Some(machine) => format!("{node} {}", describe(node, machine)),
            None => format!("{node} crashed"),
        }));
    }

    fn print_in_flight(&mut self) {
        self.lines.extend(self.world.in_flight().iter().map(ToString::to_string));
        if self.world.in_flight().is_empty() {
            self.lines.push("nothing in flight".to_owned());
        }
    }

    /// The node of this name.
    pub(super) fn node(&self, name: &str) -> Result<M::Peer, String> {
        cluster::find(&self.names, name)
    }

    /// The same, if it is alive.
    pub(super) fn alive(&self, name: &str) -> Result<M::Peer, String> {
        let node = self.node(name)?;
        self.world.machine(node).map(|_| node).ok_or_else(|| format!("node {node} is crashed"))
    }

    /// The same, if it is crashed.
    pub(super) fn dead(&self, name: &str) -> Result<M::Peer, String> {
        let node = self.node(name)?;
        self.world.machine(node).map_or(Ok(node), |_| Err(format!("node {node} is alive")))
    }

    /// The place of the first message in flight from one node to another that begins with these words.
    fn find(&self, which: &[&str]) -> Result<usize, String> {
        let [from, to, words @ ..] = which else { return Err("say from whom and to whom".to_owned()) };
        let (from, to) = (self.node(from)?, self.node(to)?);
        let text = words.concat();
        let says_so = |message: &M::Message| message.to_string().replace(' ', "").starts_with(&text);
        let is_it =
            |envelope: &Envelope<_, _>| (envelope.from, envelope.to) == (from, to) && says_so(&envelope.message);
        let place = self.world.in_flight().iter().position(is_it);
        place.ok_or_else(|| format!("no such message is in flight from {from} to {to}"))
    }
}

/// Reads how long something lasts, in microseconds.
pub(super) fn parse_time(time: &str) -> Result<u64, String> {
    let parse = cluster::parse_number::<u64>;
    match (time.strip_suffix("ms"), time.strip_suffix('s')) {
        (Some(ms), _) => parse(ms).map(|ms| ms * 1000),
        (None, Some(s)) => parse(s).map(|s| s * 1_000_000),
        (None, None) => Err(format!("{time} is no time: 250ms or 2s")),
    }
}
