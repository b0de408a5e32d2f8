//! Explorations of an election.
//!
//! What can happen next is chosen in all possible ways, in one of two kinds of time. In *synchronous* time messages
//! are faster than timers, timers keep their order, and deaths are noticed within bounds. That is what the source
//! documents assume, and all properties hold. In *asynchronous* time any timer may run out at any moment, messages
//! may be lost and the living may be suspected. Then no election without a quorum is safe: an exploration finds two
//! leaders, and the way there is kept as a story.
//!
//! The properties are those of [`primus_lab::invariants`], judged where an election has settled: while a better node takes
//! over, the old leader has not heard of it yet.

use std::collections::BTreeMap;

use primus_core::election::{Command, Election, MessageKind, Timer};
use primus_core::load::Score;
use primus_core::{Delay, Machine, Output, ServerId};
use primus_lab::invariants::message_bound::Bound;
use primus_lab::invariants::{Evidence, agreement, correctness, message_bound, termination, uniqueness};
use primus_lab::outcome::{Counts, Outcome};
use primus_lab::story::cluster::Recipe;
use primus_lab::world::{Delivery, Envelope, Taken, World};

use self::Chance::{Crash, Doubt, Duplicate, Load, Loss, Resignation, Restart, Start};
use crate::frame::{Course, Milestone, Setting, actions};

/// An election.
#[derive(Debug, Clone)]
pub struct Elections<R> {
    /// The nodes.
    pub recipe: R,
    /// When timers run out.
    pub time: Time,
    /// How many messages one election takes. If this is given, only those start who have taken no part yet, so that
    /// there is one election.
    pub bound: Option<Bound>,
}

/// When timers run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// Time passes in ticks of [`TICK_US`], and only when no message can be delivered. Whatever is due in one tick
    /// happens in any order.
    Synchronous {
        /// Within how many ticks a death or a return is noticed.
        notice_ticks: u8,
    },
    /// At any moment.
    Asynchronous,
}

/// One tick: T of a local network, so that answers are awaited for one tick and a victory for two.
pub const TICK_US: u64 = 50_000;

/// Longer delays are cut to this, so that long ones, such as the start-up delay, do not multiply the states.
const DELAY_TICKS_MAX: u64 = 6;

/// What happens only so often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Chance {
    /// A node starts an election.
    Start,
    /// A node crashes.
    Crash,
    /// A crashed node starts again.
    Restart,
    /// A message arrives twice.
    Duplicate,
    /// A message is lost.
    Loss,
    /// A node suspects another one that is alive.
    Doubt,
    /// A leader steps down.
    Resignation,
    /// A node is suddenly idle, or fully loaded.
    Load,
}

/// A second node started while an election was under way.
pub const SECOND_START: Milestone = Milestone("settles after two starts");
/// A node died while an election was under way.
pub const DEATH_IN_ELECTION: Milestone = Milestone("settles after a death on the way");
/// A message died with the node that it was sent to, and was not missed.
pub const MESSAGE_DIED: Milestone = Milestone("settles after a message died");
/// Somebody waited for a winner, or for the end of a round, in vain.
pub const GAVE_UP: Milestone = Milestone("settles after giving up");
/// A node came back.
pub const RETURN: Milestone = Milestone("settles after a return");
/// A message arrived twice.
pub const DUPLICATE: Milestone = Milestone("settles after a duplicate");

/// One state of an exploration.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scene<M: Machine> {
    world: World<M>,
    course: Course<Chance>,
    /// Who has yet to notice whose death, and the ticks within which that happens.
    to_suspect: BTreeMap<(ServerId, ServerId), u8>,
    /// Who has yet to notice whose return, and the ticks within which that happens.
    to_trust: BTreeMap<(ServerId, ServerId), u8>,
    /// When the timers of elections are due; empty in asynchronous time.
    due: BTreeMap<(ServerId, Timer), Due>,
    sent: BTreeMap<MessageKind, usize>,
}

/// A timer may run out after `min` ticks, and does so within `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Due {
    min: u8,
    max: u8,
}

actions! {
    /// Something that happens. Its text is a command of a story.
    #[derive(Debug, Clone, PartialEq, Eq)]
    Action<T> {
        Start(node: ServerId) "start {node}";
        Deliver(sent: Envelope<T>) "deliver {} {} {}", sent.from, sent.to, sent.message;
        Duplicate(sent: Envelope<T>) "duplicate {} {} {}", sent.from, sent.to, sent.message;
        Lose(sent: Envelope<T>) "drop {} {} {}", sent.from, sent.to, sent.message;
        Fire(node: ServerId, timer: Timer) "fire {node} {timer}";
        Pass "# A tick passes.";
        Crash(node: ServerId) "crash {node}";
        Restart(node: ServerId) "restart {node}";
        Suspect(node: ServerId, dead: ServerId) "suspect {node} {dead}";
        Trust(node: ServerId, back: ServerId) "trust {node} {back}";
        Resign(node: ServerId) "resign {node}";
        Load(node: ServerId, score: Score) "score {node} {score}";
    }
}

