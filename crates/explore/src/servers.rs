//! An exploration of whole servers: election and log together, every state that three of them can reach
//! within so many steps.
//!
//! The servers are the real control machine on [`ModelReplica`]s. What may happen is limited by a budget; the order in which
//! it happens is not: messages overtake each other, and timers run out as soon as nothing is under way, or at any moment.
//! The clock of the detector stands still; suspicion comes from outside, rightly or not.
//!
//! What must always hold is what a quorum promises: one leader in a term, one entry at a committed place, and every leader has
//! everything that was ever acknowledged. Unlike an election alone, servers must keep this in any kind of time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use primus_core::Term;
use primus_core::detector;
use primus_core::election;
use primus_core::election::bully::{self, Bully};
use primus_core::planted::Planted;
use primus_core::{Delay, Machine, Output, ServerId};
use primus_replica::consensus::Consensus;
use primus_replica::message::{Entry, HardState, Kind, Record};
use primus_replica::{ModelReplica, Role};
use primus_server::Reason;
use primus_server::control::{Command, Control, Message, Notice, Timer, Times};
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::elections::{Broken, judge};
use primus_lab::world::{Delivery, Envelope, Taken, World};

/// A server that can be explored.
pub type ModelServer = Control<Bully, ModelReplica>;

type Words = <ModelServer as Machine>::Message;

/// Three servers, what may happen to them, and what must be reached.
#[derive(Debug, Clone)]
pub struct ServerExploration {
    /// How it begins.
    pub opening: Opening,
    /// Which timers may run out while messages are under way; all others wait until nothing is.
    pub early: &'static [Timer],
    /// How many things may happen at most, one after the other.
    pub depth_max: usize,
    /// How often what may happen.
    pub budget: Budget,
    /// What must be reached, lest everything hold for want of cases.
    pub milestones: &'static [Milestone],
    /// A bug that is to be found.
    pub planted: Planted,
}

/// How an exploration begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// Server 3 leads, everybody has everything, and nothing is under way.
    Calm,
    /// Server 2, the best of those who are up, missed an entry that 1 and 3 have: it cannot win.
    BestKnowsLess,
    /// Raft's figure 8: 2 and 3 each led once and kept an entry to themselves. Server 3 is down, and 2 has just won again.
    Figure8,
}

/// How often something may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Budget {
    /// A server crashes.
    pub crashes: u8,
    /// A crashed server starts again.
    pub restarts: u8,
    /// A message is lost.
    pub losses: u8,
    /// A server is told that a live leader's process is gone.
    pub doubts: u8,
    /// A client wants something written.
    pub proposals: u8,
    /// A disk stalls, until it is done at some later moment or its server crashes.
    pub stalls: u8,
    /// A leader's clock ticks.
    pub ticks: u8,
    /// Any other timer runs out.
    pub timers: u8,
}

/// Something that must happen on some way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Milestone {
    /// Somebody leads a new term.
    Elected,
    /// A client's entry is committed.
    Committed,
    /// A server ran because a candidate knew less, and leads.
    JumpedIn,
    /// A leader that jumped in gave way to the best rank, which leads.
    Corrected,
    /// A server was suspected wrongly and leads on, in its old term.
    Survived,
    /// A crash took writes with it that were not durable.
    LostWrites,
}

/// One state of an exploration.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scene {
    world: World<ModelServer>,
    left: Budget,
    /// Who has yet to notice whose death.
    to_notice: BTreeSet<(ServerId, ServerId)>,
    stalled: BTreeSet<ServerId>,
    leaders: BTreeMap<u64, ServerId>,
    committed: BTreeMap<u64, Entry>,
    violation: Option<&'static str>,
    jumping: Option<ServerId>,
    correcting: bool,
    passed: u8,
}

/// Something that happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A message arrives.
    Deliver(Envelope<Words>),
    /// A message is lost.
    Lose(Envelope<Words>),
    /// A timer runs out.
    Fire(ServerId, Timer),
    /// A server finds that another one's process is gone, rightly or not.
    Gone(ServerId, ServerId),
    /// A process dies, with what was not durable.
    Crash(ServerId),
    /// It starts again, with what is on its disk.
    Restart(ServerId),
    /// A client asks a leader to write something.
    Propose(ServerId),
    /// A disk stalls.
    Stall(ServerId),
    /// It is done with one write.
    Sync(ServerId),
}

