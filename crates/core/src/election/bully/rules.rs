//! What the nodes of a Bully election have agreed on beforehand: who they are, what they are ranked by, and how long things may
//! take.

use alloc::collections::BTreeMap;

use crate::election::Reminders;
use crate::ids::ServerId;
use crate::load::Score;
use crate::machine::Delay;
use crate::planted::Planted;
use crate::rank::{Address, Rank, RankBy, Standing};

/// What the nodes of one election have agreed on beforehand. They share one copy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rules {
    roster: BTreeMap<ServerId, Standing>,
    rank_by: RankBy,
    /// Does a better-ranked node take over from a live leader?
    pub preempt: bool,
    /// In which order are better-ranked peers asked?
    pub asking: Asking,
    /// How long a node that has just started waits for a leader.
    pub startup: Delay,
    /// How long an answer may take: T.
    pub answers: Delay,
    /// How long whoever answered may take to lead.
    pub victory: Delay,
    /// Does T stay as it is, however slow links are?
    pub is_answers_fixed: bool,
    /// And the time that a winner has?
    pub is_victory_fixed: bool,
    /// Repeated announcements, if wanted.
    pub reminders: Option<Reminders>,
    /// A bug that the laboratory is to find.
    pub planted: Planted,
}

/// In which order better-ranked peers are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Asking {
    /// All at once: one T, whatever happens.
    AllAtOnce,
    /// The best first, then the next: few messages, but one T for each dead peer. The order of Bully by address.
    OneByOne,
}

/// T, the time within which a live and connected peer has answered: a message there, its handling, a message
/// back (election theory).
#[must_use]
pub const fn answer_time(t_max_us: u64, t_process_us: u64) -> Delay {
    let t = 2 * t_max_us + t_process_us;
    Delay { min_us: t, max_us: t }
}

impl Rules {
    /// Rules for nodes that are ranked by their ids.
    #[must_use]
    pub fn by_id(ids: impl IntoIterator<Item = ServerId>) -> Self {
        Self::new(RankBy::Id, ids.into_iter().map(|id| (id, Standing::Id)).collect())
    }

    /// Rules for nodes that are ranked by their addresses.
    #[must_use]
    pub fn by_address(nodes: impl IntoIterator<Item = (ServerId, Address)>) -> Self {
        let nodes = nodes.into_iter().map(|(id, address)| (id, Standing::Address(address)));
        Self::new(RankBy::Address, nodes.collect())
    }

    /// Rules for nodes that are ranked by their loads.
    #[must_use]
    pub fn by_load(ids: impl IntoIterator<Item = ServerId>) -> Self {
        Self::new(RankBy::Load, ids.into_iter().map(|id| (id, Standing::Load(Score::default()))).collect())
    }

    /// Times for a local network: t_max = 20 ms, t_process = 10 ms.
    fn new(rank_by: RankBy, roster: BTreeMap<ServerId, Standing>) -> Self {
        let answers = answer_time(20_000, 10_000);
        Self {
            roster,
            rank_by,
            preempt: rank_by != RankBy::Load,
            asking: Asking::AllAtOnce,
            startup: Delay::between_ms(0, 500),
            answers,
            victory: answers.times(2),
            is_answers_fixed: false,
            is_victory_fixed: false,
            reminders: None,
            planted: Planted::NONE,
        }
    }

    /// All nodes, by id.
    pub fn ids(&self) -> impl Iterator<Item = ServerId> + Clone + '_ {
        self.roster.keys().copied()
    }

    /// What these nodes are ranked by.
    #[must_use]
    pub const fn rank_by(&self) -> RankBy {
        self.rank_by
    }

    /// The rank of a node; the score counts only where nodes are ranked by load.
    #[must_use]
    pub fn rank_of(&self, id: ServerId, score: Score) -> Rank {
        let standing = match self.rank_by {
            RankBy::Load => Standing::Load(score),
            RankBy::Id | RankBy::Address => self.roster.get(&id).copied().unwrap_or(Standing::Resigned),
        };
        Rank { standing, id }
    }

    /// Could this node have sent such a standing? Only loads and resignations are news.
    pub(super) fn allow(&self, from: ServerId, standing: Standing) -> bool {
        self.roster.get(&from).is_some_and(|known| match standing {
            Standing::Resigned => true,
            Standing::Load(_) => self.rank_by == RankBy::Load,
            Standing::Id | Standing::Address(_) => *known == standing,
        })
    }
}
