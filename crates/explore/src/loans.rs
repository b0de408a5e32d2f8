//! Explorations of loans: two farms, and workers of the first that it lends to the second, for so many ticks of the clock.
//!
//! Offices, workers and ledgers are the ones that ship. Time passes in coarse ticks, in each of which both leaders look around as
//! often as it takes to say once how things are. Between two ticks everything arrives that was said, and everything is agreed on
//! that was proposed, in any order; what two processes say to each other keeps its order. Beyond that a budget says how often
//! something is late or lost, dies, is cut off, or is ordered by an operator.
//!
//! Left out, to keep the number of states small:
//!
//! - The log is reduced to its effects ([`crate::servers`] visits logs): a proposal of a dying leader is agreed on or lost, and
//!   another server leads at once. The coming and going of workers is agreed on at once.
//! - Of two beats that are under way in the same direction only the newer one arrives. A message that is repeated arrives once.
//! - A foreman only knows whether there is work, and it welcomes workers at once. A task is only whether its worker has one, and
//!   it has no result.
//! - All clocks are right.
//! - Only the first farm has workers. If there are two of them, the second one has its inputs and its agreements before anything
//!   else happens.
//!
//! Runs ([`primus_lab::loans`]) try all of that, and follow every task to its end.
//!
//! Three things must always hold. A worker that works for another farm is lent to it, as its owner agrees, or was taken for dead. A
//! worker that is borrowed was lent. And from every state at the end of the time every loan ends, and every live worker is at home
//! with nothing to do, once everything arrives and no more work comes.

mod action;
mod members;
mod scene;

use primus_core::planted::Planted;

use self::action::Action;
use self::scene::Scene;
use crate::frame::{Course, Milestone, Setting};

const AWAY_IS_LENT: &str = "whoever works for another farm is lent to it, or was taken for dead";
const BORROWED_IS_LENT: &str = "nobody is borrowed who was not lent";
const ENDINGS: &str = "every loan ends once everything arrives";

/// Two farms.
#[derive(Debug, Clone)]
pub struct Loans {
    /// How many workers the first farm has.
    pub workers: usize,
    /// How many ticks pass.
    pub ticks: u64,
    /// A bug that is to be found.
    pub planted: Planted,
}

/// What happens only so often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Chance {
    /// A leader or a worker dies; a worker may come back.
    Crash,
    /// Whatever is under way from one process to another is lost.
    Loss,
    /// Time passes, though something was to arrive before.
    Delay,
    /// A worker and one of the farms do not reach each other, until they do.
    Cut,
    /// The first farm has too much to do, as the second one has from the beginning.
    Flood,
    /// An operator lends somebody, or wants somebody back.
    Order,
}

/// A worker has arrived at the second farm, and may work there.
pub const ARRIVAL: Milestone = Milestone("a worker arrives");
/// A loan has ended because its worker came home.
pub const HOMECOMING: Milestone = Milestone("a worker comes home");
/// A loan has ended because its worker was taken for dead.
pub const DEATH: Milestone = Milestone("a worker is taken for dead");
/// One that was taken for dead was away, and alive.
pub const FALSE_DEATH: Milestone = Milestone("a living worker is taken for dead");
/// Somebody was wanted back.
pub const RECALL: Milestone = Milestone("a worker is wanted back");
/// A call abroad came too late, or for the second time.
pub const LATE_CALL: Milestone = Milestone("a call abroad is late");
/// A leader of the first farm died while somebody was away.
pub const LENDER_CHANGE: Milestone = Milestone("a lender's leader dies");
/// One of the second did.
pub const BORROWER_CHANGE: Milestone = Milestone("a borrower's leader dies");

/// One of the two farms: the one that lends, or the one that borrows.
pub type Farm = usize;
/// The farm that has workers.
pub const LENDER: Farm = 0;
/// The one that has too much to do.
pub const BORROWER: Farm = 1;

impl Setting for Loans {
    type Scene = Scene;
    type Action = Action;
    type Chance = Chance;

    fn open(&self, course: Course<Chance>) -> Scene {
        Scene::open(self, course)
    }

    fn urgent(&self, scene: &Scene, actions: &mut Vec<Action>) {
        scene.urgent(actions);
    }

    fn events(&self, scene: &Scene, actions: &mut Vec<Action>) {
        scene.deliveries(actions);
        if scene.now() < self.ticks && (actions.is_empty() || scene.course.may(Chance::Delay)) {
            actions.push(Action::Pass);
        }
    }

    fn choices(&self, scene: &Scene, actions: &mut Vec<Action>) {
        scene.choices(actions);
    }

    fn act(&self, scene: &mut Scene, action: Action) {
        scene.act(action);
    }

    fn course(scene: &Scene) -> &Course<Chance> {
        &scene.course
    }

    fn judge(&self, scene: &Scene) -> Option<&'static str> {
        if !scene.is_whoever_is_away_lent() {
            Some(AWAY_IS_LENT)
        } else if !scene.is_whoever_is_borrowed_lent() {
            Some(BORROWED_IS_LENT)
        } else {
            (scene.now() >= self.ticks && !scene.comes_to_rest()).then_some(ENDINGS)
        }
    }
}