const TWO_LEADERS: &str = "at most one leader in a term";
const TWO_ENTRIES: &str = "committed entries agree";
const MISSING: &str = "a leader has every acknowledged entry";
const SERVERS: u64 = 3;
const STARTUP: Timer = Timer::Election(election::Timer::Startup);

impl Model for ServerExploration {
    type State = Scene;
    type Action = Action;

    fn init_states(&self) -> Vec<Scene> {
        vec![self.open()]
    }

    fn actions(&self, scene: &Scene, actions: &mut Vec<Action>) {
        actions.extend(scene.envelopes().map(Action::Deliver));
        actions.extend(scene.to_notice.iter().map(|&(node, dead)| Action::Gone(node, dead)));
        actions.extend(
            scene.stalled.iter().filter(|node| scene.world.is_writing(**node)).map(|node| Action::Sync(*node)),
        );
        self.timers(scene, actions);
        self.choices(scene, actions);
    }

    fn next_state(&self, scene: &Scene, action: Action) -> Option<Scene> {
        let mut next = scene.clone();
        self.act(&mut next, action);
        self.tidy(&mut next);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let always = [
            Property::always(TWO_LEADERS, |_, scene: &Scene| scene.violation != Some(TWO_LEADERS)),
            Property::always(TWO_ENTRIES, |_, scene: &Scene| scene.violation != Some(TWO_ENTRIES)),
            Property::always(MISSING, |_, scene: &Scene| scene.violation != Some(MISSING)),
        ];
        always.into_iter().chain(self.milestones.iter().map(|milestone| milestone.property())).collect()
    }
}

impl ServerExploration {
    /// Visits every state within the depth and returns how many there are.
    ///
    /// # Errors
    /// If a property is broken, or something is never reached.
    pub fn visit(&self) -> Result<usize, Broken> {
        // stateright counts states on the way, not what happens between them, and does not look at the last.
        let checker = self.clone().checker().target_max_depth(self.depth_max + 2);
        judge(&checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join())
    }

    fn open(&self) -> Scene {
        let nodes = || (1..=SERVERS).map(ServerId);
        let world = World::new(nodes().map(|node| (node, self.make(node, self.opening.disk(node)))));
        let world = nodes().fold(world, |world, node| world.with_disk(node, self.opening.disk(node)));
        let mut scene = Scene::new(world, self.budget);
        nodes().for_each(|node| self.command(&mut scene, node, Command::Boot));
        match self.opening {
            Opening::Calm => {
                self.settle(&mut scene);
                assert!(scene.leads(ServerId(3)), "server 3 leads before anything goes wrong");
            }
            Opening::BestKnowsLess => self.bury(&mut scene),
            Opening::Figure8 => {
                self.bury(&mut scene);
                self.crown(&mut scene);
                assert!(scene.leads(ServerId(2)), "server 2 has just won");
            }
        }
        scene.committed.extend(self.opening.committed());
        self.tidy(&mut scene);
        Scene { passed: 0, ..scene }
    }

    /// Server 3 is dead, and everybody knows.
    fn bury(&self, scene: &mut Scene) {
        scene.world.crash(ServerId(3));
        [1, 2].into_iter().for_each(|node| self.command(scene, ServerId(node), Command::Gone(ServerId(3))));
    }

    /// Server 2 starts first and wins 1's vote; nothing else has arrived yet.
    fn crown(&self, scene: &mut Scene) {
        self.fire(scene, ServerId(2), STARTUP);
        let is_vote = |envelope: &Envelope<Words>| {
            use Kind::{RequestPreVote, RequestPreVoteResponse, RequestVote, RequestVoteResponse};
            let kinds = [RequestPreVote, RequestPreVoteResponse, RequestVote, RequestVoteResponse];
            envelope.to != ServerId(3)
                && matches!(&envelope.message, Message::Replica(message) if kinds.contains(&message.kind))
        };
        while let Some(place) = scene.world.in_flight().iter().position(is_vote) {
            if let Delivery::Arrived(taken) = scene.world.deliver(place) {
                self.follow(scene, &taken);
            }
        }
        // What the election announces would only say again who leads.
        let is_announcement = |envelope: &Envelope<Words>| matches!(envelope.message, Message::Election(_));
        while let Some(place) = scene.world.in_flight().iter().position(is_announcement) {
            scene.world.drop(place);
        }
    }