const AT_MOST_ONE: &str = "at most one leader";

type Holds = fn(&Evidence<'_>) -> Option<bool>;

/// What must hold in synchronous time.
const GUARANTEES: [(&str, Holds); 5] = [
    ("termination", termination::holds),
    ("uniqueness", uniqueness::holds),
    ("agreement", agreement::holds),
    ("correctness", correctness::holds),
    ("message_bound", message_bound::holds),
];

type Message<R> = <<R as Recipe>::Machine as Machine>::Message;
type Steps<R> = Vec<Action<Message<R>>>;

impl<R: Recipe + Send + Sync + 'static> Setting for Elections<R>
where
    Scene<R::Machine>: Send + Sync,
{
    type Scene = Scene<R::Machine>;
    type Action = Action<Message<R>>;
    type Chance = Chance;

    fn open(&self, course: Course<Chance>) -> Self::Scene {
        let machines = self.recipe.nodes().into_iter().map(|node| (node, self.recipe.make(node)));
        let (to_suspect, to_trust, due, sent) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Scene { world: World::new(machines), course, to_suspect, to_trust, due, sent }
    }

    /// Messages, timers, notices of deaths and returns.
    fn events(&self, scene: &Self::Scene, actions: &mut Steps<R>) {
        actions.extend(scene.world.distinct().map(Action::Deliver));
        let noticeable = scene.to_suspect.keys().filter(|(_, dead)| scene.is_silent(*dead));
        actions.extend(noticeable.map(|&(node, dead)| Action::Suspect(node, dead)));
        actions.extend(scene.to_trust.keys().map(|&(node, back)| Action::Trust(node, back)));
        match self.time {
            Time::Asynchronous => actions.extend(scene.timers().map(|(node, timer)| Action::Fire(node, timer))),
            Time::Synchronous { .. } if !scene.world.in_flight().is_empty() => {}
            Time::Synchronous { .. } => {
                let ready = scene.due.iter().filter(|(_, due)| due.min == 0);
                actions.extend(ready.map(|(&(node, timer), _)| Action::Fire(node, timer)));
                actions.extend(scene.can_wait().then_some(Action::Pass));
            }
        }
    }

    fn choices(&self, scene: &Self::Scene, actions: &mut Steps<R>) {
        let Scene { course, world, .. } = scene;
        let alive = || world.alive().map(|(node, _)| node);
        course.offer(Start, actions, alive().filter(|node| self.may_start(scene, *node)).map(Action::Start));
        course.offer(Crash, actions, alive().filter(|_| alive().count() > 1).map(Action::Crash));
        course.offer(Restart, actions, world.nodes().filter(|node| scene.can_restart(*node)).map(Action::Restart));
        course.offer(Duplicate, actions, world.distinct().map(Action::Duplicate));
        course.offer(Loss, actions, world.distinct().map(Action::Lose));
        course.offer(Resignation, actions, world.leaders().map(Action::Resign));
        let loads = [Score::default(), Score::MAX].into_iter();
        course.offer(Load, actions, loads.flat_map(|score| alive().map(move |node| Action::Load(node, score))));
        let pairs = alive().flat_map(|node| alive().map(move |other| (node, other)));
        let others = pairs.filter(|(node, other)| node != other);
        course.offer(Doubt, actions, others.map(|(node, other)| Action::Suspect(node, other)));
    }

    fn act(&self, scene: &mut Self::Scene, action: Action<Message<R>>) {
        match action {
            Action::Start(node) => self.start(scene, node),
            Action::Deliver(envelope) => self.deliver(scene, &envelope),
            Action::Duplicate(envelope) => {
                scene.course.spend(Duplicate);
                scene.course.pass(DUPLICATE);
                scene.world.duplicate(scene.world.find(&envelope));
            }
            Action::Lose(envelope) => {
                scene.course.spend(Loss);
                scene.world.drop(scene.world.find(&envelope));
            }
            Action::Fire(node, timer) => self.fire(scene, node, timer),
            Action::Pass => scene.pass(),
            Action::Crash(node) => self.crash(scene, node),
            Action::Restart(node) => self.restart(scene, node),
            Action::Suspect(node, dead) => {
                if scene.to_suspect.remove(&(node, dead)).is_none() {
                    scene.course.spend(Doubt);
                }
                self.command(scene, node, Command::Suspect(dead));
            }
            Action::Trust(node, back) => {
                scene.to_trust.remove(&(node, back));
                self.command(scene, node, Command::Trust(back));
            }
            Action::Resign(node) => {
                scene.course.spend(Resignation);
                self.command(scene, node, Command::Resign);
            }
            Action::Load(node, score) => {
                scene.course.spend(Load);
                self.command(scene, node, Command::Score(score));
            }
        }
        scene.tidy();
    }

    fn course(scene: &Self::Scene) -> &Course<Chance> {
        &scene.course
    }

    fn judge(&self, scene: &Self::Scene) -> Option<&'static str> {
        match self.time {
            Time::Asynchronous => (scene.world.leaders().count() > 1).then_some(AT_MOST_ONE),
            Time::Synchronous { .. } if !scene.has_settled() => None,
            Time::Synchronous { .. } => self.find_broken_guarantee(scene),
        }
    }

    fn has_settled(&self, scene: &Self::Scene) -> bool {
        scene.has_settled()
    }
}

