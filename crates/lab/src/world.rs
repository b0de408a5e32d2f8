//! A world that is driven by hand: nodes, messages in flight, timers that are set, links that are cut.
//!
//! It has no time and no chance: whoever drives it, a story or an exploration, says what happens next, and each
//! thing that happens is one method. Simulated runs do not use it, because they need time. The contract of
//! [`primus_core::machine`] is honoured here in full: a message that waits for a write leaves only after it, and
//! a crash loses what was not durable.

use std::collections::BTreeSet;
use std::fmt;

use primus_core::election::Election;
use primus_core::trace::Step;
use primus_core::{Input, Machine, Moment, Outbox, Output, ServerId, WriteName};

/// Nodes and what is between them. A plain value: copy it to remember it, compare it to recognise it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World<M: Machine> {
    /// By id. A vector, because explorations copy worlds all the time.
    nodes: Vec<(M::Peer, Node<M>)>,
    /// In the order in which they were sent, until [`World::forget_order`].
    in_flight: Vec<Sent<M>>,
    /// From whom to whom nothing arrives.
    cut: BTreeSet<(M::Peer, M::Peer)>,
    now: Moment,
}

/// A message on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Envelope<T, P = ServerId> {
    /// Who sent it.
    pub from: P,
    /// Who is to get it.
    pub to: P,
    /// What it says.
    pub message: T,
}

/// What a machine has sent.
type Sent<M> = Envelope<<M as Machine>::Message, <M as Machine>::Peer>;

/// One step that a machine took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken<M: Machine> {
    /// Whose machine.
    pub node: M::Peer,
    /// What happened to it.
    pub input: Input<M>,
    /// What followed.
    pub outputs: Vec<Output<M>>,
}

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery<M: Machine> {
    /// It arrived.
    Arrived(Taken<M>),
    /// Nobody was there.
    ToCrashed(Sent<M>),
    /// The link was cut.
    Cut(Sent<M>),
}

/// One node: a machine while it lives, and a disk that outlives it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Node<M: Machine> {
    /// `None` while crashed.
    machine: Option<M>,
    timers: BTreeSet<M::Timer>,
    /// What survives a crash.
    disk: Vec<M::Record>,
    /// Writes that are not durable yet, oldest first.
    pending: Vec<Write<M>>,
    /// The last durable write of the machine that runs.
    durable: Option<M::Token>,
    /// Messages that wait for a write.
    waiting: Vec<(M::Barrier, Sent<M>)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Write<M: Machine> {
    token: M::Token,
    records: Vec<M::Record>,
}

impl<M: Machine> World<M> {
    /// These nodes, alive, with nothing between them.
    #[must_use]
    pub fn new(machines: impl IntoIterator<Item = (M::Peer, M)>) -> Self {
        let mut nodes: Vec<_> = machines.into_iter().map(|(id, machine)| (id, Node::new(machine))).collect();
        nodes.sort_by_key(|(id, _)| *id);
        Self { nodes, in_flight: Vec::new(), cut: BTreeSet::new(), now: Moment::START }
    }

    /// The same nodes with something on a disk, as if it had been written long ago.
    #[must_use]
    pub fn with_disk(mut self, node: M::Peer, records: Vec<M::Record>) -> Self {
        if let Some(home) = self.node_mut(node) {
            home.disk = records;
        }
        self
    }

    /// It is this late from now on, for all nodes. Explorations leave the clock where it is.
    pub const fn pass(&mut self, now: Moment) {
        self.now = now;
    }

    /// The owner of a node tells it something. `None` if the node is crashed or unknown.
    pub fn command(&mut self, node: M::Peer, command: M::Command) -> Option<Taken<M>> {
        self.step(node, Input::Command(command))
    }

    /// The link to a peer came up again. `None` if the node is crashed or unknown.
    pub fn link_up(&mut self, node: M::Peer, peer: M::Peer) -> Option<Taken<M>> {
        self.step(node, Input::LinkUp(peer))
    }

