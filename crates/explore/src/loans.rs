//! An exploration of loans: two farms, and workers of the first that it lends to the second; every state that they can reach
//! within so many ticks of the clock.
//!
//! Offices, allegiances and ledgers are the real ones. Time passes in coarse ticks, in each of which both leaders look around as
//! often as it takes to say once how things are. Between two ticks everything arrives that was said, and everything is agreed on
//! that was proposed, in any order; what two processes say to each other keeps its order. Beyond that a budget says how often
//! something is late or lost, dies, is cut off, or is ordered by an operator.
//!
//! Left out, lest there be too many states: the log is what it comes to ([`crate::servers`] visits logs), so what a dying
//! leader has proposed is agreed on or lost, and another one leads at once; that workers come and go is agreed on at once; of two
//! beats that are under way in the same direction only the newer one arrives, and what is said twice in a row arrives once; a
//! foreman is only whether there is work, and a task only whether its worker has one; all clocks are right. Only the first farm
//! has workers. If there are two of them, farms agree and the second worker hears, says and does what it has to, before anything
//! else happens. Runs ([`primus_lab::loans`]) try all of that, and follow every task to its end.
//!
//! What must always hold is that whoever works for another farm is lent to it, as its owner agrees, or was taken for dead; that
//! nobody is borrowed who was not lent; and that from every state at the end of the time every loan ends, and everybody who lives
//! is at home with nothing to do, once everything arrives and no more work comes.

mod members;
mod scene;

use std::fmt;

use primus_core::planted::Planted;
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::elections::{Broken, judge};
pub use scene::Scene;

const HOMECOMING: &str = "whoever works for another farm is lent to it, or was taken for dead";
const CONSERVATION: &str = "nobody is borrowed who was not lent";
const ENDINGS: &str = "every loan ends once everything arrives";

/// Two farms, what may happen to them, and what must be reached.
#[derive(Debug, Clone)]
pub struct LoanExploration {
    /// How many workers the first farm has.
    pub workers: usize,
    /// How many ticks pass.
    pub ticks: u64,
    /// How often what may happen.
    pub budget: Budget,
    /// What must be reached, lest everything hold for want of cases.
    pub milestones: &'static [Milestone],
    /// A bug that is to be found.
    pub planted: Planted,
}

/// How often something may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Budget {
    /// A leader or a worker dies; a worker may come back.
    pub crashes: u8,
    /// Whatever is under way from one process to another is lost.
    pub losses: u8,
    /// Time passes, though something was to arrive before.
    pub delays: u8,
    /// A worker and one of the farms do not reach each other, until they do.
    pub cuts: u8,
    /// The first farm has too much to do, as the second one has from the beginning.
    pub floods: u8,
    /// An operator lends somebody, or wants somebody back.
    pub orders: u8,
}

/// Something that must happen on some way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Milestone {
    /// A worker has arrived at the second farm, and may work there.
    Arrival,
    /// A loan has ended because its worker came home.
    Homecoming,
    /// A loan has ended because its worker was taken for dead.
    Death,
    /// One that was taken for dead was away, and alive.
    FalseDeath,
    /// Somebody was wanted back.
    Recall,
    /// A call abroad came too late, or for the second time.
    LateCall,
    /// A leader of the first farm died while somebody was away.
    LenderChange,
    /// One of the second did.
    BorrowerChange,
}

/// One of the two farms: the one that lends, or the one that borrows.
pub type Farm = usize;
/// The farm that has workers.
pub const LENDER: Farm = 0;
/// The one that has too much to do.
pub const BORROWER: Farm = 1;

/// Something that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The next thing arrives that the leader of this farm has said to the other one.
    Beat(Farm),
    /// The next thing is agreed on that the leader of this farm has proposed.
    Agree(Farm),
    /// The next thing arrives that its own leader has said to a worker,
    Call(usize),
    /// or the other farm's leader.
    Abroad(usize),
    /// The next thing arrives that a worker has said to its own leader.
    Word(usize),
    /// A worker introduces itself to the other farm.
    Greeting(usize),
    /// What a worker has written is on its disk.
    Synced(usize),
    /// A farm notices that a worker is not there any more.
    Missed(Farm, usize),
    /// What a worker runs has ended.
    Done(usize),
    /// A farm has nothing more to do.
    Calm(Farm),
    /// A farm has too much to do.
    Flood(Farm),
    /// An operator lends a worker,
    Lend(usize),
    /// or wants it back.
    Recall(usize),
    /// A leader dies, and another one leads; has a majority heard of what it had proposed?
    LeaderDies(Farm, bool),
    /// A worker dies; was what it had written on its disk already?
    Dies(usize, bool),
    /// It starts again.
    Restarts(usize),
    /// A worker and a farm do not reach each other.
    Cut(Farm, usize),
    /// They do again.
    Mend(Farm, usize),
    /// What is under way on this way is lost.
    Lose(Way),
    /// A tick passes.
    Pass,
}