impl<R: Recipe> Elections<R> {
    fn may_start(&self, scene: &Scene<R::Machine>, node: ServerId) -> bool {
        self.bound.is_none() || scene.world.machine(node).is_some_and(|machine| !takes_part(machine))
    }

    fn start(&self, scene: &mut Scene<R::Machine>, node: ServerId) {
        scene.course.spend(Start);
        if !scene.is_quiet() {
            scene.course.pass(SECOND_START);
        }
        self.command(scene, node, Command::Start);
    }

    fn command(&self, scene: &mut Scene<R::Machine>, node: ServerId, command: Command) {
        let taken = scene.world.command(node, command);
        self.note(scene, taken.as_ref());
    }

    fn deliver(&self, scene: &mut Scene<R::Machine>, envelope: &Envelope<Message<R>>) {
        match scene.world.deliver(scene.world.find(envelope)) {
            Delivery::Arrived(taken) => self.note(scene, Some(&taken)),
            Delivery::ToCrashed(_) | Delivery::Cut(_) => scene.course.pass(MESSAGE_DIED),
        }
    }

    fn fire(&self, scene: &mut Scene<R::Machine>, node: ServerId, timer: Timer) {
        if matches!(timer, Timer::Victory | Timer::Round) {
            scene.course.pass(GAVE_UP);
        }
        scene.due.remove(&(node, timer));
        let taken = scene.world.fire(node, timer);
        self.note(scene, taken.as_ref());
    }

    fn crash(&self, scene: &mut Scene<R::Machine>, node: ServerId) {
        scene.course.spend(Crash);
        if !scene.is_quiet() {
            scene.course.pass(DEATH_IN_ELECTION);
        }
        scene.world.crash(node);
        scene.due.retain(|(owner, _), _| *owner != node);
        scene.to_suspect.retain(|(observer, _), _| *observer != node);
        scene.to_trust.retain(|(observer, back), _| *observer != node && *back != node);
        let observers = scene.world.alive().map(|(observer, _)| ((observer, node), self.notice_ticks()));
        scene.to_suspect.extend(observers);
    }

    /// Whoever returns finds out about the dead, and the others about it.
    fn restart(&self, scene: &mut Scene<R::Machine>, node: ServerId) {
        scene.course.spend(Restart);
        scene.course.pass(RETURN);
        let within = self.notice_ticks();
        scene.to_trust.extend(scene.world.alive().map(|(observer, _)| ((observer, node), within)));
        scene.world.restart(node, self.recipe.make(node));
        let dead = scene.world.nodes().filter(|id| scene.world.machine(*id).is_none());
        scene.to_suspect.extend(dead.map(|dead| ((node, dead), within)));
        self.command(scene, node, Command::Boot);
    }

    /// Notes what a step means for clocks and counts.
    fn note(&self, scene: &mut Scene<R::Machine>, taken: Option<&Taken<R::Machine>>) {
        let Some(taken) = taken else { return };
        for output in &taken.outputs {
            match output {
                Output::Send { message, .. } if self.bound.is_some() => {
                    *scene.sent.entry(R::Machine::kind_of(message)).or_default() += 1;
                }
                Output::Set { timer, delay } if self.keeps_time(*timer) => {
                    scene.due.insert((taken.node, *timer), Due::new(*delay));
                }
                Output::Cancel(timer) => _ = scene.due.remove(&(taken.node, *timer)),
                _ => {}
            }
        }
    }

    fn keeps_time(&self, timer: Timer) -> bool {
        self.time != Time::Asynchronous && is_of_election(timer)
    }

    /// Within how many ticks something is noticed.
    const fn notice_ticks(&self) -> u8 {
        match self.time {
            Time::Synchronous { notice_ticks } => notice_ticks,
            Time::Asynchronous => 0,
        }
    }