    /// The link to a peer was lost. `None` if the node is crashed or unknown.
    pub fn link_down(&mut self, node: M::Peer, peer: M::Peer) -> Option<Taken<M>> {
        self.step(node, Input::LinkDown(peer))
    }

    /// The message at this place of [`World::in_flight`] reaches its end.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn deliver(&mut self, index: usize) -> Delivery<M> {
        let envelope = self.in_flight.remove(index);
        if self.is_cut(envelope.from, envelope.to) {
            return Delivery::Cut(envelope);
        }
        let input = Input::Message { from: envelope.from, message: envelope.message.clone() };
        self.step(envelope.to, input).map_or(Delivery::ToCrashed(envelope), Delivery::Arrived)
    }

    /// The message at this place of [`World::in_flight`] is lost.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn drop(&mut self, index: usize) -> Sent<M> {
        self.in_flight.remove(index)
    }

    /// The message at this place of [`World::in_flight`] will arrive once more, later than all others.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn duplicate(&mut self, index: usize) -> Sent<M> {
        let copy = self.in_flight[index].clone();
        self.in_flight.push(copy.clone());
        copy
    }

    /// Puts a message on its way that no machine here has sent, such as one of a foreign node.
    pub fn inject(&mut self, envelope: Sent<M>) {
        self.in_flight.push(envelope);
    }

    /// A timer runs out. `None` if it is not set.
    pub fn fire(&mut self, node: M::Peer, timer: M::Timer) -> Option<Taken<M>> {
        let was_set = self.node_mut(node)?.timers.remove(&timer);
        if was_set { self.step(node, Input::Timer(timer)) } else { None }
    }

    /// The oldest write of a node reaches its disk, and the messages that waited for it leave. `None` if there is
    /// no such write.
    pub fn persisted(&mut self, node: M::Peer) -> Option<Taken<M>> {
        let writer = self.node_mut(node)?;
        if writer.pending.is_empty() {
            return None;
        }
        let Write { token, records } = writer.pending.remove(0);
        writer.disk.extend(records);
        writer.durable = Some(token);
        let (leaving, waiting) =
            std::mem::take(&mut writer.waiting).into_iter().partition(|held| held.0.number() <= token.number());
        writer.waiting = waiting;
        self.in_flight.extend(Vec::into_iter(leaving).map(|(_, envelope)| envelope));
        self.step(node, Input::Persisted(token))
    }

    /// The process dies: its state, its timers and what was not durable are gone. What it has sent stays on its
    /// way. False if it was not alive.
    pub fn crash(&mut self, node: M::Peer) -> bool {
        let Some(victim) = self.node_mut(node) else { return false };
        let was_alive = victim.machine.is_some();
        *victim = Node { machine: None, disk: std::mem::take(&mut victim.disk), ..Node::empty() };
        was_alive
    }

    /// What a crashed node had on its disk is lost.
    ///
    /// # Panics
    /// If the node is alive.
    pub fn wipe(&mut self, node: M::Peer) {
        assert!(self.machine(node).is_none(), "node {node} is alive: only the disk of a crashed one can be lost");
        if let Some(home) = self.node_mut(node) {
            home.disk.clear();
        }
    }

    /// A new process starts, as this machine; [`World::disk`] is all that it may know of the one before. A node
    /// that was unknown so far joins.
    ///
    /// # Panics
    /// If the node is alive.
    pub fn restart(&mut self, node: M::Peer, machine: M) {
        let place = self.place_of(node).unwrap_or_else(|place| {
            self.nodes.insert(place, (node, Node::empty()));
            place
        });
        let home = &mut self.nodes[place].1;
        assert!(home.machine.is_none(), "node {node} is alive: only a crashed one can be restarted");
        home.machine = Some(machine);
    }

    /// From now on nothing that `from` sends reaches `to`; the other way stays open.
    pub fn cut(&mut self, from: M::Peer, to: M::Peer) {
        self.cut.insert((from, to));
    }

    /// All links work again. What reached a cut link before is lost.
    pub fn mend(&mut self) {
        self.cut.clear();
    }

    /// Makes two worlds equal that differ in the order of sending alone: messages may overtake each other, so an
    /// exploration need not visit both.
    pub fn forget_order(&mut self) {
        self.in_flight.sort_unstable();
    }

    /// Hands one input to a machine and carries out what it asks for.
    fn step(&mut self, node: M::Peer, input: Input<M>) -> Option<Taken<M>> {
        let place = self.place_of(node).ok()?;
        let actor = &mut self.nodes[place].1;
        let mut outbox = Outbox::new();
        actor.machine.as_mut()?.step(self.now, input.clone(), &mut outbox);
        let outputs: Vec<_> = outbox.drain().collect();
        for output in &outputs {
            actor.carry_out(node, output, &mut self.in_flight);
        }
        Some(Taken { node, input, outputs })
    }

    /// All nodes that ever were, in order.
    pub fn nodes(&self) -> impl Iterator<Item = M::Peer> + '_ {
        self.nodes.iter().map(|(id, _)| *id)
    }

    /// The machines of the nodes that are alive, in order.
    pub fn alive(&self) -> impl Iterator<Item = (M::Peer, &M)> + '_ {
        self.nodes.iter().filter_map(|(id, node)| Some((*id, node.machine.as_ref()?)))
    }

    /// The machine of a node, if it is alive.
    #[must_use]
    pub fn machine(&self, node: M::Peer) -> Option<&M> {
        self.node(node)?.machine.as_ref()
    }

    /// What is on its way.
    #[must_use]
    pub fn in_flight(&self) -> &[Sent<M>] {
        &self.in_flight
    }

    /// What is on its way, equal messages once. Their order must have been forgotten.
    pub fn distinct(&self) -> impl Iterator<Item = Sent<M>> + '_ {
        self.in_flight.chunk_by(PartialEq::eq).map(|equal| equal[0].clone())
    }

    /// Where in [`World::in_flight`] the first such message is.
    ///
    /// # Panics
    /// If there is none.
    pub fn find(&self, envelope: &Sent<M>) -> usize {
        let place = self.in_flight.iter().position(|other| other == envelope);
        place.expect("only what is in flight can arrive, twice or never")
    }

    /// The timers that are set, by node.
    pub fn timers(&self) -> impl Iterator<Item = (M::Peer, M::Timer)> + '_ {
        self.nodes.iter().flat_map(|(id, node)| node.timers.iter().map(|timer| (*id, *timer)))
    }

    /// Has it handed in a write that is not durable yet?
    #[must_use]
    pub fn is_writing(&self, node: M::Peer) -> bool {
        self.node(node).is_some_and(|node| !node.pending.is_empty())
    }

    /// What a node has on its disk.
    #[must_use]
    pub fn disk(&self, node: M::Peer) -> &[M::Record] {
        self.node(node).map_or(&[], |node| &node.disk)
    }

    fn node(&self, id: M::Peer) -> Option<&Node<M>> {
        self.place_of(id).ok().map(|place| &self.nodes[place].1)
    }

    fn node_mut(&mut self, id: M::Peer) -> Option<&mut Node<M>> {
        self.place_of(id).ok().map(|place| &mut self.nodes[place].1)
    }

    /// Where a node is, or where it would be.
    fn place_of(&self, id: M::Peer) -> Result<usize, usize> {
        self.nodes.binary_search_by_key(&id, |(id, _)| *id)
    }

    /// Is the link from one node to another cut?
    #[must_use]
    pub fn is_cut(&self, from: M::Peer, to: M::Peer) -> bool {
        self.cut.contains(&(from, to))
    }
}