    /// Server 3 starts first, nobody is better, and everything arrives in order.
    fn settle(&self, scene: &mut Scene) {
        self.fire(scene, ServerId(3), STARTUP);
        while !scene.world.in_flight().is_empty() {
            if let Delivery::Arrived(taken) = scene.world.deliver(0) {
                self.follow(scene, &taken);
            }
        }
    }

    fn make(&self, node: ServerId, disk: Vec<Record>) -> ModelServer {
        let voters: Arc<[ServerId]> = (1..=SERVERS).map(ServerId).collect();
        let election = Bully::new(node, Arc::new(bully::Rules::by_id(voters.iter().copied())));
        let times = Times {
            silence: detector::Rules::DEFAULT,
            handover: None,
            retry: Delay::exactly_ms(3),
            leaderless: Delay::exactly_ms(150),
            startup_us: 0,
            are_links_measured: false,
            tenure_ticks: 20,
        };
        Control::new(election, ModelReplica::new(node, voters, disk).with(self.planted), times)
    }

    /// Silence is left out, because the clock stands still; and ticks of those who do not lead change nothing.
    fn timers(&self, scene: &Scene, actions: &mut Vec<Action>) {
        let is_early = !scene.world.in_flight().is_empty() || !scene.to_notice.is_empty();
        let counts = |&(node, timer): &(ServerId, Timer)| match timer {
            Timer::Silence => false,
            timer if is_early && !self.early.contains(&timer) => false,
            Timer::Tick => scene.left.ticks > 0 && scene.leads(node),
            _ => scene.left.timers > 0,
        };
        actions.extend(scene.world.timers().filter(counts).map(|(node, timer)| Action::Fire(node, timer)));
    }

    /// What happens only if the exploration wants it, within its budget.
    fn choices(&self, scene: &Scene, actions: &mut Vec<Action>) {
        let left = scene.left;
        let alive = || scene.world.alive().map(|(node, _)| node);
        if left.crashes > 0 {
            actions.extend(alive().map(Action::Crash));
        }
        if left.restarts > 0 {
            let dead = scene.world.nodes().filter(|node| scene.world.machine(*node).is_none());
            actions.extend(dead.map(Action::Restart));
        }
        if left.losses > 0 {
            actions.extend(scene.envelopes().map(Action::Lose));
        }
        if left.proposals > 0 {
            actions.extend(alive().filter(|node| scene.leads(*node)).map(Action::Propose));
        }
        if left.stalls > 0 {
            actions.extend(alive().filter(|node| !scene.stalled.contains(node)).map(Action::Stall));
        }
        if left.doubts > 0 {
            let believer = |(node, server): (ServerId, &ModelServer)| Some((node, server.leader()?));
            let pairs = scene.world.alive().filter_map(believer).filter(|(node, leader)| node != leader);
            actions.extend(pairs.map(|(node, leader)| Action::Gone(node, leader)));
        }
    }

    fn act(&self, scene: &mut Scene, action: Action) {
        match action {
            Action::Deliver(envelope) => {
                let place = scene.place_of(&envelope);
                if let Delivery::Arrived(taken) = scene.world.deliver(place) {
                    self.follow(scene, &taken);
                }
            }
            Action::Lose(envelope) => {
                scene.left.losses -= 1;
                scene.world.drop(scene.place_of(&envelope));
            }
            Action::Fire(node, timer) => {
                let budget = if timer == Timer::Tick { &mut scene.left.ticks } else { &mut scene.left.timers };
                *budget -= 1;
                self.fire(scene, node, timer);
            }
            Action::Gone(node, peer) => {
                let is_doubt = !scene.to_notice.remove(&(node, peer));
                scene.left.doubts -= u8::from(is_doubt);
                self.command(scene, node, Command::Gone(peer));
            }
            Action::Crash(node) => self.crash(scene, node),
            Action::Restart(node) => self.restart(scene, node),
            Action::Propose(node) => {
                scene.left.proposals -= 1;
                self.command(scene, node, Command::Propose(vec![Bytes::from_static(b"word")]));
            }
            Action::Stall(node) => {
                scene.left.stalls -= 1;
                scene.stalled.insert(node);
            }
            Action::Sync(node) => self.sync(scene, node),
        }
    }