    /// The first of the guarantees that does not hold where the election has settled; before that it is too early.
    fn find_broken_guarantee(&self, scene: &Scene<R::Machine>) -> Option<&'static str> {
        let outcome = scene.outcome();
        let best = self.best(scene).filter(|_| self.is_won_by_the_best(&scene.course));
        let (bound, changed_ranks) = (self.bound, None);
        let evidence = Evidence { outcome: &outcome, faults_ended: true, best, bound, changed_ranks };
        let broken = GUARANTEES.iter().find(|(_, holds)| holds(&evidence) == Some(false));
        broken.map(|(name, _)| *name)
    }

    fn best(&self, scene: &Scene<R::Machine>) -> Option<ServerId> {
        let alive = scene.world.alive().map(|(node, _)| node);
        alive.reduce(|best, node| if self.recipe.is_better(node, best) { node } else { best })
    }

    /// Without preemption a better node that comes back follows whoever leads. Whoever resigned may be the best. Which
    /// load counts depends on when the round began.
    fn is_won_by_the_best(&self, course: &Course<Chance>) -> bool {
        let may_return_behind = course.plans(Restart) && !self.recipe.preempts();
        !may_return_behind && !course.plans(Resignation) && !course.plans(Load)
    }
}

impl<M: Election> Scene<M> {
    /// Nothing is left to happen by itself.
    fn is_quiet(&self) -> bool {
        let is_busy = !self.world.in_flight().is_empty() || self.timers().next().is_some();
        !is_busy && self.to_suspect.is_empty() && self.to_trust.is_empty()
    }

    /// Somebody who is alive took part in an election, and nothing is left to happen by itself.
    fn has_settled(&self) -> bool {
        self.is_quiet() && self.world.alive().any(|(_, machine)| takes_part(machine))
    }

    fn outcome(&self) -> Outcome {
        let table = self.world.alive().map(|(node, machine)| (node, machine.leader())).collect();
        let mut messages = Counts::default();
        for (kind, count) in &self.sent {
            (0..*count).for_each(|_| messages.add(*kind));
        }
        Outcome { settled: true, table, messages, ..Outcome::default() }
    }

    /// The timers of elections under way.
    fn timers(&self) -> impl Iterator<Item = (ServerId, Timer)> + '_ {
        self.world.timers().filter(|(_, timer)| is_of_election(*timer))
    }

    /// Nothing that this node has sent is in flight.
    fn is_silent(&self, node: ServerId) -> bool {
        self.world.in_flight().iter().all(|envelope| envelope.from != node)
    }

    /// A process that comes back is noticed as a death first, because its links were reset.
    fn can_restart(&self, node: ServerId) -> bool {
        let is_crashed = self.world.machine(node).is_none();
        is_crashed && self.is_silent(node) && self.to_suspect.keys().all(|(_, dead)| *dead != node)
    }

    /// Something is to come, and nothing has to come before the next tick.
    fn can_wait(&self) -> bool {
        let notices = || self.to_suspect.values().chain(self.to_trust.values());
        let is_urgent = self.due.values().any(|due| due.max == 0) || notices().any(|ticks| *ticks == 0);
        let is_awaited = !self.due.is_empty() || notices().next().is_some();
        is_awaited && !is_urgent
    }

    fn pass(&mut self) {
        for due in self.due.values_mut() {
            *due = Due { min: due.min.saturating_sub(1), max: due.max - 1 };
        }
        self.to_suspect.values_mut().chain(self.to_trust.values_mut()).for_each(|ticks| *ticks -= 1);
    }

    /// Nobody will get what was sent to the dead, unless they return: whether it arrives sooner or later makes no
    /// difference.
    fn tidy(&mut self) {
        while let Some(place) = self.find_message_to_the_dead() {
            self.world.drop(place);
            self.course.pass(MESSAGE_DIED);
        }
        self.world.forget_order();
    }

    fn find_message_to_the_dead(&self) -> Option<usize> {
        let is_for_the_dead = |envelope: &Envelope<_>| self.world.machine(envelope.to).is_none();
        if self.course.may(Restart) { None } else { self.world.in_flight().iter().position(is_for_the_dead) }
    }
}

impl Due {
    fn new(delay: Delay) -> Self {
        let ticks = |us: u64| u8::try_from((us / TICK_US).min(DELAY_TICKS_MAX)).unwrap_or(u8::MAX);
        Self { min: ticks(delay.min_us), max: ticks(delay.max_us) }
    }
}

/// Has this node heard of an election?
fn takes_part(machine: &impl Election) -> bool {
    machine.leader().is_some() || machine.is_electing()
}

/// The other timers watch over a leader for ever.
const fn is_of_election(timer: Timer) -> bool {
    !matches!(timer, Timer::Remind | Timer::Silence)
}