impl<M: Election> World<M> {
    /// The nodes that believe that they lead.
    pub fn leaders(&self) -> impl Iterator<Item = M::Peer> + '_ {
        self.alive().filter(|(_, machine)| machine.leads()).map(|(id, _)| id)
    }
}

impl<M: Machine> Node<M> {
    fn new(machine: M) -> Self {
        Self { machine: Some(machine), ..Self::empty() }
    }

    const fn empty() -> Self {
        Self {
            machine: None,
            timers: BTreeSet::new(),
            disk: Vec::new(),
            pending: Vec::new(),
            durable: None,
            waiting: Vec::new(),
        }
    }

    fn is_durable(&self, token: M::Barrier) -> bool {
        self.durable.is_some_and(|durable| token.number() <= durable.number())
    }

    fn carry_out(&mut self, id: M::Peer, output: &Output<M>, in_flight: &mut Vec<Sent<M>>) {
        let envelope =
            |to: &M::Peer, message: &M::Message| Envelope { from: id, to: *to, message: message.clone() };
        match output {
            Output::Send { to, message } => in_flight.push(envelope(to, message)),
            Output::SendAfter { token, to, message } if !self.is_durable(*token) => {
                self.waiting.push((*token, envelope(to, message)));
            }
            Output::SendAfter { to, message, .. } => in_flight.push(envelope(to, message)),
            Output::Persist { token, records } => {
                self.pending.push(Write { token: *token, records: records.clone() });
            }
            Output::Set { timer, .. } => _ = self.timers.insert(*timer),
            Output::Cancel(timer) => _ = self.timers.remove(timer),
            Output::Notify(_) | Output::Ignore(_) => {}
        }
    }
}

