//! Explorations of whole servers: election and log together, three of them, within so many steps.
//!
//! The servers are the real control machine on [`ModelReplica`]s. What may happen is limited by a budget; the order in which
//! it happens is not: messages overtake each other, and timers run out as soon as nothing is under way, or at any moment.
//! The clock of the detector stands still; suspicion comes from outside, rightly or not.
//!
//! What must always hold is what a quorum promises: one leader in a term, one entry at a committed place, and every leader has
//! everything that was ever acknowledged. Unlike an election alone, servers must keep this in any kind of time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use primus_core::Term;
use primus_core::detector;
use primus_core::election;
use primus_core::election::bully::{self, Bully};
use primus_core::planted::Planted;
use primus_core::{Delay, Machine, Output, ServerId};
use primus_lab::world::{Delivery, Envelope, Taken, World};
use primus_replica::consensus::Consensus;
use primus_replica::message::{Entry, HardState, Kind, Record};
use primus_replica::{ModelReplica, Role};
use primus_server::Reason;
use primus_server::control::{Command, Control, Message, Notice, Timer, Times};

use self::Chance::{Crash, Doubt, Loss, Proposal, Restart, Stall, Tick, Timeout};
use crate::frame::{Course, Milestone, Setting, actions};

/// A server that can be explored.
pub type ModelServer = Control<Bully, ModelReplica>;

type Words = <ModelServer as Machine>::Message;

/// Three servers.
#[derive(Debug, Clone)]
pub struct Servers {
    /// How it begins.
    pub opening: Opening,
    /// Which timers may run out while messages are under way; all others wait until nothing is.
    pub early: &'static [Timer],
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

/// What happens only so often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Chance {
    /// A server crashes.
    Crash,
    /// A crashed server starts again.
    Restart,
    /// A message is lost.
    Loss,
    /// A server is told that a live leader's process is gone.
    Doubt,
    /// A client wants something written.
    Proposal,
    /// A disk stalls, until it is done at some later moment or its server crashes.
    Stall,
    /// A leader's clock ticks.
    Tick,
    /// Any other timer runs out.
    Timeout,
}

/// Somebody leads a new term.
pub const ELECTED: Milestone = Milestone("somebody leads a new term");
/// A client's entry is committed.
pub const COMMITTED: Milestone = Milestone("an entry is committed");
/// A server ran because a candidate knew less, and leads.
pub const JUMPED_IN: Milestone = Milestone("somebody jumps in");
/// A leader that jumped in gave way to the best rank, which leads.
pub const CORRECTED: Milestone = Milestone("a transfer corrects");
/// A server was suspected wrongly and leads on, in its old term.
pub const SURVIVED: Milestone = Milestone("a doubt is survived");
/// A crash took writes with it that were not durable.
pub const LOST_WRITES: Milestone = Milestone("writes are lost");

/// One state of an exploration.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scene {
    world: World<ModelServer>,
    course: Course<Chance>,
    /// Who has yet to notice whose death.
    to_notice: BTreeSet<(ServerId, ServerId)>,
    stalled: BTreeSet<ServerId>,
    leaders: BTreeMap<u64, ServerId>,
    committed: BTreeMap<u64, Entry>,
    jumping: Option<ServerId>,
    correcting: bool,
}

actions! {
    /// Something that happens.
    #[derive(Debug, Clone, PartialEq, Eq)]
    Action {
        Deliver(sent: Envelope<Words>) "deliver {} {} {}", sent.from, sent.to, sent.message;
        Lose(sent: Envelope<Words>) "drop {} {} {}", sent.from, sent.to, sent.message;
        Fire(node: ServerId, timer: Timer) "fire {node} {timer}";
        Gone(node: ServerId, peer: ServerId) "gone {node} {peer}";
        Crash(node: ServerId) "crash {node}";
        Restart(node: ServerId) "restart {node}";
        Propose(node: ServerId) "propose {node} word";
        Stall(node: ServerId) "slow {node}";
        Sync(node: ServerId) "# The disk of {node} is done with a write.";
    }
}

const TWO_LEADERS: &str = "at most one leader in a term";
const TWO_ENTRIES: &str = "committed entries agree";
const MISSING: &str = "a leader has every acknowledged entry";
const SERVERS: u64 = 3;
const STARTUP: Timer = Timer::Election(election::Timer::Startup);

impl Setting for Servers {
    type Scene = Scene;
    type Action = Action;
    type Chance = Chance;

    fn open(&self, course: Course<Chance>) -> Scene {
        let nodes = || (1..=SERVERS).map(ServerId);
        let world = World::new(nodes().map(|node| (node, self.make(node, self.opening.disk(node)))));
        let world = nodes().fold(world, |world, node| world.with_disk(node, self.opening.disk(node)));
        let mut scene = Scene::new(world);
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
        scene.tidy();
        Scene { course, ..scene }
    }

    fn events(&self, scene: &Scene, actions: &mut Vec<Action>) {
        actions.extend(scene.world.distinct().map(Action::Deliver));
        actions.extend(scene.to_notice.iter().map(|&(node, dead)| Action::Gone(node, dead)));
        let writing = scene.stalled.iter().filter(|node| scene.world.is_writing(**node));
        actions.extend(writing.map(|node| Action::Sync(*node)));
        self.timers(scene, actions);
    }

