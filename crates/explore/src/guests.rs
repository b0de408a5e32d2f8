//! An exploration of what a guest does: a worker that is lent to a farm, the tasks that it gets there, and its way home; every
//! state that they can reach, in any kind of time.
//!
//! Foreman, ledger, worker and allegiance are the real ones. Nothing here has a length: a timer that is set runs out at any
//! moment, what was proposed is agreed on at any moment, in order, and so is heard what was said on a link. Beyond that a budget
//! says how often somebody dies, a link breaks, a living worker is given up, or is lent again.
//!
//! Left out, lest there be too many states: the lender is only its calls, and that it cannot be reached for a while is the same
//! as calling later, as the end of the guest's time is the same as being called home; of the borrower's office there is only that
//! it lets in whoever is lent; the log is what it comes to ([`crate::servers`] visits logs), so what a dying leader has
//! proposed is agreed on or lost, another one leads at once, and nobody hears of a deposed one; the borrower's own worker, if it
//! has one, never fails and hears everything at once; a worker beats only when it was given up for its silence. How farms agree
//! about loans is explored elsewhere ([`primus_lab::loans`]).
//!
//! What must always hold is that no task is handed out whose result is recorded; that what is recorded has begun; that nothing
//! runs for the borrower on a worker that is at home; that what must not start twice does not; and that from every state in which
//! nothing is under way every task comes to one result, and the guest home with nothing to tell, once everybody is reached.

mod guest;
mod link;
mod scene;

use std::fmt;

use primus_core::planted::Planted;
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::elections::{Broken, judge};
pub use scene::Scene;

/// A farm that has borrowed a worker, what may happen to both, and what must be reached.
#[derive(Debug, Clone)]
pub struct GuestExploration {
    /// How many tasks there are.
    pub tasks: u64,
    /// Must none of them start twice?
    pub is_once: bool,
    /// Has the borrower a worker of its own? If not, one comes when all else is over.
    pub has_own: bool,
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
    /// The borrower's leader or the guest dies; the guest comes back.
    pub crashes: u8,
    /// The link between guest and borrower breaks, and all that is on it is lost.
    pub cuts: u8,
    /// The borrower gives the guest up for its silence, though it lives.
    pub doubts: u8,
    /// Its own farm lends the guest once more.
    pub calls: u8,
}

/// Something that must happen on some way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Milestone {
    /// A worker that is at home tells the borrower a result.
    ToldFromHome,
    /// A task was stopped at the deadline, and has begun again.
    RunsAgain,
    /// A task has come back that had not begun.
    WentBack,
    /// A leader has died while the guest worked for it.
    LeaderDied,
    /// A worker that had results to tell was lent to the same farm again.
    LentAgain,
}

/// What is checked whenever something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Rule {
    HandedOutLate,
    NeverBegan,
    SecondResult,
    RunsAtHome,
    StartedTwice,
}

/// Something that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The borrower hears the next thing that the guest has said.
    Heard,
    /// The guest hears the next thing that the borrower has said.
    Told,
    /// The next thing is agreed on that the borrower's leader has proposed.
    Agree,
    /// What the guest has written is on its disk: its results,
    Synced,
    /// or which call it follows.
    EpochSynced,
    /// What the guest runs has ended; or the borrower's own worker has ended something.
    Done(Member),
    /// The guest opens a link to the leader.
    Dial,
    /// The leader notices that its link to the guest is gone,
    LeaderNotices,
    /// or the guest does.
    GuestNotices,
    /// A timer of the leader runs out: the guest has not come back in time,
    Grace,
    /// or it was silent for too long,
    Silence,
    /// or not everybody has said what it has.
    Settle,
    /// The guest shows that it is alive.
    Beat,
    /// The disk shall have what the guest has gathered.
    Gather,
    /// What the guest still runs has had time enough.
    Deadline,
    /// Its own leader wants the guest back.
    Recall,
    /// The borrower does not need it any more, and says so.
    Release,
    /// The borrower takes note that the guest has gone.
    GiveBack,
    /// Its own leader lends it again.
    Call,
    /// The borrower's leader dies, and another one leads; has a majority heard of what it had proposed?
    LeaderDies(bool),
    /// The guest dies; was what it had written on its disk already?
    Dies(bool),
    /// It starts again.
    Restarts,
    /// The link breaks.
    Cut,
}

