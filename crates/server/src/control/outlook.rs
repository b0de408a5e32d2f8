//! What would change that this server leads, for people who ask.
//!
//! It looks at the same things by which [`Control`] decides, and decides nothing itself.

use primus_core::ServerId;
use primus_core::election::Election;
use primus_core::handover::Progress;
use primus_replica::consensus::Consensus;

use super::Control;
use super::campaign::Candidacy;
use crate::transfer::Obstacle;

/// Who would lead instead of this leader, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlook {
    /// The best of those who are thought alive and rank better.
    pub best: Option<ServerId>,
    /// By how many hundredths of a point that one is less loaded, if its load is known.
    pub less_loaded_by: Option<i64>,
    /// Why it could not take over now.
    pub obstacle: Option<Obstacle>,
    /// What makes it take over.
    pub way: Way,
}

/// How a better server comes to lead while the leader lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It takes over as soon as it has everything, but not before this much time has passed.
    Rank {
        /// How much.
        rest_us: u64,
    },
    /// The leader hands over when it has been too loaded for too long.
    Load(Progress),
    /// It does not, because an operator chose this leader.
    Chosen,
    /// It does not.
    Never,
}

impl<E: Election, R: Consensus> Control<E, R> {
    /// What would change that this server leads. It means nothing if this server does not.
    pub fn outlook(&self) -> Outlook {
        let best = self.best();
        let score = |id: ServerId| self.loads.known.get(&id).map(|load| i64::from(load.score.hundredths()));
        let own = score(self.id).unwrap_or_default();
        Outlook {
            best,
            less_loaded_by: best.and_then(score).map(|best| own - best),
            obstacle: best
                .and_then(|best| self.hearing.successor(&self.replica, Some(best), self.gave_way()).err()),
            way: self.way(),
        }
    }

    fn way(&self) -> Way {
        let rest_us = u64::from(self.succession.patience) * self.times.silence.heartbeat_us;
        match &self.succession.handover {
            _ if self.campaign.candidacy == Candidacy::Correcting => Way::Rank { rest_us: 0 },
            _ if self.may_be_preempted() => Way::Rank { rest_us },
            Some(handover) => Way::Load(handover.progress()),
            None if self.is_chosen() => Way::Chosen,
            None => Way::Never,
        }
    }
}