    fn choices(&self, scene: &Scene, actions: &mut Vec<Action>) {
        let Scene { course, world, .. } = scene;
        let alive = || world.alive().map(|(node, _)| node);
        course.offer(Crash, actions, alive().map(Action::Crash));
        let dead = world.nodes().filter(|node| world.machine(*node).is_none());
        course.offer(Restart, actions, dead.map(Action::Restart));
        course.offer(Loss, actions, world.distinct().map(Action::Lose));
        course.offer(Proposal, actions, alive().filter(|node| scene.leads(*node)).map(Action::Propose));
        course.offer(Stall, actions, alive().filter(|node| !scene.stalled.contains(node)).map(Action::Stall));
        let believer = |(node, server): (ServerId, &ModelServer)| Some((node, server.leader()?));
        let pairs = world.alive().filter_map(believer).filter(|(node, leader)| node != leader);
        course.offer(Doubt, actions, pairs.map(|(node, leader)| Action::Gone(node, leader)));
    }

    fn act(&self, scene: &mut Scene, action: Action) {
        match action {
            Action::Deliver(envelope) => {
                if let Delivery::Arrived(taken) = scene.world.deliver(scene.world.find(&envelope)) {
                    self.follow(scene, &taken);
                }
            }
            Action::Lose(envelope) => {
                scene.course.spend(Loss);
                scene.world.drop(scene.world.find(&envelope));
            }
            Action::Fire(node, timer) => {
                scene.course.spend(Chance::of(timer));
                self.fire(scene, node, timer);
            }
            Action::Gone(node, peer) => {
                if !scene.to_notice.remove(&(node, peer)) {
                    scene.course.spend(Doubt);
                }
                self.command(scene, node, Command::Gone(peer));
            }
            Action::Crash(node) => self.crash(scene, node),
            Action::Restart(node) => self.restart(scene, node),
            Action::Propose(node) => {
                scene.course.spend(Proposal);
                self.command(scene, node, Command::Propose(vec![Bytes::from_static(b"word")]));
            }
            Action::Stall(node) => {
                scene.course.spend(Stall);
                scene.stalled.insert(node);
            }
            Action::Sync(node) => self.sync(scene, node),
        }
        scene.tidy();
    }

    fn course(scene: &Scene) -> &Course<Chance> {
        &scene.course
    }
}

impl Servers {
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
            Timer::Tick => scene.course.may(Tick) && scene.leads(node),
            _ => scene.course.may(Timeout),
        };
        actions.extend(scene.world.timers().filter(counts).map(|(node, timer)| Action::Fire(node, timer)));
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
        scene.course.spend(Crash);
        if scene.world.is_writing(node) {
            scene.course.pass(LOST_WRITES);
        }
        scene.world.crash(node);
        scene.stalled.remove(&node);
        scene.to_notice.retain(|(observer, _)| *observer != node);
        scene.to_notice.extend(scene.world.alive().map(|(observer, _)| (observer, node)));
    }

    fn restart(&self, scene: &mut Scene, node: ServerId) {
        scene.course.spend(Restart);
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
                    scene.course.pass(SURVIVED);
                }
                Output::Send { message: Message::Change(Reason::Rank), .. } => scene.correcting = true,
                _ => {}
            }
        }
        if !scene.stalled.contains(&taken.node) {
            self.sync(scene, taken.node);
        }
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
    fn new(world: World<ModelServer>) -> Self {
        Self {
            world,
            course: Course::default(),
            to_notice: BTreeSet::new(),
            stalled: BTreeSet::new(),
            leaders: BTreeMap::new(),
            committed: BTreeMap::new(),
            jumping: None,
            correcting: false,
        }
    }

    /// What was sent to the dead dies with the link: a new process has new links.
    fn tidy(&mut self) {
        let is_lost = |world: &World<_>, envelope: &Envelope<_>| world.machine(envelope.to).is_none();
        while let Some(place) = self.world.in_flight().iter().position(|envelope| is_lost(&self.world, envelope)) {
            self.world.drop(place);
        }
        self.world.forget_order();
    }

    fn judge_leader(&mut self, node: ServerId) {
        let Some(server) = self.world.machine(node) else { return };
        let (role, _, Term(term)) = server.replica().view();
        if role != Role::Leader || self.leaders.get(&term) == Some(&node) {
            return;
        }
        let log = server.replica().entries();
        let has = |entry: &Entry| log.get(entry.index as usize - 1).is_some_and(|own| own.term == entry.term);
        self.course.must(MISSING, self.committed.values().all(has));
        self.course.must(TWO_LEADERS, self.leaders.insert(term, node).is_none());
        self.course.pass(ELECTED);
        if self.jumping == Some(node) {
            self.course.pass(JUMPED_IN);
        } else if self.correcting {
            self.course.pass(CORRECTED);
        }
    }

    fn judge_commits(&mut self, entries: &[Entry]) {
        for entry in entries {
            let first = self.committed.entry(entry.index).or_insert_with(|| entry.clone()).clone();
            self.course.must(TWO_ENTRIES, first == *entry);
            if !entry.data.is_empty() {
                self.course.pass(COMMITTED);
            }
        }
    }

    fn leads(&self, node: ServerId) -> bool {
        self.world.machine(node).is_some_and(|server| server.replica().view().0 == Role::Leader)
    }
}

impl Chance {
    const fn of(timer: Timer) -> Self {
        if matches!(timer, Timer::Tick) { Self::Tick } else { Self::Timeout }
    }
}
