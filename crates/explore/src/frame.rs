//! The frame of every exploration: what a setting says of itself, and stateright's search through all that follows.
//!
//! A [`Setting`] says what happens by itself, what may be chosen beyond that as long as a [`Budget`] lasts, and what must hold.
//! A [`Milestone`] is something that at least one way must pass, so that no property holds vacuously.
//!
//! Termination is not stateright's `eventually`, which is sound on acyclic spaces only. Instead, a state in which
//! nothing is left to happen by itself must be a good one, and [`Exploration::find_circle`] shows that nothing happens
//! in circles. A finite space without circles ends in such a state, whatever is chosen.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use stateright::{Checker, HasDiscoveries, Model, Path, Property};

/// What can happen, and the line that it is in a [`Broken`] way.
macro_rules! actions {
    ($(#[$meta:meta])* $name:ident $(<$generic:ident>)? {
        $($variant:ident $(($($field:ident: $of:ty),+))? $words:literal $(, $part:expr)*;)*
    }) => {
        $(#[$meta])*
        pub enum $name $(<$generic>)? {
            $(#[doc = $words] $variant $(($($of),+))?,)*
        }

        impl $(<$generic: std::fmt::Display>)? std::fmt::Display for $name $(<$generic>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$variant $(($($field),+))? => write!(f, $words $(, $part)*),)*
                }
            }
        }
    };
}
pub(crate) use actions;

/// What is explored. A scene is one of its states.
pub trait Setting: Clone + Send + Sync + 'static {
    /// One state.
    type Scene: Clone + fmt::Debug + Eq + Hash + Send + Sync + 'static;
    /// Something that happens. Its text is a line of a [`Broken`] way.
    type Action: Clone + PartialEq + fmt::Debug + fmt::Display;
    /// A kind of thing that happens only so often.
    type Chance: Copy + fmt::Debug + Eq + Hash + Send + Sync + 'static;

    /// How it begins.
    fn open(&self, course: Course<Self::Chance>) -> Self::Scene;

    /// What has to happen before anything else, and what may get in its way.
    fn urgent(&self, _: &Self::Scene, _: &mut Vec<Self::Action>) {}

    /// What happens by itself, sooner or later.
    fn events(&self, scene: &Self::Scene, actions: &mut Vec<Self::Action>);

    /// What happens only if the exploration wants it, within its budget.
    fn choices(&self, scene: &Self::Scene, actions: &mut Vec<Self::Action>);

    /// Something happens.
    fn act(&self, scene: &mut Self::Scene, action: Self::Action);

    /// How a scene came about.
    fn course(scene: &Self::Scene) -> &Course<Self::Chance>;

    /// A property that does not hold in this scene, beside those that are judged whenever something happens.
    fn judge(&self, _: &Self::Scene) -> Option<&'static str> {
        None
    }

    /// Is it over here, so that milestones count? One scene at least must be so.
    fn has_settled(&self, _: &Self::Scene) -> bool {
        true
    }
}

/// A setting, what may happen to it, and what must be reached.
#[derive(Debug, Clone)]
pub struct Exploration<S: Setting> {
    /// What is explored.
    pub setting: S,
    /// How often what may happen.
    pub budget: Budget<S::Chance>,
    /// Milestones that at least one way must pass, so that no property holds vacuously.
    pub milestones: &'static [Milestone],
    /// How many things may happen at most, one after the other.
    pub depth_max: Option<usize>,
}

/// How often something may still happen, of a few kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Budget<C>([Option<(C, u8)>; CHANCES_MAX]);

/// Something that must happen on some way: its name is a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Milestone(pub &'static str);

/// How a scene came about: what it has left of its budget, which milestones it has passed, and what broke.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Course<C> {
    budget: Budget<C>,
    wanted: &'static [Milestone],
    /// One bit for each that is wanted: the others would only multiply the states.
    passed: u8,
    broken: Option<&'static str>,
}

/// A property that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Its name.
    pub property: &'static str,
    /// How it is broken, in the words of actions; nothing if it was never reached.
    pub way: Option<Vec<String>>,
}

/// No exploration has more kinds of chances, or more milestones.
const CHANCES_MAX: usize = 4;
const MILESTONES_MAX: usize = 4;
const HOLDS: &str = "everything that must hold";

type Condition<S> = fn(&Exploration<S>, &<S as Setting>::Scene) -> bool;

impl<S: Setting> Model for Exploration<S> {
    type State = S::Scene;
    type Action = S::Action;

    fn init_states(&self) -> Vec<S::Scene> {
        vec![self.setting.open(Course::new(self.budget, self.milestones))]
    }

    fn actions(&self, scene: &S::Scene, actions: &mut Vec<S::Action>) {
        self.setting.urgent(scene, actions);
        if actions.is_empty() {
            self.setting.events(scene, actions);
            self.setting.choices(scene, actions);
        }
    }

    fn next_state(&self, scene: &S::Scene, action: S::Action) -> Option<S::Scene> {
        let mut next = scene.clone();
        self.setting.act(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let holds = Property::always(HOLDS, |exploration: &Self, scene| exploration.find_broken(scene).is_none());
        // Where something is broken the search is over.
        let settles = Property::sometimes("settles", |exploration: &Self, scene| {
            exploration.setting.has_settled(scene) || exploration.find_broken(scene).is_some()
        });
        let passed: [Condition<S>; MILESTONES_MAX] =
            [Self::has_passed::<0>, Self::has_passed::<1>, Self::has_passed::<2>, Self::has_passed::<3>];
        let milestones =
            self.milestones.iter().zip(passed).map(|(name, passed)| Property::sometimes(name.0, passed));
        [holds, settles].into_iter().chain(milestones).collect()
    }
}

impl<S: Setting> Exploration<S> {
    /// Everything that may follow within this budget.
    pub fn new(setting: S, budget: impl Into<Budget<S::Chance>>) -> Self {
        Self { setting, budget: budget.into(), milestones: &[], depth_max: None }
    }