    fn command(&self, scene: &mut Scene, node: ServerId, command: Command) {
        if let Some(taken) = scene.world.command(node, command) {
            self.follow(scene, &taken);
        }
    }

    fn fire(&self, scene: &mut Scene, node: ServerId, timer: Timer) {
        if let Some(taken) = scene.world.fire(node, timer) {
            if timer == Timer::JumpIn && taken.outputs.iter().any(asks_for_votes) {
                scene.jumping = Some(node);
            }
            self.follow(scene, &taken);
        }
    }

    fn sync(&self, scene: &mut Scene, node: ServerId) {
        if let Some(taken) = scene.world.persisted(node) {
            self.follow(scene, &taken);
        }
    }

    fn crash(&self, scene: &mut Scene, node: ServerId) {
        scene.left.crashes -= 1;
        if scene.world.is_writing(node) {
            scene.pass(Milestone::LostWrites);
        }
        scene.world.crash(node);
        scene.stalled.remove(&node);
        scene.to_notice.retain(|(observer, _)| *observer != node);
        scene.to_notice.extend(scene.world.alive().map(|(observer, _)| (observer, node)));
    }

    fn restart(&self, scene: &mut Scene, node: ServerId) {
        scene.left.restarts -= 1;
        scene.to_notice.retain(|(_, dead)| *dead != node);
        let disk = scene.world.disk(node).to_vec();
        scene.world.restart(node, self.make(node, disk));
        self.command(scene, node, Command::Boot);
    }

    /// Takes note of what a step means; then the disk is done with it, unless it stalls.
    fn follow(&self, scene: &mut Scene, taken: &Taken<ModelServer>) {
        scene.judge_leader(taken.node);
        for output in &taken.outputs {
            match output {
                Output::Notify(Notice::Committed(entries)) => scene.judge_commits(entries),
                Output::Notify(Notice::Leader(Some(leader), term, _)) if term.0 == 1 && scene.leads(*leader) => {
                    scene.pass(Milestone::Survived);
                }
                Output::Send { message: Message::Change(Reason::Rank), .. } => scene.correcting = true,
                _ => {}
            }
        }
        if !scene.stalled.contains(&taken.node) {
            self.sync(scene, taken.node);
        }
    }

    /// What was sent to the dead dies with the link: a new process has new links.
    fn tidy(&self, scene: &mut Scene) {
        let is_dead = |node| scene.world.machine(node).is_none();
        let dead: Vec<_> = scene.world.nodes().filter(|node| is_dead(*node)).collect();
        while let Some(place) = scene.world.in_flight().iter().position(|envelope| dead.contains(&envelope.to)) {
            scene.world.drop(place);
        }
        scene.passed &= self.milestones.iter().fold(0, |wanted, milestone| wanted | milestone.bit());
        scene.world.forget_order();
    }
}

fn asks_for_votes(output: &Output<ModelServer>) -> bool {
    matches!(output, Output::Send { message: Message::Replica(message), .. } if message.kind == Kind::RequestPreVote)
}

impl Opening {
    /// What a server has on its disk when everybody starts.
    fn disk(self, node: ServerId) -> Vec<Record> {
        let entries: &[(u64, u64, &'static [u8])] = match (self, node.0) {
            (Self::Calm, _) => return Vec::new(),
            (Self::BestKnowsLess, 2) => &[(1, 1, b"")],
            (Self::BestKnowsLess, _) => &[(1, 1, b""), (2, 1, b"kept")],
            (Self::Figure8, 1) => &[(1, 1, b"")],
            (Self::Figure8, 2) => &[(1, 1, b""), (2, 2, b"one")],
            (Self::Figure8, _) => &[(1, 1, b""), (2, 3, b"other")],
        };
        let (term, vote) = match (self, node.0) {
            (Self::Figure8, 2) => (3, 0),
            (Self::Figure8, _) => (3, 3),
            _ => (1, 3),
        };
        let state = Record::HardState(HardState { term, vote, commit: 1 });
        let appends = entries
            .iter()
            .map(|&(index, term, data)| Record::Append(Entry { index, term, data: Bytes::from_static(data) }));
        appends.chain([state]).collect()
    }

    /// What was acknowledged before.
    fn committed(self) -> Vec<(u64, Entry)> {
        let kept = Entry { index: 2, term: 1, data: Bytes::from_static(b"kept") };
        if self == Self::BestKnowsLess { vec![(2, kept)] } else { Vec::new() }
    }
}

impl Scene {
    fn new(world: World<ModelServer>, left: Budget) -> Self {
        Self {
            world,
            left,
            to_notice: BTreeSet::new(),
            stalled: BTreeSet::new(),
            leaders: BTreeMap::new(),
            committed: BTreeMap::new(),
            violation: None,
            jumping: None,
            correcting: false,
            passed: 0,
        }
    }