/// From whom to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the leader of this farm to the other one.
    Between(Farm),
    /// From a worker's own leader to the worker,
    Down(usize),
    /// and back.
    Up(usize),
}

impl Model for LoanExploration {
    type State = Scene;
    type Action = Action;

    fn init_states(&self) -> Vec<Scene> {
        vec![Scene::open(self)]
    }

    fn actions(&self, scene: &Scene, actions: &mut Vec<Action>) {
        scene.urgent(actions);
        if !actions.is_empty() {
            return;
        }
        scene.deliveries(actions);
        if scene.now() < self.ticks && (actions.is_empty() || scene.may_delay()) {
            actions.push(Action::Pass);
        }
        scene.choices(actions);
    }

    fn next_state(&self, scene: &Scene, action: Action) -> Option<Scene> {
        let mut next = scene.clone();
        next.act(action);
        next.keep_only(self.milestones);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let ends = |model: &Self, scene: &Scene| scene.now() < model.ticks || scene.comes_to_rest();
        let always = [
            Property::always(HOMECOMING, |_, scene: &Scene| scene.is_whoever_is_away_lent()),
            Property::always(CONSERVATION, |_, scene: &Scene| scene.is_whoever_is_borrowed_lent()),
            Property::always(ENDINGS, ends),
        ];
        always.into_iter().chain(self.milestones.iter().map(|milestone| milestone.property())).collect()
    }
}

impl LoanExploration {
    /// Visits every state and returns how many there are.
    ///
    /// # Errors
    /// If a property is broken, or something is never reached.
    pub fn visit(&self) -> Result<usize, Broken> {
        judge(&self.clone().checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join())
    }
}

impl Milestone {
    pub(crate) const fn bit(self) -> u8 {
        1 << self as u8
    }

    fn property(self) -> Property<LoanExploration> {
        let sometimes = Property::<LoanExploration>::sometimes;
        match self {
            Self::Arrival => sometimes("a worker arrives", |_, scene| scene.has_passed(Self::Arrival)),
            Self::Homecoming => sometimes("a worker comes home", |_, scene| scene.has_passed(Self::Homecoming)),
            Self::Death => sometimes("a worker is taken for dead", |_, scene| scene.has_passed(Self::Death)),
            Self::FalseDeath => {
                sometimes("a living worker is taken for dead", |_, scene| scene.has_passed(Self::FalseDeath))
            }
            Self::Recall => sometimes("a worker is wanted back", |_, scene| scene.has_passed(Self::Recall)),
            Self::LateCall => sometimes("a call abroad is late", |_, scene| scene.has_passed(Self::LateCall)),
            Self::LenderChange => {
                sometimes("a lender's leader dies", |_, scene| scene.has_passed(Self::LenderChange))
            }
            Self::BorrowerChange => {
                sometimes("a borrower's leader dies", |_, scene| scene.has_passed(Self::BorrowerChange))
            }
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beat(farm) => write!(f, "farm {farm} is heard"),
            Self::Agree(farm) => write!(f, "farm {farm} agrees"),
            Self::Call(worker) => write!(f, "worker {worker} hears its own leader"),
            Self::Abroad(worker) => write!(f, "worker {worker} hears the other leader"),
            Self::Word(worker) => write!(f, "worker {worker} is heard at home"),
            Self::Greeting(worker) => write!(f, "worker {worker} introduces itself abroad"),
            Self::Synced(worker) => write!(f, "worker {worker} has written"),
            Self::Missed(farm, worker) => write!(f, "farm {farm} misses worker {worker}"),
            Self::Done(worker) => write!(f, "worker {worker} is done"),
            Self::Calm(farm) => write!(f, "farm {farm} has nothing to do"),
            Self::Flood(farm) => write!(f, "farm {farm} has too much to do"),
            Self::Lend(worker) => write!(f, "an operator lends worker {worker}"),
            Self::Recall(worker) => write!(f, "an operator wants worker {worker} back"),
            Self::LeaderDies(farm, false) => write!(f, "the leader of farm {farm} dies"),
            Self::LeaderDies(farm, true) => write!(f, "the leader of farm {farm} dies, but was heard"),
            Self::Dies(worker, true) => write!(f, "worker {worker} dies"),
            Self::Dies(worker, false) => write!(f, "worker {worker} dies before it has written"),
            Self::Restarts(worker) => write!(f, "worker {worker} starts again"),
            Self::Cut(farm, worker) => write!(f, "worker {worker} and farm {farm} are cut off"),
            Self::Mend(farm, worker) => write!(f, "worker {worker} and farm {farm} reach each other"),
            Self::Lose(Way::Between(farm)) => write!(f, "what farm {farm} has said is lost"),
            Self::Lose(Way::Down(worker)) => write!(f, "what worker {worker} was told is lost"),
            Self::Lose(Way::Up(worker)) => write!(f, "what worker {worker} has said is lost"),
            Self::Pass => f.write_str("a tick passes"),
        }
    }
}