    /// The same, and some way must pass each of these.
    ///
    /// # Panics
    /// If there are too many of them.
    #[must_use]
    pub fn by_way_of(self, milestones: &'static [Milestone]) -> Self {
        assert!(milestones.len() <= MILESTONES_MAX, "{} milestones are too many", milestones.len());
        Self { milestones, ..self }
    }

    /// Visits every state and returns how many there are.
    ///
    /// # Errors
    /// If a property is broken, with the shortest way to where it is; or if something is never reached.
    pub fn visit(&self) -> Result<usize, Broken> {
        // stateright counts states on the way, not what happens between them, and does not look at the last.
        let search = match self.depth_max {
            Some(depth) => self.clone().checker().target_max_depth(depth + 2),
            None => self.clone().checker(),
        };
        // One thread, so that the answer is always the same.
        let checker = search.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let mut found = checker.discoveries();
        if let Some(path) = found.remove(HOLDS) {
            return Err(self.tell(path));
        }
        match self.properties().iter().find(|property| property.name != HOLDS && !found.contains_key(property.name))
        {
            Some(Property { name, .. }) => Err(Broken { property: name, way: None }),
            None => Ok(checker.unique_state_count()),
        }
    }

    /// As short as can be, because people read it. stateright ends at the first broken state only if nothing else is to be
    /// reached; if there are milestones, it goes on for a while and keeps the last.
    fn tell(&self, path: Path<S::Scene, S::Action>) -> Broken {
        if !self.milestones.is_empty() {
            return Self { milestones: &[], ..self.clone() }.visit().expect_err("it is as broken as before");
        }
        let property = self.find_broken(path.last_state()).expect("the last state of this way is broken");
        Broken { property, way: Some(path.into_actions().iter().map(ToString::to_string).collect()) }
    }

    /// Looks for a state that can be reached from itself. Finds none if every way ends.
    #[must_use]
    pub fn find_circle(&self) -> Option<S::Scene> {
        let mut finished = BTreeSet::new();
        let mut way: Vec<(u64, Vec<S::Scene>)> = vec![(0, self.init_states())];
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

    fn find_broken(&self, scene: &S::Scene) -> Option<&'static str> {
        S::course(scene).broken.or_else(|| self.setting.judge(scene))
    }

    fn has_passed<const PLACE: usize>(&self, scene: &S::Scene) -> bool {
        S::course(scene).passed & (1 << PLACE) != 0 && self.setting.has_settled(scene)
    }
}

impl<C: Copy + Eq> Budget<C> {
    /// How often this may still happen.
    pub fn left(&self, chance: C) -> u8 {
        self.0.iter().flatten().find(|(kind, _)| *kind == chance).map_or(0, |(_, left)| *left)
    }
}

impl<C: Copy, const N: usize> From<[(C, u8); N]> for Budget<C> {
    fn from(chances: [(C, u8); N]) -> Self {
        let () = const { assert!(N <= CHANCES_MAX, "a budget has few kinds of chances") };
        Self(std::array::from_fn(|place| chances.get(place).copied()))
    }
}

impl<C> Default for Course<C> {
    /// Nothing may be chosen, and nothing is noted.
    fn default() -> Self {
        Self::new(Budget([const { None }; CHANCES_MAX]), &[])
    }
}

impl<C> Course<C> {
    /// A course at its beginning: this budget, and these milestones to be passed.
    pub const fn new(budget: Budget<C>, wanted: &'static [Milestone]) -> Self {
        Self { budget, wanted, passed: 0, broken: None }
    }

    /// Notes that a milestone has been passed.
    pub fn pass(&mut self, milestone: Milestone) {
        let place = self.wanted.iter().position(|wanted| *wanted == milestone);
        self.passed |= place.map_or(0, |place| 1 << place);
    }

    /// Judges a property at the moment at which something happens; the first one that does not hold is kept.
    pub fn must(&mut self, property: &'static str, holds: bool) {
        if !holds {
            self.broken.get_or_insert(property);
        }
    }
}

impl<C: Copy + fmt::Debug + Eq> Course<C> {
    /// How often this may still happen.
    pub fn left(&self, chance: C) -> u8 {
        self.budget.left(chance)
    }

    /// May this happen once more?
    pub fn may(&self, chance: C) -> bool {
        self.left(chance) > 0
    }

    /// Adds these actions if there is any such chance left.
    pub fn offer<A>(&self, chance: C, actions: &mut Vec<A>, choices: impl IntoIterator<Item = A>) {
        if self.may(chance) {
            actions.extend(choices);
        }
    }

    /// Was there ever such a chance?
    pub fn plans(&self, chance: C) -> bool {
        self.budget.0.iter().flatten().any(|(kind, _)| *kind == chance)
    }

    /// Takes one such chance from the budget.
    ///
    /// # Panics
    /// If there is none left: only what was offered can be chosen.
    pub fn spend(&mut self, chance: C) {
        let entry = self.budget.0.iter_mut().flatten().find(|(kind, left)| *kind == chance && *left > 0);
        entry.unwrap_or_else(|| panic!("there is no {chance:?} left")).1 -= 1;
    }
}

fn fingerprint(scene: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    scene.hash(&mut hasher);
    hasher.finish()
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.way {
            Some(way) => write!(f, "{:?} is broken by:\n{}", self.property, way.join("\n")),
            None => write!(f, "{:?} is never reached", self.property),
        }
    }
}
