//! An exploration: every state that a small election can reach, visited by stateright.
//!
//! What can happen next is chosen in all possible ways, in one of two kinds of time. In *synchronous* time messages
//! are faster than timers, timers keep their order, and deaths are noticed within bounds. That is what the source
//! documents assume, and all properties hold. In *asynchronous* time any timer may run out at any moment, messages
//! may be lost and the living may be suspected. Then no election without a quorum is safe: an exploration finds two
//! leaders, and the way there is kept as a story.
//!
//! The properties are those of [`primus_lab::invariants`], judged where an election has settled: while a better node takes
//! over, the old leader has not heard of it yet.
//!
//! Termination is not stateright's `eventually`, which is sound on acyclic spaces only. Instead, a state in which
//! nothing is left to happen by itself must be a good one, and [`Exploration::find_circle`] shows that nothing happens
//! in circles. A finite space without circles ends in such a state, whatever is chosen.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use primus_core::election::{Command, Election, MessageKind, Timer};
use primus_core::load::Score;
use primus_core::{Delay, Machine, Output, ServerId};
use stateright::{Checker, HasDiscoveries, Model, Path, Property};

use primus_lab::invariants::message_bound::Bound;
use primus_lab::invariants::{Evidence, agreement, correctness, message_bound, termination, uniqueness};
use primus_lab::outcome::{Counts, Outcome};
use primus_lab::story::cluster::Recipe;
use primus_lab::world::{Delivery, Envelope, Taken, World};

/// An election, what may happen to it, and what must be reached.
#[derive(Debug, Clone)]
pub struct Exploration<R> {
    /// The nodes.
    pub recipe: R,
    /// When timers run out.
    pub time: Time,
    /// How often what may happen.
    pub budget: Budget,
    /// What must be reached, lest everything hold for want of cases.
    pub milestones: &'static [Milestone],
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

/// How often something may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Budget {
    /// A node starts an election.
    pub starts: u8,
    /// A node crashes.
    pub crashes: u8,
    /// A crashed node starts again.
    pub restarts: u8,
    /// A message arrives twice.
    pub duplicates: u8,
    /// A message is lost.
    pub losses: u8,
    /// A node suspects another one that is alive.
    pub doubts: u8,
    /// A leader steps down.
    pub resignations: u8,
    /// A node is suddenly idle, or fully loaded.
    pub loads: u8,
}

/// Something that must happen on some way that settles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Milestone {
    /// A second node started while an election was under way.
    SecondStart,
    /// A node died while an election was under way.
    DeathInElection,
    /// A message died with the node that it was sent to, and was not missed.
    MessageDied,
    /// Somebody waited for a winner, or for the end of a round, in vain.
    GaveUp,
    /// A node came back.
    Return,
    /// A message arrived twice.
    Duplicate,
}

/// One state of an exploration.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scene<M: Machine> {
    world: World<M>,
    left: Budget,
    /// Who has yet to notice whose death, and the ticks within which that happens.
    to_suspect: BTreeMap<(ServerId, ServerId), u8>,
    /// Who has yet to notice whose return, and the ticks within which that happens.
    to_trust: BTreeMap<(ServerId, ServerId), u8>,
    /// When the timers of elections are due; empty in asynchronous time.
    due: BTreeMap<(ServerId, Timer), Due>,
    sent: BTreeMap<MessageKind, usize>,
    passed: Passed,
}

/// The milestones on the way here, as bits: the smaller a state, the more of them fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Passed(u8);

/// A timer may run out after `min` ticks, and does so within `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Due {
    min: u8,
    max: u8,
}

/// Something that happens. Its text is a command of a story.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<T> {
    /// A node starts an election.
    Start(ServerId),
    /// A message arrives.
    Deliver(Envelope<T>),
    /// A message will arrive once more.
    Duplicate(Envelope<T>),
    /// A message is lost.
    Lose(Envelope<T>),
    /// A timer runs out.
    Fire(ServerId, Timer),
    /// A tick passes.
    Pass,
    /// A node dies.
    Crash(ServerId),
    /// A node comes back, knowing nothing.
    Restart(ServerId),
    /// A node takes another one for dead, rightly or not.
    Suspect(ServerId, ServerId),
    /// A node notices that another one came back.
    Trust(ServerId, ServerId),
    /// A leader steps down.
    Resign(ServerId),
    /// A node's load changes.
    Load(ServerId, Score),
}