impl<M: Machine> fmt::Display for Taken<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Step { node: self.node, input: &self.input, outputs: &self.outputs }.fmt(f)
    }
}

impl<T: fmt::Display, P: fmt::Display> fmt::Display for Envelope<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {} {}", self.from, self.to, self.message)
    }
}

#[cfg(test)]
mod tests {
    use primus_core::{Delay, Token};

    use super::*;

    /// Votes for whoever asks first, once and for ever: a second vote would elect two.
    #[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
    struct Voter {
        vote: Option<ServerId>,
        writes: u64,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    struct Vote(ServerId);

    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    enum Say {
        Ask,
        Grant,
    }

    impl fmt::Display for Vote {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "vote for {}", self.0)
        }
    }

    impl fmt::Display for Say {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(if *self == Self::Ask { "ask" } else { "grant" })
        }
    }

    impl Machine for Voter {
        type Peer = ServerId;
        type Message = Say;
        type Command = Say;
        type Timer = u8;
        type Record = Vote;
        type Token = Token;
        type Barrier = Token;
        type Notice = Say;

        fn step(&mut self, _: Moment, input: Input<Self>, out: &mut Outbox<Self>) {
            match input {
                Input::Message { from, message: Say::Ask } => {
                    if self.vote.is_none() {
                        self.vote = Some(from);
                        self.writes += 1;
                        out.persist(Token(self.writes), vec![Vote(from)]);
                    }
                    if self.vote == Some(from) {
                        out.send_after(Token(self.writes), from, Say::Grant);
                    }
                }
                Input::Command(Say::Ask) => {
                    out.send(ServerId(3), Say::Ask);
                    out.set(1, Delay::exactly_ms(5));
                }
                _ => {}
            }
        }
    }

    /// Nodes 1 and 2 ask for votes, node 3 votes.
    fn world() -> World<Voter> {
        World::new([1, 2, 3].map(|id| (ServerId(id), Voter::default())))
    }

    fn in_flight(world: &World<Voter>) -> Vec<String> {
        world.in_flight().iter().map(ToString::to_string).collect()
    }

    fn restart_from_disk(world: &mut World<Voter>, node: ServerId) {
        let vote = world.disk(node).last().map(|vote| vote.0);
        world.restart(node, Voter { vote, writes: 0 });
    }

    #[test]
    fn a_vote_leaves_only_once_it_is_durable() {
        let mut world = world();
        world.command(ServerId(1), Say::Ask);
        let Delivery::Arrived(taken) = world.deliver(0) else { panic!("node 3 is alive") };
        assert_eq!(taken.to_string(), "3: from 1 ask -> persist 1 vote for 1, after 1 send 1 grant");
        assert_eq!(in_flight(&world), Vec::<String>::new());

        let taken = world.persisted(ServerId(3)).unwrap();
        assert_eq!(taken.to_string(), "3: persisted 1 -> nothing");
        assert_eq!(in_flight(&world), ["3 -> 1 grant"]);
        assert_eq!(world.persisted(ServerId(3)), None);
    }

    #[test]
    fn a_restarted_voter_keeps_its_vote() {
        let mut world = world();
        world.command(ServerId(1), Say::Ask);
        world.deliver(0);
        world.persisted(ServerId(3));
        world.crash(ServerId(3));
        assert_eq!(in_flight(&world), ["3 -> 1 grant"], "what was sent before the crash still arrives");

        restart_from_disk(&mut world, ServerId(3));
        world.command(ServerId(2), Say::Ask);
        world.deliver(1);
        assert_eq!(in_flight(&world), ["3 -> 1 grant"], "the vote is given already");
    }

    #[test]
    fn a_crash_loses_what_was_not_durable() {
        let mut world = world();
        world.command(ServerId(1), Say::Ask);
        world.deliver(0);
        world.crash(ServerId(3));
        assert_eq!(world.disk(ServerId(3)), []);

        restart_from_disk(&mut world, ServerId(3));
        assert_eq!(world.persisted(ServerId(3)), None, "the write died with the process");
        world.command(ServerId(2), Say::Ask);
        world.deliver(0);
        world.persisted(ServerId(3));
        assert_eq!(in_flight(&world), ["3 -> 2 grant"], "nobody had seen the first vote");
    }

    #[test]
    fn a_message_that_waits_for_a_durable_write_leaves_at_once() {
        let mut world = world();
        world.command(ServerId(1), Say::Ask);
        world.duplicate(0);
        world.deliver(0);
        world.persisted(ServerId(3));
        world.deliver(0);
        assert_eq!(in_flight(&world), ["3 -> 1 grant", "3 -> 1 grant"]);
    }

    #[test]
    fn a_timer_fires_once_and_dies_with_its_node() {
        let mut world = world();
        for node in [1, 2].map(ServerId) {
            world.command(node, Say::Ask);
        }
        assert!(world.fire(ServerId(1), 1).is_some());
        assert!(world.fire(ServerId(1), 1).is_none());
        world.crash(ServerId(2));
        assert_eq!(world.timers().count(), 0);
    }

    #[test]
    fn a_cut_is_one_way_and_takes_what_arrives_while_it_lasts() {
        let mut world = world();
        world.cut(ServerId(1), ServerId(3));
        world.command(ServerId(1), Say::Ask);
        world.command(ServerId(2), Say::Ask);
        assert!(matches!(world.deliver(0), Delivery::Cut(_)));
        assert!(matches!(world.deliver(0), Delivery::Arrived(_)));
        world.command(ServerId(1), Say::Ask);
        world.mend();
        assert!(matches!(world.deliver(0), Delivery::Arrived(_)));
    }

    #[test]
    fn worlds_that_differ_in_the_order_of_sending_alone_can_be_made_equal() {
        let [mut one, mut other] = [[1, 2], [2, 1]].map(|order| {
            let mut world = world();
            for node in order.map(ServerId) {
                world.command(node, Say::Ask);
            }
            world
        });
        assert_ne!(one, other);
        one.forget_order();
        other.forget_order();
        assert_eq!(one, other);
    }
}