    fn judge_leader(&mut self, node: ServerId) {
        let Some(server) = self.world.machine(node) else { return };
        let (role, _, Term(term)) = server.replica().view();
        if role != Role::Leader || self.leaders.get(&term) == Some(&node) {
            return;
        }
        let log = server.replica().entries();
        let has = |entry: &Entry| log.get(entry.index as usize - 1).is_some_and(|own| own.term == entry.term);
        if !self.committed.values().all(has) {
            self.violation = Some(MISSING);
        }
        if self.leaders.insert(term, node).is_some() {
            self.violation = Some(TWO_LEADERS);
        }
        self.pass(Milestone::Elected);
        if self.jumping == Some(node) {
            self.pass(Milestone::JumpedIn);
        } else if self.correcting {
            self.pass(Milestone::Corrected);
        }
    }

    fn judge_commits(&mut self, entries: &[Entry]) {
        for entry in entries {
            let first = self.committed.entry(entry.index).or_insert_with(|| entry.clone()).clone();
            if first != *entry {
                self.violation = Some(TWO_ENTRIES);
            }
            if !entry.data.is_empty() {
                self.pass(Milestone::Committed);
            }
        }
    }

    fn leads(&self, node: ServerId) -> bool {
        self.world.machine(node).is_some_and(|server| server.replica().view().0 == Role::Leader)
    }

    const fn pass(&mut self, milestone: Milestone) {
        self.passed |= milestone.bit();
    }

    /// The messages in flight, equal ones once.
    fn envelopes(&self) -> impl Iterator<Item = Envelope<Words>> + '_ {
        let in_flight = self.world.in_flight();
        let is_first = |index: &usize| *index == 0 || in_flight[*index] != in_flight[*index - 1];
        (0..in_flight.len()).filter(is_first).map(|index| in_flight[index].clone())
    }

    fn place_of(&self, envelope: &Envelope<Words>) -> usize {
        let place = self.world.in_flight().iter().position(|other| other == envelope);
        place.expect("only what is in flight is delivered or lost")
    }
}

impl Milestone {
    const fn bit(self) -> u8 {
        1 << self as u8
    }

    fn property(self) -> Property<ServerExploration> {
        let sometimes = Property::<ServerExploration>::sometimes;
        match self {
            Self::Elected => {
                sometimes("somebody leads a new term", |_, scene| scene.passed & Self::Elected.bit() != 0)
            }
            Self::Committed => {
                sometimes("an entry is committed", |_, scene| scene.passed & Self::Committed.bit() != 0)
            }
            Self::JumpedIn => sometimes("somebody jumps in", |_, scene| scene.passed & Self::JumpedIn.bit() != 0),
            Self::Corrected => {
                sometimes("a transfer corrects", |_, scene| scene.passed & Self::Corrected.bit() != 0)
            }
            Self::Survived => sometimes("a doubt is survived", |_, scene| scene.passed & Self::Survived.bit() != 0),
            Self::LostWrites => sometimes("writes are lost", |_, scene| scene.passed & Self::LostWrites.bit() != 0),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deliver(Envelope { from, to, message }) => write!(f, "deliver {from} {to} {message}"),
            Self::Lose(Envelope { from, to, message }) => write!(f, "drop {from} {to} {message}"),
            Self::Fire(node, timer) => write!(f, "fire {node} {timer}"),
            Self::Gone(node, peer) => write!(f, "gone {node} {peer}"),
            Self::Crash(node) => write!(f, "crash {node}"),
            Self::Restart(node) => write!(f, "restart {node}"),
            Self::Propose(node) => write!(f, "propose {node} word"),
            Self::Stall(node) => write!(f, "slow {node}"),
            Self::Sync(node) => write!(f, "# The disk of {node} is done with a write."),
        }
    }
}