/// A property that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Its name.
    pub property: &'static str,
    /// How it is broken, as commands of a story; nothing if it was never reached.
    pub way: Option<Vec<String>>,
}

/// What a search that is over has found: how many states there are, or what is broken.
///
/// A broken property ends the visit early, so what was not reached by then says nothing.
pub(crate) fn judge<M>(checker: &impl Checker<M>) -> Result<usize, Broken>
where
    M: Model,
    M::State: Clone + PartialEq,
    M::Action: Clone + PartialEq + fmt::Display,
{
    let found = checker.discoveries();
    let (always, sometimes): (Vec<_>, Vec<_>) =
        checker.model().properties().into_iter().partition(|property| property.expectation.discovery_is_failure());
    if let Some((name, path)) = always.iter().find_map(|property| found.get_key_value(property.name)) {
        let way = path.clone().into_actions().iter().map(ToString::to_string).collect();
        return Err(Broken { property: name, way: Some(way) });
    }
    match sometimes.iter().find(|property| !found.contains_key(property.name)) {
        Some(Property { name, .. }) => Err(Broken { property: name, way: None }),
        None => Ok(checker.unique_state_count()),
    }
}

const AT_MOST_ONE: &str = "at most one leader";

type Message<R> = <<R as Recipe>::Machine as Machine>::Message;
type Steps<R> = Vec<Action<Message<R>>>;

impl<R: Recipe> Model for Exploration<R> {
    type State = Scene<R::Machine>;
    type Action = Action<Message<R>>;

    fn init_states(&self) -> Vec<Self::State> {
        let machines = self.recipe.nodes().into_iter().map(|node| (node, self.recipe.make(node)));
        vec![Scene::new(World::new(machines), self.budget)]
    }

    fn actions(&self, scene: &Self::State, actions: &mut Steps<R>) {
        self.events(scene, actions);
        self.choices(scene, actions);
    }

    fn next_state(&self, scene: &Self::State, action: Self::Action) -> Option<Self::State> {
        let mut next = scene.clone();
        self.act(&mut next, action);
        self.tidy(&mut next);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        match self.time {
            Time::Asynchronous => {
                vec![Property::always(AT_MOST_ONE, |_, scene: &Self::State| scene.world.leaders().count() <= 1)]
            }
            Time::Synchronous { .. } => self.guarantees(),
        }
    }
}

impl<R: Recipe + Send + Sync + 'static> Exploration<R>
where
    Scene<R::Machine>: Send + Sync,
    Message<R>: PartialEq,
{
    /// Visits every state and returns how many there are.
    ///
    /// # Errors
    /// If a property is broken, or something is never reached.
    pub fn visit(&self) -> Result<usize, Broken> {
        let checker = self.clone().checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        judge(&checker).map_err(|broken| match broken.way {
            // As short as can be, because people read it.
            Some(_) => Broken { way: self.shortest_way(broken.property, checker.max_depth()), ..broken },
            None => broken,
        })
    }

    /// The shortest way to more than one leader at a time, as commands of a story.
    #[must_use]
    pub fn find_two_leaders(&self, depth_max: usize) -> Option<Vec<String>> {
        self.shortest_way(AT_MOST_ONE, depth_max)
    }

    /// stateright keeps the last counterexample that it meets, not the first: look no further than needed. One
    /// thread, so that the answer is always the same.
    fn shortest_way(&self, property: &'static str, depth_max: usize) -> Option<Vec<String>> {
        let search = |depth| self.clone().checker().target_max_depth(depth).spawn_bfs().join().discovery(property);
        let way = (1..=depth_max).find_map(search).map(Path::into_actions)?;
        Some(way.iter().map(ToString::to_string).collect())
    }

    /// Looks for a state that can be reached from itself. Finds none if every way ends.
    #[must_use]
    pub fn find_circle(&self) -> Option<Scene<R::Machine>> {
        let mut finished = BTreeSet::new();
        let mut way: Vec<(u64, Vec<Scene<R::Machine>>)> = vec![(0, self.init_states())];
        let mut on_the_way = BTreeSet::new();
        while let Some((here, next)) = way.last_mut() {
            let Some(scene) = next.pop() else {
                on_the_way.remove(here);
                finished.insert(*here);
                way.pop();
                continue;
            };
            let there = fingerprint(&scene);
            if on_the_way.contains(&there) {
                return Some(scene);
            }
            if !finished.contains(&there) {
                on_the_way.insert(there);
                way.push((there, self.next_states(&scene)));
            }
        }
        None
    }
}