/// Who works for the borrower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Member {
    /// The one that it has borrowed.
    Guest,
    /// Its own.
    Own,
}

impl Model for GuestExploration {
    type State = Scene;
    type Action = Action;

    fn init_states(&self) -> Vec<Scene> {
        vec![Scene::open(self)]
    }

    fn actions(&self, scene: &Scene, actions: &mut Vec<Action>) {
        if scene.is_broken() {
            // Shows the shortest way to what is wrong.
            return;
        }
        scene.deliveries(actions);
        scene.timeouts(actions);
        scene.choices(actions);
    }

    fn next_state(&self, scene: &Scene, action: Action) -> Option<Scene> {
        let mut next = scene.clone();
        next.act(action);
        next.keep_only(self.milestones);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let always = Property::<Self>::always;
        let rules = [
            always("no task is handed out whose result is recorded", |_, scene| scene.is_kept(Rule::HandedOutLate)),
            always("what is recorded has begun", |_, scene| scene.is_kept(Rule::NeverBegan)),
            always("a task has one result", |_, scene| scene.is_kept(Rule::SecondResult)),
            always("nothing runs for the borrower on a worker that is at home", |_, scene| {
                scene.is_kept(Rule::RunsAtHome)
            }),
            always("what must not start twice does not", |_, scene| scene.is_kept(Rule::StartedTwice)),
            always("every task comes to a result once everybody is reached", |_, scene| scene.comes_to_rest()),
        ];
        rules.into_iter().chain(self.milestones.iter().map(|milestone| milestone.property())).collect()
    }
}

impl GuestExploration {
    /// Visits every state and returns how many there are.
    ///
    /// # Errors
    /// If a property is broken, or something is never reached.
    pub fn visit(&self) -> Result<usize, Broken> {
        judge(&self.clone().checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join())
    }
}

impl Rule {
    pub(crate) const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl Milestone {
    pub(crate) const fn bit(self) -> u8 {
        1 << self as u8
    }

    fn property(self) -> Property<GuestExploration> {
        let sometimes = Property::<GuestExploration>::sometimes;
        match self {
            Self::ToldFromHome => {
                sometimes("a result is told from home", |_, scene| scene.has_passed(Self::ToldFromHome))
            }
            Self::RunsAgain => {
                sometimes("what was stopped begins again", |_, scene| scene.has_passed(Self::RunsAgain))
            }
            Self::WentBack => {
                sometimes("a task goes back that had not begun", |_, scene| scene.has_passed(Self::WentBack))
            }
            Self::LeaderDied => {
                sometimes("a leader dies while the guest works", |_, scene| scene.has_passed(Self::LeaderDied))
            }
            Self::LentAgain => sometimes("one that has results to tell is lent again", |_, scene| {
                scene.has_passed(Self::LentAgain)
            }),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Heard => "the guest is heard",
            Self::Told => "the guest hears the leader",
            Self::Agree => "the farm agrees",
            Self::Synced => "the guest's results are on its disk",
            Self::EpochSynced => "the guest's epoch is on its disk",
            Self::Done(Member::Guest) => "the guest has ended something",
            Self::Done(Member::Own) => "the own worker has ended something",
            Self::Dial => "the guest opens a link",
            Self::LeaderNotices => "the leader notices that the link is gone",
            Self::GuestNotices => "the guest notices that the link is gone",
            Self::Grace => "the guest has not come back in time",
            Self::Silence => "the guest is silent for too long",
            Self::Settle => "the leader waits for reports no longer",
            Self::Beat => "the guest beats",
            Self::Gather => "the guest writes what it has gathered",
            Self::Deadline => "the deadline passes",
            Self::Recall => "the guest is wanted at home",
            Self::Release => "the borrower lets the guest go",
            Self::GiveBack => "the borrower gives the guest back",
            Self::Call => "the guest is lent again",
            Self::LeaderDies(false) => "the leader dies",
            Self::LeaderDies(true) => "the leader dies, but was heard",
            Self::Dies(true) => "the guest dies",
            Self::Dies(false) => "the guest dies before it has written",
            Self::Restarts => "the guest starts again",
            Self::Cut => "the link breaks",
        })
    }
}