impl<R: Recipe> Exploration<R> {
    /// What happens by itself, sooner or later: messages, timers, notices of deaths and returns.
    fn events(&self, scene: &Scene<R::Machine>, actions: &mut Steps<R>) {
        actions.extend(scene.envelopes().map(Action::Deliver));
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

    /// What happens only if the exploration wants it, within its budget.
    fn choices(&self, scene: &Scene<R::Machine>, actions: &mut Steps<R>) {
        let left = scene.left;
        let alive = || scene.world.alive().map(|(node, _)| node);
        if left.starts > 0 {
            actions.extend(alive().filter(|node| self.may_start(scene, *node)).map(Action::Start));
        }
        if left.crashes > 0 && alive().count() > 1 {
            actions.extend(alive().map(Action::Crash));
        }
        if left.restarts > 0 {
            actions.extend(scene.world.nodes().filter(|node| scene.can_restart(*node)).map(Action::Restart));
        }
        if left.duplicates > 0 {
            actions.extend(scene.envelopes().map(Action::Duplicate));
        }
        if left.losses > 0 {
            actions.extend(scene.envelopes().map(Action::Lose));
        }
        if left.resignations > 0 {
            actions.extend(scene.world.leaders().map(Action::Resign));
        }
        if left.loads > 0 {
            let changes = [Score::default(), Score::MAX].into_iter();
            actions.extend(changes.flat_map(|score| alive().map(move |node| Action::Load(node, score))));
        }
        if left.doubts > 0 {
            let pairs = alive().flat_map(|node| alive().map(move |other| (node, other)));
            actions.extend(
                pairs.filter(|(node, other)| node != other).map(|(node, other)| Action::Suspect(node, other)),
            );
        }
    }

    fn may_start(&self, scene: &Scene<R::Machine>, node: ServerId) -> bool {
        self.bound.is_none() || scene.world.machine(node).is_some_and(|machine| !takes_part(machine))
    }

    fn act(&self, scene: &mut Scene<R::Machine>, action: Action<Message<R>>) {
        match action {
            Action::Start(node) => self.start(scene, node),
            Action::Deliver(envelope) => self.deliver(scene, &envelope),
            Action::Duplicate(envelope) => {
                scene.left.duplicates -= 1;
                self.pass_by(scene, Milestone::Duplicate);
                scene.world.duplicate(scene.place_of(&envelope));
            }
            Action::Lose(envelope) => {
                scene.left.losses -= 1;
                scene.world.drop(scene.place_of(&envelope));
            }
            Action::Fire(node, timer) => self.fire(scene, node, timer),
            Action::Pass => scene.pass(),
            Action::Crash(node) => self.crash(scene, node),
            Action::Restart(node) => self.restart(scene, node),
            Action::Suspect(node, dead) => {
                let is_doubt = scene.to_suspect.remove(&(node, dead)).is_none();
                scene.left.doubts -= u8::from(is_doubt);
                self.command(scene, node, Command::Suspect(dead));
            }
            Action::Trust(node, back) => {
                scene.to_trust.remove(&(node, back));
                self.command(scene, node, Command::Trust(back));
            }
            Action::Resign(node) => {
                scene.left.resignations -= 1;
                self.command(scene, node, Command::Resign);
            }
            Action::Load(node, score) => {
                scene.left.loads -= 1;
                self.command(scene, node, Command::Score(score));
            }
        }
    }

    fn start(&self, scene: &mut Scene<R::Machine>, node: ServerId) {
        scene.left.starts -= 1;
        if !scene.is_quiet() {
            self.pass_by(scene, Milestone::SecondStart);
        }
        self.command(scene, node, Command::Start);
    }

    fn command(&self, scene: &mut Scene<R::Machine>, node: ServerId, command: Command) {
        let taken = scene.world.command(node, command);
        self.note(scene, taken.as_ref());
    }

    fn deliver(&self, scene: &mut Scene<R::Machine>, envelope: &Envelope<Message<R>>) {
        match scene.world.deliver(scene.place_of(envelope)) {
            Delivery::Arrived(taken) => self.note(scene, Some(&taken)),
            Delivery::ToCrashed(_) | Delivery::Cut(_) => self.pass_by(scene, Milestone::MessageDied),
        }
    }

    fn fire(&self, scene: &mut Scene<R::Machine>, node: ServerId, timer: Timer) {
        if matches!(timer, Timer::Victory | Timer::Round) {
            self.pass_by(scene, Milestone::GaveUp);
        }
        scene.due.remove(&(node, timer));
        let taken = scene.world.fire(node, timer);
        self.note(scene, taken.as_ref());
    }

    fn crash(&self, scene: &mut Scene<R::Machine>, node: ServerId) {
        scene.left.crashes -= 1;
        if !scene.is_quiet() {
            self.pass_by(scene, Milestone::DeathInElection);
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
        scene.left.restarts -= 1;
        self.pass_by(scene, Milestone::Return);
        let within = self.notice_ticks();
        scene.to_trust.extend(scene.world.alive().map(|(observer, _)| ((observer, node), within)));
        scene.world.restart(node, self.recipe.make(node));
        let dead = scene.world.nodes().filter(|id| scene.world.machine(*id).is_none());
        scene.to_suspect.extend(dead.map(|dead| ((node, dead), within)));
        self.command(scene, node, Command::Boot);
    }

    /// Only what somebody asks for is remembered: it multiplies the states.
    fn pass_by(&self, scene: &mut Scene<R::Machine>, milestone: Milestone) {
        if self.milestones.contains(&milestone) {
            scene.passed.insert(milestone);
        }
    }

    /// Nobody will get what was sent to the dead, unless they return: whether it arrives sooner or later makes no
    /// difference.
    fn tidy(&self, scene: &mut Scene<R::Machine>) {
        while let Some(place) = scene.find_message_to_the_dead() {
            scene.world.drop(place);
            self.pass_by(scene, Milestone::MessageDied);
        }
        scene.world.forget_order();
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

    /// What must hold in synchronous time, and what must be reached.
    fn guarantees(&self) -> Vec<Property<Self>> {
        let always = [
            Property::always("termination", |model: &Self, scene| model.holds(scene, termination::holds)),
            Property::always("uniqueness", |model: &Self, scene| model.holds(scene, uniqueness::holds)),
            Property::always("agreement", |model: &Self, scene| model.holds(scene, agreement::holds)),
            Property::always("correctness", |model: &Self, scene| model.holds(scene, correctness::holds)),
            Property::always("message_bound", |model: &Self, scene| model.holds(scene, message_bound::holds)),
        ];
        let settles = Property::sometimes("settles", |_, scene: &Scene<R::Machine>| scene.has_settled());
        let milestones = self.milestones.iter().map(|milestone| milestone.property());
        always.into_iter().chain([settles]).chain(milestones).collect()
    }

    /// Judges a state in which the election has settled; in all others it is too early.
    fn holds(&self, scene: &Scene<R::Machine>, property: fn(&Evidence<'_>) -> Option<bool>) -> bool {
        if !scene.has_settled() {
            return true;
        }
        let outcome = scene.outcome();
        let best = self.best(scene).filter(|_| self.is_won_by_the_best());
        let (bound, changed_ranks) = (self.bound, None);
        property(&Evidence { outcome: &outcome, faults_ended: true, best, bound, changed_ranks }) != Some(false)
    }

    fn best(&self, scene: &Scene<R::Machine>) -> Option<ServerId> {
        let alive = scene.world.alive().map(|(node, _)| node);
        alive.reduce(|best, node| if self.recipe.is_better(node, best) { node } else { best })
    }

    /// Without preemption a better node that comes back follows whoever leads. Whoever resigned may be the best. Which
    /// load counts depends on when the round began.
    fn is_won_by_the_best(&self) -> bool {
        let Budget { restarts, resignations, loads, .. } = self.budget;
        (self.recipe.preempts() || restarts == 0) && resignations == 0 && loads == 0
    }
}

impl Milestone {
    fn property<R: Recipe>(self) -> Property<Exploration<R>> {
        let sometimes = Property::<Exploration<R>>::sometimes;
        match self {
            Self::SecondStart => {
                sometimes("settles after two starts", |_, scene| scene.settled_after(Self::SecondStart))
            }
            Self::DeathInElection => {
                sometimes("settles after a death on the way", |_, scene| scene.settled_after(Self::DeathInElection))
            }
            Self::MessageDied => {
                sometimes("settles after a message died", |_, scene| scene.settled_after(Self::MessageDied))
            }
            Self::GaveUp => sometimes("settles after giving up", |_, scene| scene.settled_after(Self::GaveUp)),
            Self::Return => sometimes("settles after a return", |_, scene| scene.settled_after(Self::Return)),
            Self::Duplicate => {
                sometimes("settles after a duplicate", |_, scene| scene.settled_after(Self::Duplicate))
            }
        }
    }
}

impl<M: Election> Scene<M> {
    fn new(world: World<M>, left: Budget) -> Self {
        let (to_suspect, to_trust) = (BTreeMap::new(), BTreeMap::new());
        let (due, sent, passed) = (BTreeMap::new(), BTreeMap::new(), Passed::default());
        Self { world, left, to_suspect, to_trust, due, sent, passed }
    }

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

    fn settled_after(&self, milestone: Milestone) -> bool {
        self.passed.contains(milestone) && self.has_settled()
    }

    /// The messages in flight, equal ones once.
    fn envelopes(&self) -> impl Iterator<Item = Envelope<M::Message>> + '_ {
        let in_flight = self.world.in_flight();
        let is_first = |index: &usize| *index == 0 || in_flight[*index] != in_flight[*index - 1];
        (0..in_flight.len()).filter(is_first).map(|index| in_flight[index].clone())
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

    fn find_message_to_the_dead(&self) -> Option<usize> {
        let is_for_the_dead = |envelope: &Envelope<_>| self.world.machine(envelope.to).is_none();
        if self.left.restarts > 0 { None } else { self.world.in_flight().iter().position(is_for_the_dead) }
    }

    fn place_of(&self, envelope: &Envelope<M::Message>) -> usize {
        let place = self.world.in_flight().iter().position(|other| other == envelope);
        place.expect("only what is in flight is delivered, doubled or lost")
    }
}

impl Passed {
    fn insert(&mut self, milestone: Milestone) {
        self.0 |= 1 << milestone as u8;
    }

    const fn contains(self, milestone: Milestone) -> bool {
        self.0 & (1 << milestone as u8) != 0
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

fn fingerprint(scene: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    scene.hash(&mut hasher);
    hasher.finish()
}

impl<T: fmt::Display> fmt::Display for Action<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(node) => write!(f, "start {node}"),
            Self::Deliver(Envelope { from, to, message }) => write!(f, "deliver {from} {to} {message}"),
            Self::Duplicate(Envelope { from, to, message }) => write!(f, "duplicate {from} {to} {message}"),
            Self::Lose(Envelope { from, to, message }) => write!(f, "drop {from} {to} {message}"),
            Self::Fire(node, timer) => write!(f, "fire {node} {timer}"),
            Self::Pass => f.write_str("# A tick passes."),
            Self::Crash(node) => write!(f, "crash {node}"),
            Self::Restart(node) => write!(f, "restart {node}"),
            Self::Suspect(node, dead) => write!(f, "suspect {node} {dead}"),
            Self::Trust(node, back) => write!(f, "trust {node} {back}"),
            Self::Resign(node) => write!(f, "resign {node}"),
            Self::Load(node, score) => write!(f, "score {node} {score}"),
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.way {
            Some(way) => write!(f, "{:?} is broken by:\n{}", self.property, way.join("\n")),
            None => write!(f, "{:?} is never reached", self.property),
        }
    }
}
